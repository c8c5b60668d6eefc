package proxmox_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"savepoint/orchestrator"
	"savepoint/testbed/conformance"
	"savepoint/testbed/guest"
	"savepoint/testbed/pve"
	"savepoint/testbed/qemu"
)

// real is a cluster whose VMs are processes of QEMU with images on disk.
type real struct {
	*lab
	dir      string // of the images
	pool     *pool  // nil: they are files
	machines *qemu.Machines
}

// realLab makes one. Without a system nothing is installed on its VMs, so that
// they are there at once. With a pool its disks are there.
func realLab(t *testing.T, system *guest.Image, accel qemu.Accelerator, p *pool) *real {
	t.Helper()
	images, err := qemu.NewImages("")
	if err != nil {
		t.Fatal(err)
	}
	r := &real{pool: p}
	cfg := qemu.Config{Dir: filepath.Join(t.TempDir(), "run"), Images: images, Accel: accel, Notice: func(s string) { t.Log(s) }}
	if p != nil {
		cfg.Volumes = p.disks
	}
	r.machines, err = qemu.New(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.machines.Close(); err != nil {
			t.Error(err)
		}
	})
	r.lab = startLab(t, version("9.2"), func(c *pve.Config) {
		c.Machines, c.Disks, c.LockTimeout = r.machines, images, 0
		if system != nil {
			c.Disks, c.AgentTimeout = installed{images, pve.Disk{Path: system.Path, Format: "qcow2"}}, 0
		}
		if r.dir = c.Dir; p != nil {
			p.serve(c, system)
		}
	})
	r.withTemplate()
	return r
}

// guestLab is one whose VMs run the lab's guest.
func guestLab(t *testing.T, p *pool) *real {
	t.Helper()
	cache, err := guest.CacheDir()
	if err != nil {
		t.Fatal(err)
	}
	img, err := guest.Build(t.Context(), guest.Options{CacheDir: cache, Progress: func(s string) { t.Log(s) }})
	if err != nil {
		t.Fatal(err)
	}
	accel, err := qemu.Accel(t.Context(), qemu.Probe{Kernel: img.Kernel, Initrd: img.Initrd, CacheDir: cache})
	if err != nil {
		t.Fatal(err)
	}
	return realLab(t, &img, accel, p)
}

// installed are images that have a system on them when they are new, without
// the time that a copy takes. A raw one is for saved memory.
type installed struct {
	*qemu.Images
	system pve.Disk
}

func (i installed) Create(ctx context.Context, d pve.Disk, size int64) error {
	if d.Format != i.system.Format {
		return i.Images.Create(ctx, d, size)
	}
	return i.Link(ctx, i.system, d)
}

// vm is a running VM that is ended with the test: a process each.
func (l *real) vm(t *testing.T) orchestrator.VMRequest {
	t.Helper()
	r := l.sandbox()
	t.Cleanup(func() {
		if err := l.cluster.VMs().Stop(context.WithoutCancel(t.Context()), r); err != nil {
			t.Error(err)
		}
	})
	return r
}

// subject is a VM whose disk is written while it is off.
func (l *real) subject(r orchestrator.VMRequest) conformance.SnapshotSubject {
	return conformance.SnapshotSubject{
		Snapshotter: l.cluster.Snapshots(), VM: r.VM, Sandbox: r.Sandbox, Absent: l.newVM(), Disk: l.imageCell(r),
		Running: func(ctx context.Context) (bool, error) {
			st, err := l.cluster.VMs().Status(ctx, r.VM)
			return st.Running, err
		},
		Start: func(ctx context.Context) error { return l.cluster.VMs().Start(ctx, r) },
		Stop:  func(ctx context.Context) error { return l.cluster.VMs().Stop(ctx, r) },
	}
}

// The guest's way to the sector of imageCell, past its own cache.
const writeSector = "dd of=/dev/sda bs=512 seek=64 count=1 iflag=fullblock oflag=direct conv=notrunc,fsync 2>&1"

// guestSubject is a VM with a guest that runs: memory is a file that no disk
// has, the marker one on its disk, and what its disk holds is written by the
// guest and read from the image.
func (l *real) guestSubject(r orchestrator.VMRequest) conformance.SnapshotSubject {
	s := l.subject(r)
	cell := func(write, read string) conformance.Cell {
		return conformance.Cell{
			Write: func(ctx context.Context, text string) error {
				_, err := l.inGuest(ctx, r.VM.ID, write, text)
				return err
			},
			Read: func(ctx context.Context) (string, error) { return l.inGuest(ctx, r.VM.ID, read, "") },
		}
	}
	s.Memory = cell(`[ "$(stat -f -c %T /run)" = tmpfs ] && cat > /run/cell`, "cat /run/cell")
	s.Marker = cell("cat > /root/marker && sync", "cat /root/marker")
	s.Disk.Write = func(ctx context.Context, text string) error {
		_, err := l.inGuest(ctx, r.VM.ID, writeSector, string(padded(text)))
		return err
	}
	return s
}

// inGuest runs a shell text with an input, over the guest agent, as soon as
// that answers.
func (l *real) inGuest(ctx context.Context, vm orchestrator.VMID, script, input string) (string, error) {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	ask := func(command string, args, into any) error {
		raw, err := l.machines.Agent(ctx, int(vm), command, args)
		if err == nil {
			err = json.Unmarshal(raw, into)
		}
		return err
	}
	wait := func() error {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
			return nil
		}
	}
	var started struct{ PID int }
	for {
		err := ask("guest-exec", map[string]any{
			"path": "/bin/sh", "arg": []string{"-c", script}, "capture-output": true,
			"input-data": base64.StdEncoding.EncodeToString([]byte(input)),
		}, &started)
		if err == nil {
			break
		}
		if !errors.Is(err, orchestrator.ErrUnavailable) || wait() != nil { // it has not begun
			return "", fmt.Errorf("in vm %d: %w\nconsole: %s", vm, err, l.machines.Console(int(vm)))
		}
	}
	for {
		var st struct {
			Exited   bool
			ExitCode int
			Out      []byte `json:"out-data"`
			Err      []byte `json:"err-data"`
		}
		if err := ask("guest-exec-status", map[string]any{"pid": started.PID}, &st); err != nil {
			return "", err
		}
		if st.Exited {
			if st.ExitCode != 0 {
				return "", fmt.Errorf("in vm %d, %q: exit code %d: %s%s", vm, script, st.ExitCode, st.Out, st.Err)
			}
			return string(st.Out), nil
		}
		if err := wait(); err != nil {
			return "", err
		}
	}
}

func padded(text string) []byte { return append([]byte(text), make([]byte, 512-len(text))...) }

// imageCell is one sector of a VM's disk, between the partition table and the
// first partition. Nobody else may write into the image of a running VM, so it
// is off meanwhile.
func (l *real) imageCell(r orchestrator.VMRequest) conformance.Cell {
	format := "qcow2"
	if l.pool != nil {
		format = "raw"
	}
	image := func() (path string, err error) {
		if l.pool != nil {
			return l.pool.file(r.VM.ID), nil
		}
		err = filepath.WalkDir(l.dir, func(p string, _ fs.DirEntry, err error) error {
			if filepath.Base(p) == fmt.Sprintf("vm-%d-disk-0.qcow2", r.VM.ID) {
				path = p
			}
			return err
		})
		if err == nil && path == "" {
			err = fmt.Errorf("vm %d has no disk below %s", r.VM.ID, l.dir)
		}
		return path, err
	}
	tool := func(ctx context.Context, args ...string) error {
		out, err := exec.CommandContext(ctx, args[0], args[1:]...).CombinedOutput()
		if err != nil {
			return fmt.Errorf("%s: %w: %s", args[0], err, out)
		}
		return nil
	}
	sector := filepath.Join(l.t.TempDir(), "sector")
	return conformance.Cell{
		Write: func(ctx context.Context, content string) error {
			path, err := image()
			if err != nil {
				return err
			}
			st, err := l.cluster.VMs().Status(ctx, r.VM)
			if err == nil && st.Running {
				err = l.cluster.VMs().Stop(ctx, r)
			}
			if err == nil {
				err = os.WriteFile(sector, padded(content), 0o600)
			}
			if err == nil {
				err = tool(ctx, "qemu-io", "-f", format, "-c", "write -s "+sector+" 32k 512", path)
			}
			if err == nil && st.Running {
				err = l.cluster.VMs().Start(ctx, r)
			}
			return err
		},
		Read: func(ctx context.Context) (string, error) {
			path, err := image()
			if err == nil { // what is skipped counts
				err = tool(ctx, "qemu-img", "dd", "-U", "-f", format, "-O", "raw", "bs=512", "skip=64", "count=65", "if="+path, "of="+sector)
			}
			if err != nil {
				return "", err
			}
			got, err := os.ReadFile(sector)
			return string(bytes.TrimRight(got, "\x00")), err
		},
	}
}

func onlyInLab(t *testing.T) {
	t.Helper()
	if os.Getenv("SAVEPOINT_LAB") != "1" {
		t.Skip("runs QEMU: set SAVEPOINT_LAB=1")
	}
}

// Snapshots of real images below running machines, and of a real guest's
// memory. F20 F21 F27
func TestQEMUSnapshotterConformance(t *testing.T) {
	onlyInLab(t)
	snapshotsOfReal(t, realLab(t, nil, qemu.Accelerator{}, nil), guestLab(t, nil), false)
}

func snapshotsOfReal(t *testing.T, bare, booted *real, latestOnly bool) {
	t.Helper()
	// The tests that need a guest come last: until then two of them boot.
	ready := []orchestrator.VMRequest{booted.vm(t), booted.vm(t)}
	conformance.Snapshotter(t, func(t *testing.T) conformance.SnapshotSubject { return bare.subject(bare.vm(t)) }, conformance.SnapshotCaps{
		Memory: true, LatestOnly: latestOnly, Marker: true, Tasks: true, Descriptions: true, Rounds: 3, Timeout: 2 * time.Minute,
		Guest: func(t *testing.T) conformance.SnapshotSubject {
			if len(ready) == 0 {
				return booted.guestSubject(booted.vm(t))
			}
			r := ready[0]
			ready = ready[1:]
			return booted.guestSubject(r)
		},
	})
}

// Machines that are processes, on linked and full copies of real images.
func TestQEMUHypervisorConformance(t *testing.T) {
	onlyInLab(t)
	hypervisorOfReal(t, realLab(t, nil, qemu.Accelerator{}, nil))
}

func hypervisorOfReal(t *testing.T, l *real) {
	t.Helper()
	conformance.Hypervisor(t, func(*testing.T) conformance.HypervisorSubject {
		return conformance.HypervisorSubject{
			Hypervisor: l.cluster.VMs(), Template: templateVM, Foreign: orchestrator.VMRef{Node: labNode, ID: foreignID},
			NewVM: l.newVM, NewSandbox: l.newSandbox, NewAddress: l.newAddress,
		}
	}, conformance.HypervisorCaps{Tasks: true, Timeout: 2 * time.Minute})
}
