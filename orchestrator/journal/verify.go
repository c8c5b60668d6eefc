package journal

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"time"
)

// Report is what Verify proved.
type Report struct {
	Records      int64 `json:"records"`
	Transactions int64 `json:"transactions"`
	// From is where the proof starts: the journal's beginning, or the last
	// record that retention removed. Anchored is when that was.
	From     Head      `json:"from"`
	Anchored time.Time `json:"anchored,omitzero"`
	// Removed and RemovedTransactions are what retention took in all.
	Removed             int64 `json:"removed"`
	RemovedTransactions int64 `json:"removed_transactions"`
	// Original is the first record whose hash was made when it was written.
	// Those before it got theirs when the file was brought to schema 5.
	Original int64 `json:"original"`
	// Head is the end of the chain. Note it somewhere else to be able to find
	// out later whether somebody rewrote everything.
	Head Head `json:"head"`
}

// Verify reads every record and proves that none was changed, removed, added
// or moved since it was written, as far as the file itself can tell, and that
// what is derived from them agrees with them. The heads that were noted
// elsewhere must be in the chain: without one, somebody who rewrote the whole
// file with new hashes is not found. *ChainError names the first record that is not proved.
// It holds one record at a time and what is open, and blocks nobody.
func (j *Journal) Verify(ctx context.Context, noted ...Head) (Report, error) {
	tx, err := j.read.BeginTx(ctx, &sql.TxOptions{ReadOnly: true}) // one instant of the file
	if err != nil {
		return Report{}, j.explain(err)
	}
	defer tx.Rollback() //nolint:errcheck // nothing was written
	v := &verifier{j: j, tx: tx, noted: slices.Clone(noted), open: map[string]int64{}, sessions: map[string]int64{}}
	for _, step := range []func(context.Context) error{v.begin, v.walk, v.end, v.tables} {
		if err := step(ctx); err != nil {
			return v.rep, err
		}
	}
	return v.rep, nil
}

// verifier is one walk along the chain.
type verifier struct {
	j      *Journal
	tx     *sql.Tx
	rep    Report
	at     Head // the last one proved
	head   Head // where the file says that it ends
	hidden int64
	noted  []Head

	open     map[string]int64 // open transactions: their last record
	sessions map[string]int64 // by sandbox: the last record with a session
	keyed    int64
}

func (v *verifier) wrong(seq int64, format string, args ...any) error {
	return &ChainError{Path: v.j.path, Seq: seq, What: fmt.Sprintf(format, args...)}
}

// begin finds where the chain starts and where it should end.
func (v *verifier) begin(ctx context.Context) error {
	var err error
	if v.head, err = v.j.headAt(ctx, v.tx, metaHead); err != nil {
		return err
	}
	genesis, err := v.j.headAt(ctx, v.tx, metaGenesis)
	if err != nil {
		return err
	}
	if err := v.tx.QueryRowContext(ctx, "SELECT CAST(value AS INTEGER) FROM meta WHERE key = ?", metaFrom).Scan(&v.rep.Original); err != nil {
		return v.wrong(0, "the journal's own note of its first original record is gone (%v)", err)
	}
	anchors, err := readAnchors(ctx, v.tx)
	if err != nil {
		return v.j.explain(err)
	}
	v.at = genesis
	known := []Head{genesis}
	for _, a := range anchors {
		v.at, v.hidden = a.head, a.hidden
		v.rep.Anchored = a.at
		v.rep.Removed += a.removed
		v.rep.RemovedTransactions += a.txs
		known = append(known, a.head)
	}
	v.rep.From = v.at
	return v.checkOld(known)
}

// checkOld settles the noted heads up to the place where the walk starts.
func (v *verifier) checkOld(known []Head) error {
	for _, n := range v.noted {
		if n.Seq > v.at.Seq {
			continue
		}
		i := slices.IndexFunc(known, func(k Head) bool { return k.Seq == n.Seq })
		switch {
		case i < 0:
			return v.wrong(n.Seq, "the noted head cannot be looked for: retention removed all up to record %d on %s; verify with a head that was noted since", v.at.Seq, v.rep.Anchored.Format(time.RFC3339))
		case known[i] != n:
			return v.wrong(n.Seq, "its hash is not the noted one: the journal was written anew")
		}
	}
	v.noted = slices.DeleteFunc(v.noted, func(n Head) bool { return n.Seq <= v.at.Seq })
	return nil
}

// walk follows the links.
func (v *verifier) walk(ctx context.Context) error {
	visible, err := v.tx.PrepareContext(ctx, "SELECT count(*) FROM txs WHERE tx = ?")
	if err != nil {
		return v.j.explain(err)
	}
	defer visible.Close()
	rows, err := v.tx.QueryContext(ctx, "SELECT "+rowColumns+", hash FROM records ORDER BY seq")
	if err != nil {
		return v.j.explain(err)
	}
	defer rows.Close()
	for rows.Next() {
		var r row
		var hash []byte
		if err := rows.Scan(append(r.into(), &hash)...); err != nil {
			return v.j.explain(err)
		}
		if err := v.step(&r, hash); err != nil {
			return err
		}
		v.rep.Records++
		if r.key != "" {
			shown := int64(1)
			if r.seq <= v.hidden {
				if err := visible.QueryRowContext(ctx, r.tx).Scan(&shown); err != nil {
					return v.j.explain(err)
				}
			}
			v.keyed += shown
		}
	}
	if err := rows.Err(); err != nil {
		return v.j.explain(err)
	}
	return nil
}

// step checks one link.
func (v *verifier) step(r *row, hash []byte) error {
	last := v.at
	next := last.link(r)
	switch {
	case r.seq <= last.Seq:
		return v.wrong(r.seq, "it stands where retention had removed all up to record %d: it was put in", last.Seq)
	case r.seq != last.Seq+1 && last.Seq+1 >= v.rep.Original:
		return v.wrong(last.Seq+1, "it is missing, up to record %d: records were removed", r.seq-1)
	case !bytes.Equal(hash, next.Hash[:]):
		return v.wrong(r.seq, "it does not follow from record %d: it was changed or put in, or records between them were removed", last.Seq)
	}
	for _, n := range v.noted {
		if n.Seq == r.seq && n != next {
			return v.wrong(r.seq, "its hash is not the noted one: the journal was written anew")
		}
		if n.Seq > last.Seq && n.Seq < r.seq {
			return v.wrong(n.Seq, "it was noted as a head and is missing: the journal was written anew")
		}
	}
	v.at = next
	if r.settled != 0 {
		delete(v.open, r.tx)
	} else {
		v.open[r.tx] = r.seq
	}
	if len(r.session) > 0 {
		v.sessions[r.sandbox] = r.seq
	}
	return nil
}

// end compares the last record with what the file and the caller know of it.
func (v *verifier) end(context.Context) error {
	switch {
	case v.head.Seq > v.at.Seq:
		return v.wrong(v.at.Seq+1, "it is missing, up to record %d: the end of the journal was removed", v.head.Seq)
	case v.head.Seq < v.at.Seq:
		return v.wrong(v.head.Seq+1, "the journal says that it ends before it: it was put in, or the journal's head was changed")
	case v.head != v.at:
		return v.wrong(v.at.Seq, "the journal's head has another hash for it: the head was changed")
	}
	for _, n := range v.noted {
		if n.Seq > v.at.Seq {
			return v.wrong(v.at.Seq+1, "it is missing: record %d was noted as a head and the journal ends at %d; its end was removed, or it is an older copy", n.Seq, v.at.Seq)
		}
	}
	v.rep.Head = v.head
	return nil
}

// checkHead refuses a file whose end is not what its own head says: nothing
// is appended to a chain that was cut or lengthened behind our back.
func (j *Journal) checkHead() error {
	head, err := j.headIn(j.write.QueryRow(selectMeta, metaHead), metaHead)
	if err != nil {
		return err
	}
	var last Head
	var hash []byte
	err = j.write.QueryRow(`SELECT seq, hash FROM (SELECT seq, hash FROM records ORDER BY seq DESC LIMIT 1)
		UNION ALL SELECT seq, hash FROM anchors ORDER BY seq DESC LIMIT 1`).Scan(&last.Seq, &hash)
	if errors.Is(err, sql.ErrNoRows) {
		if last, err = j.headIn(j.write.QueryRow(selectMeta, metaGenesis), metaGenesis); err != nil {
			return err
		}
	} else if err != nil {
		return j.explain(err)
	} else {
		copy(last.Hash[:], hash)
	}
	if last != head {
		return &ChainError{Path: j.path, Seq: min(last.Seq, head.Seq) + 1, What: fmt.Sprintf("the journal's last record is %d and its head says %d: records were removed at its end, or put in, or changed", last.Seq, head.Seq)}
	}
	return nil
}
