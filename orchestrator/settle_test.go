package orchestrator_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"savepoint/orchestrator"
)

// loses keeps the first order of that name away and takes its answer.
func (w *world) loses(name string) {
	w.hooks[name] = func(context.Context) error {
		delete(w.hooks, name)
		return fmt.Errorf("596: %w", orchestrator.ErrUnknownOutcome)
	}
}

// F55: an order to restore whose answer was lost may arrive when the sandbox has
// other work. Its target is gone before the sandbox is free again.
func TestLostRollbackHasNoTarget(t *testing.T) {
	for _, b := range []orchestrator.Boundary{"workspace", "disk", "machine"} {
		t.Run(string(b), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w := newWorld()
				w.loses("rollback")
				l := boot(t, w)
				o, err := l.run(orchestrator.Spec{Command: damage, Boundary: b})
				if err != nil || o.State != orchestrator.StateRolledBack || w.counts["rollback"] != 1 {
					t.Fatalf("%s (%s) after %d rollbacks, %v", o.State, o.Reason, w.counts["rollback"], err)
				}
				if left := snapshotsOf(w); len(left) != 0 {
					t.Errorf("the order can still restore %v", left)
				}
				files(t, w, before())
				if v, err := orchestrator.Show(context.Background(), l.p, o.Transaction); err != nil || !v.Settled {
					t.Errorf("settled %t, %v", v.Settled, err)
				}
				// One whose answer came leaves its snapshot to the collector.
				if o, err := l.run(orchestrator.Spec{Command: damage, Boundary: b}); err != nil || o.State != orchestrator.StateRolledBack || len(snapshotsOf(w)) != 1 {
					t.Errorf("%s, %v, left %v", o.State, err, snapshotsOf(w))
				}
			})
		})
	}
}

// An order whose answer was lost but whose task is listed has arrived: it is
// neither repeated nor feared.
func TestLostAnswerOfAListedTask(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld()
		w.hooks["command"] = func(context.Context) error { time.Sleep(3 * time.Second); return nil } // the cluster counts in seconds
		l := boot(t, w)
		l.p.plan = func(_ int, name string, after bool) error {
			if name == "rollback" && after {
				return fmt.Errorf("596: %w", orchestrator.ErrUnknownOutcome)
			}
			return nil
		}
		o, err := l.run(orchestrator.Spec{Command: damage, Boundary: "machine"})
		if err != nil || o.State != orchestrator.StateRolledBack || w.counts["rollback"] != 1 {
			t.Fatalf("%s (%s) after %d rollbacks, %v", o.State, o.Reason, w.counts["rollback"], err)
		}
		if left := snapshotsOf(w); len(left) != 1 {
			t.Errorf("left %v", left)
		}
	})
}

// A task that no record names, of an order with which a process died, is taken
// for the present order's once at most. It was taken for each one's whose answer
// was lost, and three of them made the sandbox an operator's case: "rolled back 3
// times, but the guest's generation is …-undo".
func TestUnnamedTaskIsTakenOnce(t *testing.T) {
	for _, b := range []orchestrator.Boundary{"disk", "machine"} {
		t.Run(string(b), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w := newWorld()
				l := boot(t, w)
				ctx := context.Background()
				x := l.begin(orchestrator.BeginSpec{Boundary: b})
				time.Sleep(3 * time.Second) // the cluster counts in seconds
				exec(t, x, overwrite)
				l.p.plan = func(_ int, name string, after bool) error {
					if name == "rollback" && after {
						return errCrash
					}
					return nil
				}
				if _, err := x.RollbackTo(ctx, orchestrator.PointBegin); err == nil {
					t.Fatal("the process did not die")
				}
				for _, k := range w.tasks {
					w.end(k)
				}
				w.running = true // the guest answers, and is marked
				lost := 0
				w.hooks["rollback"] = func(context.Context) error {
					if lost++; lost <= 3 {
						return fmt.Errorf("596: %w", orchestrator.ErrUnknownOutcome)
					}
					return nil
				}
				outs, err := boot(t, w).e.Recover(ctx)
				if err != nil || len(outs) != 1 || outs[0].State != orchestrator.StateRolledBack || lost != 4 {
					t.Fatalf("%+v after %d orders, %v", outs, lost, err)
				}
				files(t, w, before())
			})
		})
	}
}

// A journal without room numbers no orders: the task of an earlier one is not
// taken for that of a later one, whose answer was lost and whose guest could not
// be marked.
func TestLostRollbackUnnumbered(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld()
		full := &fullJournal{from: "attempt", once: true}
		l := boot(t, w, func(cfg *orchestrator.Config) { full.proc = cfg.Journal.(*proc); cfg.Journal = full })
		n := 0
		w.hooks["rollback"] = func(context.Context) error {
			if n++; n == 2 {
				return fmt.Errorf("596: %w", orchestrator.ErrUnknownOutcome)
			}
			return nil
		}
		w.hooks["status"] = func(context.Context) error {
			if n == 1 && w.files["/workspace/a"] == "old" { // the first one proves nothing
				w.boots, w.files["/workspace/a"] = 77, "odd"
			}
			return nil
		}
		w.hooks["mark"] = func(context.Context) error {
			if n > 0 {
				w.boots = 1
				return fmt.Errorf("no answer: %w", orchestrator.ErrUnavailable)
			}
			return nil
		}
		o, err := l.run(orchestrator.Spec{Command: damage, Boundary: "machine"})
		if err != nil || o.State != orchestrator.StateRolledBack || n != 3 || len(snapshotsOf(w)) != 0 {
			t.Errorf("%s (%s) after %d orders, left %v, %v", o.State, o.Reason, n, snapshotsOf(w), err)
		}
		files(t, w, before())
	})
}

// What the journal does not hold of the orders before is no reason to trust the
// one that was lost.
func TestLostRollbackUnrecorded(t *testing.T) {
	start := func(t *testing.T, w *world) (*lab, *fullJournal, *orchestrator.Tx) {
		full := &fullJournal{}
		l := boot(t, w, func(cfg *orchestrator.Config) { full.proc = cfg.Journal.(*proc); cfg.Journal = full })
		x, err := l.e.Begin(context.Background(), orchestrator.BeginSpec{Sandbox: w.box, Boundary: "machine"})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(3 * time.Second) // the cluster counts in seconds
		full.once = true
		return l, full, x
	}
	ended := func(t *testing.T, w *world, o orchestrator.Outcome, err error) {
		if o.State != orchestrator.StateRolledBack || len(snapshotsOf(w)) != 0 {
			t.Errorf("%s (%s), left %v, %v", o.State, o.Reason, snapshotsOf(w), err)
		}
		files(t, w, before())
	}
	ctx := context.Background()
	for name, f := range map[string]func(t *testing.T, w *world){
		"the intent, after a return": func(t *testing.T, w *world) {
			_, full, x := start(t, w)
			if _, err := x.RollbackTo(ctx, orchestrator.PointBegin); err != nil {
				t.Fatal(err)
			}
			full.from = "roll-back"
			w.loses("rollback")
			w.hooks["mark"] = func(context.Context) error { return fmt.Errorf("no answer: %w", orchestrator.ErrUnavailable) }
			o, err := x.Exec(ctx, orchestrator.StepSpec{Command: damage})
			ended(t, w, o, err)
		},
		"the task of one that proved nothing": func(t *testing.T, w *world) {
			_, full, x := start(t, w)
			n := 0
			w.hooks["rollback"] = func(context.Context) error {
				if n++; n == 2 {
					return fmt.Errorf("596: %w", orchestrator.ErrUnknownOutcome)
				}
				full.from = "task"
				return nil
			}
			w.hooks["status"] = func(context.Context) error {
				if n == 1 {
					w.boots = 77
				}
				return nil
			}
			o, err := x.Exec(ctx, orchestrator.StepSpec{Command: damage})
			if n != 3 {
				t.Errorf("%d orders", n)
			}
			ended(t, w, o, err)
		},
		"all of a return with which its process died": func(t *testing.T, w *world) {
			l, _, x := start(t, w)
			if _, err := x.Exec(ctx, orchestrator.StepSpec{Command: overwrite}); err != nil {
				t.Fatal(err)
			}
			l.p.plan = func(_ int, name string, _ bool) error {
				if name == "rollback" {
					return errCrash
				}
				return nil
			}
			_, _ = x.RollbackTo(ctx, orchestrator.PointBegin)
			outs, err := boot(t, w).e.Recover(ctx)
			if len(outs) != 1 {
				t.Fatalf("%+v, %v", outs, err)
			}
			ended(t, w, outs[0], err)
		},
	} {
		t.Run(name, func(t *testing.T) { bubble(t, func(t *testing.T) { f(t, newWorld()) }) })
	}
}

// A process that died with its order to restore leaves the same doubt, and so
// does every crash until the snapshot is gone.
func TestLostRollbackAndCrash(t *testing.T) {
	for _, b := range []orchestrator.Boundary{"workspace", "disk", "machine"} {
		t.Run(string(b), func(t *testing.T) {
			for n, alive := 1, false; !alive; n++ {
				bubble(t, func(t *testing.T) {
					w := newWorld()
					l := boot(t, w)
					l.p.plan = func(_ int, name string, after bool) error {
						if name == "rollback" && !after {
							return errCrash
						}
						return nil
					}
					_, _ = l.run(orchestrator.Spec{Command: damage, Boundary: b})
					l = boot(t, w)
					l.p.plan = dieAt(n)
					_, err := l.e.Recover(context.Background())
					alive = !l.p.gone
					l = boot(t, w)
					if _, rerr := l.e.Recover(context.Background()); rerr != nil {
						t.Fatalf("died at %d: %v, then %v", n, err, rerr)
					}
					all, err := orchestrator.List(context.Background(), l.p, orchestrator.Filter{})
					if err != nil || len(all) != 1 || all[0].State != orchestrator.StateRolledBack || len(snapshotsOf(w)) != 0 || !w.running {
						t.Errorf("died at %d: %+v, left %v, running %t, %v", n, all[0].State, snapshotsOf(w), w.running, err)
					}
					files(t, w, before())
				})
				if n > 200 {
					t.Fatal("it never ends")
				}
			}
		})
	}
}

// The order may come after the state was proved and before its snapshot is
// gone: it has stopped the VM, or set its clock back.
func TestLostRollbackComesInTime(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld()
		w.loses("rollback")
		w.hooks["delete"] = func(context.Context) error { w.running = false; return nil }
		l := boot(t, w)
		o, err := l.run(orchestrator.Spec{Command: damage, Boundary: "disk"})
		if err != nil || o.State != orchestrator.StateRolledBack || !w.running || len(snapshotsOf(w)) != 0 {
			t.Errorf("%s (%s), running %t, left %v, %v", o.State, o.Reason, w.running, snapshotsOf(w), err)
		}
	})
	bubble(t, func(t *testing.T) {
		w := newWorld()
		w.loses("rollback")
		w.hooks["delete"] = func(context.Context) error { w.skew = -time.Hour; return nil }
		o, err := boot(t, w).run(orchestrator.Spec{Command: damage, Boundary: "machine"})
		if err != nil || o.State != orchestrator.StateRolledBack || w.skew.Abs() > time.Second {
			t.Errorf("%s (%s), clock off by %s, %v", o.State, o.Reason, w.skew, err)
		}
	})
}

// A sandbox whose snapshot cannot be taken from such an order is not given out;
// an operator who mended the cause gets it back, also when it is gone then.
func TestLostRollbackStuck(t *testing.T) {
	for name, gone := range map[string]bool{"there": false, "gone": true} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w := newWorld()
				w.loses("rollback")
				w.hooks["delete"] = func(context.Context) error { return fmt.Errorf("no right: %w", orchestrator.ErrDenied) }
				l := boot(t, w)
				o, err := l.run(orchestrator.Spec{Command: damage, Boundary: "machine"})
				if err != nil || o.State != orchestrator.StateStuck || !strings.Contains(o.Reason, "no right") {
					t.Fatalf("%s (%s), %v", o.State, o.Reason, err)
				}
				if _, err := l.run(orchestrator.Spec{Command: overwrite}); !errors.Is(err, orchestrator.ErrBusy) {
					t.Errorf("the sandbox was given out: %v", err)
				}
				delete(w.hooks, "delete")
				if gone {
					w.snaps, w.parent = w.snaps[:1], "sp-pristine"
				}
				o, err = boot(t, w).e.Retry(context.Background(), o.Transaction)
				if err != nil || o.State != orchestrator.StateRolledBack || len(snapshotsOf(w)) != 0 {
					t.Errorf("%s (%s), left %v, %v", o.State, o.Reason, snapshotsOf(w), err)
				}
				files(t, w, before())
			})
		})
	}
}

// A return to a savepoint keeps its snapshot, so that an order that may still
// arrive would undo the steps to come: the whole is rolled back.
func TestLostReturnUndoesTheWhole(t *testing.T) {
	for _, b := range []orchestrator.Boundary{"workspace", "disk", "machine"} {
		t.Run(string(b), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w := newWorld()
				l := boot(t, w)
				ctx := context.Background()
				x := l.begin(orchestrator.BeginSpec{Boundary: b})
				save(t, x, "s1", "")
				exec(t, x, overwrite)
				w.loses("rollback")
				o, err := x.RollbackTo(ctx, "s1")
				if !errors.Is(err, orchestrator.ErrUnknownOutcome) || o.State != orchestrator.StateRolledBack || !strings.Contains(o.Reason, "may still arrive") {
					t.Errorf("%s (%s), %v", o.State, o.Reason, err)
				}
				if left := snapshotsOf(w); len(left) != 0 || !w.running {
					t.Errorf("left %v, running %t", left, w.running)
				}
				files(t, w, before())
			})
		})
	}
}

// F67: a snapshot whose order got no answer may appear after its transaction has
// ended. The collector does not call that settled before it can be.
func TestCollectWaitsForALateSnapshot(t *testing.T) {
	ctx := context.Background()
	for _, b := range []orchestrator.Boundary{"workspace", "disk"} {
		for name, comes := range map[string]bool{"comes": true, "never comes": false} {
			t.Run(string(b)+"/"+name, func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					w := newWorld()
					w.loses("create")
					l := boot(t, w)
					o, err := l.run(orchestrator.Spec{Command: overwrite, Boundary: b})
					if !errors.Is(err, orchestrator.ErrUnknownOutcome) || o.State != orchestrator.StateRolledBack {
						t.Fatalf("got %s (%s), %v", o.State, o.Reason, err)
					}
					records := len(w.records)
					for _, e := range []*orchestrator.Engine{l.e, boot(t, w).e} {
						if n, err := e.Collect(ctx); n != 0 || err != nil || len(w.records) != records {
							t.Errorf("collect at once: %d, %v, %d records more", n, err, len(w.records)-records)
						}
					}
					if comes {
						name := orchestrator.SnapshotOf(o.Transaction)
						w.snaps = append(w.snaps, &snap{Snapshot: orchestrator.Snapshot{Name: name, Parent: w.parent}, kind: b})
						w.parent = name
					} else {
						time.Sleep(2*time.Hour + time.Minute)
					}
					if n, err := l.e.Collect(ctx); n != 1 || err != nil || len(snapshotsOf(w)) != 0 {
						t.Errorf("collect: %d, %v, left %v", n, err, snapshotsOf(w))
					}
				})
			})
		}
	}
	// Nor when the order to restore was lost too, after which nothing else is
	// left to collect.
	bubble(t, func(t *testing.T) {
		w := newWorld()
		l := boot(t, w)
		x, err := l.e.Begin(ctx, orchestrator.BeginSpec{Sandbox: w.box, Boundary: "disk"})
		if err != nil {
			t.Fatal(err)
		}
		w.loses("create")
		w.loses("rollback")
		if o, err := x.Savepoint(ctx, "s1", ""); !errors.Is(err, orchestrator.ErrUnknownOutcome) || o.State != orchestrator.StateRolledBack {
			t.Fatalf("%s (%s), %v", o.State, o.Reason, err)
		}
		name := orchestrator.SnapshotOf(x.View().ID) + "-1"
		w.snaps = append(w.snaps, &snap{Snapshot: orchestrator.Snapshot{Name: name, Parent: w.parent}, kind: "disk"})
		w.parent = name
		if n, err := l.e.Collect(ctx); n != 1 || err != nil || len(snapshotsOf(w)) != 0 {
			t.Errorf("collect: %d, %v, left %v", n, err, snapshotsOf(w))
		}
	})
	// An earlier order's task says nothing of the one whose answer was lost.
	bubble(t, func(t *testing.T) {
		w := newWorld()
		w.sluggish = true // the task ends when it is waited for
		w.hooks["create wait"] = func(context.Context) error {
			for _, k := range w.tasks {
				k.finish = func() error { return fmt.Errorf("storage: %w", orchestrator.ErrUnavailable) }
			}
			w.loses("create")
			return nil
		}
		l := boot(t, w)
		o, err := l.run(orchestrator.Spec{Command: overwrite, Boundary: "disk"})
		if v, serr := orchestrator.Show(ctx, l.p, o.Transaction); !errors.Is(err, orchestrator.ErrUnknownOutcome) || serr != nil || v.Settled {
			t.Errorf("%s, settled %t, %v, %v", o.State, v.Settled, err, serr)
		}
	})
	// One that the cluster refused is not waited for.
	bubble(t, func(t *testing.T) {
		w := newWorld()
		w.hooks["create"] = func(context.Context) error { return fmt.Errorf("no right: %w", orchestrator.ErrDenied) }
		l := boot(t, w)
		o, err := l.run(orchestrator.Spec{Command: overwrite, Boundary: "disk"})
		if v, serr := orchestrator.Show(ctx, l.p, o.Transaction); !errors.Is(err, orchestrator.ErrDenied) || serr != nil || !v.Settled {
			t.Errorf("%s, settled %t, %v, %v", o.State, v.Settled, err, serr)
		}
	})
}
