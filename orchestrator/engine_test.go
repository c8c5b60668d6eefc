package orchestrator_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"savepoint/orchestrator"
	"savepoint/policy"
)

var update = flag.Bool("update", false, "rewrite the golden files in testdata")

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// lab is an engine on a world.
type lab struct {
	t testing.TB
	w *world
	p *proc
	e *orchestrator.Engine
	j orchestrator.Journal
}

// boot starts a new process on the world, as after a crash.
func boot(t testing.TB, w *world, edit ...func(*orchestrator.Config)) *lab {
	t.Helper()
	p := &proc{w: w}
	n := len(w.records)
	c := orchestrator.Config{
		Journal: p, Decider: newDecider(t), Hypervisor: p, Executor: p, Guest: p, Tasks: p, Prover: p,
		Snapshotters: map[orchestrator.Boundary]orchestrator.Snapshotter{
			orchestrator.BoundaryWorkspace: driver{p, orchestrator.BoundaryWorkspace},
			orchestrator.BoundaryDisk:      driver{p, orchestrator.BoundaryDisk},
			orchestrator.BoundaryMachine:   driver{p, orchestrator.BoundaryMachine},
		},
		NewID: func() orchestrator.TxID {
			n++
			return orchestrator.TxID(fmt.Sprintf("01jx%022d", n))
		},
		Wait: func(ctx context.Context, d time.Duration) error {
			if p.gone {
				return errCrash
			}
			select {
			case <-time.After(d):
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		},
	}
	for _, f := range edit {
		f(&c)
	}
	e, err := orchestrator.New(c)
	if err != nil {
		t.Fatal(err)
	}
	return &lab{t, w, p, e, c.Journal}
}

// bubble runs the test on a clock of its own.
func bubble(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, f)
}

func (l *lab) run(s orchestrator.Spec) (orchestrator.Outcome, error) {
	if s.Sandbox.ID == "" {
		s.Sandbox = l.w.box
	}
	return l.e.Run(context.Background(), s)
}

const (
	overwrite = "echo new > /workspace/a && echo more > /workspace/b"
	damage    = "echo bad > /workspace/a && rm /workspace/none"
)

func before() map[string]string { return map[string]string{"/workspace/a": "old"} }
func after() map[string]string {
	return map[string]string{"/workspace/a": "new", "/workspace/b": "more"}
}

func files(t testing.TB, w *world, want map[string]string) {
	t.Helper()
	if diff := cmp.Diff(want, w.files); diff != "" {
		t.Errorf("files in the guest (-want +got):\n%s", diff)
	}
}

func TestBoundaryFollowsPrivilege(t *testing.T) {
	for _, c := range []struct {
		name string
		spec orchestrator.Spec
		root orchestrator.Boundary
		bare bool // no workspace volume
		want orchestrator.Boundary
	}{
		{name: "read-only", spec: orchestrator.Spec{Command: "cat /workspace/a"}, want: "none"},
		{name: "read-only, in another environment", spec: orchestrator.Spec{
			Command: "cat /workspace/a", Env: map[string]string{"PATH": "/workspace/bin"},
		}, want: "workspace"},
		{name: "root, read-only, in another environment", spec: orchestrator.Spec{
			Command: "cat /workspace/a", As: policy.Root, Env: map[string]string{"PATH": "/workspace/bin"},
		}, want: "machine"},
		{name: "agent", spec: orchestrator.Spec{Command: overwrite}, want: "workspace"},
		{name: "agent without a workspace", spec: orchestrator.Spec{Command: overwrite}, bare: true, want: "machine"},
		{name: "root", spec: orchestrator.Spec{Command: overwrite, As: policy.Root}, want: "machine"},
		{name: "root by configuration", spec: orchestrator.Spec{Command: overwrite, As: policy.Root}, root: "disk", want: "disk"},
		{name: "asked for more", spec: orchestrator.Spec{Command: overwrite, Boundary: "disk"}, want: "disk"},
		{name: "a validation needs more than the command", spec: orchestrator.Spec{
			Command: "cat /workspace/a", Validate: []orchestrator.Validation{{Command: "echo x > /workspace/v", As: policy.Root}},
		}, want: "machine"},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w := newWorld()
				if c.bare {
					w.box.Workspace = ""
				}
				o, err := boot(t, w, func(cfg *orchestrator.Config) { cfg.RootBoundary = c.root }).run(c.spec)
				if err != nil || o.State != orchestrator.StateCommitted || o.Boundary != c.want {
					t.Errorf("got %s in %q, %v; want committed in %q", o.State, o.Boundary, err, c.want)
				}
			})
		})
	}
}

// F18: without a boundary that covers it, or without its driver, nothing runs.
func TestRefusedBeforeAnything(t *testing.T) {
	for _, c := range []struct {
		name string
		spec orchestrator.Spec
		edit func(*world, *orchestrator.Config)
		want any // a pointer for errors.As or an error for errors.Is
	}{
		{name: "none does not cover", spec: orchestrator.Spec{Command: overwrite, Boundary: "none"}, want: new(*orchestrator.UsageError)},
		{name: "workspace does not cover root", spec: orchestrator.Spec{Command: overwrite, Boundary: "workspace", As: policy.Root}, want: new(*orchestrator.UsageError)},
		{name: "no such boundary", spec: orchestrator.Spec{Command: overwrite, Boundary: "most"}, want: new(*orchestrator.UsageError)},
		{name: "no such user", spec: orchestrator.Spec{Command: overwrite, As: "bob"}, want: new(*orchestrator.UsageError)},
		{name: "empty", spec: orchestrator.Spec{Command: " \n"}, want: new(*orchestrator.UsageError)},
		{name: "a validation is denied", spec: orchestrator.Spec{Command: overwrite, Validate: []orchestrator.Validation{{Command: "rm -rf /"}}}, want: new(*orchestrator.UsageError)},
		{name: "F18 no driver", spec: orchestrator.Spec{Command: overwrite, As: policy.Root}, edit: func(_ *world, c *orchestrator.Config) { c.Snapshotters = nil }, want: new(*orchestrator.UnsupportedError)},
		{name: "no workspace volume", spec: orchestrator.Spec{Command: overwrite, Boundary: "workspace"}, edit: func(w *world, _ *orchestrator.Config) { w.box.Workspace = "" }, want: new(*orchestrator.UnsupportedError)},
		{name: "quarantined", spec: orchestrator.Spec{Command: overwrite}, edit: func(w *world, _ *orchestrator.Config) { w.box.State = orchestrator.SandboxQuarantined }, want: orchestrator.ErrDenied},
		{name: "F22 another VM under the id", spec: orchestrator.Spec{Command: overwrite}, edit: func(w *world, _ *orchestrator.Config) { w.owner = "somebody" }, want: orchestrator.ErrDenied},
		{name: "F21 stopped", spec: orchestrator.Spec{Command: overwrite}, edit: func(w *world, _ *orchestrator.Config) { w.running = false }, want: orchestrator.ErrUnavailable},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w := newWorld()
				l := boot(t, w, func(cfg *orchestrator.Config) {
					if c.edit != nil {
						c.edit(w, cfg)
					}
				})
				_, err := l.run(c.spec)
				matches(t, err, c.want)
				if len(w.ran)+len(w.records)+w.counts["create"] != 0 {
					t.Errorf("something was done: %v", w.trace)
				}
				files(t, w, before())
			})
		})
	}
}

func matches(t *testing.T, err error, want any) {
	t.Helper()
	ok := false
	switch want := want.(type) {
	case error:
		ok = errors.Is(err, want)
	case **orchestrator.UsageError:
		ok = errors.As(err, want)
	case **orchestrator.UnsupportedError:
		ok = errors.As(err, want)
	}
	if !ok {
		t.Errorf("error: got %v, want %T", err, want)
	}
}

// F113: a denied command is recorded with its rule and does not reach the guest.
func TestDenied(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld()
		l := boot(t, w)
		o, err := l.run(orchestrator.Spec{Command: "rm -rf /", By: "test"})
		if err != nil || o.State != orchestrator.StateDenied || o.Verdict.Rule == "" || o.ExitCode != nil {
			t.Fatalf("got %+v, %v", o, err)
		}
		tx, err := orchestrator.Show(context.Background(), l.p, o.Transaction)
		if err != nil || tx.State != orchestrator.StateDenied || tx.Command != "rm -rf /" || tx.By != "test" || !tx.Settled {
			t.Errorf("the record says %+v, %v", tx, err)
		}
		if len(w.ran) != 0 || len(w.trace) != 1 {
			t.Errorf("more than the record was made: %v", w.trace)
		}
	})
}

func TestCommit(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld()
		var steps []string
		l := boot(t, w, func(c *orchestrator.Config) {
			c.Observer = func(ev orchestrator.Event) { steps = append(steps, fmt.Sprint(ev.Step, " ", ev.Phase)) }
		})
		o, err := l.run(orchestrator.Spec{Command: overwrite + " && echo done", As: policy.Root, Validate: []orchestrator.Validation{{Command: "cat /workspace/b"}}})
		if err != nil || o.State != orchestrator.StateCommitted || o.ExitCode == nil || *o.ExitCode != 0 || o.Stdout != "done\n" || o.Reason != "" {
			t.Fatalf("got %+v, %v", o, err)
		}
		files(t, w, after())
		want := []string{"policy started", "policy finished", "snapshot started", "snapshot finished", "execute started", "execute finished", "validate started", "validate finished", "commit started", "commit finished"}
		if diff := cmp.Diff(want, steps); diff != "" {
			t.Errorf("events (-want +got):\n%s", diff)
		}
		if w.counts["delete"] != 0 {
			t.Error("a snapshot was deleted on the commit path")
		}
		if n, err := l.e.Collect(context.Background()); n != 1 || err != nil {
			t.Errorf("collect: %d, %v", n, err)
		}
		if len(w.snaps) != 1 {
			t.Errorf("%d snapshots are left, want the pristine one", len(w.snaps))
		}
		if n, err := l.e.Collect(context.Background()); n != 0 || err != nil {
			t.Errorf("collect again: %d, %v", n, err)
		}
	})
}

// F02, F20: whatever the boundary, a failed command leaves exactly the state
// at begin: what it deleted is back, what it made is gone.
func TestRollback(t *testing.T) {
	for _, b := range []orchestrator.Boundary{"workspace", "disk", "machine"} {
		for name, c := range map[string]struct {
			spec   orchestrator.Spec
			reason string
		}{
			"exit":       {orchestrator.Spec{Command: "echo x > /workspace/n && rm /workspace/a && rm /workspace/none"}, "exited 1"},
			"validation": {orchestrator.Spec{Command: overwrite, Validate: []orchestrator.Validation{{Command: "cat /workspace/none"}}}, `validation "cat /workspace/none" exited 1`},
			"F79 crash":  {orchestrator.Spec{Command: "rm /workspace/a && mkdir /panic"}, "end is not known"},
		} {
			t.Run(string(b)+"/"+name, func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					w := newWorld()
					c.spec.Boundary = b
					l := boot(t, w)
					o, err := l.run(c.spec)
					if err != nil || o.State != orchestrator.StateRolledBack || !strings.Contains(o.Reason, c.reason) {
						t.Fatalf("got %s (%s), %v", o.State, o.Reason, err)
					}
					files(t, w, before())
					if !w.running || w.dead || w.lock != "" || w.skew.Abs() > time.Second {
						t.Errorf("the guest is not as it was: running %t, dead %t, lock %q, clock off by %s", w.running, w.dead, w.lock, w.skew)
					}
					if _, err := l.run(orchestrator.Spec{Command: overwrite, Boundary: b}); err != nil { // F28: and so on
						t.Error(err)
					}
					files(t, w, after())
				})
			})
		}
	}
}

// A read-only command that fails has nothing to restore.
func TestReadOnlyFails(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld()
		l := boot(t, w)
		o, err := l.run(orchestrator.Spec{Command: "cat /workspace/none"})
		if err != nil || o.State != orchestrator.StateRolledBack || o.ExitCode == nil || *o.ExitCode != 1 {
			t.Fatalf("got %+v, %v", o, err)
		}
		if w.counts["create"]+w.counts["rollback"] != 0 {
			t.Errorf("the cluster was asked for something: %v", w.trace)
		}
	})
}

func TestKeep(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld()
		l := boot(t, w)
		o, err := l.run(orchestrator.Spec{Command: damage, OnFailure: orchestrator.OnFailureKeep})
		if err != nil || o.State != orchestrator.StateCommitted || !strings.Contains(o.Reason, "exited 1") {
			t.Fatalf("got %s (%s), %v", o.State, o.Reason, err)
		}
		files(t, w, map[string]string{"/workspace/a": "bad"})
		// What nobody knows is not kept.
		o, err = l.run(orchestrator.Spec{Command: "rm /workspace/a && mkdir /panic", OnFailure: orchestrator.OnFailureKeep, As: policy.Root})
		if err != nil || o.State != orchestrator.StateRolledBack {
			t.Fatalf("got %s (%s), %v", o.State, o.Reason, err)
		}
		files(t, w, map[string]string{"/workspace/a": "bad"})
	})
}

// The order of records and effects. A reordered sync shows as a difference;
// rewrite with -update.
func TestTrace(t *testing.T) {
	for name, spec := range map[string]orchestrator.Spec{
		"read-only":          {Command: "cat /workspace/a"},
		"read-only-fails":    {Command: "cat /workspace/none"},
		"denied":             {Command: "rm -rf /"},
		"workspace-commit":   {Command: overwrite},
		"workspace-rollback": {Command: damage},
		"machine-commit":     {Command: overwrite, Boundary: "machine", Validate: []orchestrator.Validation{{Command: "cat /workspace/a"}}},
		"machine-rollback":   {Command: damage, Boundary: "machine"},
		"disk-rollback":      {Command: damage, Boundary: "disk"},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w := newWorld()
				w.hooks["run"] = func(context.Context) error { time.Sleep(3 * time.Second); return nil }
				l := boot(t, w)
				if _, err := l.run(spec); err != nil {
					t.Fatal(err)
				}
				w.trace = append(w.trace, "-- collect")
				if _, err := l.e.Collect(context.Background()); err != nil {
					t.Fatal(err)
				}
				golden(t, "trace-"+name, strings.Join(w.trace, "\n")+"\n")
			})
		})
	}
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name+".golden")
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", path, diff)
	}
}

// snapshotsOf returns the names of the snapshots that transactions took.
func snapshotsOf(w *world) (names []orchestrator.SnapshotName) {
	for _, s := range w.snaps {
		if s.Name != "sp-pristine" {
			names = append(names, s.Name)
		}
	}
	slices.Sort(names)
	return names
}
