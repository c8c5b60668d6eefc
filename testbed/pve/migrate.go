package pve

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"savepoint/testbed/pve/schema"
	"savepoint/testbed/pve/task"
)

// moveConf gives a VM's configuration to another node. It is a rename, so that
// a crash leaves it on one of the two.
func (s *Server) moveConf(w *task.Worker, vmid int, to *Server) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.vms[vmid]
	switch {
	case !w.Alive():
		return task.ErrKilled
	case !s.holds(e):
		return s.noConf(vmid)
	case !s.quorateLocked():
		return fail("Failed to move config to node '%s' - rename failed: Permission denied", to.cfg.Node)
	}
	if err := os.Rename(s.confPath(vmid), to.confPath(vmid)); err != nil {
		return fail("Failed to move config to node '%s' - rename failed: %w", to.cfg.Node, err)
	}
	e.node, e.started = to, time.Time{}
	return nil
}

// migration is one move of a stopped VM to another node.
type migration struct {
	vmid    int
	to      *Server
	mapping func(storage string) string // where what is on a local storage goes
}

// storageMap reads "b" (everything to b), "1" (each to its own) and "a:b,…".
func storageMap(text string) (func(string) string, error) {
	one, byName := "", map[string]string{}
	for _, pair := range schema.SplitList(text) {
		from, to, two := strings.Cut(pair, ":")
		switch {
		case two && byName[from] != "":
			return nil, badParam("targetstorage", "duplicate mapping for '%s'", from)
		case two:
			byName[from] = to
		case pair != "1":
			one = pair
		}
	}
	return func(id string) string {
		if to := byName[id]; to != "" {
			return to
		}
		if one != "" {
			return one
		}
		return id
	}, nil
}

// postMigrate is POST …/migrate.
func postMigrate(c *call) (any, error) {
	s, vmid, target := c.s, c.vmid(), c.p.Str("target")
	for _, name := range []string{"force", "migration_type", "migration_network"} {
		if c.p.Has(name) && !c.who.root() {
			return nil, badParam(name, "Only root may use this option.")
		}
	}
	m := migration{vmid: vmid, to: s.member(target)}
	switch m.to {
	case s:
		return nil, badParam("target", "target is local node.")
	case nil:
		return nil, fail("no such cluster node '%s'", target)
	}
	conf, err := s.conf(vmid)
	if err != nil {
		return nil, err
	}
	if err := conf.locked(); err != nil {
		return nil, err
	}
	if s.cfg.Machines.Status(vmid).Running {
		if !c.p.Bool("online") {
			return nil, fail("can't migrate running VM without --online")
		}
		return nil, fail("migration of running VMs is not supported here; stop VM %d first", vmid)
	}
	if m.mapping, err = storageMap(c.p.Str("targetstorage")); err != nil {
		return nil, err
	}
	for _, id := range s.storagesOf(conf) {
		st, err := s.storage(id)
		if err != nil {
			return nil, err
		}
		if !st.Shared {
			id = m.mapping(id)
			if err := c.needStorageOf(m.to, id); err != nil {
				return nil, err
			}
		}
		if _, err := m.to.storage(id); err != nil {
			return nil, err
		}
	}
	return c.start("qmigrate", vmid, func(w *task.Worker) error {
		return s.withMigration(w, vmid, func() error { return s.migrate(w, m) })
	})
}

// needStorageOf refuses a mapping to a storage that the caller may not fill.
func (c *call) needStorageOf(m *Server, id string) error {
	if !c.p.Has("targetstorage") {
		return nil
	}
	return c.need("/storage/"+id, "Datastore.AllocateSpace")
}

// migrate moves a stopped VM: its local disks are copied, then its
// configuration goes, then the old disks are removed.
func (s *Server) migrate(w *task.Worker, m migration) error {
	begin := s.cfg.Now()
	w.Log("starting migration of VM %d to node '%s' (127.0.0.1)", m.vmid, m.to.cfg.Node)
	aborted := func(err error) error {
		w.Log("ERROR: migration aborted (duration %s): %v", clock(s.cfg.Now().Sub(begin)), err)
		return fail("migration aborted")
	}
	if !m.to.up() {
		w.Log("ERROR: migration aborted (duration %s): Can't connect to destination address using public key", clock(s.cfg.Now().Sub(begin)))
		return fail("migration aborted")
	}
	err := s.update(w, m.vmid, func(c *vmConf) error {
		if err := c.locked(); err != nil {
			return err
		}
		c.main["lock"] = "migrate"
		return nil
	})
	if err != nil {
		return aborted(err)
	}
	if err := s.migrateLocked(w, m); err != nil {
		if !w.Alive() {
			return task.ErrKilled
		}
		if uerr := s.owner(m.vmid).unlockMigrated(w, m.vmid); uerr != nil {
			w.Log("ERROR: %v", uerr)
		}
		return aborted(err)
	}
	w.Log("migration finished successfully (duration %s)", clock(s.cfg.Now().Sub(begin)))
	return nil
}

func (s *Server) unlockMigrated(w *task.Worker, vmid int) error {
	return s.update(w, vmid, func(c *vmConf) error { delete(c.main, "lock"); return nil })
}

// migrateLocked does the work behind the lock. What it copied goes again when
// the configuration does not follow.
func (s *Server) migrateLocked(w *task.Worker, m migration) (err error) {
	conf, err := s.conf(m.vmid)
	if err != nil {
		return err
	}
	disks, stuck := s.localDisks(m.vmid, conf)
	if len(stuck) > 0 {
		for _, text := range stuck {
			w.Log("%s", text)
		}
		return fail("Problem found while scanning volumes - can't migrate VM - check log")
	}
	renamed := map[string]string{}
	defer func() {
		if err == nil {
			return
		}
		for _, id := range renamed {
			if ferr := m.to.free(context.WithoutCancel(w.Context()), w, id); ferr != nil && w.Alive() {
				w.Warn("remove copy %s: %v", id, ferr)
			}
		}
	}()
	for _, d := range disks {
		where := "(unused)"
		if d.slot != "" {
			where = "(attached)"
		}
		w.Log("found local disk '%s' %s", d.ID, where)
	}
	for _, d := range disks {
		if err := w.Step("disk"); err != nil {
			return err
		}
		v, err := s.copyTo(w, m, d)
		if v.ID != "" {
			renamed[d.ID] = v.ID
		}
		if err != nil {
			return err
		}
		w.Log("volume '%s' is '%s' on the target", d.ID, v.ID)
	}
	if err := w.Step("move"); err != nil {
		return err
	}
	if err := s.renameVolumes(w, m.vmid, renamed); err != nil {
		return err
	}
	if err := s.moveConf(w, m.vmid, m.to); err != nil {
		return err
	}
	if err := m.to.unlockMigrated(w, m.vmid); err != nil {
		w.Log("ERROR: %v", err)
	}
	for _, d := range disks {
		if ferr := s.free(context.WithoutCancel(w.Context()), w, d.ID); ferr != nil {
			w.Warn("%v", ferr)
		}
	}
	return nil
}

// clock writes a duration as task logs have it.
func clock(d time.Duration) string {
	n := int(d / time.Second)
	return fmt.Sprintf("%02d:%02d:%02d", n/3600, n/60%60, n%60)
}

// readMigrate is GET …/migrate: where the VM can go.
func readMigrate(c *call) (any, error) {
	s, vmid := c.s, c.vmid()
	conf, err := s.conf(vmid)
	if err != nil {
		return nil, err
	}
	running := s.cfg.Machines.Status(vmid).Running
	out := map[string]any{
		"running": flag(running), "local_resources": []string{}, "mapped-resources": []string{}, "mapped-resource-info": map[string]any{},
	}
	disks := []map[string]any{}
	locals, _ := s.localDisks(vmid, conf)
	for _, d := range locals {
		disks = append(disks, map[string]any{"volid": d.ID, "size": d.Size, "cdrom": flag(d.cloudinit), "is_unused": flag(d.slot == "")})
	}
	out["local_disks"] = disks
	if running {
		return out, nil
	}
	allowed, not := []string{}, map[string]any{}
	for _, m := range s.members {
		if m == s || c.p.Has("target") && c.p.Str("target") != m.cfg.Node {
			continue
		}
		var missing []string
		for _, id := range s.storagesOf(conf) {
			if _, err := m.storage(id); err != nil {
				missing = append(missing, id)
			}
		}
		if len(missing) > 0 {
			not[m.cfg.Node] = map[string]any{"unavailable_storages": missing}
		} else {
			allowed = append(allowed, m.cfg.Node)
		}
	}
	out["allowed_nodes"], out["not_allowed_nodes"] = allowed, not
	return out, nil
}
