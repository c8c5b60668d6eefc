package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"savepoint/proxmox"
)

// store is one storage on the nodes that sandboxes may be on.
type store struct {
	proxmox.Storage
	nodes []string
	free  map[string]int64
	uses  []string // what sandboxes have on it
}

// stores collects the storages by id: those that sandboxes use, and those that
// they could.
func (d *doctor) stores() []*store {
	var out []*store
	for _, f := range d.usableFacts() {
		for _, s := range f.Storages.Value {
			i := slices.IndexFunc(out, func(o *store) bool { return o.ID == s.ID })
			if i < 0 {
				i = len(out)
				out = append(out, &store{Storage: s, free: map[string]int64{}, uses: d.usesOf(s.ID)})
			}
			o := out[i]
			o.nodes = append(o.nodes, f.Node)
			o.free[f.Node] = s.Free
			o.Free, o.Total, o.Active = min(o.Free, s.Free), min(o.Total, s.Total), o.Active && s.Active
		}
	}
	return slices.DeleteFunc(out, func(o *store) bool { return len(o.uses) == 0 && !slices.Contains(o.Content, "images") })
}

// usesState is what a storage needs no snapshots for.
const usesState = "saved memory"

// usesOf says what sandboxes have on a storage.
func (d *doctor) usesOf(id string) []string {
	var out []string
	for _, site := range d.sites {
		for _, t := range site.Templates {
			if slices.Contains(t.Storages, id) {
				out = oneMore(out, "the template's disks")
			}
		}
	}
	if id == d.cfg.Cluster.Storage && d.cfg.Sandbox.FullClone {
		out = append(out, "full clones")
	}
	if id == d.cfg.Workspace.Storage {
		out = append(out, "workspace volumes")
	}
	if id == d.cfg.Cluster.StateStorage {
		out = append(out, usesState)
	}
	return out
}

// storageOn is a storage as a node sees it.
func (d *doctor) storageOn(node, id string) (proxmox.Storage, bool) {
	for _, f := range d.facts {
		for _, s := range f.Storages.Value {
			if f.Node == node && s.ID == id {
				return s, true
			}
		}
	}
	return proxmox.Storage{}, false
}

// storages says what each storage can, and whether there is room on it.
func (d *doctor) storages(context.Context) {
	const check = "storage"
	for _, f := range d.usableFacts() {
		if f.Storages.Err != nil {
			d.failed(check, levelWarning, f.Storages.Err)
		}
	}
	all := d.stores()
	for _, id := range intended(d.cfg).Storages {
		d.wanted(id, all)
	}
	for _, site := range d.sites {
		for _, t := range site.Templates {
			if d.usable(site.Name) {
				for _, id := range t.Storages {
					d.wanted(id, all)
				}
			}
		}
	}
	for _, s := range all {
		d.storage(s)
	}
}

// wanted makes a problem of a storage that is named and not to be seen, once.
func (d *doctor) wanted(id string, all []*store) {
	seen := slices.ContainsFunc(all, func(s *store) bool { return s.ID == id })
	detail := fmt.Sprintf("storage %q is not to be seen on any node that sandboxes may be on", id)
	if id == "" || seen || slices.ContainsFunc(d.findings, func(f finding) bool { return f.Detail == detail }) {
		return
	}
	d.add("storage", levelProblem, detail, d.grant("/storage/"+id, "SavepointStorage", []string{"Datastore.AllocateSpace", "Datastore.Audit"}))
}

func (d *doctor) storage(s *store) {
	const check = "storage"
	can := s.Snapshots()
	parts := []string{can.Note}
	if can.LatestOnly {
		parts = append(parts, "only the newest snapshot can be restored")
	}
	if can.Possible && s.LinkedClones() {
		parts = append(parts, "linked clones")
	}
	if s.Thick() {
		parts = append(parts, "volumes take their whole size")
	} else {
		parts = append(parts, "volumes take what is written")
	}
	detail := fmt.Sprintf("%s (%s) on %s: %s; %s", s.ID, s.Type, strings.Join(s.nodes, ", "), strings.Join(parts, "; "), s.room())
	if len(s.uses) > 0 {
		detail += "; it holds " + strings.Join(s.uses, " and ")
	}
	level, mend := d.judge(s, can)
	d.add(check, level, detail, mend)
}

// judge says how bad a storage is for what sandboxes have on it.
func (d *doctor) judge(s *store, can proxmox.SnapshotSupport) (level, mend string) {
	need := d.oneSandbox()
	switch {
	case len(s.uses) == 0:
		return levelOK, ""
	case !s.Active:
		return levelProblem, "it is not active: see pvesm status on its nodes"
	case !slices.Contains(s.Content, "images"):
		return levelProblem, s.AddContent("images")
	case !can.Possible && !slices.Equal(s.uses, []string{usesState}):
		return levelProblem, "move the template to a ZFS, LVM-thin, RBD or qcow2 storage"
	case s.Free < need:
		return levelProblem, fmt.Sprintf("one sandbox with its saved memory takes up to %s: make room, or destroy sandboxes", bytesText(need))
	case s.Type == "zfspool" && !s.Sparse:
		return levelWarning, "a snapshot reserves the whole size once more: pvesm set " + s.ID + " --sparse 1"
	case s.Free < s.Total/10:
		return levelWarning, "less than a tenth is free: make room, or destroy sandboxes"
	}
	return levelOK, ""
}

// oneSandbox is what a sandbox takes at once of a storage: a state of its
// memory, which is allocated for twice of it and 500 MiB, and some writes.
func (d *doctor) oneSandbox() int64 {
	memory := int64(512 << 20)
	for _, site := range d.sites {
		for _, t := range site.Templates {
			memory = max(memory, t.Memory)
		}
	}
	return 2*memory + 500<<20 + 1<<30
}

// room says what is free, for each node where that differs.
func (s *store) room() string {
	var by perNode
	for _, n := range s.nodes {
		by.add(n, bytesText(s.free[n]))
	}
	if len(by.order) == 1 {
		return fmt.Sprintf("%s of %s free", by.order[0], bytesText(s.Total))
	}
	var parts []string
	by.each(func(nodes, free string) { parts = append(parts, free+" on "+nodes) })
	return "free: " + strings.Join(parts, ", ")
}

// bytesText is a size for a person.
func bytesText(n int64) string {
	if n < 10<<30 {
		return fmt.Sprintf("%d MiB", n>>20)
	}
	return fmt.Sprintf("%d GiB", n>>30)
}
