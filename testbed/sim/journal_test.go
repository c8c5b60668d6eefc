package sim_test

import (
	"context"
	"errors"
	"testing"

	"savepoint/orchestrator"
	"savepoint/testbed/conformance"
	"savepoint/testbed/sim"
)

var _ interface {
	orchestrator.Journal
	orchestrator.Batcher
	orchestrator.Unsettler
	orchestrator.Indexer
	orchestrator.Finder
	orchestrator.Beginner
	orchestrator.Keyed
	orchestrator.SessionKeeper
	orchestrator.GrantKeeper
	orchestrator.Fencer
} = (*sim.Journal)(nil)

func TestJournalConforms(t *testing.T) {
	t.Parallel()
	conformance.Journal(t, func(*testing.T) *conformance.JournalSubject {
		next := sim.JournalWorks
		fault := func([]orchestrator.Record) sim.JournalFault {
			f := next
			next = sim.JournalWorks
			return f
		}
		j := sim.NewJournal("test", nil) // concurrent writes never meet the fault
		s := &conformance.JournalSubject{Journal: j, PutGrant: j.PutGrant}
		s.Unknown = func(kept bool) {
			if next = sim.JournalTears; kept {
				next = sim.JournalLoses
			}
			j = j.Reopen(fault)
			s.Journal = j
		}
		s.Reopen = func(t *testing.T) orchestrator.Journal {
			if err := j.Close(); err != nil {
				t.Error(err)
			}
			j = j.Reopen(nil)
			return j
		}
		s.Overtake = func(*testing.T) orchestrator.Journal { j = j.Reopen(nil); return j }
		return s
	})
}

func TestJournalRefusesOnce(t *testing.T) {
	t.Parallel()
	calls := 0
	j := sim.NewJournal("test", func(rs []orchestrator.Record) sim.JournalFault {
		if calls++; calls == 2 && len(rs) == 1 {
			return sim.JournalRefuses
		}
		return sim.JournalWorks
	})
	ctx := context.Background()
	r := orchestrator.Record{Tx: "tx1", State: orchestrator.StateBegun, Event: "begin", Sandbox: "box"}
	for n, want := range []error{nil, orchestrator.ErrUnavailable, nil} {
		if err := j.Append(ctx, r); !errors.Is(err, want) || (err == nil) != (want == nil) {
			t.Errorf("append %d: got %v", n, err)
		}
	}
	n := 0
	for range j.Records(ctx, "tx1") {
		n++
	}
	if n != 2 {
		t.Errorf("%d records", n)
	}
}
