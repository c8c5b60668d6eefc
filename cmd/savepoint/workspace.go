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

// The drivers of the boundary workspace.
const (
	driverZFS   = "zfs"   // snapshots of the disk, on its node
	driverBtrfs = "btrfs" // snapshots of the file system, in the guest
)

// workspaces are the sandboxes' workspace volumes. Which of the two drivers a
// sandbox has was decided when it was made, and stands with it in the journal.
type workspaces struct {
	zfs     *zfs.Snapshots // nil: workspace.nodes is not written
	inside  *sshexec.Btrfs
	nodes   *zfs.Client
	cluster *proxmox.Cluster
	sandbox func(context.Context, orchestrator.VMRef) (orchestrator.Sandbox, error)
	storage string
	wanted  string // workspace.driver
}

var (
	_ orchestrator.Snapshotter = (*workspaces)(nil)
	_ orchestrator.Inside      = (*workspaces)(nil)
)

// driver says which one new sandboxes and templates get, and why.
func (w *workspaces) driver(ctx context.Context) (driver, why string, err error) {
	if w.wanted == driverZFS || w.wanted == driverBtrfs {
		return w.wanted, "workspace.driver says so", nil
	}
	kind, err := w.cluster.StorageType(ctx, w.storage)
	if err != nil {
		return "", "", err
	}
	why = fmt.Sprintf("storage %s is of type %s", w.storage, kind)
	if kind != "zfspool" {
		return driverBtrfs, why, nil
	}
	if w.zfs == nil {
		return "", "", &orchestrator.UnsupportedError{
			What: "workspace snapshots: " + why + ", and workspace.nodes does not say how its nodes are reached",
			Mend: "write workspace.nodes (see savepoint doctor --setup), or set workspace.driver to btrfs",
		}
	}
	return driverZFS, why, nil
}

// of returns the driver of a VM's sandbox.
func (w *workspaces) of(ctx context.Context, vm orchestrator.VMRef) (orchestrator.Snapshotter, error) {
	sb, err := w.sandbox(ctx, vm)
	switch {
	case err != nil:
		return nil, fmt.Errorf("workspace of %s: %w", vm, err)
	case sb.Workspace == sshexec.BtrfsWorkspace:
		return w.inside, nil
	case w.zfs == nil:
		return nil, &orchestrator.UnsupportedError{What: fmt.Sprintf("workspace volume %q of sandbox %s: nothing is configured to reach it", sb.Workspace, sb.Name), Mend: "write workspace.nodes"}
	}
	return w.zfs, nil
}

// Create implements orchestrator.Snapshotter, like what follows.
func (w *workspaces) Create(ctx context.Context, r orchestrator.SnapshotRequest) error {
	d, err := w.of(ctx, r.VM)
	if err != nil {
		return err
	}
	return d.Create(ctx, r)
}

// Rollback restores the workspace of a sandbox.
func (w *workspaces) Rollback(ctx context.Context, r orchestrator.SnapshotRequest) error {
	d, err := w.of(ctx, r.VM)
	if err != nil {
		return err
	}
	return d.Rollback(ctx, r)
}

// Delete removes a snapshot of a workspace.
func (w *workspaces) Delete(ctx context.Context, r orchestrator.SnapshotRequest) error {
	d, err := w.of(ctx, r.VM)
	if err != nil {
		return err
	}
	return d.Delete(ctx, r)
}

// List lists the snapshots of a VM's workspace.
func (w *workspaces) List(ctx context.Context, vm orchestrator.VMRef) ([]orchestrator.Snapshot, error) {
	d, err := w.of(ctx, vm)
	if err != nil {
		return nil, err
	}
	return d.List(ctx, vm)
}

// Inside implements orchestrator.Inside.
func (w *workspaces) Inside(ctx context.Context, vm orchestrator.VMRef) bool {
	d, err := w.of(ctx, vm)
	return err == nil && d == orchestrator.Snapshotter(w.inside)
}

// Claim implements provision.Workspaces. A volume whose guest takes the snapshots
// becomes the sandbox's with the first of them: the guest does not run yet.
func (w *workspaces) Claim(ctx context.Context, sb orchestrator.Sandbox) error {
	if sb.Workspace == sshexec.BtrfsWorkspace {
		return nil
	}
	return w.zfs.Claim(ctx, sb)
}

// Find implements provision.Workspaces.
func (w *workspaces) Find(ctx context.Context, sb orchestrator.Sandbox) (string, error) {
	driver, _, err := w.driver(ctx)
	if err != nil {
		return "", err
	}
	if driver == driverZFS {
		return w.locate(ctx, sb.VM)
	}
	volume, err := w.cluster.WorkspaceVolume(ctx, sb.VM, w.storage)
	if err != nil || volume == "" {
		return "", err
	}
	return sshexec.BtrfsWorkspace, nil
}

// resetVolumes is workspaces as provisioning has them: before a sandbox is restored as a
// whole it removes what would be in the way of that. What a guest has inside its
// disks is not, and goes back with them, also when the guest does not answer.
type resetVolumes struct{ *workspaces }

// List leaves out what is inside of the guest.
func (v resetVolumes) List(ctx context.Context, vm orchestrator.VMRef) ([]orchestrator.Snapshot, error) {
	if v.Inside(ctx, vm) {
		return nil, nil
	}
	return v.workspaces.List(ctx, vm)
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

// openWorkspaces prepares the drivers, where workspaces are configured.
func (s *session) openWorkspaces() error {
	c := s.cfg.Workspace
	if c.Storage == "" {
		return nil
	}
	w := &workspaces{cluster: s.cluster, sandbox: s.sandboxOf, storage: c.Storage, wanted: c.Driver}
	var err error
	w.inside, err = sshexec.NewBtrfs(sshexec.BtrfsConfig{
		Client: s.ssh, Instance: s.cluster.Instance(), Sandbox: s.sandboxOf,
		Running: func(ctx context.Context, vm orchestrator.VMRef) (bool, error) {
			st, err := s.cluster.VMs().Status(ctx, vm)
			return st.Running, err
		},
	})
	if err != nil {
		return err
	}
	s.workspaces = w
	if len(c.Nodes) == 0 || c.Driver == driverBtrfs {
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
	w.nodes = zfs.NewClient(ssh.Exchange)
	w.zfs, err = zfs.New(zfs.Config{
		Instance: s.cluster.Instance(), Sandbox: s.sandboxOf, Node: w.nodes, Guest: s.ssh,
		Reserve: int64(c.Reserve), Freeze: c.Freeze,
	})
	return err
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
	if sb.Workspace == sshexec.BtrfsWorkspace && errors.Is(err, orchestrator.ErrUnavailable) {
		return nil, nil // the guest has them, and is off or does not answer: the next look finds them
	}
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
