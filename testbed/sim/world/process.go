package world

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"savepoint/orchestrator"
	"savepoint/testbed/sim"
)

// ErrCrash is what a process that died gets from every call.
var ErrCrash = errors.New("the process died")

// Point is a moment at which something can go wrong: before and after the
// effect of every call to a port and of every write to the journal.
type Point struct {
	N       int // counted from 1 in the life of the process
	Name    string
	After   bool
	Sandbox orchestrator.SandboxID
}

func (p Point) String() string {
	when := "before"
	if p.After {
		when = "after"
	}
	return fmt.Sprintf("%d %s %s", p.N, when, p.Name)
}

// Process is one orchestrator process: an engine's ports on the cluster. It can
// die at any point and can be made to fail at any; a dead one changes nothing
// any more. What it ordered goes on without it.
type Process struct {
	C *Cluster
	// Disk is this process's hold of the journal's file.
	Disk *sim.Journal
	// At is asked at every point. ErrCrash ends the process; another error,
	// before the effect, keeps it away, and after it hides it.
	At func(Point) error
	// Fate is asked for every order to the cluster; nil = FateDone.
	Fate func(Point) Fate
	// Turns lets one of several callers go on at a time; nil with one caller.
	Turns *Turns
	// Skew is how far the process's clock is off.
	Skew time.Duration
	// Log, when not nil, gets a line for every point passed.
	Log func(string)

	n     int
	gone  atomic.Bool
	torn  atomic.Bool // the journal refuses everything after an unknown outcome
	ids   atomic.Int64
	conns map[orchestrator.SandboxID]bool // true: a restore was ordered since it was dialled
}

// Gone reports whether the process died.
func (p *Process) Gone() bool { return p.gone.Load() }

// Points is how many points it passed.
func (p *Process) Points() int { return p.n }

// Now is the process's clock.
func (p *Process) Now() time.Time { return time.Now().Add(p.Skew) }

// Config is an engine's configuration on this process's ports.
func (p *Process) Config(d orchestrator.Decider) orchestrator.Config {
	c := orchestrator.Config{
		Journal: Journal{p.Disk, p}, Decider: d, Hypervisor: p, Executor: p, Guest: p, Tasks: p,
		Snapshotters: map[orchestrator.Boundary]orchestrator.Snapshotter{
			orchestrator.BoundaryWorkspace: p.Driver(orchestrator.BoundaryWorkspace),
			orchestrator.BoundaryDisk:      p.Driver(orchestrator.BoundaryDisk),
			orchestrator.BoundaryMachine:   p.Driver(orchestrator.BoundaryMachine),
		},
		Now: p.Now,
		NewID: func() orchestrator.TxID {
			return orchestrator.TxID(fmt.Sprintf("01jx%012d%010d", p.Disk.Fence(), p.ids.Add(1)))
		},
		Wait: p.wait,
	}
	if p.Turns != nil {
		c.Go = p.Turns.Go
	}
	return c
}

// call passes the point before an effect, makes it, and passes the one after.
func (p *Process) call(ctx context.Context, sb orchestrator.SandboxID, name string, effect func(at Point) error) error {
	before, err := p.point(sb, name, false)
	if err != nil {
		return err
	}
	if p.C.Call > 0 {
		if err := p.wait(ctx, p.C.Call); err != nil {
			if p.gone.Load() {
				return ErrCrash
			}
			return fmt.Errorf("%s: %w: %w", name, orchestrator.ErrUnavailable, err)
		}
		p.turn(sb, name)
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%s: %w: %w", name, orchestrator.ErrUnavailable, err)
	}
	if p.gone.Load() {
		return ErrCrash
	}
	err = effect(before)
	if _, perr := p.point(sb, name, true); perr != nil {
		return perr
	}
	return err
}

// Record is a durable write of something else than a transaction's record, with
// the points before and after it. Its name begins with "journal".
func (p *Process) Record(sb orchestrator.SandboxID, name string, write func()) error {
	if _, err := p.point(sb, name, false); err != nil {
		return err
	}
	write()
	_, err := p.point(sb, name, true)
	return err
}

func (p *Process) turn(sb orchestrator.SandboxID, name string) {
	if p.Turns != nil {
		p.Turns.wait(string(sb) + " " + name)
	}
}

// point passes one point.
func (p *Process) point(sb orchestrator.SandboxID, name string, after bool) (Point, error) {
	p.turn(sb, name)
	at := Point{Name: name, After: after, Sandbox: sb}
	if p.gone.Load() {
		return at, ErrCrash
	}
	if p.At == nil && p.Fate == nil && p.Log == nil {
		return at, nil // many callers at once, in benchmarks
	}
	p.n++
	at.N = p.n
	var err error
	if p.At != nil {
		err = p.At(at)
	}
	if errors.Is(err, ErrCrash) {
		p.gone.Store(true)
	}
	if p.Log != nil {
		line := at.String() + " " + string(sb)
		if err != nil {
			line += ": " + err.Error()
		}
		p.Log(line)
	}
	return at, err
}

func (p *Process) fate(at Point) Fate {
	if p.Fate == nil {
		return FateDone
	}
	f := p.Fate(at)
	if f != FateDone && p.Log != nil {
		p.Log(fmt.Sprintf("%s: the order's fate is: %s", at, f))
	}
	return f
}

// wait lets simulated time pass.
func (p *Process) wait(ctx context.Context, d time.Duration) error {
	if p.gone.Load() {
		return ErrCrash
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// awaitTask waits for the end of a task, or of ctx.
func (p *Process) awaitTask(ctx context.Context, ref orchestrator.VMRef, id orchestrator.UPID) error {
	for {
		var running bool
		var ends time.Time
		var result error
		err := p.C.at(ref, func(v *vm) error {
			k := v.task(id)
			if k == nil {
				return fmt.Errorf("task %s: %w", id, orchestrator.ErrNotFound)
			}
			running, ends, result = k.Running, k.ends, k.err
			return nil
		})
		if err != nil || !running {
			return cmpErr(err, result)
		}
		pause := 5 * time.Second
		if !ends.IsZero() {
			pause = max(time.Until(ends), time.Millisecond)
		}
		if err := p.wait(ctx, pause); err != nil {
			if p.gone.Load() {
				return ErrCrash
			}
			return fmt.Errorf("wait for task %s: %w: %w", id, orchestrator.ErrUnknownOutcome, err)
		}
	}
}

func cmpErr(a, b error) error {
	if a != nil {
		return a
	}
	return b
}
