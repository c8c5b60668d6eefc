package setup

import (
	"bufio"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
)

func TestPackages(t *testing.T) {
	pkgs, err := Packages()
	if err != nil {
		t.Fatal(err)
	}
	name := regexp.MustCompile(`^[a-z0-9][a-z0-9+.-]+$`)
	seen := map[string]bool{}
	for _, p := range pkgs {
		if !name.MatchString(p.Name) || seen[p.Name] {
			t.Errorf("%q is no package name, or stands there twice", p.Name)
		}
		seen[p.Name] = true
	}
	if len(pkgs) == 0 {
		t.Error("the list is empty")
	}
	for _, bad := range []string{"a b demo\n", "a b often why\n"} {
		if _, err := parse(bad); err == nil {
			t.Errorf("parse(%q) gives no error", bad)
		}
	}
}

// script runs packages.sh with a list of its own and returns what it printed.
func script(t *testing.T, packages string, args ...string) (out string, code int) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "list")
	if err := os.WriteFile(file, []byte(packages), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "./packages.sh", args...)
	cmd.Env = append(os.Environ(), "SAVEPOINT_SETUP_LIST="+file)
	text, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return string(text), cmd.ProcessState.ExitCode()
}

func TestScript(t *testing.T) {
	const (
		there  = "bash bash demo runs this script\n"
		gone   = "gone-a no-such-program-a demo does one thing\ngone-b /no/such/file demo does another\n"
		inTest = "gone-c no-such-program-c test tests\n"
	)
	tests := []struct {
		name, list string
		args       []string
		code       int
		want       []string
		not        []string
	}{
		{"all there", "# comment\n\n" + there, []string{"demo"}, 0, nil, []string{"a", "e"}},
		{"missing", there + gone + inTest, []string{"demo", "--check"}, 3, []string{"gone-a", "does one thing", "does another", "gone-a gone-b\n"}, []string{"bash bash", "gone-c"}},
		{"missing for the tests", there + inTest, []string{"test", "--check"}, 3, []string{"gone-c", "--no-install-recommends gone-c\n"}, nil},
		{"not for the demo", inTest, []string{"demo", "--check"}, 0, nil, nil},
		{"unknown tier", "a no-such-program often x\n", []string{"demo", "--check"}, 1, []string{`unknown tier "often"`}, nil},
		{"no tier", there, nil, 2, []string{"usage: "}, nil},
		{"wrong mode", there, []string{"demo", "--force"}, 2, []string{"usage: "}, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			out, code := script(t, tt.list, tt.args...)
			if code != tt.code {
				t.Errorf("exit code %d, want %d:\n%s", code, tt.code, out)
			}
			for _, w := range tt.want {
				// The command to type is Debian's; elsewhere there is advice.
				if _, err := exec.LookPath("apt-get"); err != nil && strings.HasSuffix(w, "\n") {
					continue
				}
				if !strings.Contains(out, w) {
					t.Errorf("does not say %q:\n%s", w, out)
				}
			}
			for _, w := range tt.not {
				if strings.Contains(out, w) {
					t.Errorf("says %q:\n%s", w, out)
				}
			}
		})
	}
}

func TestStep(t *testing.T) {
	for _, tt := range []struct {
		command []string
		code    int
		want    *regexp.Regexp
	}{
		{[]string{"true"}, 0, regexp.MustCompile(`^== name\n== name: ok in \d+\.\d s\n$`)},
		{[]string{"bash", "-c", "echo out; exit 7"}, 7, regexp.MustCompile(`^== name\nout\n== name: failed with exit code 7 in \d+\.\d s\n$`)},
		{[]string{"no-such-program-a"}, 127, regexp.MustCompile(`failed with exit code 127`)},
	} {
		cmd := exec.CommandContext(t.Context(), "./step.sh", append([]string{"name"}, tt.command...)...)
		out, err := cmd.CombinedOutput()
		if code := cmd.ProcessState.ExitCode(); code != tt.code {
			t.Errorf("%v: exit code %d (%v), want %d", tt.command, code, err, tt.code)
		}
		if !tt.want.Match(out) {
			t.Errorf("%v: printed %q, want %s", tt.command, out, tt.want)
		}
	}
}

// Both texts run at once and to their end, and either one's failure is told.
func TestBeside(t *testing.T) {
	dir := t.TempDir()
	// Each waits for the other.
	meet := func(mine, other, then string) string {
		return ": > " + dir + "/" + mine + "; until test -e " + dir + "/" + other + "; do sleep 0.01; done; " + then
	}
	for _, tt := range []struct {
		one, two string
		code     int
	}{
		{"true", "true", 0}, {"exit 3", "echo two", 3}, {"echo one", "exit 5", 5},
	} {
		cmd := exec.CommandContext(t.Context(), "./beside.sh", meet("a", "b", "echo out; "+tt.one), meet("b", "a", "echo out; "+tt.two))
		out, err := cmd.CombinedOutput()
		if code := cmd.ProcessState.ExitCode(); code != tt.code || strings.Count(string(out), "out\n") != 2 {
			t.Errorf("%q beside %q: exit code %d (%v), want %d: %s", tt.one, tt.two, code, err, tt.code, out)
		}
		for _, name := range []string{"a", "b"} {
			if err := os.Remove(filepath.Join(dir, name)); err != nil {
				t.Error(err)
			}
		}
	}
}

// A signal ends what both started; nothing outlives the build.
func TestBesideInterrupted(t *testing.T) {
	ready := filepath.Join(t.TempDir(), "ready")
	cmd := exec.CommandContext(t.Context(), "./beside.sh", "mkfifo "+ready+"; read line < "+ready, "until test -p "+ready+"; do sleep 0.01; done; echo ready; sleep 1000; echo not reached")
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "ready\n" {
		t.Fatalf("%q, %v", line, err)
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	// The pipe ends with the last process that holds it.
	if rest, err := io.ReadAll(out); err != nil || len(rest) > 0 {
		t.Errorf("%q, %v", rest, err)
	}
	if err := cmd.Wait(); err == nil {
		t.Error("it says that all went well")
	}
}

// TestOpenSSH: what is there is not fetched again, and half of it is not taken for it.
func TestOpenSSH(t *testing.T) {
	run := func(args ...string) (string, int) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), "./openssh.sh", args...)
		cmd.Env = append(os.Environ(), "PATH="+fakeApt(t))
		text, err := cmd.CombinedOutput()
		var exit *exec.ExitError
		if err != nil && !errors.As(err, &exit) {
			t.Fatal(err)
		}
		return string(text), cmd.ProcessState.ExitCode()
	}
	if out, code := run(); code != 2 || !strings.HasPrefix(out, "usage: openssh.sh DIR") {
		t.Errorf("without a directory: %d, %s", code, out)
	}
	if _, err := os.Stat("/usr/sbin/sshd"); err == nil {
		t.Skip("this machine has an OpenSSH server, which is used")
	}
	dir := t.TempDir()
	if out, code := run(dir); code != 1 || !strings.Contains(out, "could not download openssh-server") {
		t.Errorf("when apt fails: %d, %s", code, out)
	}
	if err := os.WriteFile(filepath.Join(dir, "sshd"), nil, 0o700); err != nil {
		t.Fatal(err)
	}
	if out, code := run(dir); code != 0 || out != "" {
		t.Errorf("when it is there: %d, %s", code, out)
	}
}

// fakeApt is a PATH on which apt-get fails.
func fakeApt(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "apt-get"), []byte("#!/bin/sh\nexit 100\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	return dir + ":" + os.Getenv("PATH")
}
