package pve

import (
	"context"
	"errors"
	"strconv"
	"time"

	"savepoint/testbed/pve/task"
)

// rootOnly refuses parameters that only the superuser may use.
func (c *call) rootOnly(names ...string) error {
	for _, name := range names {
		if c.p.Has(name) && !c.who.root() {
			return badParam(name, "Only root may use this option.")
		}
	}
	return nil
}

// postStop is POST …/status/stop.
func postStop(c *call) (any, error) {
	if err := c.rootOnly("skiplock", "keepActive", "migratedfrom"); err != nil {
		return nil, err
	}
	vmid, skip, overrule := c.vmid(), c.p.Bool("skiplock"), c.p.Bool("overrule-shutdown")
	s := c.s
	return c.start("qmstop", vmid, func(w *task.Worker) error {
		if overrule {
			s.stopTasks(vmid, "qmshutdown")
		}
		return s.withFile(w, vmid, func() error {
			conf, err := s.conf(vmid)
			if err != nil {
				return fail("unable to find configuration file for VM %d on node '%s'", vmid, s.cfg.Node)
			}
			if !s.cfg.Machines.Status(vmid).Running {
				return nil
			}
			if err := conf.locked(); err != nil && !skip {
				return err
			}
			return s.stopVM(w, vmid)
		})
	})
}

// stopTasks interrupts the running tasks of a type on a VM.
func (s *Server) stopTasks(vmid int, kind string) {
	for _, t := range s.tasks.Running() {
		if t.UPID.Type == kind && t.UPID.ID == strconv.Itoa(vmid) {
			s.tasks.Stop(t.Name, time.Second)
		}
	}
}

// stopVM ends a VM at once and makes its pending changes real.
func (s *Server) stopVM(w *task.Worker, vmid int) error {
	if err := w.Step("stop"); err != nil {
		return err
	}
	e := s.entry(vmid)
	e.backend.Lock()
	err := s.cfg.Machines.Stop(w.Context(), vmid, false)
	e.backend.Unlock()
	if err != nil {
		return fail("VM quit/powerdown failed - %w", err)
	}
	return s.settlePending(w, vmid)
}

// settlePending makes what waited for a VM's end its configuration. Without
// anything pending there is nothing to write, which a cluster without quorum
// could not do.
func (s *Server) settlePending(w *task.Worker, vmid int) error {
	if conf, err := s.peek(vmid); err != nil || len(conf.pending)+len(conf.drop) == 0 {
		return err
	}
	return s.update(w, vmid, func(c *vmConf) error { s.applyPending(c); return nil })
}

// postShutdown is POST …/status/shutdown.
func postShutdown(c *call) (any, error) {
	if err := c.rootOnly("skiplock", "keepActive"); err != nil {
		return nil, err
	}
	vmid, skip, force := c.vmid(), c.p.Bool("skiplock"), c.p.Bool("forceStop")
	timeout := time.Duration(c.p.Int("timeout", 60)) * time.Second
	s := c.s
	if _, err := s.conf(vmid); err != nil {
		return nil, err
	}
	return c.start("qmshutdown", vmid, func(w *task.Worker) error {
		return s.withFile(w, vmid, func() error { return s.shutdown(w, vmid, timeout, skip, force) })
	})
}

// shutdown asks the guest to power down and waits, with the lock file held.
func (s *Server) shutdown(w *task.Worker, vmid int, timeout time.Duration, skipLock, force bool) error {
	conf, err := s.conf(vmid)
	if err != nil {
		return err
	}
	if !s.cfg.Machines.Status(vmid).Running {
		return nil
	}
	if err := conf.locked(); err != nil && !skipLock {
		return err
	}
	if err := w.Step("shutdown"); err != nil {
		return err
	}
	if s.vmOpts.agent(conf.main)["enabled"] == "1" && !s.agentAnswers(w.Context(), vmid) {
		w.Log("QEMU Guest Agent is not running - VM %d %s command 'guest-ping' failed - got timeout", vmid, s.agentWord())
	}
	ctx, cancel := context.WithTimeout(w.Context(), timeout)
	defer cancel()
	e := s.entry(vmid)
	e.backend.Lock()
	err = s.cfg.Machines.Stop(ctx, vmid, true)
	e.backend.Unlock()
	if cause := context.Cause(w.Context()); cause != nil {
		return cause
	}
	if err != nil && force {
		w.Log("VM still running - terminating now with SIGTERM")
		return s.stopVM(w, vmid)
	}
	if err != nil && (errors.Is(err, context.DeadlineExceeded) || ctx.Err() != nil) {
		return fail("VM quit/powerdown failed - got timeout")
	}
	if err != nil {
		return fail("VM quit/powerdown failed - %w", err)
	}
	return s.settlePending(w, vmid)
}

// agentWord is how a version's logs call the agent's protocol.
func (s *Server) agentWord() string {
	if s.cfg.major() == "8" {
		return "qmp"
	}
	return "qga"
}

// mustRun refuses a call on a VM that does not run.
func (c *call) mustRun() error {
	if _, err := c.s.conf(c.vmid()); err != nil {
		return err
	}
	if !c.s.cfg.Machines.Status(c.vmid()).Running {
		return fail("VM %d not running", c.vmid())
	}
	return nil
}

// postReboot is POST …/status/reboot.
func postReboot(c *call) (any, error) {
	if err := c.mustRun(); err != nil {
		return nil, err
	}
	s, vmid := c.s, c.vmid()
	timeout := time.Duration(c.p.Int("timeout", 60)) * time.Second
	return c.start("qmreboot", vmid, func(w *task.Worker) error {
		err := s.withFile(w, vmid, func() error { return s.shutdown(w, vmid, timeout, false, false) })
		if err != nil {
			return err
		}
		return s.startVM(w, vmid, startOptions{})
	})
}

// pauser runs a task that needs a backend which can halt and reset.
func (c *call) pauser(kind string, do func(Pauser, context.Context, int) error) (any, error) {
	if err := c.rootOnly("skiplock"); err != nil {
		return nil, err
	}
	if err := c.mustRun(); err != nil {
		return nil, err
	}
	s, vmid, skip := c.s, c.vmid(), c.p.Bool("skiplock")
	return c.start(kind, vmid, func(w *task.Worker) error {
		return s.withFile(w, vmid, func() error {
			conf, err := s.conf(vmid)
			if err != nil {
				return err
			}
			if err := conf.locked(); err != nil && !skip {
				return err
			}
			p, ok := s.cfg.Machines.(Pauser)
			if !ok {
				return fail("VM %d: this node's machines cannot be paused or reset", vmid)
			}
			e := s.entry(vmid)
			e.backend.Lock()
			defer e.backend.Unlock()
			if err := do(p, w.Context(), vmid); err != nil {
				return fail("%w", err)
			}
			return nil
		})
	})
}

func postReset(c *call) (any, error)  { return c.pauser("qmreset", Pauser.Reset) }
func postResume(c *call) (any, error) { return c.pauser("qmresume", Pauser.Resume) }
