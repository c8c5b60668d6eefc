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

// F38: nobody waits the whole deadline for a guest whose VM is off.
func TestSilentGuestIsLookedAt(t *testing.T) {
	for _, at := range []string{"mark", "inspect"} {
		t.Run(at, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w := newWorld()
				l := boot(t, w)
				w.hooks[at] = func(ctx context.Context) error {
					delete(w.hooks, at)
					w.running = false
					<-ctx.Done()
					return fmt.Errorf("no answer: %w: %w", orchestrator.ErrUnavailable, ctx.Err())
				}
				start := time.Now()
				o, _ := l.run(orchestrator.Spec{Command: overwrite, Boundary: "disk"})
				if o.State != orchestrator.StateRolledBack {
					t.Errorf("got %s (%s)", o.State, o.Reason)
				}
				if took := time.Since(start); took > time.Minute {
					t.Errorf("it took %s", took)
				}
				if !w.running {
					t.Error("the VM is off")
				}
				files(t, w, before())
			})
		})
	}
}
