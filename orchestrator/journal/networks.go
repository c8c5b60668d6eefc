package journal

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"savepoint/network"
	"savepoint/orchestrator"
)

// Networks returns the record of the cluster's networks: what is ours of them.
// It has this installation's id and nothing else when none was made yet.
func (j *Journal) Networks(ctx context.Context) (network.Record, error) {
	r := network.Record{Allocation: network.Allocation{Instance: j.instance}, Applied: network.Allocation{Instance: j.instance}}
	var data []byte
	err := j.read.QueryRowContext(ctx, "SELECT data FROM networks").Scan(&data)
	if errors.Is(err, sql.ErrNoRows) {
		return r, nil
	}
	if err != nil {
		return network.Record{}, j.explain(err)
	}
	if err := json.Unmarshal(data, &r); err != nil {
		return network.Record{}, &CorruptError{Path: j.path, Detail: fmt.Sprintf("record of networks: %v", err)}
	}
	return r, nil
}

// PutNetworks records which networks are ours, durably. ErrDenied for the
// record of another installation.
func (j *Journal) PutNetworks(ctx context.Context, r network.Record) error {
	for _, a := range []network.Allocation{r.Allocation, r.Applied} {
		if a.Instance != j.instance {
			return fmt.Errorf("record networks: they are those of instance %q, and this journal is that of %q: %w", a.Instance, j.instance, orchestrator.ErrDenied)
		}
	}
	data, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("record networks: %w", err)
	}
	return j.change(ctx, func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, `INSERT INTO networks (id, at, data) VALUES (1,?,?)
			ON CONFLICT (id) DO UPDATE SET at = excluded.at, data = excluded.data`, j.now().UnixNano(), data)
		return err
	})
}

// NetworksChanged returns when the record of networks was last written; zero when
// it never was. Every apply writes it, before and after, whether or not anything in
// it is new.
func (j *Journal) NetworksChanged(ctx context.Context) (time.Time, error) {
	var nanos int64
	err := j.read.QueryRowContext(ctx, "SELECT at FROM networks").Scan(&nanos)
	if errors.Is(err, sql.ErrNoRows) {
		return time.Time{}, nil
	}
	if err != nil {
		return time.Time{}, j.explain(err)
	}
	return time.Unix(0, nanos).UTC(), nil
}

// Proof returns the last proof of the sandbox's isolation, and when it was
// measured; nil when there is none.
func (j *Journal) Proof(ctx context.Context, sb orchestrator.SandboxID) (data json.RawMessage, at time.Time, err error) {
	var nanos int64
	err = j.read.QueryRowContext(ctx, "SELECT at, data FROM proofs WHERE sandbox = ?", string(sb)).Scan(&nanos, (*[]byte)(&data))
	if errors.Is(err, sql.ErrNoRows) {
		return nil, time.Time{}, nil
	}
	if err != nil {
		return nil, time.Time{}, j.explain(err)
	}
	return data, time.Unix(0, nanos).UTC(), nil
}

// PutProof keeps the proof in the place of the one before, durably.
func (j *Journal) PutProof(ctx context.Context, sb orchestrator.SandboxID, data json.RawMessage, at time.Time) error {
	if sb == "" || !json.Valid(data) || at.IsZero() {
		return fmt.Errorf("record proof of sandbox %q: it needs a sandbox, a time and valid JSON: %w", sb, orchestrator.ErrDenied)
	}
	return j.change(ctx, func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, `INSERT INTO proofs (sandbox, at, data) VALUES (?,?,?)
			ON CONFLICT (sandbox) DO UPDATE SET at = excluded.at, data = excluded.data`, string(sb), at.UnixNano(), []byte(data))
		return err
	})
}
