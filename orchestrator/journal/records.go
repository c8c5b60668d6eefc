package journal

import (
	"context"
	"iter"
	"time"

	"savepoint/orchestrator"
)

const columns = "SELECT seq, tx, sandbox, at, state, event, settled, owner, fence, data, key FROM records "

// visible leaves out what retention left of transactions that it removed. The
// query's table of records has no other name.
const visible = "(seq > (SELECT coalesce(max(hidden), 0) FROM anchors) OR tx IN (SELECT tx FROM txs))"

// Records yields the records of one transaction, or of all when tx is "", in
// the order they were appended: what is on disk at the first step, not what is
// appended meanwhile. After an error it ends.
func (j *Journal) Records(ctx context.Context, tx orchestrator.TxID) iter.Seq2[orchestrator.Record, error] {
	if tx == "" {
		return j.query(ctx, columns+"WHERE "+visible+" ORDER BY seq")
	}
	return j.query(ctx, columns+"WHERE tx = ? AND "+visible+" ORDER BY seq", string(tx))
}

// Unsettled yields the records of the transactions whose last record is not
// settled, those of one transaction in a row.
func (j *Journal) Unsettled(ctx context.Context) iter.Seq2[orchestrator.Record, error] {
	return j.query(ctx, columns+"WHERE tx IN (SELECT tx FROM open_tx) ORDER BY tx, seq")
}

// Beginnings yields the records with which transactions and their commands
// begin, those of denied ones included, in the order they were appended.
func (j *Journal) Beginnings(ctx context.Context) iter.Seq2[orchestrator.Record, error] {
	return j.query(ctx, columns+"WHERE (event IN ('begin', 'adopt', 'deny') OR event = 'run' AND length(data) > 0) AND "+visible+" ORDER BY seq")
}

func (j *Journal) query(ctx context.Context, q string, args ...any) iter.Seq2[orchestrator.Record, error] {
	return func(yield func(orchestrator.Record, error) bool) {
		rows, err := j.read.QueryContext(ctx, q, args...)
		if err != nil {
			yield(orchestrator.Record{}, j.explain(err))
			return
		}
		defer rows.Close()
		for rows.Next() {
			var (
				r    orchestrator.Record
				at   int64
				data []byte
			)
			err := rows.Scan(&r.Seq, &r.Tx, &r.Sandbox, &at, &r.State, &r.Event, &r.Settled, &r.Owner, &r.Fence, &data, &r.Key)
			if err != nil {
				yield(orchestrator.Record{}, j.explain(err))
				return
			}
			r.At, r.Data = time.Unix(0, at).UTC(), data
			if !yield(r, nil) {
				return
			}
		}
		if err := rows.Err(); err != nil {
			yield(orchestrator.Record{}, j.explain(err))
		}
	}
}
