package journal

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"savepoint/orchestrator"
	"savepoint/policy"
)

// grantData is what only people and the policy read of a grant. Commands are
// bytes: they need not be valid text. Without a digest it is from when a grant
// had the exact command.
type grantData struct {
	Name    string      `json:"sandbox"`
	Rules   []string    `json:"rules"`
	Command []byte      `json:"command"`
	Digest  string      `json:"command_sha256,omitempty"`
	As      policy.User `json:"as"`
	Profile string      `json:"profile,omitempty"`
	By      string      `json:"by,omitempty"`
}

// PutGrant records a new grant, durably. ErrExists when its id is taken.
func (j *Journal) PutGrant(ctx context.Context, g orchestrator.Grant) error {
	if g.ID == "" || g.Sandbox == "" || len(g.Rules) == 0 || g.Command == "" || g.Digest == "" || !g.Expires.After(g.Made) || g.Used != "" || !g.Revoked.IsZero() {
		return fmt.Errorf("record grant %q: it needs an id, a sandbox, rules, a command and an expiry to come, and must be new: %w", g.ID, orchestrator.ErrDenied)
	}
	data, err := json.Marshal(grantData{Name: g.Name, Rules: g.Rules, Command: []byte(g.Command), Digest: g.Digest, As: g.As, Profile: g.Profile, By: g.By})
	if err != nil {
		return fmt.Errorf("record grant %s: %w", g.ID, err)
	}
	return j.change(ctx, func(ctx context.Context, tx *sql.Tx) error {
		r, err := tx.ExecContext(ctx, "INSERT INTO grants (id, sandbox, made, expires, revoked, used, data) VALUES (?,?,?,?,0,'',?) ON CONFLICT DO NOTHING",
			string(g.ID), string(g.Sandbox), g.Made.UnixNano(), g.Expires.UnixNano(), data)
		if err != nil {
			return err
		}
		if n, err := r.RowsAffected(); err != nil || n == 0 {
			return errors.Join(err, &errRefused{fmt.Errorf("record grant %s: %w", g.ID, orchestrator.ErrExists)})
		}
		return nil
	})
}

// RevokeGrant ends an open grant. *orchestrator.GrantError when it is not open;
// ErrNotFound when there is none of that id.
func (j *Journal) RevokeGrant(ctx context.Context, id orchestrator.GrantID) error {
	return j.change(ctx, func(ctx context.Context, tx *sql.Tx) error {
		now := j.now()
		if err := usable(ctx, tx, id, "", now); err != nil {
			var gone *orchestrator.GrantError
			if errors.As(err, &gone) && gone.State == unknownGrant {
				return &errRefused{fmt.Errorf("revoke grant %s: %w; see savepoint policy grants", id, orchestrator.ErrNotFound)}
			}
			return err
		}
		_, err := tx.ExecContext(ctx, "UPDATE grants SET revoked = ? WHERE id = ?", now.UnixNano(), string(id))
		return err
	})
}

const grantColumns = "SELECT id, sandbox, made, expires, revoked, used, data FROM grants "

// Grants returns every grant that was ever made, of one sandbox or of all when
// sb is "", the newest first.
func (j *Journal) Grants(ctx context.Context, sb orchestrator.SandboxID) ([]orchestrator.Grant, error) {
	if sb == "" {
		return j.grants(ctx, grantColumns+"ORDER BY id DESC")
	}
	return j.grants(ctx, grantColumns+"WHERE sandbox = ? ORDER BY id DESC", string(sb))
}

// OpenGrants returns the grants of the sandbox that are open at the time,
// oldest first.
func (j *Journal) OpenGrants(ctx context.Context, sb orchestrator.SandboxID, now time.Time) ([]orchestrator.Grant, error) {
	return j.grants(ctx, grantColumns+"WHERE used = '' AND revoked = 0 AND sandbox = ? AND expires > ? ORDER BY id", string(sb), now.UnixNano())
}

func (j *Journal) grants(ctx context.Context, q string, args ...any) ([]orchestrator.Grant, error) {
	rows, err := j.read.QueryContext(ctx, q, args...)
	if err != nil {
		return nil, j.explain(err)
	}
	defer rows.Close()
	var all []orchestrator.Grant
	for rows.Next() {
		var (
			g                      orchestrator.Grant
			made, expires, revoked int64
			data                   []byte
			d                      grantData
		)
		if err := rows.Scan(&g.ID, &g.Sandbox, &made, &expires, &revoked, &g.Used, &data); err != nil {
			return nil, j.explain(err)
		}
		if err := json.Unmarshal(data, &d); err != nil {
			return nil, &CorruptError{Path: j.path, Detail: fmt.Sprintf("grant %s: %v", g.ID, err)}
		}
		if d.Digest == "" {
			sum := sha256.Sum256(d.Command)
			d.Digest = hex.EncodeToString(sum[:])
		}
		g.Name, g.Rules, g.Digest, g.Command, g.As, g.Profile, g.By = d.Name, d.Rules, d.Digest, string(d.Command), d.As, d.Profile, d.By
		g.Made, g.Expires = time.Unix(0, made).UTC(), time.Unix(0, expires).UTC()
		if revoked != 0 {
			g.Revoked = time.Unix(0, revoked).UTC()
		}
		all = append(all, g)
	}
	return all, j.explain(rows.Err())
}

// spend uses up the grants of the records. All of them are looked at before
// the first is changed: a refused job must not have changed anything.
func spend(ctx context.Context, tx *sql.Tx, rs []orchestrator.Record) error {
	seen := map[orchestrator.GrantID]bool{}
	for _, r := range rs {
		for _, id := range r.Spends {
			if seen[id] {
				return &errRefused{&orchestrator.GrantError{ID: id, State: orchestrator.GrantUsed, Used: r.Tx}}
			}
			seen[id] = true
			if err := usable(ctx, tx, id, r.Sandbox, r.At); err != nil {
				return err
			}
		}
	}
	for _, r := range rs {
		for _, id := range r.Spends {
			if _, err := tx.ExecContext(ctx, "UPDATE grants SET used = ? WHERE id = ?", string(r.Tx), string(id)); err != nil {
				return err
			}
		}
	}
	return nil
}

const unknownGrant = "unknown"

// usable refuses a grant that is not open, or is another sandbox's than sb.
func usable(ctx context.Context, tx *sql.Tx, id orchestrator.GrantID, sb orchestrator.SandboxID, at time.Time) error {
	var expires, revoked int64
	g := orchestrator.Grant{}
	err := tx.QueryRowContext(ctx, "SELECT sandbox, expires, revoked, used FROM grants WHERE id = ?", string(id)).Scan(&g.Sandbox, &expires, &revoked, &g.Used)
	switch {
	case errors.Is(err, sql.ErrNoRows), err == nil && sb != "" && sb != g.Sandbox:
		return &errRefused{&orchestrator.GrantError{ID: id, State: unknownGrant}}
	case err != nil:
		return err
	}
	g.Expires = time.Unix(0, expires)
	if revoked != 0 {
		g.Revoked = time.Unix(0, revoked)
	}
	if s := g.State(at); s != orchestrator.GrantOpen {
		return &errRefused{&orchestrator.GrantError{ID: id, State: s, Used: g.Used}}
	}
	return nil
}
