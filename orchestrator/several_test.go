package orchestrator_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"savepoint/orchestrator"
	"savepoint/policy"
)

func put(text, path string) string { return "echo " + text + " > " + path }

// begin begins a transaction of several commands in the lab's sandbox.
func (l *lab) begin(b orchestrator.BeginSpec) *orchestrator.Tx {
	l.t.Helper()
	if b.Sandbox.ID == "" {
		b.Sandbox = l.w.box
	}
	x, err := l.e.Begin(context.Background(), b)
	if err != nil {
		l.t.Fatalf("begin: %v", err)
	}
	return x
}

// exec runs a step that has to go well.
func exec(t testing.TB, x *orchestrator.Tx, command string) orchestrator.Outcome {
	t.Helper()
	o, err := x.Exec(context.Background(), orchestrator.StepSpec{Command: command})
	if err != nil || o.State != orchestrator.StateOpen || o.ExitCode == nil || *o.ExitCode != 0 {
		t.Fatalf("%s: %s (%s), %v", command, o.State, o.Reason, err)
	}
	return o
}

func save(t testing.TB, x *orchestrator.Tx, name string, b orchestrator.Boundary) {
	t.Helper()
	if o, err := x.Savepoint(context.Background(), name, b); err != nil || o.State != orchestrator.StateOpen {
		t.Fatalf("savepoint %s: %s (%s), %v", name, o.State, o.Reason, err)
	}
}

func back(t testing.TB, x *orchestrator.Tx, name string) {
	t.Helper()
	if o, err := x.RollbackTo(context.Background(), name); err != nil || o.State != orchestrator.StateOpen {
		t.Fatalf("roll back to %s: %s (%s), %v", name, o.State, o.Reason, err)
	}
}

func commit(t testing.TB, x *orchestrator.Tx) orchestrator.Outcome {
	t.Helper()
	o, err := x.Commit(context.Background())
	if err != nil || o.State != orchestrator.StateCommitted {
		t.Fatalf("commit: %s (%s), %v", o.State, o.Reason, err)
	}
	return o
}

func collected(t testing.TB, l *lab) {
	t.Helper()
	if _, err := l.e.Collect(context.Background()); err != nil {
		t.Errorf("collect: %v", err)
	}
	if left := snapshotsOf(l.w); len(left) != 0 {
		t.Errorf("snapshots are left: %v", left)
	}
}

var boundaries = []orchestrator.Boundary{"workspace", "disk", "machine"}

func TestSeveralCommit(t *testing.T) {
	for _, b := range boundaries {
		t.Run(string(b), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w := newWorld()
				l := boot(t, w)
				x := l.begin(orchestrator.BeginSpec{Boundary: b, Validate: []orchestrator.Validation{{Command: "cat /workspace/b"}}})
				exec(t, x, put("one", "/workspace/a"))
				if o := exec(t, x, "cat /workspace/a"); o.Stdout != "one" || o.Step != 2 || o.Verdict.Decision != "allow" {
					t.Errorf("the second step: %+v", o)
				}
				exec(t, x, put("two", "/workspace/b"))
				if w.counts["create"] != 1 {
					t.Errorf("%d snapshots for three steps", w.counts["create"])
				}
				o := commit(t, x)
				if o.Boundary != b || len(o.Checks) != 2 {
					t.Errorf("the commit: %+v", o)
				}
				files(t, w, map[string]string{"/workspace/a": "one", "/workspace/b": "two"})
				v, err := orchestrator.Show(context.Background(), l.p, o.Transaction)
				if err != nil || len(v.Commands) != 3 || v.Commands[2].Result == nil || v.Commands[1].State != orchestrator.StateOpen || !v.Several {
					t.Errorf("the record: %+v, %v", v, err)
				}
				// Said again, a commit changes nothing and a step is refused.
				if o, err := x.Commit(context.Background()); err != nil || !o.Replayed || o.State != orchestrator.StateCommitted {
					t.Errorf("commit again: %+v, %v", o, err)
				}
				var usage *orchestrator.UsageError
				if _, err := x.Exec(context.Background(), orchestrator.StepSpec{Command: "ls"}); !errors.As(err, &usage) {
					t.Errorf("a step after the end: %v", err)
				}
				collected(t, l)
				if o, err := l.run(orchestrator.Spec{Command: overwrite}); err != nil || o.State != orchestrator.StateCommitted {
					t.Errorf("the next: %s, %v", o.State, err)
				}
			})
		})
	}
}

// A step that fails ends the whole, or is reported and kept, as was asked for.
func TestSeveralStepFails(t *testing.T) {
	for _, b := range boundaries {
		t.Run(string(b), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w := newWorld()
				l := boot(t, w)
				ctx := context.Background()
				x := l.begin(orchestrator.BeginSpec{Boundary: b})
				exec(t, x, put("one", "/workspace/b"))
				o, err := x.Exec(ctx, orchestrator.StepSpec{Command: damage})
				if err != nil || o.State != orchestrator.StateRolledBack || o.Step != 2 || o.ExitCode == nil || *o.ExitCode != 1 || !strings.Contains(o.Reason, "step 2") {
					t.Fatalf("rollback: %+v, %v", o, err)
				}
				files(t, w, before())

				x = l.begin(orchestrator.BeginSpec{Boundary: b, OnFailure: orchestrator.OnFailureKeep})
				o, err = x.Exec(ctx, orchestrator.StepSpec{Command: damage})
				if err != nil || o.State != orchestrator.StateOpen || *o.ExitCode != 1 || o.Reason == "" {
					t.Fatalf("keep: %+v, %v", o, err)
				}
				o, err = x.Exec(ctx, orchestrator.StepSpec{Command: "cat /workspace/a", Validate: []orchestrator.Validation{{Command: "cat /workspace/none"}}})
				if err != nil || o.State != orchestrator.StateOpen || !strings.Contains(o.Reason, "validation") || len(o.Checks) != 3 {
					t.Fatalf("keep, a validation: %+v, %v", o, err)
				}
				commit(t, x) // the exit of a step does not count twice
				files(t, w, map[string]string{"/workspace/a": "bad"})

				// What nobody knows is not kept.
				x = l.begin(orchestrator.BeginSpec{Boundary: b, OnFailure: orchestrator.OnFailureKeep})
				exec(t, x, put("two", "/workspace/a"))
				o, err = x.Exec(ctx, orchestrator.StepSpec{Command: "rm /workspace/a && mkdir /panic"})
				if err != nil || o.State != orchestrator.StateRolledBack || o.ExitCode != nil {
					t.Fatalf("unknown: %+v, %v", o, err)
				}
				files(t, w, map[string]string{"/workspace/a": "bad"})
				collected(t, l)
			})
		})
	}
}

// Damage that every step's exit hides is caught by the validation of the whole.
func TestSeveralCommitIsValidated(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld()
		l := boot(t, w)
		x := l.begin(orchestrator.BeginSpec{Validate: []orchestrator.Validation{{Command: "cat /workspace/a"}}})
		exec(t, x, "rm /workspace/a")
		o, err := x.Commit(context.Background())
		if err != nil || o.State != orchestrator.StateRolledBack || !strings.Contains(o.Reason, "validation") {
			t.Fatalf("got %+v, %v", o, err)
		}
		files(t, w, before())
		w.hooks["inspect"] = func(context.Context) error { w.generation = "foreign"; return nil }
		x = l.begin(orchestrator.BeginSpec{Boundary: "disk"})
		exec(t, x, put("x", "/workspace/a"))
		if o, err := x.Commit(context.Background()); o.State == orchestrator.StateCommitted || err == nil && o.State != orchestrator.StateStuck {
			t.Errorf("F23: a guest that others restored: %s, %v", o.State, err)
		}
	})
}

// A denied step is recorded and changes nothing; one that the boundary does not
// cover does not run; one that never started leaves the transaction open.
func TestSeveralRefusals(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld()
		l := boot(t, w)
		ctx := context.Background()
		x := l.begin(orchestrator.BeginSpec{})
		if b := x.View().Boundary; b != "workspace" {
			t.Fatalf("auto for the agent is %s", b)
		}
		exec(t, x, put("one", "/workspace/a"))
		o, err := x.Exec(ctx, orchestrator.StepSpec{Command: "rm -rf /"})
		if err != nil || o.State != orchestrator.StateDenied || o.Verdict.Rule == "" || o.Message == "" || o.ExitCode != nil || o.Step != 2 {
			t.Fatalf("denied: %+v, %v", o, err)
		}
		var usage *orchestrator.UsageError
		for name, s := range map[string]orchestrator.StepSpec{
			"root":            {Command: put("x", "/etc/x"), As: policy.Root},
			"root validation": {Command: "cat /workspace/a", Validate: []orchestrator.Validation{{Command: put("x", "/etc/x"), As: policy.Root}}},
			"empty":           {Command: " "},
			"loader":          {Command: "ls", Env: map[string]string{"LD_PRELOAD": "/workspace/x.so"}},
			"startup file":    {Command: "ls", Env: map[string]string{"BASH_ENV": "/workspace/x"}},
			"relative":        {Command: "ls", Dir: "workspace"},
			"a rule unknown":  {Command: "ls", Grants: []string{"no.such-rule"}},
			"a key unfit":     {Command: "ls", Key: "a\nb"},
		} {
			if _, err := x.Exec(ctx, s); !errors.As(err, &usage) {
				t.Errorf("%s: %v", name, err)
			}
		}
		dead, cancel := context.WithCancel(ctx)
		cancel()
		if _, err := x.Exec(dead, orchestrator.StepSpec{Command: put("x", "/workspace/x")}); !errors.Is(err, orchestrator.ErrUnavailable) {
			t.Errorf("a caller that is gone: %v", err)
		}
		w.hooks["run"] = func(context.Context) error { return fmt.Errorf("refused: %w", orchestrator.ErrUnavailable) }
		o, err = x.Exec(ctx, orchestrator.StepSpec{Command: put("x", "/workspace/x")})
		if !errors.Is(err, orchestrator.ErrUnavailable) || o.State != orchestrator.StateOpen {
			t.Errorf("never started: %+v, %v", o, err)
		}
		delete(w.hooks, "run")
		exec(t, x, put("two", "/workspace/b"))
		commit(t, x)
		files(t, w, map[string]string{"/workspace/a": "one", "/workspace/b": "two"})
		if len(w.ran) != 2 {
			t.Errorf("ran: %v", w.ran)
		}
		var asked []string
		for q, err := range orchestrator.Judged(ctx, l.p) {
			if err != nil {
				t.Fatal(err)
			}
			asked = append(asked, q.Decision+" "+q.Sandbox+" "+q.Command)
		}
		if len(asked) != 4 || asked[1] != "deny dev rm -rf /" {
			t.Errorf("what the policy was asked: %q", asked)
		}
	})
}

// F10, F20, F70: savepoints come back exactly, are a stack, and stay usable.
func TestSavepoints(t *testing.T) {
	for _, b := range boundaries {
		t.Run(string(b), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w := newWorld()
				l := boot(t, w)
				ctx := context.Background()
				x := l.begin(orchestrator.BeginSpec{Boundary: b})
				exec(t, x, put("one", "/workspace/a"))
				save(t, x, "first", "")
				exec(t, x, put("two", "/workspace/b"))
				save(t, x, "second", "")
				exec(t, x, "rm /workspace/a")
				back(t, x, "second")
				files(t, w, map[string]string{"/workspace/a": "one", "/workspace/b": "two"})
				exec(t, x, put("three", "/workspace/c"))
				back(t, x, "second") // F28: again
				files(t, w, map[string]string{"/workspace/a": "one", "/workspace/b": "two"})
				exec(t, x, put("four", "/workspace/d"))
				back(t, x, "first")
				files(t, w, map[string]string{"/workspace/a": "one"})
				var usage *orchestrator.UsageError
				for _, name := range []string{"second", "nowhere", ""} {
					if _, err := x.RollbackTo(ctx, name); !errors.As(err, &usage) {
						t.Errorf("back to %q: %v", name, err)
					}
				}
				if _, err := x.Savepoint(ctx, "first", ""); !errors.As(err, &usage) {
					t.Errorf("a name twice: %v", err)
				}
				save(t, x, "second", "") // a name that is free again
				exec(t, x, put("five", "/workspace/e"))
				back(t, x, orchestrator.PointBegin)
				files(t, w, before())
				exec(t, x, put("six", "/workspace/f"))
				commit(t, x)
				files(t, w, map[string]string{"/workspace/a": "old", "/workspace/f": "six"})
				collected(t, l)
			})
		})
	}
}

// Boundaries of different kinds in one stack: a smaller one inside a larger one
// comes back alone, and is deleted before the larger one is restored.
func TestMixedBoundaries(t *testing.T) {
	for _, outer := range []orchestrator.Boundary{"disk", "machine"} {
		t.Run(string(outer), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w := newWorld()
				l := boot(t, w)
				ctx := context.Background()
				x := l.begin(orchestrator.BeginSpec{Boundary: outer})
				if _, err := x.Exec(ctx, orchestrator.StepSpec{Command: put("root", "/etc/x"), As: policy.Root}); err != nil {
					t.Fatal(err)
				}
				save(t, x, "disk", "disk")
				exec(t, x, put("one", "/workspace/a"))
				save(t, x, "small", "workspace")
				save(t, x, "smaller", "")
				boots := w.boots
				exec(t, x, put("two", "/workspace/a"))
				var usage *orchestrator.UsageError
				if _, err := x.Exec(ctx, orchestrator.StepSpec{Command: put("x", "/etc/y"), As: policy.Root}); !errors.As(err, &usage) || !strings.Contains(err.Error(), "smaller") {
					t.Errorf("what a return would not undo: %v", err)
				}
				if _, err := x.Savepoint(ctx, "larger", outer); !errors.As(err, &usage) {
					t.Errorf("a larger savepoint on a smaller one: %v", err)
				}
				back(t, x, "small")
				files(t, w, map[string]string{"/workspace/a": "one", "/etc/x": "root"})
				if w.boots != boots {
					t.Error("the workspace came back with a reboot")
				}
				exec(t, x, put("three", "/workspace/a"))
				back(t, x, "disk")
				files(t, w, map[string]string{"/workspace/a": "old", "/etc/x": "root"})
				if w.boots == boots {
					t.Error("the disks came back without a reboot")
				}
				save(t, x, "again", "workspace")
				exec(t, x, put("four", "/workspace/a"))
				o, err := x.Rollback(ctx, "")
				if err != nil || o.State != orchestrator.StateRolledBack || o.Reason != "rolled back as asked" {
					t.Fatalf("rollback: %+v, %v", o, err)
				}
				files(t, w, before())
				if left := snapshotsOf(w); len(left) != 1 {
					t.Errorf("after the rollback: %v", left)
				}
				collected(t, l)
			})
		})
	}
}

// F70: a snapshot in the way that somebody else took is not deleted.
func TestForeignSnapshotInTheWay(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld()
		l := boot(t, w)
		x := l.begin(orchestrator.BeginSpec{Boundary: "disk"})
		save(t, x, "s", "")
		exec(t, x, put("x", "/workspace/x"))
		w.snaps = append(w.snaps, &snap{Snapshot: orchestrator.Snapshot{Name: "autosnap", Parent: w.parent}, kind: "disk"})
		w.parent = "autosnap"
		o, err := x.RollbackTo(context.Background(), "s")
		if err != nil || o.State != orchestrator.StateStuck || !strings.Contains(o.Reason, "autosnap") {
			t.Fatalf("got %+v, %v", o, err)
		}
		if w.find("autosnap") == nil {
			t.Error("it was deleted")
		}
		if _, err := l.run(orchestrator.Spec{Command: "ls"}); !errors.Is(err, orchestrator.ErrBusy) {
			t.Errorf("a stuck sandbox: %v", err)
		}
		w.snaps, w.parent = w.snaps[:len(w.snaps)-1], w.snaps[len(w.snaps)-2].Name
		if o, err := l.e.Retry(context.Background(), o.Transaction); err != nil || o.State != orchestrator.StateRolledBack {
			t.Errorf("retry: %+v, %v", o, err)
		}
		files(t, w, before())
	})
}

// A savepoint that cannot be taken leaves the transaction as it was.
func TestSavepointFails(t *testing.T) {
	for name, hook := range map[string]string{"create": "create", "mark": "mark"} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w := newWorld()
				l := boot(t, w)
				x := l.begin(orchestrator.BeginSpec{Boundary: "disk"})
				exec(t, x, put("one", "/workspace/a"))
				w.hooks[hook] = func(context.Context) error {
					delete(w.hooks, hook)
					return fmt.Errorf("no room: %w", orchestrator.ErrDenied)
				}
				o, err := x.Savepoint(context.Background(), "s", "")
				if !errors.Is(err, orchestrator.ErrDenied) || o.State != orchestrator.StateOpen {
					t.Fatalf("got %+v, %v", o, err)
				}
				save(t, x, "s", "")
				exec(t, x, put("two", "/workspace/a"))
				back(t, x, "s")
				files(t, w, map[string]string{"/workspace/a": "one"})
				commit(t, x)
				collected(t, l)
			})
		})
	}
}

// A detached transaction outlives its process, holds its sandbox meanwhile, and
// is rolled back when nobody comes back to it.
func TestDetached(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld()
		l := boot(t, w)
		ctx := context.Background()
		x := l.begin(orchestrator.BeginSpec{Boundary: "disk"})
		id := x.View().ID
		exec(t, x, put("one", "/workspace/a"))
		save(t, x, "s", "")
		if _, err := l.e.Resume(ctx, id); !errors.Is(err, orchestrator.ErrBusy) {
			t.Errorf("resume what is at work: %v", err)
		}
		if err := x.Close(ctx); err != nil {
			t.Fatal(err)
		}
		var usage *orchestrator.UsageError
		if _, err := x.Exec(ctx, orchestrator.StepSpec{Command: "ls"}); !errors.As(err, &usage) {
			t.Errorf("a closed one: %v", err)
		}

		l = boot(t, w) // another process
		if outs, err := l.e.Recover(ctx); len(outs) != 0 || err != nil {
			t.Fatalf("recover: %+v, %v", outs, err)
		}
		holds := func(err error) {
			t.Helper()
			if !errors.Is(err, orchestrator.ErrBusy) || !strings.Contains(err.Error(), string(id)) || !strings.Contains(err.Error(), "tx rollback") {
				t.Errorf("an open transaction: %v", err)
			}
		}
		_, err := l.run(orchestrator.Spec{Command: overwrite})
		holds(err)
		_, err = l.e.Hold(ctx, w.box, "reset")
		holds(err)
		holds(l.e.Forget(ctx, w.box.ID))
		_, err = l.e.Begin(ctx, orchestrator.BeginSpec{Sandbox: w.box})
		holds(err)
		time.Sleep(59 * time.Minute)
		if x, err = l.e.Resume(ctx, id); err != nil {
			t.Fatal(err)
		}
		exec(t, x, put("two", "/workspace/a"))
		back(t, x, "s")
		files(t, w, map[string]string{"/workspace/a": "one"})
		_ = x.Close(ctx)
		time.Sleep(59 * time.Minute) // the limit counts from the last order
		if outs, err := l.e.Recover(ctx); len(outs) != 0 || err != nil {
			t.Fatalf("recover: %+v, %v", outs, err)
		}
		time.Sleep(2 * time.Minute)
		if _, err := l.e.Resume(ctx, id); !errors.As(err, &usage) {
			t.Errorf("resume too late: %v", err)
		}
		outs, err := l.e.Recover(ctx)
		if err != nil || len(outs) != 1 || outs[0].State != orchestrator.StateRolledBack || !strings.Contains(outs[0].Reason, "no order for 1h") {
			t.Fatalf("recover an idle one: %+v, %v", outs, err)
		}
		files(t, w, before())
		collected(t, l)
		if x, err = l.e.Resume(ctx, id); err != nil {
			t.Fatal(err)
		}
		if o, err := x.Rollback(ctx, ""); err != nil || !o.Replayed || o.State != orchestrator.StateRolledBack {
			t.Errorf("roll back again: %+v, %v", o, err)
		}
		if _, err := x.Commit(ctx); !errors.As(err, &usage) {
			t.Errorf("commit what is rolled back: %v", err)
		}
		if _, err := l.e.Resume(ctx, "01jx0000000000000000009999"); !errors.Is(err, orchestrator.ErrNotFound) {
			t.Errorf("resume nothing: %v", err)
		}
	})
}

// F23: a guest that was booted or restored while nobody held the transaction is
// not gone on with.
func TestResumeLooks(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld()
		l := boot(t, w)
		ctx := context.Background()
		x := l.begin(orchestrator.BeginSpec{Boundary: "disk"})
		exec(t, x, put("one", "/workspace/a"))
		_ = x.Close(ctx)
		w.boots++
		x, err := l.e.Resume(ctx, x.View().ID)
		if err != nil {
			t.Fatal(err)
		}
		o, err := x.Exec(ctx, orchestrator.StepSpec{Command: put("two", "/workspace/b")})
		if err != nil || o.State != orchestrator.StateRolledBack || w.ran[put("two", "/workspace/b")] != 0 {
			t.Errorf("got %+v, %v", o, err)
		}
		files(t, w, before())
	})
}

// An interrupted step takes the whole transaction back.
func TestSeveralInterrupted(t *testing.T) {
	for _, keep := range []orchestrator.OnFailure{orchestrator.OnFailureRollback, orchestrator.OnFailureKeep} {
		bubble(t, func(t *testing.T) {
			w := newWorld()
			l := boot(t, w)
			ctx, cancel := context.WithCancel(context.Background())
			x := l.begin(orchestrator.BeginSpec{OnFailure: keep})
			exec(t, x, put("one", "/workspace/a"))
			w.hooks["run"] = func(context.Context) error { cancel(); return nil }
			o, err := x.Exec(ctx, orchestrator.StepSpec{Command: put("two", "/workspace/b")})
			if err != nil || o.State != orchestrator.StateRolledBack || !o.Interrupted {
				t.Fatalf("got %+v, %v", o, err)
			}
			files(t, w, before())
		})
	}
}
