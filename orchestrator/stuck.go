package orchestrator

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// stuckError says that only an operator can go on.
type stuckError struct{ reason, mend string }

func (e *stuckError) Error() string { return e.reason + "; " + e.mend }

// orStuck records a stuck transaction; other errors it passes on, and the
// transaction stays open for recovery. A nil return means: stuck, recorded.
func (t *tx) orStuck(ctx context.Context, err error) error {
	var s *stuckError
	if !errors.As(err, &s) {
		return classed(err)
	}
	t.pending = nil
	aerr := t.append(ctx, entry{event: evStuck, data: stuckData{Reason: s.reason, Mend: s.mend, From: t.view.State}})
	if aerr != nil {
		return fmt.Errorf("%s: %w", s.Error(), aerr)
	}
	return nil
}

// impossible explains an error that no repetition mends.
func (t *tx) impossible(what string, err error) error {
	sb, mend := t.view.Sandbox, ""
	var newer *NotLatestError
	var key *HostKeyError
	var open *UnsealedError
	switch {
	case errors.As(err, &open):
		mend = fmt.Sprintf("find out what opened the zone (see savepoint network verify), close it, then run savepoint recover, or savepoint sandbox destroy --force %s", sb.Name)
	case errors.As(err, &newer):
		names := make([]string, len(newer.Newer))
		for i, n := range newer.Newer {
			names[i] = string(n)
		}
		mend = fmt.Sprintf("delete the newer snapshots of %s that savepoint did not take (%s), then run savepoint recover", sb.VM, strings.Join(names, ", "))
	case errors.As(err, &key):
		mend = fmt.Sprintf("find out who answers at %s; if the guest cannot be trusted run savepoint sandbox destroy --force %s", key.Host, sb.Name)
	case errors.Is(err, ErrNotFound):
		mend = fmt.Sprintf("the state at begin cannot come back; save what you need from %s, then run savepoint sandbox destroy --force %s", sb.VM, sb.Name)
	case errors.Is(err, ErrDenied):
		mend = fmt.Sprintf("give savepoint's token its rights on %s back (see savepoint doctor) or check who owns it, then run savepoint recover", sb.VM)
	default:
		mend = fmt.Sprintf("see savepoint doctor, mend the cause, then run savepoint recover, or savepoint sandbox destroy --force %s", sb.Name)
	}
	return &stuckError{reason: fmt.Sprintf("%s of sandbox %s is impossible: %v", what, sb.Name, err), mend: mend}
}

// outOfTime decides at the end of a deadline. A config lock of our own kinds that
// no running task holds will never go by itself, and an API token cannot remove
// it: that needs an operator. Anything else is left open, for recovery to try
// again when the cluster answers; so is the lock of a backup or a migration,
// whose task is not always seen: it may stand under no VM, or under another node.
func (t *tx) outOfTime(ctx context.Context, last error) error {
	var unproved *unprovedError
	if errors.As(last, &unproved) {
		last = fmt.Errorf("%w: %w", ErrUnavailable, last)
	}
	open := fmt.Errorf("out of time, run savepoint recover later: %w", classed(last))
	ctx, cancel := t.e.detached(ctx, 30*time.Second)
	defer cancel()
	if lock, _ := t.staleLock(ctx); slices.Contains(ourLocks, lock) {
		return needsUnlock(t.view.Sandbox, lock)
	}
	return open
}

// ourLocks are those that our own orders take on a sandbox's VM. Nobody else
// should snapshot it (savepoint doctor warns of those who do), and at the end
// of a deadline they have been there for long.
var ourLocks = []string{"snapshot", "rollback", "snapshot-delete"}

// staleLock returns the VM's lock when no running task can hold it, and whether
// it is what a task of this transaction left when it died: the last of its
// kind, and it failed.
func (t *tx) staleLock(ctx context.Context) (lock string, ours bool) {
	vm := t.view.Sandbox.VM
	st, err := t.e.c.Hypervisor.Status(ctx, vm)
	if err != nil || st.Lock == "" {
		return "", false
	}
	tasks, err := t.e.c.Tasks.Find(ctx, vm, lockKind(st.Lock), t.view.Began.Add(-24*time.Hour))
	if err != nil || slices.ContainsFunc(tasks, func(k Task) bool { return k.Running }) {
		return "", false
	}
	if len(tasks) > 0 && tasks[0].Failure != "" { // the newest
		ours = slices.ContainsFunc(t.view.Tasks, func(o TaskView) bool { return o.UPID == tasks[0].UPID })
	}
	return st.Lock, ours
}

func needsUnlock(sb Sandbox, lock string) *stuckError {
	return &stuckError{
		reason: fmt.Sprintf("%s is locked (%s) and no task holds the lock", sb.VM, lock),
		mend:   fmt.Sprintf("run `qm unlock %d` on node %s, then savepoint recover", sb.VM.ID, sb.VM.Node),
	}
}

// insist repeats an undoing until it succeeds, is impossible, needs an operator,
// or the deadline ends. event is what a progress line says of a failure.
func (t *tx) insist(ctx context.Context, what, event string, do func() error) error {
	var h hopes
	for pause := newPause(); ; {
		err := do()
		var unwritten *JournalError
		switch c := class(err); {
		case err == nil:
			return nil
		case errors.As(err, &unwritten):
			return err // open: recovery goes on from what is on disk
		case permanent(err), errors.Is(c, ErrNotFound), errors.Is(c, ErrExists), errors.Is(c, ErrDenied):
			return t.impossible(what, err)
		}
		if serr := h.lost(ctx, t, "looked at the guest", err); serr != nil {
			return serr
		}
		t.progress(StepRollback, event, err)
		if t.e.c.Wait(ctx, pause.next()) != nil {
			return t.outOfTime(ctx, err)
		}
	}
}

// hopes bounds how often something is tried that only time or an operator can
// mend. The zero value is ready to use.
type hopes struct{ unproved, locked int }

// lost returns a *stuckError when err was met too often: what was done does not
// prove itself, or the VM has a lock that a task of this transaction left when
// it died (its node was killed, its worker crashed). The latter is seen twice: a
// task may end a moment before its lock goes.
func (h *hopes) lost(ctx context.Context, t *tx, what string, err error) error {
	sb := t.view.Sandbox
	var unproved *unprovedError
	if errors.As(err, &unproved) {
		if h.unproved++; h.unproved < attempts {
			return nil
		}
		return &stuckError{
			reason: fmt.Sprintf("%s %d times, but %v", what, h.unproved, err),
			mend:   fmt.Sprintf("look at %s, then run savepoint recover, or savepoint sandbox destroy --force %s", sb.VM, sb.Name),
		}
	}
	lock, ours := "", false
	if class(err) == ErrBusy {
		lock, ours = t.staleLock(ctx)
	}
	if !ours {
		h.locked = 0
		return nil
	}
	if h.locked++; h.locked < 2 {
		return nil
	}
	return needsUnlock(sb, lock)
}

// undeletable returns a *StuckError when a snapshot was not deleted because an
// earlier order of its transaction died and left the VM's lock, and err when
// time may help. The lock is seen twice, as in hopes.
func (t *tx) undeletable(ctx context.Context, p PointView, err error) error {
	if c := class(err); c != ErrBusy && c != ErrUnknownOutcome || ctx.Err() != nil {
		return err
	}
	// The order may be another process's: what this one remembers is not enough.
	view, rerr := t.e.read(ctx, t.view.ID)
	if rerr != nil {
		return err
	}
	whole := &tx{e: t.e, view: view}
	lock, ours := whole.staleLock(ctx)
	if ours && t.e.c.Wait(ctx, time.Second) == nil {
		lock, ours = whole.staleLock(ctx)
	}
	if !ours {
		return err
	}
	s := needsUnlock(t.view.Sandbox, lock)
	return &StuckError{Sandbox: t.view.Sandbox.Name, Tx: t.view.ID, Snapshot: p.Snapshot, Reason: s.reason, Mend: s.mend}
}

// leftLocked returns a *StuckError when a deletion of a finished transaction of
// the sandbox died and left its VM locked. Another lock is worth waiting for.
func (e *Engine) leftLocked(ctx context.Context, sb SandboxID) error {
	e.mu.Lock()
	var spent []*Transaction
	if b := e.boxes[sb]; b != nil {
		spent = slices.Clone(b.spent)
	}
	e.mu.Unlock()
	for _, view := range slices.Backward(spent) {
		n := len(view.Points)
		if n == 0 {
			continue
		}
		t := &tx{e: e, view: slim(view)}
		var stuck *StuckError
		if errors.As(t.undeletable(ctx, view.Points[n-1], ErrBusy), &stuck) {
			return stuck
		}
	}
	return nil
}

// lockKind is the type of the task that holds a config lock while it runs.
func lockKind(lock string) string {
	switch lock {
	case "snapshot":
		return kindSnapshot
	case "rollback":
		return kindRollback
	case "snapshot-delete":
		return kindDelete
	case "backup":
		return "vzdump"
	case "migrate":
		return "qmigrate"
	case "suspending", "suspended":
		return "qmsuspend"
	default: // clone, create
		return "qm" + lock
	}
}
