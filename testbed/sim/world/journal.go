package world

import (
	"context"
	"errors"
	"fmt"

	"savepoint/orchestrator"
	"savepoint/testbed/sim"
)

// Journal is a process's hold of the journal, with the points before and after
// every write. Reading is no point: a death there is one at the next call.
type Journal struct {
	*sim.Journal
	p *Process
}

// AppendAll writes the records.
func (j Journal) AppendAll(ctx context.Context, rs []orchestrator.Record) error {
	if len(rs) == 0 { // no point either
		return nil
	}
	name := "journal"
	for _, r := range rs {
		name += " " + r.Event
	}
	if j.p.torn.Load() {
		return fmt.Errorf("the journal was lost to an earlier error: %w", orchestrator.ErrUnavailable)
	}
	_, err := j.p.point(rs[0].Sandbox, name, false)
	if err == nil {
		if err = j.Journal.AppendAll(ctx, rs); err == nil {
			_, err = j.p.point(rs[0].Sandbox, name, true)
		}
	}
	if errors.Is(err, orchestrator.ErrUnknownOutcome) {
		j.p.torn.Store(true)
	}
	return err
}

// Lost reports whether the journal refuses everything until the process is
// started again.
func (p *Process) Lost() bool { return p.torn.Load() }

// Append writes one record.
func (j Journal) Append(ctx context.Context, r orchestrator.Record) error {
	return j.AppendAll(ctx, []orchestrator.Record{r})
}

// OneByOne is the journal without what lets it write several records at once.
func (j Journal) OneByOne() orchestrator.Journal { return oneByOne{j, j, j, j} }

type oneByOne struct {
	orchestrator.Journal
	orchestrator.Keyed
	orchestrator.SessionKeeper
	orchestrator.GrantKeeper
}
