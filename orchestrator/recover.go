package orchestrator

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
)

// Recover settles every open transaction by its last durable record: with the
// commit point on disk it is committed, without it the state at begin is
// restored. Tasks that still run are waited for and never repeated. It returns
// the outcomes, those of transactions that were stuck before included, and
// the joined errors of those that stay open. It may be called at any time; a
// sandbox at work is left alone, and so is an open transaction of several
// commands that is not bound to its process and was not idle for too long.
//
// A transaction that is stuck is only reported: an operator who mended the
// cause, and says so by asking for recovery himself, is served by Retry.
func (e *Engine) Recover(ctx context.Context) ([]Outcome, error) {
	if err := e.load(ctx); err != nil {
		return nil, err
	}
	var (
		mu    sync.Mutex
		outs  []Outcome
		fails []error
		wg    sync.WaitGroup
		slots = make(chan struct{}, e.c.Parallel)
	)
	for _, work := range e.unfinished() {
		select {
		case slots <- struct{}{}:
		case <-ctx.Done():
			wg.Wait()
			return sorted(outs), errors.Join(append(fails, fmt.Errorf("recover: %w: %w", ErrUnavailable, ctx.Err()))...)
		}
		wg.Go(func() {
			defer func() { <-slots }()
			for _, t := range work {
				out, ok, err := e.settle(ctx, t.Sandbox.ID, t.ID, "")
				mu.Lock()
				if ok {
					outs = append(outs, out)
				}
				if err != nil {
					fails = append(fails, err)
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	return sorted(outs), errors.Join(fails...)
}

func sorted(outs []Outcome) []Outcome {
	slices.SortFunc(outs, func(a, b Outcome) int { return strings.Compare(string(a.Transaction), string(b.Transaction)) })
	return outs
}

// Retry takes a stuck transaction up again after an operator mended the cause.
func (e *Engine) Retry(ctx context.Context, id TxID) (Outcome, error) {
	if err := e.load(ctx); err != nil {
		return Outcome{}, err
	}
	for _, work := range e.unfinished() {
		for _, t := range work {
			if t.ID == id {
				out, ok, err := e.settle(ctx, t.Sandbox.ID, id, StateStuck)
				if err == nil && !ok {
					err = fmt.Errorf("retry transaction %s: it is not stuck: %w", id, ErrNotFound)
				}
				return out, err
			}
		}
	}
	return Outcome{}, fmt.Errorf("retry transaction %s: no open transaction has that id: %w", id, ErrNotFound)
}

// unfinished returns the open transactions, by sandbox.
func (e *Engine) unfinished() [][]*Transaction {
	e.mu.Lock()
	defer e.mu.Unlock()
	var all [][]*Transaction
	for _, b := range e.boxes {
		if b.holder != "" || len(b.open) == 0 {
			continue
		}
		var work []*Transaction
		for _, t := range b.open {
			work = append(work, t)
		}
		slices.SortFunc(work, func(a, b *Transaction) int { return strings.Compare(string(a.ID), string(b.ID)) })
		all = append(all, work)
	}
	slices.SortFunc(all, func(a, b []*Transaction) int { return strings.Compare(string(a[0].ID), string(b[0].ID)) })
	return all
}

// settle brings one open transaction to its end. The journal is read again:
// it, not the memory of this process, says how far the transaction came.
func (e *Engine) settle(ctx context.Context, sb SandboxID, id TxID, retry State) (out Outcome, ok bool, err error) {
	release, err := e.take(sb, id)
	if err != nil {
		return Outcome{}, false, err
	}
	defer release()
	view, err := e.read(ctx, id)
	if err != nil {
		return Outcome{}, false, fmt.Errorf("recover: %w", err)
	}
	switch {
	case view.State == "": // its begin never reached the disk
		e.forget(sb, id)
		return Outcome{}, false, nil
	case view.waits(e.c.Now()):
		return Outcome{}, false, nil // somebody may still go on with it
	}
	t := &tx{e: e, view: view, created: true}
	defer t.file()
	if view.State.Final() || (view.State == StateStuck && retry != StateStuck) {
		return t.outcome(), true, nil
	}
	done := t.step(StepRecover, string(view.State))
	if err = t.away(ctx); err == nil {
		err = t.finish(ctx)
	}
	done(err)
	if err != nil {
		err = fmt.Errorf("recover transaction %s of sandbox %s: %w", id, view.Sandbox.Name, err)
	}
	return t.outcome(), true, err
}

// away is the error of a transaction whose node is out of reach: it stays as it
// is until the node is back, and no other has to wait for the end of its
// deadline. Whatever else is wrong is for finish to find.
func (t *tx) away(ctx context.Context) error {
	if t.view.Boundary == BoundaryNone || t.view.State == StateCommitting || t.view.State == StatePrepared {
		return nil // nothing is asked of the cluster
	}
	var away *NodeError
	if _, err := t.e.c.Hypervisor.Status(ctx, t.view.Sandbox.VM); errors.As(err, &away) {
		return err
	}
	return nil
}

// finish goes on from the last durable record.
func (t *tx) finish(ctx context.Context) error {
	const stopped = "savepoint stopped before the commit point"
	switch t.view.State {
	case StateStuck:
		event, err := t.mended(ctx)
		if err == nil {
			err = t.append(ctx, entry{event: event})
		}
		if err != nil {
			return err
		}
		return t.finish(ctx)
	case StateBegun:
		return t.release(ctx, stopped+", nothing ran", false)
	case StatePrepared: // never a rollback: what was written since is nobody's command
		return t.shelve(ctx, "savepoint stopped before it was used, nothing ran", false)
	case StateSnapshotted, StateRunning, StateRan, StateSaving, StateReturning:
		t.doubt = t.view.State == StateReturning
		return t.rollBack(ctx, failure{reason: stopped})
	case StateOpen:
		reason := stopped
		if !t.view.Bound {
			reason = fmt.Sprintf("expired: it was open and got no order for %s", t.view.idle)
		}
		return t.rollBack(ctx, failure{reason: reason})
	case StateRollingBack:
		t.doubt = true
		return t.rollBack(ctx, failure{reason: t.view.Reason})
	case StateRestored:
		return t.endRollBack(ctx)
	case StateCommitting:
		return t.append(ctx, entry{event: evCommitted, settled: t.view.Boundary == BoundaryNone})
	default:
		return &TransitionError{Tx: t.view.ID, From: t.view.State, Event: "recover"}
	}
}

// mended is how a stuck transaction goes on: from where it was.
func (t *tx) mended(ctx context.Context) (event string, err error) {
	switch {
	case t.view.stuckFrom == StateBegun && !t.view.taken:
		return evResume, nil
	case t.view.stuckFrom == StateRestored:
		// What was proved may have been disturbed until the snapshot was gone.
		_, found, err := t.find(ctx, t.view.Points[0])
		if err != nil {
			return "", fmt.Errorf("list the snapshots of %s: %w", t.view.Sandbox.VM, err)
		}
		if !found {
			return evSettle, nil
		}
	}
	return evRetry, nil
}

// take claims a sandbox for its own open transaction.
func (e *Engine) take(sb SandboxID, id TxID) (release func(), err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	b := e.boxes[sb]
	if b != nil && b.holder != "" {
		return nil, fmt.Errorf("take up transaction %s: the sandbox is at work (%s); wait for its end: %w", id, b.holder, ErrBusy)
	}
	if b == nil || b.open[id] == nil {
		return nil, fmt.Errorf("take up transaction %s: it is settled: %w", id, ErrNotFound)
	}
	b.holder = id
	return func() { e.unclaim(sb) }, nil
}

func (e *Engine) forget(sb SandboxID, id TxID) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.boxes[sb].open, id)
}
