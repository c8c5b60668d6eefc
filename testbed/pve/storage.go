package pve

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// on reports whether a node has the storage.
func (st Storage) on(node string) bool { return len(st.Nodes) == 0 || slices.Contains(st.Nodes, node) }

// prepared fills in a storage's defaults on a node.
func (st Storage) prepared(c Config) (Storage, error) {
	major := c.major()
	if st.Type == "" {
		st.Type = "dir"
	}
	for _, node := range st.Nodes {
		if !slices.Contains(c.Nodes, node) {
			return st, fmt.Errorf("storage %s: there is no node %s", st.ID, node)
		}
	}
	switch own := strings.Contains(st.Path, NodeMark); {
	case st.Path == "" && st.Shared && c.Node != c.Nodes[0]:
		st.Path = filepath.Join(c.Dir, "..", "..", "storage", st.ID)
	case st.Path == "":
		st.Path = filepath.Join(c.Dir, "storage", st.ID)
	case st.Shared && own:
		return st, fmt.Errorf("storage %s: path %q: a shared storage has one path on all nodes, without %s", st.ID, st.Path, NodeMark)
	case !st.Shared && !own && len(c.Nodes) > 1:
		return st, fmt.Errorf("storage %s: path %q: the storage is not shared, so put %s into it", st.ID, st.Path, NodeMark)
	}
	st.Path = strings.ReplaceAll(st.Path, NodeMark, c.Node)
	if st.Pool != "" {
		if _, ok := c.Disks.(PoolDisks); !ok || st.Type != "zfspool" || strings.Contains(st.Path, NodeMark) {
			return st, fmt.Errorf("storage %s: pool %q: it needs the type zfspool, a path and disks that know pools", st.ID, st.Pool)
		}
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
		v.ID = st.ID + ":" + prefixBase(base, 1) + name
		if st.Pool != "" {
			v.Format, v.Pooled, v.Path = "raw", true, st.pooledPath(name)
			return v
		}
		if strings.Contains(name, "-disk-") {
			v.Format = "qcow2" // what a ZFS volume can, a qcow2 file can too
		}
		v.Path = filepath.Join(st.Path, name)
		return v
	}
	file := name + "." + v.Shown
	v.Path = filepath.Join(st.Path, "images", fmt.Sprint(vmid), file)
	v.ID = fmt.Sprintf("%s:%s%d/%s", st.ID, prefixBase(base, 2), vmid, file)
	return v
}

// pooledPath is the file of a volume in a pool.
func (st Storage) pooledPath(name string) string { return filepath.Join(st.Path, name, "raw") }

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

// storage returns one of the node's storages.
func (s *Server) storage(id string) (Storage, error) {
	for _, st := range s.storages {
		if st.ID == id {
			return st, nil
		}
	}
	if _, err := s.anyStorage(id); err == nil {
		return Storage{}, fail("storage '%s' is not available on node '%s'", id, s.cfg.Node)
	}
	return Storage{}, fail("storage '%s' does not exist", id)
}

// allStorages are the storages of the cluster, each as the first node that has
// it sees it.
func (s *Server) allStorages() []Storage {
	var out []Storage
	for _, want := range s.cfg.Storages {
		for _, m := range s.members {
			i := slices.IndexFunc(m.storages, func(st Storage) bool { return st.ID == want.ID })
			if i >= 0 {
				out = append(out, m.storages[i])
				break
			}
		}
	}
	return out
}

func (s *Server) anyStorage(id string) (Storage, error) {
	for _, st := range s.allStorages() {
		if st.ID == id {
			return st, nil
		}
	}
	return Storage{}, fail("storage '%s' does not exist", id)
}

// rootUsage is how full the file system of the node is.
func (s *Server) rootUsage() (total, used, avail int64) { return Storage{Path: s.cfg.Dir}.usage() }

// flag is a truth as the API tells it.
func flag(b bool) int {
	if b {
		return 1
	}
	return 0
}

// usageOf is how much a storage holds; of a pool that does not answer, nothing
// is known.
func (s *Server) usageOf(ctx context.Context, st Storage) (total, used, avail int64, err error) {
	if st.Pool == "" {
		total, used, avail = st.usage()
		return total, used, avail, nil
	}
	used, avail, err = s.cfg.Disks.(PoolDisks).Usage(ctx, st.Path)
	return used + avail, used, avail, err
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
