package orchestrator

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"savepoint/policy"
)

// Filter selects transactions; zero fields select all.
type Filter struct {
	Sandbox string // id or name, as it was at begin
	States  []State
	Since   time.Time // begun at or after
	Open    bool      // only those that recovery or an operator has to settle
	Limit   int       // the newest so many
	// As, Rule and Decision select by what was judged: the transaction's
	// command, or one of its several. A lifted rule counts like one that decided.
	As       policy.User
	Rule     string
	Decision string
	// Used leaves out what is only a snapshot that was taken ahead and not used,
	// unless it is stuck.
	Used bool
}

func (f Filter) match(t *Transaction) bool {
	return (f.Sandbox == "" || f.Sandbox == string(t.Sandbox.ID) || f.Sandbox == t.Sandbox.Name) &&
		(len(f.States) == 0 || slices.Contains(f.States, t.State)) &&
		(f.Since.IsZero() || !t.Began.Before(f.Since)) &&
		(!f.Open || !t.State.Final() && !t.Settled) &&
		(!f.Used || !t.Unused() || t.State == StateStuck) &&
		f.matchCommand(t)
}

func (f Filter) matchCommand(t *Transaction) bool {
	one := func(as policy.User, v Judgement) bool {
		return (f.As == "" || f.As == as) && (f.Decision == "" || f.Decision == v.Decision) &&
			(f.Rule == "" || f.Rule == v.Rule || slices.ContainsFunc(v.Lifted, func(l policy.Lift) bool { return l.Rule == f.Rule }))
	}
	switch {
	case f.As == "" && f.Rule == "" && f.Decision == "":
		return true
	case t.Several:
		return slices.ContainsFunc(t.Commands, func(c CommandView) bool { return one(c.As, c.Verdict) })
	default:
		return one(t.As, t.Verdict)
	}
}

// List returns the transactions that match, newest first.
func List(ctx context.Context, j Journal, f Filter) ([]Transaction, error) {
	if fd, ok := j.(Finder); ok && (f.Limit > 0 || f.Sandbox != "" || len(f.States) > 0 || !f.Since.IsZero() || f.Open) {
		return listFound(ctx, fd, f)
	}
	if ix, ok := j.(Indexer); ok && f.Limit > 0 {
		return listNewest(ctx, j, ix, f)
	}
	txs, err := foldAll(newMoves(), j.Records(ctx, ""), f.match)
	if err != nil {
		return nil, fmt.Errorf("list transactions: %w", err)
	}
	slices.Reverse(txs)
	if f.Limit > 0 && len(txs) > f.Limit {
		txs = txs[:f.Limit]
	}
	out := make([]Transaction, len(txs))
	for i, t := range txs {
		out[i] = *t
	}
	return out, nil
}

// listFound reads what the journal found, until there are enough.
func listFound(ctx context.Context, fd Finder, f Filter) ([]Transaction, error) {
	m := newMoves()
	var out []Transaction
	var t *Transaction
	enough := func() bool { // takes the transaction that is complete
		if t != nil && f.match(t) {
			out = append(out, *t)
		}
		return f.Limit > 0 && len(out) >= f.Limit
	}
	for r, err := range fd.Find(ctx, f) {
		if err == nil && (t == nil || t.ID != r.Tx) {
			if enough() {
				return out, nil
			}
			t = &Transaction{}
		}
		if err == nil {
			err = t.apply(m, r)
		}
		if err != nil {
			return nil, fmt.Errorf("list transactions: %w", err)
		}
	}
	enough()
	return out, nil
}

// listNewest reads one transaction after the other until there are enough.
func listNewest(ctx context.Context, j Journal, ix Indexer, f Filter) ([]Transaction, error) {
	m := newMoves()
	var out []Transaction
	for id, err := range ix.Transactions(ctx) {
		var txs []*Transaction
		if err == nil {
			txs, err = foldAll(m, j.Records(ctx, id), f.match)
		}
		if err != nil {
			return nil, fmt.Errorf("list transactions: %w", err)
		}
		for _, t := range txs {
			out = append(out, *t)
		}
		if len(out) >= f.Limit {
			break
		}
	}
	return out, nil
}

// Show returns one transaction. ErrNotFound when the journal does not know it.
func Show(ctx context.Context, j Journal, id TxID) (Transaction, error) {
	if id == "" {
		return Transaction{}, &UsageError{What: "show transaction: no id", Mend: "see savepoint tx list"}
	}
	txs, err := foldAll(newMoves(), j.Records(ctx, TxID(strings.ToLower(string(id)))), func(*Transaction) bool { return true })
	if err != nil {
		return Transaction{}, fmt.Errorf("show transaction %s: %w", id, err)
	}
	if len(txs) == 0 {
		return Transaction{}, fmt.Errorf("show transaction %s: %w; see savepoint tx list", id, ErrNotFound)
	}
	return *txs[0], nil
}

// foldAll builds the transactions of a stream of records and returns those
// that keep accepts at the end, in the order they began. A record that does
// not fit stops it: a damaged journal is for an operator, not for guesses.
func foldAll(m moves, records iter.Seq2[Record, error], keep func(*Transaction) bool) ([]*Transaction, error) {
	byID := map[TxID]*Transaction{}
	var order []*Transaction
	for r, err := range records {
		if err != nil {
			return nil, err
		}
		t := byID[r.Tx]
		if t == nil {
			t = &Transaction{}
			byID[r.Tx] = t
			order = append(order, t)
		}
		if err := t.apply(m, r); err != nil {
			return nil, err
		}
	}
	return slices.DeleteFunc(order, func(t *Transaction) bool { return !keep(t) }), nil
}
