package journal

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
)

// tables compares what is derived from the records with them.
func (v *verifier) tables(ctx context.Context) error {
	for _, check := range []func(context.Context) error{v.openTable, v.txTable, v.sessionTable, v.keyTable} {
		if err := check(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (v *verifier) openTable(ctx context.Context) error {
	return v.each(ctx, "SELECT tx FROM open_tx", func(scan func(...any) error) error {
		var tx string
		if err := scan(&tx); err != nil {
			return err
		}
		if _, ok := v.open[tx]; !ok {
			return v.wrong(0, "transaction %s is listed as open, and its records do not say so: the list was changed", tx)
		}
		delete(v.open, tx)
		return nil
	}, func() error {
		for tx, seq := range v.open {
			return v.wrong(seq, "its transaction %s is open and is not listed as such: the list was changed", tx)
		}
		return nil
	})
}

func (v *verifier) sessionTable(ctx context.Context) error {
	return v.each(ctx, "SELECT s.sandbox, s.seq, s.data, r.session FROM sessions s LEFT JOIN records r ON r.seq = s.seq", func(scan func(...any) error) error {
		var sb string
		var seq int64
		var data, digest []byte
		if err := scan(&sb, &seq, &data, &digest); err != nil {
			return err
		}
		last, ok := v.sessions[sb]
		if !ok && seq <= v.rep.From.Seq {
			return nil // its record was removed: nothing to compare with
		}
		if sum := sha256.Sum256(data); last != seq || !bytes.Equal(sum[:], digest) {
			return v.wrong(seq, "the session of sandbox %s is not the one kept with it: the session was changed", sb)
		}
		return nil
	}, nil)
}

func (v *verifier) keyTable(ctx context.Context) error {
	n := int64(0)
	return v.each(ctx, "SELECT k.key, EXISTS (SELECT 1 FROM records r WHERE r.tx = k.tx AND r.key = k.key AND k.sandbox IN (r.sandbox, r.sandbox || '/' || k.tx)) FROM keys k",
		func(scan func(...any) error) error {
			var key string
			var there bool
			if err := scan(&key, &there); err != nil {
				return err
			}
			if n++; !there {
				return v.wrong(0, "no record of its transaction has the key %q: the list of keys was changed", key)
			}
			return nil
		}, func() error {
			if n != v.keyed {
				return v.wrong(0, "%d records have a key and %d keys are listed: the list of keys was changed", v.keyed, n)
			}
			return nil
		})
}

// txTable: a transaction without a line must be one of which retention left
// only the end, so its begin must not be there.
func (v *verifier) txTable(ctx context.Context) error {
	err := v.each(ctx, `SELECT g.tx, g.a FROM (SELECT tx, min(seq) AS a, max(seq) AS b FROM records GROUP BY tx) g
		JOIN records f ON f.seq = g.a JOIN records l ON l.seq = g.b LEFT JOIN txs t ON t.tx = g.tx
		WHERE CASE WHEN t.tx IS NULL THEN g.b > ? OR f.event = 'begin' OR f.state = 'denied' ELSE
			t.began <> g.a OR t.began_at <> f.at OR t.last <> g.b OR t.last_at <> l.at OR t.state <> l.state OR t.settled <> l.settled OR t.sandbox <> f.sandbox END
		LIMIT 1`, func(scan func(...any) error) error {
		var tx string
		var seq int64
		if err := scan(&tx, &seq); err != nil {
			return err
		}
		return v.wrong(seq, "what is listed of its transaction %s does not agree with its records: the list was changed", tx)
	}, nil, v.hidden)
	if err != nil {
		return err
	}
	err = v.each(ctx, "SELECT tx FROM txs WHERE NOT EXISTS (SELECT 1 FROM records WHERE tx = txs.tx) LIMIT 1", func(scan func(...any) error) error {
		var tx string
		if err := scan(&tx); err != nil {
			return err
		}
		return v.wrong(0, "transaction %s is listed and has no record: the list was changed", tx)
	}, nil)
	if err != nil {
		return err
	}
	return v.j.explain(v.tx.QueryRowContext(ctx, "SELECT count(*) FROM txs").Scan(&v.rep.Transactions))
}

// each runs one function per row and another after the last.
func (v *verifier) each(ctx context.Context, q string, one func(scan func(...any) error) error, then func() error, args ...any) error {
	rows, err := v.tx.QueryContext(ctx, q, args...)
	if err != nil {
		return v.j.explain(err)
	}
	defer rows.Close()
	for rows.Next() {
		if err := one(rows.Scan); err != nil {
			return v.read(err)
		}
	}
	if err := rows.Err(); err != nil || then == nil {
		return v.j.explain(err)
	}
	return then()
}

// read explains an error unless it is a finding.
func (v *verifier) read(err error) error {
	var found *ChainError
	if errors.As(err, &found) {
		return err
	}
	return v.j.explain(err)
}
