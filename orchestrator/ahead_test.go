package orchestrator_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"savepoint/orchestrator"
)

// ready is a process that takes snapshots ahead and does so before it answers
// the next question, and a first command has run in it.
func ready(t *testing.T, w *world, b orchestrator.Boundary) *lab {
	t.Helper()
	l := seen(t, w, func(_ *examined, c *orchestrator.Config) { c.Ahead, c.Go = true, func(work func()) { work() } })
	if o, err := l.run(orchestrator.Spec{Command: overwrite, Boundary: b}); err != nil || o.State != orchestrator.StateCommitted {
		t.Fatalf("got %s (%s), %v", o.State, o.Reason, err)
	}
	return l
}

// all are the journal's transactions, the newest first.
func (l *lab) all(f orchestrator.Filter) []orchestrator.Transaction {
	l.t.Helper()
	txs, err := orchestrator.List(context.Background(), l.j, f)
	if err != nil {
		l.t.Fatal(err)
	}
	return txs
}

// A command that finds its snapshot taken asks the cluster nothing and the guest
// once before it runs; its intent is one write.
func TestAheadUsed(t *testing.T) {
	for _, b := range boundaries {
		t.Run(string(b), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w := newWorld()
				l := ready(t, w, b)
				waits := l.all(orchestrator.Filter{})[0]
				if waits.State != orchestrator.StatePrepared || waits.Boundary != b || !waits.Unused() {
					t.Fatalf("after the first command there is %s in %q", waits.State, waits.Boundary)
				}
				time.Sleep(time.Hour)
				n := len(l.p.log)
				o, err := l.run(orchestrator.Spec{Command: damage, Boundary: b})
				if err != nil || o.State != orchestrator.StateRolledBack || o.Transaction != waits.ID {
					t.Fatalf("got %s of %s (%s), %v", o.State, o.Transaction, o.Reason, err)
				}
				calls := l.p.log[n : n+slices.Index(l.p.log[n:], "run")]
				if got := strings.Join(calls, " "); got != "inspect inspect journal journal" && got != "grants inspect inspect journal journal" {
					t.Errorf("before the command ran: %s", got)
				}
				files(t, w, after())
				now := l.all(orchestrator.Filter{Used: true})[0]
				if now.ID != waits.ID || now.Command != damage || now.Began.Sub(waits.Began) < time.Hour || now.Timings.Total > time.Minute || now.Timings.Snapshot > time.Second {
					t.Errorf("recorded: %+v", now)
				}
			})
		})
	}
}

// What does not serve the command is not used: it is taken anew, and what
// somebody else wrote stays.
func TestAheadDoesNotServe(t *testing.T) {
	for name, c := range map[string]struct {
		disturb func(w *world, s *orchestrator.Spec)
		reason  string
	}{
		"written":        {func(w *world, _ *orchestrator.Spec) { w.files["/workspace/typed"] = "by hand" }, "something was written"},
		"cannot say":     {func(w *world, _ *orchestrator.Spec) { w.untold = true }, "something was written"},
		"rebooted":       {func(w *world, _ *orchestrator.Spec) { w.boots++ }, "rebooted"},
		"another marker": {func(w *world, _ *orchestrator.Spec) { w.generation = "sp-other" }, "generation"},
		"clock":          {func(w *world, _ *orchestrator.Spec) { w.skew = 3 * time.Hour }, "clock"},
		"boundary":       {func(_ *world, s *orchestrator.Spec) { s.Boundary = "disk" }, "needs boundary disk"},
		"sandbox":        {func(w *world, s *orchestrator.Spec) { s.Sandbox = w.box; s.Sandbox.Tenant = "t" }, "changed"},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w := newWorld()
				l := ready(t, w, "machine")
				old := l.all(orchestrator.Filter{})[0].ID
				s := orchestrator.Spec{Command: damage, Boundary: "machine"}
				c.disturb(w, &s)
				o, err := l.run(s)
				if err != nil || o.State != orchestrator.StateRolledBack || o.Transaction == old {
					t.Fatalf("got %s of %s (%s), %v", o.State, o.Transaction, o.Reason, err)
				}
				want := after()
				if name == "written" {
					want["/workspace/typed"] = "by hand"
				}
				files(t, w, want)
				was, err := orchestrator.Show(context.Background(), l.j, old)
				if err != nil || was.State != orchestrator.StateRolledBack || !strings.Contains(was.Reason, c.reason) {
					t.Errorf("the one taken ahead is %s (%s), %v", was.State, was.Reason, err)
				}
			})
		})
	}
}

// A command that writes nothing leaves the snapshot for the next one that does.
func TestAheadWaitsForWrites(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld()
		l := ready(t, w, "disk")
		waits := l.all(orchestrator.Filter{})[0].ID
		if o, err := l.run(orchestrator.Spec{Command: "cat /workspace/a"}); err != nil || o.Boundary != "none" {
			t.Fatalf("got %q, %v", o.Boundary, err)
		}
		if o, err := l.run(orchestrator.Spec{Command: overwrite, Boundary: "disk"}); err != nil || o.Transaction != waits {
			t.Errorf("%s was not used: %s, %v", waits, o.Transaction, err)
		}
	})
}

// Whoever comes while a snapshot is being taken waits for it and has it. Spent
// snapshots are deleted behind the answers, and never more are there than Keep.
func TestAheadBehindTheAnswer(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld()
		w.snaps, w.parent = nil, ""
		// What works behind the answers goes on when the test has looked.
		var looking sync.Mutex
		slow := func(context.Context) error {
			time.Sleep(10 * time.Second)
			looking.Lock()
			defer looking.Unlock()
			return nil
		}
		w.hooks["create"], w.hooks["delete"] = slow, slow
		l := boot(t, w, func(c *orchestrator.Config) { c.Ahead = true })
		for n := range 8 {
			began := time.Now()
			o, err := l.run(orchestrator.Spec{Command: fmt.Sprintf("echo v%d > /workspace/a", n), Boundary: "disk"})
			if err != nil || o.State != orchestrator.StateCommitted {
				t.Fatalf("got %s (%s), %v", o.State, o.Reason, err)
			}
			if took := time.Since(began); n > 1 && took > time.Second {
				t.Errorf("command %d took %s", n, took)
			}
			if n > 0 {
				time.Sleep(time.Minute)
			}
			synctest.Wait()
			looking.Lock()
			if len(w.snaps) > 4 {
				t.Errorf("%d snapshots after command %d", len(w.snaps), n)
			}
			looking.Unlock()
		}
		if err := l.e.Quiet(context.Background()); err != nil {
			t.Fatal(err)
		}
		if left := l.all(orchestrator.Filter{Open: true}); len(left) > 0 || w.counts["delete"] < 5 {
			t.Errorf("%d deletions, left: %v", w.counts["delete"], left)
		}
	})
}

// Quiet, a hold and a transaction of several commands give up what waits.
func TestAheadGivenUp(t *testing.T) {
	ctx := context.Background()
	for name, do := range map[string]func(l *lab) error{
		"quiet": func(l *lab) error { return l.e.Quiet(ctx) },
		"hold": func(l *lab) error {
			release, err := l.e.Hold(ctx, l.w.box, "reset")
			if err == nil {
				release()
			}
			return err
		},
		"forget": func(l *lab) error { return l.e.Forget(ctx, l.w.box.ID) },
		"begin": func(l *lab) error {
			x := l.begin(orchestrator.BeginSpec{Boundary: "disk"})
			_, err := x.Rollback(ctx, "")
			return err
		},
		"next process": func(l *lab) error { _, err := boot(l.t, l.w).e.Recover(ctx); return err },
		"next process's work": func(l *lab) error {
			_, err := boot(l.t, l.w).run(orchestrator.Spec{Command: "echo x > /workspace/x"})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w := newWorld()
				l := ready(t, w, "disk")
				id, n := l.all(orchestrator.Filter{})[0].ID, w.counts["rollback"]
				if name == "begin" {
					n++ // its own
				}
				if err := do(l); err != nil {
					t.Fatal(err)
				}
				was, err := orchestrator.Show(ctx, l.j, id)
				if err != nil || was.State != orchestrator.StateRolledBack || was.Result != nil || w.counts["rollback"] != n {
					t.Errorf("it is %s (%s), %v after %d rollbacks", was.State, was.Reason, err, w.counts["rollback"])
				}
			})
		})
	}
}

// When the journal has no room for the adoption, nothing is run; the sandbox can
// be used again when there is.
func TestAheadWithoutRoom(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld()
		l := ready(t, w, "disk")
		l.p.plan = func(_ int, name string, after bool) error {
			if name == "journal" && !after {
				return fmt.Errorf("no room: %w", orchestrator.ErrUnavailable)
			}
			return nil
		}
		if o, err := l.run(orchestrator.Spec{Command: damage, Boundary: "disk"}); !errors.Is(err, orchestrator.ErrUnavailable) || w.ran[damage] != 0 {
			t.Fatalf("got %s, %v, ran %d times", o.State, err, w.ran[damage])
		}
		l.p.plan = nil
		if o, err := l.run(orchestrator.Spec{Command: damage, Boundary: "disk"}); err != nil || o.State != orchestrator.StateRolledBack {
			t.Errorf("got %s (%s), %v", o.State, o.Reason, err)
		}
		files(t, w, after())
	})
}

// A grant that is gone when the adoption is written spends no snapshot.
func TestAheadLostGrant(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld()
		l := ready(t, w, "workspace")
		waits := l.all(orchestrator.Filter{})[0].ID
		w.grant(t, "gr-1")
		w.hooks["inspect"] = func(context.Context) error { w.grants[0].Revoked = time.Now(); return nil }
		if o, err := l.run(orchestrator.Spec{Command: forbidden, Boundary: "workspace"}); err != nil || o.State != orchestrator.StateDenied || o.Transaction == waits {
			t.Fatalf("got %s of %s (%s), %v", o.State, o.Transaction, o.Reason, err)
		}
		delete(w.hooks, "inspect")
		if o, err := l.run(orchestrator.Spec{Command: overwrite, Boundary: "workspace"}); err != nil || o.Transaction != waits {
			t.Errorf("%s was not used: %s (%s), %v", waits, o.Transaction, o.Reason, err)
		}
	})
}

// An unused one is no command: it is left out of lists that ask for that, and
// nobody judged it. A used one was judged once.
func TestAheadInTheRecord(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld()
		l := ready(t, w, "disk")
		if o, err := l.run(orchestrator.Spec{Command: damage, Boundary: "disk"}); err != nil || o.State != orchestrator.StateRolledBack {
			t.Fatalf("got %s, %v", o.State, err)
		}
		if all, used := len(l.all(orchestrator.Filter{})), len(l.all(orchestrator.Filter{Used: true})); all != 3 || used != 2 {
			t.Errorf("%d transactions, %d with a command", all, used)
		}
		var judged []string
		for q, err := range orchestrator.Judged(context.Background(), l.j) {
			if err != nil {
				t.Fatal(err)
			}
			judged = append(judged, q.Command)
		}
		if !slices.Equal(judged, []string{overwrite, damage}) {
			t.Errorf("judged: %q", judged)
		}
	})
}
