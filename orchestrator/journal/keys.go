package journal

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"savepoint/orchestrator"
)

// ByKey returns the transaction that has a record with the key in the sandbox;
// not ok when there is none, or when it was removed from the journal.
func (j *Journal) ByKey(ctx context.Context, sb orchestrator.SandboxID, key string) (id orchestrator.TxID, ok bool, err error) {
	id, ok, err = keyAt(ctx, j.read, sb, key)
	return id, ok, j.explain(err)
}

func keyAt(ctx context.Context, q querier, sb orchestrator.SandboxID, key string) (id orchestrator.TxID, ok bool, err error) {
	err = q.QueryRowContext(ctx, "SELECT tx FROM keys WHERE sandbox = ? AND key = ?", string(sb), key).Scan(&id)
	if errors.Is(err, sql.ErrNoRows) {
		return "", false, nil
	}
	return id, err == nil, err
}

// freeKeys refuses records with a key that is taken. It changes nothing: a
// refused job must not have.
func freeKeys(ctx context.Context, tx *sql.Tx, rs []orchestrator.Record) error {
	type name struct {
		sb  orchestrator.SandboxID
		key string
	}
	var taken map[name]orchestrator.TxID
	for _, r := range rs {
		if r.Key == "" {
			continue
		}
		n := name{r.Sandbox, r.Key}
		by, found := taken[n]
		if !found {
			var err error
			if by, found, err = keyAt(ctx, tx, r.Sandbox, r.Key); err != nil {
				return err
			}
		}
		if found {
			return &errRefused{fmt.Errorf("append with key %q: transaction %s of the sandbox has that key: %w", r.Key, by, orchestrator.ErrExists)}
		}
		if taken == nil {
			taken = map[name]orchestrator.TxID{}
		}
		taken[n] = r.Tx
	}
	return nil
}
