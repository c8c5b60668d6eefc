package journal

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"savepoint/orchestrator"
)

// at is a record of a transaction, minutes after noon.
func at(minute int, tx, event string, settled bool) orchestrator.Record {
	r := orchestrator.Record{
		At: noon.Add(time.Duration(minute) * time.Minute), Tx: orchestrator.TxID(tx), Sandbox: "box", State: orchestrator.StateCommitted,
		Event: event, Settled: settled, Data: []byte(`{"sandbox":{"name":"dev"}}`),
	}
	if event == "begin" {
		r.State, r.Key = orchestrator.StateBegun, "key-"+tx
	}
	return r
}

func appendAll(t testing.TB, j *Journal, rs ...orchestrator.Record) {
	t.Helper()
	for _, r := range rs {
		if err := j.Append(context.Background(), r); err != nil {
			t.Fatal(err)
		}
	}
}

// left is what readers see: the transactions with the number of their records,
// oldest first.
func left(t *testing.T, j *Journal) string {
	t.Helper()
	var order []string
	n := map[string]int{}
	for _, r := range records(t, j, "") {
		if n[string(r.Tx)]++; n[string(r.Tx)] == 1 {
			order = append(order, string(r.Tx))
		}
	}
	for i, tx := range order {
		if got := len(records(t, j, orchestrator.TxID(tx))); got != n[tx] {
			t.Errorf("transaction %s: %d records alone, %d among all", tx, got, n[tx])
		}
		order[i] = fmt.Sprint(tx, n[tx])
	}
	return strings.Join(order, " ")
}

// What goes is always a beginning of the journal, of settled transactions that
// are old enough, each as a whole; the chain goes on from the anchor.
func TestCompact(t *testing.T) {
	t.Parallel()
	two := func(minute int, tx string) []orchestrator.Record {
		return []orchestrator.Record{at(minute, tx, "begin", false), at(minute, tx, "end", true)}
	}
	plain := append(append(two(0, "a"), two(10, "b")...), two(20, "c")...)
	across := []orchestrator.Record{ // b and c stand across one another and across a's end
		at(0, "a", "begin", false), at(1, "b", "begin", false), at(2, "a", "end", true), at(3, "c", "begin", false),
		at(4, "b", "end", true), at(20, "c", "end", true), at(21, "d", "begin", false), at(22, "d", "end", true),
	}
	stopped := append(append(two(0, "a"), at(1, "open", "begin", false)), append(two(2, "c"), two(30, "d")...)...)
	for name, c := range map[string]struct {
		records []orchestrator.Record
		policy  Policy // Now is the number of minutes after noon
		minute  int
		left    string
		removed int64
		blocked string
	}{
		"none is old":           {plain, Policy{KeepFor: time.Hour}, 30, "a2 b2 c2", 0, ""},
		"one is old":            {plain, Policy{KeepFor: 15 * time.Minute}, 20, "b2 c2", 2, ""},
		"as old as the limit":   {plain, Policy{KeepFor: 10 * time.Minute}, 20, "b2 c2", 2, ""},
		"all are old":           {plain, Policy{KeepFor: time.Minute}, 60, "", 6, ""},
		"by number":             {plain, Policy{KeepRecords: 2}, 20, "c2", 4, ""},
		"number inside of one":  {plain, Policy{KeepRecords: 3}, 20, "b2 c2", 2, ""},
		"both, the time keeps":  {plain, Policy{KeepRecords: 1, KeepFor: 15 * time.Minute}, 20, "b2 c2", 2, ""},
		"both, the number does": {plain, Policy{KeepRecords: 4, KeepFor: time.Minute}, 60, "b2 c2", 2, ""},
		"more than there is":    {plain, Policy{KeepRecords: 100}, 20, "a2 b2 c2", 0, ""},
		// b is removed, its last record stays in the chain unseen; c ended too late.
		"across":            {across, Policy{KeepFor: 10 * time.Minute}, 22, "c2 d2", 3, ""},
		"across, by number": {across, Policy{KeepRecords: 2}, 22, "d2", 6, ""},
		"open":              {stopped, Policy{KeepFor: 10 * time.Minute}, 30, "open1 c2 d2", 2, "open"},
		"open, not older":   {append(two(0, "a"), at(1, "open", "begin", false)), Policy{KeepFor: time.Minute}, 30, "open1", 2, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "j")
			j := open(t, path, Options{})
			appendAll(t, j, c.records...)
			before, err := j.Verify(context.Background())
			if err != nil {
				t.Fatal(err)
			}
			c.policy.Now = noon.Add(time.Duration(c.minute) * time.Minute)
			for n := range 2 { // the second time there is nothing to do
				would, err := j.Plan(context.Background(), c.policy)
				if err != nil {
					t.Fatal(err)
				}
				got, err := j.Compact(context.Background(), c.policy)
				if err != nil {
					t.Fatal(err)
				}
				would.Freed = got.Freed
				if d := cmp.Diff(got, would); d != "" {
					t.Errorf("run %d: planned otherwise than done (-done +planned):\n%s", n, d)
				}
				want := c.removed
				if n > 0 {
					want = 0
				}
				var blocked []string
				for _, id := range got.Blocked {
					blocked = append(blocked, string(id))
				}
				if got.Records != want || strings.Join(blocked, " ") != c.blocked || got.More != 0 {
					t.Errorf("run %d: %+v, want %d removed", n, got, want)
				}
			}
			if got := left(t, j); got != c.left {
				t.Errorf("left: %q, want %q", got, c.left)
			}
			rep, err := j.Verify(context.Background(), before.Head)
			if err != nil {
				t.Fatal(err)
			}
			if rep.Head != before.Head || rep.Removed != c.removed || rep.Records+rep.Removed != before.Records || rep.From.Seq != c.removed || (c.removed > 0) == rep.Anchored.IsZero() {
				t.Errorf("verified %+v, before %+v", rep, before)
			}
			var chain *ChainError
			if c.removed > 1 {
				if _, err := j.Verify(context.Background(), Head{Seq: 1}); !errors.As(err, &chain) || !strings.Contains(chain.What, "retention") {
					t.Errorf("against a head that was removed: %v", err)
				}
			}
			if err := j.Close(); err != nil {
				t.Fatal(err)
			}
			j = open(t, path, Options{}) // the journal goes on
			appendAll(t, j, two(40, "new")...)
			if rep, err := j.Verify(context.Background(), before.Head); err != nil || rep.Head.Seq != before.Head.Seq+2 {
				t.Errorf("after more records: %+v, %v", rep, err)
			}
		})
	}
}

// Keys go with their transactions and can be taken anew; sessions and used
// grants stay; what is open stays listed.
func TestCompactKeepsWhatRefersToIt(t *testing.T) {
	t.Parallel()
	j := open(t, filepath.Join(t.TempDir(), "j"), Options{Now: func() time.Time { return noon }})
	ctx := context.Background()
	put(t, j, grant("gr-1"))
	begin := at(0, "a", "begin", false)
	begin.Spends = []orchestrator.GrantID{"gr-1"}
	end := at(1, "a", "end", true)
	end.Session = []byte(`{"dir":"/kept"}`)
	appendAll(t, j, begin, end, at(30, "b", "begin", false))
	if got, err := j.Compact(ctx, Policy{KeepFor: time.Minute, Now: noon.Add(time.Hour)}); err != nil || got.Records != 2 || got.Transactions != 1 {
		t.Fatalf("%+v, %v", got, err)
	}
	if _, ok, err := j.ByKey(ctx, "box", "key-a"); ok || err != nil {
		t.Errorf("the key is still there: %v", err)
	}
	if id, ok, err := j.ByKey(ctx, "box", "key-b"); !ok || id != "b" || err != nil {
		t.Errorf("another's key: %s, %v", id, err)
	}
	if s, err := j.Session(ctx, "box"); string(s) != `{"dir":"/kept"}` || err != nil {
		t.Errorf("session: %s, %v", s, err)
	}
	if gs, err := j.Grants(ctx, ""); err != nil || len(gs) != 1 || gs[0].Used != "a" {
		t.Errorf("grants: %+v, %v", gs, err)
	}
	again := at(60, "c", "begin", false)
	again.Key = "key-a"
	again.Spends = []orchestrator.GrantID{"gr-1"}
	var gone *orchestrator.GrantError
	if err := j.Append(ctx, again); !errors.As(err, &gone) || gone.Used != "a" {
		t.Errorf("a used grant: %v", err)
	}
	again.Spends = nil
	if err := j.Append(ctx, again); err != nil {
		t.Errorf("the key anew: %v", err)
	}
	if _, err := j.Verify(ctx); err != nil {
		t.Error(err)
	}
	var open []orchestrator.TxID
	for r, err := range j.Unsettled(ctx) {
		if err != nil {
			t.Fatal(err)
		}
		open = append(open, r.Tx)
	}
	if diff := cmp.Diff([]orchestrator.TxID{"b", "c"}, open); diff != "" {
		t.Errorf("unsettled (-want +got):\n%s", diff)
	}
}

// Nobody but Compact removes records, and nobody removes an anchor.
func TestDeleteStaysForbidden(t *testing.T) {
	t.Parallel()
	j := open(t, filepath.Join(t.TempDir(), "j"), Options{})
	ctx := context.Background()
	fill(t, j, 1, 12)
	if _, err := j.Compact(ctx, Policy{KeepRecords: 6}); err != nil {
		t.Fatal(err)
	}
	for _, q := range []string{
		"DELETE FROM records", "DELETE FROM records WHERE seq = 12", "DELETE FROM anchors", "UPDATE records SET seq = seq + 1",
		"INSERT INTO meta VALUES ('compacting', '12'); DELETE FROM records WHERE seq = 7", // not behind an anchor
		"INSERT INTO meta VALUES ('compacting', '0'); DELETE FROM records WHERE seq = 7",
	} {
		if _, err := j.write.Exec("BEGIN; " + q); err == nil {
			t.Errorf("done: %s", q)
		}
		_, _ = j.write.Exec("ROLLBACK")
	}
	if rep, err := j.Verify(ctx); err != nil || rep.Records != 6 {
		t.Errorf("%+v, %v", rep, err)
	}
}

func TestCompactNeedsAPolicy(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "j")
	j := open(t, path, Options{})
	for _, p := range []Policy{{}, {Now: noon}, {KeepFor: -1}, {KeepRecords: -1, KeepFor: time.Hour}} {
		if _, err := j.Compact(context.Background(), p); !errors.Is(err, orchestrator.ErrDenied) {
			t.Errorf("%+v: got %v", p, err)
		}
	}
	ro, err := OpenReadOnly(path)
	if err != nil {
		t.Fatal(err)
	}
	defer ro.Close()
	if _, err := ro.Compact(context.Background(), Policy{KeepRecords: 1}); !errors.Is(err, orchestrator.ErrDenied) {
		t.Errorf("read-only: got %v", err)
	}
}

// A clock that was set back, or was ahead for a while, removes nothing early
// and mixes nothing up.
func TestCompactByAWrongClock(t *testing.T) {
	t.Parallel()
	j := open(t, filepath.Join(t.TempDir(), "j"), Options{})
	appendAll(t, j, at(0, "a", "begin", false), at(0, "a", "end", true),
		at(9999, "future", "begin", false), at(9999, "future", "end", true),
		at(-60, "past", "begin", false), at(-60, "past", "end", true))
	p := Policy{KeepFor: 10 * time.Minute, Now: noon.Add(20 * time.Minute)}
	if got, err := j.Compact(context.Background(), p); err != nil || got.Records != 2 {
		t.Errorf("%+v, %v", got, err)
	}
	if got := left(t, j); got != "future2 past2" {
		t.Errorf("left: %s", got)
	}
}

// The file gets shorter, appends go on meanwhile, and a compaction that is
// ended half-way leaves a whole journal.
func TestCompactShrinks(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "j")
	j := open(t, path, Options{})
	ctx, cancel := context.WithCancel(context.Background())
	var rs []orchestrator.Record
	for i := 1; i <= 3*1200; i++ {
		rs = append(rs, sample(i))
	}
	if err := j.AppendAll(ctx, rs); err != nil {
		t.Fatal(err)
	}
	if _, err := j.write.Exec("PRAGMA wal_checkpoint(TRUNCATE)"); err != nil {
		t.Fatal(err)
	}
	size := func() int64 {
		fi, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		return fi.Size()
	}
	before := size()
	c := &compactor{j: j, p: Policy{KeepRecords: 300}} // one step, then nothing: as if the process had ended
	if err := j.change(ctx, c.plan); err != nil {
		t.Fatal(err)
	}
	if err := j.change(ctx, func(ctx context.Context, tx *sql.Tx) error { _, err := c.remove(ctx, tx); return err }); err != nil {
		t.Fatal(err)
	}
	if rep, err := j.Verify(ctx); err != nil || rep.Removed != compactRows {
		t.Errorf("after one step: %+v, %v", rep, err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := range 40 {
			if err := j.Append(context.Background(), sample(100000+i)); err != nil {
				t.Error(err)
			}
		}
	})
	done, err := j.Compact(ctx, Policy{KeepRecords: 300})
	wg.Wait()
	if err != nil || done.Records < 2700 || done.Freed <= 0 {
		t.Errorf("%+v, %v", done, err)
	}
	if _, err := j.write.Exec("PRAGMA wal_checkpoint(TRUNCATE)"); err != nil {
		t.Fatal(err)
	}
	if after := size(); after > before/3 {
		t.Errorf("the file has %d bytes of %d", after, before)
	}
	if rep, err := j.Verify(ctx); err != nil || rep.Removed != compactRows+done.Records {
		t.Errorf("%+v, %v", rep, err)
	}
	cancel()
	if _, err := j.Compact(ctx, Policy{KeepRecords: 1}); !errors.Is(err, orchestrator.ErrUnavailable) {
		t.Errorf("without time: got %v", err)
	}
}
