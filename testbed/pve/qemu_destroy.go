package pve

import (
	"maps"
	"slices"

	"savepoint/testbed/pve/task"
)

// deleteVM is DELETE …/qemu/{vmid}.
func deleteVM(c *call) (any, error) {
	if err := c.rootOnly("skiplock"); err != nil {
		return nil, err
	}
	s, vmid := c.s, c.vmid()
	conf, err := s.conf(vmid)
	if err != nil {
		return nil, err
	}
	if err := s.checkDestroy(vmid, conf); err != nil {
		return nil, err
	}
	skip, purge, unreferenced := c.p.Bool("skiplock"), c.p.Bool("purge"), c.p.Bool("destroy-unreferenced-disks")
	return c.start("qmdestroy", vmid, func(w *task.Worker) error {
		return s.withFile(w, vmid, func() error {
			conf, err := s.conf(vmid)
			if err != nil {
				return err
			}
			if err := conf.locked(); err != nil && !skip {
				return err
			}
			if err := s.checkDestroy(vmid, conf); err != nil {
				return err
			}
			if err := w.Step("destroy"); err != nil {
				return err
			}
			if err := s.destroy(w, vmid, conf, unreferenced); err != nil {
				return err
			}
			if purge {
				w.Log("purging VM %d from related configurations..", vmid)
			}
			return s.dropFromPools(vmid)
		})
	})
}

func (s *Server) checkDestroy(vmid int, conf *vmConf) error {
	switch {
	case conf.main["protection"] == "1":
		return fail("can't remove VM %d - protection mode enabled", vmid)
	case s.cfg.Machines.Status(vmid).Running:
		return fail("VM %d is running - destroy failed", vmid)
	}
	return nil
}

// destroy removes a VM's volumes, then its configuration.
func (s *Server) destroy(w *task.Worker, vmid int, conf *vmConf, unreferenced bool) error {
	used := map[string]bool{}
	for _, o := range append(slices.Collect(maps.Values(conf.snaps)), conf.main, conf.pending) {
		for name, value := range o {
			bus, n := splitName(name)
			if d, err := s.vmOpts.parseDrive(name, value); err == nil && n >= 0 {
				used[d.file()] = true
			} else if bus == "vmstate" {
				used[value] = true
			}
		}
	}
	for _, v := range s.volumesOf("", vmid) {
		if used[v.ID] && isBase(v.ID) && len(s.children(v.ID)) > 0 {
			return fail("base volume '%s' is still in use by linked cloned", v.ID)
		}
	}
	for _, v := range s.volumesOf("", vmid) {
		if !used[v.ID] && !unreferenced {
			continue
		}
		if err := s.free(w.Context(), w, v.ID); err != nil {
			if !w.Alive() || w.Context().Err() != nil {
				return err
			}
			w.Warn("Could not remove disk '%s': %v", v.ID, err)
		}
	}
	return s.forget(w, vmid)
}
