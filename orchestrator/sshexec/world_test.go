package sshexec_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"savepoint/orchestrator"
	"savepoint/orchestrator/sshexec"
	"savepoint/policy"
	"savepoint/testbed/jump"
	"savepoint/testbed/pve"
	"savepoint/testbed/sim"
)

// world is a simulated node with a jump host, and a client that counts how
// often it dials.
type world struct {
	*sim.Backend
	*sshexec.Client
	id    sshexec.Identity
	jump  *jump.Server
	dir   string
	cfg   sshexec.Config
	dials atomic.Int64
}

func newWorld(t testing.TB, how sim.Behaviour, edit func(*sshexec.Config)) *world {
	t.Helper()
	w := &world{Backend: sim.New(how), id: identity(t), dir: t.TempDir()}
	t.Cleanup(func() { w.Backend.Close() })
	w.startJump(t, netip.AddrPort{})
	w.cfg = sshexec.Config{
		Identities:    []sshexec.Identity{w.id},
		RetryInterval: 5 * time.Millisecond,
		Jump:          &sshexec.Jump{Address: w.jump.Addr().String(), User: "savepoint", HostKey: w.jump.HostKey(), Identity: w.id},
		Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
			w.dials.Add(1)
			return (&net.Dialer{}).DialContext(ctx, network, address)
		},
	}
	if edit != nil {
		edit(&w.cfg)
	}
	w.Client = client(t, w.cfg)
	return w
}

func (w *world) startJump(t testing.TB, at netip.AddrPort) {
	t.Helper()
	j, err := jump.Listen(jump.Config{Dir: w.dir, Address: at, Authorized: []string{w.id.AuthorizedKey()}, Resolve: w.Backend.SSH})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { j.Close() })
	w.jump = j
}

// boot starts a VM; the sandbox has a host key only if the guest boots at once.
func (w *world) boot(t testing.TB, vmid int) (pve.Machine, orchestrator.Sandbox) {
	t.Helper()
	m, err := w.Boot(t.Context(), vmid, netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 9, 0, byte(vmid)}), 24), w.id.AuthorizedKey())
	if err != nil {
		t.Fatal(err)
	}
	return m, orchestrator.Sandbox{ID: orchestrator.SandboxID(fmt.Sprint("sb-", vmid)), Name: fmt.Sprint("sandbox-", vmid), Address: m.Address.Addr()}
}

func (w *world) sandbox(t testing.TB, vmid int) (pve.Machine, orchestrator.Sandbox) {
	t.Helper()
	m, sb := w.boot(t, vmid)
	var err error
	if sb.HostKey, err = w.HostKey(within(t, 20*time.Second), vmid); err != nil {
		t.Fatal(err)
	}
	return m, sb
}

func within(t testing.TB, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

func (w *world) run(t testing.TB, sb orchestrator.Sandbox, command string) string {
	t.Helper()
	res, err := w.Run(within(t, 20*time.Second), sb, permit(command, policy.Agent), orchestrator.ExecRequest{})
	if err != nil || res.ExitCode != 0 {
		t.Fatalf("%q: exit %d, %s, %v", command, res.ExitCode, res.Stderr, err)
	}
	return string(res.Stdout)
}

// eventually polls a condition.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("never happened: %s", what)
		}
	}
}

func wantClass(t testing.TB, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("got %v, want %v", err, want)
	}
	for _, other := range []error{orchestrator.ErrNotFound, orchestrator.ErrExists, orchestrator.ErrBusy, orchestrator.ErrUnavailable, orchestrator.ErrUnknownOutcome, orchestrator.ErrDenied} {
		if other != want && errors.Is(err, other) {
			t.Fatalf("got %v, which is %v as well as %v", err, other, want)
		}
	}
}

func otherKey(t testing.TB) string {
	t.Helper()
	id, err := sshexec.CreateIdentity(filepath.Join(t.TempDir(), "other"), "")
	if err != nil {
		t.Fatal(err)
	}
	return id.AuthorizedKey()
}
