package orchestrator_test

import (
	"context"
	"errors"
	"maps"
	"strings"
	"testing"
	"time"

	"savepoint/orchestrator"
)

func TestDo(t *testing.T) {
	boom := errors.New("boom")
	for name, c := range map[string]struct {
		f     func(*orchestrator.Tx) error
		state orchestrator.State
		err   error
		panic bool
		files map[string]string
	}{
		"nil":     {f: func(*orchestrator.Tx) error { return nil }, state: "committed", files: map[string]string{"/workspace/a": "one"}},
		"error":   {f: func(*orchestrator.Tx) error { return boom }, state: "rolled-back", err: boom, files: before()},
		"panic":   {f: func(*orchestrator.Tx) error { panic(boom) }, panic: true, files: before()},
		"commits": {f: func(x *orchestrator.Tx) error { _, err := x.Commit(context.Background()); return err }, state: "committed", files: map[string]string{"/workspace/a": "one"}},
		"failure": {f: func(x *orchestrator.Tx) error {
			_, err := x.Exec(context.Background(), orchestrator.StepSpec{Command: damage})
			return err
		}, state: "rolled-back", files: before()},
		"it closes": {f: func(x *orchestrator.Tx) error { return x.Close(context.Background()) }, state: "rolled-back", files: before()},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w := newWorld()
				l := boot(t, w)
				var o orchestrator.Outcome
				var err error
				panicked := func() (v any) {
					defer func() { v = recover() }()
					o, err = l.e.Do(context.Background(), orchestrator.BeginSpec{Sandbox: w.box}, func(x *orchestrator.Tx) error {
						exec(t, x, put("one", "/workspace/a"))
						return c.f(x)
					})
					return nil
				}()
				if (panicked != nil) != c.panic || c.panic && panicked != boom {
					t.Errorf("panicked: %v", panicked)
				}
				if !c.panic && (o.State != c.state || !errors.Is(err, c.err)) {
					t.Errorf("got %s (%s), %v", o.State, o.Reason, err)
				}
				files(t, w, c.files)
				if o, err := l.run(orchestrator.Spec{Command: "ls"}); err != nil || !o.State.Final() {
					t.Errorf("the sandbox is not free: %v", err)
				}
				if outs, err := l.e.Recover(context.Background()); len(outs) != 0 || err != nil {
					t.Errorf("something is left: %+v, %v", outs, err)
				}
			})
		})
	}
}

// Grants and their use go with the single step.
func TestGrantInAStep(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld()
		w.grant(t, "gr-1")
		l := boot(t, w)
		x := l.begin(orchestrator.BeginSpec{Boundary: "disk"})
		exec(t, x, put("one", "/workspace/b"))
		o, err := x.Exec(context.Background(), orchestrator.StepSpec{Command: forbidden})
		if err != nil || w.ran[forbidden] != 1 || len(o.Verdict.Lifted) == 0 || used(w)[0] != o.Transaction {
			t.Fatalf("with a grant: %+v, %v, used by %v", o, err, used(w))
		}
		x = l.begin(orchestrator.BeginSpec{Boundary: "disk"})
		if o, err := x.Exec(context.Background(), orchestrator.StepSpec{Command: forbidden}); err != nil || o.State != orchestrator.StateDenied {
			t.Errorf("a second time: %+v, %v", o, err)
		}
		o, err = x.Exec(context.Background(), orchestrator.StepSpec{Command: forbidden, Grants: []string{forbids(t)}})
		if err != nil || o.State == orchestrator.StateDenied || w.ran[forbidden] != 2 {
			t.Errorf("with a grant of its own: %+v, %v", o, err)
		}
	})
}

// The order of records and effects of a whole story.
func TestSeveralTrace(t *testing.T) {
	for name, outer := range map[string]orchestrator.Boundary{"workspace": "workspace", "disk": "disk"} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w := newWorld()
				w.hooks["run"] = func(context.Context) error { time.Sleep(3 * time.Second); return nil }
				l := boot(t, w)
				note := func(s string) { w.trace = append(w.trace, "-- "+s) }
				note("begin")
				x := l.begin(orchestrator.BeginSpec{Boundary: outer, Key: "k1", Validate: []orchestrator.Validation{{Command: "cat /workspace/a"}}})
				note("step")
				exec(t, x, put("one", "/workspace/a"))
				note("savepoint")
				save(t, x, "s", "")
				note("step")
				exec(t, x, put("two", "/workspace/a"))
				note("savepoint in the workspace")
				save(t, x, "inner", "workspace")
				note("roll back to the first")
				back(t, x, "s")
				note("denied")
				_, _ = x.Exec(context.Background(), orchestrator.StepSpec{Command: "rm -rf /"})
				note("commit")
				commit(t, x)
				note("collect")
				collected(t, l)
				golden(t, "trace-several-"+name, strings.Join(w.trace, "\n")+"\n")
				if !maps.Equal(w.files, map[string]string{"/workspace/a": "one"}) {
					t.Errorf("files: %v", w.files)
				}
			})
		})
	}
}
