package provision

import (
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"savepoint/orchestrator"
)

// TestTenant: a sandbox of a tenant is plugged into the tenant's network, with an
// address of it, and handed out only when it is proved to be sealed (F101, F106,
// F108).
func TestTenant(t *testing.T) {
	w := newWorld()
	sb, err := w.provisioner().Create(t.Context(), "one", wish)
	if err != nil {
		t.Fatal(err)
	}
	if sb.Tenant != "alpha" || sb.VNet != "small" || sb.Address != netip.MustParseAddr("10.1.0.1") || w.vms[sb.VM.ID].bridge != "sp1" {
		t.Errorf("sandbox %+v on bridge %q; want it on the first network", sb, w.vms[sb.VM.ID].bridge)
	}
	if got := w.sandboxes[sb.ID]; got != sb {
		t.Errorf("recorded %+v, returned %+v", got, sb)
	}
	prove, pristine := slices.Index(w.ops, "prove"), slices.Index(w.ops, "snapshot")
	if prove < 0 || prove > pristine {
		t.Errorf("operations %v; want the proof before the pristine snapshot", w.ops)
	}
	if _, err := w.provisioner().Create(t.Context(), "two", wish); err != nil {
		t.Fatal(err)
	}
	three, err := w.provisioner().Create(t.Context(), "three", wish)
	if err != nil || three.VNet != "large" || w.vms[three.VM.ID].bridge != "sp2" {
		t.Errorf("sandbox %+v, %v; want it on the second network, the first one is full", three, err)
	}
	if err := w.provisioner().Reset(t.Context(), sb); err != nil || w.count("prove") != 4 {
		t.Errorf("reset: %v, %d proofs; want another one after the rollback", err, w.count("prove"))
	}
}

// TestLeak: a sandbox that is not sealed is not handed out: neither a new one,
// nor one that was reset, nor one that an operator releases (F108).
func TestLeak(t *testing.T) {
	w, sb := made(t)
	sb.Tenant = "alpha"
	w.sandboxes[sb.ID] = sb
	w.leaks = true
	if _, err := w.provisioner().Create(t.Context(), "new", wish); !errors.Is(err, orchestrator.ErrDenied) || !strings.Contains(err.Error(), "reaches the outside") {
		t.Errorf("create: %v; want what the proof says", err)
	}
	if len(w.living()) != 1 || len(w.vms) != 1 {
		t.Errorf("left: %+v", w.living())
	}
	if err := w.provisioner().Reset(t.Context(), sb); !errors.Is(err, orchestrator.ErrDenied) {
		t.Errorf("reset: %v; want what the proof says", err)
	}
	sb = w.sandboxes[sb.ID]
	if sb.State != orchestrator.SandboxQuarantined || !strings.Contains(sb.Reason, "reaches the outside") {
		t.Errorf("after the reset: %+v; want it quarantined with the reason", sb)
	}
	if err := w.provisioner().Release(t.Context(), sb); !errors.Is(err, orchestrator.ErrDenied) || w.sandboxes[sb.ID].State != orchestrator.SandboxQuarantined {
		t.Errorf("release: %v, %s; want it to stay quarantined", err, w.sandboxes[sb.ID].State)
	}
	w.leaks = false
	if err := w.provisioner().Release(t.Context(), sb); err != nil {
		t.Errorf("release of the mended one: %v", err)
	}
}

// TestNoNetworks: a tenant that nothing is configured for gets no sandbox, and
// nothing is left.
func TestNoNetworks(t *testing.T) {
	w := newWorld()
	if _, err := w.provisioner().Create(t.Context(), "box", Wish{Tenant: "gamma"}); err == nil || !strings.Contains(err.Error(), `"gamma"`) {
		t.Errorf("%v; want the tenant named", err)
	}
	p := w.provisioner()
	p.c.Prover = nil
	var never *orchestrator.UnsupportedError
	if _, err := p.Create(t.Context(), "box", wish); !errors.As(err, &never) {
		t.Errorf("without a prover: %v; want UnsupportedError", err)
	}
	empty(t, w)
}

// TestWorkspace: the volume is recorded and claimed before the guest starts, and
// a reset deletes what transactions left on it, newest first, and nothing else.
func TestWorkspace(t *testing.T) {
	w := newWorld()
	sb, err := w.provisioner().Create(t.Context(), "box", Wish{})
	if err != nil {
		t.Fatal(err)
	}
	m := w.vms[sb.VM.ID]
	if sb.Workspace != "tank/vm-9000-disk-1" || w.sandboxes[sb.ID].Workspace != sb.Workspace || m.claimed != sb.ID {
		t.Errorf("workspace %q, recorded %q, claimed by %q", sb.Workspace, w.sandboxes[sb.ID].Workspace, m.claimed)
	}
	if claim, start := slices.Index(w.ops, "claim-volume"), slices.Index(w.ops, "start"); claim < 0 || claim > start {
		t.Errorf("operations %v; want the claim before the start", w.ops)
	}
	w.snap(sb, "sp-01k0000000000000000000000a")
	m.volume = []orchestrator.Snapshot{{Name: "sp-01k0000000000000000000000b"}, {Name: "sp-01k0000000000000000000000c"}}
	if err := w.provisioner().Reset(t.Context(), sb); err != nil {
		t.Fatal(err)
	}
	if len(m.volume) != 0 || len(m.snaps) != 1 {
		t.Errorf("left: volume %v, vm %v", m.volume, m.snaps)
	}
	m.volume = []orchestrator.Snapshot{{Name: "daily"}}
	var newer *orchestrator.NotLatestError
	if err := w.provisioner().Reset(t.Context(), sb); !errors.As(err, &newer) || len(m.volume) != 1 {
		t.Errorf("with a foreign snapshot: %v, volume %v; want it named and left alone", err, m.volume)
	}
	bare := newWorld()
	bare.bare = true
	if sb, err := bare.provisioner().Create(t.Context(), "box", Wish{}); err != nil || sb.Workspace != "" || bare.count("claim-volume") > 0 {
		t.Errorf("without a volume: %+v, %v", sb, err)
	}
}

// TestWakeProves: a sandbox that was off is proved before it is handed out, one
// that is open is withheld, and one that runs is not measured again (F108).
func TestWakeProves(t *testing.T) {
	w, sb := made(t)
	sb.Tenant = "alpha"
	w.sandboxes[sb.ID] = sb
	p := w.provisioner()
	if err := p.Wake(t.Context(), sb); err != nil || w.count("prove") != 0 {
		t.Errorf("a running one: %v, %d proofs", err, w.count("prove"))
	}
	w.vms[sb.VM.ID].running = false
	if err := p.Wake(t.Context(), sb); err != nil || w.count("prove") != 1 {
		t.Errorf("one that was off: %v, %d proofs", err, w.count("prove"))
	}
	w.vms[sb.VM.ID].running, w.leaks = false, true
	if err := p.Wake(t.Context(), sb); !errors.Is(err, orchestrator.ErrDenied) || w.sandboxes[sb.ID].State != orchestrator.SandboxQuarantined {
		t.Errorf("an open one: %v, %s; want it quarantined", err, w.sandboxes[sb.ID].State)
	}
}
