package orchestrator_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"savepoint/orchestrator"
	"savepoint/policy"
)

// counted is an executor that notes what was sent to the guest.
type counted struct {
	*proc
	sent []string
}

func (x *counted) Run(ctx context.Context, sb orchestrator.Sandbox, p policy.Permit, r orchestrator.ExecRequest) (orchestrator.ExecResult, error) {
	x.sent = append(x.sent, p.Command())
	return x.proc.Run(ctx, sb, p, r)
}

// F15 F16 F17: to take, restore and delete snapshots no command is sent to the
// guest and nothing is left in its files, however often it is done, and without
// anybody calling Collect the snapshots stay few.
func TestCheckpointsAreOutOfBand(t *testing.T) {
	for _, b := range boundaries {
		t.Run(string(b), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w := newWorld()
				x := &counted{}
				l := boot(t, w, func(c *orchestrator.Config) { x.proc = c.Executor.(*proc); c.Executor = x })
				want, most := before(), 0
				var sent []string
				for i := range 40 {
					good, bad := put(fmt.Sprint(i), fmt.Sprintf("/workspace/%d", i%5)), "rm /workspace/a && rm /workspace/none"
					if o, err := l.run(orchestrator.Spec{Command: good, Boundary: b}); err != nil || o.State != orchestrator.StateCommitted {
						t.Fatalf("round %d: %s (%s), %v", i, o.State, o.Reason, err)
					}
					want[fmt.Sprintf("/workspace/%d", i%5)] = fmt.Sprint(i)
					if o, err := l.run(orchestrator.Spec{Command: bad, Boundary: b}); err != nil || o.State != orchestrator.StateRolledBack {
						t.Fatalf("round %d: %s (%s), %v", i, o.State, o.Reason, err)
					}
					y := l.begin(orchestrator.BeginSpec{Boundary: b})
					exec(t, y, put("x", "/workspace/x"))
					save(t, y, "s", "")
					exec(t, y, put("y", "/workspace/x"))
					back(t, y, orchestrator.PointBegin)
					if _, err := y.Rollback(context.Background(), ""); err != nil {
						t.Fatal(err)
					}
					sent = append(sent, good, bad, put("x", "/workspace/x"), put("y", "/workspace/x"))
					most = max(most, len(snapshotsOf(w)))
					files(t, w, want)
				}
				if !slices.Equal(x.sent, sent) {
					t.Errorf("%d commands were sent, want the %d that were asked for", len(x.sent), len(sent))
				}
				if most > 6 {
					t.Errorf("%d snapshots were on the VM at once", most)
				}
				collected(t, l)
			})
		})
	}
}

// F24: whatever the occasion, a snapshot is taken in one way: the guest is
// marked with its name first, so that each holds the mark that proves it, and no
// command runs between the mark and the end of the taking.
func TestOneWayToCapture(t *testing.T) {
	for _, b := range boundaries {
		t.Run(string(b), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w := newWorld()
				l := boot(t, w)
				held := func(occasion string, n int) {
					t.Helper()
					if got := len(snapshotsOf(w)); got != n {
						t.Errorf("%s: %d snapshots, want %d", occasion, got, n)
					}
					for _, s := range w.snaps[1:] {
						if s.generation != string(s.Name) || s.Incomplete != "" {
							t.Errorf("%s: snapshot %s holds the mark %q", occasion, s.Name, s.generation)
						}
					}
				}
				if _, err := l.run(orchestrator.Spec{Command: overwrite, Boundary: b}); err != nil {
					t.Fatal(err)
				}
				held("a command", 1)
				if _, err := l.run(orchestrator.Spec{Command: damage, Boundary: b}); err != nil {
					t.Fatal(err)
				}
				held("a command after a commit", 2)
				x := l.begin(orchestrator.BeginSpec{Boundary: b})
				held("a begin after a rollback", 3)
				exec(t, x, put("x", "/workspace/x"))
				save(t, x, "same", "")
				held("a savepoint", 4)
				save(t, x, "smaller", "workspace")
				held("a savepoint of another kind", 5)
				back(t, x, "same")
				save(t, x, "again", "")
				held("a savepoint after a return", 5)
				last := ""
				for _, line := range w.trace {
					if line == "create" && last != "mark" {
						t.Errorf("before a snapshot: %q, want the mark", last)
					}
					if !strings.HasPrefix(line, "journal") {
						last = line
					}
				}
			})
		})
	}
}

// F31: while a command of ours writes, no snapshot is taken of the guest, nor is
// one deleted or restored, whoever asks for it.
func TestNoSnapshotUnderACommand(t *testing.T) {
	for _, several := range []bool{false, true} {
		t.Run(fmt.Sprintf("several=%t", several), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w := newWorld()
				l := boot(t, w)
				ctx := context.Background()
				if _, err := l.run(orchestrator.Spec{Command: overwrite, Boundary: "disk"}); err != nil { // something to collect
					t.Fatal(err)
				}
				var x *orchestrator.Tx
				var wg sync.WaitGroup
				var saved error
				asked := false
				w.hooks["command"] = func(context.Context) error {
					asked = true
					was := maps.Clone(w.counts)
					busy := map[string]error{}
					_, busy["run"] = l.run(orchestrator.Spec{Command: overwrite, Boundary: "disk"})
					_, busy["begin"] = l.e.Begin(ctx, orchestrator.BeginSpec{Sandbox: w.box, Boundary: "disk"})
					_, busy["hold"] = l.e.Hold(ctx, w.box, "reset")
					if x != nil { // the same caller's next order waits for this one
						wg.Go(func() { _, saved = x.Savepoint(ctx, "s", "") })
						runtime.Gosched()
					}
					for what, err := range busy {
						if !errors.Is(err, orchestrator.ErrBusy) {
							t.Errorf("%s under a command: %v; want busy", what, err)
						}
					}
					if n, err := l.e.Collect(ctx); n != 0 || err != nil {
						t.Errorf("collect under a command: %d, %v", n, err)
					}
					if outs, err := l.e.Recover(ctx); len(outs) != 0 || err != nil {
						t.Errorf("recover under a command: %v, %v", outs, err)
					}
					if !maps.Equal(was, w.counts) {
						t.Errorf("the cluster was asked for something: %v, before %v", w.counts, was)
					}
					return nil
				}
				if several {
					x = l.begin(orchestrator.BeginSpec{Boundary: "disk"})
					exec(t, x, put("two", "/workspace/a"))
					wg.Wait()
					delete(w.hooks, "command")
					if got := w.find(w.parent).files["/workspace/a"]; saved != nil || got != "two" {
						t.Errorf("the savepoint that was asked for meanwhile holds %q, %v", got, saved)
					}
					commit(t, x)
				} else if o, err := l.run(orchestrator.Spec{Command: put("two", "/workspace/a"), Boundary: "disk"}); err != nil || o.State != orchestrator.StateCommitted {
					t.Fatalf("got %s (%s), %v", o.State, o.Reason, err)
				}
				if !asked {
					t.Fatal("no command ran")
				}
				files(t, w, map[string]string{"/workspace/a": "two", "/workspace/b": "more"})
			})
		})
	}
}

// F10: what a return to an older state takes away is never taken silently: the
// intent is on record before the first newer snapshot goes, each that goes is
// named, and the record of a later reader says which states are left.
func TestNewerStatesAreNotDroppedSilently(t *testing.T) {
	for _, b := range boundaries {
		t.Run(string(b), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w := newWorld()
				l := boot(t, w)
				x := l.begin(orchestrator.BeginSpec{Boundary: b})
				var names []orchestrator.SnapshotName
				for i, name := range []string{"one", "two", "three"} {
					exec(t, x, put(name, fmt.Sprintf("/workspace/%d", i)))
					save(t, x, name, "")
					names = append(names, w.parent)
				}
				mark := len(w.trace)
				back(t, x, "one")
				v, err := orchestrator.Show(context.Background(), l.p, x.View().ID)
				if err != nil {
					t.Fatal(err)
				}
				var dropped []orchestrator.SnapshotName
				for _, s := range v.Steps {
					if s.Event == "dropped" {
						dropped = append(dropped, orchestrator.SnapshotName(s.Detail))
					}
				}
				if !slices.Equal(dropped, []orchestrator.SnapshotName{names[2], names[1]}) {
					t.Errorf("on record as dropped: %v, want the two newer ones of %v, the newest first", dropped, names)
				}
				if len(v.Points) != 2 || v.Points[1].Name != "one" || v.Points[1].At.IsZero() {
					t.Errorf("states left on record: %+v", v.Points)
				}
				intent := slices.IndexFunc(w.trace[mark:], func(s string) bool { return strings.Contains(s, "return →") })
				first := slices.IndexFunc(w.trace[mark:], func(s string) bool { return s == "delete" })
				if intent < 0 || first < intent {
					t.Errorf("a snapshot went before the intent was on disk: %q", w.trace[mark:])
				}
				commit(t, x)
				collected(t, l)
			})
		})
	}
}

// F79: a guest that hangs in its snapshot while its VM stays on is brought back
// by the engine itself, and the next transaction finds it well.
func TestGuestHangsInItsSnapshot(t *testing.T) {
	for _, b := range boundaries {
		t.Run(string(b), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w := newWorld()
				l := seen(t, w, nil)
				at := created(b)
				w.hooks[at] = func(context.Context) error { delete(w.hooks, at); w.dead = true; return nil }
				if o, err := l.run(orchestrator.Spec{Command: overwrite, Boundary: b}); err == nil || o.State != orchestrator.StateRolledBack {
					t.Errorf("got %s (%s), %v", o.State, o.Reason, err)
				}
				files(t, w, before())
				if w.dead {
					t.Error("the guest was left hanging")
				}
				if o, err := l.run(orchestrator.Spec{Command: overwrite, Boundary: b}); err != nil || o.State != orchestrator.StateCommitted {
					t.Errorf("the next one: %s (%s), %v", o.State, o.Reason, err)
				}
			})
		})
	}
}
