package orchestrator_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"savepoint/orchestrator"
	"savepoint/policy"
)

// here asks where the session is, without changing it.
func here(t *testing.T, l *lab) string {
	t.Helper()
	o, err := l.run(orchestrator.Spec{Command: "pwd && printenv A", Session: true})
	if err != nil || o.State != orchestrator.StateCommitted {
		t.Fatalf("where: %s (%s), %v", o.State, o.Reason, err)
	}
	return strings.ReplaceAll(strings.TrimSpace(o.Stdout), "\n", " ")
}

// F05, F19: where the last committed command ended the next one begins; one
// that is rolled back takes the session back with the files.
func TestSession(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld()
		l := boot(t, w)
		run := func(want orchestrator.State, s orchestrator.Spec) orchestrator.Outcome {
			t.Helper()
			s.Session = true
			o, err := l.run(s)
			if err != nil || o.State != want {
				t.Fatalf("%s: %s (%s), %v", s.Command, o.State, o.Reason, err)
			}
			return o
		}
		if o := run("committed", orchestrator.Spec{Command: "cd /workspace/x && export A=1"}); o.Dir != "/workspace/x" {
			t.Errorf("the outcome says %q", o.Dir)
		}
		if got := here(t, l); got != "/workspace/x 1" {
			t.Errorf("after a commit: %q", got)
		}
		l = boot(t, w)
		if got := here(t, l); got != "/workspace/x 1" {
			t.Errorf("in another process: %q", got)
		}
		run("rolled-back", orchestrator.Spec{Command: "cd /workspace/y && export A=2 && rm /workspace/none"})
		if got := here(t, l); got != "/workspace/x 1" {
			t.Errorf("after a rollback: %q", got)
		}
		// What the request says wins, for that command.
		o := run("committed", orchestrator.Spec{Command: "pwd && printenv A", Dir: "/workspace/z", Env: map[string]string{"A": "9", "B": "9"}})
		if o.Stdout != "/workspace/z\n9\n" {
			t.Errorf("what the request says: %q", o.Stdout)
		}
		if o := run("committed", orchestrator.Spec{Command: "pwd && printenv A && printenv B"}); o.Stdout != "/workspace/x\n1\n\n" {
			t.Errorf("afterwards: %q", o.Stdout)
		}
		// The accounts have nothing of each other's.
		if o := run("committed", orchestrator.Spec{Command: "pwd && printenv A", As: policy.Root}); o.Stdout != "\n\n" {
			t.Errorf("root: %q", o.Stdout)
		}
		// Without it nothing is taken and nothing is left.
		if o, err := l.run(orchestrator.Spec{Command: "pwd && cd /workspace/w"}); err != nil || o.Stdout != "\n" {
			t.Errorf("without: %q, %v", o.Stdout, err)
		}
		run("committed", orchestrator.Spec{Command: "unset A"})
		if got := here(t, l); got != "/workspace/x" {
			t.Errorf("after unset: %q", got)
		}
		w.session = nil // as a reset leaves it
		if got := here(t, l); got != "" {
			t.Errorf("after a reset: %q", got)
		}
	})
}

// With variables of the session nothing is proved read-only, and a relative
// path means what it means where the session is.
func TestSessionAndPolicy(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld()
		l := boot(t, w)
		run := func(command string) orchestrator.Outcome {
			t.Helper()
			o, err := l.run(orchestrator.Spec{Command: command, Session: true})
			if err != nil {
				t.Fatal(err)
			}
			return o
		}
		if o := run("cat /workspace/a"); o.Boundary != "none" {
			t.Errorf("without variables: %s", o.Boundary)
		}
		run("export PATH=/workspace/bin")
		if o := run("cat /workspace/a"); o.Boundary != "workspace" {
			t.Errorf("with a PATH: %s", o.Boundary)
		}
		run("unset PATH && cd /")
		if o := run("rm -rf *"); o.State != orchestrator.StateDenied {
			t.Errorf("rm -rf * in /: %s", o.State)
		}
		if o, err := l.run(orchestrator.Spec{Command: "rm -rf *", Dir: "/"}); err != nil || o.State != orchestrator.StateDenied {
			t.Errorf("rm -rf * with directory /: %s, %v", o.State, err)
		}
		run("export WHERE=/")
		if o := run("rm -rf $WHERE"); o.State != orchestrator.StateDenied {
			t.Errorf("rm -rf of a variable of the session: %s", o.State)
		}
		run("unset WHERE && cd /workspace/x")
		if o := run("rm -rf *"); o.State == orchestrator.StateDenied {
			t.Errorf("rm -rf * in the workspace: %s", o.State)
		}
		o, err := l.run(orchestrator.Spec{
			Command: "echo x > /workspace/n", Dir: "/", Validate: []orchestrator.Validation{{Command: "rm -rf *"}},
		})
		var usage *orchestrator.UsageError
		if !errors.As(err, &usage) {
			t.Errorf("a validation in /: %+v, %v", o, err)
		}
	})
}

// What would make a shell run other code, and what is a secret by its name, is
// not kept, whoever reports it.
func TestSessionKeepsNoDanger(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld()
		l := boot(t, w)
		w.planted = map[string]string{
			"LD_PRELOAD": "/workspace/x.so", "BASH_ENV": "/workspace/x", "PROMPT_COMMAND": "x", "A B": "x", "ZERO": "a\x00b",
			"GITHUB_TOKEN": "abc", "DB_PASSWORD": "abc", "AWS_SECRET_ACCESS_KEY": "abc", "OPENAI_API_KEY": "abc",
			"GOPATH": "/workspace/go", "MONKEY": "1",
		}
		o, err := l.run(orchestrator.Spec{Session: true, Command: "pwd"})
		if err != nil || o.State != orchestrator.StateCommitted || !strings.Contains(string(w.session), "GOPATH") || !strings.Contains(string(w.session), "MONKEY") {
			t.Fatalf("%s (%s), %v: %s", o.State, o.Reason, err, w.session)
		}
		w.planted = nil
		for _, name := range []string{"LD_PRELOAD", "TOKEN", "PASSWORD", "BASH_ENV", "SECRET", "PROMPT", "ZERO", "A B", "abc"} {
			if strings.Contains(string(w.session), name) {
				t.Errorf("%s is kept: %s", name, w.session)
			}
		}
		w.session = []byte(`{"agent":{"dir":"relative","env":{"LD_PRELOAD":"/x","OK":"1"}}}`) // written by others
		if o, err := l.run(orchestrator.Spec{Session: true, Command: "pwd && printenv LD_PRELOAD && printenv OK"}); err != nil || o.Stdout != "\n\n1\n" {
			t.Errorf("%q, %v", o.Stdout, err)
		}
		w.session = []byte(`{`)
		if _, err := l.run(orchestrator.Spec{Session: true, Command: "pwd"}); !errors.Is(err, orchestrator.ErrDenied) {
			t.Errorf("a damaged session: %v", err)
		}
	})
}

// In a transaction of several commands the session goes on from step to step;
// savepoints hold it, only the commit keeps it.
func TestSessionOfSeveral(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld()
		l := boot(t, w)
		ctx := context.Background()
		b := orchestrator.BeginSpec{Session: true, Boundary: "disk"}
		x := l.begin(b)
		at := func(want string) {
			t.Helper()
			if o := exec(t, x, "pwd && printenv A"); strings.ReplaceAll(strings.TrimSpace(o.Stdout), "\n", " ") != want {
				t.Errorf("the session is at %q, want %q", o.Stdout, want)
			}
		}
		if o := exec(t, x, "cd /workspace/x && export A=1"); o.Dir != "/workspace/x" {
			t.Errorf("the outcome says %q", o.Dir)
		}
		at("/workspace/x 1")
		save(t, x, "s", "")
		exec(t, x, "cd /workspace/y && export A=2")
		at("/workspace/y 2")
		if o, err := x.Exec(ctx, orchestrator.StepSpec{Command: "cd / && pwd"}); err != nil || o.State != orchestrator.StateOpen {
			t.Fatalf("%+v, %v", o, err)
		}
		if o, err := x.Exec(ctx, orchestrator.StepSpec{Command: "rm -rf *"}); err != nil || o.State != orchestrator.StateDenied {
			t.Errorf("rm -rf * where a step has gone: %s, %v", o.State, err)
		}
		back(t, x, "s")
		at("/workspace/x 1")
		_ = x.Close(ctx)
		l = boot(t, w)
		x, err := l.e.Resume(ctx, x.View().ID)
		if err != nil {
			t.Fatal(err)
		}
		at("/workspace/x 1")
		if w.session != nil {
			t.Errorf("kept before the commit: %s", w.session)
		}
		if _, err := x.Rollback(ctx, ""); err != nil {
			t.Fatal(err)
		}
		if got := here(t, l); got != "" {
			t.Errorf("after a rollback: %q", got)
		}
		x = l.begin(b)
		exec(t, x, "cd /workspace/z && export A=3")
		commit(t, x)
		if got := here(t, l); got != "/workspace/z 3" {
			t.Errorf("after the commit: %q", got)
		}
	})
}
