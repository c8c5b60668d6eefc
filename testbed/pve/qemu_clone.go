package pve

import (
	"context"
	"fmt"
	"slices"
	"time"

	"savepoint/testbed/pve/task"
)

// cloneLock is how long a clone waits for the lock files.
const cloneLock = time.Second

// cloneTag begins the name of the snapshot a running VM's disks are copied
// from. A task's own number follows, so that one which a killed worker left
// is in nobody's way.
const cloneTag = "__clone-"

// cloneJob is one clone to make.
type cloneJob struct {
	vmid, newid       int
	name, description string
	describe          bool
	pool, storage     string
	format, snap      string
	full              bool
	target            *Server // the node that the clone goes to; nil = it stays
}

// postClone is POST …/clone.
func postClone(c *call) (any, error) {
	s := c.s
	j := cloneJob{
		vmid: c.vmid(), newid: c.p.Int("newid", 0), name: c.p.Str("name"), pool: c.p.Str("pool"),
		description: c.p.Str("description"), describe: c.p.Has("description"),
		storage: c.p.Str("storage"), format: c.p.Str("format"), snap: c.p.Str("snapname"),
	}
	if j.pool != "" && s.pool(j.pool) == nil {
		return nil, forbidden(fmt.Sprintf("pool '%s' does not exist", j.pool))
	}
	if t := c.p.Str("target"); t != "" && s.member(t) != s {
		if j.target = s.member(t); j.target == nil {
			return nil, fail("no such cluster node '%s'", t)
		}
	}
	if j.storage != "" {
		st, err := s.cloneStorage(j)
		if err != nil {
			return nil, err
		}
		if err := c.need("/storage/"+st.ID, "Datastore.AllocateSpace"); err != nil {
			return nil, err
		}
	}
	conf, err := s.conf(j.vmid)
	if err != nil {
		return nil, fail("unable to find configuration file for VM %d on node '%s'", j.vmid, s.cfg.Node)
	}
	if err := conf.locked(); err != nil {
		return nil, err
	}
	j.full = !conf.template()
	if c.p.Has("full") {
		j.full = c.p.Bool("full")
	}
	if err := s.checkClone(c, conf, j); err != nil {
		return nil, err
	}
	return c.start("qmclone", j.vmid, func(w *task.Worker) error {
		running := s.cfg.Machines.Status(j.vmid).Running
		release, err := s.holdFile(w.Context(), w, j.vmid, running, min(cloneLock, s.cfg.LockTimeout))
		if err != nil {
			return err
		}
		defer release()
		if err := s.clone(w, j, running); err != nil {
			return fail("clone failed: %w", err)
		}
		return nil
	})
}

// cloneStorage is the storage that a clone is to go to; for one on another node
// it must be the same there.
func (s *Server) cloneStorage(j cloneJob) (Storage, error) {
	st, err := s.storage(j.storage)
	if err != nil || j.target == nil {
		return st, err
	}
	if st, err = j.target.storage(j.storage); err == nil && !st.Shared {
		err = fail("can't clone to non-shared storage '%s'", st.ID)
	}
	return st, err
}

// checkClone says at once why a clone cannot be made.
func (s *Server) checkClone(c *call, conf *vmConf, j cloneJob) error {
	o := conf.main
	var err error
	if j.snap != "" {
		if o, err = conf.snapshot(j.snap); err != nil {
			return err
		}
	}
	if !j.full {
		switch {
		case j.storage != "":
			return fail("parameter 'storage' not allowed for linked clones")
		case j.format != "":
			return fail("parameter 'format' not allowed for linked clones")
		}
	}
	if s.exists(j.newid) {
		return fail("unable to create VM %d: config file already exists", j.newid)
	}
	for name, value := range o {
		if bus, n := splitName(name); bus == "net" && n >= 0 {
			if err := c.mayBridge(name, value); err != nil {
				return err
			}
		}
	}
	of := ""
	if j.snap != "" {
		of = "a snapshot of "
	}
	for _, d := range s.vmOpts.images(o) {
		v, err := s.volume(d.file())
		if err != nil {
			return err
		}
		st, err := s.storage(storageID(v.ID))
		if err != nil {
			return err
		}
		if err := c.need("/storage/"+st.ID, "Datastore.AllocateSpace"); err != nil && j.storage == "" {
			return err
		}
		switch {
		case !j.full && (j.snap != "" || !isBase(v.ID)):
			return fail("Linked clone feature is not supported for %s'%s' (%s)", of, v.ID, d.slot)
		case j.full && j.snap != "" && !st.copiesSnapshots(v):
			return fail("Full clone feature is not supported for %s'%s' (%s)", of, v.ID, d.slot)
		}
	}
	if j.target != nil && s.usesLocal(o) {
		return fail("can't clone VM to node '%s' (VM uses local storage)", j.target.cfg.Node)
	}
	return nil
}

// usesLocal reports whether a drive is on a storage that other nodes do not see.
func (s *Server) usesLocal(o options) bool {
	return slices.ContainsFunc(s.vmOpts.drives(o), func(d drive) bool {
		st, err := s.storage(storageID(d.file()))
		return err == nil && !st.Shared
	})
}

// clone makes the new VM, and none when anything goes wrong.
func (s *Server) clone(w *task.Worker, j cloneJob, running bool) error {
	src, err := s.conf(j.vmid)
	if err != nil {
		return err
	}
	o := src.main
	if j.snap != "" {
		if o, err = src.snapshot(j.snap); err != nil {
			return err
		}
	}
	releaseNew, err := s.holdFile(w.Context(), w, j.newid, true, min(cloneLock, s.cfg.LockTimeout))
	if err != nil {
		return err
	}
	defer releaseNew()
	conf := newVMConf()
	conf.main["lock"] = "clone"
	taken := fail("unable to create VM %d: config file already exists", j.newid)
	if err := s.create(w, j.newid, conf, taken); err != nil {
		return err
	}
	if s.cfg.major() >= "9" {
		w.Log("creating a clone of VM %d with ID %d", j.vmid, j.newid)
	}
	before := s.volumesOf("", j.newid)
	err = s.cloneInto(w, j, o, running)
	if err != nil {
		ctx := context.WithoutCancel(w.Context())
		errs := []error{err}
		for _, v := range s.newVolumes(j.newid, before) {
			errs = append(errs, s.free(ctx, w, v.ID))
		}
		return joinCleanup(append(errs, s.forget(w, j.newid))...)
	}
	if j.target != nil {
		if err := s.moveConf(w, j.newid, j.target); err != nil {
			return err
		}
	}
	if j.pool != "" {
		return s.addToPool(j.pool, j.newid)
	}
	return nil
}

// cloneInto fills the new VM's configuration.
func (s *Server) cloneInto(w *task.Worker, j cloneJob, o options, running bool) error {
	if err := w.Step("created"); err != nil {
		return err
	}
	main := options{}
	for name, value := range o {
		bus, n := splitName(name)
		switch {
		case bus == "unused" && n >= 0, slices.Contains(notCloned, name):
		case bus == "net" && n >= 0:
			p, err := s.vmOpts.net.Parse(name, value)
			if err != nil {
				return fail("%w", err)
			}
			p["macaddr"] = newMAC()
			main[name] = s.vmOpts.net.Print(p)
		default:
			main[name] = value
		}
	}
	if err := s.cloneDisks(w, j, o, main, running); err != nil {
		return err
	}
	if j.name != "" {
		main["name"] = j.name
	} else {
		base := o["name"]
		if base == "" {
			base = fmt.Sprintf("VM-%d", j.vmid)
			main["name"] = "Copy-of-" + base
		} else {
			main["name"] = "Copy-of-VM-" + base
		}
	}
	if j.describe {
		main["description"] = j.description
	}
	main["smbios1"] = "uuid=" + newUUID()
	if main["vmgenid"] != "" {
		main["vmgenid"] = newUUID()
	}
	if err := w.Step("finish"); err != nil {
		return err
	}
	wall := s.firewall(vmWall(j.vmid))
	err := s.changeFirewall(vmWall(j.newid), func(f *firewall) error {
		if !w.Alive() {
			return task.ErrKilled
		}
		*f = wall
		return nil
	})
	if err != nil {
		return err
	}
	return s.update(w, j.newid, func(c *vmConf) error { c.main = main; return nil })
}

// notCloned are options that belong to the source alone.
var notCloned = []string{
	"template", "parent", "vmstate", "lock", "snaptime", "snapstate", "runningmachine", "runningcpu", "running-nets-host-mtu", "protection",
}
