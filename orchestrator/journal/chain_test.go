package journal

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"savepoint/orchestrator"
)

// fill appends n records with keys and sessions here and there; every third
// one settles its transaction.
func fill(t testing.TB, j *Journal, from, n int) {
	t.Helper()
	var rs []orchestrator.Record
	for i := from; i < from+n; i++ {
		r := sample(i)
		if i%3 == 1 {
			r.Event, r.State, r.Key = "begin", orchestrator.StateBegun, fmt.Sprint("key", i)
		}
		if i%3 == 0 {
			r.Session = []byte(fmt.Sprintf(`{"dir":"/d%d"}`, i))
		}
		rs = append(rs, r)
	}
	if err := j.AppendAll(context.Background(), rs); err != nil {
		t.Fatal(err)
	}
}

// closed makes a journal of n records and returns its path and last head.
func closed(t testing.TB, n int) (string, Head) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "journal.db")
	j, err := Open(path, Options{})
	if err != nil {
		t.Fatal(err)
	}
	fill(t, j, 1, n)
	rep, err := j.Verify(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	return path, rep.Head
}

// tamper changes the file as somebody with an SQLite shell would: the triggers
// are no obstacle to him.
func tamper(t *testing.T, path, script string) {
	t.Helper()
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	rows, err := db.Query("SELECT name FROM sqlite_schema WHERE type = 'trigger'")
	if err != nil {
		t.Fatal(err)
	}
	var drop []string
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			t.Fatal(err)
		}
		drop = append(drop, "DROP TRIGGER "+name+";")
	}
	rows.Close()
	if _, err := db.Exec(strings.Join(drop, " ") + script); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
}

func verifyFile(t *testing.T, path string, noted ...Head) (Report, error) {
	t.Helper()
	j, err := OpenReadOnly(path)
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	return j.Verify(context.Background(), noted...)
}

// The hash of a row, computed by another program: journals hold it for good.
func TestLinkIsForGood(t *testing.T) {
	t.Parallel()
	var h Head
	for i := range h.Hash {
		h.Hash[i] = byte(i)
	}
	full := row{seq: 7, tx: "01kbd", sandbox: "box", at: 1764700000250000000, state: "begun", event: "begin", settled: 1, owner: "me", fence: 3, data: []byte(`{"a":"é"}`), key: "k\x00", session: []byte{1, 2, 3}}
	for name, c := range map[string]struct {
		r    row
		want string
	}{
		"full":  {full, "cc5537a0ccf8cc8f690220319239d4828e27b123de67f8012603f3810704cd9c"},
		"empty": {row{seq: 1, at: -1}, "785e2495d66cc92be24c4150c7e2c7d9578ef97391874cc8a01844c7c41861d9"},
	} {
		if got := h.link(&c.r); hex.EncodeToString(got.Hash[:]) != c.want || got.Seq != c.r.seq {
			t.Errorf("%s: got %s, want %s", name, got, c.want)
		}
	}
}

// No two rows have the same encoding, wherever a byte is moved to.
func TestLinkTellsFieldsApart(t *testing.T) {
	t.Parallel()
	seen := map[Head]string{}
	for name, r := range map[string]row{
		"none": {}, "tx": {tx: "a"}, "sandbox": {sandbox: "a"}, "state": {state: "a"}, "event": {event: "a"}, "owner": {owner: "a"},
		"data": {data: []byte("a")}, "key": {key: "a"}, "session": {session: []byte("a")}, "at": {at: 1}, "settled": {settled: 1}, "fence": {fence: 1},
		"split": {tx: "a", sandbox: "b"}, "joined": {tx: "ab"}, "nul": {tx: "a\x00", sandbox: "b"}, "nul behind": {tx: "a", sandbox: "\x00b"},
	} {
		h := Head{}.link(&r)
		if other := seen[h]; other != "" {
			t.Errorf("%s and %s have one hash", name, other)
		}
		seen[h] = name
	}
}

func TestHeadText(t *testing.T) {
	t.Parallel()
	h := Head{Seq: 12}
	h.Hash[31] = 9
	if got, err := ParseHead(" " + h.String() + "\n"); err != nil || got != h {
		t.Errorf("got %v, %v", got, err)
	}
	for _, bad := range []string{"", "12", "12:", ":" + h.String()[3:], "12:" + h.String()[4:], "-1:" + h.String()[3:], h.String() + "00", "x:" + h.String()[3:]} {
		if _, err := ParseHead(bad); err == nil {
			t.Errorf("%q was read", bad)
		}
	}
}

// Every way of changing the file with an SQLite shell is found, and the first
// record that is not proved is named.
func TestVerifyFinds(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		script string
		seq    int64
		says   string
	}{
		"removed in the middle":  {"DELETE FROM records WHERE seq = 5", 5, "missing"},
		"several removed":        {"DELETE FROM records WHERE seq IN (5, 6, 7)", 5, "up to record 7"},
		"first removed":          {"DELETE FROM records WHERE seq = 1", 1, "missing"},
		"last removed":           {"DELETE FROM records WHERE seq = 12", 12, "end of the journal"},
		"tail removed":           {"DELETE FROM records WHERE seq > 6", 7, "up to record 12"},
		"all removed":            {"DELETE FROM records", 1, "up to record 12"},
		"put in at the end":      {"INSERT INTO records SELECT 13, tx, sandbox, at, state, event, settled, owner, fence, data, '', NULL, hash FROM records WHERE seq = 12", 13, "put in"},
		"put in before":          {"INSERT INTO records SELECT 0, tx, sandbox, at, state, event, settled, owner, fence, data, '', NULL, hash FROM records WHERE seq = 12", 0, "put in"},
		"moved":                  {"UPDATE records SET seq = 99 WHERE seq = 5", 5, "missing"},
		"two swapped":            {"UPDATE records SET seq = -5 WHERE seq = 5; UPDATE records SET seq = 5 WHERE seq = 6; UPDATE records SET seq = 6 WHERE seq = -5", 5, "changed"},
		"head moved back":        {"UPDATE meta SET value = '11' || substr(value, 3) WHERE key = 'chain_head'", 12, "head"},
		"head's hash":            {"UPDATE meta SET value = replace(replace(value, '1', 'a'), '12:', '12:') WHERE key = 'chain_head'; UPDATE meta SET value = '12:' || substr(value, instr(value, ':') + 1) WHERE key = 'chain_head'", 12, "head"},
		"head of an earlier":     {"DELETE FROM records WHERE seq = 12; UPDATE meta SET value = '11:' || (SELECT lower(hex(hash)) FROM records WHERE seq = 10) WHERE key = 'chain_head'", 11, "head"},
		"head gone":              {"DELETE FROM meta WHERE key = 'chain_head'", 0, "gone"},
		"head no head":           {"UPDATE meta SET value = 'x' WHERE key = 'chain_head'", 0, "no head"},
		"genesis":                {"UPDATE meta SET value = '0:' || replace(substr(value, 3), substr(value, 5, 1), CASE substr(value, 5, 1) WHEN '0' THEN '1' ELSE '0' END) WHERE key = 'chain_genesis'", 1, "changed"},
		"genesis gone":           {"DELETE FROM meta WHERE key = 'chain_genesis'", 0, "gone"},
		"hidden by an anchor":    {"INSERT INTO anchors SELECT 1, seq, hash, 0, 3, 1, 9 FROM records WHERE seq = 3", 1, "put in"},
		"cut behind an anchor":   {"INSERT INTO anchors SELECT 1, 3, x'00', 0, 3, 1, 9; DELETE FROM records WHERE seq <= 3", 4, "changed"},
		"open one not listed":    {"DELETE FROM open_tx", 13, ""},
		"listed as open":         {"INSERT INTO open_tx VALUES ('tx00001')", 0, "tx00001"},
		"list: state":            {"UPDATE txs SET state = 'denied' WHERE tx = 'tx00002'", 7, "tx00002"},
		"list: gone":             {"DELETE FROM txs WHERE tx = 'tx00002'", 7, "tx00002"},
		"list: hidden":           {"DELETE FROM txs WHERE tx = 'tx00002'; INSERT INTO anchors SELECT 1, 0, unhex(substr(value, 3)), 0, 0, 0, 9 FROM meta WHERE key = 'chain_genesis'", 7, "tx00002"},
		"list: one more":         {"INSERT INTO txs SELECT 'zz', sandbox, name, 99, began_at, 99, last_at, state, settled FROM txs WHERE tx = 'tx00002'", 0, "zz"},
		"session":                {"UPDATE sessions SET data = x'00'", 12, "session"},
		"session of an earlier":  {"UPDATE sessions SET seq = 9, data = CAST('{\"dir\":\"/d9\"}' AS BLOB)", 9, "session"},
		"session of another box": {"INSERT INTO sessions SELECT 'other', seq, data FROM sessions", 12, "session"},
		"key gone":               {"DELETE FROM keys WHERE key = 'key4'", 0, "list of keys"},
		"key of another":         {"UPDATE keys SET tx = 'tx00000' WHERE key = 'key4'", 0, "key4"},
		"key added":              {"INSERT INTO keys VALUES ('box', 'mine', 'tx00000')", 0, "mine"},
	}
	for _, column := range []string{"tx", "sandbox", "state", "event", "owner", "key"} {
		cases["field "+column] = struct {
			script string
			seq    int64
			says   string
		}{"UPDATE records SET " + column + " = " + column + " || 'x' WHERE seq = 5", 5, "changed"}
	}
	for column, value := range map[string]string{
		"at": "at + 1", "settled": "1 - settled", "fence": "fence + 1", "data": "NULL", "session": "x'00'", "hash": "x''",
	} {
		cases["field "+column] = struct {
			script string
			seq    int64
			says   string
		}{"UPDATE records SET " + column + " = " + value + " WHERE seq = 5", 5, "changed"}
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := 12
			if c.seq == 13 && c.says == "" {
				n = 13
			}
			path, _ := closed(t, n)
			tamper(t, path, c.script)
			_, err := verifyFile(t, path)
			var chain *ChainError
			if !errors.As(err, &chain) || chain.Seq != c.seq || !strings.Contains(chain.What, c.says) {
				t.Errorf("got %v, want record %d and %q", err, c.seq, c.says)
			}
		})
	}
}

// A file whose end was cut off, or lengthened, is not written to any more.
func TestOpenRefusesACutJournal(t *testing.T) {
	t.Parallel()
	for name, script := range map[string]string{
		"cut":        "DELETE FROM records WHERE seq = 12",
		"all cut":    "DELETE FROM records",
		"lengthened": "INSERT INTO records SELECT 13, tx, sandbox, at, state, event, settled, owner, fence, data, '', NULL, hash FROM records WHERE seq = 12",
		"head":       "UPDATE meta SET value = '11' || substr(value, 3) WHERE key = 'chain_head'",
		"no head":    "DELETE FROM meta WHERE key = 'chain_head'",
	} {
		path, _ := closed(t, 12)
		tamper(t, path, script)
		var chain *ChainError
		if j, err := Open(path, Options{}); !errors.As(err, &chain) {
			t.Errorf("%s: got %v, want a *ChainError", name, err)
			if err == nil {
				j.Close()
			}
		}
	}
}

// A file that is refused is not touched, though it is one that is rebuilt once
// to be able to shrink.
func TestOpenLeavesARefusedJournal(t *testing.T) {
	t.Parallel()
	path, _ := closed(t, 12)
	tamper(t, path, "DELETE FROM records WHERE seq = 12; PRAGMA auto_vacuum = NONE; VACUUM; PRAGMA wal_checkpoint(TRUNCATE)")
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var chain *ChainError
	if j, err := Open(path, Options{}); !errors.As(err, &chain) {
		t.Errorf("got %v, want a *ChainError", err)
		if err == nil {
			j.Close()
		}
	}
	after, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(before, after) {
		t.Errorf("%d bytes before and %d after it was refused", len(before), len(after))
	}
}

// What Compact would do cannot be said of a file without its head, and Plan
// says so as Verify does.
func TestPlanWithoutAHead(t *testing.T) {
	t.Parallel()
	for name, script := range map[string]string{
		"gone": "DELETE FROM meta WHERE key = 'chain_head'", "no head": "UPDATE meta SET value = 'x' WHERE key = 'chain_head'",
	} {
		path, _ := closed(t, 12)
		tamper(t, path, script)
		_, want := verifyFile(t, path)
		j, err := OpenReadOnly(path)
		if err != nil {
			t.Fatal(err)
		}
		var chain *ChainError
		if _, err := j.Plan(context.Background(), Policy{KeepRecords: 3}); !errors.As(err, &chain) || want == nil || err.Error() != want.Error() {
			t.Errorf("%s: got %v, want %v", name, err, want)
		}
		if err := j.Close(); err != nil {
			t.Error(err)
		}
	}
}

// forge writes the whole chain anew after a change, as somebody who knows the
// format would.
func forge(t *testing.T, path, script string) {
	t.Helper()
	tamper(t, path, script)
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.Exec("DELETE FROM meta WHERE key IN ('chain_head', 'chain_genesis', 'chained_from')"); err != nil {
		t.Fatal(err)
	}
	tx, err := db.Begin()
	if err != nil {
		t.Fatal(err)
	}
	if err := chainAll(tx); err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec("UPDATE meta SET value = '1' WHERE key = 'chained_from'"); err != nil {
		t.Fatal(err)
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
}

// A chain that was written anew is consistent in itself. Whoever noted a head
// finds out.
func TestVerifyAgainstANotedHead(t *testing.T) {
	t.Parallel()
	path, noted := closed(t, 12)
	j := open(t, path, Options{})
	fill(t, j, 13, 5)
	rep, err := j.Verify(context.Background(), noted)
	if err != nil || rep.Head.Seq != 17 || rep.Records != 17 || rep.Transactions != 6 || rep.From.Seq != 0 || rep.Original != 1 {
		t.Errorf("untouched: %+v, %v", rep, err)
	}
	if _, err := j.Verify(context.Background(), noted, rep.Head, rep.From); err != nil {
		t.Errorf("against three: %v", err)
	}
	later := Head{Seq: 18}
	var chain *ChainError
	if _, err := j.Verify(context.Background(), later); !errors.As(err, &chain) || chain.Seq != 18 {
		t.Errorf("a head that is not there yet: got %v", err)
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	forge(t, path, "UPDATE records SET data = CAST(replace(CAST(data AS TEXT), '\"n\":5', '\"n\":6') AS BLOB) WHERE seq = 5")
	if rep, err := verifyFile(t, path); err != nil || rep.Head.Seq != 17 {
		t.Fatalf("the forgery is not whole: %+v, %v", rep, err)
	}
	if _, err := verifyFile(t, path, noted); !errors.As(err, &chain) || chain.Seq != 12 || !strings.Contains(chain.What, "anew") {
		t.Errorf("forged: got %v", err)
	}
}

// An older copy in place of the journal is whole, too.
func TestVerifyFindsAnOlderCopy(t *testing.T) {
	t.Parallel()
	path, _ := closed(t, 6)
	old := copied(t, path, -1)
	j := open(t, path, Options{})
	fill(t, j, 7, 3)
	rep, err := j.Verify(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := verifyFile(t, old); err != nil {
		t.Errorf("by itself: %v", err)
	}
	var chain *ChainError
	if _, err := verifyFile(t, old, rep.Head); !errors.As(err, &chain) || chain.Seq != 7 || !strings.Contains(chain.What, "older copy") {
		t.Errorf("got %v", err)
	}
}

// Verify looks at one instant while records are appended, and an empty journal
// is as good as any.
func TestVerifyBesideAppends(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "j")
	j := open(t, path, Options{})
	if rep, err := j.Verify(context.Background()); err != nil || rep.Records != 0 || rep.Head.Seq != 0 || rep.Head != rep.From {
		t.Errorf("empty: %+v, %v", rep, err)
	}
	ro, err := OpenReadOnly(path)
	if err != nil {
		t.Fatal(err)
	}
	defer ro.Close()
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := range 120 {
			if err := j.Append(context.Background(), sample(i+1)); err != nil {
				t.Error(err)
			}
		}
	}()
	var noted []Head
	for running := true; running; {
		select {
		case <-done:
			running = false
		default:
		}
		rep, err := ro.Verify(context.Background(), noted...)
		if err != nil {
			t.Fatal(err)
		}
		noted = append(noted, rep.Head)
	}
	if last := noted[len(noted)-1]; last.Seq != 120 {
		t.Errorf("the last head is %s", last)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Nanosecond)
	defer cancel()
	if _, err := ro.Verify(ctx); err == nil {
		t.Error("verified without time")
	}
}
