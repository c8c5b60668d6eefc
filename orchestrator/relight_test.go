package orchestrator_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"savepoint/orchestrator"
)

// F47: a guest that dies before anything ran is running again when the
// transaction is over, also when another process has to see to it.
func TestGuestDiesBeforeTheCommand(t *testing.T) {
	for _, at := range []string{"mark", "create"} {
		for _, dies := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/crash=%t", at, dies), func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					w := newWorld()
					l := boot(t, w)
					w.hooks[at] = func(context.Context) error {
						w.running = false
						if dies {
							l.p.gone = true
							return errCrash
						}
						return fmt.Errorf("the guest is gone: %w", orchestrator.ErrUnavailable)
					}
					if at == "create" {
						// One failure: a driver that fails for ever would be asked until the deadline.
						hook := w.hooks[at]
						w.hooks[at] = func(ctx context.Context) error {
							delete(w.hooks, at)
							return fmt.Errorf("%w: %w", orchestrator.ErrDenied, hook(ctx))
						}
					}
					_, err := l.run(root)
					if err == nil {
						t.Error("nothing ran and there was no error")
					}
					if dies {
						clear(w.hooks)
						if _, err := boot(t, w).e.Recover(context.Background()); err != nil {
							t.Fatalf("recover: %v", err)
						}
					}
					if !w.running {
						t.Error("the VM is off")
					}
					files(t, w, before())
				})
			})
		}
	}
}

// F38: nobody waits the whole deadline for a guest whose VM is off, whatever it
// was asked: it stays silent until somebody starts its VM.
func TestSilentGuestIsLookedAt(t *testing.T) {
	spec := orchestrator.Spec{Command: overwrite, Boundary: "disk"}
	run := func(l *lab) (orchestrator.Outcome, error) { return l.run(spec) }
	for name, c := range map[string]struct {
		at    []string // the calls at which the VM goes off, one after the other
		order func(l *lab) (orchestrator.Outcome, error)
	}{
		"mark":    {[]string{"mark"}, run},
		"inspect": {[]string{"inspect"}, run},
		"savepoint": {[]string{"mark"}, func(l *lab) (orchestrator.Outcome, error) {
			w := l.w
			hook := w.hooks["mark"]
			delete(w.hooks, "mark")
			x := l.begin(orchestrator.BeginSpec{Boundary: "disk"})
			exec(l.t, x, put("one", "/workspace/a"))
			w.hooks["mark"] = hook
			return x.Savepoint(context.Background(), "s", "")
		}},
		// The workspace cannot be restored without the guest, and the VM that is
		// started for that goes off once more.
		"revive": {[]string{"rollback", "inspect"}, func(l *lab) (orchestrator.Outcome, error) {
			return l.run(orchestrator.Spec{Command: damage, Boundary: "workspace"})
		}},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w := newWorld()
				l := boot(t, w)
				left := c.at
				for _, call := range []string{"mark", "inspect", "rollback"} {
					w.hooks[call] = func(ctx context.Context) error {
						now := w.running && len(left) > 0 && left[0] == call
						if now {
							left, w.running = left[1:], false
						}
						switch {
						case w.running:
							return nil
						case call != "rollback":
							<-ctx.Done()
						case !now: // an order to the cluster needs no guest
							return nil
						}
						return fmt.Errorf("no answer: %w: %w", orchestrator.ErrUnavailable, ctx.Err())
					}
				}
				start := time.Now()
				o, _ := c.order(l)
				if o.State != orchestrator.StateRolledBack {
					t.Errorf("got %s (%s)", o.State, o.Reason)
				}
				if took := time.Since(start); took > time.Minute {
					t.Errorf("it took %s", took)
				}
				if !w.running || len(left) > 0 {
					t.Errorf("running %t, still to come %v", w.running, left)
				}
				files(t, w, before())
			})
		})
	}
}
