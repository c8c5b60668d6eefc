package orchestrator

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// The cluster's types of the tasks that the engine looks for.
const (
	kindSnapshot = "qmsnapshot"
	kindRollback = "qmrollback"
	kindDelete   = "qmdelsnapshot"
)

// request names one of this transaction's snapshots to its driver.
func (t *tx) request(ctx context.Context, action string, p PointView) SnapshotRequest {
	v := t.view
	return SnapshotRequest{
		Sandbox: v.Sandbox.ID, VM: v.Sandbox.VM, Name: p.Snapshot,
		Memory:      action == taskCreate && p.Boundary == BoundaryMachine,
		Description: SnapshotText(v.ID, v.Sandbox.ID),
		Started:     t.noteTask(ctx, action, p),
	}
}

// driver is never nil: without one for the boundary every call is refused.
func (t *tx) driver(p PointView) Snapshotter {
	if d := t.e.c.Snapshotters[p.Boundary]; d != nil {
		return d
	}
	return noDriver{&UnsupportedError{What: fmt.Sprintf("snapshot %s: no driver for boundary %s", p.Snapshot, p.Boundary), Mend: "see savepoint doctor"}}
}

type noDriver struct{ err error }

func (d noDriver) Create(context.Context, SnapshotRequest) error   { return d.err }
func (d noDriver) Rollback(context.Context, SnapshotRequest) error { return d.err }
func (d noDriver) Delete(context.Context, SnapshotRequest) error   { return d.err }
func (d noDriver) List(context.Context, VMRef) ([]Snapshot, error) { return nil, d.err }

// snapshot marks the guest with the newest point's name and takes its snapshot,
// so that a restored guest can prove which snapshot it came from. The record of
// success waits for the next append: nothing lies in between.
func (t *tx) snapshot(ctx context.Context, event string) (err error) {
	p := t.view.Points[len(t.view.Points)-1]
	done := t.step(StepSnapshot, string(p.Snapshot))
	defer func() { done(err) }()
	start, outer := t.e.c.Now(), ctx
	ctx, cancel := context.WithTimeout(ctx, t.e.c.Deadlines.Snapshot)
	defer cancel()
	want := string(p.Snapshot)
	mctx, stop := context.WithTimeout(ctx, t.e.c.Deadlines.Validate) // it runs already: no boot to wait for
	facts, err := t.askMark(mctx, want)
	stop()
	if err != nil {
		return fmt.Errorf("mark sandbox %s: %w", t.view.Sandbox.Name, classed(err))
	}
	if facts.Generation != want {
		return fmt.Errorf("mark sandbox %s: the guest kept %q instead of %q: %w", t.view.Sandbox.Name, facts.Generation, want, ErrUnavailable)
	}
	if p.N > 0 && facts.BootID != t.view.boot {
		return errRebooted
	}
	if err := t.create(ctx, p); err != nil {
		return fmt.Errorf("create snapshot %s on %s: %w", want, t.view.Sandbox.VM, classed(err))
	}
	d := snapshotData{BootID: facts.BootID}
	var hung *hungError
	if p.N == 0 || p.Boundary == BoundaryMachine { // the saving of memory stops the clock
		d.Health, err = t.baseline(outer) // a slow snapshot leaves it its time
		if errors.Is(err, ErrUnavailable) && !errors.Is(err, errOff) && outer.Err() == nil {
			hung = &hungError{err}
		} else if err != nil {
			return err
		}
	}
	d.Took = t.e.c.Now().Sub(start)
	t.queue(entry{event: event, data: d})
	if hung != nil {
		return hung
	}
	return nil
}

// hungError says that a guest which answered before its snapshot does not
// answer any more with it (F79, F80). To drop the snapshot would leave the guest
// so: it is restored.
type hungError struct{ cause error }

func (e *hungError) Error() string {
	return fmt.Sprintf("the guest stopped answering in its snapshot: %v", e.cause)
}

func (e *hungError) Unwrap() error { return e.cause }

// create waits for locks and for a cluster that does not answer, and looks
// whether the snapshot exists before it believes in a failure. It waits for room
// only when it made some itself.
func (t *tx) create(ctx context.Context, p PointView) error {
	t.created, t.answered = true, true
	var room func() bool
	for pause := newPause(); ; {
		before := len(t.view.Tasks)
		err := t.driver(p).Create(ctx, t.request(ctx, taskCreate, p))
		t.answered = t.answered && (len(t.view.Tasks) > before || refusedOrder(err))
		switch {
		case err == nil:
			return nil
		case t.journalFailed(), permanent(err), ctx.Err() != nil:
			return err
		}
		if full := (*FullError)(nil); errors.As(err, &full) {
			if room == nil {
				room = t.makeRoom(ctx, p)
			}
			if !room() || t.e.c.Wait(ctx, pause.next()) != nil {
				return err
			}
			continue
		}
		switch class(err) {
		case ErrBusy, ErrUnavailable: // nothing was done
		case ErrUnknownOutcome, ErrExists:
			there, lerr := t.lookCreated(ctx, p)
			if lerr != nil {
				return fmt.Errorf("%w (looking for it: %w)", err, lerr)
			}
			if there {
				return nil
			}
			return err
		default:
			return err
		}
		t.progress(StepSnapshot, "waiting to try again", err)
		if t.e.c.Wait(ctx, pause.next()) != nil {
			return err
		}
	}
}

// roomAfter is how long a storage is given to free what was deleted: it may do so in
// the background.
const roomAfter = 10 * time.Second

// makeRoom deletes what the sandbox has to spare, and returns what says whether there
// may be room yet. Nothing is deleted below what an open transaction did, nor in the
// background, where a command may be waiting for the sandbox.
func (t *tx) makeRoom(ctx context.Context, p PointView) (soon func() bool) {
	until := t.e.c.Now()
	if p.N == 0 && !t.background {
		if n, _ := t.e.collect(ctx, t.view.Sandbox.ID, nil); n > 0 {
			until = t.e.c.Now().Add(roomAfter)
		}
	}
	return func() bool { return t.e.c.Now().Before(until) }
}

// lookCreated reports whether the snapshot is complete, current and the VM unlocked.
func (t *tx) lookCreated(ctx context.Context, p PointView) (bool, error) {
	if err := t.awaitTask(ctx, taskCreate, kindSnapshot, p); err != nil {
		return false, err
	}
	snap, found, err := t.find(ctx, p)
	if err != nil || !found || snap.Incomplete != "" || !snap.Current {
		return false, err
	}
	st, err := t.e.c.Hypervisor.Status(ctx, t.view.Sandbox.VM)
	return err == nil && st.Lock == "", err
}

// find looks for a point's snapshot on the cluster.
func (t *tx) find(ctx context.Context, p PointView) (Snapshot, bool, error) {
	list, err := t.driver(p).List(ctx, t.view.Sandbox.VM)
	if err != nil {
		return Snapshot{}, false, err
	}
	for _, s := range list {
		if s.Name == p.Snapshot {
			return s, true, nil
		}
	}
	return Snapshot{}, false, nil
}

// awaitTask waits for the end of the task that this transaction started for
// the action, or, when its name was lost, for tasks of that type that still
// run on the VM. How a task ended is not judged here: the caller looks at what
// it left. An error means that nobody knows whether it ended.
func (t *tx) awaitTask(ctx context.Context, action, kind string, p PointView) error {
	if id, ok := t.view.task(action, p.Snapshot); ok {
		_, err := t.taskEnd(ctx, id, kind)
		return err
	}
	if p.Boundary == BoundaryWorkspace {
		return nil // not a task of the cluster
	}
	tasks, err := t.e.c.Tasks.Find(ctx, t.view.Sandbox.VM, kind, t.since())
	if err != nil {
		return err
	}
	for _, k := range tasks {
		if k.Running {
			if _, err := t.taskEnd(ctx, k.UPID, kind); err != nil {
				return err
			}
		}
	}
	return nil
}

// since is before any task of this transaction, also where the cluster's clock
// is not ours.
func (t *tx) since() time.Time { return t.view.Began.Add(-time.Hour) }

// How a task ended.
type taskState int

const (
	taskUnknown taskState = iota // nobody knows the task any more
	taskDone
	taskFailed
)

// taskEnd waits for the end of a task. An error means that it is not known
// whether it ended: a failed task is told from an unreachable cluster by
// looking it up.
func (t *tx) taskEnd(ctx context.Context, id UPID, kind string) (taskState, error) {
	err := t.e.c.Tasks.Await(ctx, id)
	if err == nil {
		return taskDone, nil
	}
	switch class(err) {
	case ErrNotFound:
		return taskUnknown, nil
	case ErrUnavailable, ErrUnknownOutcome:
	default:
		return taskFailed, nil
	}
	tasks, ferr := t.e.c.Tasks.Find(ctx, t.view.Sandbox.VM, kind, t.since())
	if ferr != nil {
		return taskUnknown, err
	}
	for _, k := range tasks {
		if k.UPID == id && !k.Running {
			if k.Failure == "" {
				return taskDone, nil
			}
			return taskFailed, nil
		}
	}
	return taskUnknown, err
}

// release ends a transaction under which nothing ran: the snapshot, if there
// is one, is dropped; the VM is as it was.
func (t *tx) release(ctx context.Context, reason string, interrupted bool) (err error) {
	done := t.step(StepRollback, reason)
	defer func() { done(err) }()
	start := t.e.c.Now()
	ctx, cancel := t.e.detached(ctx, t.e.c.Deadlines.Rollback)
	defer cancel()
	t.pending = nil // that the snapshot was complete is of no interest any more
	settled := true
	if t.view.Boundary != BoundaryNone {
		if settled, err = t.dropUnused(ctx); err != nil {
			return t.orStuck(ctx, err)
		}
	}
	return t.append(ctx,
		entry{event: evRestored, data: restoredData{Reason: reason, Interrupted: interrupted, Took: t.e.c.Now().Sub(start)}},
		entry{event: evRolledBack, settled: settled})
}

// dropUnused removes the newest point's snapshot, under which nothing ran. It
// reports whether it is sure that none is left or will appear; if not, the
// collector looks again later.
func (t *tx) dropUnused(ctx context.Context) (sure bool, err error) {
	err = t.insist(ctx, "drop", "waiting to try again", func() (err error) {
		sure = true
		if t.created && len(t.view.Points) > 0 {
			if sure, err = t.dropOnce(ctx); err != nil {
				return err
			}
		}
		return t.relight(ctx)
	})
	return sure && err == nil, err
}

// relight starts a VM that ran at begin and is off now, and restarts one, once,
// whose guest does not answer since its snapshot was ordered (F79, F80): nothing
// ran in it, and there is no rollback to bring it back.
func (t *tx) relight(ctx context.Context) error {
	sb := t.view.Sandbox
	if !t.view.RunningAtBegin {
		return nil
	}
	st, err := t.e.c.Hypervisor.Status(ctx, sb.VM)
	switch {
	case err != nil:
		return fmt.Errorf("look at %s: %w", sb.VM, err)
	case st.Owner != sb.ID:
		return fmt.Errorf("%s now belongs to %q: %w", sb.VM, st.Owner, ErrDenied)
	case st.Running && !t.created:
		return nil // nothing was ordered that could have hurt it
	case st.Running:
		_, err := t.factsNow(ctx)
		switch {
		case err == nil, errors.Is(err, ErrDenied):
			return nil // it answers; whose key it has is the next one's concern
		case errors.Is(err, errOff), ctx.Err() != nil, t.view.restarts > 0:
			return fmt.Errorf("the guest of %s does not answer: %w", sb.Name, classed(err))
		}
		if err := t.restart(ctx); err != nil {
			return err
		}
	default:
		if err := t.start(ctx); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, t.e.c.Deadlines.Boot)
	defer cancel()
	_, err = t.inspect(ctx)
	return err
}

func (t *tx) dropOnce(ctx context.Context) (sure bool, err error) {
	p := t.view.Points[len(t.view.Points)-1]
	if err := t.awaitTask(ctx, taskCreate, kindSnapshot, p); err != nil {
		return false, err
	}
	if p.dropping {
		if err := t.awaitTask(ctx, taskDelete, kindDelete, p); err != nil {
			return false, err
		}
	}
	_, found, err := t.find(ctx, p)
	if err != nil {
		return false, err
	}
	if found {
		if !p.dropping {
			if err := t.append(ctx, entry{event: evDrop, data: collectData{Snapshot: p.Snapshot}}); err != nil {
				return false, err
			}
		}
		if err := t.driver(p).Delete(ctx, t.request(ctx, taskDelete, p)); err != nil {
			return false, err
		}
		return true, nil
	}
	return t.sureOfAbsence(ctx, p)
}

// sureOfAbsence reports whether a snapshot that is not listed will not appear
// later: its order may be still under way. An error means: look again.
func (t *tx) sureOfAbsence(ctx context.Context, p PointView) (bool, error) {
	st, err := t.e.c.Hypervisor.Status(ctx, t.view.Sandbox.VM)
	if err != nil {
		return false, err
	}
	switch st.Lock {
	case "snapshot", "snapshot-delete":
		// Perhaps ours, still under way. Any other lock is somebody else's, keeps
		// our snapshot from appearing meanwhile, and is no concern of a
		// snapshot under which nothing ran.
		return false, fmt.Errorf("%s is locked (%s): %w", t.view.Sandbox.VM, st.Lock, ErrBusy)
	}
	return p.dropping || t.answered, nil
}

// refusedOrder reports whether the cluster said that it did nothing.
func refusedOrder(err error) bool {
	var unwritten *JournalError
	if errors.As(err, &unwritten) {
		return false // the task goes on
	}
	c := class(err)
	return errors.Is(c, ErrBusy) || errors.Is(c, ErrUnavailable) || errors.Is(c, ErrDenied) || permanent(err)
}
