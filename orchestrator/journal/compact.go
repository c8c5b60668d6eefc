package journal

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"savepoint/orchestrator"
)

// Policy says what Compact keeps. A transaction is removed when both of its
// limits that are set allow it.
type Policy struct {
	KeepFor     time.Duration // keep what ended since so long; 0 = no such limit
	KeepRecords int64         // keep the newest so many records; 0 = no such limit
	Now         time.Time     // zero = the journal's clock
}

// Compaction is what Compact did.
type Compaction struct {
	Records      int64 `json:"records"` // removed now
	Transactions int64 `json:"transactions"`
	// Anchor is the last record removed: the chain goes on from it.
	Anchor Head  `json:"anchor"`
	Freed  int64 `json:"freed_bytes"` // given back to the file system
	// Blocked are unsettled transactions that are older than the limit, oldest
	// first: nothing that began after the first of them can be removed. At most
	// 20 are named; More is how many there are besides.
	Blocked []orchestrator.TxID `json:"blocked,omitempty"`
	More    int64               `json:"more_blocked,omitempty"`
}

const (
	compactRows  = 500 // records removed with one sync
	vacuumPages  = 256 // pages given back with one sync
	blockedNamed = 20
)

// anchor is where a prefix of the chain was removed.
type anchor struct {
	head         Head
	at           time.Time
	removed, txs int64
	hidden       int64 // up to here, records of removed transactions may be left
}

// readAnchors returns all, oldest first: one for each Compact that removed
// something.
func readAnchors(ctx context.Context, tx *sql.Tx) ([]anchor, error) {
	rows, err := tx.QueryContext(ctx, "SELECT seq, hash, at, removed, txs, hidden FROM anchors ORDER BY id")
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var all []anchor
	for rows.Next() {
		var a anchor
		var hash []byte
		var at int64
		if err := rows.Scan(&a.head.Seq, &hash, &at, &a.removed, &a.txs, &a.hidden); err != nil {
			return nil, err
		}
		copy(a.head.Hash[:], hash)
		a.at = time.Unix(0, at).UTC()
		all = append(all, a)
	}
	return all, rows.Err()
}

// Compact removes the oldest transactions: those that are settled and that the
// policy does not keep, up to the first one which has to stay. An anchor takes
// the place of the removed records, so that Verify goes on from there. Used
// grants and sessions stay; keys go with their transactions, and can be taken
// anew. It works in steps of a few milliseconds, between which appends go on;
// ended by ctx or a crash, what was done so far holds, and it may be repeated.
//
// Of a transaction that is removed, records that stand behind the anchor stay
// in the chain until the anchor has passed them, and are shown to nobody.
func (j *Journal) Compact(ctx context.Context, p Policy) (Compaction, error) {
	var done Compaction
	c, err := j.compactor(p)
	if err != nil {
		return done, err
	}
	if err := j.change(ctx, c.plan); err != nil {
		return done, err
	}
	done.Blocked, done.More = c.blocked, c.more
	for more := true; more; {
		var s removal
		err := j.change(ctx, func(ctx context.Context, tx *sql.Tx) (err error) {
			s, err = c.remove(ctx, tx)
			return err
		})
		if err != nil {
			return done, err
		}
		if more = s.records > 0; more {
			done.Records += s.records
			done.Transactions += s.txs
			done.Anchor, c.id = s.anchor, s.id
		}
	}
	done.Freed, err = c.shrink(ctx)
	return done, err
}

// compactor is one Compact. Its steps may be made twice, when the first try
// shared an SQL transaction with a change that failed: they set, and do not add.
type compactor struct {
	j       *Journal
	p       Policy
	head    int64 // the last record there is
	to      int64 // the last record that may be removed
	id      int64 // of the anchor; 0 = none yet
	blocked []orchestrator.TxID
	more    int64
}

// removal is one step's work.
type removal struct {
	records, txs int64
	anchor       Head
	id           int64
}

// stays is the condition for a transaction to stay, apart from being open.
func (c *compactor) stays() (string, []any) {
	since := int64(1) << 62 // later than everything: no such limit
	if c.p.KeepFor > 0 {
		since = c.p.Now.Add(-c.p.KeepFor).UnixNano()
	}
	return "(last_at >= ? OR last > ?)", []any{since, c.head - c.p.KeepRecords}
}

// plan is bounds in the writer's goroutine.
func (c *compactor) plan(ctx context.Context, tx *sql.Tx) error {
	c.head = c.j.head.Seq
	return c.bounds(ctx, tx)
}

// bounds finds how far the removal may go, and what stops it there.
func (c *compactor) bounds(ctx context.Context, tx *sql.Tx) error {
	stays, args := c.stays()
	limit := c.head // without regard to what is open
	var first sql.NullInt64
	if err := tx.QueryRowContext(ctx, "SELECT min(began) FROM txs WHERE settled = 1 AND "+stays, args...).Scan(&first); err != nil {
		return err
	}
	if first.Valid {
		limit = first.Int64 - 1
	}
	c.to = limit
	// Only an open one with something behind it that could go is an obstacle.
	const old = "settled = 0 AND began < (SELECT coalesce(max(began), 0) FROM txs WHERE settled = 1 AND began <= ?)"
	rows, err := tx.QueryContext(ctx, fmt.Sprintf("SELECT tx FROM txs WHERE %s ORDER BY began LIMIT %d", old, blockedNamed), limit)
	if err != nil {
		return err
	}
	defer rows.Close()
	c.blocked = nil
	for rows.Next() {
		var id orchestrator.TxID
		if err := rows.Scan(&id); err != nil {
			return err
		}
		c.blocked = append(c.blocked, id)
	}
	if err := rows.Err(); err != nil {
		return err
	}
	if err := tx.QueryRowContext(ctx, "SELECT count(*) FROM txs WHERE "+old, limit).Scan(&c.more); err != nil {
		return err
	}
	c.more -= int64(len(c.blocked))
	return c.stopAtOpen(ctx, tx)
}

// stopAtOpen keeps the removal before the first open transaction. It is asked
// in every step: a settled one may have been taken up again meanwhile.
func (c *compactor) stopAtOpen(ctx context.Context, tx *sql.Tx) error {
	var open sql.NullInt64
	if err := tx.QueryRowContext(ctx, "SELECT min(began) FROM txs WHERE settled = 0").Scan(&open); err != nil {
		return err
	}
	if open.Valid {
		c.to = min(c.to, open.Int64-1)
	}
	return nil
}

// remove takes the next records away and moves the anchor behind them.
func (c *compactor) remove(ctx context.Context, tx *sql.Tx) (s removal, err error) {
	if err := c.stopAtOpen(ctx, tx); err != nil {
		return s, err
	}
	var end sql.NullInt64
	if err := tx.QueryRowContext(ctx, "SELECT max(seq), count(*) FROM (SELECT seq FROM records WHERE seq <= ? ORDER BY seq LIMIT ?)", c.to, compactRows).Scan(&end, &s.records); err != nil || s.records == 0 {
		return s, err
	}
	s.anchor.Seq = end.Int64
	var hash []byte
	if err := tx.QueryRowContext(ctx, "SELECT hash FROM records WHERE seq = ?", s.anchor.Seq).Scan(&hash); err != nil {
		return s, err
	}
	copy(s.anchor.Hash[:], hash)
	var hidden int64
	if err := tx.QueryRowContext(ctx, "SELECT count(*), max(coalesce(max(last), 0), (SELECT coalesce(max(hidden), 0) FROM anchors)) FROM txs WHERE began <= ?", s.anchor.Seq).Scan(&s.txs, &hidden); err != nil {
		return s, err
	}
	if s.id = c.id; s.id == 0 {
		r, err := tx.ExecContext(ctx, "INSERT INTO anchors (seq, hash, at, removed, txs, hidden) VALUES (?,?,?,?,?,?)", s.anchor.Seq, hash, c.p.Now.UnixNano(), s.records, s.txs, hidden)
		if err != nil {
			return s, err
		}
		if s.id, err = r.LastInsertId(); err != nil {
			return s, err
		}
	} else if _, err := tx.ExecContext(ctx, "UPDATE anchors SET seq = ?, hash = ?, removed = removed + ?, txs = txs + ?, hidden = ? WHERE id = ?", s.anchor.Seq, hash, s.records, s.txs, hidden, s.id); err != nil {
		return s, err
	}
	for _, q := range []string{
		"DELETE FROM keys WHERE tx IN (SELECT tx FROM txs WHERE began <= ?)",
		"DELETE FROM txs WHERE began <= ?",
		"INSERT INTO meta VALUES ('compacting', CAST(? AS TEXT))", // the trigger lets these go, in this SQL transaction
		"DELETE FROM records WHERE seq <= ?",
	} {
		if _, err := tx.ExecContext(ctx, q, s.anchor.Seq); err != nil {
			return s, err
		}
	}
	_, err = tx.ExecContext(ctx, "DELETE FROM meta WHERE key = 'compacting'")
	return s, err
}

// shrink gives free pages back to the file system, a few at a time, and
// returns how many bytes that were.
func (c *compactor) shrink(ctx context.Context) (int64, error) {
	var page, before, left int64
	if err := c.j.read.QueryRowContext(ctx, "PRAGMA page_size").Scan(&page); err != nil {
		return 0, c.j.explain(err)
	}
	for last := int64(-1); ; last = left {
		err := c.j.change(ctx, func(ctx context.Context, tx *sql.Tx) error {
			if err := tx.QueryRowContext(ctx, "PRAGMA freelist_count").Scan(&left); err != nil || left == 0 {
				return err
			}
			_, err := tx.ExecContext(ctx, fmt.Sprintf("PRAGMA incremental_vacuum(%d)", vacuumPages))
			return err
		})
		if err != nil {
			return 0, err
		}
		if last < 0 {
			before = left
		} else if left >= last { // an older file that could not be rebuilt keeps its pages for later records
			break
		}
		if left == 0 {
			break
		}
	}
	if before == left {
		return 0, nil
	}
	// The file itself gets shorter when the log beside it is copied into it.
	if _, err := c.j.write.ExecContext(context.WithoutCancel(ctx), "PRAGMA wal_checkpoint(PASSIVE)"); err != nil {
		return 0, c.j.explain(err)
	}
	return (before - left) * page, nil
}
