package setup

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// A signal that reaches a step alone, as from a timer's stop or make, goes on to
// the command; its tidying up is waited for, and its exit code is the step's: that
// of what was interrupted, which is also what the step says when bash has lost it.
func TestStepSignalled(t *testing.T) {
	// A shell cannot trap what was ignored when it began, as after nohup; what is
	// caught here is not ignored there.
	caught := make(chan os.Signal, 1)
	signal.Notify(caught, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer signal.Stop(caught)
	for name, sig := range map[string]syscall.Signal{"INT": syscall.SIGINT, "TERM": syscall.SIGTERM, "HUP": syscall.SIGHUP} {
		t.Run(name, func(t *testing.T) {
			cmd := exec.CommandContext(t.Context(), "./step.sh", "name", "bash", "-c",
				`trap 'trap "" HUP INT TERM; echo tidy; read -r go; echo "$go"; exit 130' `+name+`; echo ready; while :; do read -r -t 0.05 line; done`)
			in, err := cmd.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			out, err := cmd.StdoutPipe()
			if err == nil {
				err = cmd.Start()
			}
			if err != nil {
				t.Fatal(err)
			}
			lines := bufio.NewReader(out)
			for _, want := range []string{"== name\n", "ready\n"} {
				if line, err := lines.ReadString('\n'); line != want {
					t.Fatalf("%q, %v; want %q", line, err, want)
				}
			}
			if err := cmd.Process.Signal(sig); err != nil {
				t.Fatal(err)
			}
			if line, err := lines.ReadString('\n'); line != "tidy\n" {
				t.Fatalf("%q, %v; the command did not get the signal", line, err)
			}
			// Another one while it tidies up does not end the wait for it.
			if err := cmd.Process.Signal(sig); err != nil {
				t.Fatal(err)
			}
			if _, err := io.WriteString(in, "done\n"); err != nil {
				t.Fatal(err)
			}
			in.Close()
			rest, err := io.ReadAll(lines)
			_ = cmd.Wait()
			if code := cmd.ProcessState.ExitCode(); err != nil || code != 130 || !strings.HasPrefix(string(rest), "done\n== name: failed with exit code 130 ") {
				t.Errorf("exit code %d, %v, it said %q", code, err, rest)
			}
		})
	}
}

// What a step runs still ends by a signal that it does nothing about, and reads
// what the step reads.
func TestStepPasses(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), "./step.sh", "name", "bash", "-c", "read -r line; echo \"$line\"; kill -INT $$; echo not reached")
	cmd.Stdin = strings.NewReader("asked\n")
	out, _ := cmd.CombinedOutput()
	if code := cmd.ProcessState.ExitCode(); code != 130 || !strings.HasPrefix(string(out), "== name\nasked\n== name: failed with exit code 130") {
		t.Errorf("exit code %d, it said %q", code, out)
	}
}

// A night that is interrupted ends when its run has tidied up, and neither reports
// nor compares a part of a run.
func TestNightlySignalled(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "savepoint"), []byte(`#!/bin/bash
trap 'echo tidy >&2; exit 130' TERM
echo "$1 $2" >&2 # who reads this may signal at once
while :; do read -r -t 0.05 line; done
`), 0o700); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "./step.sh", "night", "./nightly.sh", filepath.Join(dir, "savepoint"), "0.25", "--quick")
	cmd.Env = append(os.Environ(), "TMPDIR="+dir)
	hold, err := cmd.StdinPipe() // what the stand-in reads does not come, and does not end
	if err != nil {
		t.Fatal(err)
	}
	defer hold.Close()
	said, err := cmd.StderrPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(said)
	if line, err := lines.ReadString('\n'); line != "bench run\n" {
		t.Fatalf("%q, %v", line, err)
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	rest, err := io.ReadAll(lines)
	_ = cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); err != nil || code != 130 || !strings.HasPrefix(string(rest), "tidy\nnightly: interrupted; ") || strings.Contains(string(rest), "bench report") {
		t.Errorf("exit code %d, %v, it said %q", code, err, rest)
	}
	if left, err := filepath.Glob(filepath.Join(dir, "tmp.*")); err != nil || len(left) > 0 {
		t.Errorf("left %q, %v", left, err)
	}
}
