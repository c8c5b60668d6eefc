package sim

import (
	"context"
	"iter"
	"sync"

	"savepoint/orchestrator"
)

// Forgetful is a journal in memory that drops what has settled, so that what grows
// beside it is the engine: for measuring one with many sandboxes. It is safe for
// concurrent use and never fails.
type Forgetful struct {
	mu sync.Mutex
	tx map[orchestrator.TxID][]orchestrator.Record
}

// NewForgetful returns an empty one.
func NewForgetful() *Forgetful {
	return &Forgetful{tx: map[orchestrator.TxID][]orchestrator.Record{}}
}

// AppendAll implements orchestrator.Batcher.
func (f *Forgetful) AppendAll(_ context.Context, rs []orchestrator.Record) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, r := range rs {
		f.tx[r.Tx] = append(f.tx[r.Tx], r)
		if r.Settled {
			delete(f.tx, r.Tx)
		}
	}
	return nil
}

// Append implements orchestrator.Journal.
func (f *Forgetful) Append(ctx context.Context, r orchestrator.Record) error {
	return f.AppendAll(ctx, []orchestrator.Record{r})
}

// Records implements orchestrator.Journal.
func (f *Forgetful) Records(_ context.Context, tx orchestrator.TxID) iter.Seq2[orchestrator.Record, error] {
	return func(yield func(orchestrator.Record, error) bool) {
		f.mu.Lock()
		defer f.mu.Unlock()
		for id, rs := range f.tx {
			for _, r := range rs {
				if (tx == "" || id == tx) && !yield(r, nil) {
					return
				}
			}
		}
	}
}

// Close implements orchestrator.Journal.
func (f *Forgetful) Close() error { return nil }
