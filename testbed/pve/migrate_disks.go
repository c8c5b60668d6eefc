package pve

import (
	"fmt"
	"slices"
	"strings"

	"savepoint/testbed/pve/task"
)

// localDisk is one image of a VM that the other node does not see.
type localDisk struct {
	volume
	slot      string // "" = no drive has it
	cloudinit bool
}

// storagesOf are the storages that a VM's configuration names, sorted.
func (s *Server) storagesOf(conf *vmConf) []string {
	var out []string
	for _, d := range s.vmOpts.drives(conf.main) {
		if d.image() || d.cloudinit() {
			out = append(out, storageID(d.file()))
		}
	}
	for _, v := range s.volumesOf("", 0) {
		if s.vmOpts.uses(conf, v.ID) {
			out = append(out, storageID(v.ID))
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// localDisks are the images of a VM that must be copied to go to another node.
// stuck tells what cannot go.
func (s *Server) localDisks(vmid int, conf *vmConf) (disks []localDisk, stuck []string) {
	bySlot := map[string]drive{}
	for _, d := range s.vmOpts.drives(conf.main) {
		bySlot[d.file()] = d
		if st, err := s.storage(storageID(d.file())); d.cdrom() && !d.cloudinit() && err == nil && !st.Shared {
			stuck = append(stuck, fmt.Sprintf("can't migrate local disk '%s': local cdrom image", d.file()))
		}
	}
	for _, v := range s.volumesOf("", vmid) {
		st, err := s.storage(storageID(v.ID))
		if err != nil || st.Shared {
			continue
		}
		d, attached := bySlot[v.ID]
		l := localDisk{volume: v, cloudinit: attached && d.cloudinit()}
		if attached {
			l.slot = d.slot
		}
		_, base, _ := strings.Cut(v.Base, ":")
		switch {
		case v.Base != "":
			stuck = append(stuck, fmt.Sprintf("can't migrate '%s' as it's a clone of '%s'", v.ID, base[strings.LastIndexByte(base, '/')+1:]))
		case len(s.children(v.ID)) > 0:
			stuck = append(stuck, fmt.Sprintf("can't migrate '%s' - base volume is still in use by linked clones", v.ID))
		case len(v.Snaps) > 0 || strings.Contains(v.ID, "-state-"):
			stuck = append(stuck, fmt.Sprintf("can't migrate local disk '%s': snapshots of local disks are not copied here", v.ID))
		}
		disks = append(disks, l)
	}
	return disks, stuck
}

// copyTo copies one disk to the other node. A cloud-init drive is made anew
// when the VM starts.
func (s *Server) copyTo(w *task.Worker, m migration, d localDisk) (volume, error) {
	if !m.to.up() {
		return volume{}, fail("storage migration for '%s' to storage '%s' failed - command 'ssh' failed: exit code 255", d.ID, m.mapping(storageID(d.ID)))
	}
	st, err := m.to.storage(m.mapping(storageID(d.ID)))
	if err != nil {
		return volume{}, err
	}
	if d.cloudinit {
		return m.to.reserve(w, st, m.vmid, "cloudinit", d.Shown, d.Size, "")
	}
	v, err := m.to.copyDisk(w, w.Context(), st, m.vmid, d.disk(d.slot), "", d.Shown, d.Size)
	if err != nil || !isBase(d.ID) {
		return v, err
	}
	old := v.ID
	if v, err = m.to.makeBase(w, v); err != nil {
		return v, err
	}
	return v, m.to.dropVolume(old)
}

// renameVolumes writes the names that the disks have on the other node.
func (s *Server) renameVolumes(w *task.Worker, vmid int, names map[string]string) error {
	return s.update(w, vmid, func(c *vmConf) error {
		for _, o := range append([]options{c.main, c.pending}, sections(c)...) {
			for key, value := range o {
				file, rest, _ := strings.Cut(value, ",")
				if to := names[file]; to != "" && to != file {
					o[key] = strings.TrimSuffix(to+","+rest, ",")
				}
			}
		}
		return nil
	})
}

func sections(c *vmConf) []options {
	var out []options
	for _, o := range c.snaps {
		out = append(out, o)
	}
	return out
}
