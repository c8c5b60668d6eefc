package journal

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"savepoint/orchestrator"
)

// Plan says what Compact would remove and what blocks it, and changes nothing.
// It works beside the journal's holder. How many bytes it would free is not known.
func (j *Journal) Plan(ctx context.Context, p Policy) (Compaction, error) {
	var would Compaction
	c, err := j.compactor(p)
	if err != nil {
		return would, err
	}
	tx, err := j.read.BeginTx(ctx, &sql.TxOptions{ReadOnly: true}) // one instant of the file
	if err != nil {
		return would, j.explain(err)
	}
	defer tx.Rollback() //nolint:errcheck // nothing was written
	head, err := j.headAt(ctx, tx, metaHead)
	if err != nil {
		return would, err
	}
	c.head = head.Seq
	if err := c.bounds(ctx, tx); err != nil {
		return would, j.explain(err)
	}
	would.Blocked, would.More = c.blocked, c.more
	if err := tx.QueryRowContext(ctx, "SELECT count(*) FROM records WHERE seq <= ?", c.to).Scan(&would.Records); err != nil {
		return would, j.explain(err)
	}
	if err := tx.QueryRowContext(ctx, "SELECT count(*) FROM txs WHERE began <= ?", c.to).Scan(&would.Transactions); err != nil {
		return would, j.explain(err)
	}
	var hash []byte
	err = tx.QueryRowContext(ctx, "SELECT seq, hash FROM records WHERE seq <= ? ORDER BY seq DESC LIMIT 1", c.to).Scan(&would.Anchor.Seq, &hash)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return would, j.explain(err)
	}
	copy(would.Anchor.Hash[:], hash)
	return would, nil
}

// compactor checks the policy and fills its defaults in.
func (j *Journal) compactor(p Policy) (*compactor, error) {
	if p.KeepFor < 0 || p.KeepRecords < 0 || p.KeepFor == 0 && p.KeepRecords == 0 {
		return nil, fmt.Errorf("compact journal %s: say how long or how many records to keep: %w", j.path, orchestrator.ErrDenied)
	}
	if p.Now.IsZero() {
		p.Now = j.now()
	}
	return &compactor{j: j, p: p}, nil
}
