package notes_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"savepoint/testbed/notes"
)

func TestWrite(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "thing.json")
	type thing struct{ Name string }
	for _, name := range []string{"first, which is longer", "second"} {
		if err := notes.WriteJSON(path, thing{name}); err != nil {
			t.Fatal(err)
		}
		var got thing
		raw, err := os.ReadFile(path)
		if err == nil {
			err = json.Unmarshal(raw, &got)
		}
		if err != nil || got.Name != name || !strings.HasSuffix(string(raw), "}\n") {
			t.Errorf("%q, %v", raw, err)
		}
	}
	if st, err := os.Stat(path); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", st.Mode(), err)
	}
	if left, _ := os.ReadDir(dir); len(left) != 1 {
		t.Errorf("left %v", left)
	}
	if err := notes.WriteJSON(path, func() {}); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("what is no JSON: %v", err)
	}
	// The old content stays when the new one cannot take its place.
	taken := filepath.Join(dir, "directory")
	if err := os.MkdirAll(filepath.Join(taken, "with something"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := notes.Write(taken, nil); err == nil {
		t.Error("a directory was replaced")
	}
	if err := notes.Write(filepath.Join(dir, "nowhere", "x"), nil); err == nil {
		t.Error("wrote where there is no directory")
	}
}

// sleeper is a process with an argument. It stands still, and does not end by
// SIGTERM when it is deaf.
func sleeper(t *testing.T, token string, deaf bool) *exec.Cmd {
	t.Helper()
	script := "echo ready; read line"
	if deaf {
		script = "trap '' TERM; echo ready; read line"
	}
	cmd := exec.Command("sh", "-c", script, token)
	hold, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		hold.Close()
		_ = cmd.Wait()
	})
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	return cmd
}

func TestFind(t *testing.T) {
	cmd, other := sleeper(t, "token-of-one", false), sleeper(t, "token-of-other", false)
	pid := cmd.Process.Pid
	at, err := notes.System.Started(pid)
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name string
		p    notes.Process
		want []int
	}{
		{"itself", notes.Process{Token: "token-of-one", PID: pid, Started: at}, []int{pid}},
		{"id not noted", notes.Process{Token: "token-of-one"}, []int{pid}},
		{"another start", notes.Process{Token: "token-of-one", PID: pid, Started: at + 1}, nil},
		{"another argument", notes.Process{Token: "token-of-other", PID: pid, Started: at}, nil},
		{"another id", notes.Process{Token: "token-of-one", PID: other.Process.Pid, Started: at}, nil},
		{"a part of the argument", notes.Process{Token: "token-of"}, nil},
		{"nothing", notes.Process{Token: "token-of-nobody"}, nil},
	} {
		if got, err := notes.System.Find(tt.p); err != nil || !slices.Equal(got, tt.want) {
			t.Errorf("%s: %v, %v, want %v", tt.name, got, err, tt.want)
		}
	}
	if got := notes.System.Args(pid); !slices.Equal(got, []string{"sh", "-c", "echo ready; read line", "token-of-one"}) {
		t.Errorf("arguments %q", got)
	}
	if _, err := notes.Proc(t.TempDir() + "/none").Find(notes.Process{Token: "x"}); err == nil {
		t.Error("found where there is nothing to look at")
	}
}

// What the kernel may show of a process, without one.
func TestStarted(t *testing.T) {
	const rest = " 1 1 0 -1 4194304 1 0 0 0 0 0 0 0 20 0 1 0 98765 1 1"
	for _, tt := range []struct {
		name, stat string
		want       uint64
		ok         bool
	}{
		{"plain", "7 (zebra) S 1" + rest, 98765, true},
		{"a name like the fields", "7 (a) Z 1 (b) ) S 1" + rest, 98765, true},
		{"ended", "7 (zebra) Z 1" + rest, 0, false},
		{"short", "7 (zebra) S 1 2 3", 0, false},
		{"no name", "7 zebra S 1" + rest, 0, false},
		{"no number", "7 (zebra) S 1" + strings.Replace(rest, "98765", "soon", 1), 0, false},
	} {
		dir := t.TempDir()
		if err := os.Mkdir(filepath.Join(dir, "7"), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "7", "stat"), []byte(tt.stat), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := notes.Proc(dir).Started(7); got != tt.want || (err == nil) != tt.ok {
			t.Errorf("%s: %d, %v", tt.name, got, err)
		}
	}
}

func yes() bool { return true }

func TestEnd(t *testing.T) {
	for _, tt := range []struct {
		name     string
		deaf     bool
		patience time.Duration
		by       unix.Signal
	}{
		{"asked", false, time.Minute, unix.SIGTERM},
		{"deaf", true, time.Millisecond, unix.SIGKILL},
		{"at once", false, 0, unix.SIGKILL},
	} {
		cmd := sleeper(t, "token-to-end", tt.deaf)
		h, err := notes.Open(cmd.Process.Pid, yes)
		if err != nil {
			t.Fatal(err)
		}
		if err := h.End(t.Context(), tt.patience); err != nil {
			t.Errorf("%s: %v", tt.name, err)
		}
		// It is a child of ours that nobody waited for: gone, and no error to end.
		if _, err := notes.System.Started(cmd.Process.Pid); !errors.Is(err, os.ErrProcessDone) {
			t.Errorf("%s: it runs: %v", tt.name, err)
		}
		if err := h.End(t.Context(), tt.patience); err != nil {
			t.Errorf("%s: a second time: %v", tt.name, err)
		}
		var exit *exec.ExitError
		if err := cmd.Wait(); !errors.As(err, &exit) || exit.Sys().(interface{ Signal() unix.Signal }).Signal() != tt.by {
			t.Errorf("%s: ended by %v, want %v", tt.name, err, tt.by)
		}
		if err := h.Close(); err != nil {
			t.Errorf("%s: %v", tt.name, err)
		}
		if _, err := notes.Open(cmd.Process.Pid, yes); !errors.Is(err, os.ErrProcessDone) {
			t.Errorf("%s: opened what is gone: %v", tt.name, err)
		}
	}
}

// A process that is not the one that is meant is let alone, and so is one whose
// ender was told to stop.
func TestOpenLooksAgain(t *testing.T) {
	cmd := sleeper(t, "token-of-another", false)
	if _, err := notes.Open(cmd.Process.Pid, func() bool { return false }); !errors.Is(err, os.ErrProcessDone) {
		t.Errorf("opened: %v", err)
	}
	h, err := notes.Open(cmd.Process.Pid, yes)
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	stop := errors.New("no more")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(stop)
	if err := h.Wait(ctx); !errors.Is(err, stop) {
		t.Errorf("waited: %v", err)
	}
	if _, err := notes.System.Started(cmd.Process.Pid); err != nil {
		t.Errorf("it does not run: %v", err)
	}
}
