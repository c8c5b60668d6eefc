package qemu

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"savepoint/orchestrator"
	"savepoint/testbed/pve"
)

// fakeVolumes are disks below /pool with their snapshots; what is done while the
// VM runs is a mistake.
type fakeVolumes struct {
	qemu  *fakeQEMU
	taken map[string][]string // path → snapshots
	full  string              // the path that has no room
	wrong []string
}

func (v *fakeVolumes) Has(d pve.Disk) bool { return strings.HasPrefix(d.Path, "/pool/") }

func (v *fakeVolumes) Snapshot(_ context.Context, d pve.Disk, tag string) error {
	v.qemu.mu.Lock()
	if !v.qemu.halted {
		v.wrong = append(v.wrong, "the vm runs at the snapshot of "+d.Path)
	}
	v.qemu.mu.Unlock()
	if d.Path == v.full {
		return errors.New("out of space")
	}
	if slices.Contains(v.taken[d.Path], tag) {
		return orchestrator.ErrExists
	}
	v.taken[d.Path] = append(v.taken[d.Path], tag)
	return nil
}

func (v *fakeVolumes) DeleteSnapshot(_ context.Context, d pve.Disk, tag string) error {
	if !slices.Contains(v.taken[d.Path], tag) {
		return orchestrator.ErrNotFound
	}
	v.taken[d.Path] = slices.DeleteFunc(v.taken[d.Path], func(s string) bool { return s == tag })
	return nil
}

// withPool is a VM of a qcow2 disk and two volumes, known to its Machines.
func withPool(t *testing.T) (*fakeQEMU, *fakeVolumes, *Machines) {
	t.Helper()
	f, c := newFakeQEMU(t)
	vols := &fakeVolumes{qemu: f, taken: map[string][]string{}}
	v := fakeVM(c)
	v.volumes, v.images, v.process = vols, fakeImg(t, `touch "$7"`), &process{gone: make(chan struct{})}
	v.record.Machine.Disks = append(v.record.Machine.Disks,
		pve.Disk{Slot: "scsi2", Path: "/pool/a/raw", Format: "raw"}, pve.Disk{Slot: "scsi3", Path: "/pool/b/raw", Format: "raw"})
	return f, vols, &Machines{vms: map[int]*vm{7: v}}
}

// Every disk of a VM is snapshotted at one instant, whatever keeps it, with the
// memory or without, and the VM runs on; one that was halted stays so.
func TestVolumesAndDisksAtOneInstant(t *testing.T) {
	f, vols, m := withPool(t)
	for i, state := range []string{"", filepath.Join(t.TempDir(), "state")} {
		for _, halted := range []bool{false, true} {
			f.halted = halted
			tag := fmt.Sprintf("s%d-%t", i, halted)
			if err := m.Snapshot(t.Context(), 7, tag, state); err != nil {
				t.Fatal(err)
			}
			if f.halted != halted {
				t.Errorf("%s: halted %t became %t", tag, halted, f.halted)
			}
			for _, path := range []string{"/pool/a/raw", "/pool/b/raw"} {
				if !slices.Contains(vols.taken[path], tag) {
					t.Errorf("%s: %s has %q", tag, path, vols.taken[path])
				}
			}
			if !slices.Contains(f.nodes["disk-scsi0"], tag) {
				t.Errorf("%s: the qcow2 disk has %q", tag, f.nodes["disk-scsi0"])
			}
		}
	}
	if len(vols.wrong) > 0 {
		t.Error(vols.wrong)
	}
	if err := m.DeleteSnapshot(t.Context(), 7, "scsi2", "s0-false"); err != nil || slices.Contains(vols.taken["/pool/a/raw"], "s0-false") {
		t.Errorf("%v, left %q", err, vols.taken["/pool/a/raw"])
	}
	if err := m.DeleteSnapshot(t.Context(), 7, "scsi2", "s0-false"); !errors.Is(err, orchestrator.ErrNotFound) {
		t.Errorf("deleted twice: %v", err)
	}
}

// When one part fails none is left, what was there before stays, and the VM runs
// on (F76).
func TestFailedVolumeLeavesNothing(t *testing.T) {
	f, vols, m := withPool(t)
	state := filepath.Join(t.TempDir(), "state")
	check := func(what, text string, err error) {
		t.Helper()
		if err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("%s: %v, want %q", what, err, text)
		}
		if f.halted || len(f.nodes["disk-scsi0"]) > 0 || len(vols.taken["/pool/a/raw"]) > 0 {
			t.Errorf("%s: halted %t, qcow2 %q, volumes %q", what, f.halted, f.nodes["disk-scsi0"], vols.taken)
		}
		if _, err := os.Stat(state); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: saved memory: %v", what, err)
		}
	}
	vols.full = "/pool/b/raw"
	check("no room for the second volume", "out of space", m.Snapshot(t.Context(), 7, "new", ""))
	vols.full, f.failJob = "", "Error -28 while writing VM state"
	check("no room for the memory", "Error -28", m.Snapshot(t.Context(), 7, "new", state))
	vols.taken["/pool/b/raw"] = []string{"new"}
	check("a name that is taken", "already exists", m.Snapshot(t.Context(), 7, "new", ""))
	if !slices.Equal(vols.taken["/pool/b/raw"], []string{"new"}) {
		t.Errorf("what was there: %q", vols.taken)
	}
}

// A volume is used past the host's cache; other disks are used as before.
func TestVolumesAreDirect(t *testing.T) {
	m := testMachine()
	m.Disks = append(m.Disks, pve.Disk{Slot: "scsi5", Path: "/pool/a/raw", Format: "raw"})
	args, err := arguments(launch{Machine: m, Token: "tok", Direct: (&fakeVolumes{}).Has})
	if err != nil {
		t.Fatal(err)
	}
	all := strings.Join(args, "\n")
	if !strings.Contains(all, `"file":{"cache":{"direct":true},"discard":"unmap","driver":"file","filename":"/pool/a/raw"}`) || strings.Count(all, `"direct"`) != 1 {
		t.Error(all)
	}
}
