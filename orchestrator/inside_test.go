package orchestrator_test

import (
	"context"
	"fmt"
	"testing"

	"savepoint/orchestrator"
)

// insideDriver takes the snapshots of workspaces in the guest, on the VM's own
// disks: without a guest that answers there is neither a list nor a deletion.
type insideDriver struct{ driver }

func (d insideDriver) Inside(context.Context, orchestrator.VMRef) bool { return true }

func (d insideDriver) alive() error {
	if d.p.w.dead || !d.p.w.running {
		return fmt.Errorf("the guest does not answer: %w", orchestrator.ErrUnavailable)
	}
	return nil
}

func (d insideDriver) List(ctx context.Context, vm orchestrator.VMRef) ([]orchestrator.Snapshot, error) {
	if err := d.alive(); err != nil {
		return nil, err
	}
	return d.driver.List(ctx, vm)
}

func (d insideDriver) Delete(ctx context.Context, r orchestrator.SnapshotRequest) error {
	if err := d.alive(); err != nil {
		return err
	}
	return d.driver.Delete(ctx, r)
}

// aroundDriver takes those of the whole VM: what is inside goes back with it.
type aroundDriver struct{ driver }

func (d aroundDriver) Rollback(ctx context.Context, r orchestrator.SnapshotRequest) error {
	w := d.p.w
	for n := len(w.snaps); n > 0 && w.snaps[n-1].kind == orchestrator.BoundaryWorkspace; n-- {
		w.snaps = w.snaps[:n-1]
	}
	return d.driver.Rollback(ctx, r)
}

// A guest that a transaction broke is restored as a whole, also when only the
// guest could have deleted the savepoints inside of it. F79
func TestInnerSavepointsGoWithTheWhole(t *testing.T) {
	for _, b := range []orchestrator.Boundary{orchestrator.BoundaryDisk, orchestrator.BoundaryMachine} {
		t.Run(string(b), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w := newWorld()
				l := boot(t, w, func(c *orchestrator.Config) {
					inner := c.Snapshotters[orchestrator.BoundaryWorkspace].(driver)
					around := c.Snapshotters[b].(driver)
					c.Snapshotters[orchestrator.BoundaryWorkspace], c.Snapshotters[b] = insideDriver{inner}, aroundDriver{around}
				})
				x := l.begin(orchestrator.BeginSpec{Boundary: b})
				exec(t, x, put("one", "/workspace/a"))
				save(t, x, "inner", orchestrator.BoundaryWorkspace)
				exec(t, x, put("two", "/workspace/b"))
				w.dead = true
				o, err := x.Rollback(context.Background(), "")
				if err != nil || o.State != orchestrator.StateRolledBack {
					t.Fatalf("%s (%s), %v", o.State, o.Reason, err)
				}
				files(t, w, before())
			})
		})
	}
}

// While the guest lives a smaller rollback deletes what is newer, as ever.
func TestInnerSavepointsAreDeleted(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld()
		l := boot(t, w, func(c *orchestrator.Config) {
			c.Snapshotters[orchestrator.BoundaryWorkspace] = insideDriver{c.Snapshotters[orchestrator.BoundaryWorkspace].(driver)}
		})
		x := l.begin(orchestrator.BeginSpec{Boundary: orchestrator.BoundaryWorkspace})
		exec(t, x, put("one", "/workspace/a"))
		save(t, x, "first", "")
		exec(t, x, put("two", "/workspace/b"))
		save(t, x, "second", "")
		back(t, x, "first")
		files(t, w, map[string]string{"/workspace/a": "one"})
		if w.counts["delete"] != 1 {
			t.Errorf("%d snapshots were deleted", w.counts["delete"])
		}
	})
}
