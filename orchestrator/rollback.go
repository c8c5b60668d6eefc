package orchestrator

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// attempts bounds how often a rollback that the cluster reports as done, but
// that does not prove itself, is repeated before an operator is asked.
const attempts = 3

// rollBack restores the state at begin and proves it. It is the one function
// for the live engine and for recovery, has its own deadline, and is not
// stopped by ctx.
//
// If the journal cannot be written any more the cluster is restored all the
// same: the last durable record asks recovery for just that, and a restore
// that is repeated with nothing run in between changes nothing. The error
// says so. Only an open transaction is left as it is: its last record asks for
// nothing of the kind.
func (t *tx) rollBack(ctx context.Context, why failure) (err error) {
	done := t.step(StepRollback, why.reason)
	defer func() { done(err) }()
	start := t.e.c.Now()
	ctx, cancel := t.e.detached(ctx, t.e.c.Deadlines.Rollback)
	defer cancel()

	resumed := t.view.State == StateRollingBack
	facts := rollBackData{Reason: why.reason, Interrupted: why.interrupted, Checks: why.checks, Validate: why.took}
	facts.Changed, facts.ChangedN = t.changed.capped()
	if !resumed {
		facts.Loose = t.forsake()
	}
	intent := entry{event: evRollBack, data: facts}
	if t.view.Boundary == BoundaryNone {
		if t.result == nil { // a connection whose command has not answered is of no use
			t.e.c.Executor.Disconnect(t.view.Sandbox.ID)
		}
		if !resumed {
			t.queue(intent)
		}
		return t.append(ctx,
			entry{event: evRestored, data: restoredData{Took: t.e.c.Now().Sub(start)}},
			entry{event: evRolledBack, settled: true})
	}
	var unrecorded error
	if !resumed {
		unrecorded = t.append(ctx, intent)
		t.blind = unrecorded != nil
	}
	if unrecorded != nil && t.view.State == StateOpen {
		return fmt.Errorf("nothing was rolled back: %w", unrecorded)
	}
	if t.result == nil { // a connection whose command has not answered is of no use
		t.e.c.Executor.Disconnect(t.view.Sandbox.ID)
	}
	proof, err := t.restore(ctx, 0, resumed)
	if err != nil {
		return errors.Join(unrecorded, t.orStuck(ctx, err))
	}
	if unrecorded != nil && !t.uncertain {
		t.broken, t.pending = nil, nil
		t.queue(intent) // there may be room again
	}
	proof.Took, proof.Loose = t.e.c.Now().Sub(start), t.forsake()
	restored := []entry{{event: evRestored, data: proof}}
	if !proof.Loose {
		restored = append(restored, entry{event: evRolledBack})
	}
	if err = t.append(ctx, restored...); err != nil {
		return fmt.Errorf("sandbox %s was restored but the journal does not know it; recovery will restore it again: %w", t.view.Sandbox.Name, err)
	}
	if proof.Loose {
		return t.endRollBack(ctx)
	}
	return nil
}

// restore brings the state of one of the transaction's points back: it deletes
// the snapshots of newer ones, newest first whatever their kind, because some
// storages restore only the newest; then it reverts and verifies until both
// succeed, it is impossible, or the deadline ends. What is known to be reverted
// is not reverted again unless it fails to prove itself. It serves the rollback
// of the whole, the return to a savepoint, and recovery.
func (t *tx) restore(ctx context.Context, to int, look bool) (restoredData, error) {
	p, newer := t.view.Points[to], slices.Clone(t.view.Points[to+1:])
	var h hopes
	reverted, again := false, ""
	if look {
		again = "the rollback of an earlier process was not done"
	}
	for pause := newPause(); ; {
		var proof restoredData
		var err error
		if newer, err = t.dropNewer(ctx, newer, p); err == nil && !reverted {
			reverted, err = t.revert(ctx, p, look, again)
		}
		if err == nil {
			proof, err = t.verify(ctx, p)
		}
		if err == nil && p.Boundary == BoundaryWorkspace && !t.undone {
			err = &unprovedError{"the guest could not be marked before, so nothing tells whether that did anything"}
		}
		if err == nil {
			proof.Attempts = t.view.Attempts
			return proof, nil
		}
		t.progress(StepRollback, "not restored yet", err)
		var unproved *unprovedError
		var unwritten *JournalError
		late := t.lateSnapshots(ctx, err)
		if errors.As(err, &unwritten) {
			return proof, err // open: recovery goes on from what is on disk
		}
		count := err
		if len(late) > 0 {
			count = &unprovedError{err.Error()}
		}
		if serr := h.lost(ctx, t, "rolled back", count); serr != nil {
			return proof, serr
		}
		switch {
		case errors.As(err, &unproved), len(late) > 0:
			reverted, newer = false, append(newer, late...)
		case permanent(err):
			return proof, t.impossible("rollback", err)
		case class(err) == ErrBusy, class(err) == ErrUnavailable, class(err) == ErrUnknownOutcome:
		default:
			return proof, t.impossible("rollback", err)
		}
		if t.e.c.Wait(ctx, pause.next()) != nil {
			return proof, t.outOfTime(ctx, err)
		}
		// A rollback that may be done, or may still run, is looked at before
		// another is ordered; one that proved nothing is repeated.
		look, again = unproved == nil, err.Error()
	}
}

// dropNewer deletes the snapshots of the points, the last one first, and
// returns those that are left to do when it fails. One that may still appear is
// not noted as dropped: the collector looks for it later. What is inside of the
// VM goes with the restored state: its guest may not be able to delete it any more.
func (t *tx) dropNewer(ctx context.Context, newer []PointView, to PointView) ([]PointView, error) {
	for len(newer) > 0 {
		p := newer[len(newer)-1]
		sure, err := t.goesWith(ctx, p, to), error(nil)
		if !sure {
			sure, err = t.dropSavepoint(ctx, p)
		}
		if err != nil {
			return newer, fmt.Errorf("delete savepoint %s of %s: %w", p.Snapshot, t.view.Sandbox.VM, err)
		}
		if newer = newer[:len(newer)-1]; sure {
			// Without the record its deletion is repeated, which does nothing.
			_ = t.append(ctx, entry{event: evDropped, data: collectData{Snapshot: p.Snapshot}})
		}
	}
	return nil, nil
}

// goesWith reports whether restoring a point takes the snapshot of a newer one away.
func (t *tx) goesWith(ctx context.Context, p, to PointView) bool {
	in, ok := t.driver(p).(Inside)
	return ok && to.Boundary.covers() == coverVM && p.Boundary.covers() < coverVM && in.Inside(ctx, t.view.Sandbox.VM)
}

func (t *tx) dropSavepoint(ctx context.Context, p PointView) (sure bool, err error) {
	if p.pending {
		if err := t.awaitTask(ctx, taskCreate, kindSnapshot, p); err != nil {
			return false, err
		}
	}
	if err := t.awaitTask(ctx, taskDelete, kindDelete, p); err != nil {
		return false, err
	}
	_, found, err := t.find(ctx, p)
	switch {
	case err != nil:
		return false, err
	case found:
		return true, t.driver(p).Delete(ctx, t.request(ctx, taskDelete, p))
	case p.pending:
		return t.sureOfAbsence(ctx, p)
	}
	return true, nil
}

// lateSnapshots are the snapshots in the way that savepoint took and that were
// not there when it looked for them: an order that was lost on the way may
// arrive late. They are the transaction's own, or those of an earlier one of
// the sandbox that has ended. Anybody else's are not ours to delete.
func (t *tx) lateSnapshots(ctx context.Context, err error) (late []PointView) {
	var stack *NotLatestError
	if !errors.As(err, &stack) {
		return nil
	}
	for _, name := range stack.Newer {
		i := slices.IndexFunc(t.view.Points, func(p PointView) bool { return p.N > 0 && p.Snapshot == name })
		if i >= 0 {
			late = append(late, t.view.Points[i])
			continue
		}
		p, ok := t.strayOf(ctx, name)
		if !ok {
			return nil
		}
		late = append(late, p)
	}
	return late
}

// strayOf returns the snapshot as a point if the journal says that it was of
// another transaction of the sandbox, and that this one has ended.
func (t *tx) strayOf(ctx context.Context, name SnapshotName) (PointView, bool) {
	id, ours := TxOf(name)
	if !ours || id == t.view.ID {
		return PointView{}, false
	}
	other := &Transaction{}
	for r, err := range t.e.c.Journal.Records(ctx, id) {
		if err != nil || other.apply(t.e.moves, r) != nil {
			return PointView{}, false
		}
	}
	if !other.State.Final() || other.Sandbox.ID != t.view.Sandbox.ID || other.Boundary == BoundaryNone {
		return PointView{}, false
	}
	// Any number but that of the begin: its tasks are told apart by its name.
	p := PointView{N: 1, Snapshot: name, Boundary: other.Boundary}
	if i := slices.IndexFunc(other.Points, func(q PointView) bool { return q.Snapshot == name }); i >= 0 {
		p.Boundary = other.Points[i].Boundary
	}
	return p, true
}

// revert orders a rollback, or finds one that is done. The VM's disks are those
// of the snapshot when it returns true. A repetition is recorded with its
// cause, so that its task is not taken for the one before.
func (t *tx) revert(ctx context.Context, p PointView, look bool, again string) (bool, error) {
	if look {
		done, err := t.lookReverted(ctx, p)
		if done || err != nil {
			return done, err
		}
	}
	if again != "" {
		d := attemptData{Number: t.view.Attempts + 1, Cause: again, Loose: t.forsake()}
		t.blind = t.append(ctx, entry{event: evAttempt, data: d}) != nil
	}
	t.undone = t.markUndone(ctx, p)
	if p.Boundary == BoundaryWorkspace && !t.undone {
		if err := t.reviveGuest(ctx); err != nil {
			return false, err
		}
		t.undone = t.markUndone(ctx, p)
	}
	t.e.c.Executor.Disconnect(t.view.Sandbox.ID)
	if err := t.driver(p).Rollback(ctx, t.request(ctx, taskRollback, p)); err != nil {
		t.doubt = !permanent(err) && class(err) == ErrUnknownOutcome
		return false, fmt.Errorf("roll back to %s on %s: %w", p.Snapshot, t.view.Sandbox.VM, err)
	}
	return true, nil
}

// Undone ends the generation that a guest is marked with before it is restored.
const Undone = "-undo"

// markUndone marks the guest, if it answers, with a generation that only a
// restore takes away: a rollback that is reported as done and did nothing is
// caught by the generation it left. A guest that does not answer, or has no
// room, is restored all the same. It reports whether the guest is marked. One
// that is restored to its disk has to boot, which tells as well.
func (t *tx) markUndone(ctx context.Context, p PointView) bool {
	ctx, cancel := context.WithTimeout(ctx, min(t.e.c.Deadlines.Boot, 10*time.Second))
	defer cancel()
	want := string(p.Snapshot) + Undone
	for pause := newPause(); ; {
		facts, err := t.e.c.Guest.Mark(ctx, t.view.Sandbox, want)
		if err == nil || errors.Is(err, ErrUnmounted) || p.Boundary == BoundaryDisk || t.e.c.Wait(ctx, pause.next()) != nil {
			return err == nil && facts.Generation == want
		}
	}
}

// lookReverted reports whether the current attempt's rollback was done, after
// waiting for one that still runs. The proof is its task: one whose name is in
// the journal, or one that started on the cluster's own clock after the
// snapshot was taken, which nobody but this transaction can have ordered.
func (t *tx) lookReverted(ctx context.Context, p PointView) (bool, error) {
	if t.blind {
		return false, nil // the task of an earlier order would be taken for its
	}
	if id, ok := t.view.task(taskRollback, p.Snapshot); ok {
		end, err := t.taskEnd(ctx, id, kindRollback)
		if err != nil || end != taskUnknown {
			return end == taskDone, err
		}
	}
	snap, found, err := t.find(ctx, p)
	if p.Boundary == BoundaryWorkspace {
		return false, err // it has no tasks; a node that is away is not told again and again
	}
	if err != nil || !found {
		return false, err
	}
	tasks, err := t.e.c.Tasks.Find(ctx, t.view.Sandbox.VM, kindRollback, snap.Taken)
	if err != nil {
		return false, err
	}
	for _, k := range tasks {
		if !k.Started.After(snap.Taken) || t.earlier(k.UPID) {
			continue // the cluster counts in seconds: the same one proves nothing
		}
		if id, ok := t.view.task(taskRollback, p.Snapshot); !ok || id != k.UPID {
			_ = t.noteTask(ctx, taskRollback, p)(k.UPID) // so that it is not taken for a later one
		}
		if !k.Running {
			return k.Failure == "", nil
		}
		end, err := t.taskEnd(ctx, k.UPID, kindRollback)
		return end == taskDone, err
	}
	return false, nil
}

// earlier reports whether the task belongs to an order to restore, or a
// repetition, before this one.
func (t *tx) earlier(id UPID) bool {
	for _, k := range t.view.Tasks {
		if k.UPID == id && k.attempt != t.view.restores {
			return true
		}
	}
	return false
}

// reviveGuest restarts a guest that is off or does not answer: restoring the
// workspace of a running guest needs its help. Only the workspace is writable for
// what ran, so a restart brings the rest back as it was. A guest that answers in
// any way is left alone: its volume may be unmounted, or full. One that runs is
// restarted once only by a process.
func (t *tx) reviveGuest(ctx context.Context) error {
	sb := t.view.Sandbox
	st, err := t.e.c.Hypervisor.Status(ctx, sb.VM)
	if err != nil {
		return fmt.Errorf("look at %s: %w", sb.VM, err)
	}
	if st.Running {
		ictx, cancel := context.WithTimeout(ctx, min(t.e.c.Deadlines.Boot, 30*time.Second))
		_, err := t.askFacts(ictx)
		cancel()
		switch {
		case err == nil, errors.Is(err, ErrUnmounted):
			return nil
		case errors.Is(err, ErrDenied):
			return err
		case t.revived: // that was not it: the way to the guest may be down
			return fmt.Errorf("the guest of %s does not answer: %w", sb.Name, err)
		}
	}
	if err := t.restart(ctx); err != nil {
		return err
	}
	t.revived = true
	ictx, cancel := context.WithTimeout(ctx, t.e.c.Deadlines.Boot)
	defer cancel()
	if _, err := t.askFacts(ictx); err != nil && !errors.Is(err, ErrUnmounted) {
		return fmt.Errorf("wait for the restarted guest of %s: %w", sb.Name, err)
	}
	return nil
}

// restart stops and starts a VM whose guest does not answer.
func (t *tx) restart(ctx context.Context) error {
	sb := t.view.Sandbox
	if err := t.append(ctx, entry{event: evRestart}); err != nil {
		return err // a guest that nobody is known to have restarted proves nothing
	}
	if err := t.e.c.Hypervisor.Stop(ctx, VMRequest{Sandbox: sb.ID, VM: sb.VM, Started: t.noteTask(ctx, taskStop, PointView{})}); err != nil {
		return fmt.Errorf("stop %s, whose guest does not answer: %w", sb.VM, err)
	}
	return t.start(ctx)
}

func (t *tx) start(ctx context.Context) error {
	sb := t.view.Sandbox
	if err := t.e.c.Hypervisor.Start(ctx, VMRequest{Sandbox: sb.ID, VM: sb.VM, Started: t.noteTask(ctx, taskStart, PointView{})}); err != nil {
		return fmt.Errorf("start %s: %w", sb.VM, err)
	}
	return nil
}
