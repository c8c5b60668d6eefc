package orchestrator

import (
	"context"
	"fmt"
	"slices"
)

// An order to restore whose answer was lost may arrive at the cluster when the
// sandbox has gone on to other work, and would undo that. Nobody can call it
// back; but without its snapshot it finds nothing to restore.

// unanswered reports whether the last order to restore has no task that is
// known: it may not have been sent, or not have arrived.
func (t *Transaction) unanswered() bool {
	return !slices.ContainsFunc(t.Tasks, func(k TaskView) bool {
		return k.Action == taskRollback && k.attempt == t.restores
	})
}

// forsake stops looking for the last order to restore, and reports whether it
// or an earlier one may still arrive.
func (t *tx) forsake() bool {
	t.loose = t.loose || t.view.loose || t.doubt && (t.blind || t.view.unanswered())
	t.doubt = false
	return t.loose
}

// endRollBack ends a rollback whose state was proved.
func (t *tx) endRollBack(ctx context.Context) error {
	settled := t.view.Boundary == BoundaryNone
	if t.view.loose {
		if err := t.disarm(ctx); err != nil {
			return t.orStuck(ctx, err)
		}
		settled = !slices.ContainsFunc(t.view.Points, PointView.awaited)
	}
	return t.append(ctx, entry{event: evRolledBack, settled: settled})
}

// disarm deletes the snapshots that an order on its way could restore, before
// the sandbox is given to others, and then asks once more whether the VM runs:
// the order may have come before its snapshot was gone, and has stopped it.
func (t *tx) disarm(ctx context.Context) error {
	ctx, cancel := t.e.detached(ctx, t.e.c.Deadlines.Rollback)
	defer cancel()
	return t.insist(ctx, "rollback", "an order to restore may still arrive", func() error {
		if err := t.dropAll(ctx); err != nil {
			return err
		}
		return t.runsAgain(ctx)
	})
}

func (t *tx) dropAll(ctx context.Context) error {
	for _, p := range slices.Backward(t.view.Points) {
		if err := t.driver(p).Delete(ctx, t.request(ctx, taskDelete, p)); err != nil {
			return fmt.Errorf("delete snapshot %s of %s: %w", p.Snapshot, t.view.Sandbox.VM, err)
		}
	}
	return nil
}

// runsAgain brings a VM back to its run state whose disks are those of the
// begin. Whether it was booted was proved before; only that memory which is part
// of the begin was not lost since is looked at again.
func (t *tx) runsAgain(ctx context.Context) error {
	st, err := t.unlocked(ctx)
	if err != nil || !t.view.RunningAtBegin {
		return err
	}
	if !st.Running {
		if err := t.start(ctx); err != nil {
			return err
		}
	}
	p := PointView{Snapshot: t.view.Snapshot}
	if begin := t.view.Points[0]; begin.Boundary == BoundaryMachine {
		p = begin
	}
	_, err = t.proveGuest(ctx, p)
	return err
}
