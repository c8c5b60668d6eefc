package pve

import (
	"context"
	"fmt"
	"strings"

	"savepoint/testbed/pve/task"
)

// isBase reports whether a volume is a template's, which can be linked to.
func isBase(volid string) bool {
	name := volid[strings.LastIndexAny(volid, ":/")+1:]
	return strings.HasPrefix(name, "base-")
}

// cloneDisks copies or links the source's disks. A running VM's are copied
// from a snapshot that is taken for the purpose.
func (s *Server) cloneDisks(w *task.Worker, j cloneJob, o, main options, running bool) error {
	tag := j.snap
	ctx := w.Context()
	images := s.vmOpts.images(o)
	if running && tag == "" && len(images) > 0 && j.full {
		tag = fmt.Sprintf("%s%d", cloneTag, w.UPID.PID)
		done, err := s.cloneSource(w, j.vmid, images, tag)
		if err != nil {
			return err
		}
		defer done()
	}
	for _, d := range s.vmOpts.drives(o) {
		if d.cloudinit() {
			st, err := s.storage(storageID(d.file()))
			if err != nil {
				return err
			}
			v, err := s.reserve(w, st, j.newid, "cloudinit", "qcow2", 4<<20, "")
			if err != nil {
				return err
			}
			d.props["file"] = v.ID
			main[d.slot] = s.vmOpts.printDrive(d)
			continue
		}
		if !d.image() {
			continue
		}
		if err := w.Step("disk"); err != nil {
			return fail("unable to create image: interrupted by signal")
		}
		src, err := s.volume(d.file())
		if err != nil {
			return err
		}
		v, err := s.cloneDisk(w, ctx, j, d, src, tag)
		if err != nil {
			return err
		}
		d.props["file"], d.props["size"] = v.ID, sizeText(v.Size)
		main[d.slot] = s.vmOpts.printDrive(d)
	}
	return nil
}

func (s *Server) cloneDisk(w *task.Worker, ctx context.Context, j cloneJob, d drive, src volume, tag string) (volume, error) {
	id := storageID(src.ID)
	if j.storage != "" {
		id = j.storage
	}
	st, err := s.storage(id)
	if err != nil {
		return volume{}, err
	}
	if !j.full {
		w.Log("create linked clone of drive %s (%s)", d.slot, src.ID)
		v, err := s.reserve(w, st, j.newid, "disk", src.Shown, src.Size, src.ID)
		if err != nil {
			return v, err
		}
		if err := s.prepareDir(v); err != nil {
			return v, err
		}
		logFormatting(w, v, src.Path)
		if err := s.cfg.Disks.Link(ctx, src.disk(d.slot), v.disk(d.slot)); err != nil {
			return v, fail("unable to create image: %w", err)
		}
		return v, nil
	}
	w.Log("create full clone of drive %s (%s)", d.slot, src.ID)
	format := j.format
	if format == "" {
		format = src.Shown
		if src.Shown == "raw" && st.ID != id {
			format = st.Format
		}
	}
	if strings.HasPrefix(tag, cloneTag) {
		w.Log("drive mirror is starting for drive-%s", d.slot)
		defer w.Log("drive-%s: Done.", d.slot)
	}
	return s.copyDisk(w, ctx, st, j.newid, src.disk(d.slot), tag, format, src.Size)
}

// cloneSource snapshots a running VM to copy from; done removes the snapshot.
func (s *Server) cloneSource(w *task.Worker, vmid int, images []drive, tag string) (done func(), err error) {
	e := s.entry(vmid)
	e.backend.Lock()
	err = s.cfg.Machines.Snapshot(w.Context(), vmid, tag, "")
	e.backend.Unlock()
	if err != nil {
		return nil, fail("drive mirror: %w", err)
	}
	return func() {
		ctx := context.WithoutCancel(w.Context())
		if !w.Alive() {
			return
		}
		e.backend.Lock()
		defer e.backend.Unlock()
		for _, d := range images {
			if err := s.cfg.Machines.DeleteSnapshot(ctx, vmid, d.slot, tag); err != nil {
				w.Warn("remove copy source of %s: %v", d.slot, err)
			}
		}
	}, nil
}
