package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"savepoint/configs"
	"savepoint/orchestrator"
	"savepoint/orchestrator/sshexec"
	"savepoint/proxmox/zfs"
)

// workspaces says who takes the snapshots of workspaces, and looks at what they
// need and at the volumes of sandboxes.
func (d *doctor) workspaces(ctx context.Context) {
	const check = "workspace"
	if d.s.workspaces == nil {
		d.ok(check, "no workspace volumes are configured: every snapshot covers the whole VM")
		return
	}
	driver, why, err := d.s.workspaces.driver(ctx)
	switch {
	case err != nil:
		d.failed(check, levelProblem, err)
		return
	case driver == driverBtrfs:
		d.ok(check, "snapshots of workspaces are taken by the guests, on btrfs: %s", why)
	default:
		d.zfsNodes(ctx, why)
	}
	for _, sb := range d.boxes {
		if sb.Workspace != "" && sb.Workspace != sshexec.BtrfsWorkspace && d.s.workspaces.nodes != nil && ctx.Err() == nil {
			d.volume(ctx, sb)
		}
	}
}

// zfsNodes asks each node whether our account there can do its part.
func (d *doctor) zfsNodes(ctx context.Context, why string) {
	const check = "workspace"
	w := d.cfg.Workspace
	var good perNode
	for _, n := range w.Nodes {
		prefixes, err := d.s.workspaces.nodes.Hello(ctx, n.Name)
		switch pool := d.poolOn(n.Name); {
		case err != nil:
			d.failed(check, levelProblem, err)
			d.mendLast("on " + n.Name + ", as root: sh setup.sh node, of savepoint doctor --setup > setup.sh")
		case pool != "" && !slices.ContainsFunc(prefixes, func(p string) bool { return p == pool || strings.HasPrefix(pool, p+"/") }) && !d.reaches(ctx, n.Name):
			d.add(check, levelProblem, fmt.Sprintf("on %s our account is for %s, and storage %s is on %s there", n.Name, strings.Join(prefixes, ", "), w.Storage, pool),
				fmt.Sprintf("on %s: zfs allow -u %s snapshot,rollback,destroy,mount,userprop %s, and name it in the forced command of its key", n.Name, w.User, pool))
		default:
			good.add(n.Name, "our account works on "+strings.Join(prefixes, ", "))
		}
	}
	good.each(func(nodes, text string) {
		d.ok(check, "%s: %s, and takes the snapshots with ZFS: %s", nodes, text, why)
	})
	for _, f := range d.usableFacts() {
		if !slices.ContainsFunc(w.Nodes, func(n configs.NodeSSH) bool { return n.Name == f.Node }) {
			d.add(check, levelWarning, f.Node+" is not in workspace.nodes: no sandbox with a workspace volume can be made there", "add it, or take the node out of cluster.nodes")
		}
	}
}

// reaches reports whether the node shows our account the volume of a template's
// workspace: then it is where it has to be, whatever its dataset is called.
func (d *doctor) reaches(ctx context.Context, node string) bool {
	for _, site := range d.sites {
		for _, t := range site.Templates {
			if t.VM.Node != node {
				continue
			}
			if dataset, err := d.s.workspaces.locate(ctx, t.VM); err == nil && dataset != "" {
				return true
			}
		}
	}
	return false
}

// mendLast says what mends the last finding, where its error did not.
func (d *doctor) mendLast(mend string) {
	if f := &d.findings[len(d.findings)-1]; f.Mend == "" {
		f.Mend = mend
	}
}

// poolOn is the dataset of the workspace storage on a node, "" when it is not known.
func (d *doctor) poolOn(node string) string {
	s, _ := d.storageOn(node, d.cfg.Workspace.Storage)
	return s.Pool
}

// volume looks for snapshots of a sandbox's volume that neither we nor the
// cluster took: a schedule of somebody's. Nothing older can be restored while
// one is there (F70, F73).
func (d *doctor) volume(ctx context.Context, sb orchestrator.Sandbox) {
	const check = "workspace"
	ours := d.s.cluster.Instance() + "/" + string(sb.ID)
	v, err := d.s.workspaces.nodes.List(ctx, zfs.Target{Node: sb.VM.Node, Dataset: sb.Workspace, Owner: ours})
	if err != nil {
		d.failed(check, levelWarning, err)
		return
	}
	if v.Owner != ours {
		d.add(check, levelProblem, fmt.Sprintf("volume %s of sandbox %s on %s has the owner %q and not %q", v.Dataset, sb.Name, sb.VM.Node, v.Owner, ours),
			"see who else uses it; then savepoint sandbox destroy "+sb.Name)
	}
	known, err := d.s.cluster.Snapshots().List(ctx, sb.VM)
	if err != nil {
		d.failed(check, levelWarning, err)
		return
	}
	for _, t := range v.Taken {
		byCluster := slices.ContainsFunc(known, func(k orchestrator.Snapshot) bool { return string(k.Name) == t.Name })
		if t.Owner == "" && !byCluster && !strings.HasPrefix(t.Name, "#") {
			d.add(check, levelWarning, fmt.Sprintf("snapshot %s of %s, the volume of sandbox %s, is not ours: no older one can be restored while it is there", t.Name, v.Dataset, sb.Name),
				fmt.Sprintf("on %s: zfs destroy %s@%s; and keep schedules off it: zfs set com.sun:auto-snapshot=false %s, with sanoid leave it out of /etc/sanoid/sanoid.conf", sb.VM.Node, v.Dataset, t.Name, v.Dataset))
		}
	}
}

// schedules looks for backups of the cluster that reach sandboxes.
func (d *doctor) schedules(ctx context.Context) {
	const check = "schedules"
	var vms []orchestrator.VMID
	for _, sb := range d.boxes {
		if sb.VM.ID != 0 {
			vms = append(vms, sb.VM.ID)
		}
	}
	jobs, err := d.s.cluster.BackupJobs(ctx, vms)
	if err != nil {
		d.unknown(check, "whether backups reach sandboxes is", err)
		return
	}
	for _, j := range jobs {
		d.add(check, levelWarning, "backup job "+j.ID+" reaches sandboxes: "+j.Why+", and holds their locks meanwhile",
			"as root on a node: "+j.Mend)
	}
	if len(jobs) == 0 {
		d.ok(check, "no backup job reaches sandboxes")
	}
}
