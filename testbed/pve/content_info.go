package pve

import (
	"os"
	"path/filepath"
	"strings"
)

// readContent is GET /nodes/{node}/storage/{storage}/content/{volume}.
func readContent(c *call) (any, error) {
	volid := c.p.Str("volume")
	if !strings.Contains(volid, ":") {
		volid = c.p.Str("storage") + ":" + volid
	}
	st, err := c.s.storage(storageID(volid))
	if err != nil {
		return nil, err
	}
	_, name, _ := strings.Cut(volid, ":")
	kind, _, _ := strings.Cut(name, "/")
	if _, file := contentDirs[kind]; file {
		if err := checkPrivs(c.s.access, c.who, "/storage/"+st.ID, true, "Datastore.Audit", "Datastore.AllocateSpace", "Datastore.AllocateTemplate"); err != nil {
			return nil, err
		}
		return c.fileContent(st, name)
	}
	v, err := c.s.volume(volid)
	if err != nil {
		return nil, err
	}
	if !c.mayVolume(v) {
		return nil, c.need("/storage/"+st.ID, "Datastore.Allocate")
	}
	item := c.s.volumeItem(c, v)
	if item == nil {
		return nil, fail("volume_size_info on '%s' failed", volid)
	}
	return map[string]any{"path": v.Path, "size": item["size"], "used": item["used"], "format": item["format"]}, nil
}

// fileContent describes a file that a storage has.
func (c *call) fileContent(st Storage, name string) (any, error) {
	path, err := c.s.contentFile(st, name)
	if err != nil {
		return nil, err
	}
	info, err := os.Stat(path)
	if err != nil {
		return nil, fail("volume '%s:%s' does not exist", st.ID, name)
	}
	format := strings.TrimPrefix(filepath.Ext(path), ".")
	return map[string]any{"path": path, "size": info.Size(), "used": info.Size(), "format": format}, nil
}
