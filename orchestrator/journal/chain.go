package journal

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"database/sql"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// Head is a place in the chain: a record's number and hash. The head of an
// empty journal is number 0 with a random hash, from which the first link is
// made.
type Head struct {
	Seq  int64
	Hash [sha256.Size]byte
}

// String is the form to note elsewhere; ParseHead reads it.
func (h Head) String() string { return fmt.Sprintf("%d:%x", h.Seq, h.Hash) }

// MarshalText is String.
func (h Head) MarshalText() ([]byte, error) { return []byte(h.String()), nil }

// ParseHead reads a head as String writes it.
func ParseHead(text string) (Head, error) {
	number, digits, _ := strings.Cut(strings.TrimSpace(text), ":")
	seq, err := strconv.ParseInt(number, 10, 64)
	sum, herr := hex.DecodeString(digits)
	if err != nil || herr != nil || seq < 0 || len(sum) != sha256.Size {
		return Head{}, fmt.Errorf("read the head of a journal %q: it is not NUMBER:HASH with 64 hexadecimal digits; take it as savepoint tx verify prints it", text)
	}
	return Head{Seq: seq, Hash: [sha256.Size]byte(sum)}, nil
}

// row is a row of the table records as the chain covers it: every column but
// the hash itself.
type row struct {
	seq          int64
	tx, sandbox  string
	at           int64
	state, event string
	settled      int64
	owner        string
	fence        int64
	data         []byte
	key          string
	session      []byte // digest of the session kept with it; nil = none
}

const rowColumns = "seq, tx, sandbox, at, state, event, settled, owner, fence, data, key, session"

// into are the places to scan rowColumns to.
func (r *row) into() []any {
	return []any{&r.seq, &r.tx, &r.sandbox, &r.at, &r.state, &r.event, &r.settled, &r.owner, &r.fence, &r.data, &r.key, &r.session}
}

// link is the head after the row. The encoding is for good: hashes of every
// journal were made with it. Numbers are 8 bytes, the highest first; texts and
// bytes stand behind their length, so that no two rows have one encoding.
func (h Head) link(r *row) Head {
	b := make([]byte, 0, 256+len(r.data))
	b = append(b, h.Hash[:]...)
	b = append(b, "savepoint record 1\n"...)
	number := func(n int64) { b = binary.BigEndian.AppendUint64(b, uint64(n)) } // the bits count, not the value
	text := func(s string) { number(int64(len(s))); b = append(b, s...) }
	number(r.seq)
	text(r.tx)
	text(r.sandbox)
	number(r.at)
	text(r.state)
	text(r.event)
	number(r.settled)
	text(r.owner)
	number(r.fence)
	number(int64(len(r.data)))
	b = append(b, r.data...)
	text(r.key)
	number(int64(len(r.session)))
	b = append(b, r.session...)
	return Head{Seq: r.seq, Hash: sha256.Sum256(b)}
}

// Keys of the table meta that the chain uses.
const (
	metaHead    = "chain_head"    // Head.String of the last record
	metaGenesis = "chain_genesis" // Head.String of the empty journal
	metaFrom    = "chained_from"  // the first record whose hash was made when it was written
)

// querier is a database or a transaction.
type querier interface {
	QueryRowContext(ctx context.Context, q string, args ...any) *sql.Row
}

const selectMeta = "SELECT value FROM meta WHERE key = ?"

// headAt reads a head that meta holds.
func (j *Journal) headAt(ctx context.Context, q querier, key string) (Head, error) {
	return j.headIn(q.QueryRowContext(ctx, selectMeta, key), key)
}

// headIn reads it from what was selected. *ChainError when there is none:
// savepoint never takes it away.
func (j *Journal) headIn(row *sql.Row, key string) (Head, error) {
	var text string
	var h Head
	err := row.Scan(&text)
	if err != nil {
		err = fmt.Errorf("read %s: %w", key, err)
	} else {
		h, err = ParseHead(text)
	}
	switch {
	case err == nil:
		return h, nil
	case code(err) != 0, errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return h, j.explain(err) // it was not read
	}
	of := "last record"
	if key == metaGenesis {
		of = "beginning"
	}
	return h, &ChainError{Path: j.path, What: fmt.Sprintf("the journal's own note of its %s is gone or no head (%v)", of, err)}
}

// chainAll makes the hashes of what was written before there were any.
func chainAll(tx *sql.Tx) error {
	var head Head
	if _, err := rand.Read(head.Hash[:]); err != nil {
		return err
	}
	genesis := head
	update, err := tx.Prepare("UPDATE records SET hash = ? WHERE seq = ?")
	if err != nil {
		return err
	}
	defer update.Close()
	for {
		page, err := rowsAfter(tx, head.Seq, 500)
		if err != nil {
			return err
		}
		for i := range page {
			head = head.link(&page[i])
			if _, err := update.Exec(head.Hash[:], head.Seq); err != nil {
				return err
			}
		}
		if len(page) == 0 {
			break
		}
	}
	if _, err := tx.Exec("INSERT INTO meta VALUES (?, ?), (?, ?), (?, ?)",
		metaGenesis, genesis.String(), metaHead, head.String(), metaFrom, strconv.FormatInt(head.Seq+1, 10)); err != nil {
		return err
	}
	_, err = tx.Exec(`CREATE TRIGGER records_no_update BEFORE UPDATE ON records
		BEGIN SELECT RAISE(ABORT, 'records are append-only'); END`)
	return err
}

func rowsAfter(tx *sql.Tx, seq int64, most int) ([]row, error) {
	rows, err := tx.Query("SELECT "+rowColumns+" FROM records WHERE seq > ? ORDER BY seq LIMIT ?", seq, most)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var page []row
	for rows.Next() {
		var r row
		if err := rows.Scan(r.into()...); err != nil {
			return nil, err
		}
		page = append(page, r)
	}
	return page, rows.Err()
}
