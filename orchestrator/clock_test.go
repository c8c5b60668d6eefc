package orchestrator_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"savepoint/orchestrator"
)

// F95 F97: a guest's clock that ran away between two transactions (its host
// slept, or it has a poor clock source) is set before the first command of the
// next one runs, whatever the boundary, and is no command's fault afterwards.
func TestClockRanAwayBetween(t *testing.T) {
	for _, b := range boundaries {
		for _, off := range []time.Duration{-(3*time.Hour + 42*time.Minute), -64 * time.Second, -2 * time.Second, 5 * time.Hour} {
			t.Run(fmt.Sprintf("%s/%s", b, off), func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					w := newWorld()
					l := seen(t, w, nil)
					ran := 0
					w.hooks["command"] = func(context.Context) error {
						if ran++; w.skew.Abs() > time.Second {
							t.Errorf("command %d runs with a clock %s off", ran, w.skew)
						}
						return nil
					}
					for range 2 {
						w.skew = off
						if o, err := l.run(orchestrator.Spec{Command: overwrite, Boundary: b}); err != nil || o.State != orchestrator.StateCommitted {
							t.Fatalf("got %s (%s), %v", o.State, o.Reason, err)
						}
					}
					w.skew = off
					x := l.begin(orchestrator.BeginSpec{Boundary: b})
					exec(t, x, put("one", "/workspace/a"))
					commit(t, x)
					if ran != 3 {
						t.Errorf("%d commands ran", ran)
					}
				})
			})
		}
	}
}

// F79: a guest that stands still while its snapshot is taken, and for a while
// after it, is waited for before anything is run in it.
func TestGuestStandsStillInItsSnapshot(t *testing.T) {
	for _, b := range boundaries {
		t.Run(string(b), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w := newWorld()
				l := seen(t, w, nil)
				var until time.Time
				still := func(ctx context.Context) error {
					select {
					case <-time.After(time.Until(until)):
						return nil
					case <-ctx.Done():
						return fmt.Errorf("no answer: %w: %w", orchestrator.ErrUnavailable, ctx.Err())
					}
				}
				w.hooks["create"] = func(context.Context) error { until = time.Now().Add(100 * time.Second); return nil }
				w.hooks["health"] = still
				w.hooks["run"] = func(ctx context.Context) error {
					if time.Now().Before(until) {
						t.Error("the command was sent to a guest that stands still")
					}
					return nil
				}
				o, err := l.run(orchestrator.Spec{Command: overwrite, Boundary: b})
				if err != nil || o.State != orchestrator.StateCommitted || w.counts["create"] != 1 {
					t.Fatalf("got %s (%s), %v, %d snapshots", o.State, o.Reason, err, w.counts["create"])
				}
				files(t, w, after())
				// One that stays silent for longer is not waited for without end, and
				// nothing runs in it.
				w.hooks["create"] = func(context.Context) error { until = time.Now().Add(10 * time.Minute); return nil }
				began := time.Now()
				o, err = l.run(orchestrator.Spec{Command: damage, Boundary: b})
				if !errors.Is(err, orchestrator.ErrUnavailable) || o.State != orchestrator.StateRolledBack || time.Since(began) > 5*time.Minute {
					t.Errorf("got %s (%s), %v after %s", o.State, o.Reason, err, time.Since(began))
				}
				if w.ran[damage] != 0 {
					t.Error("it ran")
				}
				files(t, w, after())
			})
		})
	}
}

// F97: the host slept while a transaction waited. Its guest's clock is set before
// the next step, and the drift is not held against what the steps did. A process
// that stays looks again as one that takes the transaction up does.
func TestClockRanAwayInAnOpenTransaction(t *testing.T) {
	for _, b := range boundaries {
		for _, resumed := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s resumed %t", b, resumed), func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					w := newWorld()
					l := seen(t, w, nil)
					x := l.begin(orchestrator.BeginSpec{Boundary: b})
					exec(t, x, put("one", "/workspace/a"))
					w.skew = -(3*time.Hour + 42*time.Minute)
					w.watchClock(t)
					time.Sleep(2 * time.Minute)
					if resumed {
						_ = x.Close(context.Background())
						var err error
						if x, err = l.e.Resume(context.Background(), x.View().ID); err != nil {
							t.Fatal(err)
						}
					}
					exec(t, x, put("two", "/workspace/b"))
					commit(t, x)
					files(t, w, map[string]string{"/workspace/a": "one", "/workspace/b": "two"})
				})
			})
		}
	}
}
