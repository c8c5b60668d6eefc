package proxmox

import (
	"context"
	"path"

	"savepoint/orchestrator"
)

// WorkspaceSlot is where a template, and each clone of it, has the disk that
// holds what the agent can write.
const WorkspaceSlot = "scsi1"

// StoragePool is the dataset that a zfspool storage keeps its volumes in, as the
// cluster is configured.
func (c *Cluster) StoragePool(ctx context.Context, storage string) (string, error) {
	all, err := c.storageSettings(ctx)
	if err != nil {
		return "", err
	}
	if pool := all[storage].pool; pool != "" {
		return pool, nil
	}
	what := "storage " + storage + " is not one of type zfspool that our token may see"
	return "", &failure{op: "find the pool of", subject: "storage " + storage, cause: what, mend: "set workspace.storage to one, or give the token Datastore.Audit on it",
		class: &orchestrator.UnsupportedError{What: what, Mend: "set workspace.storage to one, or give the token Datastore.Audit on it"}}
}

// StorageType is what a storage is, as the cluster is configured: "zfspool", "dir".
func (c *Cluster) StorageType(ctx context.Context, storage string) (string, error) {
	all, err := c.storageSettings(ctx)
	if err != nil {
		return "", err
	}
	if all[storage].kind == "" {
		return "", &failure{op: "find the type of", subject: "storage " + storage, cause: "our token sees no storage of that name",
			mend: "name one that pvesm status prints, or give the token Datastore.Audit on it", class: orchestrator.ErrNotFound}
	}
	return all[storage].kind, nil
}

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
