package pve

import (
	"time"

	"savepoint/testbed/pve/task"
)

type startOptions struct {
	skipLock bool
	timeout  time.Duration
}

// postStart is POST …/status/start.
func postStart(c *call) (any, error) {
	if err := c.rootOnly("stateuri", "skiplock", "migratedfrom", "migration_type", "migration_network", "targetstorage", "force-cpu", "nets-host-mtu", "with-conntrack-state"); err != nil {
		return nil, err
	}
	vmid := c.vmid()
	opts := startOptions{skipLock: c.p.Bool("skiplock"), timeout: time.Duration(c.p.Int("timeout", 0)) * time.Second}
	return c.start("qmstart", vmid, func(w *task.Worker) error { return c.s.startVM(w, vmid, opts) })
}

// startVM is the whole of a qmstart task.
func (s *Server) startVM(w *task.Worker, vmid int, o startOptions) error {
	return s.withFile(w, vmid, func() error {
		conf, err := s.conf(vmid)
		if err != nil {
			return err
		}
		suspended := conf.main["lock"] == "suspended"
		switch {
		case conf.template():
			return fail("you can't start a vm if it's a template")
		case !o.skipLock && !suspended && conf.locked() != nil:
			return conf.locked()
		case s.cfg.Machines.Status(vmid).Running:
			return fail("VM %d already running", vmid)
		}
		if suspended {
			return s.resumeSuspended(w, vmid, conf)
		}
		if err := s.update(w, vmid, func(c *vmConf) error { s.applyPending(c); return nil }); err != nil {
			return err
		}
		return s.boot(w, vmid, o.timeout, "", "")
	})
}
