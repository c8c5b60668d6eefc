package orchestrator_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"savepoint/orchestrator"
)

// F97: the host slept while a transaction waited, and the next order is the
// commit: the drift is not held against what the steps did.
func TestCommitAfterSleep(t *testing.T) {
	for _, b := range boundaries {
		t.Run(string(b), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w := newWorld()
				l := seen(t, w, nil)
				x := l.begin(orchestrator.BeginSpec{Boundary: b, Validate: []orchestrator.Validation{{Command: "cat /workspace/a"}}})
				exec(t, x, put("one", "/workspace/a"))
				time.Sleep(2 * time.Minute)
				w.skew = -(3*time.Hour + 42*time.Minute)
				w.watchClock(t)
				commit(t, x)
				files(t, w, map[string]string{"/workspace/a": "one"})
			})
		})
	}
}

// A clock that a step broke is its own fault: nothing but a rest forgives it.
func TestCommitAfterBrokenClock(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld()
		l := seen(t, w, nil)
		x := l.begin(orchestrator.BeginSpec{Boundary: "disk"})
		exec(t, x, put("one", "/workspace/a"))
		w.skew = time.Hour
		if o, err := x.Commit(context.Background()); err != nil || o.State != orchestrator.StateRolledBack {
			t.Errorf("got %s (%s), %v", o.State, o.Reason, err)
		}
		files(t, w, before())
	})
}

// F98: a guest that cannot be reached after a rest may come back. The command is
// not run, and what the transaction did so far is kept.
func TestSilentGuestAfterARest(t *testing.T) {
	for name, resumed := range map[string]bool{"same process": false, "another process": true} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w := newWorld()
				l := boot(t, w)
				x := l.begin(orchestrator.BeginSpec{Boundary: "disk"})
				exec(t, x, put("one", "/workspace/a"))
				time.Sleep(2 * time.Minute)
				if resumed {
					_ = x.Close(context.Background())
					var err error
					if x, err = l.e.Resume(context.Background(), x.View().ID); err != nil {
						t.Fatal(err)
					}
				}
				w.hooks["inspect"] = func(ctx context.Context) error { <-ctx.Done(); return orchestrator.ErrUnavailable }
				o, err := x.Exec(context.Background(), orchestrator.StepSpec{Command: put("two", "/workspace/b")})
				if !errors.Is(err, orchestrator.ErrUnavailable) || o.State != orchestrator.StateOpen {
					t.Fatalf("got %s (%s), %v", o.State, o.Reason, err)
				}
				delete(w.hooks, "inspect")
				exec(t, x, put("two", "/workspace/b"))
				commit(t, x)
				files(t, w, map[string]string{"/workspace/a": "one", "/workspace/b": "two"})
			})
		})
	}
}

// A long command is no rest: the order after it asks the guest nothing more.
func TestLongCommandIsNoRest(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld()
		l := boot(t, w)
		x := l.begin(orchestrator.BeginSpec{Boundary: "disk"})
		w.hooks["command"] = func(context.Context) error { time.Sleep(8 * time.Minute); return nil }
		exec(t, x, put("one", "/workspace/a"))
		w.hooks["inspect"] = func(context.Context) error { t.Error("the guest was asked"); return nil }
		exec(t, x, put("two", "/workspace/b"))
		delete(w.hooks, "inspect")
		commit(t, x)
	})
}
