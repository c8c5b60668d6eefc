package task_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"savepoint/testbed/pve/task"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func open(t *testing.T, dir string, hook task.Hook) *task.Registry {
	t.Helper()
	r, err := task.Open(dir, "pve1", time.Now, hook)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	return r
}

// run starts a task and returns its name.
func run(t *testing.T, r *task.Registry, fn func(*task.Worker) error) string {
	t.Helper()
	name, err := r.Run("qmstart", "100", "sp@pve!t1", fn)
	if err != nil {
		t.Fatal(err)
	}
	return name
}

func end(t *testing.T, r *task.Registry, name string) (status string, log []string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := r.Wait(ctx, name); err != nil {
		t.Fatal(err)
	}
	info, ok := r.Lookup(name)
	if !ok || info.Running {
		t.Fatalf("task %s: %+v", name, info)
	}
	log, _ = r.Log(name)
	return info.Status, log
}

func TestUPID(t *testing.T) {
	const text = "UPID:pve1:0000048A:0009B971:6B0EFD70:qmstart:110:sp@pve!t1:"
	u, ok := task.Parse(text)
	if !ok || u.String() != text || u.Type != "qmstart" || u.PID != 0x48a {
		t.Fatalf("%+v %v", u, ok)
	}
	if user, tok := u.Owner(); user != "sp@pve" || tok != "t1" {
		t.Errorf("owner %s %s", user, tok)
	}
	for _, bad := range []string{"", "UPID:bad", text[:len(text)-1], strings.Replace(text, "pve1", "-", 1), text + "x"} {
		if _, ok := task.Parse(bad); ok {
			t.Errorf("%q accepted", bad)
		}
	}
	if _, ok := task.Parse("UPID:pve1:0000048A:0009B971:6B0EFD70:reloadnetworkall::root@pam:"); !ok {
		t.Error("an empty id is refused")
	}
}

func TestOutcomes(t *testing.T) {
	r := open(t, t.TempDir(), nil)
	for _, tt := range []struct {
		name   string
		fn     func(*task.Worker) error
		status string
		log    []string
	}{
		{"ok", func(w *task.Worker) error { w.Log("one %d", 1); return nil }, "OK", []string{"one 1", "TASK OK"}},
		{"F46 warnings", func(w *task.Worker) error { w.Warn("hm"); return nil }, "WARNINGS: 1", []string{"WARN: hm", "TASK WARNINGS: 1"}},
		{"error", func(*task.Worker) error { return errors.New("a\nb\n") }, "a b", []string{"TASK ERROR: a b"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			status, log := end(t, r, run(t, r, tt.fn))
			if diff := cmp.Diff(tt.log, log); status != tt.status || diff != "" {
				t.Errorf("status %q %s", status, diff)
			}
		})
	}
	if got := r.Finished(); len(got) != 3 || got[0].Status != "a b" {
		t.Errorf("finished: %+v", got)
	}
}

func TestStopAndKill(t *testing.T) {
	r := open(t, t.TempDir(), nil)
	started, cleaned := make(chan bool, 2), make(chan bool, 2)
	wait := func(w *task.Worker) error {
		w.Log("waiting")
		started <- true
		<-w.Context().Done()
		cleaned <- w.Alive()
		return w.Context().Err()
	}
	name := run(t, r, wait)
	<-started
	if got := r.Running(); len(got) != 1 || got[0].Name != name {
		t.Errorf("running: %+v", got)
	}
	r.Stop(name, 5*time.Second)
	if status, log := end(t, r, name); status != "received interrupt" || log[len(log)-1] != "TASK ERROR: received interrupt" {
		t.Errorf("stopped: %q %q", status, log)
	}
	if !<-cleaned {
		t.Error("an interrupted worker may clean up")
	}
	r.Stop(name, time.Second) // no error on an ended one

	name = run(t, r, wait)
	<-started
	r.Kill(name)
	if status, log := end(t, r, name); status != "unexpected status" || log[len(log)-1] != "waiting" {
		t.Errorf("killed: %q %q", status, log)
	}
	if <-cleaned {
		t.Error("a killed worker thinks that it is alive")
	}
	name = run(t, r, func(w *task.Worker) error { started <- true; <-w.Context().Done(); w.Log("late"); return nil })
	<-started
	r.Kill(name)
	if status, _ := end(t, r, name); status != "unable to read tail (got 0 bytes)" {
		t.Errorf("killed before it logged: %q", status)
	}
}

func TestHook(t *testing.T) {
	var mu sync.Mutex
	acts := map[string]task.Action{"fail": {Fail: "no space"}, "kill": {Kill: true}}
	r := open(t, t.TempDir(), func(u task.UPID, step string) task.Action {
		mu.Lock()
		defer mu.Unlock()
		return acts[step]
	})
	step := func(name string) func(*task.Worker) error {
		return func(w *task.Worker) error {
			w.Log("before")
			if err := w.Step(name); err != nil {
				return err
			}
			w.Log("after")
			return nil
		}
	}
	if status, log := end(t, r, run(t, r, step("fail"))); status != "no space" || len(log) != 2 {
		t.Errorf("fail: %q %q", status, log)
	}
	if status, log := end(t, r, run(t, r, step("kill"))); status != "unexpected status" || len(log) != 1 {
		t.Errorf("kill: %q %q", status, log)
	}
	if status, _ := end(t, r, run(t, r, step("other"))); status != "OK" {
		t.Errorf("other: %q", status)
	}
	acts["hang"] = task.Action{Hang: true}
	name := run(t, r, step("hang"))
	r.Stop(name, 10*time.Second)
	if status, _ := end(t, r, name); status != "received interrupt" {
		t.Errorf("hang: %q", status)
	}
}

// F37 F49: what a dead process left is told by the log's last line.
func TestReopen(t *testing.T) {
	dir := t.TempDir()
	r := open(t, dir, nil)
	good := run(t, r, func(*task.Worker) error { return nil })
	end(t, r, good)
	blocked := make(chan struct{})
	lost := run(t, r, func(w *task.Worker) error { w.Log("half"); close(blocked); <-w.Context().Done(); return nil })
	<-blocked
	r.Close()

	// a task whose end was logged, but not yet indexed when the process died
	u, _ := task.Parse(good)
	u.PID += 50
	logged := u.String()
	path := filepath.Join(dir, "log", fmt.Sprintf("%02X", byte(u.PStart)), logged)
	if err := os.WriteFile(path, []byte("x\nTASK ERROR: it failed\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(filepath.Join(dir, "index"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(f, "start %s\nend UPID:torn", logged)
	f.Close()

	r = open(t, dir, nil)
	for name, want := range map[string]string{good: "OK", lost: "unexpected status", logged: "it failed"} {
		if status, _ := end(t, r, name); status != want {
			t.Errorf("%s: %q, want %q", name, status, want)
		}
	}
	next := run(t, r, func(*task.Worker) error { return nil })
	if v, _ := task.Parse(next); v.PID <= u.PID {
		t.Errorf("process id %d used again", v.PID)
	}
	end(t, r, next)
	r.Close()
	if _, err := r.Run("x", "", "u@pve", func(*task.Worker) error { return nil }); err == nil {
		t.Error("a closed registry starts tasks")
	}
}
