package sshexec_test

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"savepoint/orchestrator"
	"savepoint/orchestrator/sshexec"
	"savepoint/policy"
	"savepoint/testbed/sim"
)

// F11: nothing of the orchestrator's own environment reaches a command: no
// credentials for what lies outside, whatever they are called. It has what the
// request gives it and what every command has.
func TestNoCredentialsOfTheHost(t *testing.T) {
	for _, name := range []string{"DATABASE_URL", "AWS_SECRET_ACCESS_KEY", "GITHUB_TOKEN", "SSH_AUTH_SOCK", "SAVEPOINT_CLUSTER_TOKEN_SECRET", "LC_SECRET"} {
		t.Setenv(name, "of-the-host")
	}
	w := newWorld(t, sim.Behaviour{}, nil)
	_, sb := w.sandbox(t, 101)
	for _, user := range []policy.User{policy.Agent, policy.Root} {
		for _, capture := range []bool{false, true} {
			res, err := w.Run(within(t, 20*time.Second), sb, permit("env", user), orchestrator.ExecRequest{Env: map[string]string{"GIVEN": "x"}, Capture: capture})
			if err != nil || res.ExitCode != 0 || !strings.Contains(string(res.Stdout), "GIVEN=x") {
				t.Fatalf("as %s: exit %d, %s, %v", user, res.ExitCode, res.Stderr, err)
			}
			for line := range strings.Lines(string(res.Stdout)) {
				name, _, _ := strings.Cut(line, "=")
				switch name {
				case "GIVEN", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "PATH", "PWD", "OLDPWD", "SHLVL", "_":
				default:
					t.Errorf("as %s the command has %q", user, strings.TrimSpace(line))
				}
			}
			if strings.Contains(string(res.Stdout), "of-the-host") {
				t.Errorf("as %s: the host's environment shows: %s", user, res.Stdout)
			}
		}
	}
}

// F15 F17: what savepoint asks of a guest changes one file of it, its own mark,
// and nothing else: no file of the user's, no repository, no directory.
func TestQuestionsLeaveNoTrace(t *testing.T) {
	w := newWorld(t, sim.Behaviour{}, nil)
	_, sb := w.sandbox(t, 101)
	ctx := within(t, 20*time.Second)
	w.run(t, sb, "mkdir -p /workspace/.git/refs; echo c1 > /workspace/.git/refs/main; echo mine > /workspace/untracked")
	list := func() orchestrator.Manifest {
		t.Helper()
		m, err := w.Manifest(ctx, sb, orchestrator.ManifestRequest{Roots: []string{"/"}, Hash: true})
		if err != nil || len(m.Entries) < 50 {
			t.Fatalf("%d entries, %v", len(m.Entries), err)
		}
		return m
	}
	if _, err := w.Mark(ctx, sb, "first"); err != nil {
		t.Fatal(err)
	}
	before := list()
	for i := range 20 {
		if _, err := w.Mark(ctx, sb, "generation-"+strings.Repeat("x", i)); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Inspect(ctx, sb); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Health(ctx, sb); err != nil {
			t.Fatal(err)
		}
		if err := w.SetClock(ctx, sb, time.Now()); err != nil {
			t.Fatal(err)
		}
		w.Disconnect(sb.ID)
	}
	for _, c := range before.Diff(list()) {
		if !strings.HasPrefix(c.Path, "/var/lib/savepoint") {
			t.Errorf("%s was %s (%s)", c.Path, c.Kind, c.What)
		}
	}
}

// F80 F81 F98: a guest that is frozen answers nothing. Each question ends with
// its own deadline instead of hanging, is not taken for done, and once the guest
// is thawed the same question is answered.
func TestFrozenGuestIsAsked(t *testing.T) {
	for name, ask := range map[string]func(context.Context, *world, orchestrator.Sandbox) error{
		"mark": func(ctx context.Context, w *world, sb orchestrator.Sandbox) error {
			_, err := w.Mark(ctx, sb, "new")
			return err
		},
		"inspect": func(ctx context.Context, w *world, sb orchestrator.Sandbox) error {
			_, err := w.Inspect(ctx, sb)
			return err
		},
		"health": func(ctx context.Context, w *world, sb orchestrator.Sandbox) error {
			_, err := w.Health(ctx, sb)
			return err
		},
		"clock": func(ctx context.Context, w *world, sb orchestrator.Sandbox) error {
			return w.SetClock(ctx, sb, time.Now())
		},
		"manifest": func(ctx context.Context, w *world, sb orchestrator.Sandbox) error {
			_, err := w.Manifest(ctx, sb, orchestrator.ManifestRequest{Roots: []string{"/etc"}})
			return err
		},
	} {
		for _, connected := range []bool{true, false} {
			t.Run(map[bool]string{true: "connected ", false: "dialled "}[connected]+name, func(t *testing.T) {
				t.Parallel()
				w := newWorld(t, sim.Behaviour{}, func(c *sshexec.Config) { c.KillTimeout, c.DialTimeout = 50*time.Millisecond, 100*time.Millisecond })
				_, sb := w.sandbox(t, 101)
				w.run(t, sb, "true")
				if !connected {
					w.Disconnect(sb.ID)
				}
				if err := w.Backend.Freeze(101, true); err != nil {
					t.Fatal(err)
				}
				began := time.Now()
				err := ask(within(t, 300*time.Millisecond), w, sb)
				if took := time.Since(began); took > 10*time.Second {
					t.Errorf("it ended after %s", took)
				}
				if !errors.Is(err, orchestrator.ErrUnavailable) && !errors.Is(err, orchestrator.ErrUnknownOutcome) || !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("got %v, want a class and the end of the context", err)
				}
				if err := w.Backend.Freeze(101, false); err != nil {
					t.Fatal(err)
				}
				if err := ask(within(t, 20*time.Second), w, sb); err != nil {
					t.Errorf("after the thaw: %v", err)
				}
			})
		}
	}
}

// F100: output that does not compress, of more than any buffer on the way holds,
// on both streams at once, arrives byte for byte; so does as much input.
func TestLargeBinaryBothWays(t *testing.T) {
	w := newWorld(t, sim.Behaviour{}, nil)
	_, sb := w.sandbox(t, 101)
	data := make([]byte, 5<<20)
	random := rand.NewChaCha8([32]byte{1})
	_, _ = random.Read(data)
	var stdout, stderr bytes.Buffer
	res, err := w.Run(within(t, time.Minute), sb, permit("tee /tmp/copy; cat /tmp/copy >&2", policy.Agent), orchestrator.ExecRequest{
		Stdin: bytes.NewReader(data), Stdout: &stdout, Stderr: &stderr, Limit: 100,
	})
	if err != nil || res.ExitCode != 0 || !res.Truncated || res.StdoutBytes != int64(len(data)) || res.StderrBytes != int64(len(data)) {
		t.Fatalf("exit %d, %d and %d bytes, truncated %t, %v", res.ExitCode, res.StdoutBytes, res.StderrBytes, res.Truncated, err)
	}
	if !bytes.Equal(stdout.Bytes(), data) || !bytes.Equal(stderr.Bytes(), data) || !bytes.Equal(res.Stdout, data[:100]) {
		t.Error("the bytes are not those that were sent")
	}
}
