package zfs_test

import (
	"context"
	"testing"

	"savepoint/testbed/conformance"
)

// The driver, its client and the program on the node, before a fake zfs and a
// guest that keeps what it read in memory.
func TestConformance(t *testing.T) {
	conformance.Snapshotter(t, func(t *testing.T) conformance.SnapshotSubject {
		w := newWorld(t)
		t.Cleanup(w.innocent)
		cell := conformance.Cell{
			Write: func(_ context.Context, text string) error { w.write(text); return nil },
			Read:  func(context.Context) (string, error) { return w.guest.memory, nil },
		}
		yes := func(context.Context) error { return nil }
		return conformance.SnapshotSubject{
			Snapshotter: w.snaps, VM: box.VM, Sandbox: boxID, Absent: absent, Disk: cell, Marker: cell,
			Running: func(context.Context) (bool, error) { return true, nil },
			Start:   yes, Stop: yes,
		}
	}, conformance.SnapshotCaps{LatestOnly: true, KeepsRunning: true, Descriptions: true, Marker: true})
}
