package proxmox_test

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"savepoint/orchestrator"
	"savepoint/testbed/conformance"
	"savepoint/testbed/pve"
	"savepoint/testbed/qemu"
)

// realLab is a cluster whose VMs are processes of QEMU with images on disk.
// Nothing is installed on them, so that they are there at once: what a guest
// keeps in memory is tested where guests boot, in orchestrator/sshexec and
// testbed/qemu.
func realLab(t *testing.T) (l *lab, dir string) {
	t.Helper()
	if os.Getenv("SAVEPOINT_LAB") != "1" {
		t.Skip("runs QEMU: set SAVEPOINT_LAB=1")
	}
	images, err := qemu.NewImages("")
	if err != nil {
		t.Fatal(err)
	}
	machines, err := qemu.New(t.Context(), qemu.Config{
		Dir: filepath.Join(t.TempDir(), "run"), Images: images, Notice: func(s string) { t.Log(s) },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := machines.Close(); err != nil {
			t.Error(err)
		}
	})
	l = startLab(t, version("9.2"), func(c *pve.Config) {
		c.Machines, c.Disks, c.LockTimeout = machines, images, 0
		dir = c.Dir
	})
	return l.withTemplate(), dir
}

// imageCell is the first sector of a VM's disk. Nobody else may write into the
// image of a running VM, so it is off meanwhile.
func imageCell(l *lab, dir string, r orchestrator.VMRequest) conformance.Cell {
	image := func() (path string, err error) {
		err = filepath.WalkDir(dir, func(p string, _ fs.DirEntry, err error) error {
			if filepath.Base(p) == fmt.Sprintf("vm-%d-disk-0.qcow2", r.VM.ID) {
				path = p
			}
			return err
		})
		if err == nil && path == "" {
			err = fmt.Errorf("vm %d has no disk below %s", r.VM.ID, dir)
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
				err = os.WriteFile(sector, append([]byte(content), make([]byte, 512-len(content))...), 0o600)
			}
			if err == nil {
				err = tool(ctx, "qemu-io", "-f", "qcow2", "-c", "write -s "+sector+" 0 512", path)
			}
			if err == nil && st.Running {
				err = l.cluster.VMs().Start(ctx, r)
			}
			return err
		},
		Read: func(ctx context.Context) (string, error) {
			path, err := image()
			if err == nil {
				err = tool(ctx, "qemu-img", "dd", "-U", "-f", "qcow2", "-O", "raw", "bs=512", "count=1", "if="+path, "of="+sector)
			}
			if err != nil {
				return "", err
			}
			got, err := os.ReadFile(sector)
			return string(bytes.TrimRight(got, "\x00")), err
		},
	}
}

// Snapshots of real images below running machines.
func TestQEMUSnapshotterConformance(t *testing.T) {
	l, dir := realLab(t)
	conformance.Snapshotter(t, func(t *testing.T) conformance.SnapshotSubject {
		r := l.sandbox()
		t.Cleanup(func() { // a process each
			if err := l.cluster.VMs().Stop(context.WithoutCancel(t.Context()), r); err != nil {
				t.Error(err)
			}
		})
		return conformance.SnapshotSubject{
			Snapshotter: l.cluster.Snapshots(), VM: r.VM, Sandbox: r.Sandbox, Absent: l.newVM(), Disk: imageCell(l, dir, r),
			Running: func(ctx context.Context) (bool, error) {
				st, err := l.cluster.VMs().Status(ctx, r.VM)
				return st.Running, err
			},
			Start: func(ctx context.Context) error { return l.cluster.VMs().Start(ctx, r) },
			Stop:  func(ctx context.Context) error { return l.cluster.VMs().Stop(ctx, r) },
		}
	}, conformance.SnapshotCaps{Tasks: true, Descriptions: true, Rounds: 3, Timeout: 2 * time.Minute})
}

// Machines that are processes, on linked and full copies of real images.
func TestQEMUHypervisorConformance(t *testing.T) {
	l, _ := realLab(t)
	conformance.Hypervisor(t, func(*testing.T) conformance.HypervisorSubject {
		return conformance.HypervisorSubject{
			Hypervisor: l.cluster.VMs(), Template: templateVM, Foreign: orchestrator.VMRef{Node: labNode, ID: foreignID},
			NewVM: l.newVM, NewSandbox: l.newSandbox, NewAddress: l.newAddress,
		}
	}, conformance.HypervisorCaps{Tasks: true, Timeout: 2 * time.Minute})
}
