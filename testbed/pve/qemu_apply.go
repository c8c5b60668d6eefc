package pve

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"savepoint/testbed/pve/task"
)

// apply makes a change, with the VM's lock file held. What a running VM cannot
// take becomes pending. Removals are kept one by one: when a later one fails,
// the earlier ones have happened.
func (s *Server) apply(w *task.Worker, ctx context.Context, vmid int, ch change) error {
	if err := s.checkChange(vmid, ch); err != nil {
		return err
	}
	running := s.cfg.Machines.Status(vmid).Running
	for _, name := range ch.drop {
		if err := s.dropOption(w, ctx, vmid, name, running); err != nil {
			return err
		}
	}
	before := s.volumesOf("", vmid)
	err := s.set(w, ctx, vmid, ch, running)
	if err != nil {
		errs := []error{err}
		for _, v := range s.newVolumes(vmid, before) {
			errs = append(errs, s.free(context.WithoutCancel(ctx), w, v.ID))
		}
		return joinCleanup(errs...)
	}
	return nil
}

// set sets and reverts options, making the disks that they ask for.
func (s *Server) set(w *task.Worker, ctx context.Context, vmid int, ch change, running bool) error {
	made := options{}
	for _, name := range slices.Sorted(maps.Keys(ch.set)) {
		value, err := s.settle(w, ctx, vmid, name, ch.set[name])
		if err != nil {
			return err
		}
		made[name] = value
	}
	return s.update(w, vmid, func(c *vmConf) error {
		for _, name := range ch.revert {
			delete(c.pending, name)
			c.undrop(name)
		}
		for name, value := range made {
			c.undrop(name)
			if running && !s.vmOpts.byName[name].hot {
				c.pending[name] = value
				continue
			}
			delete(c.pending, name)
			s.setOption(c, name, value)
		}
		if !running {
			s.applyPending(c)
		}
		return nil
	})
}

func (c *vmConf) undrop(name string) {
	c.drop = slices.DeleteFunc(c.drop, func(n string) bool { return n == name })
}

// setOption sets an option; a volume that loses its place becomes unused.
func (s *Server) setOption(c *vmConf, name, value string) {
	if busOf(name) != "" {
		old, err := s.vmOpts.parseDrive(name, c.main[name])
		now, err2 := s.vmOpts.parseDrive(name, value)
		if err == nil && err2 == nil && old.image() && old.file() != now.file() {
			c.addUnused(old.file())
		}
		c.removeUnused(now.file())
	}
	c.main[name] = value
}

// applyPending makes the pending changes of a stopped VM real.
func (s *Server) applyPending(c *vmConf) {
	for _, name := range c.drop {
		s.detach(c, name)
	}
	for name, value := range c.pending {
		s.setOption(c, name, value)
	}
	c.drop, c.pending = nil, options{}
}

// detach removes an option; a disk becomes unused and leaves the boot order.
func (s *Server) detach(c *vmConf, name string) {
	if busOf(name) != "" {
		if d, err := s.vmOpts.parseDrive(name, c.main[name]); err == nil && d.image() {
			c.addUnused(d.file())
		}
	}
	delete(c.main, name)
	c.leaveBootOrder(name)
}

func (c *vmConf) leaveBootOrder(name string) {
	order, ok := strings.CutPrefix(c.main["boot"], "order=")
	if !ok {
		return
	}
	rest := slices.DeleteFunc(strings.Split(order, ";"), func(n string) bool { return n == name })
	if len(rest) == 0 {
		delete(c.main, "boot")
		return
	}
	c.main["boot"] = "order=" + strings.Join(rest, ";")
}

func (c *vmConf) addUnused(volid string) {
	for n := 0; ; n++ {
		name := fmt.Sprintf("unused%d", n)
		if c.main[name] == volid {
			return
		}
		if _, taken := c.main[name]; !taken {
			c.main[name] = volid
			return
		}
	}
}

func (c *vmConf) removeUnused(volid string) {
	for name, value := range c.main {
		if bus, n := splitName(name); bus == "unused" && n >= 0 && value == volid {
			delete(c.main, name)
		}
	}
}

// dropOption removes one option now, or marks it to be removed at the restart.
func (s *Server) dropOption(w *task.Worker, ctx context.Context, vmid int, name string, running bool) error {
	conf, err := s.conf(vmid)
	if err != nil {
		return err
	}
	value, isSet := conf.main[name]
	bus, n := splitName(name)
	isUnused := bus == "unused" && n >= 0
	if isSet && conf.main["protection"] == "1" && (busOf(name) != "" || isUnused) {
		return fail("can't remove drive '%s' - protection mode enabled", name)
	}
	if isSet && isUnused {
		if s.vmOpts.inSnapshots(conf, value) {
			return fail("unable to delete '%s' - volume is still in use (snapshot?)", value)
		}
		if err := s.free(ctx, w, value); err != nil {
			return err
		}
	}
	cloudinit := ""
	if d, err := s.vmOpts.parseDrive(name, value); busOf(name) != "" && err == nil && d.cloudinit() && !running {
		cloudinit = d.file()
	}
	if err := s.update(w, vmid, func(c *vmConf) error {
		delete(c.pending, name)
		switch _, set := c.main[name]; {
		case !set:
		case running && !isUnused && !s.vmOpts.byName[name].hot && name != "lock":
			c.undrop(name)
			c.drop = append(c.drop, name)
			slices.Sort(c.drop)
		default:
			s.detach(c, name)
		}
		return nil
	}); err != nil {
		return err
	}
	if cloudinit != "" {
		return s.free(ctx, w, cloudinit)
	}
	return nil
}

// inSnapshots reports whether a snapshot uses a volume.
func (v *vmOptions) inSnapshots(c *vmConf, volid string) bool {
	for _, o := range c.snaps {
		if o["vmstate"] == volid {
			return true
		}
		for _, d := range v.drives(o) {
			if d.file() == volid {
				return true
			}
		}
	}
	return false
}
