package pve

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// prepared fills in a storage's defaults.
func (st Storage) prepared(dir, major string) (Storage, error) {
	if st.Type == "" {
		st.Type = "dir"
	}
	if st.Path == "" {
		st.Path = filepath.Join(dir, "storage", st.ID)
	}
	if st.Format == "" {
		st.Format = "qcow2"
	}
	switch {
	case st.Type != "dir" && st.Type != "zfspool":
		return st, fmt.Errorf("storage %s: type %q: use dir or zfspool", st.ID, st.Type)
	case !filepath.IsAbs(st.Path):
		return st, fmt.Errorf("storage %s: path %q is not absolute", st.ID, st.Path)
	case st.VolumeChain && major < "9":
		return st, fmt.Errorf("storage %s: volume chains need version 9", st.ID)
	}
	if len(st.Content) == 0 {
		st.Content = []string{"images", "rootdir"}
		if st.Type == "dir" {
			st.Content = []string{"images", "iso", "import", "snippets", "vztmpl", "backup", "rootdir"}
		}
	}
	return st, nil
}

// has reports whether the storage may hold this kind of content.
func (st Storage) has(content string) bool { return slices.Contains(st.Content, content) }

// latestOnly reports whether only the newest snapshot can be restored.
func (st Storage) latestOnly() bool { return st.Type == "zfspool" || st.VolumeChain }

// snapshots reports whether a volume of the storage can be snapshotted.
func (st Storage) snapshots(v volume) bool { return st.Type == "zfspool" || v.Shown == "qcow2" }

// copiesSnapshots reports whether a volume can be copied from one of its snapshots.
func (st Storage) copiesSnapshots(v volume) bool { return st.Type != "zfspool" && v.Shown == "qcow2" }

// place says where an image of this name goes.
func (st Storage) place(vmid int, name, format, base string) volume {
	v := volume{VMID: vmid, Format: "qcow2", Shown: "qcow2"}
	if format == "raw" || strings.Contains(name, "-state-") {
		v.Format, v.Shown = "raw", "raw"
	}
	if strings.HasSuffix(name, "-cloudinit") {
		v.Format = "raw" // whatever it is called, it is an ISO 9660 image
	}
	if st.Type == "zfspool" {
		v.Shown = "raw"
		if strings.Contains(name, "-disk-") {
			v.Format = "qcow2" // what a ZFS volume can, a qcow2 file can too
		}
		v.Path = filepath.Join(st.Path, name)
		v.ID = st.ID + ":" + prefixBase(base, 1) + name
		return v
	}
	file := name + "." + v.Shown
	v.Path = filepath.Join(st.Path, "images", fmt.Sprint(vmid), file)
	v.ID = fmt.Sprintf("%s:%s%d/%s", st.ID, prefixBase(base, 2), vmid, file)
	return v
}

// prefixBase is how the id of a linked volume begins: with the last parts of
// its base's own name.
func prefixBase(base string, parts int) string {
	if base == "" {
		return ""
	}
	_, name, _ := strings.Cut(base, ":")
	all := strings.Split(name, "/")
	return strings.Join(all[max(0, len(all)-parts):], "/") + "/"
}

// storage returns a storage by id.
func (s *Server) storage(id string) (Storage, error) {
	for _, st := range s.storages {
		if st.ID == id {
			return st, nil
		}
	}
	return Storage{}, fail("storage '%s' does not exist", id)
}

// usage is how much the storage's file system holds.
func (st Storage) usage() (total, used, avail int64) {
	path := st.Path
	for {
		var fs syscall.Statfs_t
		err := syscall.Statfs(path, &fs)
		if err == nil {
			size := int64(fs.Bsize)
			return int64(fs.Blocks) * size, int64(fs.Blocks-fs.Bfree) * size, int64(fs.Bavail) * size
		}
		parent := filepath.Dir(path)
		if parent == path {
			return 0, 0, 0
		}
		path = parent
	}
}
