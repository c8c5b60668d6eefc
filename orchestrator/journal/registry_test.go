package journal

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"savepoint/orchestrator"
)

func box(id, name string, state orchestrator.SandboxState, vm orchestrator.VMID) orchestrator.Sandbox {
	return orchestrator.Sandbox{
		ID: orchestrator.SandboxID(id), Name: name, State: state, VM: orchestrator.VMRef{Node: "pve1", ID: vm},
		Address: netip.MustParseAddr("10.7.0.10"), HostKey: "ssh-ed25519 AAAA", Created: time.Unix(1700000000, 5).UTC(),
	}
}

// clock is a hand-set one.
type clock struct {
	mu sync.Mutex
	t  time.Time
}

func (c *clock) now() time.Time      { c.mu.Lock(); defer c.mu.Unlock(); return c.t }
func (c *clock) add(d time.Duration) { c.mu.Lock(); defer c.mu.Unlock(); c.t = c.t.Add(d) }

// registry opens a journal on a hand-set clock; reopen closes and opens it.
func registry(t *testing.T) (j *Journal, c *clock, reopen func() *Journal) {
	path := filepath.Join(t.TempDir(), "j")
	c = &clock{t: time.Unix(1700000000, 0)}
	j = open(t, path, Options{Now: c.now})
	return j, c, func() *Journal {
		t.Helper()
		if err := j.Close(); err != nil {
			t.Fatal(err)
		}
		j = open(t, path, Options{Now: c.now})
		return j
	}
}

// F29: the mapping from sandbox to VM survives, with everything else.
func TestSandboxes(t *testing.T) {
	t.Parallel()
	j, _, reopen := registry(t)
	ctx := context.Background()
	a, b := box("a", "dev", orchestrator.SandboxCreating, 9001), box("b", "other", orchestrator.SandboxReady, 9002)
	for _, sb := range []orchestrator.Sandbox{a, b} {
		if err := j.PutSandbox(ctx, sb); err != nil {
			t.Fatal(err)
		}
	}
	a.State, a.HostKey, a.Workspace = orchestrator.SandboxReady, "ssh-ed25519 CCCC", "tank/dev"
	if err := j.PutSandbox(ctx, a); err != nil {
		t.Fatal(err)
	}
	taken := box("c", "dev", orchestrator.SandboxCreating, 9003)
	if err := j.PutSandbox(ctx, taken); !errors.Is(err, orchestrator.ErrExists) {
		t.Errorf("a name in use: got %v", err)
	}
	j = reopen()
	got, err := j.Sandboxes(ctx)
	if diff := cmp.Diff([]orchestrator.Sandbox{a, b}, got, cmpopts.EquateComparable(netip.Addr{})); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	a.State = orchestrator.SandboxDestroyed
	if err := j.PutSandbox(ctx, a); err != nil {
		t.Fatal(err)
	}
	if err := j.PutSandbox(ctx, taken); err != nil {
		t.Errorf("the name of a destroyed sandbox: %v", err)
	}
	if got, err := j.Sandboxes(ctx); err != nil || len(got) != 3 {
		t.Errorf("%d sandboxes, %v; the destroyed one has to be kept", len(got), err)
	}
	for _, bad := range []orchestrator.Sandbox{box("", "x", "ready", 1), box("x", "", "ready", 1), box("x", "x", "", 1)} {
		if err := j.PutSandbox(ctx, bad); !errors.Is(err, orchestrator.ErrDenied) {
			t.Errorf("put %+v: got %v", bad, err)
		}
	}
}

const rest = time.Hour

func reserve(t *testing.T, j *Journal, first, last orchestrator.VMID, owner string) orchestrator.VMID {
	t.Helper()
	id, err := j.ReserveVMID(context.Background(), first, last, rest, orchestrator.SandboxID(owner))
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// F44: the candidate advances, also for the same owner and over a restart;
// F42: an id somebody else has is not offered again.
func TestVMIDAdvances(t *testing.T) {
	t.Parallel()
	j, c, reopen := registry(t)
	ctx := context.Background()
	if id := reserve(t, j, 9000, 9003, "a"); id != 9000 {
		t.Errorf("first: %d", id)
	}
	if id := reserve(t, j, 9000, 9003, "a"); id != 9001 {
		t.Errorf("after a collision: %d", id)
	}
	j = reopen()
	if id := reserve(t, j, 9000, 9003, "b"); id != 9002 {
		t.Errorf("after a restart: %d", id)
	}
	if id := reserve(t, j, 9000, 9003, "c"); id != 9003 {
		t.Errorf("the last: %d", id)
	}
	if _, err := j.ReserveVMID(ctx, 9000, 9003, rest, "d"); !errors.Is(err, orchestrator.ErrBusy) {
		t.Errorf("none left: got %v", err)
	}
	c.add(rest + time.Second) // reservations without a sandbox lapse
	if id := reserve(t, j, 9000, 9003, "d"); id != 9000 {
		t.Errorf("going round: %d", id)
	}
}

// F43: an id of a sandbox is not given out while it lives, nor for a while
// after it is destroyed.
func TestVMIDRests(t *testing.T) {
	t.Parallel()
	j, c, reopen := registry(t)
	ctx := context.Background()
	put := func(state orchestrator.SandboxState) {
		t.Helper()
		if err := j.PutSandbox(ctx, box("a", "dev", state, 9000)); err != nil {
			t.Fatal(err)
		}
	}
	none := func(when string) {
		t.Helper()
		if id, err := j.ReserveVMID(ctx, 9000, 9000, rest, "b"); !errors.Is(err, orchestrator.ErrBusy) {
			t.Errorf("%s: got %d, %v", when, id, err)
		}
	}
	reserve(t, j, 9000, 9000, "a")
	none("reserved")
	put(orchestrator.SandboxReady)
	c.add(1000 * time.Hour)
	none("ready for long")
	put(orchestrator.SandboxQuarantined)
	none("quarantined")
	put(orchestrator.SandboxDestroyed)
	j = reopen()
	none("just destroyed")
	c.add(rest - time.Minute)
	put(orchestrator.SandboxDestroyed) // said again: the rest does not begin anew
	none("at rest")
	c.add(-48 * time.Hour)
	none("after the clock was set back")
	c.add(48*time.Hour + 2*time.Minute)
	if id := reserve(t, j, 9000, 9000, "b"); id != 9000 {
		t.Errorf("after its rest: %d", id)
	}
}

// F42: callers at the same time get different ids.
func TestVMIDConcurrent(t *testing.T) {
	t.Parallel()
	j, _, _ := registry(t)
	var mu sync.Mutex
	seen := map[orchestrator.VMID]bool{}
	var wg sync.WaitGroup
	for i := range 40 {
		wg.Go(func() {
			id, err := j.ReserveVMID(context.Background(), 9000, 9039, rest, orchestrator.SandboxID(fmt.Sprint(i)))
			mu.Lock()
			defer mu.Unlock()
			if err != nil || seen[id] || id < 9000 || id > 9039 {
				t.Errorf("got %d, %v", id, err)
			}
			seen[id] = true
		})
	}
	wg.Wait()
}

// F45: ids outside of the cluster's range are refused.
func TestVMIDRange(t *testing.T) {
	t.Parallel()
	j, _, _ := registry(t)
	ctx := context.Background()
	for _, r := range [][2]orchestrator.VMID{{0, 200}, {-1, 200}, {99, 200}, {200, 199}, {100, 1000000000}} {
		if _, err := j.ReserveVMID(ctx, r[0], r[1], rest, "a"); !errors.Is(err, orchestrator.ErrDenied) {
			t.Errorf("range %v: got %v", r, err)
		}
	}
	if _, err := j.ReserveVMID(ctx, 100, 200, rest, ""); !errors.Is(err, orchestrator.ErrDenied) {
		t.Errorf("no owner: got %v", err)
	}
}

// F107: addresses come from one durable plan, exclusive, without the subnet's
// special ones.
func TestAddresses(t *testing.T) {
	t.Parallel()
	j, _, reopen := registry(t)
	ctx := context.Background()
	net := netip.MustParsePrefix("10.7.0.0/28")
	get := func(owner string) string {
		t.Helper()
		a, err := j.ReserveAddress(ctx, net, orchestrator.SandboxID(owner))
		if err != nil {
			return err.Error()
		}
		return a.String()
	}
	if a := get("a"); a != "10.7.0.2" {
		t.Errorf("first: %s", a)
	}
	if a := get("a"); a != "10.7.0.2" {
		t.Errorf("the same owner again: %s", a)
	}
	if a := get("b"); a != "10.7.0.3" {
		t.Errorf("second: %s", a)
	}
	if err := j.ReleaseAddress(ctx, "a"); err != nil {
		t.Fatal(err)
	}
	if err := j.ReleaseAddress(ctx, "a"); err != nil {
		t.Errorf("release again: %v", err)
	}
	j = reopen()
	for i := 4; i <= 14; i++ { // a released one comes last
		if a, want := get(fmt.Sprint("c", i)), fmt.Sprint("10.7.0.", i); a != want {
			t.Errorf("got %s, want %s", a, want)
		}
	}
	if a := get("d"); a != "10.7.0.2" {
		t.Errorf("the released one: %s", a)
	}
	if _, err := j.ReserveAddress(ctx, net, "e"); !errors.Is(err, orchestrator.ErrBusy) {
		t.Errorf("none left: got %v", err)
	}
	// A subnet that overlaps does not give a used address.
	if a, err := j.ReserveAddress(ctx, netip.MustParsePrefix("10.7.0.8/29"), "f"); !errors.Is(err, orchestrator.ErrBusy) {
		t.Errorf("an overlapping subnet: got %s, %v", a, err)
	}
	for prefix, want := range map[string]string{
		"10.8.0.0/24": "10.8.0.10", "10.9.0.77/24": "10.9.0.10", "10.10.0.0/30": "10.10.0.2", "fd00::/64": "fd00::a",
	} {
		if a, err := j.ReserveAddress(ctx, netip.MustParsePrefix(prefix), "g"); err != nil || a.String() != want {
			t.Errorf("first of %s: got %s, %v; want %s", prefix, a, err, want)
		}
	}
	for _, prefix := range []string{"10.11.0.0/31", "10.11.0.1/32"} {
		if a, err := j.ReserveAddress(ctx, netip.MustParsePrefix(prefix), "g"); !errors.Is(err, orchestrator.ErrBusy) {
			t.Errorf("%s has no host to give: got %s, %v", prefix, a, err)
		}
	}
	if _, err := j.ReserveAddress(ctx, netip.Prefix{}, "g"); !errors.Is(err, orchestrator.ErrDenied) {
		t.Errorf("no subnet: got %v", err)
	}
}
