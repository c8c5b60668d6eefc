package provision

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"savepoint/orchestrator"
)

// TestRelease: what was mended is verified before the sandbox is handed out
// again, and what is not mended is refused with what to do (F63, F64, F124).
func TestRelease(t *testing.T) {
	for _, tc := range []struct {
		name  string
		spoil func(w *world, m *machine, sb *orchestrator.Sandbox)
		class error // nil: it is released
		mend  string
	}{
		{name: "mended"},
		{name: "switched off", spoil: func(_ *world, m *machine, _ *orchestrator.Sandbox) { m.running = false }},
		{name: "collected since", spoil: func(_ *world, m *machine, _ *orchestrator.Sandbox) { m.generation = older }},
		{name: "transaction's snapshot", spoil: func(w *world, _ *machine, sb *orchestrator.Sandbox) { w.snap(*sb, older, newer) }},
		{"still locked", func(_ *world, m *machine, _ *orchestrator.Sandbox) { m.lock = "snapshot-delete" }, orchestrator.ErrBusy, "qm unlock 9000"},
		{"not ours any more", func(_ *world, m *machine, _ *orchestrator.Sandbox) { m.owner = "another" }, orchestrator.ErrDenied, "sandbox destroy box"},
		{"gone", func(w *world, _ *machine, sb *orchestrator.Sandbox) { delete(w.vms, sb.VM.ID) }, orchestrator.ErrNotFound, "sandbox destroy box"},
		{"half-made snapshot", func(w *world, m *machine, sb *orchestrator.Sandbox) {
			w.snap(*sb, older)
			m.snaps[1].Incomplete = "delete"
		}, orchestrator.ErrBusy, "savepoint gc"},
		{"no pristine snapshot", func(_ *world, m *machine, _ *orchestrator.Sandbox) { m.snaps = nil }, orchestrator.ErrNotFound, "sandbox destroy box"},
		{"mixed disks", func(w *world, m *machine, sb *orchestrator.Sandbox) {
			w.snap(*sb, older, newer)
			m.generation = older // its disk went back, the vm did not
		}, orchestrator.ErrUnknownOutcome, "sandbox reset box"},
		{"not rolled back", func(_ *world, m *machine, _ *orchestrator.Sandbox) {
			m.generation = string(older) + orchestrator.Undone
		}, orchestrator.ErrUnknownOutcome, "sandbox reset box"},
		{"another guest", func(_ *world, m *machine, _ *orchestrator.Sandbox) { m.hostKey = "ssh-ed25519 other" }, orchestrator.ErrDenied, ""},
		{"never finished", func(_ *world, _ *machine, sb *orchestrator.Sandbox) { sb.HostKey = "" }, orchestrator.ErrNotFound, "sandbox destroy box"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w, sb := made(t)
			sb.State, sb.Reason = orchestrator.SandboxQuarantined, "a lock"
			w.sandboxes[sb.ID] = sb
			if tc.spoil != nil {
				tc.spoil(w, w.vms[sb.VM.ID], &sb)
			}
			err := w.provisioner().Release(t.Context(), sb)
			got := w.sandboxes[sb.ID]
			if tc.class == nil {
				if err != nil || got.State != orchestrator.SandboxReady || got.Reason != "" || !w.vms[sb.VM.ID].running {
					t.Errorf("%v, sandbox %s (%s)", err, got.State, got.Reason)
				}
				return
			}
			if !errors.Is(err, tc.class) || !strings.Contains(err.Error(), tc.mend) {
				t.Errorf("%v; want %v and %q", err, tc.class, tc.mend)
			}
			if got.State != orchestrator.SandboxQuarantined || got.Reason != "a lock" {
				t.Errorf("sandbox %s (%s); want it withheld as before", got.State, got.Reason)
			}
			if n := w.count("rollback") + w.count("stop") + w.count("destroy"); n > 0 {
				t.Errorf("operations %v; want nothing changed", w.ops)
			}
		})
	}
}

// Only what is quarantined is released, and only when every step worked.
func TestReleaseStates(t *testing.T) {
	w, sb := made(t)
	if err := w.provisioner().Release(t.Context(), sb); err != nil || len(w.ops) > 0 {
		t.Errorf("a ready one: %v, operations %v", err, w.ops)
	}
	for _, s := range []orchestrator.SandboxState{orchestrator.SandboxCreating, orchestrator.SandboxDestroying, orchestrator.SandboxDestroyed} {
		sb.State = s
		if err := w.provisioner().Release(t.Context(), sb); !errors.Is(err, orchestrator.ErrBusy) || len(w.ops) > 0 {
			t.Errorf("one that is %s: %v, operations %v", s, err, w.ops)
		}
	}
	sb.State = orchestrator.SandboxQuarantined
	w.sandboxes[sb.ID] = sb
	for i := range 5 { // status, list, start, inspect, put
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			w.ops = nil
			w.before = func(n int, _ string) error {
				if n == i {
					return orchestrator.ErrUnavailable
				}
				return nil
			}
			if err := w.provisioner().Release(t.Context(), sb); !errors.Is(err, orchestrator.ErrUnavailable) {
				t.Errorf("%v, operations %v", err, w.ops)
			}
			if got := w.sandboxes[sb.ID]; got.State != orchestrator.SandboxQuarantined {
				t.Errorf("sandbox %s", got.State)
			}
		})
	}
}
