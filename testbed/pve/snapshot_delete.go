package pve

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"

	"savepoint/testbed/pve/task"
)

// deleteSnapshot is DELETE …/snapshot/{snapname}.
func deleteSnapshot(c *call) (any, error) {
	s, vmid, name, force := c.s, c.vmid(), c.p.Str("snapname"), c.p.Bool("force")
	if _, err := s.conf(vmid); err != nil {
		return nil, err
	}
	return c.start("qmdelsnapshot", vmid, func(w *task.Worker) error {
		return s.withMigration(w, vmid, func() error {
			return s.removeSnapshot(w.Context(), w, vmid, name, force, false)
		})
	})
}

// removeSnapshot deletes a snapshot, in steps that are each kept: the memory's
// volume, the disks one by one, the section. own says that the caller's
// snapshot lock is the one that is set.
func (s *Server) removeSnapshot(ctx context.Context, w *task.Worker, vmid int, name string, force, own bool) error {
	if err := s.markDelete(w, vmid, name, own); err != nil {
		return err
	}
	if !own {
		if err := w.Step("marked"); err != nil {
			return err
		}
	}
	conf, err := s.conf(vmid)
	if err != nil {
		return err
	}
	snap, err := conf.snapshot(name)
	if err != nil {
		return err
	}
	if id := snap["vmstate"]; id != "" {
		if err := s.free(ctx, w, id); err != nil && !force {
			return err
		}
		if err := s.editSnapshot(w, vmid, name, func(o options) { delete(o, "vmstate") }); err != nil {
			return err
		}
	}
	for _, d := range s.vmOpts.images(snap) {
		if err := s.dropDiskSnapshot(ctx, w, vmid, d, name); err != nil {
			if errors.Is(err, task.ErrKilled) || !force {
				return err
			}
			w.Log("%v", err)
		}
		if err := s.editSnapshot(w, vmid, name, func(o options) { delete(o, d.slot) }); err != nil {
			return err
		}
		if !own {
			if err := w.Step("disk"); err != nil {
				return err
			}
		}
	}
	return s.update(w, vmid, func(c *vmConf) error {
		parent := c.snaps[name]["parent"]
		for _, o := range append(slices.Collect(maps.Values(c.snaps)), c.main) {
			if o["parent"] == name {
				if parent == "" {
					delete(o, "parent")
				} else {
					o["parent"] = parent
				}
			}
		}
		delete(c.snaps, name)
		delete(c.main, "lock")
		return nil
	})
}

// markDelete sets the lock and the state of a snapshot that is to go.
func (s *Server) markDelete(w *task.Worker, vmid int, name string, own bool) error {
	ctx := w.Context()
	if own {
		ctx = context.WithoutCancel(ctx)
	}
	release, err := s.holdFile(ctx, w, vmid, true, s.cfg.LockTimeout)
	if err != nil {
		return err
	}
	defer release()
	return s.update(w, vmid, func(c *vmConf) error {
		snap, err := c.snapshot(name)
		if err != nil {
			return err
		}
		if !own {
			if err := c.locked(); err != nil {
				return err
			}
			if c.template() {
				return fail("you can't delete snapshots of a template")
			}
		}
		c.main["lock"], snap["snapstate"] = "snapshot-delete", "delete"
		return nil
	})
}

func (s *Server) editSnapshot(w *task.Worker, vmid int, name string, f func(options)) error {
	return s.update(w, vmid, func(c *vmConf) error {
		snap, err := c.snapshot(name)
		if err != nil {
			return err
		}
		f(snap)
		return nil
	})
}

// dropDiskSnapshot removes a snapshot from one disk.
func (s *Server) dropDiskSnapshot(ctx context.Context, w *task.Worker, vmid int, d drive, name string) error {
	if !w.Alive() {
		return task.ErrKilled
	}
	v, err := s.volume(d.file())
	if err != nil {
		return err
	}
	running := s.cfg.Machines.Status(vmid).Running
	st, err := s.storage(storageID(v.ID))
	if err != nil {
		return err
	}
	if at := slices.Index(v.Snaps, name); st.VolumeChain && at > 0 && at+1 < len(v.Snaps) {
		_, file, _ := strings.Cut(v.ID, ":")
		w.Log("%s: deleting snapshot '%s' by rebasing '%s' on top of '%s'", file, name, v.Snaps[at+1], v.Snaps[at-1])
	}
	e := s.entry(vmid)
	e.backend.Lock()
	defer e.backend.Unlock()
	if running && s.attached(vmid, d) {
		err = s.cfg.Machines.DeleteSnapshot(ctx, vmid, d.slot, name)
	} else {
		err = s.cfg.Disks.DeleteSnapshot(ctx, v.disk(d.slot), name)
	}
	switch recorded := slices.Contains(v.Snaps, name); {
	case err != nil && (recorded || v.Pooled):
		return fail("%w", err)
	case err != nil && running:
		return fail("VM %d qmp command 'blockdev-snapshot-delete-internal-sync' failed - Snapshot with id 'null' and name '%s' does not exist on device 'drive-%s'", vmid, name, d.slot)
	case err != nil:
		return fail("command '/usr/bin/qemu-img snapshot -d %s %s' failed: exit code 1", name, v.Path)
	}
	// one that is not recorded was taken by a worker that died before it could
	v.Snaps = slices.DeleteFunc(slices.Clone(v.Snaps), func(n string) bool { return n == name })
	return s.saveVolume(w, v)
}

// attached reports whether a running VM has the drive.
func (s *Server) attached(vmid int, d drive) bool {
	conf, err := s.conf(vmid)
	if err != nil {
		return false
	}
	now, err := s.vmOpts.parseDrive(d.slot, conf.main[d.slot])
	return err == nil && now.file() == d.file()
}
