package orchestrator_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"savepoint/orchestrator"
	"savepoint/policy"
)

// driver is the snapshotter of one boundary over the world.
type driver struct {
	p    *proc
	kind orchestrator.Boundary
}

// task orders a task, hands its name over and waits for its end, as an adapter
// for the cluster does. The workspace has no tasks.
func (d driver) task(ctx context.Context, name, kind, lock string, started orchestrator.Started, finish func() error) error {
	w := d.p.w
	if d.kind == orchestrator.BoundaryWorkspace {
		return d.p.call(ctx, name, func() error { d.p.note("%s", name); w.counts[name]++; return finish() })
	}
	var k *task
	err := d.p.call(ctx, name, func() error {
		if w.lock != "" {
			return fmt.Errorf("vm is locked (%s): %w", w.lock, orchestrator.ErrBusy)
		}
		d.p.note("%s", name)
		w.counts[name]++
		k = w.begin(kind, lock, finish)
		return nil
	})
	if err != nil {
		return err
	}
	if started != nil {
		if err := started(k.UPID); err != nil {
			return fmt.Errorf("note the task: %w", err)
		}
	}
	return d.p.call(ctx, name+" wait", func() error { w.end(k); return k.err })
}

func (d driver) Create(ctx context.Context, r orchestrator.SnapshotRequest) error {
	w := d.p.w
	if r.Memory != (d.kind == orchestrator.BoundaryMachine) {
		return fmt.Errorf("memory %t with boundary %s: %w", r.Memory, d.kind, orchestrator.ErrDenied)
	}
	if w.find(r.Name) != nil {
		return fmt.Errorf("snapshot %s: %w", r.Name, orchestrator.ErrExists)
	}
	s := &snap{kind: d.kind}
	s.Snapshot = orchestrator.Snapshot{Name: r.Name, Parent: w.parent, Memory: r.Memory, Incomplete: "prepare"}
	err := d.task(ctx, "create", "qmsnapshot", "snapshot", r.Started, func() error {
		s.Incomplete, s.Taken = "", time.Now().Truncate(time.Second)
		s.files, s.generation, s.boots, s.clock = copyFiles(w.files), w.generation, w.boots, time.Now().Add(w.skew)
		w.snaps = append(w.snaps, s)
		w.parent = r.Name
		return nil
	})
	return err
}

func (d driver) Rollback(ctx context.Context, r orchestrator.SnapshotRequest) error {
	w := d.p.w
	s := w.find(r.Name)
	if s == nil {
		return fmt.Errorf("snapshot %s: %w", r.Name, orchestrator.ErrNotFound)
	}
	if i := slices.Index(w.snaps, s); i < len(w.snaps)-1 {
		e := &orchestrator.NotLatestError{Name: r.Name}
		for _, n := range w.snaps[i+1:] {
			e.Newer = append(e.Newer, n.Name)
		}
		return e
	}
	return d.task(ctx, "rollback", "qmrollback", "rollback", r.Started, func() error {
		if d.kind == orchestrator.BoundaryWorkspace && (w.dead || !w.running) {
			return fmt.Errorf("the guest does not answer: %w", orchestrator.ErrUnavailable)
		}
		w.stops()
		w.files = copyFiles(s.files)
		w.parent, w.generation = r.Name, s.generation
		switch d.kind {
		case orchestrator.BoundaryMachine:
			w.running, w.dead = true, false
			w.boots, w.skew = s.boots, time.Until(s.clock)
		case orchestrator.BoundaryDisk:
			w.running = false
		}
		return nil
	})
}

func (d driver) Delete(ctx context.Context, r orchestrator.SnapshotRequest) error {
	w := d.p.w
	if r.Name == "sp-pristine" {
		panic("the engine deletes what it did not take")
	}
	s := w.find(r.Name)
	if s == nil {
		return d.p.call(ctx, "delete", func() error { return nil })
	}
	return d.task(ctx, "delete", "qmdelsnapshot", "snapshot-delete", r.Started, func() error {
		if i := slices.Index(w.snaps, s); i >= 0 {
			w.snaps = slices.Delete(w.snaps, i, i+1)
			if w.parent == s.Name {
				w.parent = s.Parent
			}
			for _, o := range w.snaps {
				if o.Parent == s.Name {
					o.Parent = s.Parent
				}
			}
		}
		return nil
	})
}

func (d driver) List(ctx context.Context, _ orchestrator.VMRef) (all []orchestrator.Snapshot, err error) {
	err = d.p.call(ctx, "list", func() error {
		for _, s := range d.p.w.snaps {
			c := s.Snapshot
			c.Current = c.Name == d.p.w.parent
			all = append(all, c)
		}
		return nil
	})
	return all, err
}

// The hypervisor.

func (p *proc) Clone(context.Context, orchestrator.CloneRequest) error { panic("not the engine's") }
func (p *proc) Destroy(context.Context, orchestrator.VMRequest) error  { panic("not the engine's") }
func (p *proc) Status(ctx context.Context, _ orchestrator.VMRef) (st orchestrator.VMStatus, err error) {
	err = p.call(ctx, "status", func() error {
		w := p.w
		st = orchestrator.VMStatus{Running: w.running, Lock: w.lock, Parent: w.parent, Owner: w.owner, Name: w.box.Name}
		return nil
	})
	return st, err
}

func (p *proc) Start(ctx context.Context, _ orchestrator.VMRequest) error {
	return p.call(ctx, "start", func() error {
		p.note("start")
		if w := p.w; !w.running {
			w.running, w.dead, w.skew = true, false, 0
			w.boots = 1 + max(w.boots, w.counts["boot"])
			w.counts["boot"] = w.boots
		}
		return nil
	})
}

func (p *proc) Stop(ctx context.Context, _ orchestrator.VMRequest) error {
	return p.call(ctx, "stop", func() error {
		p.note("stop")
		p.w.running = false
		p.w.stops()
		return nil
	})
}

// The tasks.

func (p *proc) Await(ctx context.Context, id orchestrator.UPID) (err error) {
	cerr := p.call(ctx, "await", func() error {
		for _, k := range p.w.tasks {
			if k.UPID == id {
				p.w.end(k)
				err = k.err
				return nil
			}
		}
		err = fmt.Errorf("task %s: %w", id, orchestrator.ErrNotFound)
		return nil
	})
	if cerr != nil {
		return cerr
	}
	return err
}

func (p *proc) Find(ctx context.Context, _ orchestrator.VMRef, kind string, since time.Time) (all []orchestrator.Task, err error) {
	err = p.call(ctx, "find", func() error {
		for _, k := range slices.Backward(p.w.tasks) {
			if k.Type == kind && !k.Started.Before(since) {
				all = append(all, k.Task)
			}
		}
		return nil
	})
	return all, err
}

// The guest.

func (p *proc) facts() (orchestrator.GuestFacts, error) {
	w := p.w
	switch {
	case w.key != w.box.HostKey:
		return orchestrator.GuestFacts{}, &orchestrator.HostKeyError{Host: w.box.Name, Want: w.box.HostKey, Got: w.key}
	case !w.running || w.dead:
		return orchestrator.GuestFacts{}, fmt.Errorf("no answer: %w", orchestrator.ErrUnavailable)
	}
	return orchestrator.GuestFacts{
		BootID: fmt.Sprint("boot", w.boots), Generation: w.generation,
		Clock: time.Now().Add(w.skew), RoundTrip: 20 * time.Millisecond,
	}, nil
}

// Prove measures nothing but whether the guest answers; what it finds is the hook's.
func (p *proc) Prove(ctx context.Context, _ orchestrator.Sandbox) error {
	return p.call(ctx, "prove", func() error {
		p.w.counts["prove"]++
		_, err := p.facts()
		return err
	})
}

func (p *proc) Mark(ctx context.Context, _ orchestrator.Sandbox, generation string) (f orchestrator.GuestFacts, err error) {
	err = p.call(ctx, "mark", func() error {
		p.note("mark")
		if f, err = p.facts(); err == nil {
			p.w.generation, f.Generation = generation, generation
		}
		return err
	})
	return f, err
}

func (p *proc) Inspect(ctx context.Context, _ orchestrator.Sandbox) (f orchestrator.GuestFacts, err error) {
	err = p.call(ctx, "inspect", func() error {
		f, err = p.facts()
		if !p.w.untold {
			f.Writes = fmt.Sprint(p.w.generation, p.w.files)
		}
		return err
	})
	return f, err
}

func (p *proc) SetClock(ctx context.Context, _ orchestrator.Sandbox, at time.Time) error {
	return p.call(ctx, "set clock", func() error {
		p.note("set clock")
		p.w.skew = time.Until(at)
		return nil
	})
}

// The executor.

func (p *proc) Run(ctx context.Context, _ orchestrator.Sandbox, permit policy.Permit, r orchestrator.ExecRequest) (res orchestrator.ExecResult, err error) {
	w := p.w
	if !permit.Valid() {
		return res, fmt.Errorf("no permit: %w", orchestrator.ErrDenied)
	}
	started := false
	steps := strings.Split(permit.Command(), " && ")
	err = p.call(ctx, "run", func() error {
		if !w.running || w.dead {
			return fmt.Errorf("no answer: %w", orchestrator.ErrUnavailable)
		}
		started = true
		w.ran[permit.Command()]++
		p.note("run")
		return nil
	})
	if err != nil {
		if started && (p.gone || ctx.Err() != nil) {
			w.ghosts = steps
		}
		return res, err
	}
	if h := w.hooks["command"]; h != nil {
		if err := h(ctx); err != nil {
			return res, err
		}
	}
	sh := &shell{dir: r.Dir, env: maps.Clone(r.Env)}
	if sh.env == nil {
		sh.env = map[string]string{}
	}
	for i, s := range steps {
		if err := p.point("step", true); err != nil {
			w.ghosts = steps[i:] // the guest does not know that nobody listens
			return res, err
		}
		exit, out := w.stepIn(sh, s)
		res.Stdout = append(res.Stdout, out...)
		if r.Stdout != nil {
			_, _ = r.Stdout.Write([]byte(out))
		}
		if w.dead {
			return res, fmt.Errorf("connection lost: %w", orchestrator.ErrUnknownOutcome)
		}
		if res.ExitCode = exit; exit != 0 {
			break
		}
	}
	if r.Capture {
		maps.Copy(sh.env, w.planted)
		res.Session = &orchestrator.Session{Dir: sh.dir, Env: sh.env}
	}
	res.StdoutBytes, res.Duration = int64(len(res.Stdout)), time.Millisecond
	if r.Health && p.tells != nil {
		res.Health = p.tells()
	}
	return res, nil
}

func (p *proc) Disconnect(orchestrator.SandboxID) {
	if !p.gone {
		p.note("disconnect")
	}
}
