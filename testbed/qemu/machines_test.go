package qemu

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"savepoint/orchestrator"
	"savepoint/testbed/notes"
	"savepoint/testbed/pve"
)

// fakeMachines runs machines on the fake program; see fakeProgram for the modes.
func fakeMachines(t *testing.T, mode string) (*Machines, Config, *[]string) {
	t.Helper()
	t.Setenv("SAVEPOINT_FAKE_QEMU", mode)
	var mu sync.Mutex
	var notices []string
	// The directory is deeper than a socket's path may be.
	dir := filepath.Join(t.TempDir(), strings.Repeat("deep/", 20), "run")
	cfg := Config{Dir: dir, QEMU: os.Args[0], Images: fakeImg(t, "exit 0"), Notice: func(s string) {
		mu.Lock()
		defer mu.Unlock()
		notices = append(notices, s)
	}}
	m, err := New(context.Background(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
	return m, cfg, &notices
}

func fakeSpec() pve.Machine {
	m := testMachine()
	m.Agent = false
	return m
}

func records(t *testing.T, cfg Config) []string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(cfg.Dir, "vm-*", "*"))
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, f := range found {
		if !strings.HasSuffix(f, ".log") {
			out = append(out, filepath.Base(f))
		}
	}
	return out
}

func alive(pid int) bool {
	_, err := notes.System.Started(pid)
	return err == nil
}

func TestStartStatusStop(t *testing.T) {
	m, cfg, _ := fakeMachines(t, "ok")
	ctx := context.Background()
	if got := m.Status(104); got != (pve.MachineStatus{}) {
		t.Errorf("before: %+v", got)
	}
	if err := m.Start(ctx, fakeSpec()); err != nil {
		t.Fatal(err)
	}
	st := m.Status(104)
	if !st.Running || !alive(st.PID) || st.SSH != netip.MustParseAddrPort("127.0.0.1:42175") {
		t.Errorf("status: %+v", st)
	}
	if err := m.Start(ctx, fakeSpec()); !errors.Is(err, orchestrator.ErrExists) {
		t.Errorf("starting twice: %v", err)
	}
	v, err := m.find(104)
	if err != nil {
		t.Fatal(err)
	}
	if err := v.qmp.execute(ctx, "stop", nil, nil); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "pause", func() bool { return m.Status(104).Paused })
	waitFor(t, "console", func() bool { return strings.Contains(m.Console(104), "hello from the console") })
	if err := m.Stop(ctx, 104, false); err != nil {
		t.Fatal(err)
	}
	if alive(st.PID) || m.Status(104).Running {
		t.Error("it still runs")
	}
	if left := records(t, cfg); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
	if err := m.Stop(ctx, 104, false); err != nil {
		t.Errorf("stopping twice: %v", err)
	}
	if _, err := m.Agent(ctx, 104, "guest-ping", nil); !errors.Is(err, orchestrator.ErrNotFound) {
		t.Errorf("agent of a stopped VM: %v", err)
	}
	if err := m.Start(ctx, fakeSpec()); err != nil {
		t.Errorf("starting again: %v", err)
	}
}

// waitFor polls a condition that another process brings about.
func waitFor(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within 20 s", what)
		}
		<-tick.C
	}
}

func TestQEMUThatDiesAtStart(t *testing.T) {
	m, cfg, _ := fakeMachines(t, "dies")
	err := m.Start(context.Background(), fakeSpec())
	if err == nil || !strings.Contains(err.Error(), "Cannot allocate memory") || !errors.Is(err, orchestrator.ErrUnavailable) {
		t.Errorf("got %v, want QEMU's own words", err)
	}
	if left := records(t, cfg); len(left) != 0 || m.Status(104).Running {
		t.Errorf("left: %v", left)
	}
}

func TestStartHonoursItsContext(t *testing.T) {
	for _, mode := range []string{"hangs", "wedges"} {
		t.Run(mode, func(t *testing.T) {
			m, cfg, _ := fakeMachines(t, mode)
			ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
			defer cancel()
			if err := m.Start(ctx, fakeSpec()); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("got %v", err)
			}
			if left := records(t, cfg); len(left) != 0 {
				t.Errorf("left: %v", left)
			}
		})
	}
}

func TestEndIsNoticed(t *testing.T) {
	m, cfg, _ := fakeMachines(t, "ok")
	if err := m.Start(context.Background(), fakeSpec()); err != nil {
		t.Fatal(err)
	}
	v, err := m.find(104)
	if err != nil {
		t.Fatal(err)
	}
	if err := v.process.kill(); err != nil {
		t.Fatal(err)
	}
	<-v.watched
	if m.Status(104).Running || len(records(t, cfg)) != 0 {
		t.Errorf("after a kill: %+v, %v", m.Status(104), records(t, cfg))
	}
}

func TestStubbornQEMUIsKilled(t *testing.T) {
	m, _, _ := fakeMachines(t, "stubborn")
	if err := m.Start(context.Background(), fakeSpec()); err != nil {
		t.Fatal(err)
	}
	pid := m.Status(104).PID
	if err := m.Stop(context.Background(), 104, false); err != nil || alive(pid) {
		t.Errorf("stop: %v, alive: %v", err, alive(pid))
	}
}

func TestGracefulStop(t *testing.T) {
	m, _, _ := fakeMachines(t, "ok")
	if err := m.Start(context.Background(), fakeSpec()); err != nil {
		t.Fatal(err)
	}
	if err := m.Stop(context.Background(), 104, true); err != nil || m.Status(104).Running {
		t.Errorf("stop: %v", err)
	}
	m, _, _ = fakeMachines(t, "deaf")
	if err := m.Start(context.Background(), fakeSpec()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	if err := m.Stop(ctx, 104, true); !errors.Is(err, orchestrator.ErrUnknownOutcome) || !m.Status(104).Running {
		t.Errorf("a guest that does not listen: %v, %+v", err, m.Status(104))
	}
}

func TestAdoption(t *testing.T) {
	m, cfg, notices := fakeMachines(t, "ok")
	ctx := context.Background()
	if err := m.Start(ctx, fakeSpec()); err != nil {
		t.Fatal(err)
	}
	before := m.Status(104)
	if _, err := New(ctx, cfg); !errors.Is(err, orchestrator.ErrBusy) {
		t.Errorf("a second owner: %v", err)
	}
	m.abandon()
	next, err := New(ctx, cfg)
	if err != nil {
		t.Fatal(err)
	}
	if got := next.Status(104); got != before {
		t.Errorf("adopted: got %+v, want %+v (%v)", got, before, *notices)
	}
	if err := next.Close(); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "end of the adopted process", func() bool { return !alive(before.PID) })
	if left := records(t, cfg); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
	if err := next.Start(ctx, fakeSpec()); !errors.Is(err, orchestrator.ErrUnavailable) {
		t.Errorf("start after close: %v", err)
	}
}

// What a killed owner left half-started was never reported as started: it is
// ended, also when only the intent had been written.
func TestHalfStartedIsEnded(t *testing.T) {
	for name, change := range map[string]func(*record){
		"not ready":   func(r *record) { r.Ready = false },
		"only intent": func(r *record) { r.PID, r.Started, r.Ready = 0, 0, false },
	} {
		t.Run(name, func(t *testing.T) {
			m, cfg, _ := fakeMachines(t, "ok")
			if err := m.Start(context.Background(), fakeSpec()); err != nil {
				t.Fatal(err)
			}
			pid := m.Status(104).PID
			m.abandon()
			dir := machineDir(cfg.Dir, 104)
			r, err := loadRecord(dir)
			if err != nil {
				t.Fatal(err)
			}
			change(&r)
			if err := r.save(dir); err != nil {
				t.Fatal(err)
			}
			next, err := New(context.Background(), cfg)
			if err != nil {
				t.Fatal(err)
			}
			defer next.Close()
			waitFor(t, "end", func() bool { return !alive(pid) })
			if next.Status(104).Running || len(records(t, cfg)) != 0 {
				t.Errorf("left: %+v, %v", next.Status(104), records(t, cfg))
			}
		})
	}
}

// F22: a process that has our id but is not ours is left alone.
func TestForeignProcessIsLeftAlone(t *testing.T) {
	m, cfg, _ := fakeMachines(t, "ok")
	if err := m.Start(context.Background(), fakeSpec()); err != nil {
		t.Fatal(err)
	}
	v, err := m.find(104)
	if err != nil {
		t.Fatal(err)
	}
	pid := v.process.pid
	m.abandon()
	defer func() {
		_ = v.process.kill()
		<-v.process.gone
		<-v.watched
	}()
	dir := machineDir(cfg.Dir, 104)
	good, err := loadRecord(dir)
	if err != nil {
		t.Fatal(err)
	}
	if got := good.find(notes.System); got != pid {
		t.Fatalf("find: %d, want %d", got, pid)
	}
	for name, change := range map[string]func(*record){
		"start time":        func(r *record) { r.Started++ },
		"token":             func(r *record) { r.Token = strings.Repeat("x", 26) },
		"vm":                func(r *record) { r.Machine.VMID = 105 },
		"token, id unknown": func(r *record) { r.Token, r.PID = strings.Repeat("x", 26), 0 },
	} {
		r := good
		change(&r)
		if got := r.find(notes.System); got != 0 {
			t.Errorf("%s differs: process %d was taken for ours", name, got)
		}
	}
	bad := good
	bad.Started++
	if err := bad.save(dir); err != nil {
		t.Fatal(err)
	}
	next, err := New(context.Background(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer next.Close()
	if !alive(pid) || next.Status(104).Running {
		t.Errorf("alive: %v, status %+v", alive(pid), next.Status(104))
	}
}

func TestDamagedRecordIsRefused(t *testing.T) {
	m, cfg, _ := fakeMachines(t, "ok")
	m.abandon()
	dir := machineDir(cfg.Dir, 9)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, recordName), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := New(context.Background(), cfg); err == nil || !strings.Contains(err.Error(), recordName) {
		t.Errorf("got %v, want the record's name", err)
	}
}

func TestConsoleIsBounded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "console.log")
	flood := strings.NewReader(strings.Repeat("x", 5*consoleLimit) + "the end")
	if err := logConsole(flood, path); err != nil {
		t.Fatal(err)
	}
	var sum int64
	for _, p := range []string{path, path + ".old"} {
		st, err := os.Stat(p)
		if err != nil {
			t.Fatal(err)
		}
		sum += st.Size()
	}
	if sum > 2*consoleLimit {
		t.Errorf("%d bytes kept", sum)
	}
	if got := logTail(filepath.Dir(path), "console.log"); !strings.HasSuffix(got, "the end") {
		t.Errorf("tail: %.20q", got)
	}
}
