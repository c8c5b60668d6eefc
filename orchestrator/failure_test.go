package orchestrator_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"savepoint/orchestrator"
	"savepoint/policy"
)

var root = orchestrator.Spec{Command: damage, As: policy.Root}

// F33, F41: a rollback meets a busy cluster and one that does not answer, and
// is tried again until it succeeds, within its deadline.
func TestRollbackIsRetried(t *testing.T) {
	for _, cause := range []error{orchestrator.ErrBusy, orchestrator.ErrUnavailable, orchestrator.ErrUnknownOutcome} {
		t.Run(cause.Error(), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w := newWorld()
				until := time.Now().Add(3 * time.Minute)
				w.hooks["rollback"] = func(context.Context) error {
					if time.Now().Before(until) {
						return fmt.Errorf("overwhelmed: %w", cause)
					}
					return nil
				}
				o, err := boot(t, w).run(root)
				if err != nil || o.State != orchestrator.StateRolledBack {
					t.Fatalf("got %s (%s), %v", o.State, o.Reason, err)
				}
				if w.counts["rollback"] != 1 {
					t.Errorf("%d rollbacks were done", w.counts["rollback"])
				}
				files(t, w, before())
			})
		})
	}
}

// F33: endurance; every rollback in a row restores the same state (F28 too:
// snapshot, restore, snapshot).
func TestManyRollbacks(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld()
		l := boot(t, w)
		for i := range 100 {
			o, err := l.run(root)
			if err != nil || o.State != orchestrator.StateRolledBack {
				t.Fatalf("round %d: %s (%s), %v", i, o.State, o.Reason, err)
			}
			files(t, w, before())
		}
		// Nobody called Collect; the sandbox does not pile up snapshots for that.
		if n := len(w.snaps); n > 6 {
			t.Errorf("%d snapshots are on the VM", n)
		}
	})
}

// What only an operator can mend is stuck, says what to do, blocks the sandbox
// and nothing else, and goes on when it is mended.
func TestStuck(t *testing.T) {
	for _, c := range []struct {
		name   string
		break_ func(w *world)
		mend   func(w *world)
		says   string
	}{
		{
			name: "F70 newer snapshot of somebody else",
			break_: func(w *world) {
				w.hooks["command"] = func(context.Context) error {
					w.snaps = append(w.snaps, &snap{Snapshot: orchestrator.Snapshot{Name: "autodaily", Parent: w.parent}})
					return nil
				}
			},
			mend: func(w *world) { w.snaps = w.snaps[:len(w.snaps)-1] },
			says: "autodaily",
		},
		{
			name: "F63 lock without a task",
			break_: func(w *world) {
				w.hooks["command"] = func(context.Context) error { w.lock = "snapshot-delete"; return nil }
			},
			mend: func(w *world) { w.lock = "" },
			says: "run `qm unlock 9001` on node pve1",
		},
		{
			name: "host key changed",
			break_: func(w *world) {
				w.hooks["rollback"] = func(context.Context) error { w.key = "ssh-ed25519 BBBB"; return nil }
			},
			mend: func(w *world) { w.key = w.box.HostKey },
			says: "find out who answers",
		},
		{
			name: "F23 F25 another generation came back",
			break_: func(w *world) {
				w.hooks["rollback"] = func(context.Context) error { w.find(w.parent).generation = "sp-older"; return nil }
			},
			mend: func(w *world) { w.find(w.parent).generation = string(w.parent) },
			says: `generation is "sp-older"`,
		},
		{
			name: "F22 the VM belongs to somebody else now",
			break_: func(w *world) {
				w.hooks["rollback"] = func(context.Context) error { w.owner = "somebody"; return nil }
			},
			mend: func(w *world) { w.owner = w.box.ID },
			says: "check who owns it",
		},
		{
			name: "F108 the restored network is not sealed",
			break_: func(w *world) {
				w.box.Tenant = "alpha"
				w.hooks["prove"] = func(context.Context) error {
					return &orchestrator.UnsealedError{Sandbox: w.box.Name, Failed: []string{"guest dev reaches outside 192.0.2.9"}}
				}
			},
			mend: func(*world) {},
			says: "guest dev reaches outside 192.0.2.9",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w := newWorld()
				c.break_(w)
				l := boot(t, w)
				o, err := l.run(root)
				if err != nil || o.State != orchestrator.StateStuck || !strings.Contains(o.Reason, c.says) {
					t.Fatalf("got %s (%s), %v; want stuck, saying %q", o.State, o.Reason, err, c.says)
				}
				w.hooks = map[string]func(context.Context) error{}
				for _, again := range []*lab{l, boot(t, w)} { // in this process and in the next
					_, err := again.run(orchestrator.Spec{Command: "cat /workspace/a"})
					if !errors.Is(err, orchestrator.ErrBusy) || !strings.Contains(err.Error(), string(o.Transaction)) {
						t.Errorf("the sandbox was not refused with the transaction's id: %v", err)
					}
					var stuck *orchestrator.StuckError
					if !errors.As(err, &stuck) || stuck.Tx != o.Transaction || stuck.Mend == "" {
						t.Errorf("refused with %#v; want what is stuck and what to do", err)
					}
					outs, err := again.e.Recover(context.Background())
					if err != nil || len(outs) != 1 || outs[0].State != orchestrator.StateStuck {
						t.Errorf("recover: %+v, %v; want it reported as stuck still", outs, err)
					}
				}
				c.mend(w)
				l = boot(t, w)
				o, err = l.e.Retry(context.Background(), o.Transaction)
				if err != nil || o.State != orchestrator.StateRolledBack {
					t.Fatalf("retry: %s (%s), %v", o.State, o.Reason, err)
				}
				files(t, w, before())
				if _, err := l.run(root); err != nil {
					t.Errorf("the sandbox is not usable again: %v", err)
				}
			})
		})
	}
}

// A snapshot that is gone cannot come back: stuck, until the sandbox is
// destroyed and forgotten.
func TestSnapshotGone(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld()
		w.hooks["command"] = func(context.Context) error {
			w.snaps, w.parent = w.snaps[:1], "sp-pristine"
			return nil
		}
		l := boot(t, w)
		o, err := l.run(root)
		if err != nil || o.State != orchestrator.StateStuck || !strings.Contains(o.Reason, "sandbox destroy --force dev") {
			t.Fatalf("got %s (%s), %v", o.State, o.Reason, err)
		}
		if err := l.e.Forget(context.Background(), w.box.ID); err != nil {
			t.Fatal(err)
		}
		next := boot(t, w)
		if outs, err := next.e.Recover(context.Background()); err != nil || len(outs) != 0 {
			t.Errorf("a forgotten transaction is still reported: %v, %v", outs, err)
		}
		if open, err := orchestrator.List(context.Background(), next.p, orchestrator.Filter{Open: true}); err != nil || len(open) != 0 {
			t.Errorf("a forgotten transaction is still listed as open: %v, %v", open, err)
		}
		tx, err := orchestrator.Show(context.Background(), next.p, o.Transaction)
		if err != nil || tx.State != orchestrator.StateStuck {
			t.Errorf("the record does not say stuck any more: %s, %v", tx.State, err)
		}
	})
}

// A cluster that is away for longer than the deadline needs no operator: the
// transaction stays open, the sandbox is refused, and recovery finishes it.
func TestClusterAway(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld()
		away := func(context.Context) error { return fmt.Errorf("no route: %w", orchestrator.ErrUnavailable) }
		w.hooks["rollback"], w.hooks["status"] = away, nil
		l := boot(t, w)
		o, err := l.run(root)
		if !errors.Is(err, orchestrator.ErrUnavailable) || o.State != orchestrator.StateRollingBack {
			t.Fatalf("got %s (%s), %v; want rolling-back and unavailable", o.State, o.Reason, err)
		}
		if _, err := l.run(root); !errors.Is(err, orchestrator.ErrBusy) || !strings.Contains(err.Error(), "savepoint recover") {
			t.Errorf("the open sandbox was not refused: %v", err)
		}
		delete(w.hooks, "rollback")
		outs, err := l.e.Recover(context.Background())
		if err != nil || len(outs) != 1 || outs[0].State != orchestrator.StateRolledBack {
			t.Fatalf("recover: %+v, %v", outs, err)
		}
		files(t, w, before())
	})
}

// The caller's end at every step before the commit point rolls back and says
// interrupted; after it nothing changes.
func TestInterrupted(t *testing.T) {
	for _, at := range []string{"mark", "create", "create wait", "command", "inspect"} {
		t.Run(at, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w := newWorld()
				ctx, cancel := context.WithCancel(context.Background())
				defer cancel()
				w.hooks[at] = func(context.Context) error { cancel(); delete(w.hooks, at); return nil }
				l := boot(t, w)
				o, err := l.e.Run(ctx, orchestrator.Spec{Sandbox: w.box, Command: overwrite, Boundary: "machine"})
				if err != nil || o.State != orchestrator.StateRolledBack || !o.Interrupted {
					t.Fatalf("got %s (%s), interrupted %t, %v", o.State, o.Reason, o.Interrupted, err)
				}
				files(t, w, before())
				if o, err := l.run(orchestrator.Spec{Command: overwrite}); err != nil || o.State != orchestrator.StateCommitted {
					t.Errorf("the next one: %s, %v", o.State, err)
				}
			})
		})
	}
	t.Run("before anything", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			w := newWorld()
			ctx, cancel := context.WithCancel(context.Background())
			cancel()
			o, err := boot(t, w).e.Run(ctx, orchestrator.Spec{Sandbox: w.box, Command: overwrite})
			if err == nil || !o.Interrupted || len(w.records) != 0 {
				t.Errorf("got %+v, %v, %d records", o, err, len(w.records))
			}
		})
	})
}

// F94, F95, F96: a resumed guest's clock is set, to within a second, before
// anything runs in it again.
// F98: the connections are closed before the rollback.
func TestClockAndConnections(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld()
		w.hooks["command"] = func(context.Context) error { time.Sleep(75 * time.Hour); return nil }
		o, err := boot(t, w).run(root)
		if err != nil || o.State != orchestrator.StateRolledBack {
			t.Fatalf("got %s (%s), %v", o.State, o.Reason, err)
		}
		if w.skew.Abs() > time.Second {
			t.Errorf("the clock is %s off", w.skew)
		}
		if d, r := slices.Index(w.trace, "disconnect"), slices.Index(w.trace, "rollback"); d < 0 || d > r {
			t.Errorf("the connections were not closed before the rollback: %v", w.trace)
		}
	})
}

// F26, F99, F100: a command that runs into its deadline is rolled back to the
// snapshot from before it and says so.
func TestTimeout(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld()
		l := boot(t, w, func(c *orchestrator.Config) { c.Executor = timingOut{c.Executor.(*proc)} })
		o, err := l.run(orchestrator.Spec{Command: overwrite, Timeout: 7 * time.Second})
		if err != nil || o.State != orchestrator.StateRolledBack || !strings.Contains(o.Reason, "timeout of 7s") {
			t.Fatalf("got %s (%s), %v", o.State, o.Reason, err)
		}
		files(t, w, before())
	})
}

type timingOut struct{ *proc }

func (x timingOut) Run(ctx context.Context, sb orchestrator.Sandbox, p policy.Permit, r orchestrator.ExecRequest) (orchestrator.ExecResult, error) {
	if r.Timeout != 7*time.Second {
		return orchestrator.ExecResult{}, fmt.Errorf("timeout %s: %w", r.Timeout, orchestrator.ErrDenied)
	}
	res, err := x.proc.Run(ctx, sb, p, r)
	res.TimedOut, res.ExitCode, res.Signal = true, -1, "KILL"
	return res, err
}

// The guest's health decides too: a command that exits 0 and leaves a guest
// that was rebooted, or lost its marker, is rolled back.
func TestGuestHealth(t *testing.T) {
	for name, harm := range map[string]func(*world){
		"rebooted":           func(w *world) { w.boots = 77 },
		"F23 marker changed": func(w *world) { w.generation = "other" },
		"silent":             func(w *world) { w.dead = true },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w := newWorld()
				first := true
				w.hooks["inspect"] = func(context.Context) error {
					if first {
						first = false
						harm(w)
					}
					return nil
				}
				o, err := boot(t, w).run(orchestrator.Spec{Command: overwrite, Boundary: "machine", OnFailure: orchestrator.OnFailureKeep})
				if err != nil || o.State != orchestrator.StateRolledBack || len(o.Checks) != 2 || o.Checks[1].OK || o.Checks[1].Name != "guest" {
					t.Fatalf("got %s (%s), %+v, %v", o.State, o.Reason, o.Checks, err)
				}
				files(t, w, before())
			})
		})
	}
}

// F34, F41: a snapshot waits for somebody else's lock instead of failing.
func TestSnapshotWaitsForLock(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld()
		w.lock = "backup"
		until := time.Now().Add(time.Minute)
		w.hooks["create"] = func(context.Context) error {
			if time.Now().After(until) {
				w.lock = ""
			}
			return nil
		}
		o, err := boot(t, w).run(orchestrator.Spec{Command: overwrite, Boundary: "disk"})
		if err != nil || o.State != orchestrator.StateCommitted {
			t.Fatalf("got %s (%s), %v", o.State, o.Reason, err)
		}
	})
}

// F41: the task of a backup of many VMs stands under none of them, so it is not
// found. Nobody is told to take its lock away: the rollback waits for recovery.
func TestUnseenBackup(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld()
		l := boot(t, w)
		w.hooks["command"] = func(context.Context) error { w.lock = "backup"; return nil }
		o, err := l.run(root)
		if !errors.Is(err, orchestrator.ErrBusy) || o.State != orchestrator.StateRollingBack || strings.Contains(err.Error(), "qm unlock") {
			t.Fatalf("got %s (%s), %v", o.State, o.Reason, err)
		}
		w.lock = ""
		outs, err := boot(t, w).e.Recover(context.Background())
		if err != nil || len(outs) != 1 || outs[0].State != orchestrator.StateRolledBack {
			t.Fatalf("recover: %+v, %v", outs, err)
		}
		files(t, w, before())
	})
}

// A lock that does not go keeps a transaction from beginning, no longer than its
// snapshot may take.
func TestLockedForGood(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld()
		w.lock = "backup"
		began := time.Now()
		o, err := boot(t, w).run(orchestrator.Spec{Command: overwrite, Boundary: "disk"})
		if !errors.Is(err, orchestrator.ErrBusy) || o.State != orchestrator.StateRolledBack || len(w.ran) != 0 {
			t.Fatalf("got %s (%s), %v", o.State, o.Reason, err)
		}
		if took := time.Since(began); took > 6*time.Minute {
			t.Errorf("it took %s", took)
		}
	})
}

// The journal cannot be written from some record on: what has not run does not
// run, what has run is rolled back, and the error says so.
func TestJournalFull(t *testing.T) {
	for _, c := range []struct {
		from string // the first record that does not fit
		runs int
	}{{"begin", 0}, {"task", 0}, {"snapshot", 0}, {"ran", 1}, {"commit", 1}} {
		t.Run(c.from, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w := newWorld()
				full := &fullJournal{from: c.from}
				l := boot(t, w, func(cfg *orchestrator.Config) { full.proc = cfg.Journal.(*proc); cfg.Journal = full })
				spec := orchestrator.Spec{Command: overwrite, Boundary: "machine"}
				if c.from == "ran" { // written alone when a validation follows
					spec.Validate = []orchestrator.Validation{{Command: "cat /workspace/a"}}
				}
				o, err := l.run(spec)
				if !errors.Is(err, orchestrator.ErrUnavailable) || !strings.Contains(err.Error(), "no space") {
					t.Fatalf("got %s (%s), %v", o.State, o.Reason, err)
				}
				if w.ran[overwrite] != c.runs {
					t.Errorf("the command ran %d times, want %d", w.ran[overwrite], c.runs)
				}
				files(t, w, before())
				full.from = ""
				next := boot(t, w)
				if _, err := next.e.Recover(context.Background()); err != nil {
					t.Fatal(err)
				}
				if _, err := next.e.Collect(context.Background()); err != nil {
					t.Fatal(err)
				}
				files(t, w, before())
				if left := snapshotsOf(w); len(left) != 0 || w.lock != "" {
					t.Errorf("left: %v, lock %q", left, w.lock)
				}
			})
		})
	}
}

// A snapshot whose task could not be noted is given up, also when the journal
// works again right after: a crash would have lost the task.
func TestTaskNotNoted(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld()
		full := &fullJournal{from: "task", once: true}
		l := boot(t, w, func(cfg *orchestrator.Config) { full.proc = cfg.Journal.(*proc); cfg.Journal = full })
		o, err := l.run(orchestrator.Spec{Command: overwrite, Boundary: "machine"})
		if !errors.Is(err, orchestrator.ErrUnavailable) || o.State != orchestrator.StateRolledBack || len(w.ran) != 0 {
			t.Errorf("got %s (%s), %v, ran %v", o.State, o.Reason, err, w.ran)
		}
		if _, err := l.e.Collect(context.Background()); err != nil {
			t.Error(err)
		}
		if left := snapshotsOf(w); len(left) != 0 {
			t.Errorf("left %v", left)
		}
	})
}

// fullJournal has no room from a record on, or once.
type fullJournal struct {
	*proc
	from string
	full bool
	once bool
}

func (j *fullJournal) AppendAll(ctx context.Context, rs []orchestrator.Record) error {
	for _, r := range rs {
		j.full = j.full || r.Event == j.from
	}
	if j.full {
		if j.once {
			j.full, j.from = false, ""
		}
		return fmt.Errorf("no space: %w", orchestrator.ErrUnavailable)
	}
	return j.proc.AppendAll(ctx, rs)
}

// F64: a rollback is not called done while a lock is on the VM.
func TestRolledBackWithoutLock(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld()
		var until time.Time
		w.hooks["status"] = func(context.Context) error {
			switch {
			case w.counts["rollback"] == 0:
			case until.IsZero():
				until, w.lock = time.Now().Add(2*time.Minute), "backup"
			case time.Now().After(until):
				w.lock = ""
			}
			return nil
		}
		o, err := boot(t, w).run(root)
		if err != nil || o.State != orchestrator.StateRolledBack {
			t.Fatalf("got %s (%s), %v", o.State, o.Reason, err)
		}
		if time.Now().Before(until) || w.counts["rollback"] != 1 {
			t.Errorf("done %s before the lock was gone, after %d rollbacks", time.Until(until), w.counts["rollback"])
		}
	})
}

// F21, F27: a rollback that is reported as done and did nothing is not believed.
func TestRollbackThatDidNothing(t *testing.T) {
	for _, b := range []orchestrator.Boundary{"workspace", "disk", "machine"} {
		t.Run(string(b), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w := newWorld()
				l := boot(t, w, func(c *orchestrator.Config) { c.Snapshotters[b] = liar{c.Snapshotters[b]} })
				o, err := l.run(orchestrator.Spec{Command: damage, Boundary: b})
				if err != nil || o.State != orchestrator.StateStuck || !strings.Contains(o.Reason, "-undo") {
					t.Fatalf("got %s (%s), %v", o.State, o.Reason, err)
				}
			})
		})
	}
	// The same with a guest that is marked right: the disks were reverted
	// under it, but it was never stopped.
	t.Run("disk under a running guest", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			w := newWorld()
			w.hooks["status"] = func(context.Context) error { w.running = true; return nil }
			o, err := boot(t, w).run(orchestrator.Spec{Command: damage, Boundary: "disk"})
			if err != nil || o.State != orchestrator.StateStuck || !strings.Contains(o.Reason, "still runs from before") {
				t.Fatalf("got %s (%s), %v", o.State, o.Reason, err)
			}
		})
	})
	t.Run("machine booted anew", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			w := newWorld()
			w.hooks["status"] = func(context.Context) error {
				if w.counts["rollback"] > 0 {
					w.boots = 50 + w.counts["rollback"]
				}
				return nil
			}
			o, err := boot(t, w).run(orchestrator.Spec{Command: damage, Boundary: "machine"})
			if err != nil || o.State != orchestrator.StateStuck || !strings.Contains(o.Reason, "booted anew") {
				t.Fatalf("got %s (%s), %v", o.State, o.Reason, err)
			}
			if w.counts["rollback"] != 3 {
				t.Errorf("%d rollbacks", w.counts["rollback"])
			}
		})
	})
}

// A workspace comes back in a guest that goes on, so that nothing but the marker
// tells whether it did. A guest that cannot be marked, because the command filled
// the volume, is restored all the same, and once more when it can.
func TestUnmarkedWorkspaceIsRestoredAgain(t *testing.T) {
	for name, honest := range map[string]bool{"restored": true, "nothing done": false} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w := newWorld()
				w.hooks["mark"] = func(context.Context) error {
					if w.files["/workspace/a"] == "bad" {
						return fmt.Errorf("no space left: %w", orchestrator.ErrUnavailable)
					}
					return nil
				}
				l := boot(t, w, func(c *orchestrator.Config) {
					if !honest {
						c.Snapshotters["workspace"] = liar{c.Snapshotters["workspace"]}
					}
				})
				o, err := l.run(orchestrator.Spec{Command: damage, Boundary: "workspace"})
				if honest && (o.State != orchestrator.StateRolledBack || w.counts["rollback"] != 2 || w.files["/workspace/a"] != "old") {
					t.Errorf("%s (%s) after %d rollbacks with %v, %v", o.State, o.Reason, w.counts["rollback"], w.files, err)
				}
				if !honest && (o.State != orchestrator.StateStuck || !strings.Contains(o.Reason, "could not be marked")) {
					t.Errorf("%s (%s), %v", o.State, o.Reason, err)
				}
			})
		})
	}
}

// liar is a driver whose rollbacks are done before they begin.
type liar struct{ orchestrator.Snapshotter }

func (liar) Rollback(context.Context, orchestrator.SnapshotRequest) error { return nil }
