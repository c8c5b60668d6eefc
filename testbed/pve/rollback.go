package pve

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"

	"savepoint/testbed/pve/task"
)

// postRollback is POST …/snapshot/{snapname}/rollback.
func postRollback(c *call) (any, error) {
	s, vmid, name, start := c.s, c.vmid(), c.p.Str("snapname"), c.p.Bool("start")
	if start && s.cfg.major() >= "9" {
		if err := c.need("/vms/"+strconv.Itoa(vmid), "VM.PowerMgmt"); err != nil {
			return nil, err
		}
	}
	if _, err := s.conf(vmid); err != nil {
		return nil, err
	}
	user := c.who.name
	return c.start("qmrollback", vmid, func(w *task.Worker) error {
		if err := s.withMigration(w, vmid, func() error { return s.rollback(w, vmid, name) }); err != nil {
			return err
		}
		if !start || s.cfg.Machines.Status(vmid).Running {
			return nil
		}
		// a task of its own, which nobody waits for
		_, err := s.startTask("qmstart", strconv.Itoa(vmid), user, func(w *task.Worker) error {
			return s.startVM(w, vmid, startOptions{})
		})
		return err
	})
}

// rollback brings a VM back to a snapshot. From "locked" until "restored" the
// configuration holds lock "rollback" and the disks may be mixed.
func (s *Server) rollback(w *task.Worker, vmid int, name string) error {
	err := s.withFile(w, vmid, func() error { return s.beginRollback(w, vmid, name) })
	if err != nil {
		return err
	}
	if err := w.Step("locked"); err != nil {
		return err
	}
	conf, err := s.conf(vmid)
	if err != nil {
		return err
	}
	snap, err := conf.snapshot(name)
	if err != nil {
		return err
	}
	e := s.entry(vmid)
	for _, d := range s.vmOpts.images(snap) {
		v, err := s.volume(d.file())
		if err != nil {
			return err
		}
		e.backend.Lock()
		err = s.cfg.Disks.Revert(w.Context(), v.disk(d.slot), name)
		e.backend.Unlock()
		if err != nil {
			return fail("%w", err)
		}
		if err := w.Step("disk"); err != nil {
			return err
		}
	}
	return s.withFile(w, vmid, func() error {
		vmstate, err := s.restoreConf(w, vmid, name)
		if err != nil {
			return err
		}
		if err := w.Step("restored"); err != nil {
			return err
		}
		if vmstate == "" {
			return nil
		}
		v, err := s.volume(vmstate)
		if err != nil {
			return err
		}
		if s.cfg.major() >= "9" {
			for _, nic := range s.vmOpts.nics(snap) {
				w.Log("netdev %s: not adding 'host_mtu' parameter for migration compat", nic.Slot)
			}
		}
		return s.boot(w, vmid, 0, v.Path, name)
	})
}

// beginRollback checks everything, then stops the VM and sets the lock.
func (s *Server) beginRollback(w *task.Worker, vmid int, name string) error {
	conf, err := s.conf(vmid)
	if err != nil {
		return err
	}
	if conf.template() {
		return fail("you can't rollback if vm is a template")
	}
	snap, err := conf.snapshot(name)
	if err != nil {
		return err
	}
	if err := s.canRollback(w.Context(), snap, name); err != nil {
		return err
	}
	if state := snap["snapstate"]; state != "" {
		return fail("unable to rollback to incomplete snapshot (snapstate = %s)", state)
	}
	if err := conf.locked(); err != nil {
		return err
	}
	if s.cfg.Machines.Status(vmid).Running {
		if err := w.Step("stop"); err != nil {
			return err
		}
		e := s.entry(vmid)
		e.backend.Lock()
		err := s.cfg.Machines.Stop(w.Context(), vmid, false)
		e.backend.Unlock()
		if err != nil {
			return fail("%w", err)
		}
	}
	return s.update(w, vmid, func(c *vmConf) error { c.main["lock"] = "rollback"; return nil })
}

// canRollback asks every disk's storage. An incomplete snapshot is told apart later.
func (s *Server) canRollback(ctx context.Context, snap options, name string) error {
	if snap["snapstate"] != "" {
		return nil
	}
	for _, d := range s.vmOpts.images(snap) {
		v, err := s.volume(d.file())
		if err != nil {
			return err
		}
		st, err := s.storage(storageID(v.ID))
		if err != nil {
			return err
		}
		if !st.latestOnly() {
			continue
		}
		taken := v.Snaps
		if v.Pooled { // somebody else's are in the way, too
			if taken, err = s.cfg.Disks.(PoolDisks).Snapshots(ctx, v.disk(d.slot)); err != nil {
				return fail("%w", err)
			}
		}
		on := v.ID
		if st.VolumeChain {
			_, on, _ = strings.Cut(v.ID, ":")
		}
		switch {
		case !slices.Contains(taken, name):
			return fail("can't rollback, snapshot '%s' does not exist on '%s'", name, on)
		case taken[len(taken)-1] != name:
			return fail("can't rollback, '%s' is not most recent snapshot on '%s'", name, on)
		}
	}
	return nil
}

// restoreConf replaces the configuration by the snapshot's. Only the
// description and unused disks stay; disks that were added since become unused.
func (s *Server) restoreConf(w *task.Worker, vmid int, name string) (vmstate string, err error) {
	err = s.update(w, vmid, func(c *vmConf) error {
		snap, err := c.snapshot(name)
		if err != nil {
			return err
		}
		if c.main["lock"] != "rollback" {
			return fail("got wrong lock")
		}
		vmstate = snap["vmstate"]
		old := c.main
		now := maps.Clone(snap)
		for _, k := range []string{"snaptime", "snapstate", "vmstate", "runningmachine", "runningcpu", "running-nets-host-mtu", "description"} {
			delete(now, k)
		}
		if d, ok := old["description"]; ok {
			now["description"] = d
		}
		now["parent"] = name
		if now["vmgenid"] != "" {
			now["vmgenid"] = newUUID()
		}
		c.main, c.pending, c.drop = now, options{}, nil
		used := map[string]bool{}
		for _, d := range s.vmOpts.drives(now) {
			used[d.file()] = true
		}
		for _, k := range slices.Sorted(maps.Keys(old)) {
			bus, n := splitName(k)
			if bus == "unused" && n >= 0 && !used[old[k]] {
				now[k] = old[k]
			}
		}
		for _, d := range s.vmOpts.images(old) {
			if !used[d.file()] {
				c.addUnused(d.file())
			}
		}
		return nil
	})
	return vmstate, err
}
