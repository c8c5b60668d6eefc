package janitor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"savepoint/orchestrator"
)

// describes reports whether the text is the whole description that the engine
// gives a snapshot. The cluster may add a line's end.
func describes(text string, tx orchestrator.TxID, sb orchestrator.SandboxID) bool {
	return strings.TrimRight(text, "\t\n\f\r ") == orchestrator.SnapshotText(tx, sb)
}

// list reads a VM's snapshots once per look.
func (l *look) list(ctx context.Context, vm orchestrator.VMRef) ([]orchestrator.Snapshot, error) {
	if s, ok := l.listed[vm]; ok {
		return s, nil
	}
	s, err := l.j.c.Snapshots.List(ctx, vm)
	if err != nil {
		return nil, fmt.Errorf("look at the snapshots of %s: %w", vm, err)
	}
	l.listed[vm] = s
	return s, nil
}

// snapshots judges each snapshot of a sandbox, newest first: they are a stack.
func (l *look) snapshots(ctx context.Context, v VM, sb orchestrator.Sandbox) error {
	all, err := l.list(ctx, v.VM)
	if errors.Is(err, orchestrator.ErrNotFound) {
		return nil // gone since; the next look says so
	}
	if err != nil {
		return err
	}
	for _, s := range slices.Backward(all) {
		f, ok, err := l.judge(ctx, v, sb, s)
		if err != nil {
			return err
		}
		if !ok {
			continue
		}
		f.Subject, f.Sandbox = fmt.Sprintf("snapshot %s of %s", s.Name, v.VM), sb.Name
		if f.Level == LevelCollect {
			if err := l.delay(ctx, &f, v); err != nil {
				return err
			}
		}
		l.add(f)
	}
	return nil
}

// delay lets what cannot be done now wait: the VM is locked, or a task runs.
func (l *look) delay(ctx context.Context, f *Finding, v VM) error {
	tasks, err := l.working(ctx, v)
	if err != nil {
		return err
	}
	switch {
	case len(tasks) > 0:
		f.Level, f.Action, f.act = LevelWait, fmt.Sprintf("left for a later run: task %s runs", tasks[0]), nil
	case v.Lock != "":
		f.Level, f.Action, f.act = LevelWait, "left until the lock ("+v.Lock+") is gone", nil
	}
	return nil
}

// judge says what a snapshot is; ok is false for one that is where it belongs.
func (l *look) judge(ctx context.Context, v VM, sb orchestrator.Sandbox, s orchestrator.Snapshot) (f Finding, ok bool, err error) {
	tx, ours := orchestrator.TxOf(s.Name)
	byHand := fmt.Sprintf("qm delsnapshot %d %s --force (as root on node %s)", v.VM.ID, s.Name, v.VM.Node)
	switch {
	case slices.Contains(l.j.c.Keep, s.Name):
		if s.Incomplete == "" {
			return f, false, nil
		}
		f = Finding{Kind: KindHalfSnapshot, Level: LevelOperator, Evidence: "an interrupted task left it in state " + s.Incomplete, Action: "left alone",
			Command: "savepoint sandbox destroy " + sb.Name, Check: "what is worth keeping in the sandbox: it cannot be reset any more"}
		return f, true, nil
	case !ours || !describes(s.Description, tx, sb.ID):
		f = Finding{Kind: KindForeignSnap, Level: LevelNote, Action: "left alone", Evidence: "savepoint did not take it; while it is there, some storages cannot go back to older states"}
		if ours {
			f.Evidence = "its name is like ours, its description is not: " + f.Evidence
		}
		if s.Incomplete != "" {
			f.Level, f.Command, f.Check = LevelOperator, byHand, "who took it, and that no task works on it"
			f.Evidence += "; an interrupted task left it in state " + s.Incomplete
		}
		return f, true, nil
	}
	claim, err := l.j.c.Ledger.Claim(ctx, tx)
	known := err == nil
	if err != nil && !errors.Is(err, orchestrator.ErrNotFound) {
		return f, false, &orchestrator.JournalError{Cause: err}
	}
	if known && claim.Sandbox.ID != sb.ID {
		f = Finding{Kind: KindForeignSnap, Level: LevelNote, Action: "left alone", Evidence: fmt.Sprintf("transaction %s was in sandbox %s", tx, claim.Sandbox.Name)}
		return f, true, nil
	}
	if known && !claim.Settled {
		return f, false, nil // recovery, or the collector, has it
	}
	f = Finding{Kind: KindOrphanSnap, Level: LevelCollect, Action: "it is deleted", Evidence: fmt.Sprintf("the journal does not know transaction %s", tx)}
	if known {
		f.Evidence = fmt.Sprintf("transaction %s is %s and settled", tx, claim.State)
	}
	if s.Incomplete != "" {
		f.Kind, f.Action = KindHalfSnapshot, "it is deleted by force"
		f.Evidence += "; an interrupted task left it in state " + s.Incomplete
	}
	f.Command, f.Check = byHand, "why savepoint may not delete it (see savepoint doctor)"
	f.act = func(ctx context.Context, started orchestrator.Started) error {
		return l.j.deleteSnapshot(ctx, sb, s, tx, started)
	}
	f.gone = func(ctx context.Context) bool {
		_, there, err := l.j.snapshot(ctx, sb.VM, s.Name)
		return err == nil && !there
	}
	return f, true, nil
}

func (j *Janitor) snapshot(ctx context.Context, vm orchestrator.VMRef, name orchestrator.SnapshotName) (orchestrator.Snapshot, bool, error) {
	all, err := j.c.Snapshots.List(ctx, vm)
	if err != nil {
		return orchestrator.Snapshot{}, false, err
	}
	i := slices.IndexFunc(all, func(s orchestrator.Snapshot) bool { return s.Name == name })
	if i < 0 {
		return orchestrator.Snapshot{}, false, nil
	}
	return all[i], true, nil
}

// deleteSnapshot deletes one after everything that condemned it was read again.
func (j *Janitor) deleteSnapshot(ctx context.Context, sb orchestrator.Sandbox, s orchestrator.Snapshot, tx orchestrator.TxID, started orchestrator.Started) error {
	claim, err := j.c.Ledger.Claim(ctx, tx)
	switch {
	case errors.Is(err, orchestrator.ErrNotFound):
	case err != nil:
		return &orchestrator.JournalError{Cause: err}
	case !claim.Settled:
		return fmt.Errorf("delete snapshot %s: transaction %s needs it: %w", s.Name, tx, orchestrator.ErrDenied)
	}
	now, there, err := j.snapshot(ctx, sb.VM, s.Name)
	if err != nil || !there {
		return err
	}
	st, err := j.c.Hypervisor.Status(ctx, sb.VM)
	if err != nil {
		return err
	}
	if st.Owner != sb.ID || !describes(now.Description, tx, sb.ID) {
		return fmt.Errorf("delete snapshot %s of %s: it or its vm does not say any more that it is ours: %w", s.Name, sb.VM, orchestrator.ErrDenied)
	}
	return j.c.Snapshots.Delete(ctx, orchestrator.SnapshotRequest{Sandbox: sb.ID, VM: sb.VM, Name: s.Name, Started: started})
}

// spent are the finished transactions whose snapshots the engine's collector
// has still to delete. It leaves sandboxes alone that have an open one.
func (l *look) spent(ctx context.Context) error {
	claims, err := l.j.c.Ledger.Spent(ctx)
	if err != nil {
		return &orchestrator.JournalError{Cause: err}
	}
	first := true
	for _, c := range claims {
		sb, ok := l.byID[c.Sandbox.ID]
		f := Finding{
			Kind: KindSpent, Level: LevelCollect, Sandbox: c.Sandbox.Name,
			Subject:  fmt.Sprintf("snapshot of transaction %s", c.Tx),
			Evidence: fmt.Sprintf("transaction %s is %s", c.Tx, c.State), Action: "the collector deletes it",
		}
		if !ok || sb.State == orchestrator.SandboxDestroyed {
			continue // it went with its VM
		}
		if v, ok := l.at[sb.VM]; ok && v.Lock != "" {
			f.Level, f.Action = LevelWait, "left until the lock ("+v.Lock+") is gone"
			l.add(f)
			continue
		}
		tx := c.Tx
		f.act = func(ctx context.Context, _ orchestrator.Started) error { return l.j.collected(ctx, tx, nil) }
		if first { // one call serves them all
			first = false
			f.act = func(ctx context.Context, _ orchestrator.Started) error {
				_, err := l.j.c.Collect(ctx)
				return l.j.collected(ctx, tx, err)
			}
		}
		f.quiet = true // the engine's journal has the intents
		l.add(f)
	}
	return nil
}

// collected says whether the collector came to a transaction.
func (j *Janitor) collected(ctx context.Context, tx orchestrator.TxID, failed error) error {
	c, err := j.c.Ledger.Claim(ctx, tx)
	switch {
	case err != nil && !errors.Is(err, orchestrator.ErrNotFound):
		return &orchestrator.JournalError{Cause: err}
	case err != nil || c.Settled:
		return nil
	case failed != nil:
		return failed
	}
	return fmt.Errorf("collect transaction %s: the sandbox is at work or has an open transaction: %w; see savepoint recover", tx, orchestrator.ErrBusy)
}
