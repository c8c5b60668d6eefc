package janitor

import (
	"context"
	"errors"
	"fmt"

	"savepoint/orchestrator"
)

// patience is how many findings in a row may fail because the cluster does not
// answer before the rest is left for another run.
const patience = 3

// Clean looks and does what the findings say, one after the other. The report
// holds what came of each. The error is one of the journal, the notes or the
// look itself; what failed on the cluster is in the report.
func (j *Janitor) Clean(ctx context.Context) (Report, error) {
	var r Report
	for _, n := range j.c.Notes.Open() {
		r.Resumed = append(r.Resumed, fmt.Sprintf("%s %s", n.Kind, n.Subject))
	}
	l, err := j.look(ctx, false)
	if err != nil {
		return r, err
	}
	r.Findings = l.out
	// What is left of an interrupted call was found again above, or is gone.
	for _, n := range j.c.Notes.Open() {
		if err := j.note(Note{Event: EventEnd, ID: n.ID, Outcome: "interrupted; looked at again"}); err != nil {
			return r, err
		}
	}
	silent := 0
	for i := range r.Findings {
		f := &r.Findings[i]
		if f.act == nil {
			continue
		}
		if ctx.Err() != nil || silent >= patience {
			f.State, f.err = StateFailed, fmt.Errorf("%s: not begun: %w", f.Subject, orchestrator.ErrUnavailable)
			f.Error = f.err.Error()
			continue
		}
		j.c.Observe(*f)
		if err := j.do(ctx, f); err != nil {
			return r, err
		}
		j.c.Observe(*f)
		if silent++; !errors.Is(f.err, orchestrator.ErrUnavailable) {
			silent = 0
		}
	}
	return r, nil
}

// errNothing is what an act returns that found its reason gone.
var errNothing = errors.New("nothing to do any more")

func (j *Janitor) note(n Note) error {
	n.At = j.c.Now()
	return j.c.Notes.Append(n)
}

// do acts on one finding, between a note of the intent and one of the outcome.
func (j *Janitor) do(ctx context.Context, f *Finding) error {
	id := j.c.Notes.NextID()
	if !f.quiet {
		if err := j.note(Note{Event: EventIntend, ID: id, Kind: f.Kind, Subject: f.Subject, Sandbox: f.Sandbox}); err != nil {
			return err
		}
	}
	err := f.act(ctx, func(t orchestrator.UPID) error { return j.note(Note{Event: EventTask, ID: id, UPID: t}) })
	var record *orchestrator.JournalError
	if errors.As(err, &record) {
		return err
	}
	if err != nil && f.gone != nil && ctx.Err() == nil && f.gone(ctx) {
		err = nil
	}
	if errors.Is(err, errNothing) {
		f.Level, f.Action, err = LevelNote, "nothing is left to do", nil
	}
	outcome := "done"
	if f.State = StateDone; err != nil {
		f.State, f.err, f.Error, outcome = StateFailed, err, err.Error(), err.Error()
		if errors.Is(err, orchestrator.ErrDenied) {
			f.Level = LevelOperator
		}
	} else if f.Level == LevelCollect || f.Level == LevelNote {
		f.Command, f.Check = "", ""
	}
	if f.quiet {
		return nil
	}
	return j.note(Note{Event: EventEnd, ID: id, Outcome: outcome})
}
