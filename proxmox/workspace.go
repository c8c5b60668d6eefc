package proxmox

import (
	"context"
	"path"

	"savepoint/orchestrator"
)

// WorkspaceSlot is where a template, and each clone of it, has the disk that
// holds what the agent can write.
const WorkspaceSlot = "scsi1"

// WorkspaceVolume names the volume of a VM's workspace as its storage knows it:
// "vm-9001-disk-1". It is "" when the VM has no disk in that slot, or has one on
// another storage than the given one.
func (c *Cluster) WorkspaceVolume(ctx context.Context, vm orchestrator.VMRef, storage string) (string, error) {
	conf, err := c.config(ctx, "find the workspace of", vm)
	if err != nil {
		return "", err
	}
	for _, d := range conf.disks() {
		if d.slot == WorkspaceSlot && d.storage == storage {
			return path.Base(d.volume), nil // a clone's is written behind its base's
		}
	}
	return "", nil
}
