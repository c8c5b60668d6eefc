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
func ask[T any](ctx context.Context, t *tx, question func(context.Context) (T, error)) (T, error) {
	for {
		part, cancel := context.WithTimeout(ctx, lookInterval)
		answer, err := question(part)
		silent := part.Err() != nil
		cancel()
		if err == nil || !silent || ctx.Err() != nil {
			return answer, err
		}
		st, serr := t.e.c.Hypervisor.Status(ctx, t.view.Sandbox.VM)
		if serr == nil && !st.Running {
			return answer, fmt.Errorf("%s: %w: %w", t.view.Sandbox.VM, errOff, ErrUnavailable)
		}
	}
}

// askMark marks the guest and returns what it says of itself then.
func (t *tx) askMark(ctx context.Context, generation string) (GuestFacts, error) {
	return ask(ctx, t, func(ctx context.Context) (GuestFacts, error) {
		return t.e.c.Guest.Mark(ctx, t.view.Sandbox, generation)
	})
}

// askFacts asks the guest what it says of itself.
func (t *tx) askFacts(ctx context.Context) (GuestFacts, error) {
	return ask(ctx, t, func(ctx context.Context) (GuestFacts, error) { return t.e.c.Guest.Inspect(ctx, t.view.Sandbox) })
}

// factsNow asks a guest that should be up: it gets no time to boot.
func (t *tx) factsNow(ctx context.Context) (GuestFacts, error) {
	ctx, cancel := context.WithTimeout(ctx, t.e.c.Deadlines.Validate)
	defer cancel()
	return t.askFacts(ctx)
}

// askHealth asks the guest how it is.
func (t *tx) askHealth(ctx context.Context, x Examiner) (GuestHealth, error) {
	return ask(ctx, t, func(ctx context.Context) (GuestHealth, error) { return x.Health(ctx, t.view.Sandbox) })
}
