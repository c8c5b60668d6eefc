package orchestrator

import (
	"errors"
	"slices"
	"time"
)

// What is met in a damaged journal only: the table does not know whether a
// transaction was begun to have several commands, and which it had.
var (
	errSingle    = errors.New("the transaction has one command only")
	errNoCommand = errors.New("the transaction has had no command")
)

// foldStep takes one of several commands over, one that is about to run or one
// that was denied.
func (t *Transaction) foldStep(r Record, step *StepView) error {
	var d stepData
	if err := decode(r, &d); err != nil {
		return err
	}
	state := StateRunning
	if r.Event == evDeny {
		state = StateDenied
	}
	c := CommandView{
		N: d.N, At: r.At, Key: r.Key, Command: string(d.Command), Runs: string(d.Runs), Digest: d.Digest, As: d.As, Dir: d.Dir,
		EnvNames: d.EnvNames, Timeout: d.Timeout, Verdict: d.Verdict, Validate: validateViews(d.Validate), State: state, request: d.Request, Guard: d.Guard,
	}
	if state == StateDenied {
		c.Reason = d.Verdict.Reason
	} else {
		t.Result = nil // until this one has ended
	}
	t.Commands = append(t.Commands, c)
	t.Timings.Policy += d.Policy
	step.Detail = d.Verdict.Decision
	return nil
}

// foldSeveral folds what only a transaction of several commands has.
func (t *Transaction) foldSeveral(r Record, step *StepView) error {
	if !t.Several && r.Event != evDropped { // a stray may be in any one's way
		return errSingle
	}
	switch r.Event {
	case evOpen:
		return t.foldOpen(r, step)
	case evNotRun:
		var d reasonData
		if err := decode(r, &d); err != nil {
			return err
		}
		if len(t.Commands) == 0 {
			return errNoCommand
		}
		c := &t.Commands[len(t.Commands)-1]
		c.State, c.Reason, step.Detail = StateOpen, d.Reason, d.Reason
	case evDropped:
		var d collectData
		if err := decode(r, &d); err != nil {
			return err
		}
		step.Detail = string(d.Snapshot)
		t.Points = slices.DeleteFunc(t.Points, func(p PointView) bool { return p.N > 0 && p.Snapshot == d.Snapshot })
	case evReturn:
		var d returnData
		if err := decode(r, &d); err != nil {
			return err
		}
		t.target = slices.IndexFunc(t.Points, func(p PointView) bool { return p.N == d.N })
		if t.target < 0 {
			return errors.New("it has no such savepoint")
		}
		t.Attempts, step.Detail = 1, d.Name
		t.restores++
	case evReturned:
		var d restoredData
		if err := decode(r, &d); err != nil {
			return err
		}
		t.Points = t.Points[:t.target+1]
		p := t.Points[t.target]
		if d.BootID != "" {
			t.boot = d.BootID
		}
		t.session, t.restarts, t.Attempts = p.session, 0, 0
		t.Timings.Rollback, step.Took, step.Detail = t.Timings.Rollback+d.Took, d.Took, p.Name
	default:
		return t.foldSave(r, step)
	}
	return nil
}

// foldOpen ends a step, or the begin.
func (t *Transaction) foldOpen(r Record, step *StepView) error {
	var d openData
	if len(r.Data) > 0 {
		if err := decode(r, &d); err != nil {
			return err
		}
	}
	if t.State == StateRan {
		if len(t.Commands) == 0 {
			return errNoCommand
		}
		c := &t.Commands[len(t.Commands)-1]
		c.State, c.Checks, c.Reason = StateOpen, d.Checks, d.Reason
		c.Changed, c.ChangedCount = d.Changed, d.ChangedN
	}
	t.Timings.Validate += d.Validate
	step.Took, step.Detail = d.Validate, d.Reason
	return nil
}

// foldSave folds the taking of a savepoint.
func (t *Transaction) foldSave(r Record, step *StepView) error {
	switch r.Event {
	case evSave:
		var d saveData
		if err := decode(r, &d); err != nil {
			return err
		}
		t.saves, step.Detail = d.N, d.Name
		t.Points = append(slices.Clip(t.Points), PointView{
			N: d.N, Name: d.Name, Snapshot: d.Snapshot, Boundary: d.Boundary, At: r.At, pending: true, session: t.session,
		})
	case evSaved:
		var d snapshotData
		if err := decode(r, &d); err != nil {
			return err
		}
		p := &t.Points[len(t.Points)-1]
		p.pending, p.BootID = false, d.BootID
		t.Timings.Snapshot, step.Took = t.Timings.Snapshot+d.Took, d.Took
	case evUnsaved:
		var d reasonData
		if err := decode(r, &d); err != nil {
			return err
		}
		step.Detail = d.Reason
		t.Points = t.Points[:len(t.Points)-1]
	}
	return nil
}

// top is the newest state that can come back; its name is what the guest is
// marked with.
func (t *Transaction) top() PointView {
	for i := len(t.Points) - 1; i >= 0; i-- {
		if !t.Points[i].pending || i == 0 {
			return t.Points[i]
		}
	}
	return PointView{Name: PointBegin, Snapshot: t.Snapshot, Boundary: t.Boundary, BootID: t.BootID}
}

// waits reports whether the transaction is open and somebody may still give it
// its next order.
func (t *Transaction) waits(now time.Time) bool {
	return t.State == StateOpen && !t.Bound && now.Before(t.Expires)
}
