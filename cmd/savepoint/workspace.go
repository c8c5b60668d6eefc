package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"savepoint/orchestrator"
	"savepoint/orchestrator/sshexec"
	"savepoint/proxmox"
	"savepoint/proxmox/zfs"
)

// workspaces are the sandboxes' workspace volumes: what the cluster says of a
// VM's disk, and what its node says of the dataset behind it.
type workspaces struct {
	*zfs.Snapshots
	nodes   *zfs.Client
	cluster *proxmox.Cluster
	storage string
}

// Find implements provision.Workspaces.
func (w *workspaces) Find(ctx context.Context, sb orchestrator.Sandbox) (string, error) {
	return w.locate(ctx, sb.VM)
}

// locate names the dataset of a VM's workspace volume on its node. Volumes of
// several storages may have one name, so it has to be below the dataset that the
// cluster says of the storage: another one may be the guest's root disk.
func (w *workspaces) locate(ctx context.Context, vm orchestrator.VMRef) (string, error) {
	volume, err := w.cluster.WorkspaceVolume(ctx, vm, w.storage)
	if err != nil || volume == "" {
		return "", err
	}
	pool, err := w.cluster.StoragePool(ctx, w.storage)
	if err != nil {
		return "", err
	}
	dataset, err := w.nodes.Locate(ctx, vm.Node, volume)
	if err == nil && !strings.HasPrefix(dataset, pool+"/") {
		err = fmt.Errorf("find the workspace of %s: %w: the node shows %s, and storage %s is on %s; name that in the forced command of its key (see savepoint doctor --setup)",
			vm, orchestrator.ErrDenied, dataset, w.storage, pool)
	}
	return dataset, err
}

// openWorkspaces prepares the way to the nodes, where workspaces are configured.
func (s *session) openWorkspaces() error {
	c := s.cfg.Workspace
	if c.Storage == "" {
		return nil
	}
	id, err := sshexec.LoadIdentity(c.IdentityFile)
	if err != nil {
		return usageError{err}
	}
	nodes := map[string]sshexec.NodeSSH{}
	for _, n := range c.Nodes {
		nodes[n.Name] = sshexec.NodeSSH{Address: n.Address, HostKey: n.HostKey}
	}
	ssh, err := sshexec.NewNodes(sshexec.NodesConfig{User: c.User, Identity: id, Nodes: nodes})
	if err != nil {
		return usageError{err}
	}
	s.app.closers = append(s.app.closers, ssh.Close)
	client := zfs.NewClient(ssh.Exchange)
	snaps, err := zfs.New(zfs.Config{
		Instance: s.cluster.Instance(), Sandbox: s.sandboxOf, Node: client, Guest: s.ssh,
		Reserve: int64(c.Reserve), Freeze: c.Freeze,
	})
	if err != nil {
		return err
	}
	s.workspaces = &workspaces{Snapshots: snaps, nodes: client, cluster: s.cluster, storage: c.Storage}
	return nil
}

// sandboxOf returns the sandbox that a VM is.
func (s *session) sandboxOf(ctx context.Context, vm orchestrator.VMRef) (orchestrator.Sandbox, error) {
	all, err := s.journal.Sandboxes(ctx)
	if err != nil {
		return orchestrator.Sandbox{}, err
	}
	for _, sb := range all {
		if sb.VM == vm && sb.State != orchestrator.SandboxDestroyed {
			return sb, nil
		}
	}
	return orchestrator.Sandbox{}, orchestrator.ErrNotFound
}

// everySnapshot is what the janitor looks at: the snapshots of whole VMs, and
// those of their workspace volumes.
type everySnapshot struct {
	orchestrator.Snapshotter
	s *session
}

// List has the parts that the cluster's snapshots have on a volume only once.
func (e everySnapshot) List(ctx context.Context, vm orchestrator.VMRef) ([]orchestrator.Snapshot, error) {
	all, err := e.Snapshotter.List(ctx, vm)
	if err != nil {
		return nil, err
	}
	own, err := e.ofWorkspace(ctx, vm, all)
	if err != nil {
		return nil, err
	}
	all = append(all, own...)
	slices.SortStableFunc(all, func(a, b orchestrator.Snapshot) int { return a.Taken.Compare(b.Taken) })
	return all, nil
}

// ofWorkspace lists what is on the VM's workspace volume alone.
func (e everySnapshot) ofWorkspace(ctx context.Context, vm orchestrator.VMRef, whole []orchestrator.Snapshot) ([]orchestrator.Snapshot, error) {
	sb, err := e.s.sandboxOf(ctx, vm)
	if errors.Is(err, orchestrator.ErrNotFound) || err == nil && (sb.Workspace == "" || e.s.workspaces == nil) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	own, err := e.s.workspaces.List(ctx, vm)
	return slices.DeleteFunc(own, func(s orchestrator.Snapshot) bool {
		return slices.ContainsFunc(whole, func(w orchestrator.Snapshot) bool { return w.Name == s.Name })
	}), err
}

// Delete deletes a snapshot where it is.
func (e everySnapshot) Delete(ctx context.Context, r orchestrator.SnapshotRequest) error {
	whole, err := e.Snapshotter.List(ctx, r.VM)
	if err != nil {
		return err
	}
	own, err := e.ofWorkspace(ctx, r.VM, whole)
	if err != nil {
		return err
	}
	if slices.ContainsFunc(own, func(s orchestrator.Snapshot) bool { return s.Name == r.Name }) {
		return e.s.workspaces.Delete(ctx, r)
	}
	return e.Snapshotter.Delete(ctx, r)
}
