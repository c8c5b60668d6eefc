package orchestrator

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// lookInterval is how long a guest may be silent before the cluster is asked
// whether its VM is on at all.
const lookInterval = 15 * time.Second

// errOff says that a guest cannot answer because its VM is off.
var errOff = errors.New("the vm is off")

// ask puts a question to the guest that may be repeated. Nobody answers from a
// VM that is off, and waiting for the whole deadline would only delay what
// brings it back: then the error wraps errOff and ErrUnavailable at once.
func (t *tx) ask(ctx context.Context, question func(context.Context) error) error {
	for {
		part, cancel := context.WithTimeout(ctx, lookInterval)
		err := question(part)
		silent := part.Err() != nil
		cancel()
		if err == nil || !silent || ctx.Err() != nil {
			return err
		}
		st, serr := t.e.c.Hypervisor.Status(ctx, t.view.Sandbox.VM)
		if serr == nil && !st.Running {
			return fmt.Errorf("%s: %w: %w", t.view.Sandbox.VM, errOff, ErrUnavailable)
		}
	}
}
