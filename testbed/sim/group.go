package sim

import (
	"context"
	"errors"
	"os"
	"sync"
	"sync/atomic"
)

// group is a command with everything it started. It is what a control group
// is to a real guest: it ends as a whole, whatever its processes do.
type group struct {
	g    *guest
	ctx  context.Context //nolint:containedctx // the life of the processes
	stop context.CancelFunc

	mu   sync.RWMutex
	over bool
	busy atomic.Int64 // programs in progress
}

var errKilled = errors.New("killed")

func (g *guest) newGroup() *group {
	ctx, stop := context.WithCancel(g.ctx)
	return &group{g: g, ctx: ctx, stop: stop}
}

// end kills every process. When it returns, none has an effect any more.
func (p *group) end() {
	p.mu.Lock()
	p.over = true
	p.mu.Unlock()
	p.stop()
}

// effect does what a process does to its guest, unless it is dead. The world
// stands still for it while the machine is snapshotted.
func (p *group) effect(do func() error) error {
	p.g.gate.pass(p.ctx.Done())
	p.mu.RLock()
	defer p.mu.RUnlock()
	if p.over || p.ctx.Err() != nil {
		return errKilled
	}
	p.g.gate.world.RLock()
	defer p.g.gate.world.RUnlock()
	return do()
}

// pipe is a process's stdin; the reading side must be a file for the shell.
func pipe() (r, w *os.File, err error) { return os.Pipe() }
