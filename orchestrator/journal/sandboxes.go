package journal

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"savepoint/orchestrator"
)

// PutSandbox records the sandbox as it is now, durably. ErrExists when another
// sandbox that is not destroyed has its name. A destroyed one's session goes; of
// one that is pooled everything goes that its last user left: see vacate.
func (j *Journal) PutSandbox(ctx context.Context, sb orchestrator.Sandbox) error {
	if sb.ID == "" || sb.Name == "" || sb.State == "" {
		return fmt.Errorf("record sandbox %q: it needs an id, a name and a state: %w", sb.Name, orchestrator.ErrDenied)
	}
	data, err := json.Marshal(sb)
	if err != nil {
		return fmt.Errorf("record sandbox %s: %w", sb.Name, err)
	}
	return j.change(ctx, func(ctx context.Context, tx *sql.Tx) error {
		if sb.State != orchestrator.SandboxDestroyed {
			var other string
			err := tx.QueryRowContext(ctx, "SELECT id FROM sandboxes WHERE name = ? AND state <> 'destroyed' AND id <> ?", sb.Name, string(sb.ID)).Scan(&other)
			switch {
			case err == nil:
				return &errRefused{fmt.Errorf("record sandbox %s: %s has that name: %w", sb.Name, other, orchestrator.ErrExists)}
			case !errors.Is(err, sql.ErrNoRows):
				return err
			}
		}
		var err error
		switch sb.State {
		case orchestrator.SandboxDestroyed:
			err = clearSession(ctx, tx, string(sb.ID))
		case orchestrator.SandboxPooled:
			err = j.vacate(ctx, tx, string(sb.ID))
		default: // who has a user keeps what is kept for him
		}
		if err != nil {
			return err
		}
		_, err = tx.ExecContext(ctx, `INSERT INTO sandboxes (id, name, state, vmid, changed, data) VALUES (?,?,?,?,?,?)
			ON CONFLICT (id) DO UPDATE SET name = excluded.name, vmid = excluded.vmid, data = excluded.data,
			changed = CASE state WHEN excluded.state THEN changed ELSE excluded.changed END, state = excluded.state`,
			string(sb.ID), sb.Name, string(sb.State), int(sb.VM.ID), j.now().UnixNano(), data)
		return err
	})
}

// vacate takes from a sandbox what is its user's, in the write that makes it
// nobody's: the session, the grants that are open, and the idempotency keys. The
// next user's requests must not be answered with this one's results. A key stays
// beside its record, which has it, under an owner that nobody asks for.
func (j *Journal) vacate(ctx context.Context, tx *sql.Tx, sb string) error {
	if err := clearSession(ctx, tx, sb); err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, "UPDATE grants SET revoked = ? WHERE sandbox = ? AND used = '' AND revoked = 0", j.now().UnixNano(), sb); err != nil {
		return err
	}
	_, err := tx.ExecContext(ctx, "UPDATE keys SET sandbox = sandbox || '/' || tx WHERE sandbox = ?", sb)
	return err
}

// Sandboxes returns every sandbox that was ever put, destroyed ones included,
// in the order of their ids, which is that of their creation.
func (j *Journal) Sandboxes(ctx context.Context) ([]orchestrator.Sandbox, error) {
	rows, err := j.read.QueryContext(ctx, "SELECT data FROM sandboxes ORDER BY id")
	if err != nil {
		return nil, j.explain(err)
	}
	defer rows.Close()
	var all []orchestrator.Sandbox
	for rows.Next() {
		var data []byte
		if err := rows.Scan(&data); err != nil {
			return nil, j.explain(err)
		}
		var sb orchestrator.Sandbox
		if err := json.Unmarshal(data, &sb); err != nil {
			return nil, &CorruptError{Path: j.path, Detail: fmt.Sprintf("sandbox record: %v", err)}
		}
		all = append(all, sb)
	}
	return all, j.explain(rows.Err())
}

// lowestVMID and highestVMID are the cluster's own bounds.
const (
	lowestVMID  = 100
	highestVMID = 999999999
)

// ReserveVMID returns an id between first and last, durably reserved for the
// owner. It goes round from the last one given, so that an id that turned out
// to be taken is not offered again at once, and leaves out ids of sandboxes
// that are not destroyed and ids that were destroyed or reserved within rest. ErrBusy when none is left.
//
// A crash after it leaves a reservation that lapses after rest.
func (j *Journal) ReserveVMID(ctx context.Context, first, last orchestrator.VMID, rest time.Duration, owner orchestrator.SandboxID) (orchestrator.VMID, error) {
	if first < lowestVMID || last > highestVMID || last < first || owner == "" {
		return 0, fmt.Errorf("reserve a vm id of %d to %d for %q: not a range of %d to %d, or no owner: %w", first, last, owner, lowestVMID, highestVMID, orchestrator.ErrDenied)
	}
	var got orchestrator.VMID
	err := j.change(ctx, func(ctx context.Context, tx *sql.Tx) error {
		blocked, err := j.blockedVMIDs(ctx, tx, first, last, rest)
		if err != nil {
			return err
		}
		cursor, err := cursor(ctx, tx, "vmid")
		if err != nil {
			return err
		}
		next := first
		if c := orchestrator.VMID(cursor); c >= first && c < last {
			next = c + 1
		}
		for range last - first + 1 {
			if !blocked[next] {
				got = next
				break
			}
			if next++; next > last {
				next = first
			}
		}
		if got == 0 {
			return &errRefused{fmt.Errorf("reserve a vm id of %d to %d: all are in use or rest for %s; widen the range or wait: %w", first, last, rest, orchestrator.ErrBusy)}
		}
		if err := setCursor(ctx, tx, "vmid", int64(got)); err != nil {
			return err
		}
		return j.putVMID(ctx, tx, got, string(owner))
	})
	if err != nil {
		return 0, err
	}
	return got, nil
}

func (j *Journal) putVMID(ctx context.Context, tx *sql.Tx, id orchestrator.VMID, owner string) error {
	_, err := tx.ExecContext(ctx, `INSERT INTO vmids (vmid, owner, at, taken) VALUES (?,?,?,0)
		ON CONFLICT (vmid) DO UPDATE SET owner = excluded.owner, at = excluded.at`,
		int(id), owner, j.now().UnixNano())
	return err
}

// blockedVMIDs returns the ids of the range that must not be given out now. A
// time in the future, after a clock was set back, blocks too.
func (j *Journal) blockedVMIDs(ctx context.Context, tx *sql.Tx, first, last orchestrator.VMID, rest time.Duration) (map[orchestrator.VMID]bool, error) {
	since := j.now().Add(-rest).UnixNano()
	rows, err := tx.QueryContext(ctx, `SELECT vmid FROM vmids WHERE vmid BETWEEN ?1 AND ?2 AND at > ?3
		UNION SELECT vmid FROM sandboxes WHERE vmid BETWEEN ?1 AND ?2 AND (state <> 'destroyed' OR changed > ?3)`,
		int(first), int(last), since)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	blocked := map[orchestrator.VMID]bool{}
	for rows.Next() {
		var id orchestrator.VMID
		if err := rows.Scan(&id); err != nil {
			return nil, err
		}
		blocked[id] = true
	}
	return blocked, rows.Err()
}

// cursor reads where a round-robin allocation stopped; 0 at first.
func cursor(ctx context.Context, tx *sql.Tx, name string) (int64, error) {
	var at int64
	err := tx.QueryRowContext(ctx, "SELECT CAST(value AS INTEGER) FROM meta WHERE key = ?", "cursor:"+name).Scan(&at)
	if errors.Is(err, sql.ErrNoRows) {
		return 0, nil
	}
	return at, err
}

func setCursor(ctx context.Context, tx *sql.Tx, name string, at int64) error {
	_, err := tx.ExecContext(ctx, "INSERT INTO meta VALUES (?1, CAST(?2 AS TEXT)) ON CONFLICT DO UPDATE SET value = excluded.value", "cursor:"+name, at)
	return err
}
