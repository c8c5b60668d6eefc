package journal

import (
	"context"
	"database/sql"
	"errors"

	"savepoint/orchestrator"
)

// Session returns what the sandbox's last record with a session left; nil when
// there is none, or it was cleared, or the sandbox is destroyed.
func (j *Journal) Session(ctx context.Context, sb orchestrator.SandboxID) ([]byte, error) {
	var data []byte
	err := j.read.QueryRowContext(ctx, "SELECT data FROM sessions WHERE sandbox = ?", string(sb)).Scan(&data)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil
	}
	return data, j.explain(err)
}

// ClearSession forgets the sandbox's session, durably: after a reset its
// directories and variables mean nothing. It may be repeated.
func (j *Journal) ClearSession(ctx context.Context, sb orchestrator.SandboxID) error {
	return j.change(ctx, func(ctx context.Context, tx *sql.Tx) error { return clearSession(ctx, tx, string(sb)) })
}

func clearSession(ctx context.Context, tx *sql.Tx, sb string) error {
	_, err := tx.ExecContext(ctx, "DELETE FROM sessions WHERE sandbox = ?", sb)
	return err
}
