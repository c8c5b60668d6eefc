package world

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"savepoint/orchestrator"
)

// nameOf is the sandbox that a VM belonged to at the start; "" for others.
func (c *Cluster) nameOf(ref orchestrator.VMRef) orchestrator.SandboxID {
	if i := int(ref.ID) - 9000; i >= 0 && i < c.Sandboxes {
		return Box(i).ID
	}
	return ""
}

// Status says how a VM is.
func (p *Process) Status(ctx context.Context, ref orchestrator.VMRef) (st orchestrator.VMStatus, err error) {
	err = p.call(ctx, p.C.nameOf(ref), "status", func(Point) error {
		return p.C.at(ref, func(v *vm) error {
			st = orchestrator.VMStatus{Running: v.running, Template: v.template, Name: v.name, Lock: v.lock, Parent: v.parent, Owner: v.owner}
			return nil
		})
	})
	return st, err
}

// Start boots a VM.
func (p *Process) Start(ctx context.Context, r orchestrator.VMRequest) error {
	return p.power(ctx, "start", r, func(v *vm) (job, bool) {
		return job{
			kind: "qmstart", start: func() error { return nil },
			finish: func() error { p.C.boot(v); return nil },
		}, v.running
	})
}

// Stop ends a VM at once.
func (p *Process) Stop(ctx context.Context, r orchestrator.VMRequest) error {
	return p.power(ctx, "stop", r, func(v *vm) (job, bool) {
		return job{
			kind: "qmstop", start: func() error { return nil },
			finish: func() error { p.C.powerOff(v); return nil },
		}, !v.running
	})
}

// power is an order that does nothing to a VM that is as it shall be.
func (p *Process) power(ctx context.Context, name string, r orchestrator.VMRequest, prepare func(v *vm) (job, bool)) error {
	var k *task
	err := p.call(ctx, r.Sandbox, name, func(at Point) error {
		return p.C.owned(r.VM, r.Sandbox, func(v *vm) error {
			j, done := prepare(v)
			if done {
				return nil
			}
			var err error
			k, err = p.C.order(v, p.fate(at), j)
			return err
		})
	})
	if err != nil || k == nil {
		return err
	}
	return p.follow(ctx, r.Sandbox, name, k, r.Started)
}

// boot starts the guest from its disk.
func (c *Cluster) boot(v *vm) {
	if v.running {
		return
	}
	v.running = true
	v.guest.dead, v.guest.skew, v.guest.mute = false, 0, time.Time{}
	v.guest.boot = c.next()
	v.guest.procs = nil
}

// powerOff ends the guest and all that runs in it.
func (c *Cluster) powerOff(v *vm) {
	v.running = false
	for _, q := range v.guest.procs {
		q.over = true
	}
	v.guest.procs = nil
}

// possible reports whether a VM can have the id.
func possible(id orchestrator.VMID) bool { return id >= 100 && id < 1_000_000_000 }

// Clone makes an owned, stopped VM.
func (p *Process) Clone(ctx context.Context, r orchestrator.CloneRequest) error {
	return p.call(ctx, r.Sandbox, "clone", func(Point) error {
		if !possible(r.VM.ID) || r.Sandbox == "" {
			return fmt.Errorf("clone to %s for %q: %w", r.VM, r.Sandbox, orchestrator.ErrDenied)
		}
		return p.C.at(r.Template, func(t *vm) error {
			switch {
			case !t.template:
				return fmt.Errorf("%s is no template: %w", r.Template, orchestrator.ErrDenied)
			case p.C.vms[r.VM.ID] != nil:
				return fmt.Errorf("%s: %w", r.VM, orchestrator.ErrExists)
			}
			v := p.C.add(r.VM, r.Name, r.Sandbox)
			v.files = maps.Clone(t.files)
			v.guest.key = "ssh-ed25519 " + r.Name
			if r.Started != nil {
				return r.Started(orchestrator.UPID(fmt.Sprintf("UPID:%s:%08X:qmclone:%d:", r.VM.Node, p.C.next(), r.VM.ID)))
			}
			return nil
		})
	})
}

// Destroy removes a stopped VM.
func (p *Process) Destroy(ctx context.Context, r orchestrator.VMRequest) error {
	return p.call(ctx, r.Sandbox, "destroy", func(Point) error {
		if !possible(r.VM.ID) {
			return fmt.Errorf("destroy %s: %w", r.VM, orchestrator.ErrDenied)
		}
		p.C.mu.Lock()
		missing := p.C.vms[r.VM.ID] == nil
		p.C.mu.Unlock()
		if missing {
			return nil
		}
		return p.C.owned(r.VM, r.Sandbox, func(v *vm) error {
			switch {
			case v.running:
				return fmt.Errorf("%s is running - destroy failed: %w", v.ref, orchestrator.ErrBusy)
			case v.lock != "":
				return fmt.Errorf("%s is locked (%s): %w", v.ref, v.lock, orchestrator.ErrBusy)
			}
			delete(p.C.vms, r.VM.ID)
			delete(p.C.marks, fmt.Sprint(r.VM.ID))
			if r.Started != nil {
				return r.Started(orchestrator.UPID(fmt.Sprintf("UPID:%s:%08X:qmdestroy:%d:", r.VM.Node, p.C.next(), r.VM.ID)))
			}
			return nil
		})
	})
}

// Await waits for the end of a task that any process ordered.
func (p *Process) Await(ctx context.Context, id orchestrator.UPID) error {
	ref, ok := p.C.where(id)
	if _, err := p.point(p.C.nameOf(ref), "await", false); err != nil {
		return err
	}
	var err error
	if !ok {
		err = fmt.Errorf("task %s: %w", id, orchestrator.ErrNotFound)
	} else {
		err = p.awaitTask(ctx, ref, id)
	}
	if _, perr := p.point(p.C.nameOf(ref), "await", true); perr != nil {
		return perr
	}
	return err
}

// where is the VM of a task.
func (c *Cluster) where(id orchestrator.UPID) (orchestrator.VMRef, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.advance()
	for _, v := range c.vms {
		if v.task(id) != nil {
			return v.ref, true
		}
	}
	return orchestrator.VMRef{}, false
}

// Find lists the tasks of one type on one VM, newest first.
func (p *Process) Find(ctx context.Context, ref orchestrator.VMRef, kind string, since time.Time) (all []orchestrator.Task, err error) {
	err = p.call(ctx, p.C.nameOf(ref), "find", func(Point) error {
		return p.C.at(ref, func(v *vm) error {
			all = all[:0]
			for _, k := range slices.Backward(v.tasks) {
				if k.Type == kind && !k.Started.Before(since) {
					all = append(all, k.Task)
				}
			}
			return nil
		})
	})
	return all, err
}
