package orchestrator

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Collect deletes the snapshots of finished transactions, the newest of each
// sandbox first, and returns how many transactions it settled. Sandboxes that
// are at work, or have an open or stuck transaction, are left for later, and so
// is a snapshot that was taken ahead and waits for its command. What could not be deleted now stays noted in the journal; its errors are joined.
func (e *Engine) Collect(ctx context.Context) (int, error) {
	if err := e.load(ctx); err != nil {
		return 0, err
	}
	n := 0
	var fails []error
	for _, sb := range e.collectable(0) {
		if ctx.Err() != nil {
			fails = append(fails, fmt.Errorf("collect: %w: %w", ErrUnavailable, ctx.Err()))
			break
		}
		release, ok := e.claimIdle(sb, "collect")
		if !ok {
			continue
		}
		k, err := e.collect(ctx, sb, nil)
		release()
		n += k
		if err != nil {
			fails = append(fails, err)
		}
	}
	return n, errors.Join(fails...)
}

// collectable returns the sandboxes with more than keep snapshots to delete.
func (e *Engine) collectable(keep int) []SandboxID {
	e.mu.Lock()
	defer e.mu.Unlock()
	var ids []SandboxID
	for id, b := range e.boxes {
		if b.holder == "" && len(b.spent) > keep {
			ids = append(ids, id)
		}
	}
	slices.SortFunc(ids, func(a, b SandboxID) int { return strings.Compare(string(a), string(b)) })
	return ids
}

// collectIfMany keeps a sandbox from piling up snapshots when nobody calls
// Collect. The caller holds the sandbox. Failure costs nothing but space.
func (e *Engine) collectIfMany(ctx context.Context, sb Sandbox) {
	if e.deletable(sb.ID) >= e.c.Keep {
		_, _ = e.collect(ctx, sb.ID, nil)
	}
}

// deletable is how many transactions of the sandbox have snapshots to delete,
// but for those that were looked for in vain a moment ago.
func (e *Engine) deletable(sb SandboxID) (n int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	now := e.c.Now()
	for _, t := range e.boxes[sb].spent {
		if now.Sub(t.looked) > lookAgain {
			n++
		}
	}
	return n
}

// collect deletes what one sandbox has to spare, until stop says that somebody
// waits; nil: nobody does. The caller holds the sandbox.
func (e *Engine) collect(ctx context.Context, sb SandboxID, stop func() bool) (n int, err error) {
	e.mu.Lock()
	spent := slices.Clone(e.boxes[sb].spent)
	e.mu.Unlock()
	// Snapshots are a stack: the newest goes first.
	for _, t := range slices.Backward(spent) {
		if stop != nil && stop() {
			return n, nil
		}
		settled, err := e.collectOne(ctx, t)
		if err != nil {
			return n, err
		}
		if settled {
			n++
		}
	}
	return n, nil
}

// linger is how long an order whose answer was lost is given to arrive: longer
// than any proxy or connection on the way holds a request, by more than clocks
// are set.
const linger = 2 * time.Hour

// awaited reports whether the point's snapshot may have been ordered and was
// never seen. A task of such an order is no proof: there may be another order.
func (p PointView) awaited() bool { return p.pending && !p.dropping }

// present leaves of the points those whose snapshots are there, and reports
// whether one that is not may still come.
func (t *tx) present(ctx context.Context) (there []PointView, later bool, err error) {
	for _, p := range t.view.Points {
		_, found, err := t.find(ctx, p)
		switch {
		case err != nil:
			return nil, false, fmt.Errorf("look for snapshot %s of sandbox %s: %w", p.Snapshot, t.view.Sandbox.Name, classed(err))
		case found:
			there = append(there, p)
		case p.awaited():
			later = true
		}
	}
	return there, later, nil
}

// collectOne settles one transaction, or leaves it for later while a snapshot
// of it may still appear: whoever is settled is not looked at again.
func (e *Engine) collectOne(ctx context.Context, view *Transaction) (settled bool, err error) {
	t := &tx{e: e, view: slim(view)}
	done := t.step(StepCollect, string(view.Snapshot))
	defer func() { done(err) }()
	ctx, cancel := context.WithTimeout(ctx, e.c.Deadlines.Collect)
	defer cancel()
	points, later := view.Points, false
	if slices.ContainsFunc(points, PointView.awaited) && e.c.Now().Sub(view.Ended) <= linger {
		if points, later, err = t.present(ctx); err != nil {
			return false, err
		}
	}
	for _, p := range slices.Backward(points) {
		if err := t.collectPoint(ctx, p); err != nil {
			return false, err
		}
	}
	if later {
		e.mu.Lock()
		view.looked = e.c.Now() // it is one of spent
		e.mu.Unlock()
		return false, nil
	}
	if err := t.append(ctx, entry{event: evCollected, settled: true}); err != nil {
		return false, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	b := e.boxes[view.Sandbox.ID]
	b.spent = slices.DeleteFunc(b.spent, func(o *Transaction) bool { return o.ID == view.ID })
	return true, nil
}

func (t *tx) collectPoint(ctx context.Context, p PointView) error {
	if err := t.append(ctx, entry{event: evCollect, data: collectData{Snapshot: p.Snapshot}}); err != nil {
		return err
	}
	err := t.driver(p).Delete(ctx, t.request(ctx, taskDelete, p))
	if err != nil && !errors.Is(err, ErrNotFound) {
		err = t.undeletable(ctx, p, err)
		var operator *StuckError
		if errors.As(err, &operator) {
			return operator
		}
		return fmt.Errorf("collect snapshot %s of sandbox %s: %w", p.Snapshot, t.view.Sandbox.Name, classed(err))
	}
	return nil
}

// Forget settles what is left of a sandbox whose VM was destroyed: there is
// nothing to collect and nothing to restore any more. ErrBusy while a
// transaction runs or is open; a stuck one is let go.
func (e *Engine) Forget(ctx context.Context, sb SandboxID) error {
	if err := e.load(ctx); err != nil {
		return err
	}
	if err := e.lockIdle(ctx, sb); err != nil {
		return fmt.Errorf("forget sandbox %s: %w", sb, err)
	}
	b := e.boxes[sb]
	if b == nil {
		e.mu.Unlock()
		return nil
	}
	for _, t := range b.open {
		if t.State != StateStuck {
			e.mu.Unlock()
			return fmt.Errorf("forget sandbox %s: %w", sb, unfinishedError(t))
		}
	}
	if b.holder != "" {
		defer e.mu.Unlock()
		return fmt.Errorf("forget sandbox %s: it is at work (%s): %w", sb, b.holder, ErrBusy)
	}
	b.holder = "forget"
	e.mu.Unlock()
	defer e.unclaim(sb)
	if err := e.dropAhead(ctx, sb, "the sandbox is gone"); err != nil {
		return fmt.Errorf("forget sandbox %s: %w", sb, err)
	}
	e.mu.Lock()
	left := slices.Clone(b.spent)
	for _, t := range b.open {
		left = append(left, t)
	}
	e.mu.Unlock()
	for _, v := range left {
		t := &tx{e: e, view: v}
		if err := t.append(ctx, entry{event: evAbandoned, settled: true}); err != nil {
			return fmt.Errorf("forget sandbox %s: %w", sb, err)
		}
		e.mu.Lock()
		delete(b.open, v.ID)
		b.spent = slices.DeleteFunc(b.spent, func(o *Transaction) bool { return o.ID == v.ID })
		e.mu.Unlock()
	}
	return nil
}
