package pve

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"savepoint/testbed/pve/task"
)

// volume is one disk image of a storage. The record is a file of its own,
// written before the image is made and removed after the image is: a crash
// leaves at worst a record without an image, which is removed like any other.
type volume struct {
	ID      string   // "local:100/vm-100-disk-0.qcow2"
	VMID    int      // owner
	Path    string   // of the image file; it stays when the volume is renamed
	Format  string   // of the image file: "qcow2" or "raw"
	Shown   string   // the format clients see
	Pooled  bool     // it is a volume of a pool, see Storage.Pool
	Size    int64    // bytes
	Base    string   // id of the volume it is linked to
	Snaps   []string // oldest first
	Created int64    // Unix seconds
}

// storageID is the part of a volume's id before the colon.
func storageID(volid string) string {
	id, _, _ := strings.Cut(volid, ":")
	return id
}

func (v volume) disk(slot string) Disk { return Disk{Slot: slot, Path: v.Path, Format: v.Format} }

// records is where the records of a storage's volumes are: those of shared
// storages are the cluster's.
func (s *Server) records(storage string) (list map[string]volume, dir string) {
	for _, st := range s.storages {
		if st.ID == storage && st.Shared {
			return s.shared, filepath.Join(s.root, "volumes")
		}
	}
	return s.volumes, filepath.Join(s.cfg.Dir, "volumes")
}

func recordPath(dir, volid string) string { return filepath.Join(dir, url.PathEscape(volid)+".json") }

// allVolumes are the records of all volumes that the node can reach. s.mu must be held.
func (s *Server) allVolumes() iter.Seq[volume] {
	return func(yield func(volume) bool) {
		for _, list := range []map[string]volume{s.volumes, s.shared} {
			for _, v := range list {
				if !yield(v) {
					return
				}
			}
		}
	}
}

func (s *Server) loadVolumes() error {
	dir := filepath.Join(s.cfg.Dir, "volumes")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("open volumes: %w", err)
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil {
		return fmt.Errorf("open volumes: %w", err)
	}
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			return fmt.Errorf("read volume: %w", err)
		}
		var v volume
		if err := json.Unmarshal(b, &v); err != nil {
			return fmt.Errorf("read volume %s: %w", f, err)
		}
		list, _ := s.records(storageID(v.ID))
		list[v.ID] = v
	}
	return nil
}

// volume returns a volume's record.
func (s *Server) volume(volid string) (volume, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	list, _ := s.records(storageID(volid))
	if v, ok := list[volid]; ok {
		return v, nil
	}
	return volume{}, fail("volume '%s' does not exist", volid)
}

// volumesOf lists the volumes that a storage holds for a VM, sorted by id;
// "" and 0 stand for all.
func (s *Server) volumesOf(storage string, vmid int) []volume {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []volume
	for v := range s.allVolumes() {
		if (storage == "" || storageID(v.ID) == storage) && (vmid == 0 || v.VMID == vmid) {
			out = append(out, v)
		}
	}
	slices.SortFunc(out, func(a, b volume) int { return strings.Compare(a.ID, b.ID) })
	return out
}

// saveVolume writes a record.
func (s *Server) saveVolume(w *task.Worker, v volume) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.saveVolumeLocked(w, v)
}

func (s *Server) saveVolumeLocked(w *task.Worker, v volume) error {
	if w != nil && !w.Alive() {
		return task.ErrKilled
	}
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("write volume %s: %w", v.ID, err)
	}
	list, dir := s.records(storageID(v.ID))
	if err := writeFile(recordPath(dir, v.ID), b, 0o600); err != nil {
		return err
	}
	list[v.ID] = v
	return nil
}

// dropVolume removes a record.
func (s *Server) dropVolume(volid string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	list, dir := s.records(storageID(volid))
	if err := os.Remove(recordPath(dir, volid)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove volume %s: %w", volid, err)
	}
	delete(list, volid)
	return nil
}

// reserve makes the record of a new image of the VM. kind is "disk" for a
// numbered one, else the rest of its name ("cloudinit", "state-before").
func (s *Server) reserve(w *task.Worker, st Storage, vmid int, kind, format string, size int64, base string) (volume, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for n := 0; ; n++ {
		name := fmt.Sprintf("vm-%d-%s", vmid, kind)
		if kind == "disk" {
			name = fmt.Sprintf("%s-%d", name, n)
		}
		v := st.place(vmid, name, format, base)
		list, _ := s.records(st.ID)
		if _, taken := list[v.ID]; taken || s.pathTaken(v.Path) {
			if kind == "disk" {
				continue
			}
			return volume{}, fail("unable to create image: disk image '%s' already exists", v.Path)
		}
		v.Size, v.Base, v.Created = size, base, s.cfg.Now().Unix()
		return v, s.saveVolumeLocked(w, v)
	}
}

// pathTaken reports whether a volume's image is this file, which happens when
// the volume was renamed since.
func (s *Server) pathTaken(path string) bool {
	for v := range s.allVolumes() {
		if v.Path == path {
			return true
		}
	}
	return false
}

// children lists the volumes linked to one.
func (s *Server) children(volid string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []string
	for v := range s.allVolumes() {
		if v.Base == volid {
			out = append(out, v.ID)
		}
	}
	return out
}

// allocate makes an empty image.
func (s *Server) allocate(ctx context.Context, w *task.Worker, st Storage, vmid int, kind, format string, size int64) (volume, error) {
	v, err := s.reserve(w, st, vmid, kind, format, size, "")
	if err != nil {
		return v, err
	}
	if err := s.prepareDir(v); err != nil {
		return v, err
	}
	logFormatting(w, v, "")
	if err := s.cfg.Disks.Create(ctx, v.disk(""), size); err != nil {
		return v, joinCleanup(fail("unable to create image: %w", err), s.dropVolume(v.ID))
	}
	return v, nil
}

// prepareDir makes the directory of a volume's image.
func (s *Server) prepareDir(v volume) error {
	if v.Pooled {
		return nil // the pool makes it
	}
	if err := os.MkdirAll(filepath.Dir(v.Path), 0o700); err != nil {
		return fmt.Errorf("unable to create image: %w", err)
	}
	return nil
}

// logFormatting tells in the task's log that an image is made.
func logFormatting(w *task.Worker, v volume, backing string) {
	switch {
	case w == nil || v.Pooled:
	case v.Shown == "qcow2" && backing != "":
		w.Log("Formatting '%s', fmt=qcow2 size=%d backing_file=%s backing_fmt=qcow2", v.Path, v.Size, backing)
	default:
		w.Log("Formatting '%s', fmt=%s size=%d", v.Path, v.Shown, v.Size)
	}
}

// free removes a volume with its image; no error when there is none.
func (s *Server) free(ctx context.Context, w *task.Worker, volid string) error {
	if w != nil && !w.Alive() {
		return task.ErrKilled
	}
	v, err := s.volume(volid)
	if err != nil {
		return nil
	}
	if len(s.children(volid)) > 0 {
		return fail("base volume '%s' is still in use by linked cloned", volid)
	}
	if err := s.cfg.Disks.Remove(ctx, v.disk("")); err != nil {
		return fail("unable to remove volume '%s': %w", volid, err)
	}
	return s.dropVolume(volid)
}
