package provision

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"savepoint/orchestrator"
)

// made returns a world with one sandbox.
func made(t *testing.T) (*world, orchestrator.Sandbox) {
	t.Helper()
	w := newWorld()
	sb, err := w.provisioner().Create(t.Context(), "box", Wish{})
	if err != nil {
		t.Fatal(err)
	}
	w.ops = nil
	return w, sb
}

func TestDestroy(t *testing.T) {
	w, sb := made(t)
	if err := w.provisioner().Destroy(t.Context(), sb); err != nil {
		t.Fatal(err)
	}
	empty(t, w)
	if w.ops[0] != "put destroying" {
		t.Errorf("the first operation is %q; the intent has to be on disk before", w.ops[0])
	}
	// Repeated with what the caller knew before, and with what is recorded (F45).
	if err := w.provisioner().Destroy(t.Context(), sb); err != nil {
		t.Errorf("again: %v", err)
	}
	// The id is somebody else's by now (F121).
	w.vms[sb.VM.ID] = &machine{owner: "another", running: true}
	if err := w.provisioner().Destroy(t.Context(), w.sandboxes[sb.ID]); err != nil {
		t.Errorf("with the id in other hands: %v", err)
	}
	if w.vms[sb.VM.ID] == nil || !w.vms[sb.VM.ID].running || w.sandboxes[sb.ID].State != orchestrator.SandboxDestroyed {
		t.Errorf("vm %+v, sandbox %s", w.vms[sb.VM.ID], w.sandboxes[sb.ID].State)
	}
}

// TestDestroyNotOurs: a VM that does not say that it is ours is left alone, and
// the sandbox is withheld with the reason instead of being tried for ever (F121).
func TestDestroyNotOurs(t *testing.T) {
	w, sb := made(t)
	w.vms[sb.VM.ID].owner = ""
	err := w.provisioner().Destroy(t.Context(), sb)
	if !errors.Is(err, orchestrator.ErrDenied) || !strings.Contains(err.Error(), "left alone") {
		t.Fatalf("%v; want ErrDenied", err)
	}
	if m := w.vms[sb.VM.ID]; m == nil || !m.running || w.count("stop")+w.count("destroy") > 0 {
		t.Error("the vm was touched")
	}
	if got := w.sandboxes[sb.ID]; got.State != orchestrator.SandboxQuarantined || !strings.Contains(got.Reason, "left alone") {
		t.Errorf("sandbox %s (%s); want it quarantined with the reason", got.State, got.Reason)
	}
	if removed, err := w.provisioner().Recover(t.Context()); err != nil || len(removed) != 0 {
		t.Errorf("recover: %v, %v; want it left to the operator", removed, err)
	}
	w.vms[sb.VM.ID].owner = sb.ID // the operator mended it
	if err := w.provisioner().Destroy(t.Context(), w.sandboxes[sb.ID]); err != nil {
		t.Fatal(err)
	}
	empty(t, w)
}

// TestDestroyCrashes: recovery finishes a removal that ended anywhere.
func TestDestroyCrashes(t *testing.T) {
	w, sb := made(t)
	if err := w.provisioner().Destroy(t.Context(), sb); err != nil {
		t.Fatal(err)
	}
	ops := w.ops
	for i, op := range ops {
		for _, effect := range []bool{false, true} {
			t.Run(fmt.Sprintf("%d-%s-%t", i, op, effect), func(t *testing.T) {
				w, sb := made(t)
				w.before = func(n int, _ string) error {
					if n > i || n == i && !effect {
						return orchestrator.ErrUnavailable
					}
					return nil
				}
				w.after = func(n int, _ string) error {
					if n == i {
						return orchestrator.ErrUnavailable
					}
					return nil
				}
				_ = w.provisioner().Destroy(t.Context(), sb)
				w.before, w.after = nil, nil
				if _, err := w.provisioner().Recover(t.Context()); err != nil {
					t.Fatal(err)
				}
				if i == 0 && !effect { // not even the intent was recorded
					if l := w.living(); len(l) != 1 || l[0].State != orchestrator.SandboxReady {
						t.Errorf("left %+v; want the sandbox as it was", l)
					}
					return
				}
				empty(t, w)
			})
		}
	}
}

// TestRecover removes the unfinished, leaves the others alone, and one that
// cannot be removed does not stop the rest nor is it called removed.
func TestRecover(t *testing.T) {
	w := newWorld()
	p := w.provisioner()
	boxes := map[string]orchestrator.Sandbox{}
	for _, name := range []string{"ready", "creating", "destroying", "foreign"} {
		sb, err := p.Create(t.Context(), name, Wish{})
		if err != nil {
			t.Fatal(err)
		}
		if name != "ready" {
			sb.State = orchestrator.SandboxDestroying
		}
		if name == "creating" {
			sb.State, sb.HostKey = orchestrator.SandboxCreating, ""
		}
		w.sandboxes[sb.ID], boxes[name] = sb, sb
	}
	w.vms[boxes["foreign"].VM.ID].owner = "another"
	left, err := Unfinished(t.Context(), w)
	if err != nil || len(left) != 3 || len(w.vms) != 4 {
		t.Fatalf("unfinished %v, %v, %d vms", left, err, len(w.vms))
	}
	removed, err := p.Recover(t.Context())
	if !errors.Is(err, orchestrator.ErrDenied) || !strings.Contains(err.Error(), "foreign") {
		t.Errorf("%v; want the denial for the foreign one", err)
	}
	var names []string
	for _, sb := range removed {
		names = append(names, sb.Name)
	}
	if !slices.Equal(names, []string{"creating", "destroying"}) {
		t.Errorf("removed %v", names)
	}
	if len(w.vms) != 2 || w.vms[boxes["ready"].VM.ID] == nil || w.vms[boxes["foreign"].VM.ID] == nil {
		t.Errorf("vms left: %v; want the ready and the foreign one", w.vms)
	}
}

// A crash between the reservation of an id that somebody else has and the
// clone: the id is recorded, the VM is not ours (F121).
func TestRecoverForeignID(t *testing.T) {
	w := newWorld()
	w.vms[9000] = &machine{owner: "", running: true}
	w.sandboxes["sb1"] = orchestrator.Sandbox{ID: "sb1", Name: "box", State: orchestrator.SandboxCreating, VM: orchestrator.VMRef{Node: "pve1", ID: 9000}}
	if _, err := w.provisioner().Recover(t.Context()); err != nil {
		t.Fatal(err)
	}
	if w.vms[9000] == nil || !w.vms[9000].running || len(w.living()) != 0 {
		t.Errorf("vm %+v, sandboxes %v", w.vms[9000], w.living())
	}
}

const older, newer = "sp-01jxaaaaaaaaaaaaaaaaaaaaaa", "sp-01jxbbbbbbbbbbbbbbbbbbbbbb"

func (w *world) snap(sb orchestrator.Sandbox, names ...orchestrator.SnapshotName) {
	m := w.vms[sb.VM.ID]
	for _, n := range names {
		m.snaps = append(m.snaps, orchestrator.Snapshot{Name: n})
		m.saved[n] = string(n)
		m.generation, m.current = string(n), n
	}
}

// TestReset: newest first, on a storage that restores only the newest, and the
// clock is set (F32, F70, F94).
func TestReset(t *testing.T) {
	w, sb := made(t)
	w.latestOnly = true
	w.snap(sb, older, newer)
	if err := w.provisioner().Reset(t.Context(), sb); err != nil {
		t.Fatal(err)
	}
	m := w.vms[sb.VM.ID]
	if len(m.snaps) != 1 || m.generation != string(Pristine) || !m.running || m.skew != 0 {
		t.Errorf("vm %+v; want the pristine state with its clock set", m)
	}
	if slices.Index(w.ops, "delete "+newer) > slices.Index(w.ops, "delete "+older) {
		t.Errorf("order %v; want the newest first", w.ops)
	}
	if w.ops[0] != "put quarantined" || w.sandboxes[sb.ID].State != orchestrator.SandboxReady || w.sandboxes[sb.ID].Reason != "" {
		t.Errorf("operations %v, sandbox %+v", w.ops, w.sandboxes[sb.ID])
	}
}

// TestResetForeignSnapshot: a snapshot that savepoint did not take is not deleted (F123).
func TestResetForeignSnapshot(t *testing.T) {
	for _, latestOnly := range []bool{false, true} {
		t.Run(fmt.Sprintf("latest-only-%t", latestOnly), func(t *testing.T) {
			w, sb := made(t)
			w.latestOnly = latestOnly
			w.snap(sb, "before-upgrade")
			err := w.provisioner().Reset(t.Context(), sb)
			if m := w.vms[sb.VM.ID]; len(m.snaps) != 2 {
				t.Errorf("snapshots %+v; want both kept", m.snaps)
			}
			var newer *orchestrator.NotLatestError
			if latestOnly != errors.As(err, &newer) {
				t.Errorf("reset: %v", err)
			}
		})
	}
}

// TestResetInterrupted: the sandbox is withheld until a reset succeeds (F124),
// wherever it ended.
func TestResetInterrupted(t *testing.T) {
	w, sb := made(t)
	w.snap(sb, older)
	if err := w.provisioner().Reset(t.Context(), sb); err != nil {
		t.Fatal(err)
	}
	for i, op := range w.ops {
		if i == 0 {
			continue // the sandbox is as it was
		}
		t.Run(fmt.Sprintf("%d-%s", i, op), func(t *testing.T) {
			w, sb := made(t)
			w.snap(sb, older)
			w.before = func(n int, _ string) error {
				if n >= i {
					return fmt.Errorf("disturbed: %w", orchestrator.ErrUnavailable)
				}
				return nil
			}
			if err := w.provisioner().Reset(t.Context(), sb); !errors.Is(err, orchestrator.ErrUnavailable) {
				t.Fatalf("%v; want the disturbance", err)
			}
			got := w.sandboxes[sb.ID]
			if got.State != orchestrator.SandboxQuarantined || !strings.Contains(got.Reason, "sandbox reset box") {
				t.Fatalf("sandbox %s (%s); want it quarantined, with what to do", got.State, got.Reason)
			}
			w.before = nil
			if err := w.provisioner().Reset(t.Context(), got); err != nil {
				t.Fatal(err)
			}
			if w.sandboxes[sb.ID].State != orchestrator.SandboxReady || w.vms[sb.VM.ID].generation != string(Pristine) {
				t.Errorf("after the second: %+v", w.sandboxes[sb.ID])
			}
		})
	}
}

// What the cluster calls done is not believed (F25, F27, F94).
func TestResetUnproved(t *testing.T) {
	t.Run("generation", func(t *testing.T) {
		w, sb := made(t)
		w.vms[sb.VM.ID].saved[Pristine] = "something else"
		if err := w.provisioner().Reset(t.Context(), sb); !errors.Is(err, orchestrator.ErrUnknownOutcome) {
			t.Errorf("%v", err)
		}
	})
	t.Run("clock", func(t *testing.T) {
		w, sb := made(t)
		w.stubborn = 2 * time.Second
		if err := w.provisioner().Reset(t.Context(), sb); !errors.Is(err, orchestrator.ErrUnknownOutcome) {
			t.Errorf("%v", err)
		}
	})
	t.Run("no snapshot", func(t *testing.T) {
		w, sb := made(t)
		w.vms[sb.VM.ID].snaps = nil
		w.snap(sb, older)
		if err := w.provisioner().Reset(t.Context(), sb); !errors.Is(err, orchestrator.ErrNotFound) {
			t.Errorf("%v", err)
		}
		if len(w.vms[sb.VM.ID].snaps) != 1 {
			t.Error("a snapshot was deleted although there is nothing to return to")
		}
	})
	t.Run("not ours", func(t *testing.T) {
		w, sb := made(t)
		w.vms[sb.VM.ID].owner = "another"
		if err := w.provisioner().Reset(t.Context(), sb); !errors.Is(err, orchestrator.ErrDenied) {
			t.Errorf("%v", err)
		}
	})
	t.Run("half-made", func(t *testing.T) {
		w, sb := made(t)
		sb.State = orchestrator.SandboxCreating
		if err := w.provisioner().Reset(t.Context(), sb); !errors.Is(err, orchestrator.ErrBusy) || len(w.ops) > 0 {
			t.Errorf("%v, operations %v", err, w.ops)
		}
	})
}

func TestWake(t *testing.T) {
	w, sb := made(t)
	if err := w.provisioner().Wake(t.Context(), sb); err != nil || w.count("start") > 0 {
		t.Errorf("a running one: %v, operations %v", err, w.ops)
	}
	w.vms[sb.VM.ID].running = false
	if err := w.provisioner().Wake(t.Context(), sb); err != nil || !w.vms[sb.VM.ID].running || w.count("inspect") != 1 {
		t.Errorf("a stopped one: %v, operations %v", err, w.ops)
	}
	w.vms[sb.VM.ID].running, w.vms[sb.VM.ID].owner = false, "another"
	if err := w.provisioner().Wake(t.Context(), sb); !errors.Is(err, orchestrator.ErrDenied) || w.vms[sb.VM.ID].running {
		t.Errorf("one that is not ours: %v", err)
	}
	delete(w.vms, sb.VM.ID)
	if err := w.provisioner().Wake(t.Context(), sb); !errors.Is(err, orchestrator.ErrNotFound) {
		t.Errorf("one that is gone: %v", err)
	}
	sb.State, sb.Reason = orchestrator.SandboxQuarantined, "because"
	if err := w.provisioner().Wake(t.Context(), sb); !errors.Is(err, orchestrator.ErrBusy) || !strings.Contains(err.Error(), "because") {
		t.Errorf("a quarantined one: %v", err)
	}
}
