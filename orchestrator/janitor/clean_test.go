package janitor

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"savepoint/orchestrator"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// brief is a report in one line per finding.
func brief(r Report) []string {
	var out []string
	for _, f := range r.Findings {
		out = append(out, fmt.Sprintf("%s %s %s: %s", f.Level, f.Kind, f.Subject, f.State))
	}
	slices.Sort(out)
	return out
}

func same(t *testing.T, what string, got, want []string) {
	t.Helper()
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("%s:\n  %s\nwant:\n  %s", what, strings.Join(got, "\n  "), strings.Join(want, "\n  "))
	}
}

// messy is a cluster after a bad day: everything that can be collected at once,
// between things that must not be touched.
func messy(t *testing.T) *world {
	w := newWorld(t)
	box := w.sandbox("box", 9000, orchestrator.SandboxReady)
	w.taken(box, 1, "")
	w.claim(box, 1, orchestrator.StateRunning, false) // open: it is needed
	w.taken(box, 2, "")                               // unknown to the journal
	w.taken(box, 3, "")
	w.claim(box, 3, orchestrator.StateCommitted, true)
	w.taken(box, 4, "delete")
	w.claim(box, 4, orchestrator.StateRolledBack, true)
	w.taken(box, 5, "")
	w.claim(box, 5, orchestrator.StateCommitted, false)
	w.snap(9000, orchestrator.Snapshot{Name: "before-upgrade", Description: "mine"})
	w.snap(9000, orchestrator.Snapshot{Name: orchestrator.SnapshotOf(txID(6)), Description: "not yours"})
	w.memory(9000, orchestrator.SnapshotOf(txID(1)))
	w.memory(9000, orchestrator.SnapshotOf(txID(7))) // its snapshot is gone
	w.memory(9000, "before-upgrade2")                // somebody's
	w.memory(9000, pristine)

	w.sandbox("half", 9001, orchestrator.SandboxCreating)
	w.sandbox("going", 9002, orchestrator.SandboxDestroying)
	gone := w.sandbox("gone", 9003, orchestrator.SandboxDestroyed)
	w.vms[gone.VM].Running = true
	w.vm(9004, VM{Ours: true, Sandbox: "sb-unknown", Instance: instance, Running: true})
	w.vm(9005, VM{Ours: true, Sandbox: box.ID, Instance: instance, HalfMade: true})

	w.vm(9010, VM{Instance: "other", Sandbox: "sb-theirs", Running: true})
	w.vm(9011, VM{Running: true})
	w.vm(9006, VM{Ours: true, Template: true, Building: true, Instance: instance, Running: true})

	w.vm(9012, VM{Ours: true, Template: true, Instance: instance})
	w.vm(9014, VM{Template: true, Instance: "other"})
	w.vm(9013, VM{Ours: true, Sandbox: box.ID, Instance: instance}) // somebody's copy of it
	w.vm(300, VM{Ours: true, Sandbox: gone.ID, Instance: instance}) // restored from a backup
	return w
}

var messyFindings = []string{
	"collect orphan-snapshot snapshot sp-01jx0000000000000000000002 of vm 9000 on pve1",
	"collect orphan-snapshot snapshot sp-01jx0000000000000000000003 of vm 9000 on pve1",
	"collect half-made-snapshot snapshot sp-01jx0000000000000000000004 of vm 9000 on pve1",
	"collect spent-snapshot snapshot of transaction 01jx0000000000000000000005",
	"collect orphan-memory volume local:9000/vm-9000-state-sp-01jx0000000000000000000007.raw",
	"collect unfinished-sandbox sandbox half",
	"collect unfinished-sandbox sandbox going",
	"collect orphan-vm vm 9003 on pve1",
	"collect orphan-vm vm 9004 on pve1",
	"collect half-made-clone vm 9005 on pve1",
	"collect half-made-template vm 9006 on pve1",
}

var messyLeft = []string{
	"note foreign-snapshot snapshot before-upgrade of vm 9000 on pve1: found",
	"note foreign-snapshot snapshot sp-01jx0000000000000000000006 of vm 9000 on pve1: found",
	"note foreign-vm vm 9010 on pve1: found",
	"note foreign-vm vm 9011 on pve1: found",
	"operator orphan-vm vm 300 on pve1: found",
	"operator orphan-vm vm 9013 on pve1: found",
}

func with(state string, lines []string) []string {
	var out []string
	for _, l := range lines {
		out = append(out, l+": "+state)
	}
	return out
}

// checkMessy is what has to be true after everything was collected.
func (w *world) checkMessy(t *testing.T) {
	t.Helper()
	wantSnaps := []orchestrator.SnapshotName{pristine, orchestrator.SnapshotOf(txID(1)), "before-upgrade", orchestrator.SnapshotOf(txID(6))}
	if got := w.names(9000); !slices.Equal(got, wantSnaps) {
		t.Errorf("snapshots %v, want %v", got, wantSnaps)
	}
	var vms []int
	for r, m := range w.vms {
		vms = append(vms, int(r.ID))
		if strangers := r.ID == 9010 || r.ID == 9011; strangers && !m.Running {
			t.Errorf("%s was stopped", r)
		}
	}
	if slices.Sort(vms); !slices.Equal(vms, []int{300, 9000, 9010, 9011, 9012, 9013, 9014}) {
		t.Errorf("vms left: %v", vms)
	}
	if len(w.volumes) != 3 {
		t.Errorf("volumes left: %+v", w.volumes)
	}
	if sb := w.sandboxes["sb-unknown"]; sb.State != orchestrator.SandboxDestroyed || sb.VM != ref(9004) {
		t.Errorf("the unknown one is entered as %+v; its id has to rest", sb)
	}
	if len(w.addresses) != 1 || w.sandboxes["sb-box"].State != orchestrator.SandboxReady {
		t.Errorf("addresses %v, sandbox %s", w.addresses, w.sandboxes["sb-box"].State)
	}
	if open := w.notes.Open(); len(open) > 0 {
		t.Errorf("intents without an end: %+v", open)
	}
}

// F37 F69 F75 F121 F122 F123 F124: what crashes leave is removed, what is
// somebody else's or still needed stays, and the second run has nothing to do.
func TestClean(t *testing.T) {
	w := messy(t)
	dry, err := w.janitor().Look(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	same(t, "dry run", brief(dry), append(with("found", messyFindings), messyLeft...))
	for _, op := range w.ops {
		if !slices.Contains([]string{"inventory", "working", "list", "status"}, op) {
			t.Errorf("the dry run did %q", op)
		}
	}
	done, err := w.janitor().Clean(t.Context())
	if err != nil || done.Err() != nil {
		t.Fatal(err, done.Err())
	}
	same(t, "clean", brief(done), append(with("done", messyFindings), messyLeft...))
	w.checkMessy(t)
	again, err := w.janitor().Clean(t.Context())
	if err != nil || again.Count(LevelCollect) != 0 {
		t.Errorf("the second run found %v, %v", brief(again), err)
	}
	same(t, "second run", brief(again), messyLeft)
}

// F70: the newest snapshot goes first; some storages know no other order.
func TestNewestFirst(t *testing.T) {
	w := newWorld(t)
	box := w.sandbox("box", 9000, orchestrator.SandboxReady)
	for n := range 3 {
		w.taken(box, n, "")
	}
	r, err := w.janitor().Clean(t.Context())
	if err != nil || len(r.Findings) != 3 {
		t.Fatal(err, brief(r))
	}
	for i, f := range r.Findings {
		if want := string(orchestrator.SnapshotOf(txID(2 - i))); !strings.Contains(f.Subject, want) {
			t.Errorf("%d: %s, want %s", i, f.Subject, want)
		}
	}
}

// An intent is on disk before each destructive call, and its end after it.
func TestIntents(t *testing.T) {
	w := messy(t)
	if _, err := w.janitor().Clean(t.Context()); err != nil {
		t.Fatal(err)
	}
	intent := false
	for _, op := range w.ops {
		switch op {
		case "note intend":
			intent = true
		case "note end":
			intent = false
		case "stop", "destroy", "delete-snapshot", "delete-volume", "remove":
			if !intent {
				t.Errorf("%s without an intent; operations %v", op, w.ops)
			}
		}
	}
}

// TestCleanCrashes: a run that dies before or after the effect of any of its
// calls leaves nothing that the next run does not finish, and never touches
// what is not ours. Lost answers and refused calls are the same for it.
func TestCleanCrashes(t *testing.T) {
	w := messy(t)
	if _, err := w.janitor().Clean(t.Context()); err != nil {
		t.Fatal(err)
	}
	ops := w.ops
	for _, dies := range []bool{true, false} { // everything after it fails too, or only the one call
		for i, op := range ops {
			for _, effect := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s/%d-%s/effect-%t", map[bool]string{true: "dies", false: "fails"}[dies], i, strings.ReplaceAll(op, " ", "-"), effect), func(t *testing.T) {
					w := messy(t)
					fail := orchestrator.ErrUnavailable
					if effect {
						fail = orchestrator.ErrUnknownOutcome
					}
					w.before = func(n int, _ string) error {
						if n == i && !effect || n > i && dies {
							return fail
						}
						return nil
					}
					w.after = func(n int, _ string) error {
						if n == i && effect {
							return fail
						}
						return nil
					}
					_, _ = w.janitor().Clean(t.Context())
					w.before, w.after = nil, nil
					for range 2 { // a failed read can have left something unjudged, never something broken
						if r, err := w.janitor().Clean(t.Context()); err != nil || r.Err() != nil {
							t.Fatal(err, r.Err())
						}
					}
					w.checkMessy(t)
					r, err := w.janitor().Clean(t.Context())
					if err != nil {
						t.Fatal(err)
					}
					same(t, "at the end", brief(r), messyLeft)
				})
			}
		}
	}
}

// What an earlier run was at when it was interrupted is said.
func TestInterrupted(t *testing.T) {
	w := messy(t)
	w.before = func(_ int, op string) error {
		if op == "destroy" || op == "note end" {
			return errors.New("dead")
		}
		return nil
	}
	if _, err := w.janitor().Clean(t.Context()); err == nil {
		t.Fatal("it went on although its notes could not be written")
	}
	w.before = nil
	r, err := w.janitor().Clean(t.Context())
	if err != nil || len(r.Resumed) != 1 {
		t.Errorf("resumed %v, %v", r.Resumed, err)
	}
}

// A cluster that stops answering is not asked for ever.
func TestPatience(t *testing.T) {
	w := messy(t)
	w.before = func(_ int, op string) error {
		if op == "remove" || op == "delete-snapshot" || op == "destroy" || op == "status" {
			return orchestrator.ErrUnavailable
		}
		return nil
	}
	r, err := w.janitor().Clean(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	tried := 0
	for _, op := range w.ops {
		if op == "note intend" {
			tried++
		}
	}
	if tried != patience || !errors.Is(r.Err(), orchestrator.ErrUnavailable) {
		t.Errorf("tried %d, error %v", tried, r.Err())
	}
}

// What savepoint may not do is for an operator, with the command.
func TestDenied(t *testing.T) {
	w := newWorld(t)
	w.sandbox("box", 9000, orchestrator.SandboxReady)
	v := w.memory(9000, orchestrator.SnapshotOf(txID(1)))
	w.denied = true
	r, err := w.janitor().Clean(t.Context())
	if err != nil || len(r.Findings) != 1 {
		t.Fatal(err, brief(r))
	}
	if f := r.Findings[0]; f.Level != LevelOperator || f.State != StateFailed || !strings.Contains(f.Command, "pvesm free "+v.ID) || r.Err() != nil {
		t.Errorf("finding %+v, error %v", f, r.Err())
	}
}

// Something changed between the look and the call: it is read again, and left.
func TestReadAgain(t *testing.T) {
	sure := func(t *testing.T, w *world, at string, change func()) {
		t.Helper()
		w.before = func(_ int, op string) error {
			if op == at {
				change()
			}
			return nil
		}
		if _, err := w.janitor().Clean(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	t.Run("disowned vm", func(t *testing.T) {
		w := newWorld(t)
		m := w.vm(9000, VM{Ours: true, Sandbox: "sb-x", Instance: instance, Running: true})
		sure(t, w, "note intend", func() { m.Ours = false })
		if w.vms[ref(9000)] == nil || !m.Running {
			t.Error("it was touched")
		}
	})
	t.Run("id in use now", func(t *testing.T) {
		w := newWorld(t)
		m := w.vm(9000, VM{Ours: true, Sandbox: "sb-x", Instance: instance, Running: true})
		sure(t, w, "note intend", func() {
			w.sandboxes["sb-x"] = orchestrator.Sandbox{ID: "sb-x", Name: "box", State: orchestrator.SandboxReady, VM: ref(9000)}
		})
		if w.vms[ref(9000)] == nil || !m.Running {
			t.Error("it was touched")
		}
	})
	t.Run("snapshot in use now", func(t *testing.T) {
		w := newWorld(t)
		box := w.sandbox("box", 9000, orchestrator.SandboxReady)
		w.taken(box, 1, "")
		sure(t, w, "note intend", func() { w.claim(box, 1, orchestrator.StateBegun, false) })
		if len(w.names(9000)) != 2 {
			t.Error("it was deleted")
		}
	})
	t.Run("another snapshot of that name", func(t *testing.T) {
		w := newWorld(t)
		box := w.sandbox("box", 9000, orchestrator.SandboxReady)
		w.taken(box, 1, "")
		sure(t, w, "note intend", func() { w.vms[ref(9000)].snaps[1].Description = "mine" })
		if len(w.names(9000)) != 2 {
			t.Error("it was deleted")
		}
	})
}

func after(w *world, d time.Duration) *world { w.now = w.now.Add(d); return w }
