package zfs

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"savepoint/orchestrator"
	driver "savepoint/proxmox/zfs"
	"savepoint/testbed/guest"
	"savepoint/testbed/pve"
	"savepoint/testbed/qemu"
)

// machine is a real guest whose root is a qcow2 file and whose scsi1 is a volume.
type machine struct {
	t        *testing.T
	machines *qemu.Machines
	cfg      qemu.Config
	vm       pve.Machine
}

func boot(t *testing.T, d *Disks, volume pve.Disk) *machine {
	t.Helper()
	cache, err := guest.CacheDir()
	ok(t, err)
	img, err := guest.Build(t.Context(), guest.Options{CacheDir: cache, Progress: func(s string) { t.Log(s) }})
	ok(t, err)
	accel, err := qemu.Accel(t.Context(), qemu.Probe{Kernel: img.Kernel, Initrd: img.Initrd, CacheDir: cache})
	ok(t, err)
	images := d.Disks.(*qemu.Images)
	dir := t.TempDir()
	m := &machine{t: t, cfg: qemu.Config{Dir: filepath.Join(dir, "run"), Accel: accel, Images: images, Volumes: d, Notice: func(s string) { t.Log(s) }}}
	m.machines, err = qemu.New(t.Context(), m.cfg)
	ok(t, err)
	t.Cleanup(func() { ok(t, m.machines.Close()) })
	root := pve.Disk{Slot: "scsi0", Path: filepath.Join(dir, "root.qcow2"), Format: "qcow2"}
	ok(t, images.Link(t.Context(), pve.Disk{Path: img.Path, Format: "qcow2"}, root))
	m.vm = pve.Machine{VMID: 101, Name: "vm", MemoryMiB: 512, Cores: 1, BootSlot: "scsi0", Agent: true, Disks: []pve.Disk{root, volume}}
	ok(t, m.machines.Start(t.Context(), m.vm))
	return m
}

// dev is how the guest calls the disk of scsi1: what it finds first differs.
func (m *machine) dev() string {
	m.t.Helper()
	return "/dev/" + m.sh("ls /sys/bus/scsi/devices/*:0:1:0/block")
}

// sh runs a shell text in the guest, over its agent, as soon as that answers.
func (m *machine) sh(script string) string {
	m.t.Helper()
	ctx, cancel := context.WithTimeout(m.t.Context(), 3*time.Minute)
	defer cancel()
	ask := func(command string, args, into any) error {
		raw, err := m.machines.Agent(ctx, m.vm.VMID, command, args)
		if err != nil {
			return err
		}
		return json.Unmarshal(raw, into)
	}
	tick := time.NewTicker(30 * time.Millisecond)
	defer tick.Stop()
	var started struct{ PID int }
	for ask("guest-exec", map[string]any{"path": "/bin/sh", "arg": []string{"-c", script}, "capture-output": true}, &started) != nil {
		if ctx.Err() != nil {
			m.t.Fatalf("no agent; console: %s", m.machines.Console(m.vm.VMID))
		}
		<-tick.C
	}
	for {
		var st struct {
			Exited   bool
			ExitCode int
			Out      []byte `json:"out-data"`
			Err      []byte `json:"err-data"`
		}
		ok(m.t, ask("guest-exec-status", map[string]int{"pid": started.PID}, &st))
		if st.Exited {
			if st.ExitCode != 0 {
				m.t.Fatalf("%s: %d: %s%s", script, st.ExitCode, st.Out, st.Err)
			}
			return strings.TrimSpace(string(st.Out))
		}
		<-tick.C
	}
}

func labDisks(t *testing.T) (*Pool, *Disks) {
	t.Helper()
	p, _ := lab(t)
	images, err := qemu.NewImages("")
	ok(t, err)
	d, err := NewDisks(t.Context(), p, images)
	ok(t, err)
	return p, d
}

// workspace is the guest's side of a workspace: the volume at /mnt.
type workspace struct {
	*machine
	dev string
}

func (w workspace) Freeze(context.Context, orchestrator.Sandbox, time.Duration) error {
	w.sh("fsfreeze -f /mnt")
	return nil
}

func (w workspace) Thaw(context.Context, orchestrator.Sandbox) error {
	w.sh("fsfreeze -u /mnt || true")
	return nil
}

func (w workspace) Unmount(context.Context, orchestrator.Sandbox) error {
	w.sh("! mountpoint -q /mnt || umount /mnt")
	return nil
}

func (w workspace) Mount(context.Context, orchestrator.Sandbox) error {
	w.sh("mountpoint -q /mnt || mount " + w.dev + " /mnt")
	return nil
}

// Fifty times a workspace is snapshotted, damaged and restored by the driver
// while its guest runs and the volume stays attached: every time the guest sees
// what was there at the snapshot, file by file and, past its own cache, byte by
// byte (F20, F33).
func TestLabRunningGuest(t *testing.T) {
	p, d := labDisks(t)
	ok(t, p.Group(t.Context(), "pve1"))
	const name = "pve1/vm-101-disk-1"
	vol := pve.Disk{Slot: "scsi1", Path: p.File(name), Format: "raw"}
	ok(t, d.Create(t.Context(), vol, 16<<20))
	m := boot(t, d, vol)
	dev := m.dev()
	m.sh("mkfs.ext4 -q " + dev + " && mount " + dev + " /mnt && mkdir /mnt/kept")
	box := orchestrator.Sandbox{ID: "01jx0000000000000000000001", Name: "dev", VM: orchestrator.VMRef{Node: "pve1", ID: 101}, Workspace: p.Dataset(name)}
	s, err := driver.New(driver.Config{
		Instance: "lab", Guest: workspace{m, dev}, Reserve: 8 << 20,
		Node: driver.NewClient(func(ctx context.Context, node string, request []byte) ([]byte, error) {
			var out bytes.Buffer
			if exit, err := p.Forced(ctx, node, bytes.NewReader(request), &out); exit != 0 || err != nil {
				return nil, fmt.Errorf("exit code %d: %w", exit, err)
			}
			return out.Bytes(), nil
		}),
		Sandbox: func(context.Context, orchestrator.VMRef) (orchestrator.Sandbox, error) { return box, nil },
	})
	ok(t, err)
	ok(t, s.Claim(t.Context(), box))
	for i := range 50 {
		r := orchestrator.SnapshotRequest{Sandbox: box.ID, VM: box.VM, Name: orchestrator.SnapshotName(fmt.Sprintf("sp-%d", i))}
		m.sh(fmt.Sprintf("echo round %d > /mnt/file; head -c 60000 /dev/urandom > /mnt/kept/%d", i, i%5))
		const look = "cd /mnt; cat file; find . -type f | sort | xargs sha256sum | sha256sum"
		want := m.sh(look)
		ok(t, s.Create(t.Context(), r))
		m.sh("rm -rf /mnt/kept; echo damage > /mnt/file; tr '\\000' D < /dev/zero | head -c 1000000 > /mnt/filler; sync")
		ok(t, s.Rollback(t.Context(), r))
		if got := m.sh(look); got != want || !strings.HasPrefix(got, fmt.Sprintf("round %d\n", i)) {
			t.Fatalf("round %d: %q, want %q", i, got, want)
		}
		ok(t, s.Delete(t.Context(), r))
	}
	// The same without a file system, whose own cache could hide something.
	m.sh("umount /mnt")
	whole := "dd if=" + dev + " bs=1M iflag=direct 2>/dev/null | sha256sum"
	want := m.sh(whole)
	ok(t, p.Snapshot(t.Context(), name, "base"))
	for i := range 5 {
		m.sh(fmt.Sprintf("tr '\\000' B < /dev/zero | dd of=%s bs=1M count=%d seek=%d iflag=fullblock oflag=direct 2>/dev/null", dev, 3+i, i))
		if got := m.sh(whole); got == want {
			t.Fatal("there is no damage")
		}
		ok(t, d.Revert(t.Context(), vol, "base"))
		if got := m.sh(whole); got != want {
			t.Fatalf("raw round %d: %s, want %s", i, got, want)
		}
	}
}

// A pool that is full stops the guest that wrote, as a node's does: nothing is
// lost, no snapshot is half there, and with room it goes on where it was (F76).
func TestLabFullPool(t *testing.T) {
	p, d := labDisks(t)
	ctx := t.Context()
	ok(t, p.Group(ctx, "pve1"))
	const name = "pve1/vm-101-disk-1"
	vol := pve.Disk{Slot: "scsi1", Path: p.File(name), Format: "raw"}
	state := pve.Disk{Path: p.File("pve1/vm-101-state-one"), Format: "raw"}
	for _, disk := range []pve.Disk{vol, state} {
		ok(t, d.Create(ctx, disk, 256<<20))
	}
	ok(t, p.Create(ctx, "ballast", 0))
	ballast, err := os.OpenFile(p.File("ballast"), os.O_WRONLY, 0)
	ok(t, err)
	block := make([]byte, 1<<20)
	for range 90 {
		_, err := ballast.Write(block)
		ok(t, err)
	}
	ok(t, ballast.Close())
	m := boot(t, d, vol)
	dev := m.dev()
	m.sh("nohup sh -c \"tr '\\\\000' X < /dev/zero | dd of=" + dev + " bs=64k count=640 iflag=fullblock oflag=direct; echo done > /run/done\" > /dev/null 2>&1 &")
	for deadline := time.Now().Add(5 * time.Minute); !m.machines.Status(101).Paused; {
		if time.Now().After(deadline) {
			t.Fatal("the guest was not stopped")
		}
		_, err := p.Usage(ctx, "")
		ok(t, err)
	}
	for what, err := range map[string]error{
		"disk":   m.machines.Snapshot(ctx, 101, "one", ""),
		"memory": m.machines.Snapshot(ctx, 101, "one", state.Path),
	} {
		if err == nil || !strings.Contains(err.Error(), "zfs error: cannot create snapshot") || !strings.Contains(err.Error(), "out of space") {
			t.Errorf("%s snapshot: %v, want what a full pool says", what, err)
		}
	}
	if all, err := p.Snapshots(ctx, name); err != nil || len(all) != 0 {
		t.Errorf("%v, left: %v", err, all)
	}
	if !m.machines.Status(101).Paused {
		t.Error("the guest was let go")
	}
	ok(t, p.Destroy(ctx, "ballast"))
	ok(t, m.machines.Resume(ctx, 101))
	m.sh("i=0; while [ ! -e /run/done ] && [ $i -lt 600 ]; do sleep 0.2; i=$((i+1)); done; cat /run/done")
	if got := m.sh("dd if=" + dev + " bs=64k count=640 iflag=direct 2>/dev/null | tr -d X | wc -c"); got != "0" {
		t.Errorf("%s bytes are wrong", got)
	}
	ok(t, m.machines.Snapshot(ctx, 101, "one", ""))
}
