package proxmox_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"savepoint/orchestrator"
	"savepoint/testbed/guest"
	"savepoint/testbed/pve"
	"savepoint/testbed/qemu"
	"savepoint/testbed/zfs"
)

// pool is where one lab's disks are on a real ZFS: a group of the machine's pool.
type pool struct {
	zfs   *zfs.Pool
	disks *zfs.Disks
	group string
}

// realPools are groups of one real pool. It ends after the labs that are made of it.
func realPools(t *testing.T, groups ...string) []*pool {
	t.Helper()
	onlyInLab(t)
	if err := zfs.Require(); err != nil {
		t.Skip(err)
	}
	dir := t.TempDir()
	p, err := zfs.Open(t.Context(), zfs.Config{Dir: dir, Name: "sptest", Size: 16 << 30})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := zfs.Sweep(context.WithoutCancel(t.Context()), dir); err != nil {
			t.Error(err)
		}
	})
	images, err := qemu.NewImages("")
	if err != nil {
		t.Fatal(err)
	}
	disks, err := zfs.NewDisks(t.Context(), p, images)
	if err != nil {
		t.Fatal(err)
	}
	var out []*pool
	for _, g := range groups {
		if err := p.Group(t.Context(), g); err != nil {
			t.Fatal(err)
		}
		out = append(out, &pool{p, disks, g})
	}
	return out
}

// serve makes the storage "local" the pool.
func (p *pool) serve(c *pve.Config, system *guest.Image) {
	st := p.zfs.Storage("local")
	st.Path = strings.ReplaceAll(st.Path, pve.NodeMark, p.group)
	c.Storages, c.Disks = []pve.Storage{st}, p.disks
	if system != nil {
		c.Disks = installedPool{p.disks, *system}
	}
}

func (p *pool) file(vm orchestrator.VMID) string {
	return p.zfs.File(fmt.Sprintf("%s/vm-%d-disk-0", p.group, vm))
}

// installedPool are disks of which the template's has a system on it.
type installedPool struct {
	*zfs.Disks
	system guest.Image
}

func (i installedPool) Create(ctx context.Context, d pve.Disk, size int64) error {
	if filepath.Base(filepath.Dir(d.Path)) != fmt.Sprintf("vm-%d-disk-0", templateID) {
		return i.Disks.Create(ctx, d, size)
	}
	return i.Copy(ctx, pve.Disk{Path: i.system.Path, Format: "qcow2"}, "", d)
}

// Snapshots by a real ZFS below running machines, with real guests' memory beside
// them: the newest alone can be restored. F20 F21 F27 F70
func TestZFSPoolSnapshotterConformance(t *testing.T) {
	p := realPools(t, "bare", "booted")
	snapshotsOfReal(t, realLab(t, nil, qemu.Accelerator{}, p[0]), guestLab(t, p[1]), true)
}

// Clones of a template's volumes, and full copies.
func TestZFSPoolHypervisorConformance(t *testing.T) {
	hypervisorOfReal(t, realLab(t, nil, qemu.Accelerator{}, realPools(t, "bare")[0]))
}

// A foreign snapshot of a VM's volume is in the way of a rollback, which says so
// in the cluster's words and leaves the VM as it is (F70, F73).
func TestZFSPoolForeignSnapshot(t *testing.T) {
	p := realPools(t, "bare")[0]
	l := realLab(t, nil, qemu.Accelerator{}, p)
	r := l.vm(t)
	s := orchestrator.SnapshotRequest{Sandbox: r.Sandbox, VM: r.VM, Name: "sp-one"}
	snaps := l.cluster.Snapshots()
	if err := snaps.Create(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	volume := fmt.Sprintf("%s/vm-%d-disk-0", p.group, r.VM.ID)
	if err := p.zfs.Snapshot(t.Context(), volume, "autosnap_hourly"); err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprintf("can't rollback, 'sp-one' is not most recent snapshot on 'local:base-9000-disk-0/vm-%d-disk-0'", r.VM.ID)
	if err := snaps.Rollback(t.Context(), s); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want %s", err, want)
	}
	if !l.status(r.VM).Running {
		t.Error("the vm was stopped")
	}
	if err := p.zfs.DeleteSnapshot(t.Context(), volume, "autosnap_hourly"); err != nil {
		t.Fatal(err)
	}
	if err := snaps.Rollback(t.Context(), s); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(p.file(r.VM.ID)); err != nil {
		t.Error(err)
	}
}
