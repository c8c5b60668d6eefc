package pve_test

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"savepoint/testbed/pve"
	"savepoint/testbed/pve/memory"
)

// pool is disks in memory that also know pools.
type pool struct {
	memory.Disks
	bases map[string]string   // new path → old
	taken map[string][]string // path → snapshots
	down  error
}

func (p *pool) Base(ctx context.Context, d pve.Disk, path string) error {
	if p.down != nil {
		return p.down
	}
	p.bases[path] = d.Path
	err := p.Copy(ctx, d, "", pve.Disk{Path: path, Format: d.Format})
	return errors.Join(err, p.Remove(ctx, d))
}

func (p *pool) Snapshots(_ context.Context, d pve.Disk) ([]string, error) {
	return p.taken[d.Path], p.down
}

func (p *pool) Snapshot(ctx context.Context, d pve.Disk, tag string) error {
	if p.down != nil {
		return p.down
	}
	p.taken[d.Path] = append(p.taken[d.Path], tag)
	return p.Disks.Snapshot(ctx, d, tag)
}

func (p *pool) DeleteSnapshot(ctx context.Context, d pve.Disk, tag string) error {
	if p.down != nil {
		return p.down
	}
	p.taken[d.Path] = slices.DeleteFunc(p.taken[d.Path], func(s string) bool { return s == tag })
	return p.Disks.DeleteSnapshot(ctx, d, tag)
}

func (p *pool) Usage(_ context.Context, dir string) (used, free int64, err error) {
	if dir != "/pool/pve1" {
		return 0, 0, errors.New("no such place: " + dir)
	}
	return 100, 900, p.down
}

func newPool(t *testing.T) (*node, *pool) {
	t.Helper()
	mem := memory.New()
	p := &pool{Disks: mem.Disks(), bases: map[string]string{}, taken: map[string][]string{}}
	cfg := config(filepath.Join(t.TempDir(), "state"), mem)
	cfg.Disks = p
	cfg.Storages = append(cfg.Storages, pve.Storage{ID: "tank", Type: "zfspool", Pool: "rpool", Path: "/pool/" + pve.NodeMark})
	return startNode(t, cfg, mem), p
}

// F70 F73: in a real pool the volumes are raw files of their own, snapshots of
// others are seen and are in the way, and what the pool says is passed on.
func TestPool(t *testing.T) {
	n, p := newPool(t)
	const at = "/nodes/pve1/qemu/102"
	run := func(want, method, path, form string) {
		t.Helper()
		if st := n.run(method, path, form); st != want {
			t.Errorf("%s %s: %q, want %q", method, path, st, want)
		}
	}
	run("OK", "POST", "/nodes/pve1/qemu", "vmid=102&memory=64&scsi0=tank:1")
	const file = "/pool/pve1/vm-102-disk-0/raw"
	if got := n.object(at + "/config")["scsi0"]; got != "tank:vm-102-disk-0,size=1G" || !slices.Contains(n.mem.Paths(), file) {
		t.Errorf("%v in %q", got, n.mem.Paths())
	}
	run("OK", "POST", at+"/snapshot", "snapname=s1")
	p.taken[file] = append(p.taken[file], "autosnap_hourly")
	run("can't rollback, 's1' is not most recent snapshot on 'tank:vm-102-disk-0'", "POST", at+"/snapshot/s1/rollback", "")
	if lock := n.object(at + "/config")["lock"]; lock != nil {
		t.Errorf("lock %v is left", lock)
	}
	p.taken[file] = nil // somebody removed ours, too
	run("can't rollback, snapshot 's1' does not exist on 'tank:vm-102-disk-0'", "POST", at+"/snapshot/s1/rollback", "")
	p.taken[file] = []string{"s1"}
	run("OK", "POST", at+"/snapshot/s1/rollback", "")

	p.down = errors.New("zfs error: cannot create snapshot 'rpool/pve1/vm-102-disk-0@s2': out of space")
	run(p.down.Error(), "POST", at+"/snapshot", "snapname=s2")
	if status := n.object("/nodes/pve1/storage/tank/status"); status["active"] != 0.0 {
		t.Errorf("a pool that does not answer: %v", status)
	}
	p.down = nil
	if status := n.object("/nodes/pve1/storage/tank/status"); status["active"] != 1.0 || status["total"] != 1000.0 || status["avail"] != 900.0 || status["used"] != 100.0 {
		t.Errorf("%v", status)
	}
	if pool := n.object("/storage/tank")["pool"]; pool != "rpool" {
		t.Errorf("pool %v", pool)
	}
	run("OK", "DELETE", at+"/snapshot/s1", "")
}

// A template's volumes get another name and path, and only they can be linked to.
func TestPoolTemplate(t *testing.T) {
	n, p := newPool(t)
	const at = "/nodes/pve1/qemu/102"
	for _, c := range []struct{ path, form string }{
		{"/nodes/pve1/qemu", "vmid=102&memory=64&scsi0=tank:1&scsi1=tank:2"},
		{at + "/template", ""},
		{at + "/clone", "newid=103"},
	} {
		if st := n.run("POST", c.path, c.form); st != "OK" {
			t.Fatalf("%s: %q", c.path, st)
		}
	}
	const base, old = "/pool/pve1/base-102-disk-0/raw", "/pool/pve1/vm-102-disk-0/raw"
	if p.bases[base] != old || len(p.bases) != 2 {
		t.Errorf("bases: %q", p.bases)
	}
	if got := n.object("/nodes/pve1/qemu/103/config")["scsi1"]; got != "tank:base-102-disk-1/vm-103-disk-1,size=2G" {
		t.Errorf("the clone's disk: %v", got)
	}
	if st := n.run("DELETE", at, ""); !strings.Contains(st, "base volume 'tank:base-102-disk-0' is still in use by linked cloned") {
		t.Errorf("the template with a clone: %q", st)
	}
	for _, vm := range []string{"103", "102"} {
		if st := n.run("DELETE", "/nodes/pve1/qemu/"+vm, ""); st != "OK" {
			t.Errorf("destroy %s: %q", vm, st)
		}
	}
	if left := n.mem.Paths(); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
}

// Disks that know no pools cannot serve one.
func TestPoolNeedsDisks(t *testing.T) {
	for _, st := range []pve.Storage{
		{ID: "tank", Type: "zfspool", Pool: "rpool", Path: "/pool"},
		{ID: "tank", Pool: "rpool", Path: "/pool"},
	} {
		cfg := config(t.TempDir(), memory.New())
		cfg.Storages = []pve.Storage{st}
		if _, err := pve.New(cfg); err == nil || !strings.Contains(err.Error(), "rpool") {
			t.Errorf("%+v: %v", st, err)
		}
	}
}
