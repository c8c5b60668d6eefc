package sshexec_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"savepoint/orchestrator"
	"savepoint/orchestrator/sshexec"
	"savepoint/policy"
	"savepoint/testbed/sim"
)

// refusesDirectories checks that a working directory that cannot be entered is
// told apart from all else that the guest may refuse, with the guest's cause and
// what to do.
func refusesDirectories(t *testing.T, x orchestrator.Executor, sb orchestrator.Sandbox) {
	t.Helper()
	for _, c := range []struct {
		dir, cause string
		class      error
	}{
		{"/workspace/no such", "No such file or directory", orchestrator.ErrNotFound},
		{"/etc/passwd", "Not a directory", orchestrator.ErrNotFound},
		{"/etc/passwd/below", "Not a directory", orchestrator.ErrNotFound},
		{"/root", "Permission denied", orchestrator.ErrDenied},
		{"/root/below", "Permission denied", orchestrator.ErrDenied},
	} {
		_, err := x.Run(within(t, 20*time.Second), sb, permit("touch /workspace/ran", policy.Agent), orchestrator.ExecRequest{Dir: c.dir})
		wantClass(t, err, c.class)
		var dir *sshexec.DirectoryError
		if !errors.As(err, &dir) || dir.Dir != c.dir || dir.Cause != c.cause {
			t.Errorf("%s: got %v (%+v), want %q", c.dir, err, dir, c.cause)
		}
		if text := err.Error(); strings.Count(text, c.dir) != 1 || strings.Contains(text, "run ") || !strings.Contains(text, "; use a directory that ") {
			t.Errorf("%s: %q", c.dir, text)
		}
	}
}

// The real helper says it as the simulated one does.
func TestOpenSSHDirectory(t *testing.T) {
	lab(t)
	c, sb := realGuest(t)
	refusesDirectories(t, c, sb)
}

// Nothing ran, and the connection goes on.
func TestDirectory(t *testing.T) {
	w := newWorld(t, sim.Behaviour{}, nil)
	_, sb := w.sandbox(t, 101)
	refusesDirectories(t, w, sb)
	if out := w.run(t, sb, "ls /workspace"); out != "" {
		t.Errorf("something ran: %s", out)
	}
	if n := w.dials.Load(); n != 1 {
		t.Errorf("%d connections, want the one", n)
	}

	// What else is refused is no matter of the directory.
	_, err := w.Run(within(t, 20*time.Second), sb, permit("true #"+strings.Repeat("x", 128<<10), policy.Agent), orchestrator.ExecRequest{Dir: "/tmp"})
	var dir *sshexec.DirectoryError
	if wantClass(t, err, orchestrator.ErrDenied); errors.As(err, &dir) {
		t.Errorf("a command too long: %v", err)
	}
	// Nor is the user's home, which nobody asked for.
	if _, err := w.Run(within(t, 20*time.Second), sb, permit("chmod 700 /home/agent && chown root /home/agent", policy.Root), orchestrator.ExecRequest{}); err != nil {
		t.Fatal(err)
	}
	_, err = w.Run(within(t, 20*time.Second), sb, permit("true", policy.Agent), orchestrator.ExecRequest{})
	if wantClass(t, err, orchestrator.ErrDenied); errors.As(err, &dir) || !strings.Contains(err.Error(), "working directory /home/agent: Permission denied") {
		t.Errorf("a home that cannot be entered: %v", err)
	}
}
