package qemu

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"savepoint/orchestrator"
	"savepoint/testbed/pve"
)

// stateNode is how QEMU calls the file that memory is saved to.
const stateNode = "saved-state"

// snapshotLimit bounds a snapshot that has begun: it is finished or undone
// whatever happens to the caller.
const snapshotLimit = 10 * time.Minute

// Snapshot snapshots all disks of the running VM at one instant; with stateFile
// it saves the memory there, too, and the VM pauses for the time of it. Once
// begun it does not stop with ctx. When it fails nothing of it is left.
func (m *Machines) Snapshot(ctx context.Context, vmid int, tag, stateFile string) error {
	v, err := m.find(vmid)
	if err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), snapshotLimit)
	defer cancel()
	nodes, err := v.snapshotNodes()
	if err == nil {
		err = v.checkTag(ctx, tag)
	}
	if err == nil {
		err = v.withVolumes(ctx, tag, func() error {
			if stateFile == "" {
				return v.snapshotDisks(ctx, nodes, tag)
			}
			return v.saveState(ctx, nodes, tag, stateFile)
		})
	}
	if err != nil {
		return fmt.Errorf("snapshot %s of vm %d: %w", tag, vmid, err)
	}
	return nil
}

// snapshotNodes lists the disks that QEMU itself takes the snapshots of.
func (v *vm) snapshotNodes() ([]string, error) {
	var nodes []string
	for _, d := range v.record.Machine.Disks {
		switch {
		case d.CDROM || v.onVolume(d):
		case d.Format != "qcow2":
			return nil, rawError(pve.Disk{Path: d.Path})
		default:
			nodes = append(nodes, nodeName(d.Slot))
		}
	}
	return nodes, nil
}

// blockNodeInfo is what query-named-block-nodes says of one image.
type blockNodeInfo struct {
	Node  string `json:"node-name"`
	File  string `json:"file"`
	Image struct {
		Snapshots []struct {
			Name string `json:"name"`
		} `json:"snapshots"`
	} `json:"image"`
}

// tagged lists the nodes that have the snapshot.
func (v *vm) tagged(ctx context.Context, tag string) (map[string]bool, error) {
	var infos []blockNodeInfo
	if err := v.qmp.execute(ctx, "query-named-block-nodes", map[string]bool{"flat": true}, &infos); err != nil {
		return nil, err
	}
	out := make(map[string]bool)
	for _, i := range infos {
		for _, s := range i.Image.Snapshots {
			if s.Name == tag {
				out[i.Node] = true
			}
		}
	}
	return out, nil
}

// checkTag makes sure that a clean-up after a failure can only remove what this
// call made.
func (v *vm) checkTag(ctx context.Context, tag string) error {
	if tag == "" {
		return errors.New("no name given")
	}
	have, err := v.tagged(ctx, tag)
	if err != nil {
		return err
	}
	for node := range have {
		return fmt.Errorf("%s has it: %w", node, orchestrator.ErrExists)
	}
	return nil
}

// snapshotDisks snapshots all disks in one transaction: all or none.
func (v *vm) snapshotDisks(ctx context.Context, nodes []string, tag string) error {
	var actions []any
	for _, n := range nodes {
		actions = append(actions, map[string]any{
			"type": "blockdev-snapshot-internal-sync",
			"data": map[string]string{"device": n, "name": tag},
		})
	}
	if len(actions) == 0 {
		return nil
	}
	return v.qmp.execute(ctx, "transaction", map[string]any{"actions": actions}, nil)
}

// saveState saves memory and disks at one instant. The file appears under its
// name when it is complete.
func (v *vm) saveState(ctx context.Context, nodes []string, tag, stateFile string) (err error) {
	if !filepath.IsAbs(stateFile) {
		return fmt.Errorf("state file %s: the path is not absolute", stateFile)
	}
	// The volume was allocated before, empty; the finished state takes its place.
	if err := v.endSaving(ctx); err != nil {
		return err
	}
	part := stateFile + partSuffix
	if err := os.Remove(part); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(part)
		}
	}()
	// The memory is stored beyond the end of the image: its own size does not
	// matter. It is one long write, which large clusters keep from being
	// interrupted by what says where they are.
	if _, err := v.images.run(ctx, "create", "-q", "-f", "qcow2", "-o", "cluster_size=2M", part, "1M"); err != nil {
		return err
	}
	// As in PVE the memory is not synced: a power cut of the host, which ends the
	// VM too, may take it. It outlives this process, QEMU and a kill of either.
	if err := v.addState(ctx, part, true); err != nil {
		return err
	}
	err = v.qmp.job(ctx, "snapshot-save", "save-"+tag, map[string]any{
		"tag": tag, "vmstate": stateNode, "devices": append([]string{stateNode}, nodes...),
	})
	if err != nil {
		err = errors.Join(err, v.dropTag(ctx, tag))
	}
	if derr := v.removeState(ctx); err == nil && derr != nil {
		err = errors.Join(derr, v.dropTag(ctx, tag))
	}
	if err != nil {
		return err
	}
	if err := os.Rename(part, stateFile); err != nil {
		return errors.Join(err, v.dropTag(ctx, tag))
	}
	return nil
}

// partSuffix is what the name of a state file has until it is complete.
const partSuffix = ".part"

// endSaving ends what an owner of the machine that was killed while it saved
// the memory left in QEMU: the job that nobody asked about, the node, its file.
// Another save could not begin beside them. The disks' snapshots of the tag are
// whoever's who ordered the save, and are deleted by that name.
func (v *vm) endSaving(ctx context.Context) error {
	if err := v.qmp.endJobs(ctx, "save-"); err != nil {
		return fmt.Errorf("end an interrupted save: %w", err)
	}
	var infos []blockNodeInfo
	if err := v.qmp.execute(ctx, "query-named-block-nodes", map[string]bool{"flat": true}, &infos); err != nil {
		return err
	}
	for _, i := range infos {
		if i.Node != stateNode {
			continue
		}
		if err := v.removeState(ctx); err != nil {
			return fmt.Errorf("end an interrupted save: %w", err)
		}
		if strings.HasSuffix(i.File, partSuffix) {
			if err := os.Remove(i.File); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return fmt.Errorf("end an interrupted save: %w", err)
			}
		}
	}
	return nil
}

// addState opens a file for the memory. unsynced: what QEMU writes there is not
// synced.
func (v *vm) addState(ctx context.Context, path string, unsynced bool) error {
	node := map[string]any{
		"driver": "qcow2", "node-name": stateNode,
		"file": map[string]any{"driver": "file", "filename": path},
	}
	if unsynced { // QEMU takes an object without options for an option it does not know
		node["cache"] = map[string]bool{"no-flush": true}
	}
	return v.qmp.execute(ctx, "blockdev-add", node, nil)
}

func (v *vm) removeState(ctx context.Context) error {
	return v.qmp.execute(ctx, "blockdev-del", map[string]string{"node-name": stateNode}, nil)
}

// dropTag removes the snapshot from every disk that has it.
func (v *vm) dropTag(ctx context.Context, tag string) error {
	have, err := v.tagged(ctx, tag)
	if err != nil {
		return err
	}
	var errs []error
	for node := range have {
		if node != stateNode {
			errs = append(errs, v.deleteTag(ctx, node, tag))
		}
	}
	return errors.Join(errs...)
}

func (v *vm) deleteTag(ctx context.Context, node, tag string) error {
	return v.qmp.execute(ctx, "blockdev-snapshot-delete-internal-sync", map[string]string{"device": node, "name": tag}, nil)
}

// loadState brings a stopped, fresh process to the saved state. The disks were
// reverted already; loading sets them to the same snapshot once more.
func (v *vm) loadState(ctx context.Context, tag, stateFile string) error {
	nodes, err := v.snapshotNodes()
	if err != nil {
		return err
	}
	if err := v.addState(ctx, stateFile, false); err != nil {
		return fmt.Errorf("open the saved state: %w", err)
	}
	err = v.qmp.job(ctx, "snapshot-load", "load-"+tag, map[string]any{
		"tag": tag, "vmstate": stateNode, "devices": append([]string{stateNode}, nodes...),
	})
	if err != nil {
		return fmt.Errorf("load the saved state: %w", err)
	}
	return v.removeState(ctx)
}

// DeleteSnapshot removes the snapshot from one disk of the running VM; it fails
// with orchestrator.ErrNotFound when the disk does not have it.
func (m *Machines) DeleteSnapshot(ctx context.Context, vmid int, slot, tag string) error {
	v, err := m.find(vmid)
	if err != nil {
		return err
	}
	for _, d := range v.record.Machine.Disks {
		if d.Slot == slot && v.onVolume(d) {
			if err := v.volumes.DeleteSnapshot(ctx, d, tag); err != nil {
				return fmt.Errorf("delete snapshot %s of vm %d: %w", tag, vmid, err)
			}
			return nil
		}
	}
	have, err := v.tagged(ctx, tag)
	if err != nil {
		return fmt.Errorf("delete snapshot %s of vm %d: %w", tag, vmid, err)
	}
	if !have[nodeName(slot)] {
		return fmt.Errorf("delete snapshot %s of vm %d: %s does not have it: %w", tag, vmid, slot, orchestrator.ErrNotFound)
	}
	if err := v.deleteTag(ctx, nodeName(slot), tag); err != nil {
		return fmt.Errorf("delete snapshot %s of vm %d: %w", tag, vmid, err)
	}
	return nil
}
