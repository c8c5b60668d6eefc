package orchestrator_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"savepoint/orchestrator"
)

// autosnap is a snapshot that another tool takes of the VM.
func autosnap(w *world, name orchestrator.SnapshotName) {
	w.snaps = append(w.snaps, &snap{
		Snapshot: orchestrator.Snapshot{Name: name, Parent: w.parent, Taken: time.Now()}, kind: "disk",
		files: copyFiles(w.files), generation: w.generation, boots: w.boots, clock: time.Now().Add(w.skew),
	})
	w.parent = name
}

// F71: a rollback that the storage refuses changes nothing: the VM was not
// stopped for it, runs on, and is not started or rolled back to something else;
// one sandbox's refusal is no other one's.
func TestRefusedRollbackStopsNothing(t *testing.T) {
	for _, b := range []orchestrator.Boundary{"disk", "machine"} {
		t.Run(string(b), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w := newWorld()
				w.hooks["command"] = func(context.Context) error { autosnap(w, "autodaily"); return nil }
				l := boot(t, w)
				o, err := l.run(orchestrator.Spec{Command: damage, Boundary: b})
				if err != nil || o.State != orchestrator.StateStuck || !strings.Contains(o.Reason, "autodaily") {
					t.Fatalf("got %s (%s), %v", o.State, o.Reason, err)
				}
				if !w.running || w.boots != 1 || w.counts["rollback"] != 0 || slices.Contains(w.trace, "stop") || slices.Contains(w.trace, "start") {
					t.Errorf("running %t, boot %d, %v", w.running, w.boots, w.trace)
				}
				files(t, w, map[string]string{"/workspace/a": "bad"})
				// The operator decides about what is not ours; then it is done.
				w.snaps, w.parent = w.snaps[:len(w.snaps)-1], w.snaps[len(w.snaps)-2].Name
				if o, err := boot(t, w).e.Retry(context.Background(), o.Transaction); err != nil || o.State != orchestrator.StateRolledBack {
					t.Fatalf("retry: %s (%s), %v", o.State, o.Reason, err)
				}
				files(t, w, before())
			})
		})
	}
}

// F72: a return to an older state deletes the transaction's own newer snapshots,
// each by its name and the newest first, before the storage is asked to restore;
// of snapshots that are not its own it deletes none.
func TestOnlyOwnSnapshotsGo(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld()
		l := boot(t, w)
		autosnap(w, "before-us")
		if o, err := l.run(orchestrator.Spec{Command: overwrite, Boundary: "disk"}); err != nil || o.State != orchestrator.StateCommitted {
			t.Fatalf("%s, %v", o.State, err)
		}
		older := w.parent
		x := l.begin(orchestrator.BeginSpec{Boundary: "disk"})
		own := []orchestrator.SnapshotName{w.parent}
		for _, name := range []string{"s1", "s2", "s3"} {
			save(t, x, name, "")
			own = append(own, w.parent)
		}
		var deleted []orchestrator.SnapshotName
		w.hooks["delete"] = func(context.Context) error { deleted = append(deleted, w.parent); return nil }
		w.hooks["rollback"] = func(context.Context) error {
			if w.parent != own[0] {
				t.Errorf("the rollback was ordered with %s on top", w.parent)
			}
			return nil
		}
		if o, err := x.Rollback(context.Background(), ""); err != nil || o.State != orchestrator.StateRolledBack {
			t.Fatalf("got %s (%s), %v", o.State, o.Reason, err)
		}
		if want := []orchestrator.SnapshotName{own[3], own[2], own[1]}; !slices.Equal(deleted, want) {
			t.Errorf("deleted %v, want %v", deleted, want)
		}
		for _, name := range []orchestrator.SnapshotName{"sp-pristine", "before-us", older, own[0]} {
			if w.find(name) == nil {
				t.Errorf("%s is gone", name)
			}
		}
		clear(w.hooks)
		if n, err := l.e.Collect(context.Background()); n != 2 || err != nil {
			t.Errorf("collect: %d, %v", n, err)
		}
		if len(w.snaps) != 2 || w.find("before-us") == nil {
			t.Errorf("left %v", snapshotsOf(w))
		}
	})
}

// F73: another tool takes a snapshot of the VM at some moment of a transaction,
// any moment. The transaction ends in the state before it or after it, or says
// that it cannot and because of which snapshot; it never restores another one
// than its own, and the other tool's is never deleted.
func TestSnapshotsOfOthersAtAnyMoment(t *testing.T) {
	for _, b := range []orchestrator.Boundary{"disk", "machine"} {
		for name, command := range map[string]string{"commit": overwrite, "fail": damage} {
			t.Run(string(b)+"/"+name, func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					stuck := 0
					for n := 1; !t.Failed(); n++ {
						w := newWorld()
						l := boot(t, w)
						taken := false
						l.p.plan = func(point int, _ string, _ bool) error {
							if point >= n && !taken && w.lock == "" && w.running { // it would wait for the lock, too
								taken = true
								autosnap(w, "autodaily")
							}
							return nil
						}
						o, err := l.run(orchestrator.Spec{Command: command, Boundary: b})
						if !taken {
							if stuck == 0 && name == "fail" {
								t.Error("it was never in the way")
							}
							return
						}
						l.p.plan = nil
						if w.find("autodaily") == nil {
							t.Errorf("moment %d: the other tool's snapshot is gone", n)
						}
						switch o.State {
						case orchestrator.StateCommitted:
							files(t, w, after())
						case orchestrator.StateRolledBack:
							files(t, w, before())
						case orchestrator.StateStuck:
							stuck++
							if !strings.Contains(o.Reason, "autodaily") {
								t.Errorf("moment %d: stuck without the cause: %s", n, o.Reason)
							}
							w.snaps = slices.DeleteFunc(w.snaps, func(s *snap) bool { return s.Name == "autodaily" })
							w.parent = w.snaps[len(w.snaps)-1].Name
							o, err = boot(t, w).e.Retry(context.Background(), o.Transaction)
							if err != nil || o.State != orchestrator.StateRolledBack {
								t.Errorf("moment %d: retry: %s (%s), %v", n, o.State, o.Reason, err)
							}
							files(t, w, before())
						default:
							t.Errorf("moment %d: %s (%s), %v", n, o.State, o.Reason, err)
						}
						if t.Failed() {
							t.Logf("moment %d: %s\n%s", n, o.Reason, strings.Join(w.trace, "\n"))
						}
					}
				})
			})
		}
	}
}

// missing is a driver whose storage does not have the snapshot that the cluster
// lists.
type missing struct{ orchestrator.Snapshotter }

func (missing) Rollback(_ context.Context, r orchestrator.SnapshotRequest) error {
	return fmt.Errorf("can't rollback, snapshot '%s' does not exist on 'tank:vm-9001-disk-0': %w", r.Name, orchestrator.ErrNotFound)
}

// F74: a snapshot was reported as taken, and at the rollback the storage does
// not have it. It is stuck at once, says so, says what to do, and nothing in the
// VM was touched in the attempt.
func TestSnapshotIsNotOnTheStorage(t *testing.T) {
	for _, b := range boundaries {
		t.Run(string(b), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w := newWorld()
				l := boot(t, w, func(c *orchestrator.Config) { c.Snapshotters[b] = missing{c.Snapshotters[b]} })
				began := time.Now()
				o, err := l.run(orchestrator.Spec{Command: damage, Boundary: b})
				if err != nil || o.State != orchestrator.StateStuck || !strings.Contains(o.Reason, "does not exist on 'tank:vm-9001-disk-0'") || !strings.Contains(o.Reason, "sandbox destroy --force dev") {
					t.Fatalf("got %s (%s), %v", o.State, o.Reason, err)
				}
				if took := time.Since(began); took > time.Minute || !w.running {
					t.Errorf("it took %s, running %t", took, w.running)
				}
				if _, err := boot(t, w).run(orchestrator.Spec{Command: overwrite}); !errors.Is(err, orchestrator.ErrBusy) {
					t.Errorf("the sandbox was handed out: %v", err)
				}
			})
		})
	}
}

// F77: the pool is full: no snapshot can be taken and none can be deleted.
// Nothing runs in the guest, the caller is told within the snapshot's deadline,
// what is to be deleted stays noted, and once there is room all goes on.
func TestFullPool(t *testing.T) {
	for _, cause := range []error{orchestrator.ErrUnavailable, orchestrator.ErrUnknownOutcome, orchestrator.ErrBusy} {
		t.Run(cause.Error(), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w := newWorld()
				l := boot(t, w, func(c *orchestrator.Config) { c.Keep = 1 }) // so that every run tries to make room
				for range 2 {
					if _, err := l.run(orchestrator.Spec{Command: overwrite, Boundary: "disk"}); err != nil {
						t.Fatal(err)
					}
				}
				left := snapshotsOf(w)
				full := func(context.Context) error { return fmt.Errorf("out of space: %w", cause) }
				w.hooks["create"], w.hooks["delete"] = full, full
				ran := maps.Clone(w.ran)
				began := time.Now()
				o, err := l.run(orchestrator.Spec{Command: damage, Boundary: "disk"})
				if !errors.Is(err, cause) || o.State != orchestrator.StateRolledBack || !strings.Contains(o.Reason, "out of space") {
					t.Errorf("got %s (%s), %v", o.State, o.Reason, err)
				}
				if took := time.Since(began); took > 6*time.Minute || !maps.Equal(ran, w.ran) {
					t.Errorf("told after %s, ran %v", took, w.ran)
				}
				if got := snapshotsOf(w); !slices.Equal(got, left) {
					t.Errorf("snapshots %v, want %v", got, left)
				}
				clear(w.hooks)
				files(t, w, after())
				collected(t, boot(t, w))
			})
		})
	}
}

// F80 F81: the guest agent does not thaw what it froze, so the snapshot's task
// does not end and the guest hangs. It is given up at our own deadline: nothing
// ran, the task's name is on record, and when the task ends after all what it
// made is dropped and the sandbox goes on.
func TestFreezeThatHangs(t *testing.T) {
	for _, savepoint := range []bool{false, true} {
		t.Run(fmt.Sprintf("savepoint=%t", savepoint), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w := newWorld()
				l := boot(t, w, func(c *orchestrator.Config) { c.Deadlines.Snapshot = time.Minute })
				var x *orchestrator.Tx
				if savepoint {
					x = l.begin(orchestrator.BeginSpec{Boundary: "disk"})
					exec(t, x, put("one", "/workspace/b"))
				}
				frozen := time.Now().Add(8 * time.Minute) // within the rollback's deadline of 15
				hang := func(ctx context.Context) error {
					select {
					case <-time.After(time.Until(frozen)):
						return nil
					case <-ctx.Done():
						return fmt.Errorf("the task did not end: %w: %w", orchestrator.ErrUnknownOutcome, ctx.Err())
					}
				}
				w.sluggish = true
				w.hooks["create wait"], w.hooks["await"] = hang, hang
				ran := maps.Clone(w.ran)
				var o orchestrator.Outcome
				var err error
				if savepoint {
					o, err = x.Savepoint(context.Background(), "s", "")
				} else {
					o, err = l.run(orchestrator.Spec{Command: overwrite, Boundary: "disk"})
				}
				// A savepoint that may still appear takes the whole transaction back.
				if err == nil || o.State != orchestrator.StateRolledBack || len(o.Tasks) == 0 {
					t.Errorf("got %s (%s), tasks %v, %v", o.State, o.Reason, o.Tasks, err)
				}
				if !maps.Equal(ran, w.ran) {
					t.Errorf("ran %v, before %v", w.ran, ran)
				}
				clear(w.hooks)
				files(t, w, before())
				if w.lock != "" || !w.running {
					t.Errorf("lock %q, running %t", w.lock, w.running)
				}
				collected(t, l)
				if o, err := l.run(orchestrator.Spec{Command: overwrite, Boundary: "disk"}); err != nil || o.State != orchestrator.StateCommitted {
					t.Errorf("the next: %s (%s), %v", o.State, o.Reason, err)
				}
			})
		})
	}
}

// F76: a storage without room is not waited for: nothing is run, and it is said at
// once. What savepoint itself has to spare there is deleted first.
func TestFullStorage(t *testing.T) {
	full := &orchestrator.FullError{Place: "tank/vm-1", Text: "out of space"}
	t.Run("nothing to spare", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			w := newWorld()
			l := boot(t, w)
			began := time.Now()
			w.hooks["create"] = func(context.Context) error { return fmt.Errorf("create: %w", full) }
			o, err := l.run(orchestrator.Spec{Command: overwrite, Boundary: "disk"})
			if err == nil || !errors.Is(err, orchestrator.ErrUnavailable) || !strings.Contains(err.Error(), "no room on tank/vm-1") {
				t.Errorf("%s (%s), %v", o.State, o.Reason, err)
			}
			if took := time.Since(began); took > time.Second {
				t.Errorf("it was said after %s", took)
			}
			files(t, w, before())
			delete(w.hooks, "create")
			if o, err := l.run(orchestrator.Spec{Command: overwrite, Boundary: "disk"}); err != nil || o.State != orchestrator.StateCommitted {
				t.Errorf("when there is room: %s (%s), %v", o.State, o.Reason, err)
			}
		})
	})
	t.Run("never free", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			w := newWorld()
			l := boot(t, w)
			if o, err := l.run(orchestrator.Spec{Command: overwrite, Boundary: "disk"}); err != nil || o.State != orchestrator.StateCommitted {
				t.Fatalf("%s (%s), %v", o.State, o.Reason, err)
			}
			x := l.begin(orchestrator.BeginSpec{Boundary: "disk"})
			w.hooks["create"] = func(context.Context) error { return fmt.Errorf("create: %w", full) }
			snaps, began := len(w.snaps), time.Now()
			if _, err := x.Savepoint(context.Background(), "one", ""); !errors.Is(err, full) || len(w.snaps) != snaps || time.Since(began) > time.Second {
				t.Errorf("a savepoint of an open transaction: %v after %s, %d of %d snapshots", err, time.Since(began), len(w.snaps), snaps)
			}
			if o, err := x.Commit(context.Background()); err != nil || o.State != orchestrator.StateCommitted {
				t.Fatalf("%s (%s), %v", o.State, o.Reason, err)
			}
			began = time.Now()
			o, err := l.run(orchestrator.Spec{Command: overwrite, Boundary: "disk"})
			if !errors.Is(err, full) || time.Since(began) > 30*time.Second {
				t.Errorf("%s (%s), %v after %s", o.State, o.Reason, err, time.Since(began))
			}
		})
	})
	t.Run("spent snapshots go first", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			w := newWorld()
			l := boot(t, w)
			for range 2 {
				if o, err := l.run(orchestrator.Spec{Command: overwrite, Boundary: "disk"}); err != nil || o.State != orchestrator.StateCommitted {
					t.Fatalf("%s (%s), %v", o.State, o.Reason, err)
				}
			}
			var freed time.Time
			w.hooks["create"] = func(context.Context) error {
				switch { // the pristine one stays, and what was deleted is freed later
				case len(w.snaps) > 1:
					return fmt.Errorf("create: %w", full)
				case freed.IsZero():
					freed = time.Now().Add(3 * time.Second)
				}
				if time.Now().Before(freed) {
					return fmt.Errorf("create: %w", full)
				}
				return nil
			}
			if o, err := l.run(orchestrator.Spec{Command: overwrite, Boundary: "disk"}); err != nil || o.State != orchestrator.StateCommitted {
				t.Errorf("%s (%s), %v", o.State, o.Reason, err)
			}
		})
	})
}
