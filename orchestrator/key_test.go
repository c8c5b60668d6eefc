package orchestrator_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"savepoint/orchestrator"
)

// eachJournal runs the test with a journal that has an index of keys and with
// one that has not.
func eachJournal(t *testing.T, f func(t *testing.T, w *world, again func() *lab)) {
	for name, bare := range map[string]bool{"index": false, "scan": true} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w := newWorld()
				f(t, w, func() *lab {
					return boot(t, w, func(c *orchestrator.Config) {
						if bare {
							c.Journal = simple{c.Journal.(*proc)}
						}
					})
				})
			})
		})
	}
}

// F39: the answer was lost, the request comes again: it gets the first result
// and nothing runs twice, also from another process.
func TestKeyOfRun(t *testing.T) {
	eachJournal(t, func(t *testing.T, w *world, again func() *lab) {
		l := again()
		for _, s := range []orchestrator.Spec{
			{Command: overwrite + " && echo done", Key: "commit"},
			{Command: damage, Key: "fails"},
			{Command: "cat /workspace/a", Key: "reads"},
			{Command: "cat /workspace/b", Key: "env", Env: map[string]string{"A": "1"}},
		} {
			first, err := l.run(s)
			if err != nil || first.Replayed {
				t.Fatalf("%s: %+v, %v", s.Key, first, err)
			}
			ran := len(w.records)
			for range 2 {
				s.Timeout = time.Minute // how long to wait makes no other request
				o, err := l.run(s)
				if err != nil || !o.Replayed || len(w.records) != ran || w.ran[s.Command] != 1 {
					t.Errorf("%s again: %+v, %v", s.Key, o, err)
				}
				if diff := cmp.Diff(first, o, cmpopts.IgnoreFields(orchestrator.Outcome{}, "Replayed", "Timings")); diff != "" {
					t.Errorf("%s (-first +again):\n%s", s.Key, diff)
				}
				l = again()
			}
		}
		for name, s := range map[string]orchestrator.Spec{
			"command":    {Command: "ls", Key: "commit"},
			"account":    {Command: overwrite + " && echo done", Key: "commit", As: "root"},
			"directory":  {Command: overwrite + " && echo done", Key: "commit", Dir: "/workspace"},
			"boundary":   {Command: overwrite + " && echo done", Key: "commit", Boundary: "disk"},
			"variables":  {Command: overwrite + " && echo done", Key: "commit", Env: map[string]string{"A": "1"}},
			"validation": {Command: overwrite + " && echo done", Key: "commit", Validate: []orchestrator.Validation{{Command: "ls"}}},
		} {
			var usage *orchestrator.UsageError
			if _, err := l.run(s); !errors.As(err, &usage) || !strings.Contains(err.Error(), "commit") || !strings.Contains(err.Error(), "echo new") {
				t.Errorf("another %s under the same key: %v", name, err)
			}
		}
		// A denial uses no key: after a grant the same request runs.
		s := orchestrator.Spec{Command: forbidden, Key: "granted"}
		if o, err := l.run(s); err != nil || o.State != orchestrator.StateDenied {
			t.Fatalf("denied: %+v, %v", o, err)
		}
		w.grant(t, "gr-1")
		if o, err := l.run(s); err != nil || o.State == orchestrator.StateDenied || o.Replayed {
			t.Errorf("with a grant: %+v, %v", o, err)
		}
		if o, err := l.run(s); err != nil || !o.Replayed {
			t.Errorf("again: %+v, %v", o, err)
		}
	})
}

// A request whose first one is unfinished is told so; recovery ends it.
func TestKeyOfUnfinished(t *testing.T) {
	eachJournal(t, func(t *testing.T, w *world, again func() *lab) {
		l := again()
		s := orchestrator.Spec{Command: overwrite, Key: "k"}
		l.p.plan = func(_ int, name string, _ bool) error {
			if name == "step" {
				return errCrash
			}
			return nil
		}
		if _, err := l.run(s); err == nil {
			t.Fatal("it did not die")
		}
		l = again()
		o, err := l.run(s)
		if !errors.Is(err, orchestrator.ErrBusy) || !strings.Contains(err.Error(), string(o.Transaction)) || o.Transaction == "" {
			t.Errorf("unfinished: %+v, %v", o, err)
		}
		if _, err := l.e.Recover(context.Background()); err != nil {
			t.Fatal(err)
		}
		if o, err := l.run(s); err != nil || !o.Replayed || o.State != orchestrator.StateRolledBack {
			t.Errorf("settled: %+v, %v", o, err)
		}
		files(t, w, before())
	})
}

func TestKeyOfSteps(t *testing.T) {
	eachJournal(t, func(t *testing.T, w *world, again func() *lab) {
		ctx := context.Background()
		l := again()
		b := orchestrator.BeginSpec{Sandbox: w.box, Boundary: "disk", Key: "begin", OnFailure: orchestrator.OnFailureKeep}
		x := l.begin(b)
		id := x.View().ID
		if _, err := l.e.Begin(ctx, b); !errors.Is(err, orchestrator.ErrBusy) {
			t.Errorf("begin again while it is held: %v", err)
		}
		step := orchestrator.StepSpec{Command: put("one", "/workspace/b") + " && echo out", Key: "step"}
		fails := orchestrator.StepSpec{Command: "rm /workspace/none", Key: "fails"}
		first, err := x.Exec(ctx, step)
		if err != nil {
			t.Fatal(err)
		}
		firstFails, err := x.Exec(ctx, fails)
		if err != nil {
			t.Fatal(err)
		}
		_ = x.Close(ctx)

		l = again()
		x = l.begin(b) // the answer of the begin was lost
		if x.View().ID != id || w.counts["create"] != 1 {
			t.Fatalf("begin again: %s, %d snapshots", x.View().ID, w.counts["create"])
		}
		same := func(s orchestrator.StepSpec, want orchestrator.Outcome) {
			t.Helper()
			o, err := x.Exec(ctx, s)
			if err != nil || !o.Replayed || w.ran[s.Command] != 1 {
				t.Errorf("again: %+v, %v", o, err)
			}
			if diff := cmp.Diff(want, o, cmpopts.IgnoreFields(orchestrator.Outcome{}, "Replayed", "Timings", "State", "Tasks")); diff != "" {
				t.Errorf("%s (-first +again):\n%s", s.Key, diff)
			}
		}
		same(step, first)
		same(fails, firstFails)
		var usage *orchestrator.UsageError
		for name, err := range map[string]error{
			"another step":  second(x.Exec(ctx, orchestrator.StepSpec{Command: "ls", Key: "step"})),
			"the begin's":   second(x.Exec(ctx, orchestrator.StepSpec{Command: "ls", Key: "begin"})),
			"a run's":       second(l.run(orchestrator.Spec{Command: step.Command, Key: "step"})),
			"another begin": second(l.e.Begin(ctx, orchestrator.BeginSpec{Sandbox: w.box, Key: "begin"})),
		} {
			if !errors.As(err, &usage) || !strings.Contains(err.Error(), string(id)) {
				t.Errorf("%s: %v", name, err)
			}
		}
		commit(t, x)
		same(step, first) // after the end too
		x, err = l.e.Begin(ctx, b)
		if err != nil || x.View().State != orchestrator.StateCommitted {
			t.Fatalf("begin what has ended: %v", err)
		}
		if o, err := x.Commit(ctx); err != nil || !o.Replayed {
			t.Errorf("commit again: %+v, %v", o, err)
		}
		// A key of another transaction is not this one's.
		x = l.begin(orchestrator.BeginSpec{})
		if _, err := x.Exec(ctx, step); !errors.As(err, &usage) {
			t.Errorf("the key of another transaction's step: %v", err)
		}
	})
}

func second[T any](_ T, err error) error { return err }

// Do with the key of one that has ended does not call its function again.
func TestKeyOfDo(t *testing.T) {
	eachJournal(t, func(t *testing.T, w *world, again func() *lab) {
		calls := 0
		for range 2 {
			l := again()
			o, err := l.e.Do(context.Background(), orchestrator.BeginSpec{Sandbox: w.box, Key: "k"}, func(x *orchestrator.Tx) error {
				calls++
				exec(t, x, put("one", "/workspace/a"))
				return nil
			})
			if err != nil || o.State != orchestrator.StateCommitted || o.Replayed != (calls == 1 && len(w.ran) == 1 && w.counts["done"] == 1) {
				t.Errorf("got %+v, %v", o, err)
			}
			w.counts["done"]++
		}
		if calls != 1 {
			t.Errorf("called %d times", calls)
		}
	})
}
