package journal

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"savepoint/orchestrator"
)

// build makes a database file from a script.
func build(t *testing.T, script string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "journal.db")
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := db.Exec(script); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}

// A journal of the first schema opens, keeps every record and its identity,
// and its open transactions are found.
func TestSchema1(t *testing.T) {
	t.Parallel()
	script, err := os.ReadFile("testdata/journal-v1.sql")
	if err != nil {
		t.Fatal(err)
	}
	path := build(t, string(script))
	var old *VersionError
	if _, err := OpenReadOnly(path); !errors.As(err, &old) || old.Have != 1 {
		t.Errorf("read an old journal: got %v, want a *VersionError of 1", err)
	}
	j := open(t, path, Options{})
	if j.Instance() != "01kbcx3r00examp1einstance01" || j.Fence() != 2 {
		t.Errorf("instance %s, fence %d", j.Instance(), j.Fence())
	}
	ctx := context.Background()
	txs, err := orchestrator.List(ctx, j, orchestrator.Filter{})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, tx := range txs {
		got = append(got, fmt.Sprintf("%s %s settled=%t %s", tx.ID[24:], tx.State, tx.Settled, tx.Command))
	}
	want := []string{
		"a5 rolling-back settled=false echo new > /workspace/a && echo more > /workspace/b",
		"a4 committed settled=true cat /workspace/a",
		"a3 denied settled=true rm -rf /",
		"a2 rolled-back settled=false echo bad > /workspace/a && rm /workspace/none",
		"a1 committed settled=true echo new > /workspace/a && echo more > /workspace/b",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("transactions (-want +got):\n%s", diff)
	}
	open := map[orchestrator.TxID]bool{}
	for r, err := range j.Unsettled(ctx) {
		if err != nil {
			t.Fatal(err)
		}
		open[r.Tx] = true
	}
	if diff := cmp.Diff(map[orchestrator.TxID]bool{txs[0].ID: true, txs[3].ID: true}, open); diff != "" {
		t.Errorf("unsettled (-want +got):\n%s", diff)
	}
	if rep, err := j.Verify(ctx); err != nil || rep.Records != 28 || rep.Original != 29 {
		t.Errorf("verified: %+v, %v", rep, err)
	}
	if err := j.Append(ctx, sample(1)); err != nil {
		t.Error(err)
	}
	if err := j.PutSandbox(ctx, box("a", "dev", orchestrator.SandboxReady, 9001)); err != nil {
		t.Error(err)
	}
}

// A journal of the fourth schema gets its chain when it is opened, and says
// from where on the chain is original. The chain covers the old records from
// then on, the file can shrink, and lists find what was there.
func TestSchema4(t *testing.T) {
	t.Parallel()
	script, err := os.ReadFile("testdata/journal-v4.sql")
	if err != nil {
		t.Fatal(err)
	}
	path := build(t, string(script))
	var old *VersionError
	if _, err := OpenReadOnly(path); !errors.As(err, &old) || old.Have != 4 {
		t.Errorf("read an old journal: got %v, want a *VersionError of 4", err)
	}
	j := open(t, path, Options{})
	ctx := context.Background()
	if j.Instance() != "01kbcx3r00examp1einstance04" || j.Fence() != 8 {
		t.Errorf("instance %s, fence %d", j.Instance(), j.Fence())
	}
	if gs, err := j.Grants(ctx, ""); err != nil || len(gs) != 2 || gs[1].Used != "01kbd0000000000000000000d3" || gs[0].Used != "" {
		t.Errorf("grants: %+v, %v", gs, err)
	} else if g := gs[0]; g.Command == "" || g.Digest != g.For(g.Command, nil).Digest { // what it is for was the text itself
		t.Errorf("grant: %+v", g)
	}
	rep, err := j.Verify(ctx)
	if err != nil || rep.Records != 7 || rep.Transactions != 3 || rep.Original != 10 || rep.Head.Seq != 9 || rep.From.Seq != 0 {
		t.Errorf("verified: %+v, %v", rep, err)
	}
	for _, f := range []orchestrator.Filter{{Sandbox: "dev"}, {Sandbox: "01jx0000000000000000000box"}, {Limit: 9}} {
		if txs, err := orchestrator.List(ctx, j, f); err != nil || len(txs) != 3 || txs[0].ID != "01kbd0000000000000000000d3" || txs[0].Settled {
			t.Errorf("%+v: %d transactions, %v", f, len(txs), err)
		}
	}
	var mode int
	if err := j.write.QueryRow("PRAGMA auto_vacuum").Scan(&mode); err != nil || mode != 2 {
		t.Errorf("auto_vacuum is %d, %v: the file cannot shrink", mode, err)
	}
	appendAll(t, j, keyed("tx1", "box", "one"))
	if all := records(t, j, ""); all[len(all)-1].Seq != 10 {
		t.Errorf("the next record is %d", all[len(all)-1].Seq)
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	j = open(t, path, Options{}) // once more: nothing is chained anew
	if again, err := j.Verify(ctx, rep.Head); err != nil || again.Original != 10 || again.From != rep.From {
		t.Errorf("verified again: %+v, %v", again, err)
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	for script, seq := range map[string]int64{
		"UPDATE records SET state = 'denied' WHERE seq = 4": 4, "DELETE FROM records WHERE seq = 6": 9, "DELETE FROM records WHERE seq = 9": 10, "DELETE FROM records WHERE seq = 10": 10,
	} {
		k := copied(t, path, -1)
		tamper(t, k, script)
		var chain *ChainError
		if _, err := verifyFile(t, k); !errors.As(err, &chain) || chain.Seq != seq {
			t.Errorf("%s: got %v, want record %d", script, err, seq)
		}
	}
}

// A migration that fails half-way leaves the file as it was.
func TestMigrationIsWhole(t *testing.T) {
	t.Parallel()
	// "vmids" exists already, so that the third migration cannot succeed.
	path := build(t, migrations()[0]+migrations()[1]+"; CREATE TABLE vmids (x); PRAGMA user_version = 2;")
	if _, err := Open(path, Options{}); err == nil {
		t.Fatal("opened")
	}
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	v, err := version(db)
	if err != nil || v != 2 {
		t.Errorf("schema %d, %v", v, err)
	}
	var n int
	if err := db.QueryRow("SELECT count(*) FROM sqlite_schema WHERE name = 'sandboxes'").Scan(&n); err != nil || n != 0 {
		t.Errorf("half a migration was kept: %d tables, %v", n, err)
	}
}

// A file of a later savepoint is refused and not touched.
func TestNewerSchema(t *testing.T) {
	t.Parallel()
	path := build(t, fmt.Sprintf("CREATE TABLE records (x); PRAGMA user_version = %d;", len(migrations())+1))
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var newer *VersionError
	if _, err := Open(path, Options{}); !errors.As(err, &newer) || newer.Max != len(migrations()) {
		t.Errorf("open: got %v, want a *VersionError", err)
	}
	if _, err := OpenReadOnly(path); !errors.As(err, &newer) {
		t.Errorf("read: got %v, want a *VersionError", err)
	}
	after, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(before) != string(after) {
		t.Error("the file was changed")
	}
}
