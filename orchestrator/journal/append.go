package journal

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/json"
	"fmt"

	"savepoint/orchestrator"
)

// job is one change of the file: records, or a change of the registry.
type job struct {
	ctx    context.Context
	apply  func(ctx context.Context, tx *sql.Tx) error
	answer chan error
}

// most bounds how many jobs share one sync.
const most = 256

// errRefused is returned inside of a job for a change that is not to be made:
// it concerns only that job.
type errRefused struct{ cause error }

func (e *errRefused) Error() string { return e.cause.Error() }
func (e *errRefused) Unwrap() error { return e.cause }

// Append writes one record and returns when it is on disk. After an error that
// wraps ErrUnknownOutcome the record may be there, and the journal refuses
// everything until it is opened again; after any other nothing was written.
// A ctx that has ended stops it only before it is begun.
func (j *Journal) Append(ctx context.Context, r orchestrator.Record) error {
	return j.AppendAll(ctx, []orchestrator.Record{r})
}

// AppendAll writes the records together: all of them or none is on disk, and
// the grants they spend, the keys they take and the sessions they leave with
// them. *orchestrator.GrantError when a grant is not open any more, ErrExists
// when a key is taken; *FencedError when another process took the journal over.
func (j *Journal) AppendAll(ctx context.Context, rs []orchestrator.Record) error {
	for _, r := range rs {
		if r.Tx == "" || r.State == "" || r.Event == "" {
			return fmt.Errorf("append to journal %s: a record needs a transaction, a state and an event: %w", j.path, orchestrator.ErrDenied)
		}
		if r.Sandbox == "" && (r.Key != "" || len(r.Session) > 0) {
			return fmt.Errorf("append to journal %s: a key or a session needs a sandbox: %w", j.path, orchestrator.ErrDenied)
		}
	}
	if len(rs) == 0 {
		return nil
	}
	return j.change(ctx, func(ctx context.Context, tx *sql.Tx) error {
		if err := freeKeys(ctx, tx, rs); err != nil {
			return err
		}
		if err := spend(ctx, tx, rs); err != nil {
			return err
		}
		for i := range rs {
			if err := j.insert(ctx, tx, &rs[i]); err != nil {
				return err
			}
		}
		return nil
	})
}

// insert writes one record and all that is kept with it. Only the writer's
// goroutine calls it, so the head is its own.
func (j *Journal) insert(ctx context.Context, tx *sql.Tx, r *orchestrator.Record) error {
	w := row{
		seq: j.head.Seq + 1, tx: string(r.Tx), sandbox: string(r.Sandbox), at: r.At.UnixNano(), state: string(r.State), event: r.Event,
		owner: j.instance, fence: j.fence, data: r.Data, key: r.Key,
	}
	if r.Settled {
		w.settled = 1
	}
	if len(r.Session) > 0 {
		sum := sha256.Sum256(r.Session)
		w.session = sum[:]
	}
	next := j.head.link(&w)
	if _, err := tx.StmtContext(ctx, j.prepared.insert).ExecContext(ctx,
		w.seq, w.tx, w.sandbox, w.at, w.state, w.event, w.settled, w.owner, w.fence, w.data, w.key, w.session, next.Hash[:]); err != nil {
		return err
	}
	if _, err := tx.StmtContext(ctx, j.prepared.note).ExecContext(ctx, w.tx, w.sandbox, boxName(r), w.seq, w.at, w.seq, w.at, w.state, w.settled); err != nil {
		return err
	}
	if r.Key != "" {
		if _, err := tx.ExecContext(ctx, "INSERT INTO keys VALUES (?, ?, ?)", w.sandbox, w.key, w.tx); err != nil {
			return err
		}
	}
	if len(r.Session) > 0 {
		if _, err := tx.ExecContext(ctx, "INSERT INTO sessions VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET seq = excluded.seq, data = excluded.data",
			w.sandbox, w.seq, []byte(r.Session)); err != nil {
			return err
		}
	}
	j.head = next
	return nil
}

// boxName is the sandbox's name as the first record of a transaction has it,
// so that a list finds it by name without reading the record.
func boxName(r *orchestrator.Record) string {
	if r.Event != "begin" && r.Event != "deny" {
		return ""
	}
	var d struct {
		Sandbox struct {
			Name string `json:"name"`
		} `json:"sandbox"`
	}
	_ = json.Unmarshal(r.Data, &d) // a record without it is found by the sandbox's id
	return d.Sandbox.Name
}

// prepared are the statements of every append.
type prepared struct{ enter, insert, note, head *sql.Stmt }

func (j *Journal) prepare() error {
	for q, into := range map[string]**sql.Stmt{
		"SELECT (SELECT CAST(value AS INTEGER) FROM meta WHERE key = 'fence'), (SELECT value FROM meta WHERE key = '" + metaHead + "')": &j.prepared.enter,
		"INSERT INTO records (" + rowColumns + ", hash) VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?)":                                             &j.prepared.insert,
		`INSERT INTO txs (tx, sandbox, name, began, began_at, last, last_at, state, settled) VALUES (?,?,?,?,?,?,?,?,?)
			ON CONFLICT (tx) DO UPDATE SET last = excluded.last, last_at = excluded.last_at, state = excluded.state, settled = excluded.settled`: &j.prepared.note,
		"UPDATE meta SET value = ? WHERE key = '" + metaHead + "'": &j.prepared.head,
	} {
		s, err := j.write.Prepare(q)
		if err != nil {
			return j.explain(err)
		}
		*into = s
	}
	return nil
}

// change hands a job to the writer and waits for its durable end.
func (j *Journal) change(ctx context.Context, apply func(context.Context, *sql.Tx) error) error {
	if j.write == nil {
		return fmt.Errorf("change journal %s: it is open for reading only: %w", j.path, orchestrator.ErrDenied)
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("change journal %s: %w: %w", j.path, orchestrator.ErrUnavailable, err)
	}
	b := job{ctx: context.WithoutCancel(ctx), apply: apply, answer: make(chan error, 1)}
	select {
	case j.work <- b:
		return <-b.answer
	case <-j.closing:
		return fmt.Errorf("change journal %s: it is closed: %w", j.path, orchestrator.ErrUnavailable)
	case <-ctx.Done():
		return fmt.Errorf("change journal %s: %w: %w", j.path, orchestrator.ErrUnavailable, ctx.Err())
	}
}
