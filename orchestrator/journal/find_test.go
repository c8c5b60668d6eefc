package journal

import (
	"context"
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"savepoint/orchestrator"
)

var _ orchestrator.Finder = (*Journal)(nil)

// story is the records of a transaction that reads only: begun, run, committed.
func story(n int, sb string, end orchestrator.State) []orchestrator.Record {
	rec := func(state orchestrator.State, event, data string, settled bool) orchestrator.Record {
		return orchestrator.Record{
			At: noon.Add(time.Duration(n) * time.Minute), Tx: orchestrator.TxID(fmt.Sprintf("tx%06d", n)), Sandbox: orchestrator.SandboxID(sb + "-id"),
			State: state, Event: event, Data: []byte(data), Settled: settled,
		}
	}
	about := fmt.Sprintf(`{"sandbox":{"id":"%s-id","name":%q},"command":"bHM=","verdict":{"decision":"allow","rule":"read-only"},"boundary":"none"}`, sb, sb)
	if end == orchestrator.StateDenied {
		return []orchestrator.Record{rec(end, "deny", about, true)}
	}
	rs := []orchestrator.Record{
		rec(orchestrator.StateBegun, "begin", about, false), rec(orchestrator.StateRunning, "run", "", false), rec(orchestrator.StateRan, "ran", `{"exit":0}`, false),
		rec(orchestrator.StateCommitting, "commit", `{}`, false), rec(orchestrator.StateCommitted, "committed", "", true),
	}
	if end == orchestrator.StateRunning {
		return rs[:2]
	}
	return rs
}

// plain hides what a journal offers besides, so that everything is read.
type plain struct{ orchestrator.Journal }

// A list by filter is what reading everything gives.
func TestFindAgreesWithReadingAll(t *testing.T) {
	t.Parallel()
	j := open(t, filepath.Join(t.TempDir(), "j"), Options{})
	ctx := context.Background()
	var rs []orchestrator.Record
	for n := range 3 * findPage {
		end := []orchestrator.State{orchestrator.StateCommitted, orchestrator.StateDenied, orchestrator.StateRunning}[n%3]
		rs = append(rs, story(n, fmt.Sprint("box", n%7), end)...)
	}
	odd := story(5000, "box1-id", orchestrator.StateCommitted) // a name that is another's id
	if err := j.AppendAll(ctx, append(rs, odd...)); err != nil {
		t.Fatal(err)
	}
	committed := []orchestrator.State{orchestrator.StateCommitted}
	for name, f := range map[string]orchestrator.Filter{
		"all": {}, "newest": {Limit: 5}, "by name": {Sandbox: "box3"}, "by id": {Sandbox: "box3-id"}, "name and id": {Sandbox: "box1-id"},
		"of none": {Sandbox: "box"}, "state": {States: committed}, "states": {States: []orchestrator.State{orchestrator.StateDenied, orchestrator.StateRunning}},
		"since": {Since: noon.Add(700 * time.Minute)}, "open": {Open: true}, "since exactly": {Since: noon.Add(5000 * time.Minute)},
		"together":          {Sandbox: "box2", States: committed, Since: noon.Add(100 * time.Minute), Limit: 3},
		"limit over a page": {States: committed, Limit: findPage + 1}, "open of one": {Sandbox: "box4", Open: true, Limit: 1000},
	} {
		got, err := orchestrator.List(ctx, j, f)
		if err != nil {
			t.Fatal(err)
		}
		want, err := orchestrator.List(ctx, plain{j}, f)
		if err != nil {
			t.Fatal(err)
		}
		ids := func(txs []orchestrator.Transaction) (l []string) {
			for _, tx := range txs {
				l = append(l, fmt.Sprint(tx.ID, tx.State, len(tx.Steps)))
			}
			return l
		}
		if diff := cmp.Diff(ids(want), ids(got)); diff != "" || name != "of none" && len(got) == 0 {
			t.Errorf("%s: %d found (-want +got):\n%s", name, len(got), diff)
		}
	}
}

// The order is that of the records. A clock that was set back changes nothing.
func TestOrderIsNotByTime(t *testing.T) {
	t.Parallel()
	j := open(t, filepath.Join(t.TempDir(), "j"), Options{})
	ctx := context.Background()
	for _, n := range []int{50, 10, 30} {
		appendAll(t, j, story(n, "box", orchestrator.StateCommitted)...)
	}
	want := []orchestrator.TxID{"tx000030", "tx000010", "tx000050"}
	var got, listed []orchestrator.TxID
	for id, err := range j.Transactions(ctx) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, id)
	}
	txs, err := orchestrator.List(ctx, j, orchestrator.Filter{Sandbox: "box"})
	if err != nil {
		t.Fatal(err)
	}
	for _, tx := range txs {
		listed = append(listed, tx.ID)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("transactions (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(want, listed); diff != "" {
		t.Errorf("list (-want +got):\n%s", diff)
	}
	last := int64(0)
	for _, r := range records(t, j, "") {
		if r.Seq <= last {
			t.Errorf("record %d after %d", r.Seq, last)
		}
		last = r.Seq
	}
}

// Reading can stop anywhere, and looking up ids keeps no connection.
func TestFindStops(t *testing.T) {
	t.Parallel()
	j := open(t, filepath.Join(t.TempDir(), "j"), Options{})
	ctx, cancel := context.WithCancel(context.Background())
	for n := range 3 {
		appendAll(t, j, story(n, "box", orchestrator.StateCommitted)...)
	}
	first := func() { // left at the first record
		for r, err := range j.Find(ctx, orchestrator.Filter{Sandbox: "box"}) {
			if err != nil || r.Tx != "tx000002" {
				t.Errorf("got %s, %v", r.Tx, err)
			}
			return
		}
		t.Error("found nothing")
	}
	for range 10 { // more than are kept
		first()
	}
	deepest := 0
	var nest func(depth int)
	nest = func(depth int) { // more at once than are kept
		deepest = depth
		for _, err := range j.Transactions(ctx) {
			if err != nil {
				t.Error(err)
			}
			if depth < 10 {
				nest(depth + 1)
			}
			return
		}
	}
	nest(1)
	if deepest != 10 {
		t.Errorf("%d reads at once, want 10", deepest)
	}
	for range 10 {
		for id, err := range j.Transactions(ctx) {
			if err != nil {
				t.Fatal(err)
			}
			if got := len(records(t, j, id)); got != 5 {
				t.Errorf("%s has %d records", id, got)
			}
			break
		}
	}
	cancel()
	for _, err := range j.Find(ctx, orchestrator.Filter{}) {
		if err == nil {
			t.Error("found without time")
		}
	}
}

// A loop over records may ask again, at any depth, and so may several readers
// at once: none waits for a connection that another one has.
func TestLoopsMayNest(t *testing.T) {
	t.Parallel()
	j := open(t, filepath.Join(t.TempDir(), "j"), Options{})
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	appendAll(t, j, story(1, "box", orchestrator.StateRunning)...)
	const deep = 5
	var wg sync.WaitGroup
	for range deep {
		wg.Go(func() {
			for _, err := range j.Unsettled(ctx) {
				if err != nil {
					t.Error(err)
					return
				}
				var nest func(depth int)
				nest = func(depth int) {
					for _, err := range j.Records(ctx, "") {
						if err != nil {
							t.Errorf("loop %d: %v", depth, err)
							return
						}
						if depth < deep {
							nest(depth + 1)
						}
						return
					}
					t.Errorf("loop %d: no record", depth)
				}
				nest(1)
				if tx, err := orchestrator.Show(ctx, j, "tx000001"); err != nil || tx.State != orchestrator.StateRunning {
					t.Errorf("show: %s, %v", tx.State, err)
				}
			}
		})
	}
	wg.Wait()
}

// history makes a journal of many finished transactions and some open ones.
func history(b *testing.B, finished, unfinished int) string {
	b.Helper()
	path := filepath.Join(b.TempDir(), "journal.db")
	j, err := Open(path, Options{})
	if err != nil {
		b.Fatal(err)
	}
	var rs []orchestrator.Record
	for n := range finished + unfinished {
		end := orchestrator.StateCommitted
		if n%(finished/unfinished+1) == 0 {
			end = orchestrator.StateRunning
		}
		rs = append(rs, story(n, fmt.Sprint("box", n%100), end)...)
		if len(rs) > 5000 || n == finished+unfinished-1 {
			if err := j.AppendAll(context.Background(), rs); err != nil {
				b.Fatal(err)
			}
			rs = rs[:0]
		}
	}
	if err := j.Close(); err != nil {
		b.Fatal(err)
	}
	return path
}

// BenchmarkRecovery is what a start costs with 100,000 transactions in the
// journal and 1,000 of them open; the target is 5 s. The others are what
// questions about that journal cost.
func BenchmarkRecovery(b *testing.B) {
	path := history(b, 100_000, 1_000)
	ctx := context.Background()
	b.Run("open", func(b *testing.B) {
		for b.Loop() {
			j, err := Open(path, Options{})
			if err != nil {
				b.Fatal(err)
			}
			n := 0
			for _, err := range j.Unsettled(ctx) {
				if err != nil {
					b.Fatal(err)
				}
				n++
			}
			if n != 2000 {
				b.Fatalf("%d records", n)
			}
			if err := j.Close(); err != nil {
				b.Fatal(err)
			}
		}
	})
	j, err := OpenReadOnly(path)
	if err != nil {
		b.Fatal(err)
	}
	defer j.Close()
	for name, f := range map[string]orchestrator.Filter{
		"sandbox": {Sandbox: "box7"}, "newest": {Limit: 20}, "open": {Open: true}, "since": {Since: noon.Add(100_900 * time.Minute)},
	} {
		b.Run("list-"+name, func(b *testing.B) {
			for b.Loop() {
				if txs, err := orchestrator.List(ctx, j, f); err != nil || len(txs) == 0 {
					b.Fatal(len(txs), err)
				}
			}
		})
	}
	b.Run("verify", func(b *testing.B) {
		for b.Loop() {
			if _, err := j.Verify(ctx); err != nil {
				b.Fatal(err)
			}
		}
	})
}
