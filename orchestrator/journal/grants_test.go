package journal

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"savepoint/orchestrator"
	"savepoint/policy"
)

var (
	_ orchestrator.GrantKeeper = (*Journal)(nil)
	_ orchestrator.Beginner    = (*Journal)(nil)
)

// noon is when the grants of these tests are made.
var noon = time.Unix(1764590400, 0).UTC()

func grant(id string) orchestrator.Grant {
	return orchestrator.Grant{
		ID: orchestrator.GrantID(id), Sandbox: "box", Name: "dev", Rules: []string{"a.rule", "b.rule"},
		As: policy.Root, Profile: "sealed", By: "cli", Made: noon, Expires: noon.Add(10 * time.Minute),
	}.For("echo \xff\x00 > /x", nil)
}

func begin(tx string, at time.Time, spends ...orchestrator.GrantID) orchestrator.Record {
	return orchestrator.Record{At: at, Tx: orchestrator.TxID(tx), Sandbox: "box", State: orchestrator.StateBegun, Event: "begin", Data: []byte(`{}`), Spends: spends}
}

func put(t *testing.T, j *Journal, gs ...orchestrator.Grant) {
	t.Helper()
	for _, g := range gs {
		if err := j.PutGrant(context.Background(), g); err != nil {
			t.Fatal(err)
		}
	}
}

func openIDs(t *testing.T, j *Journal, at time.Time) (ids []orchestrator.GrantID) {
	t.Helper()
	open, err := j.OpenGrants(context.Background(), "box", at)
	if err != nil {
		t.Fatal(err)
	}
	for _, g := range open {
		ids = append(ids, g.ID)
	}
	return ids
}

// A grant survives the process, byte for byte, and a used one stays used.
func TestGrantsAreDurable(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "journal.db")
	ctx := context.Background()
	j, err := Open(path, Options{Now: func() time.Time { return noon.Add(time.Minute) }})
	if err != nil {
		t.Fatal(err)
	}
	put(t, j, grant("gr-1"), grant("gr-2"), grant("gr-3"))
	if err := j.PutGrant(ctx, grant("gr-1")); !errors.Is(err, orchestrator.ErrExists) {
		t.Errorf("the same id: got %v", err)
	}
	if err := j.Append(ctx, begin("tx1", noon, "gr-1")); err != nil {
		t.Fatal(err)
	}
	if err := j.RevokeGrant(ctx, "gr-2"); err != nil {
		t.Fatal(err)
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	r, err := OpenReadOnly(path)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	got, err := r.Grants(ctx, "")
	if err != nil {
		t.Fatal(err)
	}
	one, two, three := grant("gr-1"), grant("gr-2"), grant("gr-3")
	one.Used, two.Revoked = "tx1", noon.Add(time.Minute)
	if diff := cmp.Diff([]orchestrator.Grant{three, two, one}, got); diff != "" {
		t.Errorf("grants (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]orchestrator.GrantID{"gr-3"}, openIDs(t, r, noon)); diff != "" {
		t.Errorf("open (-want +got):\n%s", diff)
	}
	if ids := openIDs(t, r, three.Expires); len(ids) != 0 {
		t.Errorf("open after the expiry: %v", ids)
	}
	if other, err := r.Grants(ctx, "other"); err != nil || len(other) != 0 {
		t.Errorf("of another sandbox: %v, %v", other, err)
	}
	if err := r.PutGrant(ctx, grant("gr-4")); !errors.Is(err, orchestrator.ErrDenied) {
		t.Errorf("written while reading: %v", err)
	}
}

func TestGrantMustBeWhole(t *testing.T) {
	t.Parallel()
	j := open(t, filepath.Join(t.TempDir(), "journal.db"), Options{})
	for name, edit := range map[string]func(*orchestrator.Grant){
		"id":      func(g *orchestrator.Grant) { g.ID = "" },
		"sandbox": func(g *orchestrator.Grant) { g.Sandbox = "" },
		"rules":   func(g *orchestrator.Grant) { g.Rules = nil },
		"command": func(g *orchestrator.Grant) { g.Command = "" },
		"digest":  func(g *orchestrator.Grant) { g.Digest = "" },
		"expiry":  func(g *orchestrator.Grant) { g.Expires = g.Made },
		"used":    func(g *orchestrator.Grant) { g.Used = "tx1" },
		"revoked": func(g *orchestrator.Grant) { g.Revoked = noon },
	} {
		g := grant("gr-1")
		edit(&g)
		if err := j.PutGrant(context.Background(), g); !errors.Is(err, orchestrator.ErrDenied) {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

// A record that spends what is not open is not written, nor is what comes with
// it, and no other grant is touched.
func TestSpendIsWhole(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	late := noon.Add(time.Hour)
	for name, c := range map[string]struct {
		records []orchestrator.Record
		state   string
		used    orchestrator.TxID
	}{
		"unknown":        {[]orchestrator.Record{begin("tx9", noon, "gr-1", "gr-none")}, "unknown", ""},
		"used":           {[]orchestrator.Record{begin("tx9", noon, "gr-1", "gr-used")}, "used", "tx1"},
		"revoked":        {[]orchestrator.Record{begin("tx9", noon, "gr-1", "gr-revoked")}, "revoked", ""},
		"expired":        {[]orchestrator.Record{begin("tx9", late, "gr-1")}, "expired", ""},
		"twice":          {[]orchestrator.Record{begin("tx9", noon, "gr-1", "gr-1")}, "used", "tx9"},
		"in a later one": {[]orchestrator.Record{begin("tx9", noon, "gr-1"), begin("tx10", noon, "gr-1")}, "used", "tx10"},
		"another's":      {[]orchestrator.Record{begin("tx9", noon, "gr-1", "gr-foreign")}, "unknown", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			j := open(t, filepath.Join(t.TempDir(), "journal.db"), Options{Now: func() time.Time { return noon }})
			foreign := grant("gr-foreign")
			foreign.Sandbox = "other"
			put(t, j, grant("gr-1"), grant("gr-used"), grant("gr-revoked"), foreign)
			if err := j.Append(ctx, begin("tx1", noon, "gr-used")); err != nil {
				t.Fatal(err)
			}
			if err := j.RevokeGrant(ctx, "gr-revoked"); err != nil {
				t.Fatal(err)
			}
			var gone *orchestrator.GrantError
			err := j.AppendAll(ctx, c.records)
			if !errors.As(err, &gone) || gone.State != c.state || gone.Used != c.used {
				t.Errorf("got %v, want a *GrantError: %s %s", err, c.state, c.used)
			}
			if n := len(records(t, j, "")); n != 1 {
				t.Errorf("%d records", n)
			}
			if diff := cmp.Diff([]orchestrator.GrantID{"gr-1"}, openIDs(t, j, noon)); diff != "" {
				t.Errorf("open (-want +got):\n%s", diff)
			}
			if err := j.Append(ctx, begin("tx2", noon, "gr-1")); err != nil {
				t.Errorf("the journal is not usable: %v", err)
			}
		})
	}
}

// Of many that spend one grant at once, one wins; the others' writes in the
// same sync are not disturbed.
func TestSpendRace(t *testing.T) {
	t.Parallel()
	j := open(t, filepath.Join(t.TempDir(), "journal.db"), Options{})
	put(t, j, grant("gr-1"))
	const many = 24
	errs := make([]error, 2*many)
	var wg sync.WaitGroup
	for i := range many {
		wg.Go(func() { errs[i] = j.Append(context.Background(), begin(fmt.Sprintf("spend%02d", i), noon, "gr-1")) })
		wg.Go(func() { errs[many+i] = j.Append(context.Background(), begin(fmt.Sprintf("plain%02d", i), noon)) })
	}
	wg.Wait()
	won := 0
	for i, err := range errs {
		var gone *orchestrator.GrantError
		switch {
		case i < many && err == nil:
			won++
		case i < many && !errors.As(err, &gone), i >= many && err != nil:
			t.Errorf("append %d: %v", i, err)
		}
	}
	if n := len(records(t, j, "")); won != 1 || n != many+1 {
		t.Errorf("%d won, %d records", won, n)
	}
}

// The file itself keeps a used grant used, whoever writes in it.
func TestUsedGrantCannotBeReopened(t *testing.T) {
	t.Parallel()
	j := open(t, filepath.Join(t.TempDir(), "journal.db"), Options{})
	put(t, j, grant("gr-1"), grant("gr-2"))
	if err := j.Append(context.Background(), begin("tx1", noon, "gr-1")); err != nil {
		t.Fatal(err)
	}
	for _, q := range []string{
		"UPDATE grants SET used = '' WHERE id = 'gr-1'",
		"DELETE FROM grants WHERE id = 'gr-1'",
		"UPDATE grants SET expires = expires + 1 WHERE id = 'gr-2'",
		"UPDATE grants SET data = '{}' WHERE id = 'gr-2'",
	} {
		if _, err := j.write.Exec(q); err == nil {
			t.Errorf("done: %s", q)
		}
	}
}

func TestRevoke(t *testing.T) {
	t.Parallel()
	j := open(t, filepath.Join(t.TempDir(), "journal.db"), Options{Now: func() time.Time { return noon }})
	ctx := context.Background()
	old := grant("gr-old")
	old.Made, old.Expires = noon.Add(-time.Hour), noon
	put(t, j, grant("gr-1"), old)
	if err := j.RevokeGrant(ctx, "gr-1"); err != nil {
		t.Fatal(err)
	}
	for id, state := range map[orchestrator.GrantID]string{"gr-1": "revoked", "gr-old": "expired"} {
		var gone *orchestrator.GrantError
		if err := j.RevokeGrant(ctx, id); !errors.As(err, &gone) || gone.State != state {
			t.Errorf("revoke %s: got %v, want %s", id, err, state)
		}
	}
	if err := j.RevokeGrant(ctx, "gr-none"); !errors.Is(err, orchestrator.ErrNotFound) {
		t.Errorf("revoke an unknown one: %v", err)
	}
}

// A journal of the third schema opens, keeps all it holds, and can hold grants.
func TestSchema3(t *testing.T) {
	t.Parallel()
	script, err := os.ReadFile("testdata/journal-v3.sql")
	if err != nil {
		t.Fatal(err)
	}
	path := build(t, string(script))
	var old *VersionError
	if _, err := OpenReadOnly(path); !errors.As(err, &old) || old.Have != 3 {
		t.Errorf("read an old journal: got %v, want a *VersionError of 3", err)
	}
	j := open(t, path, Options{})
	ctx := context.Background()
	if j.Instance() != "01kbcx3r00examp1einstance03" || j.Fence() != 8 {
		t.Errorf("instance %s, fence %d", j.Instance(), j.Fence())
	}
	boxes, err := j.Sandboxes(ctx)
	if err != nil || len(boxes) != 1 || boxes[0].Name != "dev" || boxes[0].VM.ID != 9001 {
		t.Errorf("sandboxes: %+v, %v", boxes, err)
	}
	var asked []string
	for q, err := range orchestrator.Judged(ctx, j) {
		if err != nil {
			t.Fatal(err)
		}
		asked = append(asked, fmt.Sprintf("%s %s %s [%s] %s", q.Tx[24:], q.Sandbox, q.Decision, q.Rule, q.Command))
	}
	want := []string{"b1 dev deny [fs.delete-root] rm -rf /", "b2 dev allow [read-only] cat /workspace/a", "b3 dev snapshot [local-change] make install"}
	if diff := cmp.Diff(want, asked); diff != "" {
		t.Errorf("judged (-want +got):\n%s", diff)
	}
	if all, err := j.Grants(ctx, ""); err != nil || len(all) != 0 {
		t.Errorf("grants: %v, %v", all, err)
	}
	g := grant("gr-1")
	g.Sandbox = boxes[0].ID
	put(t, j, g)
	r := begin("01kbd0000000000000000000b4", noon, "gr-1")
	r.Sandbox = g.Sandbox
	if err := j.Append(ctx, r); err != nil {
		t.Error(err)
	}
}
