package journal

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	sqlite3 "modernc.org/sqlite/lib"

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

// AppendAll writes the records together: all of them or none is on disk.
func (j *Journal) AppendAll(ctx context.Context, rs []orchestrator.Record) error {
	for _, r := range rs {
		if r.Tx == "" || r.State == "" || r.Event == "" {
			return fmt.Errorf("append to journal %s: a record needs a transaction, a state and an event: %w", j.path, orchestrator.ErrDenied)
		}
	}
	return j.change(ctx, func(ctx context.Context, tx *sql.Tx) error {
		for _, r := range rs {
			_, err := tx.ExecContext(ctx,
				"INSERT INTO records (tx, sandbox, at, state, event, settled, owner, fence, data) VALUES (?,?,?,?,?,?,?,?,?)",
				string(r.Tx), string(r.Sandbox), r.At.UnixNano(), string(r.State), r.Event, r.Settled, j.instance, j.fence, []byte(r.Data))
			if err != nil {
				return err
			}
		}
		return nil
	})
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

// writer is the only goroutine that changes the file. Jobs that wait while it
// syncs go together into the next transaction.
func (j *Journal) writer() {
	defer close(j.done)
	var broken error
	for {
		var batch []job
		select {
		case b := <-j.work:
			batch = append(batch, b)
		case <-j.closing:
			return
		}
	gather:
		for len(batch) < most {
			select {
			case b := <-j.work:
				batch = append(batch, b)
			default:
				break gather
			}
		}
		if broken != nil {
			for _, b := range batch {
				b.answer <- broken
			}
			continue
		}
		broken = j.commit(batch)
	}
}

// commit makes one transaction of the batch and answers its jobs. It returns
// an error when the file's state is not known any more.
func (j *Journal) commit(batch []job) (broken error) {
	ctx := batch[0].ctx
	fail := func(err error) {
		for _, b := range batch {
			b.answer <- err
		}
	}
	tx, err := j.write.BeginTx(ctx, nil)
	if err != nil {
		fail(j.begun(err))
		return nil
	}
	answers := make([]error, len(batch))
	for i, b := range batch {
		err := b.apply(b.ctx, tx)
		var refused *errRefused
		switch {
		case err == nil:
		case errors.As(err, &refused):
			answers[i] = refused.cause
		case len(batch) > 1:
			// One job's failure is not the others': each for itself.
			if rerr := tx.Rollback(); rerr != nil && !errors.Is(rerr, sql.ErrTxDone) && code(err) != sqlite3.SQLITE_FULL {
				fail(j.explain(rerr))
				return j.lost(rerr)
			}
			for k, b := range batch {
				if broken = j.commit(batch[k : k+1]); broken != nil {
					for _, b = range batch[k+1:] {
						b.answer <- broken
					}
					return broken
				}
			}
			return nil
		default:
			_ = tx.Rollback()
			fail(j.begun(err))
			return nil
		}
	}
	if err := tx.Commit(); err != nil {
		_ = tx.Rollback()
		err = j.explain(err)
		fail(err)
		if errors.Is(err, orchestrator.ErrUnknownOutcome) {
			return j.lost(err)
		}
		return nil
	}
	for i, b := range batch {
		b.answer <- answers[i]
	}
	return nil
}

// begun explains an error before the commit was tried: nothing was written,
// whatever SQLite calls it.
func (j *Journal) begun(err error) error {
	if explained := j.explain(err); !errors.Is(explained, orchestrator.ErrUnknownOutcome) {
		return explained
	}
	return fmt.Errorf("%w: journal %s, nothing was written: %v", orchestrator.ErrUnavailable, j.path, err)
}

func (j *Journal) lost(err error) error {
	return fmt.Errorf("journal %s was lost to an earlier error, restart savepoint: %w (%v)", j.path, orchestrator.ErrUnavailable, err)
}
