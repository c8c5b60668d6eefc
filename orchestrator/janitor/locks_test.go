package janitor

import (
	"strings"
	"testing"
	"time"

	"savepoint/orchestrator"
)

// F63 F64 F65 F67: a lock without a task is called stale at the second look,
// late enough after the first and not too late after it; then the sandbox is
// withheld with the command to mend it, and the lock itself is never touched.
func TestStaleLock(t *testing.T) {
	type step struct {
		after time.Duration
		do    func(*world)
		level Level // "" = no finding about the lock
	}
	lock := func(name string) func(*world) {
		return func(w *world) { w.vms[ref(9000)].Lock = name }
	}
	task := func(ids ...orchestrator.UPID) func(*world) {
		return func(w *world) { w.tasks[ref(9000)] = ids }
	}
	for name, steps := range map[string][]step{
		"two looks":           {{0, lock("snapshot-delete"), LevelWait}, {10 * time.Minute, nil, LevelOperator}, {time.Minute, nil, LevelOperator}},
		"too early":           {{0, lock("snapshot"), LevelWait}, {9 * time.Minute, nil, LevelWait}, {time.Minute, nil, LevelOperator}},
		"looks too far apart": {{0, lock("rollback"), LevelWait}, {3 * time.Hour, nil, LevelWait}, {10 * time.Minute, nil, LevelOperator}},
		"another lock":        {{0, lock("snapshot"), LevelWait}, {20 * time.Minute, lock("rollback"), LevelWait}},
		"free in between":     {{0, lock("snapshot"), LevelWait}, {20 * time.Minute, lock(""), ""}, {time.Minute, lock("snapshot"), LevelWait}},
		"somebody's backup":   {{0, lock("backup"), LevelWait}, {time.Hour, nil, LevelWait}, {time.Hour, nil, LevelWait}},
		"a task":              {{0, lock("snapshot"), LevelWait}, {20 * time.Minute, task("UPID:x"), LevelWait}},
		"clock set back":      {{0, lock("snapshot"), LevelWait}, {-time.Hour, nil, LevelWait}, {10 * time.Minute, nil, LevelOperator}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.sandbox("box", 9000, orchestrator.SandboxReady)
			stale := false
			for i, s := range steps {
				if s.do != nil {
					s.do(w)
				}
				after(w, s.after)
				before := w.vms[ref(9000)].Lock
				r, err := w.janitor().Clean(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				var got Finding
				if len(r.Findings) > 0 {
					got = r.Findings[0]
				}
				if got.Level != s.level || len(r.Findings) > 1 {
					t.Fatalf("look %d: %+v, want %q", i, r.Findings, s.level)
				}
				stale = s.level == LevelOperator
				if stale && (!strings.Contains(got.Command, "qm unlock 9000 (as root on node pve1), then savepoint sandbox release box") || got.Check == "") {
					t.Errorf("look %d: command %q, check %q", i, got.Command, got.Check)
				}
				if w.vms[ref(9000)].Lock != before {
					t.Errorf("look %d: the lock was touched", i)
				}
			}
			sb := w.sandboxes["sb-box"]
			if quarantined := sb.State == orchestrator.SandboxQuarantined; quarantined != stale {
				t.Errorf("sandbox %s, stale %t", sb.State, stale)
			}
			if stale && (!strings.Contains(sb.Reason, "qm unlock 9000") || !strings.Contains(sb.Reason, "sandbox release box")) {
				t.Errorf("reason %q", sb.Reason)
			}
		})
	}
}

// A token that sees only its own tasks cannot prove that none holds the lock:
// that is said to who has to decide (F64).
func TestOwnTasksOnly(t *testing.T) {
	w := newWorld(t)
	w.sandbox("box", 9000, orchestrator.SandboxReady)
	w.vms[ref(9000)].Lock = "backup"
	w.ownTasks = []string{"pve1"}
	r, err := w.janitor().Look(t.Context())
	if err != nil || !strings.Contains(r.Findings[0].Evidence, "Sys.Audit on /nodes/pve1") {
		t.Errorf("%+v, %v", r.Findings, err)
	}
}

// A dry run does not count as a look.
func TestDryLookIsNone(t *testing.T) {
	w := newWorld(t)
	w.sandbox("box", 9000, orchestrator.SandboxReady)
	w.vms[ref(9000)].Lock = "snapshot"
	for range 2 {
		if r, err := after(w, 20*time.Minute).janitor().Look(t.Context()); err != nil || r.Findings[0].Level != LevelWait {
			t.Errorf("%v, %v", brief(r), err)
		}
	}
	if len(w.notes.Sightings()) != 0 {
		t.Errorf("noted %v", w.notes.Sightings())
	}
}

// What is left behind a lock waits for it, and goes once an operator removed
// the lock: the whole way of F63, F66 and F67.
func TestBehindALock(t *testing.T) {
	w := newWorld(t)
	box := w.sandbox("box", 9000, orchestrator.SandboxReady)
	w.taken(box, 1, "delete")
	w.claim(box, 1, orchestrator.StateCommitted, true)
	w.memory(9000, orchestrator.SnapshotOf(txID(2)))
	w.vms[ref(9000)].Lock = "snapshot-delete"
	clean := func(want ...string) {
		t.Helper()
		r, err := after(w, 10*time.Minute).janitor().Clean(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		same(t, "clean", brief(r), want)
	}
	const snap, vol = "half-made-snapshot snapshot sp-01jx0000000000000000000001 of vm 9000 on pve1: ", "orphan-memory volume local:9000/vm-9000-state-sp-01jx0000000000000000000002.raw: "
	clean("wait stale-lock vm 9000 on pve1: found", "wait "+snap+"found", "wait "+vol+"found")
	clean("operator stale-lock vm 9000 on pve1: done", "wait "+snap+"found", "wait "+vol+"found")
	w.vms[ref(9000)].Lock = ""
	clean("operator quarantined-sandbox sandbox box: found", "collect "+snap+"done", "collect "+vol+"done")
	clean("operator quarantined-sandbox sandbox box: found")
}

// Locked clones: ours waits for an operator and is removed afterwards; one that
// carries no mark is never removed by us (F37, F121).
func TestLockedClones(t *testing.T) {
	w := newWorld(t)
	w.vm(9001, VM{Ours: true, HalfMade: true, Sandbox: "sb-x", Instance: instance, Lock: "clone"})
	w.vm(9002, VM{Lock: "clone"})
	sb := w.sandbox("new", 9003, orchestrator.SandboxCreating)
	w.vms[sb.VM].VM = VM{VM: sb.VM, Lock: "clone"}
	for _, want := range []string{"wait", "operator"} {
		r, err := after(w, 10*time.Minute).janitor().Clean(t.Context())
		if err != nil || len(r.Findings) != 3 {
			t.Fatal(err, brief(r))
		}
		for _, f := range r.Findings {
			if string(f.Level) != want || want == "operator" && !strings.Contains(f.Command, "qm unlock 900") {
				t.Errorf("%+v, want level %s", f, want)
			}
		}
	}
	for _, m := range w.vms {
		m.Lock = ""
	}
	if _, err := w.janitor().Clean(t.Context()); err != nil {
		t.Fatal(err)
	}
	if w.vms[ref(9001)] != nil || w.vms[ref(9002)] == nil || w.vms[ref(9003)] == nil {
		t.Errorf("left %v; want the two without our mark", w.vms)
	}
	if w.sandboxes[sb.ID].State != orchestrator.SandboxDestroyed {
		t.Errorf("sandbox %s", w.sandboxes[sb.ID].State)
	}
}

// F39 F47: while a task still works on something, it is left.
func TestAtWork(t *testing.T) {
	w := newWorld(t)
	box := w.sandbox("box", 9000, orchestrator.SandboxReady)
	w.taken(box, 1, "delete")
	w.sandbox("half", 9001, orchestrator.SandboxCreating)
	w.vm(9002, VM{Ours: true, Sandbox: "sb-x", Instance: instance})
	for id := 9000; id <= 9002; id++ {
		w.tasks[ref(id)] = []orchestrator.UPID{"UPID:x"}
	}
	r, err := w.janitor().Clean(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if r.Count(LevelWait) != 3 || len(r.Findings) != 3 || len(w.vms) != 3 || len(w.names(9000)) != 2 {
		t.Errorf("%v, vms %v", brief(r), w.vms)
	}
}
