package orchestrator_test

import (
	"context"
	"fmt"
	"testing"

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
