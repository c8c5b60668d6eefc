package zfs

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"savepoint/orchestrator"
	"savepoint/testbed/pve"
	"savepoint/testbed/qemu"
)

// The disks of a cluster of two nodes in one pool, with each kind of copy, and
// what they say when something is not as it should be.
func TestLabDisks(t *testing.T) {
	p, d := labDisks(t)
	ctx := t.Context()
	for _, g := range []string{"pve1", "pve2", "pve1"} {
		ok(t, p.Group(ctx, g))
	}
	at := func(volume string) pve.Disk { return pve.Disk{Path: p.File(volume), Format: "raw"} }
	size := func(disk pve.Disk, want int64) {
		t.Helper()
		virtual, used, err := d.Size(ctx, disk)
		if err != nil || virtual != want || used > virtual+1<<20 {
			t.Errorf("%s: %d bytes, %d used, want %d: %v", disk.Path, virtual, used, want, err)
		}
	}
	content := func(disk pve.Disk, want string) {
		t.Helper()
		if got := read(t, disk.Path); got != want {
			t.Errorf("%s: %q, want %q", disk.Path, got, want)
		}
	}
	one := at("pve1/vm-100-disk-0")
	ok(t, d.Create(ctx, one, 1<<20))
	write(t, one.Path, "old")
	ok(t, d.Snapshot(ctx, one, "s1"))
	write(t, one.Path, "new")
	ok(t, d.Resize(ctx, one, 2<<20))
	size(one, 2<<20)
	if err := d.Resize(ctx, one, 1<<20); err == nil {
		t.Error("it was shrunk")
	}

	copied, elsewhere := at("pve1/vm-101-disk-0"), at("pve2/vm-102-disk-0")
	ok(t, d.Copy(ctx, one, "s1", copied))
	content(copied, "old")
	size(copied, 1<<20)
	ok(t, d.Copy(ctx, one, "", elsewhere))
	content(elsewhere, "new")
	outside := pve.Disk{Path: filepath.Join(t.TempDir(), "out.qcow2"), Format: "qcow2"}
	ok(t, d.Copy(ctx, one, "s1", outside))
	back := at("pve2/vm-103-disk-0")
	ok(t, d.Copy(ctx, outside, "", back))
	content(back, "old")

	// Twice, as after a crash in the middle.
	base, linked := at("pve1/base-100-disk-0"), at("pve1/vm-104-disk-0")
	ok(t, d.Base(ctx, one, base.Path))
	ok(t, d.Base(ctx, one, base.Path))
	ok(t, d.Link(ctx, base, linked))
	content(linked, "new")
	if names, err := d.Snapshots(ctx, base); err != nil || !slices.Equal(names, []string{"s1", baseName}) {
		t.Errorf("%q, %v", names, err)
	}
	if err := d.Remove(ctx, base); !errors.Is(err, ErrClones) {
		t.Errorf("%v, want that it has clones", err)
	}
	if err := d.Link(ctx, outside, at("pve1/vm-105-disk-0")); err == nil || !strings.Contains(err.Error(), "full copy") {
		t.Errorf("a link to a file: %v", err)
	}

	iso := at("pve1/vm-104-cloudinit")
	for _, name := range []string{"one", "two"} {
		ok(t, d.ISO(ctx, iso, "cidata", map[string][]byte{"user-data": []byte(name)}))
	}
	if raw, err := os.ReadFile(iso.Path); err != nil || !strings.Contains(string(raw), "two") {
		t.Errorf("the cloud-init drive: %v", err)
	}
	for what, tt := range map[string]struct {
		got   error
		class error
		text  string
	}{
		"create":   {d.Create(ctx, base, 1), orchestrator.ErrExists, "zfs error: cannot create 'sptest/pve1/base-100-disk-0': dataset already exists"},
		"snapshot": {d.Snapshot(ctx, base, "s1"), orchestrator.ErrExists, "zfs error: cannot create snapshot 'sptest/pve1/base-100-disk-0@s1': dataset already exists"},
		"delete":   {d.DeleteSnapshot(ctx, base, "s2"), orchestrator.ErrNotFound, "zfs error: "},
		"revert":   {d.Revert(ctx, base, "s1"), nil, "more recent snapshots exist (" + baseName + ")"},
		"no group": {d.Create(ctx, at("pve9/vm-100-disk-0"), 1), orchestrator.ErrNotFound, "zfs error: cannot create 'sptest/pve9/vm-100-disk-0'"},
	} {
		if tt.got == nil || tt.class != nil && !errors.Is(tt.got, tt.class) || !strings.Contains(tt.got.Error(), tt.text) || strings.Contains(tt.got.Error(), "\n") {
			t.Errorf("%s: %v, want %v, %q", what, tt.got, tt.class, tt.text)
		}
	}
	used, free, err := d.Usage(ctx, filepath.Dir(filepath.Dir(filepath.Dir(one.Path)))+"/pve1")
	if err != nil || used == 0 || free < 64<<20 {
		t.Errorf("used %d, free %d: %v", used, free, err)
	}
	if _, _, err := d.Usage(ctx, "/etc"); err == nil {
		t.Error("usage of another directory")
	}

	// What an owner left that was killed while it copied goes at the next start.
	ok(t, p.Clone(ctx, "pve1/base-100-disk-0", "s1", "pve1/"+copyPrefix+"base-100-disk-0"))
	images, err := qemu.NewImages("")
	ok(t, err)
	d, err = NewDisks(ctx, p, images)
	ok(t, err)
	for _, disk := range []pve.Disk{linked, base, copied, elsewhere, back, iso, iso} {
		ok(t, d.Remove(ctx, disk))
	}
	if left, err := p.Volumes(ctx); err != nil || len(left) > 0 {
		t.Errorf("left: %q, %v", left, err)
	}
}
