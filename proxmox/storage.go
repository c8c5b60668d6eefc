package proxmox

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"savepoint/orchestrator"
)

// Storage is one storage as a node sees it.
type Storage struct {
	ID      string
	Type    string   // "zfspool", "lvmthin", "rbd", "dir", "nfs", "btrfs", …
	Content []string // "images", "import", "iso", …
	Shared  bool
	Active  bool
	Total   int64 // bytes
	Free    int64 // bytes

	// What the cluster's configuration says; only LookAt asks for it.
	Pool   string // dataset of a zfspool
	Sparse bool   // a zfspool whose volumes take only what is written
	Chain  bool   // snapshots are a chain of volumes
}

// snapshotTypes snapshot every volume; on fileTypes only qcow2 volumes can be.
var (
	snapshotTypes = []string{"zfspool", "zfs", "lvmthin", "rbd", "btrfs", "linstor"}
	fileTypes     = []string{"dir", "nfs", "cifs", "cephfs", "glusterfs"}
)

// Snapshots says what snapshots of VM disks on the storage are like.
func (s Storage) Snapshots() SnapshotSupport {
	switch {
	case slices.Contains(snapshotTypes, s.Type):
		return SnapshotSupport{Possible: true, LatestOnly: s.Type == "zfspool" || s.Type == "zfs", Note: s.Type + " snapshots every volume"}
	case s.Chain:
		return SnapshotSupport{Possible: true, LatestOnly: true, Note: "snapshots are a chain of volumes; deleting one is slow"}
	case slices.Contains(fileTypes, s.Type):
		return SnapshotSupport{Possible: true, Note: "only qcow2 volumes; creating and deleting one can block a running VM"}
	default:
		return SnapshotSupport{Note: "a storage of type " + s.Type + " takes no snapshots; " + mendStore}
	}
}

// SnapshotSupport is what can be told from a storage's type. Whether a VM's
// own disks can be snapshotted is asked before every first snapshot.
type SnapshotSupport struct {
	Possible   bool
	LatestOnly bool   // only the newest snapshot can be restored
	Note       string // for a person
}

// LinkedClones reports whether clones of a template can share its disks there.
func (s Storage) LinkedClones() bool {
	return slices.Contains(snapshotTypes, s.Type) || slices.Contains(fileTypes, s.Type)
}

// SnapshotsRaw reports whether raw files there can be snapshotted too: on btrfs each
// is in a subvolume of its own.
func (s Storage) SnapshotsRaw() bool { return slices.Contains(snapshotTypes, s.Type) }

// AddContent is the command that has the storage take content of that kind too.
func (s Storage) AddContent(kind string) string {
	return fmt.Sprintf("pvesm set %s --content %s", s.ID, strings.Join(append(slices.Clone(s.Content), kind), ","))
}

// Thick reports whether a volume takes all of its size at once, and on ZFS all
// that it could still change again with every snapshot.
func (s Storage) Thick() bool {
	return s.Type == "zfspool" && !s.Sparse || s.Type == "lvm"
}

// Storages lists the storages of a node that the token may see.
func (c *Cluster) Storages(ctx context.Context, node string) ([]Storage, error) {
	var list []struct {
		Storage string  `json:"storage"`
		Type    string  `json:"type"`
		Content string  `json:"content"`
		Shared  flexInt `json:"shared"`
		Active  flexInt `json:"active"`
		Total   flexInt `json:"total"`
		Avail   flexInt `json:"avail"`
	}
	const op = "list storages of"
	if !nodeRE.MatchString(node) {
		return nil, refuse(op, "node "+node, orchestrator.ErrDenied, "that is no node name", "")
	}
	if err := c.get(ctx, nodePath(node)+"/storage", nil, &list); err != nil {
		return nil, explain(op, "node "+node, err, false)
	}
	out := make([]Storage, 0, len(list))
	for _, s := range list {
		out = append(out, Storage{
			ID: s.Storage, Type: s.Type, Content: strings.Split(s.Content, ","),
			Shared: s.Shared != 0, Active: s.Active != 0, Total: int64(s.Total), Free: int64(s.Avail),
		})
	}
	slices.SortFunc(out, func(a, b Storage) int { return strings.Compare(a.ID, b.ID) })
	return out, nil
}

// checkSnapshottable asks the cluster whether every disk can be snapshotted.
// The answer is kept for as long as the disks are the same.
func (c *Cluster) checkSnapshottable(ctx context.Context, op string, vm orchestrator.VMRef, conf vmConfig) error {
	disks := conf.disks()
	key := fmt.Sprint(disks)
	if known, ok := c.capable.Load(vm); ok && known == key {
		return nil
	}
	var out struct {
		HasFeature flexInt `json:"hasFeature"`
	}
	if err := c.readVM(ctx, op, vm, "/feature", url.Values{"feature": {"snapshot"}}, &out); err != nil {
		return err
	}
	if out.HasFeature != 0 {
		c.capable.Store(vm, key)
		return nil
	}
	what := c.blameDisks(ctx, vm.Node, disks)
	return &failure{op: op, subject: vm.String(), cause: what, mend: mendStore, class: &orchestrator.UnsupportedError{What: what, Mend: mendStore}}
}

// blameDisks names the disks that cannot be snapshotted, as far as it can be
// told from the storages' types and the volumes' names.
func (c *Cluster) blameDisks(ctx context.Context, node string, disks []disk) string {
	types := map[string]string{}
	if list, err := c.Storages(ctx, node); err == nil {
		for _, s := range list {
			types[s.ID] = s.Type
		}
	}
	var blamed, all []string
	for _, d := range disks {
		text := fmt.Sprintf("%s on storage %q", d.slot, d.storage)
		if t := types[d.storage]; t != "" {
			text += " (" + t + ")"
		}
		all = append(all, text)
		if !strings.HasSuffix(d.volume, ".qcow2") && !slices.Contains(snapshotTypes, types[d.storage]) {
			blamed = append(blamed, text)
		}
	}
	if len(blamed) == 0 {
		blamed = all
	}
	if len(blamed) == 1 {
		return blamed[0] + " does not support snapshots"
	}
	return strings.Join(blamed, ", ") + " do not support snapshots"
}
