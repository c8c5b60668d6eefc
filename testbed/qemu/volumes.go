package qemu

import (
	"context"
	"errors"
	"fmt"

	"savepoint/testbed/pve"
)

// Volumes are disks that some storage takes the snapshots of. Machines use their
// files past the host's cache, so that the storage can restore one below a
// running VM whose guest does not use it.
type Volumes interface {
	// Has reports whether a disk is one of them.
	Has(d pve.Disk) bool
	// Snapshot takes one of a disk that a halted VM has open. It fails when there
	// is one of that name.
	Snapshot(ctx context.Context, d pve.Disk, tag string) error
	DeleteSnapshot(ctx context.Context, d pve.Disk, tag string) error
}

// onVolume reports whether the storage takes a disk's snapshots.
func (v *vm) onVolume(d pve.Disk) bool { return !d.CDROM && v.volumes != nil && v.volumes.Has(d) }

// withVolumes snapshots the VM's volumes at the same instant at which take
// snapshots the rest: the VM is halted for the time of both, and everything it
// wrote has reached the storage. When it fails no snapshot of a volume is left.
func (v *vm) withVolumes(ctx context.Context, tag string, take func() error) (err error) {
	var on, done []pve.Disk
	for _, d := range v.record.Machine.Disks {
		if v.onVolume(d) {
			on = append(on, d)
		}
	}
	if len(on) == 0 {
		return take()
	}
	resume, err := v.halt(ctx)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			for _, d := range done {
				err = errors.Join(err, v.volumes.DeleteSnapshot(ctx, d, tag))
			}
		}
		err = errors.Join(err, resume())
	}()
	for _, d := range on {
		if err := v.volumes.Snapshot(ctx, d, tag); err != nil {
			return err
		}
		done = append(done, d)
	}
	return take()
}

// halt stops the VM, with everything written, and returns how to let it go on;
// one that was stopped already, by its own write error for instance, stays so.
func (v *vm) halt(ctx context.Context) (resume func() error, err error) {
	var st struct{ Running bool }
	if err := v.qmp.execute(ctx, "query-status", nil, &st); err != nil {
		return nil, err
	}
	if !st.Running {
		return func() error { return nil }, nil
	}
	if err := v.qmp.execute(ctx, "stop", nil, nil); err != nil {
		return nil, err
	}
	return func() error {
		if err := v.qmp.execute(ctx, "cont", nil, nil); err != nil {
			return fmt.Errorf("let the vm go on: %w", err)
		}
		return nil
	}, nil
}
