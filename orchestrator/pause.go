package orchestrator

import (
	"context"
	"time"
)

// pause grows from a fifth of a second to five, for looking again at a cluster
// that is busy or does not answer.
type pause struct{ d time.Duration }

func newPause() *pause { return &pause{d: 100 * time.Millisecond} }

func (p *pause) next() time.Duration {
	p.d = min(p.d*2, 5*time.Second)
	return p.d
}

// detached gives an undo its own time: the caller's end does not stop it.
func (e *Engine) detached(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), d)
}
