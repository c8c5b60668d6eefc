package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"savepoint/testbed/guest"
	"savepoint/testbed/lab"
)

// TestLab plays testdata/lab with real guests under QEMU. Beside the commands
// of TestStories it has:
//
//	kill-lab       end the lab's process with SIGKILL, as a crash does
//	nothing-left   no process of the lab may live, no socket exist
//	leak NODE SUBNET, seal NODE SUBNET    open a zone on a node, and close it
func TestLab(t *testing.T) {
	if os.Getenv("SAVEPOINT_LAB") != "1" {
		t.Skip("starts real guests under QEMU: set SAVEPOINT_LAB=1")
	}
	top, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	client, err := filepath.Abs(filepath.Join("testdata", "lab", "client.py"))
	if err != nil {
		t.Fatal(err)
	}
	cache, err := guest.CacheDir()
	if err != nil {
		t.Fatal(err)
	}
	testscript.Run(t, testscript.Params{
		Dir:                 filepath.Join("testdata", "lab"),
		RequireExplicitExec: true,
		WorkdirRoot:         t.TempDir(), // removed also when only some scripts run
		Setup: func(e *testscript.Env) error {
			e.Setenv("GORACE", os.Getenv("GORACE"))
			e.Setenv("SAVEPOINT_STATE_DIR", filepath.Join(e.WorkDir, "state"))
			e.Setenv("SAVEPOINT_CACHE", cache)
			e.Setenv("CLIENT", client)
			e.Setenv("CHECKOUT", top)
			dir := filepath.Join(e.WorkDir, "state", "lab")
			// A story that failed in the middle leaves a lab. It goes by force if need be:
			// what is left of it would be in the way of every other lab.
			e.Defer(func() {
				_, err := lab.Down(t.Context(), dir)
				if err := errors.Join(err, lab.Purge(t.Context(), dir)); err != nil {
					t.Error(err)
				}
			})
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exits":        exits,
			"interrupt":    interrupt,
			"crash":        crash,
			"kill-lab":     killLab,
			"nothing-left": nothingLeft,
			"leak":         leak,
			"seal":         seal,
		},
	})
}

func labPath(ts *testscript.TestScript) string {
	return labDir(ts.Getenv("SAVEPOINT_STATE_DIR"))
}

func killLab(ts *testscript.TestScript, _ bool, _ []string) {
	var p struct {
		PID int `json:"pid"`
	}
	raw, err := os.ReadFile(filepath.Join(labPath(ts), "process.json"))
	ts.Check(err)
	ts.Check(json.Unmarshal(raw, &p))
	ts.Check(syscall.Kill(p.PID, syscall.SIGKILL))
	deadline := time.Now().Add(10 * time.Second)
	for {
		st, err := lab.Read(labPath(ts))
		ts.Check(err)
		if !st.Running {
			return
		}
		if time.Now().After(deadline) {
			ts.Fatalf("the lab lives on after SIGKILL")
		}
		<-time.After(20 * time.Millisecond)
	}
}

// nothingLeft looks for processes that name the lab's directory, and sockets.
func nothingLeft(ts *testscript.TestScript, _ bool, _ []string) {
	dir := labPath(ts)
	entries, err := os.ReadDir("/proc")
	ts.Check(err)
	for _, e := range entries {
		if _, err := strconv.Atoi(e.Name()); err != nil {
			continue
		}
		line, err := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline"))
		if err == nil && bytes.Contains(line, []byte(dir)) {
			ts.Fatalf("process %s is left: %s", e.Name(), strings.ReplaceAll(string(line), "\x00", " "))
		}
	}
	err = filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err == nil && d.Type()&os.ModeSocket != 0 {
			ts.Fatalf("socket %s is left", path)
		}
		return nil
	})
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		ts.Check(err)
	}
}

// exits runs a command that has to end with the given exit code.
func exits(ts *testscript.TestScript, _ bool, args []string) {
	want := number(ts, args)
	err := ts.Exec(args[1], args[2:]...)
	got := 0
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		got = exit.ExitCode()
	} else {
		ts.Check(err)
	}
	if got != want {
		ts.Fatalf("exit code %d, want %d", got, want)
	}
}
