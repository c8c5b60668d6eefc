package sim

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"savepoint/orchestrator"
)

// snapshot returns copies of the records at the places, nil = all.
func (s *journalStore) snapshot(places []int) []orchestrator.Record {
	var out []orchestrator.Record
	if places == nil {
		out = slices.Clone(s.records)
	}
	for _, i := range places {
		out = append(out, s.records[i])
	}
	for i := range out {
		out[i].Data = slices.Clone(out[i].Data)
	}
	return out
}

// each yields what pick chose at the first step, until ctx ends.
func (j *Journal) each(ctx context.Context, pick func(s *journalStore) []orchestrator.Record) iter.Seq2[orchestrator.Record, error] {
	return func(yield func(orchestrator.Record, error) bool) {
		j.store.mu.Lock()
		rs := pick(j.store)
		j.store.mu.Unlock()
		for i := 0; ; i++ {
			if err := ctx.Err(); err != nil {
				yield(orchestrator.Record{}, fmt.Errorf("read simulated journal: %w: %w", orchestrator.ErrUnavailable, err))
				return
			}
			if i == len(rs) || !yield(rs[i], nil) {
				return
			}
		}
	}
}

// Records yields one transaction's records, or all.
func (j *Journal) Records(ctx context.Context, tx orchestrator.TxID) iter.Seq2[orchestrator.Record, error] {
	return j.each(ctx, func(s *journalStore) []orchestrator.Record {
		if tx == "" {
			return s.snapshot(nil)
		}
		return s.of(tx)
	})
}

func (s *journalStore) of(tx orchestrator.TxID) []orchestrator.Record {
	if s.byTx[tx] == nil {
		return nil
	}
	return s.snapshot(s.byTx[tx])
}

// Unsettled yields the records of the transactions that have not settled.
func (j *Journal) Unsettled(ctx context.Context) iter.Seq2[orchestrator.Record, error] {
	return j.each(ctx, func(s *journalStore) (rs []orchestrator.Record) {
		for _, tx := range s.order {
			if at := s.byTx[tx]; !s.records[at[len(at)-1]].Settled {
				rs = append(rs, s.of(tx)...)
			}
		}
		return rs
	})
}

// Find yields every transaction's records, the newest first: the filter's
// owner looks again anyhow.
func (j *Journal) Find(ctx context.Context, _ orchestrator.Filter) iter.Seq2[orchestrator.Record, error] {
	return j.each(ctx, func(s *journalStore) (rs []orchestrator.Record) {
		for _, tx := range slices.Backward(s.order) {
			rs = append(rs, s.of(tx)...)
		}
		return rs
	})
}

// Beginnings yields the records with which transactions and their commands begin.
func (j *Journal) Beginnings(ctx context.Context) iter.Seq2[orchestrator.Record, error] {
	return j.each(ctx, func(s *journalStore) []orchestrator.Record {
		return slices.DeleteFunc(s.snapshot(nil), func(r orchestrator.Record) bool {
			return r.Event != "begin" && r.Event != "adopt" && r.Event != "deny" && (r.Event != "run" || len(r.Data) == 0)
		})
	})
}

// Transactions yields the ids of all, the newest first.
func (j *Journal) Transactions(ctx context.Context) iter.Seq2[orchestrator.TxID, error] {
	return func(yield func(orchestrator.TxID, error) bool) {
		j.store.mu.Lock()
		ids := slices.Clone(j.store.order)
		j.store.mu.Unlock()
		for _, id := range slices.Backward(ids) {
			if err := ctx.Err(); err != nil {
				yield("", fmt.Errorf("read simulated journal: %w: %w", orchestrator.ErrUnavailable, err))
				return
			}
			if !yield(id, nil) {
				return
			}
		}
	}
}

// ByKey returns the transaction that has a record with the key.
func (j *Journal) ByKey(_ context.Context, sb orchestrator.SandboxID, key string) (orchestrator.TxID, bool, error) {
	j.store.mu.Lock()
	defer j.store.mu.Unlock()
	id, ok := j.store.keys[keyOf(sb, key)]
	return id, ok, nil
}

// Session returns the last one kept with a record of the sandbox; nil = none.
func (j *Journal) Session(_ context.Context, sb orchestrator.SandboxID) ([]byte, error) {
	j.store.mu.Lock()
	defer j.store.mu.Unlock()
	return slices.Clone(j.store.sessions[sb]), nil
}

// ClearSession forgets it.
func (j *Journal) ClearSession(_ context.Context, sb orchestrator.SandboxID) error {
	j.store.mu.Lock()
	defer j.store.mu.Unlock()
	if err := j.holds(); err != nil {
		return err
	}
	delete(j.store.sessions, sb)
	return nil
}

// PutGrant records a new grant. ErrExists when its id is taken.
func (j *Journal) PutGrant(_ context.Context, g orchestrator.Grant) error {
	j.store.mu.Lock()
	defer j.store.mu.Unlock()
	if err := j.holds(); err != nil {
		return err
	}
	if _, ok := j.store.grants[g.ID]; ok {
		return fmt.Errorf("record grant %s: %w", g.ID, orchestrator.ErrExists)
	}
	j.store.grants[g.ID] = g
	return nil
}

// OpenGrants returns the sandbox's open grants, oldest first.
func (j *Journal) OpenGrants(_ context.Context, sb orchestrator.SandboxID, now time.Time) ([]orchestrator.Grant, error) {
	j.store.mu.Lock()
	defer j.store.mu.Unlock()
	var open []orchestrator.Grant
	for _, g := range j.store.grants {
		if g.Sandbox == sb && g.State(now) == orchestrator.GrantOpen {
			open = append(open, g)
		}
	}
	slices.SortFunc(open, func(a, b orchestrator.Grant) int { return strings.Compare(string(a.ID), string(b.ID)) })
	return open, nil
}
