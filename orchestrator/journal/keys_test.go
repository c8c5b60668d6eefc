package journal

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"savepoint/orchestrator"
)

var (
	_ orchestrator.Keyed         = (*Journal)(nil)
	_ orchestrator.SessionKeeper = (*Journal)(nil)
)

func keyed(tx, sb, key string) orchestrator.Record {
	return orchestrator.Record{At: noon, Tx: orchestrator.TxID(tx), Sandbox: orchestrator.SandboxID(sb), State: orchestrator.StateBegun, Event: "begin", Data: []byte(`{}`), Key: key}
}

// A key is taken once per sandbox, durably, and found again; one that is
// refused leaves nothing of what came with it.
func TestKeys(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "j")
	ctx := context.Background()
	j, err := Open(path, Options{})
	if err != nil {
		t.Fatal(err)
	}
	const odd = "a\x00b \xff'\"\n"
	appendAll(t, j, keyed("tx1", "box", "one"), keyed("tx1", "box", "two"), keyed("tx2", "other", "one"), keyed("tx3", "box", odd), keyed("tx4", "box", ""), keyed("tx5", "box", ""))
	put(t, j, grant("gr-1"))
	spending := keyed("tx9", "box", "new")
	spending.Spends = []orchestrator.GrantID{"gr-1"}
	for name, rs := range map[string][]orchestrator.Record{
		"another transaction's": {keyed("tx9", "box", "one")},
		"its own":               {keyed("tx1", "box", "one")},
		"odd":                   {keyed("tx9", "box", odd)},
		"twice in one write":    {keyed("tx9", "box", "new"), keyed("tx9", "box", "new")},
		"the second of two":     {spending, keyed("tx9", "box", "two")},
	} {
		if err := j.AppendAll(ctx, rs); !errors.Is(err, orchestrator.ErrExists) {
			t.Errorf("%s: got %v, want ErrExists", name, err)
		}
	}
	for name, r := range map[string]orchestrator.Record{"key": {Tx: "t", State: "begun", Event: "begin", Key: "k"}, "session": {Tx: "t", State: "begun", Event: "begin", Session: []byte("{}")}} {
		if err := j.Append(ctx, r); !errors.Is(err, orchestrator.ErrDenied) {
			t.Errorf("a %s without a sandbox: got %v", name, err)
		}
	}
	if n := len(records(t, j, "")); n != 6 {
		t.Errorf("%d records", n)
	}
	if ids := openIDs(t, j, noon); len(ids) != 1 {
		t.Errorf("a refused record used the grant: %v", ids)
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	r, err := OpenReadOnly(path)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	for _, c := range []struct{ sb, key, want string }{{"box", "one", "tx1"}, {"box", "two", "tx1"}, {"other", "one", "tx2"}, {"box", odd, "tx3"}, {"box", "", ""}, {"box", "One", ""}, {"none", "one", ""}} {
		id, ok, err := r.ByKey(ctx, orchestrator.SandboxID(c.sb), c.key)
		if string(id) != c.want || ok != (c.want != "") || err != nil {
			t.Errorf("by key %q of %s: got %q, %t, %v", c.key, c.sb, id, ok, err)
		}
	}
	if got := records(t, r, "tx3"); len(got) != 1 || got[0].Key != odd {
		t.Errorf("the record does not name its key: %+v", got)
	}
}

// Of many that bring one key at once, one wins, and the others' neighbours in
// the same sync are not disturbed.
func TestKeyRace(t *testing.T) {
	t.Parallel()
	j := open(t, filepath.Join(t.TempDir(), "j"), Options{})
	const many = 24
	errs := make([]error, many)
	var wg sync.WaitGroup
	for i := range many {
		wg.Go(func() { errs[i] = j.Append(context.Background(), keyed(fmt.Sprint("tx", i), "box", "one")) })
		wg.Go(func() {
			if err := j.Append(context.Background(), keyed(fmt.Sprint("plain", i), "box", "")); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	won := 0
	for _, err := range errs {
		if err == nil {
			won++
		} else if !errors.Is(err, orchestrator.ErrExists) {
			t.Error(err)
		}
	}
	if n := len(records(t, j, "")); won != 1 || n != many+1 {
		t.Errorf("%d won, %d records", won, n)
	}
	if _, err := j.Verify(context.Background()); err != nil {
		t.Error(err)
	}
}

// A session is the last one kept with a record, and goes with its sandbox.
func TestSessions(t *testing.T) {
	t.Parallel()
	j, _, reopen := registry(t)
	ctx := context.Background()
	want := func(sb orchestrator.SandboxID, want string) {
		t.Helper()
		if got, err := j.Session(ctx, sb); string(got) != want || err != nil || (got == nil) != (want == "") {
			t.Errorf("session of %s: got %q, %v, want %q", sb, got, err, want)
		}
	}
	with := func(sb, session string) orchestrator.Record {
		r := keyed("tx", sb, "")
		r.Session = []byte(session)
		return r
	}
	want("box", "")
	appendAll(t, j, with("box", `{"a":1}`), with("other", `{"b":1}`), with("box", `{"a":2}`), keyed("tx", "box", ""))
	put(t, j, grant("gr-1"))
	refused := with("box", `{"a":3}`)
	refused.Spends = []orchestrator.GrantID{"gr-none"}
	if err := j.Append(ctx, refused); err == nil {
		t.Error("appended")
	}
	j = reopen()
	want("box", `{"a":2}`)
	want("other", `{"b":1}`)
	for range 2 {
		if err := j.ClearSession(ctx, "box"); err != nil {
			t.Fatal(err)
		}
	}
	want("box", "")
	for _, state := range []orchestrator.SandboxState{orchestrator.SandboxReady, orchestrator.SandboxQuarantined, orchestrator.SandboxDestroyed} {
		if state == orchestrator.SandboxDestroyed {
			want("other", `{"b":1}`)
		}
		if err := j.PutSandbox(ctx, box("other", "dev", state, 9001)); err != nil {
			t.Fatal(err)
		}
	}
	want("other", "")
	if _, err := j.Verify(ctx); err != nil {
		t.Error(err)
	}
}

// A holder that was overtaken, because somebody took its lock file away,
// writes nothing any more; what it had written and what the new one writes is
// whole.
func TestFenced(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "j")
	ctx := context.Background()
	old := open(t, path, Options{})
	appendAll(t, old, keyed("tx1", "box", ""))
	if err := os.Remove(path + ".lock"); err != nil {
		t.Fatal(err)
	}
	j := open(t, path, Options{})
	for name, change := range map[string]func() error{
		"append":  func() error { return old.Append(ctx, keyed("tx2", "box", "")) },
		"sandbox": func() error { return old.PutSandbox(ctx, box("a", "dev", orchestrator.SandboxReady, 9001)) },
		"vm id":   func() error { _, err := old.ReserveVMID(ctx, 9000, 9010, rest, "a"); return err },
		"grant":   func() error { return old.PutGrant(ctx, grant("gr-1")) },
		"session": func() error { return old.ClearSession(ctx, "box") },
		"compact": func() error { _, err := old.Compact(ctx, Policy{KeepRecords: 1}); return err },
	} {
		var fenced *FencedError
		if err := change(); !errors.As(err, &fenced) || !errors.Is(err, orchestrator.ErrDenied) || fenced.Fence != 1 || fenced.Now != 2 {
			t.Errorf("%s by the old holder: got %v", name, err)
		}
	}
	appendAll(t, j, keyed("tx3", "box", ""))
	got := records(t, old, "") // it still reads
	if len(got) != 2 || got[0].Fence != 1 || got[1].Fence != 2 || got[1].Tx != "tx3" || got[0].Owner != got[1].Owner {
		t.Errorf("records: %+v", got)
	}
	if rep, err := j.Verify(ctx); err != nil || rep.Records != 2 {
		t.Errorf("%+v, %v", rep, err)
	}
}
