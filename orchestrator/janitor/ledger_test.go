package janitor

import (
	"context"
	"encoding/json"
	"errors"
	"iter"
	"slices"
	"testing"
	"time"

	"savepoint/orchestrator"
)

// book is a journal of records in memory; indexed adds what the real one has.
type book struct{ records []orchestrator.Record }

func (b *book) Append(context.Context, orchestrator.Record) error { return errors.ErrUnsupported }
func (b *book) Close() error                                      { return nil }

func (b *book) Records(_ context.Context, tx orchestrator.TxID) iter.Seq2[orchestrator.Record, error] {
	return func(yield func(orchestrator.Record, error) bool) {
		for _, r := range b.records {
			if (tx == "" || r.Tx == tx) && !yield(r, nil) {
				return
			}
		}
	}
}

type indexed struct{ *book }

func (b indexed) Unsettled(ctx context.Context) iter.Seq2[orchestrator.Record, error] {
	open := map[orchestrator.TxID]bool{}
	for _, r := range b.records {
		open[r.Tx] = !r.Settled
	}
	return func(yield func(orchestrator.Record, error) bool) {
		for _, r := range b.records {
			if open[r.Tx] && !yield(r, nil) {
				return
			}
		}
	}
}

// The journal tells open, spent and settled transactions apart, with and
// without its index.
func TestJournal(t *testing.T) {
	b := &book{}
	begin := func(n int, events ...string) orchestrator.TxID {
		id := txID(n)
		data, err := json.Marshal(map[string]any{"snapshot": orchestrator.SnapshotOf(id), "sandbox": orchestrator.Sandbox{ID: "sb-box", Name: "box"}, "boundary": "machine"})
		if err != nil {
			t.Fatal(err)
		}
		states := map[string]orchestrator.State{
			"begin": orchestrator.StateBegun, "snapshot": orchestrator.StateSnapshotted, "run": orchestrator.StateRunning, "ran": orchestrator.StateRan,
			"commit": orchestrator.StateCommitting, "committed": orchestrator.StateCommitted, "collected": orchestrator.StateCommitted,
		}
		for _, e := range events {
			r := orchestrator.Record{Seq: int64(len(b.records) + 1), Tx: id, Sandbox: "sb-box", At: time.Unix(1, 0), Event: e, State: states[e], Settled: e == "collected"}
			if e == "begin" {
				r.Data = data
			} else {
				r.Data = []byte("{}")
			}
			b.records = append(b.records, r)
		}
		return id
	}
	done := []string{"begin", "snapshot", "run", "ran", "commit", "committed"}
	spent, open, settled := begin(1, done...), begin(2, done[:3]...), begin(3, append(slices.Clone(done), "collected")...)
	for _, l := range []Ledger{Journal(b), Journal(indexed{b})} {
		got, err := l.Spent(t.Context())
		if err != nil || len(got) != 1 || got[0].Tx != spent || got[0].Sandbox.ID != "sb-box" {
			t.Errorf("spent %+v, %v", got, err)
		}
		for id, want := range map[orchestrator.TxID]bool{spent: false, open: false, settled: true} {
			if c, err := l.Claim(t.Context(), id); err != nil || c.Settled != want || c.Tx != id {
				t.Errorf("%s: %+v, %v; want settled %t", id, c, err, want)
			}
		}
		if _, err := l.Claim(t.Context(), txID(9)); !errors.Is(err, orchestrator.ErrNotFound) {
			t.Errorf("an unknown one: %v", err)
		}
	}
}
