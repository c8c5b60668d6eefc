package proxmox

import (
	"context"
	"net/url"
	"strings"
	"time"

	"savepoint/orchestrator"
)

// VMs returns the adapter for making, running and removing VMs.
func (c *Cluster) VMs() *VMs { return &VMs{c: c} }

// VMs implements orchestrator.Hypervisor.
type VMs struct{ c *Cluster }

var _ orchestrator.Hypervisor = (*VMs)(nil)

// Start starts the VM and returns once it runs; a running one is no error.
func (v *VMs) Start(ctx context.Context, r orchestrator.VMRequest) error {
	const op = "start"
	release, err := v.c.exclusive(ctx, op, r.VM)
	if err != nil {
		return err
	}
	defer release()
	return v.c.again(ctx, func() error { return v.start(ctx, op, r) })
}

func (v *VMs) start(ctx context.Context, op string, r orchestrator.VMRequest) error {
	c := v.c
	conf, err := c.owned(ctx, op, r.VM, r.Sandbox, false)
	if err != nil {
		return err
	}
	h, err := c.history(ctx, op, r.VM)
	if err != nil {
		return err
	}
	if h.running {
		return nil
	}
	if err := c.checkLock(ctx, op, r.VM, conf); err != nil {
		return err
	}
	started, within := c.noteHA(r.Started)
	err = c.carryOut(ctx, order{
		op: op, subject: r.VM.String(), node: r.VM.Node, kind: "qmstart", id: r.VM.ID, started: started,
		send: func(ctx context.Context) (string, error) { return c.postTask(ctx, vmPath(r.VM)+"/status/start", nil) },
	})
	if err != nil && !says(err, alreadyRunsRE) {
		return v.afterFailedPower(ctx, op, r.VM, true, err)
	}
	return v.awaitPower(ctx, *within, op, r.VM, true)
}

// Stop ends the VM at once; a stopped one is no error. A config lock does not
// hinder it.
func (v *VMs) Stop(ctx context.Context, r orchestrator.VMRequest) error {
	const op = "stop"
	release, err := v.c.exclusive(ctx, op, r.VM)
	if err != nil {
		return err
	}
	defer release()
	return v.c.again(ctx, func() error {
		if _, err := v.c.owned(ctx, op, r.VM, r.Sandbox, true); err != nil {
			return err
		}
		return v.stop(ctx, op, r)
	})
}

// stop stops a VM whose owner was checked.
func (v *VMs) stop(ctx context.Context, op string, r orchestrator.VMRequest) error {
	c := v.c
	h, err := c.history(ctx, op, r.VM)
	if err != nil {
		return err
	}
	if !h.running {
		return nil
	}
	started, within := c.noteHA(r.Started)
	err = c.carryOut(ctx, order{
		op: op, subject: r.VM.String(), node: r.VM.Node, kind: "qmstop", id: r.VM.ID, started: started,
		send: func(ctx context.Context) (string, error) { return c.postTask(ctx, vmPath(r.VM)+"/status/stop", nil) },
	})
	if err != nil {
		return v.afterFailedPower(ctx, op, r.VM, false, err)
	}
	return v.awaitPower(ctx, *within, op, r.VM, false)
}

// noteHA wraps started so that the time for the result follows from the kind
// of the task: one of the HA manager's ends at once, and the VM's own comes later.
func (c *Cluster) noteHA(started orchestrator.Started) (orchestrator.Started, *time.Duration) {
	within := c.cfg.VerifyTimeout
	return func(id orchestrator.UPID) error {
		if u, err := parseUPID(string(id)); err == nil && strings.HasPrefix(u.kind, "ha") {
			within = c.cfg.TaskTimeout
		}
		if started == nil {
			return nil
		}
		return started(id)
	}, &within
}

// awaitPower waits until the VM runs or not.
func (v *VMs) awaitPower(ctx context.Context, within time.Duration, op string, vm orchestrator.VMRef, running bool) error {
	return v.c.verifyWithin(ctx, within, op, vm.String(), func(ctx context.Context) (string, error) {
		h, err := v.c.history(ctx, op, vm)
		switch {
		case err != nil:
			return "", err
		case running && !h.running:
			return "the vm does not run", nil
		case !running && h.running:
			return "the vm still runs", nil
		}
		return "", nil
	})
}

// afterFailedPower looks at the VM after a task that failed for a cause that
// is not known: if it is as it was, nothing was done.
func (v *VMs) afterFailedPower(ctx context.Context, op string, vm orchestrator.VMRef, running bool, failed error) error {
	f, ok := unexplained(ctx, failed)
	if !ok {
		return failed
	}
	h, err := v.c.history(ctx, op, vm)
	if err != nil {
		return failed
	}
	if h.running == running {
		return nil
	}
	return f.with(orchestrator.ErrUnavailable, "the vm is as it was; look at the task's log for the cause, then try again")
}

// Destroy stops the VM if it runs and removes it with its disks; a missing one
// is no error. It returns nil only once the configuration is gone. A crash
// leaves the VM running, stopped, or gone.
func (v *VMs) Destroy(ctx context.Context, r orchestrator.VMRequest) error {
	const op = "destroy"
	release, err := v.c.exclusive(ctx, op, r.VM)
	if err != nil {
		return err
	}
	defer release()
	return v.c.again(ctx, func() error {
		done, err := v.c.nodeTurn(ctx, op, r.VM.String(), r.VM.Node)
		if err != nil {
			return err
		}
		defer done()
		conf, err := v.c.owned(ctx, op, r.VM, r.Sandbox, true)
		if vmMissing(err) {
			return v.goneEverywhere(ctx, op, r.VM)
		}
		if err != nil {
			return err
		}
		if conf.isTemplate() {
			return refuse(op, r.VM.String(), orchestrator.ErrDenied, "the vm is a template", "nothing was changed")
		}
		return v.remove(ctx, op, r, conf)
	})
}

// goneEverywhere is nil if no guest of the cluster has the id. A VM that is
// only not on its node was moved, or its id belongs to somebody else now.
func (v *VMs) goneEverywhere(ctx context.Context, op string, vm orchestrator.VMRef) error {
	taken, err := v.c.taken(ctx, vm.ID)
	if err != nil {
		return explain(op, vm.String(), err, false)
	}
	if taken {
		return refuse(op, vm.String(), orchestrator.ErrDenied, "the vm is not on that node, but its id is taken elsewhere in the cluster", "nothing was changed; look where the vm is, it may have been moved")
	}
	return nil
}

// remove stops and removes a VM whose owner was checked in conf.
func (v *VMs) remove(ctx context.Context, op string, r orchestrator.VMRequest, conf vmConfig) error {
	c := v.c
	if err := c.checkLock(ctx, op, r.VM, conf); err != nil {
		return err
	}
	if err := v.stop(ctx, op, r); err != nil && !vmMissing(err) {
		return err
	}
	err := c.carryOut(ctx, order{
		op: op, subject: r.VM.String(), node: r.VM.Node, kind: "qmdestroy", id: r.VM.ID, started: r.Started,
		send: func(ctx context.Context) (string, error) {
			return c.deleteTask(ctx, vmPath(r.VM), url.Values{"purge": {"1"}})
		},
	})
	if err != nil && !vmMissing(err) {
		return err
	}
	c.capable.Delete(r.VM)
	return c.verify(ctx, op, r.VM.String(), func(ctx context.Context) (string, error) {
		_, err := c.config(ctx, op, r.VM)
		if vmMissing(err) {
			return "", nil
		}
		if err != nil {
			return "", err
		}
		return "the vm's configuration is still there", nil
	})
}

// Status returns what the cluster says of the VM. Owner is set only if both
// tags and the description say that it is ours; it is also set for a half-made
// clone, which carries the description alone.
func (v *VMs) Status(ctx context.Context, vm orchestrator.VMRef) (orchestrator.VMStatus, error) {
	const op = "read"
	conf, err := v.c.config(ctx, op, vm)
	if err != nil {
		return orchestrator.VMStatus{}, err
	}
	h, err := v.c.history(ctx, op, vm)
	if err != nil {
		return orchestrator.VMStatus{}, err
	}
	st := orchestrator.VMStatus{
		Running: h.running, Template: conf.isTemplate(), Name: conf.text("name"),
		Lock: conf.text("lock"), Parent: orchestrator.SnapshotName(conf.text("parent")),
	}
	if m, ok := v.c.ownerOf(conf); ok {
		st.Owner = m.sandbox
	}
	return st, nil
}
