package provision

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"savepoint/orchestrator"
)

func TestCreate(t *testing.T) {
	w := newWorld()
	sb, err := w.provisioner().Create(t.Context(), "box", Wish{})
	if err != nil {
		t.Fatal(err)
	}
	if got := w.sandboxes[sb.ID]; got != sb || sb.State != orchestrator.SandboxReady {
		t.Errorf("recorded %+v, returned %+v; want the same, ready", got, sb)
	}
	if sb.HostKey == "" || w.addresses[sb.ID] != sb.Address {
		t.Errorf("host key %q, address %s, reserved %s", sb.HostKey, sb.Address, w.addresses[sb.ID])
	}
	m := w.vms[sb.VM.ID]
	if m == nil || !m.running || !m.prepared || m.owner != sb.ID {
		t.Fatalf("vm %+v; want it running, prepared and owned", m)
	}
	if len(m.snaps) != 1 || m.snaps[0].Name != Pristine || !m.snaps[0].Memory || m.saved[Pristine] != string(Pristine) {
		t.Errorf("snapshots %+v of generations %v; want the pristine one of its own generation", m.snaps, m.saved)
	}
	// The record comes before anything is reserved or made (F124).
	if w.ops[0] != "put creating" {
		t.Errorf("the first operation is %q", w.ops[0])
	}
	if _, err := w.provisioner().Create(t.Context(), "box", Wish{}); !errors.Is(err, orchestrator.ErrExists) {
		t.Errorf("the same name again: %v; want ErrExists", err)
	}
	if _, err := w.provisioner().Create(t.Context(), "Box", Wish{}); err == nil {
		t.Error("a name that is no host name was accepted")
	}
}

// TestTakenIDs: an id that somebody else uses is left alone and the next one
// is tried (F42, F44).
func TestTakenIDs(t *testing.T) {
	w := newWorld()
	w.vms[9000] = &machine{owner: "", running: true}
	w.vms[9001] = &machine{owner: "another", running: true}
	sb, err := w.provisioner().Create(t.Context(), "box", Wish{})
	if err != nil {
		t.Fatal(err)
	}
	if sb.VM.ID != 9002 || w.sandboxes[sb.ID].VM.ID != 9002 {
		t.Errorf("vm %d; want 9002, the first free one", sb.VM.ID)
	}
	if !w.vms[9000].running || !w.vms[9001].running {
		t.Error("a vm of somebody else was touched")
	}
	t.Run("all", func(t *testing.T) {
		w := newWorld()
		for id := orchestrator.VMID(9000); id < 9100; id++ {
			w.vms[id] = &machine{running: true}
		}
		_, err := w.provisioner().Create(t.Context(), "box", Wish{})
		if !errors.Is(err, orchestrator.ErrExists) || !strings.Contains(err.Error(), "vmid_first") {
			t.Errorf("%v; want ErrExists that names the setting", err)
		}
		if len(w.vms) != 100 || w.count("stop")+w.count("destroy") > 0 {
			t.Error("a vm of somebody else was touched")
		}
		if len(w.addresses)+len(w.living()) != 0 {
			t.Errorf("left: addresses %v, sandboxes %v", w.addresses, w.living())
		}
	})
}

// wish takes every step that there is.
var wish = Wish{Tenant: "alpha"}

// operations returns what a creation does when nothing goes wrong.
func operations(t *testing.T) []string {
	w := newWorld()
	if _, err := w.provisioner().Create(t.Context(), "box", wish); err != nil {
		t.Fatal(err)
	}
	return w.ops
}

func empty(t *testing.T, w *world) {
	t.Helper()
	if len(w.vms) != 0 || len(w.addresses) != 0 || len(w.living()) != 0 {
		t.Errorf("left: vms %v, addresses %v, sandboxes %+v", w.vms, w.addresses, w.living())
	}
}

// TestCreateFails: whatever step fails, before its effect or after it, the
// parts are removed (F37, F124). The name can be used again.
func TestCreateFails(t *testing.T) {
	for i, op := range operations(t) {
		fault := func(n int, _ string) error {
			if n == i {
				return fmt.Errorf("disturbed: %w", orchestrator.ErrUnknownOutcome)
			}
			return nil
		}
		for _, when := range []string{"before", "after"} {
			t.Run(fmt.Sprintf("%s/%d-%s", when, i, op), func(t *testing.T) {
				w := newWorld()
				if when == "before" {
					w.before = fault
				} else {
					w.after = fault
				}
				_, err := w.provisioner().Create(t.Context(), "box", wish)
				if !errors.Is(err, orchestrator.ErrUnknownOutcome) {
					t.Fatalf("create: %v; want the disturbance", err)
				}
				if op == "put creating" && i == 0 { // nothing was made: recovery closes the record
					if _, err := w.provisioner().Recover(t.Context()); err != nil {
						t.Fatal(err)
					}
				}
				empty(t, w)
				if _, err := w.provisioner().Create(t.Context(), "box", wish); err != nil {
					t.Errorf("create again: %v", err)
				}
			})
		}
	}
}

// TestCreateInterrupted: the end of the context removes the parts all the same (F124).
func TestCreateInterrupted(t *testing.T) {
	for i, op := range operations(t) {
		if i == 0 {
			continue // nothing has begun
		}
		t.Run(fmt.Sprintf("%d-%s", i, op), func(t *testing.T) {
			w := newWorld()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			w.before = func(n int, _ string) error {
				if n == i {
					cancel()
				}
				return nil
			}
			if _, err := w.provisioner().Create(ctx, "box", wish); !errors.Is(err, context.Canceled) {
				t.Fatalf("create: %v; want that it was cancelled", err)
			}
			empty(t, w)
		})
	}
}

// TestCreateCrashes: after a crash at any operation, before its effect or
// after it, recovery removes all that is left (F124).
func TestCreateCrashes(t *testing.T) {
	ops := operations(t)
	for i, op := range ops {
		crash := func(n int, _ string) error {
			if n >= i {
				return fmt.Errorf("crashed: %w", orchestrator.ErrUnavailable)
			}
			return nil
		}
		for _, when := range []string{"before", "after"} {
			t.Run(fmt.Sprintf("%s/%d-%s", when, i, op), func(t *testing.T) {
				w := newWorld()
				if w.before = crash; when == "after" {
					w.after = crash
					w.before = func(n int, op string) error { return crash(n-1, op) }
				}
				_, _ = w.provisioner().Create(t.Context(), "box", wish)
				w.before, w.after = nil, nil
				if _, err := w.provisioner().Recover(t.Context()); err != nil {
					t.Fatal(err)
				}
				if when == "after" && i == len(ops)-1 {
					if l := w.living(); len(l) != 1 || l[0].State != orchestrator.SandboxReady {
						t.Errorf("it was recorded as ready, and now there is %+v", l)
					}
					return
				}
				empty(t, w)
			})
		}
	}
}

// TestCreateQuarantines: parts that cannot be removed stay visible with the
// reason and are never handed out (F124).
func TestCreateQuarantines(t *testing.T) {
	w := newWorld()
	w.before = func(_ int, op string) error {
		if op == "prepare" || op == "destroy" {
			return fmt.Errorf("%s disturbed: %w", op, orchestrator.ErrUnavailable)
		}
		return nil
	}
	_, err := w.provisioner().Create(t.Context(), "box", Wish{})
	if err == nil || !strings.Contains(err.Error(), "prepare disturbed") || !strings.Contains(err.Error(), "destroy disturbed") {
		t.Fatalf("%v; want both causes", err)
	}
	left := w.living()
	if len(left) != 1 || left[0].State != orchestrator.SandboxQuarantined || !strings.Contains(left[0].Reason, "prepare disturbed") {
		t.Fatalf("left %+v; want one quarantined sandbox with the reason", left)
	}
	w.before = nil
	if err := w.provisioner().Wake(t.Context(), left[0]); !errors.Is(err, orchestrator.ErrBusy) {
		t.Errorf("wake: %v; want ErrBusy", err)
	}
	if err := w.provisioner().Destroy(t.Context(), left[0]); err != nil {
		t.Fatal(err)
	}
	empty(t, w)
}

// TestNeverBoots: the guest's deadline is named, and nothing stays (F89, F124).
func TestNeverBoots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.asleep = true
		_, err := w.provisioner().Create(t.Context(), "box", Wish{})
		if !errors.Is(err, orchestrator.ErrUnavailable) || !strings.Contains(err.Error(), "boot_timeout") {
			t.Errorf("%v; want ErrUnavailable that names the setting", err)
		}
		empty(t, w)
	})
}
