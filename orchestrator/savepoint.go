package orchestrator

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// errRebooted is met while a savepoint is taken: what it would hold is not what
// the steps left.
var errRebooted = fmt.Errorf("the guest was rebooted: %w", ErrDenied)

// rank orders the boundaries by what a restore takes back.
func (b Boundary) rank() int {
	return slices.Index([]Boundary{BoundaryNone, BoundaryWorkspace, BoundaryDisk, BoundaryMachine}, b)
}

// save takes a savepoint's snapshot.
func (t *tx) save(ctx context.Context, name string, b Boundary) (Outcome, error) {
	t.order(t.plain())
	b, err := t.savable(name, b)
	if err != nil {
		return t.outcome(), err
	}
	if err := ctx.Err(); err != nil {
		return t.outcome(), fmt.Errorf("savepoint %s: %w: %w", name, ErrUnavailable, err)
	}
	t.seen = false // to mark a guest would hide what it was
	if out, gone, err := t.look(ctx); gone {
		return out, err
	}
	n := t.view.saves + 1
	if err := t.append(ctx, entry{event: evSave, data: saveData{
		N: n, Name: name, Snapshot: pointName(t.view.ID, n), Boundary: b,
	}}); err != nil {
		return t.outcome(), err
	}
	t.created = false
	if err = t.snapshot(ctx, evSaved); err == nil {
		err = t.append(ctx)
	}
	if err != nil {
		return t.unsave(ctx, name, err)
	}
	return t.outcome(), nil
}

// savable checks a savepoint before anything is done. A savepoint that covers
// more than an older one would have to be restored before that one could be.
func (t *tx) savable(name string, b Boundary) (Boundary, error) {
	if err := pointNamed(name); err != nil {
		return b, err
	}
	if t.clean(name) != name { // it is kept as it is, to be found by
		return b, &UsageError{What: "savepoint: its name looks like a secret, and names are kept in the journal", Mend: "use another one"}
	}
	top := t.view.top()
	if b == "" || b == BoundaryAuto {
		b = top.Boundary
	}
	switch {
	case b.rank() < 1:
		return b, &UsageError{What: fmt.Sprintf("savepoint %s: boundary %s", name, b), Mend: "use workspace, disk or machine"}
	case b.rank() > top.Boundary.rank():
		return b, &UsageError{
			What: fmt.Sprintf("savepoint %s: boundary %s is larger than %s of %s, below which it would lie", name, b, top.Boundary, top.Name),
			Mend: "use the same or a smaller one",
		}
	case t.e.c.Snapshotters[b] == nil:
		return b, &UnsupportedError{What: fmt.Sprintf("savepoint %s: no driver for boundary %s", name, b), Mend: "see savepoint doctor"}
	case b == BoundaryWorkspace && t.view.Sandbox.Workspace == "":
		return b, &UnsupportedError{What: fmt.Sprintf("sandbox %s has no workspace volume", t.view.Sandbox.Name), Mend: "use boundary disk or machine"}
	case t.view.saves >= maxPoints:
		return b, &UsageError{What: fmt.Sprintf("transaction %s has had %d savepoints", t.view.ID, maxPoints), Mend: "commit it and begin another one"}
	}
	if t.pointAt(name) >= 0 {
		return b, &UsageError{What: fmt.Sprintf("transaction %s has a savepoint %s already", t.view.ID, name), Mend: "use another name"}
	}
	return b, nil
}

func (t *tx) pointAt(name string) int {
	return slices.IndexFunc(t.view.Points, func(p PointView) bool { return p.Name == name })
}

// unsave takes back what there is of a savepoint that could not be taken, so
// that the transaction goes on as before. If that is impossible too the whole
// is rolled back.
func (t *tx) unsave(ctx context.Context, name string, cause error) (Outcome, error) {
	cause = fmt.Errorf("savepoint %s: %w", name, classed(cause))
	if t.uncertain {
		return t.outcome(), cause
	}
	t.broken, t.pending = nil, nil
	err := t.takeBack(ctx, cause)
	if err == nil {
		return t.outcome(), cause
	}
	if t.uncertain {
		return t.outcome(), errors.Join(cause, err)
	}
	t.broken, t.pending = nil, nil
	err = t.rollBack(ctx, failure{reason: fmt.Sprintf("%v; it could not be taken back: %v", cause, err), interrupted: ctx.Err() != nil})
	return t.outcome(), errors.Join(cause, err)
}

func (t *tx) takeBack(ctx context.Context, cause error) error {
	if errors.Is(cause, errRebooted) || errors.Is(cause, errOff) {
		return cause // what the steps left in memory is gone
	}
	ctx, cancel := t.e.detached(ctx, t.e.c.Deadlines.Snapshot)
	defer cancel()
	if t.created {
		sure, err := t.dropUnused(ctx)
		if err != nil {
			return err
		}
		if !sure {
			return fmt.Errorf("its snapshot may still appear: %w", ErrUnknownOutcome)
		}
	}
	want := string(t.view.top().Snapshot)
	facts, err := t.askMark(ctx, want)
	switch {
	case err != nil:
		return fmt.Errorf("mark sandbox %s: %w", t.view.Sandbox.Name, err)
	case facts.Generation != want || facts.BootID != t.view.boot:
		return fmt.Errorf("sandbox %s is not as the transaction left it: %w", t.view.Sandbox.Name, ErrDenied)
	}
	return t.append(ctx, entry{event: evUnsaved, data: reasonData{Reason: cause.Error()}})
}

// goBack restores the state at a savepoint. Newer ones are gone afterwards,
// itself stays.
func (t *tx) goBack(ctx context.Context, name string) (Outcome, error) {
	t.order(t.plain())
	to := t.pointAt(name)
	if to < 0 {
		var names []string
		for _, p := range t.view.Points {
			names = append(names, p.Name)
		}
		return t.outcome(), &UsageError{
			What: fmt.Sprintf("transaction %s has no savepoint %q", t.view.ID, name), Mend: "it has " + strings.Join(names, ", "),
		}
	}
	if err := ctx.Err(); err != nil {
		return t.outcome(), fmt.Errorf("roll back to %s: %w: %w", name, ErrUnavailable, err)
	}
	err := t.goTo(ctx, to, name)
	o := t.outcome()
	if t.view.State == StateOpen && err == nil {
		o.Reason = "back at " + name
	}
	return o, err
}

func (t *tx) goTo(ctx context.Context, to int, name string) (err error) {
	done := t.step(StepRollback, name)
	defer func() { done(err) }()
	start := t.e.c.Now()
	if err := t.append(ctx, entry{event: evReturn, data: returnData{N: t.view.Points[to].N, Name: name}}); err != nil {
		return err
	}
	rctx, cancel := t.e.detached(ctx, t.e.c.Deadlines.Rollback)
	defer cancel()
	proof, err := t.restore(rctx, to, false)
	if err != nil {
		return t.orStuck(rctx, err)
	}
	if t.forsake() { // it would undo steps to come, and its target is still needed
		cause := fmt.Errorf("roll back to %s: an order to restore it may still arrive: %w", name, ErrUnknownOutcome)
		return errors.Join(cause, t.rollBack(ctx, failure{reason: cause.Error()}))
	}
	proof.Took = t.e.c.Now().Sub(start)
	err = t.append(rctx, entry{event: evReturned, data: proof})
	if err == nil {
		t.seen = true
		return nil
	}
	if t.uncertain {
		return err
	}
	return errors.Join(err, t.rollBack(ctx, failure{reason: fmt.Sprintf("the return to %s could not be recorded: %v", name, err)}))
}
