package journal

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	sqlite3 "modernc.org/sqlite/lib"

	"savepoint/orchestrator"
)

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
	if err := j.enter(ctx, tx); err != nil {
		_ = tx.Rollback()
		var fenced *FencedError
		if errors.As(err, &fenced) {
			fail(err)
			return err
		}
		fail(j.begun(err))
		return nil
	}
	before := j.head
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
	if j.head != before {
		if _, err := tx.StmtContext(ctx, j.prepared.head).ExecContext(ctx, j.head.String()); err != nil {
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

// enter begins a change: is the journal still ours, and where does the chain
// end? Both are read in the same SQL transaction as the change is made in.
func (j *Journal) enter(ctx context.Context, tx *sql.Tx) error {
	var fence int64
	var head string
	err := tx.StmtContext(ctx, j.prepared.enter).QueryRowContext(ctx).Scan(&fence, &head)
	if err != nil {
		return err
	}
	if fence != j.fence {
		return &FencedError{Path: j.path, Fence: j.fence, Now: fence}
	}
	j.head, err = ParseHead(head)
	return err
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
