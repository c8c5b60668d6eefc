package sim_test

import (
	"context"
	"fmt"
	"net/netip"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"
	"unsafe"

	"go.uber.org/goleak"

	"savepoint/orchestrator"
	"savepoint/orchestrator/sshexec"
	"savepoint/policy"
	"savepoint/testbed/conformance"
	"savepoint/testbed/jump"
	"savepoint/testbed/pve"
	"savepoint/testbed/sim"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// permit forges a permit: these tests are about running, not about judging.
func permit(command string, user policy.User) policy.Permit {
	var p policy.Permit
	v := reflect.ValueOf(&p).Elem()
	for name, value := range map[string]any{"valid": true, "command": command, "user": user} {
		f := v.FieldByName(name)
		reflect.NewAt(f.Type(), unsafe.Pointer(f.UnsafeAddr())).Elem().Set(reflect.ValueOf(value))
	}
	return p
}

// hosted is a backend with a jump host and a client.
type hosted struct {
	*sim.Backend
	client *sshexec.Client
	id     sshexec.Identity
	jump   *jump.Server
}

func newWorld(t testing.TB, how sim.Behaviour, edit func(*sshexec.Config)) *hosted {
	t.Helper()
	dir := t.TempDir()
	id, err := sshexec.CreateIdentity(filepath.Join(dir, "id"), "test")
	if err != nil {
		t.Fatal(err)
	}
	b := sim.New(how)
	t.Cleanup(func() { b.Close() })
	j, err := jump.Listen(jump.Config{Dir: dir, Authorized: []string{id.AuthorizedKey()}, Resolve: b.SSH})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { j.Close() })
	cfg := sshexec.Config{Identities: []sshexec.Identity{id}, RetryInterval: 5 * time.Millisecond,
		Jump: &sshexec.Jump{Address: j.Addr().String(), User: "savepoint", HostKey: j.HostKey(), Identity: id}}
	if edit != nil {
		edit(&cfg)
	}
	c, err := sshexec.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return &hosted{b, c, id, j}
}

// sandbox boots a VM and pins the host key that it made.
func (w *hosted) sandbox(t testing.TB, vmid int) (pve.Machine, orchestrator.Sandbox) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	m, err := w.Boot(ctx, vmid, netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 9, 0, byte(vmid)}), 24), w.id.AuthorizedKey())
	if err != nil {
		t.Fatal(err)
	}
	key, err := w.HostKey(ctx, vmid)
	if err != nil {
		t.Fatal(err)
	}
	return m, orchestrator.Sandbox{ID: orchestrator.SandboxID(fmt.Sprint("sb-", vmid)), Name: fmt.Sprint("sandbox-", vmid), Address: m.Address.Addr(), HostKey: key}
}

func TestConformance(t *testing.T) {
	conformance.Executor(t, func(t *testing.T) conformance.ExecutorUnderTest {
		w := newWorld(t, sim.Behaviour{}, nil)
		_, sb := w.sandbox(t, 101)
		if err := w.client.Prepare(t.Context(), sb, []string{w.id.AuthorizedKey()}); err != nil {
			t.Fatal(err)
		}
		other, err := sshexec.CreateIdentity(filepath.Join(t.TempDir(), "other"), "")
		if err != nil {
			t.Fatal(err)
		}
		return conformance.ExecutorUnderTest{Executor: w.client, Guest: w.client, Sandbox: sb, Permit: permit,
			Other: netip.MustParseAddr("10.9.0.250"), OtherKey: other.AuthorizedKey()}
	}, conformance.ExecutorCaps{Clock: true, Agent: true, Parallel: 8, Slack: 20 * time.Millisecond})
}

func execFor(d time.Duration) orchestrator.ExecRequest { return orchestrator.ExecRequest{Timeout: d} }

func number(line string) int {
	n, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil {
		return -1
	}
	return n
}
