package lab

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"savepoint/testbed/notes"
)

// up starts this test binary as a lab of the given mode.
func up(t *testing.T, ctx context.Context, mode, dir string, say func(string)) (Status, bool, error) {
	t.Helper()
	t.Setenv(modeVar, mode)
	t.Setenv(dirVar, dir)
	if say == nil {
		say = func(string) {}
	}
	return Up(ctx, dir, os.Args[0], nil, say)
}

func mustUp(t *testing.T, mode, dir string) Status {
	t.Helper()
	st, started, err := up(t, t.Context(), mode, dir, nil)
	if err != nil || !started {
		t.Fatalf("up: started %t, %v", started, err)
	}
	t.Cleanup(func() { // a test that failed in the middle leaves no process
		if err := end(context.Background(), dir, time.Second); err != nil && !errors.Is(err, os.ErrNotExist) {
			if running, _ := held(dir); running {
				t.Error(err)
			}
		}
	})
	return st
}

func isHeld(t *testing.T, dir string) bool {
	t.Helper()
	h, err := held(dir)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// innocent starts a process that is none of the lab's.
func innocent(t *testing.T) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), modeVar+"="+modeInnocent)
	hold, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		hold.Close()
		if err := cmd.Wait(); err != nil {
			t.Errorf("the process that has nothing to do with the lab: %v", err)
		}
	})
	return cmd
}

func record(t *testing.T, dir string, p process) {
	t.Helper()
	raw, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	if err := notes.Write(processFile(dir), raw); err != nil {
		t.Fatal(err)
	}
}

func TestUpAndDown(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "lab")
	if st, err := Read(dir); err != nil || st.Running || st.StateDir != dir {
		t.Errorf("before: %+v, %v", st, err)
	}
	if was, err := Down(t.Context(), dir); err != nil || was {
		t.Errorf("down before: %t, %v", was, err)
	}
	var said []string
	st, started, err := up(t, t.Context(), modeServe, dir, func(s string) { said = append(said, s) })
	if err != nil || !started || !st.Running {
		t.Fatalf("up: %+v, %t, %v", st, started, err)
	}
	if len(said) != 1 || said[0] != "starting" {
		t.Errorf("steps %v", said)
	}
	again, started, err := up(t, t.Context(), modeServe, dir, nil)
	if err != nil || started || again.PID != st.PID {
		t.Errorf("up again: pid %d instead of %d, started %t, %v", again.PID, st.PID, started, err)
	}
	if info, err := os.Stat(statusFile(dir)); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("status file: %v, %v; it holds secrets", info.Mode(), err)
	}
	if err := Purge(t.Context(), dir); err == nil || !strings.Contains(err.Error(), "it runs") {
		t.Errorf("purge while it runs: %v", err)
	}
	if was, err := Down(t.Context(), dir); err != nil || !was {
		t.Errorf("down: %t, %v", was, err)
	}
	st, err = Read(dir)
	if err != nil || st.Running || st.Nodes[0].Online || isHeld(t, dir) {
		t.Errorf("after: %+v, %v", st, err)
	}
	if was, err := Down(t.Context(), dir); err != nil || was {
		t.Errorf("down again: %t, %v", was, err)
	}
	if err := Purge(t.Context(), dir); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("after the purge: %v", err)
	}
}

func TestUpFails(t *testing.T) {
	for mode, want := range map[string]string{modeFail: "qemu is not installed", modeDie: "ended before it was ready"} {
		t.Run(mode, func(t *testing.T) {
			dir := t.TempDir()
			st, started, err := up(t, t.Context(), mode, dir, nil)
			if err == nil || started || st.Running {
				t.Fatalf("%+v, %t, %v", st, started, err)
			}
			if !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), filepath.Join(dir, "lab.log")) {
				t.Errorf("%v; want %q and where the log is", err, want)
			}
			if isHeld(t, dir) {
				t.Error("the process is left")
			}
		})
	}
	t.Run("no program", func(t *testing.T) {
		if _, _, err := Up(t.Context(), t.TempDir(), "/does/not/exist", nil, nil); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%v", err)
		}
	})
}

// A start that is given up leaves no process.
func TestUpInterrupted(t *testing.T) {
	dir := t.TempDir()
	ctx, cancel := context.WithCancelCause(t.Context())
	reason := errors.New("not done within 1s")
	_, started, err := up(t, ctx, modeSlow, dir, func(string) { cancel(reason) })
	if !errors.Is(err, reason) || started {
		t.Errorf("started %t, %v; want the reason", started, err)
	}
	if isHeld(t, dir) {
		t.Error("the process is left")
	}
}

// A lab that was killed counts as down, whatever its files say, and starts again.
func TestKilled(t *testing.T) {
	dir := t.TempDir()
	st := mustUp(t, modeServe, dir)
	if err := unix.Kill(st.PID, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if err := waitReleased(t.Context(), dir, nil, 10*time.Second); err != nil {
		t.Fatal(err)
	}
	if st, err := Read(dir); err != nil || st.Running {
		t.Errorf("read: %+v, %v", st, err)
	}
	if was, err := Down(t.Context(), dir); err != nil || was {
		t.Errorf("down: %t, %v", was, err)
	}
	if next := mustUp(t, modeServe, dir); next.PID == st.PID {
		t.Error("the same pid again")
	}
	if was, err := Down(t.Context(), dir); err != nil || !was {
		t.Errorf("down: %t, %v", was, err)
	}
}

// A process that does not end when asked is killed, and only it.
func TestStubborn(t *testing.T) {
	dir := t.TempDir()
	other := innocent(t)
	mustUp(t, modeStubborn, dir)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
	if err := end(ctx, dir, time.Hour); !errors.Is(err, context.DeadlineExceeded) || !isHeld(t, dir) {
		t.Errorf("end within the context: %v; want that it did not", err)
	}
	cancel()
	if err := end(t.Context(), dir, 20*time.Millisecond); err != nil || isHeld(t, dir) {
		t.Errorf("end: %v", err)
	}
	if err := unix.Kill(other.Process.Pid, 0); err != nil {
		t.Errorf("another process was hit: %v", err)
	}
}

// TestReusedPID: a record whose pid belongs to a later process is no reason to
// end that one, be the lock free or held by somebody else.
func TestReusedPID(t *testing.T) {
	dir := t.TempDir()
	other := innocent(t)
	start, err := notes.System.Started(other.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	record(t, dir, process{PID: other.Process.Pid, Start: start + 1})
	if was, err := Down(t.Context(), dir); err != nil || was {
		t.Errorf("down with the lock free: %t, %v", was, err)
	}
	f, ok, err := lock(dir)
	if err != nil || !ok {
		t.Fatal(ok, err)
	}
	defer f.Close()
	if was, err := Down(t.Context(), dir); err == nil || !was || !strings.Contains(err.Error(), "left alone") {
		t.Errorf("down with the lock held: %t, %v; want a refusal", was, err)
	}
	if err := unix.Kill(other.Process.Pid, 0); err != nil {
		t.Errorf("the other process was hit: %v", err)
	}
	// Also when nothing tells who holds it.
	if err := os.Remove(processFile(dir)); err != nil {
		t.Fatal(err)
	}
	if _, err := Down(t.Context(), dir); err == nil || !strings.Contains(err.Error(), "no record") {
		t.Errorf("down without a record: %v", err)
	}
}

type report struct {
	bytes.Buffer
	closed bool
}

func (r *report) Close() error { r.closed = true; return nil }

// A second lab in the same directory does not start, and says so to who waits.
func TestServeTwice(t *testing.T) {
	dir := t.TempDir()
	f, ok, err := lock(dir)
	if err != nil || !ok {
		t.Fatal(ok, err)
	}
	defer f.Close()
	var r report
	err = Serve(t.Context(), Options{Dir: dir, Report: &r})
	if err == nil || !strings.Contains(err.Error(), "another lab runs") {
		t.Errorf("%v", err)
	}
	if _, rerr := awaitReady(&r, func(string) {}); rerr == nil || rerr.Error() != err.Error() || !r.closed {
		t.Errorf("reported %v, closed %t", rerr, r.closed)
	}
	if _, err := os.Stat(processFile(dir)); err == nil {
		t.Error("the record of the running one was replaced")
	}
}

// Somebody who looks whether a lab runs does not keep one from starting.
func TestLookWhileStarting(t *testing.T) {
	dir := t.TempDir()
	look, ok, err := lock(dir)
	if err != nil || !ok {
		t.Fatal(ok, err)
	}
	time.AfterFunc(30*time.Millisecond, func() { look.Close() })
	f, ok, err := lockSoon(dir, 10*time.Second)
	if err != nil || !ok {
		t.Fatal(ok, err)
	}
	f.Close()
}

func TestPurgeForeign(t *testing.T) {
	dir := t.TempDir()
	mine := filepath.Join(dir, "thesis.txt")
	if err := os.WriteFile(mine, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Purge(t.Context(), dir); err == nil || !strings.Contains(err.Error(), "does not look like") {
		t.Errorf("%v", err)
	}
	if _, err := os.Stat(mine); err != nil {
		t.Error(err)
	}
	if err := Purge(t.Context(), filepath.Join(dir, "missing")); err != nil {
		t.Errorf("nothing to remove: %v", err)
	}
}

// A lab that never came as far as a status can be removed too.
func TestPurgeAfterFailedStart(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "lab")
	if _, _, err := up(t, t.Context(), modeFail, dir, nil); err == nil {
		t.Fatal("it started")
	}
	if err := Purge(t.Context(), dir); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("after the purge: %v", err)
	}
}

func TestReadDamaged(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(statusFile(dir), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Read(dir); err == nil || !strings.Contains(err.Error(), statusFile(dir)) {
		t.Errorf("%v; want the file and what to do", err)
	}
}

func TestAwaitReady(t *testing.T) {
	for text, want := range map[string]string{
		"":                           "ended before it was ready",
		"not json\n":                 `unexpected report "not json"`,
		`{"error":"no root"}` + "\n": "no root",
	} {
		if _, err := awaitReady(io.NopCloser(strings.NewReader(text)), func(string) {}); err == nil || err.Error() != want && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v; want %q", text, err, want)
		}
	}
}

// While a lab starts, the status of an earlier one must not be taken for it.
func TestStaleStatus(t *testing.T) {
	dir := t.TempDir()
	if err := notes.Write(statusFile(dir), []byte(`{"running":true,"api_url":"https://127.0.0.1:1"}`)); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // it comes no further than its first step
	if err := Serve(ctx, Options{Dir: dir, Cache: t.TempDir()}); err == nil {
		t.Error("it started within a context that had ended")
	}
	f, ok, err := lock(dir) // as the starting lab holds it
	if err != nil || !ok {
		t.Fatal(ok, err)
	}
	defer f.Close()
	if st, err := Read(dir); err != nil || st.Running || st.APIURL != "" {
		t.Errorf("read: %+v, %v; want that none runs yet", st, err)
	}
}
