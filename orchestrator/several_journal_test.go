package orchestrator_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"savepoint/orchestrator"
)

// A transaction of several commands on the real journal: its keys, its session
// and its open end are there in the next process.
func TestSeveralOnTheJournal(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "journal.db")
	w := newWorld()
	ctx := context.Background()
	var l *lab
	open := func() func() {
		j := openJournal(t, path)
		l = boot(t, w, func(c *orchestrator.Config) { c.Journal, c.NewID = j, nil })
		return func() {
			if err := j.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
	closed := open()
	b := orchestrator.BeginSpec{Boundary: "disk", Session: true, Key: "begin"}
	x := l.begin(b)
	id := x.View().ID
	exec(t, x, "cd /workspace/x && export A=1")
	save(t, x, "s", "")
	if _, err := x.Exec(ctx, orchestrator.StepSpec{Command: put("one", "/workspace/a"), Key: "step"}); err != nil {
		t.Fatal(err)
	}
	_ = x.Close(ctx)
	closed()

	closed = open()
	if outs, err := l.e.Recover(ctx); len(outs) != 0 || err != nil {
		t.Fatalf("recover: %+v, %v", outs, err)
	}
	if x = l.begin(b); x.View().ID != id {
		t.Fatalf("the key of the begin gives %s, want %s", x.View().ID, id)
	}
	if o, err := x.Exec(ctx, orchestrator.StepSpec{Command: put("one", "/workspace/a"), Key: "step"}); err != nil || !o.Replayed {
		t.Errorf("the key of a step: %+v, %v", o, err)
	}
	if o := exec(t, x, "pwd"); o.Stdout != "/workspace/x\n" {
		t.Errorf("the session of the transaction: %q", o.Stdout)
	}
	var usage *orchestrator.UsageError
	if _, err := l.run(orchestrator.Spec{Command: "ls", Key: "begin"}); !errors.As(err, &usage) {
		t.Errorf("the key for something else: %v", err)
	}
	back(t, x, "s")
	exec(t, x, put("two", "/workspace/b"))
	commit(t, x)
	files(t, w, map[string]string{"/workspace/a": "old", "/workspace/b": "two"})
	closed()

	closed = open()
	defer closed()
	if o, err := l.run(orchestrator.Spec{Command: "pwd && printenv A", Session: true}); err != nil || o.Stdout != "/workspace/x\n1\n" {
		t.Errorf("the session after the commit: %q, %v", o.Stdout, err)
	}
	var asked []string
	for q, err := range orchestrator.Judged(ctx, l.j) {
		if err != nil {
			t.Fatal(err)
		}
		asked = append(asked, fmt.Sprint(q.Step, " ", q.Command))
	}
	if len(asked) != 5 || !strings.HasPrefix(asked[1], "2 echo one") {
		t.Errorf("what the policy was asked: %q", asked)
	}
	collected(t, l)
}

// Several callers of one transaction take turns.
func TestSeveralCallers(t *testing.T) {
	t.Parallel()
	w := newWorld()
	l := boot(t, w)
	x := l.begin(orchestrator.BeginSpec{Boundary: "disk"})
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			if o, err := x.Exec(context.Background(), orchestrator.StepSpec{Command: put("x", fmt.Sprint("/workspace/", i))}); err != nil || o.State != orchestrator.StateOpen {
				t.Errorf("%d: %s, %v", i, o.State, err)
			}
			_ = x.View()
		})
	}
	wg.Wait()
	commit(t, x)
	if len(w.files) != 9 {
		t.Errorf("%d files, want 9", len(w.files))
	}
}
