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

// F79: a guest hung in its snapshot and the process died before it was told, or
// the snapshot took too long to wait for. Nothing ran; the guest is restarted.
func TestGuestHangsUnnoticed(t *testing.T) {
	for _, b := range boundaries {
		at := created(b)
		t.Run(string(b)+" death", func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w := newWorld()
				l := seen(t, w, nil)
				l.p.plan = func(_ int, name string, after bool) error {
					if name != at || !after {
						return nil
					}
					w.dead = true
					return errCrash
				}
				if _, err := l.run(orchestrator.Spec{Command: overwrite, Boundary: b}); err == nil {
					t.Fatal("the process did not die")
				}
				l = seen(t, w, nil)
				outs, err := l.e.Recover(context.Background())
				if err != nil || len(outs) != 1 || outs[0].State != orchestrator.StateRolledBack || w.dead {
					t.Fatalf("%+v, dead %t, %v", outs, w.dead, err)
				}
				files(t, w, before())
				if o, err := l.run(orchestrator.Spec{Command: overwrite, Boundary: b}); err != nil || o.State != orchestrator.StateCommitted {
					t.Errorf("the next one: %s (%s), %v", o.State, o.Reason, err)
				}
			})
		})
	}
}

// The record of the snapshot is what its restore is proved by: without room for
// it the transaction waits for recovery, which mends the guest.
func TestGuestHangsAndJournalIsFull(t *testing.T) {
	for _, b := range boundaries {
		t.Run(string(b), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w := newWorld()
				l := seen(t, w, nil)
				at := created(b)
				full := false
				w.hooks[at] = func(context.Context) error { delete(w.hooks, at); w.dead, full = true, true; return nil }
				l.p.plan = func(_ int, name string, after bool) error {
					if name == "journal" && !after && full {
						full = false
						return fmt.Errorf("no space: %w", orchestrator.ErrUnavailable)
					}
					return nil
				}
				var unwritten *orchestrator.JournalError
				if o, err := l.run(orchestrator.Spec{Command: overwrite, Boundary: b}); !errors.As(err, &unwritten) || o.State == orchestrator.StateStuck {
					t.Fatalf("got %s (%s), %v", o.State, o.Reason, err)
				}
				outs, err := seen(t, w, nil).e.Recover(context.Background())
				if err != nil || len(outs) != 1 || outs[0].State != orchestrator.StateRolledBack || w.dead {
					t.Fatalf("%+v, dead %t, %v", outs, w.dead, err)
				}
				files(t, w, before())
			})
		})
	}
}

// A snapshot that takes nearly all of its time leaves the guest its own to say
// how it is.
func TestSlowSnapshot(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld()
		l := seen(t, w, nil)
		w.hooks["create wait"] = func(context.Context) error { time.Sleep(5*time.Minute - 5*time.Second); return nil }
		w.hooks["health"] = func(context.Context) error { time.Sleep(10 * time.Second); return nil }
		o, err := l.run(orchestrator.Spec{Command: overwrite, Boundary: "disk"})
		if err != nil || o.State != orchestrator.StateCommitted || w.counts["rollback"] != 0 {
			t.Errorf("%s (%s) after %d rollbacks, %v", o.State, o.Reason, w.counts["rollback"], err)
		}
	})
}

// F64 F38: the node died in the middle of a task, which left its lock. Nobody
// takes it away but an operator, and waiting for the whole deadline would only
// delay saying so.
func TestLockOfADeadTaskIsTold(t *testing.T) {
	for _, at := range []string{"create", "rollback"} {
		t.Run(at, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w := newWorld()
				w.sluggish = true
				l := boot(t, w)
				w.hooks[at+" wait"] = func(context.Context) error {
					delete(w.hooks, at+" wait")
					k := w.tasks[len(w.tasks)-1]
					k.Running, k.Failure, k.err = false, "unexpected status", errors.New("unexpected status")
					w.running = false
					return fmt.Errorf("the node is away: %w", orchestrator.ErrUnknownOutcome)
				}
				start := time.Now()
				o, err := l.run(orchestrator.Spec{Command: damage, Boundary: "disk"})
				if o.State != orchestrator.StateStuck || !strings.Contains(o.Reason, "qm unlock 9001") {
					t.Fatalf("%s (%s), %v", o.State, o.Reason, err)
				}
				if took := time.Since(start); took > time.Minute {
					t.Errorf("it took %s", took)
				}
				w.lock = ""
				if o, err := boot(t, w).e.Retry(context.Background(), o.Transaction); err != nil || o.State != orchestrator.StateRolledBack || !w.running {
					t.Errorf("%s (%s), running %t, %v", o.State, o.Reason, w.running, err)
				}
				files(t, w, before())
			})
		})
	}
}

// A lock that a task of others may hold is waited for.
func TestLockOfAnotherIsWaitedFor(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld()
		l := boot(t, w)
		var until time.Time
		w.hooks["command"] = func(context.Context) error {
			w.lock, until = "backup", time.Now().Add(3*time.Minute)
			return nil
		}
		w.hooks["rollback"] = func(context.Context) error {
			if w.lock == "backup" && time.Now().After(until) {
				w.lock = ""
			}
			return nil
		}
		o, err := l.run(orchestrator.Spec{Command: damage, Boundary: "disk"})
		if err != nil || o.State != orchestrator.StateRolledBack || !time.Now().After(until) {
			t.Errorf("%s (%s), %v", o.State, o.Reason, err)
		}
		files(t, w, before())
	})
}

// F55: after a rollback whose answer was lost the guest does not come up any
// more, or without the memory of the begin: that is told, and destroy --force
// finds a stuck transaction.
func TestLostRollbackIsNotProved(t *testing.T) {
	for name, hurt := range map[string]func(*world){
		"silent": func(w *world) { w.dead = true },
		"booted": func(w *world) { w.running = false },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w := newWorld()
				w.loses("rollback")
				w.hooks["delete"] = func(context.Context) error { hurt(w); return nil }
				l := boot(t, w)
				o, err := l.run(orchestrator.Spec{Command: damage, Boundary: "machine"})
				for i := 0; i < 3 && err != nil; i++ { // out of time first, where nobody answers
					var outs []orchestrator.Outcome
					if outs, err = boot(t, w).e.Recover(context.Background()); len(outs) == 1 {
						o = outs[0]
					}
				}
				if err != nil || o.State != orchestrator.StateStuck {
					t.Errorf("%s (%s), %v", o.State, o.Reason, err)
				}
			})
		})
	}
}

// A boundary whose driver is gone is an operator's case, not a crash.
func TestDriverIsGone(t *testing.T) {
	for _, at := range []string{"rollback", "delete", "create wait"} {
		t.Run(at, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w := newWorld()
				l := boot(t, w)
				l.p.plan = func(_ int, name string, after bool) error {
					if name == at && after {
						return errCrash
					}
					return nil
				}
				o, err := l.run(orchestrator.Spec{Command: damage, Boundary: "disk"})
				if at == "delete" {
					_, err = l.e.Collect(context.Background())
				}
				if err == nil {
					t.Fatalf("the process did not die: %s", o.State)
				}
				without := func(c *orchestrator.Config) { delete(c.Snapshotters, orchestrator.BoundaryDisk) }
				l = boot(t, w, without)
				outs, err := l.e.Recover(context.Background())
				var never *orchestrator.UnsupportedError
				switch {
				case at == "delete":
					if _, err := l.e.Collect(context.Background()); !errors.As(err, &never) {
						t.Errorf("collect: %v", err)
					}
				case err != nil || len(outs) != 1 || outs[0].State != orchestrator.StateStuck || !strings.Contains(outs[0].Reason, "no driver"):
					t.Errorf("%+v, %v", outs, err)
				default:
					if o, err := boot(t, w, without).e.Retry(context.Background(), outs[0].Transaction); err != nil || o.State != orchestrator.StateStuck {
						t.Errorf("retry: %s, %v", o.State, err)
					}
				}
			})
		})
	}
}

// Transactions whose snapshots may still come cost the next ones no look each.
func TestLateSnapshotsCostLittle(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld()
		l := boot(t, w)
		for range 6 {
			w.loses("create")
			if _, err := l.run(orchestrator.Spec{Command: overwrite, Boundary: "disk"}); !errors.Is(err, orchestrator.ErrUnknownOutcome) {
				t.Fatal(err)
			}
		}
		lists := 0
		w.hooks["list"] = func(context.Context) error { lists++; return nil }
		for range 10 {
			if _, err := l.run(orchestrator.Spec{Command: "cat /workspace/a", Boundary: "disk"}); err != nil {
				t.Fatal(err)
			}
		}
		if lists > 12 {
			t.Errorf("%d lists for ten transactions", lists)
		}
	})
}
