package zfs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"savepoint/orchestrator"
	driver "savepoint/proxmox/zfs"
	"savepoint/testbed/conformance"
)

func lab(t *testing.T) (*Pool, Config) {
	t.Helper()
	if os.Getenv("SAVEPOINT_LAB") != "1" {
		t.Skip("runs zfs-fuse as root; set SAVEPOINT_LAB=1")
	}
	if err := Require(); err != nil {
		t.Skip(err)
	}
	c := Config{Dir: t.TempDir(), Name: "sptest", Size: 128 << 20}
	p, err := Open(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := Sweep(context.WithoutCancel(t.Context()), c.Dir); err != nil {
			t.Error(err)
		}
		swept(t, c)
	})
	return p, c
}

// swept wants nothing left on the machine.
func swept(t *testing.T, c Config) {
	t.Helper()
	if ours, foreign, err := c.daemon(); ours != 0 || foreign != 0 || err != nil {
		t.Errorf("a daemon is left: %d %d %v", ours, foreign, err)
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil || bytes.Contains(mounts, []byte(c.Dir)) {
		t.Errorf("mounts are left: %v", err)
	}
	for _, path := range []string{c.image(), c.noteFile(), c.mounts(), c.pidFile(), filepath.Join(runDir, "zfs_socket"), filepath.Join(libDir, "zpool.cache")} {
		if _, err := os.Lstat(path); err == nil {
			t.Errorf("%s is left", path)
		}
	}
}

func write(t *testing.T, file, text string) {
	t.Helper()
	f, err := os.OpenFile(file, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.WriteAt([]byte(text+"\n"), 0)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, file string) string {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	buf := make([]byte, 4096)
	if _, err := f.ReadAt(buf, 0); err != nil {
		t.Fatal(err)
	}
	text, _, _ := strings.Cut(string(buf), "\n")
	return text
}

func ok(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Fifty times damage and rollback, each exact, with the pool no larger (F33), and
// each kind of refusal by a real zfs.
func TestLabCycles(t *testing.T) {
	p, c := lab(t)
	ctx := t.Context()
	ok(t, p.Create(ctx, "vm-104-disk-1", 8<<20))
	file := p.File("vm-104-disk-1")
	write(t, file, "start")
	ok(t, p.Snapshot(ctx, "vm-104-disk-1", "base"))
	var before Usage
	for i := range 50 {
		write(t, file, fmt.Sprintf("damage %d, and more than before", i))
		ok(t, p.Rollback(ctx, "vm-104-disk-1", "base"))
		if got := read(t, file); got != "start" {
			t.Fatalf("round %d: %q", i, got)
		}
		u, err := p.Usage(ctx, "")
		ok(t, err)
		if i == 5 {
			before = u
		}
		if i == 49 && u.Used > before.Used+1<<20 {
			t.Errorf("grew from %d to %d bytes", before.Used, u.Used)
		}
	}
	ok(t, p.Snapshot(ctx, "vm-104-disk-1", "z-second"))
	ok(t, p.Snapshot(ctx, "vm-104-disk-1", "a-third"))
	var newer *NewerError
	if err := p.Rollback(ctx, "vm-104-disk-1", "base"); !errors.As(err, &newer) || !slices.Equal(newer.Newer, []string{"z-second", "a-third"}) {
		t.Errorf("%v", err)
	}
	ok(t, p.Clone(ctx, "vm-104-disk-1", "a-third", "vm-105-disk-1"))
	if got := read(t, p.File("vm-105-disk-1")); got != "start" {
		t.Errorf("the clone has %q", got)
	}
	for what, tt := range map[string]struct{ got, want error }{
		"create twice":         {p.Create(ctx, "vm-104-disk-1", 1), ErrExists},
		"snapshot twice":       {p.Snapshot(ctx, "vm-104-disk-1", "base"), ErrExists},
		"snapshot of nothing":  {p.Snapshot(ctx, "none", "base"), ErrNotFound},
		"rollback to nothing":  {p.Rollback(ctx, "vm-104-disk-1", "none"), ErrNotFound},
		"delete nothing":       {p.DeleteSnapshot(ctx, "vm-104-disk-1", "none"), ErrNotFound},
		"delete a clone's":     {p.DeleteSnapshot(ctx, "vm-104-disk-1", "a-third"), ErrClones},
		"destroy with a clone": {p.Destroy(ctx, "vm-104-disk-1"), ErrClones},
	} {
		if !errors.Is(tt.got, tt.want) {
			t.Errorf("%s: %v, want %v", what, tt.got, tt.want)
		}
	}
	for i := range 10 {
		from, to := fmt.Sprintf("vm-105-disk-%d", i+1), fmt.Sprintf("vm-105-disk-%d", i+2)
		ok(t, p.Rename(ctx, from, to))
		if got := read(t, p.File(to)); got != "start" {
			t.Fatalf("renamed to %s: %q", to, got)
		}
	}
	ok(t, p.Destroy(ctx, "vm-105-disk-11"))
	ok(t, p.DeleteSnapshot(ctx, "vm-104-disk-1", "a-third"))
	all, err := p.Snapshots(ctx, "vm-104-disk-1")
	if err != nil || len(all) != 2 || all[0].Name != "base" || time.Since(all[0].Taken).Abs() > time.Hour {
		t.Errorf("%v %+v", err, all)
	}
	// A clean stop keeps everything for the next start.
	ok(t, p.Close(ctx))
	if ours, _, err := c.daemon(); ours != 0 || err != nil {
		t.Errorf("the daemon runs: %v", err)
	}
	p, err = Open(ctx, c)
	ok(t, err)
	names, err := p.Volumes(ctx)
	if err != nil || !slices.Equal(names, []string{"vm-104-disk-1"}) || read(t, p.File("vm-104-disk-1")) != "start" {
		t.Errorf("%v %q", err, names)
	}
}

// A volume that somebody has open keeps the pool from being stopped, and it runs on.
func TestLabBusy(t *testing.T) {
	p, _ := lab(t)
	ok(t, p.Create(t.Context(), "v", 1<<20))
	f, err := os.Open(p.File("v"))
	ok(t, err)
	if err := p.Close(t.Context()); !errors.Is(err, ErrBusy) {
		t.Errorf("%v, want ErrBusy", err)
	}
	ok(t, f.Close())
	ok(t, p.mount(t.Context()))
	ok(t, p.Snapshot(t.Context(), "v", "still"))
	ok(t, p.Close(t.Context()))
}

// A second daemon on the machine is refused with the first one's id. A daemon
// whose owner is gone is taken over. One that was killed leaves its mounts dead:
// the next start has everything that was synced, and a sweep leaves nothing.
func TestLabKilled(t *testing.T) {
	p, c := lab(t)
	ctx := t.Context()
	ok(t, p.Create(ctx, "v", 1<<20))
	write(t, p.File("v"), "kept")
	ok(t, p.Snapshot(ctx, "v", "a"))

	pid, _, err := c.daemon()
	ok(t, err)
	other := Config{Dir: t.TempDir(), Name: "other", Size: MinSize}
	var foreign *ForeignError
	if _, err := Open(ctx, other); !errors.As(err, &foreign) || foreign.PID != pid {
		t.Errorf("%v, want another daemon with pid %d", err, pid)
	}
	ok(t, Sweep(ctx, other.Dir))
	p, err = Open(ctx, c)
	ok(t, err)
	if again, _, err := c.daemon(); again != pid || err != nil {
		t.Errorf("pid %d became %d: %v", pid, again, err)
	}

	kill(t, c)
	if err := p.Snapshot(ctx, "v", "b"); !errors.Is(err, ErrStopped) {
		t.Errorf("%v, want ErrStopped", err)
	}
	p, err = Open(ctx, c)
	ok(t, err)
	if got := read(t, p.File("v")); got != "kept" {
		t.Errorf("after the crash: %q", got)
	}
	ok(t, p.Rollback(ctx, "v", "a"))
	kill(t, c)
	ok(t, Sweep(ctx, c.Dir))
	swept(t, c)
}

// The mounts that another directory's killed daemon left are not in the way of a
// pool of the same name, and its volumes are still there for its own directory.
func TestLabAnotherKilled(t *testing.T) {
	p, dead := lab(t)
	ctx := t.Context()
	for _, v := range []string{"base-9000-disk-0", "base-9000-disk-1"} {
		ok(t, p.Create(ctx, v, 1<<20))
		write(t, p.File(v), "kept")
	}
	kill(t, dead)

	c := Config{Dir: t.TempDir(), Name: dead.Name, Size: dead.Size}
	t.Cleanup(func() {
		if err := Sweep(context.WithoutCancel(t.Context()), c.Dir); err != nil {
			t.Error(err)
		}
	})
	p, err := Open(ctx, c)
	ok(t, err)
	ok(t, p.Create(ctx, "vm-9000-disk-0", 1<<20))
	ok(t, p.Rename(ctx, "vm-9000-disk-0", "base-9000-disk-0"))
	write(t, p.File("base-9000-disk-0"), "other")
	ok(t, p.Destroy(ctx, "base-9000-disk-0"))
	ok(t, p.Close(ctx))

	p, err = Open(ctx, dead)
	ok(t, err)
	if got := read(t, p.File("base-9000-disk-0")); got != "kept" {
		t.Errorf("the killed daemon's volume has %q", got)
	}
}

// kill ends the directory's daemon as a crash does.
func kill(t *testing.T, c Config) {
	t.Helper()
	pid, _, err := c.daemon()
	ok(t, err)
	fd, err := unix.PidfdOpen(pid, 0)
	ok(t, err)
	defer unix.Close(fd)
	ok(t, unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0))
	_, err = unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, -1)
	ok(t, err)
}

// node has the real program of the driver before the real pool, and a guest that
// keeps its volume in memory until it is told to write it.
type node struct {
	t              *testing.T
	p              *Pool
	dir, volume    string
	memory         string
	dirty, mounted bool
}

func (n *node) exchange(ctx context.Context, _ string, request []byte) ([]byte, error) {
	cmd := exec.CommandContext(ctx, "/bin/sh", filepath.Join(n.dir, "savepoint-zfs"), n.p.c.Name)
	cmd.Stdin = bytes.NewReader(request)
	return cmd.Output()
}

func (n *node) Freeze(context.Context, orchestrator.Sandbox, time.Duration) error {
	if n.dirty {
		write(n.t, n.p.File(n.volume), n.memory)
	}
	n.dirty = false
	return nil
}
func (n *node) Thaw(context.Context, orchestrator.Sandbox) error { return nil }
func (n *node) Unmount(ctx context.Context, sb orchestrator.Sandbox) error {
	n.mounted = false
	return n.Freeze(ctx, sb, 0)
}

func (n *node) Mount(context.Context, orchestrator.Sandbox) error {
	if !n.mounted {
		n.memory, n.mounted = read(n.t, n.p.File(n.volume)), true
	}
	return nil
}

func (n *node) box() orchestrator.Sandbox {
	return orchestrator.Sandbox{ID: "01jx0000000000000000000001", Name: "dev", VM: orchestrator.VMRef{Node: "pve1", ID: 104}, Workspace: n.p.Dataset(n.volume)}
}

func newNode(t *testing.T, p *Pool, volume string) (*node, *driver.Snapshots) {
	t.Helper()
	n := &node{t: t, p: p, dir: t.TempDir(), volume: volume, mounted: true}
	ok(t, os.WriteFile(filepath.Join(n.dir, "savepoint-zfs"), driver.Program, 0o600))
	ok(t, p.Create(t.Context(), volume, 1<<20))
	s, err := driver.New(driver.Config{
		Instance: "lab", Node: driver.NewClient(n.exchange), Guest: n, Reserve: 16 << 20,
		Sandbox: func(_ context.Context, vm orchestrator.VMRef) (orchestrator.Sandbox, error) {
			if vm.ID != 104 {
				return orchestrator.Sandbox{}, orchestrator.ErrNotFound
			}
			return n.box(), nil
		},
	})
	ok(t, err)
	ok(t, s.Claim(t.Context(), n.box()))
	return n, s
}

// The driver of the workspace boundary keeps its contract on a real ZFS.
func TestLabConformance(t *testing.T) {
	p, _ := lab(t)
	count := 0
	conformance.Snapshotter(t, func(t *testing.T) conformance.SnapshotSubject {
		count++
		n, s := newNode(t, p, fmt.Sprintf("vm-104-disk-%d", count))
		t.Cleanup(func() { ok(t, p.Destroy(context.WithoutCancel(t.Context()), n.volume)) })
		cell := conformance.Cell{
			Write: func(_ context.Context, text string) error { n.memory, n.dirty = text, true; return nil },
			Read:  func(context.Context) (string, error) { return n.memory, nil },
		}
		yes := func(context.Context) error { return nil }
		return conformance.SnapshotSubject{
			Snapshotter: s, VM: n.box().VM, Sandbox: n.box().ID, Absent: orchestrator.VMRef{Node: "pve1", ID: 7},
			Disk: cell, Marker: cell, Start: yes, Stop: yes,
			Running: func(context.Context) (bool, error) { return true, nil },
		}
	}, conformance.SnapshotCaps{LatestOnly: true, KeepsRunning: true, Descriptions: true, Marker: true, Timeout: 2 * time.Minute})
}

// On a real ZFS: a foreign snapshot blocks and is named (F70, F73), one that
// inherits our mark is not ours (F121), and a pool that fills up is refused early
// and then says so (F76, F77).
func TestLabForeignAndFull(t *testing.T) {
	p, _ := lab(t)
	ctx := t.Context()
	n, s := newNode(t, p, "v")
	r := orchestrator.SnapshotRequest{Sandbox: n.box().ID, VM: n.box().VM, Name: "sp-one"}
	ok(t, s.Create(ctx, r))
	ok(t, p.Snapshot(ctx, "v", "autosnap_hourly"))
	var newer *orchestrator.NotLatestError
	if err := s.Rollback(ctx, r); !errors.As(err, &newer) || !slices.Equal(newer.Newer, []orchestrator.SnapshotName{"autosnap_hourly"}) {
		t.Errorf("%v", err)
	}
	foreign := r
	foreign.Name = "autosnap_hourly"
	if err := s.Delete(ctx, foreign); !errors.Is(err, orchestrator.ErrDenied) {
		t.Errorf("%v, want ErrDenied", err)
	}
	ok(t, p.DeleteSnapshot(ctx, "v", "autosnap_hourly"))
	ok(t, s.Rollback(ctx, r))

	ok(t, p.Create(ctx, "filler", 0))
	f, err := os.OpenFile(p.File("filler"), os.O_WRONLY, 0)
	ok(t, err)
	defer f.Close()
	fill := func(enough func(Usage) bool) error {
		block := make([]byte, 128<<10)
		for i := range 4096 {
			for j := range block { // nothing that could be compressed or shared
				block[j] = byte(j*j>>3 + i*7)
			}
			if _, err := f.Write(block); err != nil {
				return err
			}
			if i%16 == 15 {
				if err := f.Sync(); err != nil {
					return err
				}
				u, err := p.Usage(ctx, "")
				if err != nil || enough(u) {
					return err
				}
			}
		}
		return errors.New("it does not fill")
	}
	ok(t, fill(func(u Usage) bool { return u.Free < 14<<20 }))
	two := r
	two.Name = "sp-two"
	var full *orchestrator.FullError
	if err := s.Create(ctx, two); !errors.As(err, &full) || !strings.Contains(err.Error(), "bytes are free") {
		t.Errorf("%v, want a full pool", err)
	}
	ok(t, s.Rollback(ctx, r)) // there is room for that
	if err := fill(func(u Usage) bool { return false }); !errors.Is(err, unix.ENOSPC) {
		t.Fatalf("%v, want a full pool", err)
	}
	if err := p.Snapshot(ctx, "v", "more"); !errors.Is(err, ErrFull) {
		t.Errorf("%v, want ErrFull", err)
	}
	if _, err := driver.NewClient(n.exchange).Snapshot(ctx, driver.Target{Node: "pve1", Dataset: n.box().Workspace, Owner: "lab/" + string(n.box().ID)}, "sp-two", "", 0); !errors.As(err, &full) {
		t.Errorf("%v, want a full pool", err)
	}
	ok(t, f.Close())
	ok(t, p.Destroy(ctx, "filler"))
	ok(t, s.Create(ctx, two))
	ok(t, s.Rollback(ctx, two))
}
