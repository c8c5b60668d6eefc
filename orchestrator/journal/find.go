package journal

import (
	"context"
	"iter"
	"slices"
	"strings"

	"savepoint/orchestrator"
)

// findPage is how many transactions are looked up at once. No connection is
// kept while the caller works with them.
const findPage = 256

// Transactions yields the ids of all transactions, the newest first: the last
// that began, whatever the clock said.
func (j *Journal) Transactions(ctx context.Context) iter.Seq2[orchestrator.TxID, error] {
	return j.find(ctx, orchestrator.Filter{})
}

// Find yields the records of the transactions that the filter selects, but
// for its Limit: the newest transaction first, each one's in a row, in order.
func (j *Journal) Find(ctx context.Context, f orchestrator.Filter) iter.Seq2[orchestrator.Record, error] {
	return func(yield func(orchestrator.Record, error) bool) {
		for id, err := range j.find(ctx, f) {
			if err != nil {
				yield(orchestrator.Record{}, err)
				return
			}
			for r, err := range j.Records(ctx, id) {
				if !yield(r, err) || err != nil {
					return
				}
			}
		}
	}
}

// find yields the ids by pages, each from where the last one ended.
func (j *Journal) find(ctx context.Context, f orchestrator.Filter) iter.Seq2[orchestrator.TxID, error] {
	where, args := conditions(f)
	return func(yield func(orchestrator.TxID, error) bool) {
		from := int64(1) << 62
		for {
			ids, last, err := j.page(ctx, f.Sandbox, where, args, from)
			if err != nil {
				yield("", j.explain(err))
				return
			}
			for _, id := range ids {
				if !yield(id, nil) {
					return
				}
			}
			if len(ids) < findPage {
				return
			}
			from = last
		}
	}
}

// conditions are those of the filter but for the sandbox, which needs its own
// index for its id and for its name. The text is put together from constants;
// every value of the filter is an argument.
func conditions(f orchestrator.Filter) (string, []any) {
	where := "began < ?"
	var args []any
	if !f.Since.IsZero() {
		// One whose snapshot was taken ahead counts from when its command came.
		where += " AND (began_at >= ? OR last_at >= ?)"
		args = append(args, f.Since.UnixNano(), f.Since.UnixNano())
	}
	if len(f.States) > 0 {
		where += " AND state IN (?" + strings.Repeat(",?", len(f.States)-1) + ")"
		for _, s := range f.States {
			args = append(args, string(s))
		}
	}
	if f.Open {
		where += " AND settled = 0 AND state NOT IN (?,?,?)"
		args = append(args, string(orchestrator.StateCommitted), string(orchestrator.StateRolledBack), string(orchestrator.StateDenied))
	}
	return where, args
}

func (j *Journal) page(ctx context.Context, sandbox, where string, args []any, from int64) (ids []orchestrator.TxID, last int64, err error) {
	args = slices.Concat([]any{from}, args)
	q := "SELECT tx, began FROM txs WHERE " + where + " ORDER BY began DESC LIMIT ?" //nolint:gosec // where is of conditions: constants and question marks
	args = append(args, findPage)
	if sandbox != "" {
		one := "SELECT * FROM (SELECT tx, began FROM txs WHERE %s = ? AND " + where + " ORDER BY began DESC LIMIT ?)"
		q = strings.Replace(one, "%s", "sandbox", 1) + " UNION " + strings.Replace(one, "%s", "name", 1) + " ORDER BY began DESC LIMIT ?"
		args = slices.Concat([]any{sandbox}, args, []any{sandbox}, args, []any{findPage})
	}
	rows, err := j.read.QueryContext(ctx, q, args...)
	if err != nil {
		return nil, 0, err
	}
	defer rows.Close()
	for rows.Next() {
		var id orchestrator.TxID
		if err := rows.Scan(&id, &last); err != nil {
			return nil, 0, err
		}
		ids = append(ids, id)
	}
	return ids, last, rows.Err()
}
