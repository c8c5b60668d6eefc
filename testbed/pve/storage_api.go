package pve

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"savepoint/testbed/pve/schema"
	"savepoint/testbed/pve/task"
)

// storageStatusOf is one storage's item in the lists of a node.
func (s *Server) storageStatusOf(ctx context.Context, st Storage) map[string]any {
	total, used, avail, err := s.usageOf(ctx, st)
	if free, odd := s.oddities().Free[st.ID]; odd {
		used, avail = total-free, free
	}
	out := map[string]any{
		"type": st.Type, "content": strings.Join(st.Content, ","), "enabled": 1, "active": flag(err == nil), "shared": flag(st.Shared),
		"total": total, "used": used, "avail": avail,
	}
	return out
}

// listStorages is GET /nodes/{node}/storage.
func listStorages(c *call) (any, error) {
	out := []map[string]any{}
	for _, st := range c.s.storages {
		if id := c.p.Str("storage"); id != "" && id != st.ID {
			continue
		}
		if target := c.p.Str("target"); target != "" && !(st.Shared && st.on(target)) && target != c.s.cfg.Node {
			continue
		}
		if !c.may("/storage/"+st.ID, "Datastore.Audit", "Datastore.AllocateSpace") {
			continue
		}
		want := schema.SplitList(c.p.Str("content"))
		if len(want) > 0 && !slices.ContainsFunc(want, st.has) {
			continue
		}
		item := c.s.storageStatusOf(c.ctx, st)
		item["storage"] = st.ID
		item["used_fraction"] = 0.0
		if total := item["total"].(int64); total > 0 {
			item["used_fraction"] = float64(item["used"].(int64)) / float64(total)
		}
		out = append(out, item)
	}
	return out, nil
}

// storageStatus is GET /nodes/{node}/storage/{storage}/status.
func storageStatus(c *call) (any, error) {
	st, err := c.s.storage(c.p.Str("storage"))
	if err != nil {
		return nil, badParam("storage", "No such storage.")
	}
	return c.s.storageStatusOf(c.ctx, st), nil
}

// config is a storage's item in /storage.
func (st Storage) config(digest string) map[string]any {
	out := map[string]any{"storage": st.ID, "type": st.Type, "content": strings.Join(st.Content, ","), "digest": digest}
	switch st.Type {
	case "dir":
		out["path"] = st.Path
	case "zfspool":
		if out["pool"] = st.Pool; st.Pool == "" {
			out["pool"] = filepath.Base(st.Path)
		}
	}
	if st.VolumeChain {
		out["snapshot-as-volume-chain"] = 1
	}
	if st.Shared {
		out["shared"] = 1
	}
	if len(st.Nodes) > 0 {
		out["nodes"] = strings.Join(st.Nodes, ",")
	}
	return out
}

func (s *Server) storageDigest() string {
	sum := sha1.Sum(fmt.Append(nil, s.allStorages()))
	return hex.EncodeToString(sum[:])
}

// listStorageConfig is GET /storage.
func listStorageConfig(c *call) (any, error) {
	out := []map[string]any{}
	for _, st := range c.s.allStorages() {
		if kind := c.p.Str("type"); kind != "" && kind != st.Type {
			continue
		}
		if c.may("/storage/"+st.ID, "Datastore.Audit", "Datastore.AllocateSpace") {
			out = append(out, st.config(c.s.storageDigest()))
		}
	}
	return out, nil
}

// readStorageConfig is GET /storage/{storage}.
func readStorageConfig(c *call) (any, error) {
	st, err := c.s.anyStorage(c.p.Str("storage"))
	if err != nil {
		return nil, err
	}
	return st.config(c.s.storageDigest()), nil
}

// contentDirs is where a storage keeps what is no image.
var contentDirs = map[string]string{
	"iso": "template/iso", "vztmpl": "template/cache", "import": "import", "snippets": "snippets",
}

// contentFile is the path of a file that a storage has: "iso/NAME", "import/NAME", ….
func (s *Server) contentFile(st Storage, name string) (string, error) {
	kind, file, _ := strings.Cut(name, "/")
	dir, ok := contentDirs[kind]
	if !ok || file == "" || file != filepath.Base(file) || strings.HasPrefix(file, ".") {
		return "", fail("unable to parse volume ID '%s:%s'", st.ID, name)
	}
	path := filepath.Join(st.Path, dir, file)
	if _, err := os.Stat(path); err != nil {
		return "", fail("volume '%s:%s' does not exist", st.ID, name)
	}
	return path, nil
}

// listContent is GET /nodes/{node}/storage/{storage}/content.
func listContent(c *call) (any, error) {
	st, err := c.s.storage(c.p.Str("storage"))
	if err != nil {
		return nil, err
	}
	out := []map[string]any{}
	kind, vmid := c.p.Str("content"), c.vmid()
	if kind == "" || kind == "images" {
		for _, v := range c.s.volumesOf(st.ID, vmid) {
			if item := c.s.volumeItem(c, v); item != nil && c.mayVolume(v) {
				out = append(out, item)
			}
		}
	}
	for content := range contentDirs {
		if (kind == "" || kind == content) && vmid == 0 && st.has(content) {
			out = append(out, st.files(content)...)
		}
	}
	return out, nil
}

// mayVolume reports whether the caller may see a VM's volume.
func (c *call) mayVolume(v volume) bool {
	return c.may("/storage/"+storageID(v.ID), "Datastore.Audit", "Datastore.Allocate") || c.may("/vms/"+itoa(v.VMID), "VM.Audit", "VM.Config.Disk")
}

// volumeItem is a volume in a storage's list; nil when its image is missing.
func (s *Server) volumeItem(c *call, v volume) map[string]any {
	size, used, err := s.cfg.Disks.Size(c.ctx, v.disk(""))
	if err != nil && strings.Contains(v.ID, "-cloudinit") {
		size, err = v.Size, nil // it has no image before the first start
	}
	if err != nil {
		return nil
	}
	item := map[string]any{
		"volid": v.ID, "content": "images", "format": v.Shown, "vmid": v.VMID, "size": size, "used": used,
		"ctime": v.Created, "parent": nil,
	}
	if strings.Contains(v.ID, "-state-") {
		item["size"] = v.Size
	}
	if v.Base != "" {
		_, item["parent"], _ = strings.Cut(v.Base, ":")
	}
	if st, err := s.storage(storageID(v.ID)); err == nil && st.VolumeChain && len(v.Snaps) > 0 {
		name := v.ID[strings.LastIndexAny(v.ID, ":/")+1:]
		item["parent"] = "snap-" + v.Snaps[len(v.Snaps)-1] + "-" + name
	}
	return item
}

// files lists the files of one kind of content.
func (st Storage) files(content string) []map[string]any {
	var out []map[string]any
	entries, err := os.ReadDir(filepath.Join(st.Path, contentDirs[content]))
	if err != nil {
		return nil
	}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil || e.IsDir() || strings.HasPrefix(e.Name(), ".") {
			continue
		}
		format := strings.TrimPrefix(filepath.Ext(e.Name()), ".")
		out = append(out, map[string]any{
			"volid": st.ID + ":" + content + "/" + e.Name(), "content": content, "format": format,
			"size": info.Size(), "ctime": info.ModTime().Unix(),
		})
	}
	return out
}

// deleteContent is DELETE /nodes/{node}/storage/{storage}/content/{volume}.
func deleteContent(c *call) (any, error) {
	s := c.s
	volid := c.p.Str("volume")
	if !strings.Contains(volid, ":") {
		volid = c.p.Str("storage") + ":" + volid
	}
	st, err := s.storage(storageID(volid))
	if err != nil {
		return nil, err
	}
	if err := c.need("/storage/"+st.ID, "Datastore.Allocate"); err != nil {
		return nil, err
	}
	_, name, _ := strings.Cut(volid, ":")
	kind, _, _ := strings.Cut(name, "/")
	if _, file := contentDirs[kind]; file {
		path, err := s.contentFile(st, name)
		if err != nil {
			return nil, err
		}
		return s.startTask("imgdel", strings.ReplaceAll(name, "/", "-")+"@"+st.ID, c.who.name, func(w *task.Worker) error {
			if err := w.Step("remove"); err != nil {
				return err
			}
			w.Log("Removed volume '%s'", volid)
			return os.Remove(path)
		})
	}
	v, err := s.volume(volid)
	if err != nil {
		return nil, err
	}
	if conf, err := s.conf(v.VMID); err == nil && s.vmOpts.uses(conf, volid) {
		return nil, fail("cannot remove image, a guest with VMID '%d' exists! You can delete the image from the guest's hardware pane", v.VMID)
	}
	return s.startTask("imgdel", fmt.Sprintf("%d@%s", v.VMID, st.ID), c.who.name, func(w *task.Worker) error {
		if err := w.Step("remove"); err != nil {
			return err
		}
		if err := s.free(w.Context(), w, volid); err != nil {
			return err
		}
		w.Log("Removed volume '%s'", volid)
		return nil
	})
}

// uses reports whether a VM's configuration or one of its snapshots names a volume.
func (v *vmOptions) uses(c *vmConf, volid string) bool {
	if v.inSnapshots(c, volid) {
		return true
	}
	for name, value := range c.main {
		if bus, n := splitName(name); value == volid && (bus == "unused" && n >= 0 || name == "vmstate") {
			return true
		}
	}
	return slices.ContainsFunc(v.drives(c.main), func(d drive) bool { return d.file() == volid })
}
