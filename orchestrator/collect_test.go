package orchestrator_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"savepoint/orchestrator"
)

// F67: deletion is off the commit path, the newest snapshot goes first, and
// what could not be deleted stays noted, over restarts too.
func TestCollect(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld()
		l := boot(t, w)
		ctx := context.Background()
		for range 3 {
			if _, err := l.run(orchestrator.Spec{Command: overwrite, Boundary: "disk"}); err != nil {
				t.Fatal(err)
			}
		}
		taken := snapshotsOf(w)
		w.hooks["delete"] = func(context.Context) error { return fmt.Errorf("locked: %w", orchestrator.ErrBusy) }
		if n, err := l.e.Collect(ctx); n != 0 || !errors.Is(err, orchestrator.ErrBusy) {
			t.Errorf("collect from a locked VM: %d, %v", n, err)
		}
		delete(w.hooks, "delete")
		w.hooks["delete wait"] = func(context.Context) error { return fmt.Errorf("lost: %w", orchestrator.ErrUnknownOutcome) }
		if n, err := l.e.Collect(ctx); n != 0 || !errors.Is(err, orchestrator.ErrUnknownOutcome) {
			t.Errorf("collect with a lost answer: %d, %v", n, err)
		}
		delete(w.hooks, "delete wait")
		for _, k := range w.tasks { // the task whose answer was lost ends by itself
			w.end(k)
		}
		if left := snapshotsOf(w); !slices.Equal(left, taken[:2]) {
			t.Errorf("left %v of %v: the newest was not first", left, taken)
		}
		next := boot(t, w)
		if n, err := next.e.Collect(ctx); n != 3 || err != nil {
			t.Errorf("collect in the next process: %d, %v", n, err)
		}
		if left := snapshotsOf(w); len(left) != 0 {
			t.Errorf("left %v", left)
		}
	})
}

// F64: a node that dies in a deletion leaves a lock that no token can take away.
// The collector says so, in every process that meets it, and goes on once an
// operator has unlocked; a lock of somebody else's task is only waited for.
func TestCollectDeadDeletion(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld()
		l := boot(t, w)
		ctx := context.Background()
		o, err := l.run(orchestrator.Spec{Command: overwrite, Boundary: "disk"})
		if err != nil {
			t.Fatal(err)
		}
		w.sluggish = true
		w.hooks["delete wait"] = func(context.Context) error {
			k := w.tasks[len(w.tasks)-1]
			k.Running, k.Failure = false, "unexpected status" // dead, its lock stays
			return fmt.Errorf("595: %w", orchestrator.ErrUnknownOutcome)
		}
		for _, when := range []string{"at once", "at the next call", "in the next process"} {
			var stuck *orchestrator.StuckError
			if n, err := l.e.Collect(ctx); n != 0 || !errors.As(err, &stuck) {
				t.Fatalf("%s: %d, %v", when, n, err)
			}
			if stuck.Sandbox != "dev" || stuck.Tx != o.Transaction || stuck.Snapshot != orchestrator.SnapshotOf(o.Transaction) ||
				!strings.Contains(stuck.Error(), "run `qm unlock 9001` on node pve1, then savepoint recover") {
				t.Errorf("%s: %#v", when, stuck)
			}
			delete(w.hooks, "delete wait")
			if when == "at the next call" {
				l = boot(t, w)
			}
		}
		if w.counts["delete"] != 1 {
			t.Errorf("%d deletions were ordered under the lock", w.counts["delete"])
		}
		// Nothing can begin there, and nobody waits for what will not come.
		began := time.Now()
		o, err = l.run(root)
		var stuck *orchestrator.StuckError
		if !errors.As(err, &stuck) || !strings.Contains(err.Error(), "qm unlock 9001") || o.State != "" {
			t.Errorf("a run: %s (%s), %v", o.State, o.Reason, err)
		}
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("it took %s", took)
		}
		w.lock = "backup"
		if n, err := l.e.Collect(ctx); n != 0 || !errors.Is(err, orchestrator.ErrBusy) || errors.As(err, &stuck) {
			t.Errorf("with the lock of a backup: %d, %v", n, err)
		}
		w.lock = ""
		if n, err := l.e.Collect(ctx); n != 1 || err != nil || len(snapshotsOf(w)) != 0 {
			t.Errorf("once unlocked: %d, %v, left %v", n, err, snapshotsOf(w))
		}
	})
}

// A stuck transaction's snapshot, and everything below it, is not collected.
func TestCollectLeavesStuck(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld()
		l := boot(t, w)
		if _, err := l.run(orchestrator.Spec{Command: overwrite, Boundary: "disk"}); err != nil {
			t.Fatal(err)
		}
		w.hooks["command"] = func(context.Context) error { w.lock = "rollback"; return nil }
		o, err := l.run(root)
		if err != nil || o.State != orchestrator.StateStuck {
			t.Fatalf("%s, %v", o.State, err)
		}
		if n, err := l.e.Collect(context.Background()); n != 0 || err != nil {
			t.Errorf("collect: %d, %v", n, err)
		}
		if left := snapshotsOf(w); len(left) != 2 {
			t.Errorf("left %v, want both", left)
		}
	})
}

// A snapshot that appears after everybody looked for it in vain, because its
// order was still on the way, is found by the collector.
func TestLateSnapshot(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld()
		w.hooks["create"] = func(context.Context) error { return fmt.Errorf("596: %w", orchestrator.ErrUnknownOutcome) }
		l := boot(t, w)
		o, err := l.run(orchestrator.Spec{Command: overwrite, Boundary: "disk"})
		if !errors.Is(err, orchestrator.ErrUnknownOutcome) || o.State != orchestrator.StateRolledBack {
			t.Fatalf("got %s (%s), %v", o.State, o.Reason, err)
		}
		if len(w.ran) != 0 {
			t.Error("the command ran without its snapshot")
		}
		name := orchestrator.SnapshotOf(o.Transaction)
		w.snaps = append(w.snaps, &snap{Snapshot: orchestrator.Snapshot{Name: name, Parent: w.parent}, kind: "disk"})
		w.parent = name
		if n, err := boot(t, w).e.Collect(context.Background()); n != 1 || err != nil {
			t.Errorf("collect: %d, %v", n, err)
		}
		if left := snapshotsOf(w); len(left) != 0 {
			t.Errorf("left %v", left)
		}
	})
}

// F56: a snapshot task that hangs is given up at our own deadline; nothing
// runs, and the snapshot it makes in the end is dropped.
func TestSnapshotHangs(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld()
		w.hooks["create wait"] = func(ctx context.Context) error {
			<-ctx.Done()
			return fmt.Errorf("wait: %w: %w", orchestrator.ErrUnknownOutcome, ctx.Err())
		}
		began := time.Now()
		o, err := boot(t, w, func(c *orchestrator.Config) { c.Deadlines.Snapshot = time.Minute }).
			run(orchestrator.Spec{Command: overwrite, Boundary: "machine"})
		if err == nil || o.State != orchestrator.StateRolledBack || o.Interrupted {
			t.Fatalf("got %s (%s), %v", o.State, o.Reason, err)
		}
		if took := time.Since(began); took > 2*time.Minute {
			t.Errorf("it took %s", took)
		}
		if left := snapshotsOf(w); len(left) != 0 || len(w.ran) != 0 || w.lock != "" {
			t.Errorf("left %v, ran %v, lock %q", left, w.ran, w.lock)
		}
		files(t, w, before())
	})
}

// A failed snapshot, whatever the cause: the command does not run, the caller
// gets the class, the sandbox goes on.
func TestSnapshotFails(t *testing.T) {
	for name, cause := range map[string]error{
		"denied":      fmt.Errorf("permission check failed: %w", orchestrator.ErrDenied),
		"gone":        fmt.Errorf("no such vm: %w", orchestrator.ErrNotFound),
		"F61 storage": &orchestrator.UnsupportedError{What: "storage \"raw\" does not support snapshots", Mend: "choose another"},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w := newWorld()
				w.hooks["create"] = func(context.Context) error { return cause }
				l := boot(t, w)
				began := time.Now()
				o, err := l.run(orchestrator.Spec{Command: overwrite, Boundary: "disk"})
				if !errors.Is(err, cause) || o.State != orchestrator.StateRolledBack || !strings.Contains(o.Reason, "nothing ran") {
					t.Fatalf("got %s (%s), %v", o.State, o.Reason, err)
				}
				if time.Since(began) > time.Second {
					t.Errorf("it waited %s for what does not change", time.Since(began))
				}
				if len(w.ran) != 0 {
					t.Error("the command ran")
				}
				delete(w.hooks, "create")
				if o, err := l.run(orchestrator.Spec{Command: overwrite, Boundary: "disk"}); err != nil || o.State != orchestrator.StateCommitted {
					t.Errorf("the next one: %s, %v", o.State, err)
				}
			})
		})
	}
}

// F63, F66: what a snapshot that died half-way leaves. A lock without a task
// needs an operator and says the command; a half-made snapshot is dropped.
func TestHalfMadeSnapshot(t *testing.T) {
	t.Run("F64 lock", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			w := newWorld()
			w.hooks["create"] = func(context.Context) error {
				w.lock = "snapshot"
				return fmt.Errorf("worker died: %w", orchestrator.ErrUnknownOutcome)
			}
			l := boot(t, w)
			began := time.Now()
			o, err := l.run(orchestrator.Spec{Command: overwrite, Boundary: "disk"})
			if err == nil || o.State != orchestrator.StateStuck || !strings.Contains(o.Reason, "run `qm unlock 9001` on node pve1") {
				t.Fatalf("got %s (%s), %v", o.State, o.Reason, err)
			}
			if time.Since(began) < 10*time.Minute {
				t.Errorf("the lock was called stale after %s only", time.Since(began))
			}
			delete(w.hooks, "create")
			w.lock = ""
			if o, err := l.e.Retry(context.Background(), o.Transaction); err != nil || o.State != orchestrator.StateRolledBack {
				t.Errorf("retry: %s (%s), %v", o.State, o.Reason, err)
			}
			if w.counts["rollback"] != 0 || len(w.ran) != 0 {
				t.Errorf("nothing ran, nothing was to restore: %v", w.trace)
			}
			if o, err := l.run(orchestrator.Spec{Command: overwrite}); err != nil || o.State != orchestrator.StateCommitted {
				t.Errorf("the next one: %s, %v", o.State, err)
			}
		})
	})
	t.Run("incomplete", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			w := newWorld()
			w.hooks["create"] = func(context.Context) error {
				name := orchestrator.SnapshotName(w.generation) // the mark names it
				w.snaps = append(w.snaps, &snap{Snapshot: orchestrator.Snapshot{Name: name, Parent: w.parent, Incomplete: "prepare"}})
				return fmt.Errorf("worker died: %w", orchestrator.ErrUnknownOutcome)
			}
			o, err := boot(t, w).run(orchestrator.Spec{Command: overwrite, Boundary: "disk"})
			if !errors.Is(err, orchestrator.ErrUnknownOutcome) || o.State != orchestrator.StateRolledBack {
				t.Fatalf("got %s (%s), %v", o.State, o.Reason, err)
			}
			if left := snapshotsOf(w); len(left) != 0 || len(w.ran) != 0 {
				t.Errorf("left %v, ran %v", left, w.ran)
			}
		})
	})
}

// A task that was accepted but has not taken the lock yet is waited for: it
// would make its snapshot after everybody looked.
func TestQueuedSnapshot(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld()
		w.sluggish = true
		w.hooks["create wait"] = func(context.Context) error {
			w.lock = ""
			return fmt.Errorf("596: %w", orchestrator.ErrUnknownOutcome)
		}
		w.hooks["await"] = func(context.Context) error { // the look after the error fails too
			delete(w.hooks, "await")
			return fmt.Errorf("no route: %w", orchestrator.ErrUnavailable)
		}
		l := boot(t, w)
		o, err := l.run(orchestrator.Spec{Command: overwrite, Boundary: "disk"})
		if !errors.Is(err, orchestrator.ErrUnknownOutcome) || o.State != orchestrator.StateRolledBack {
			t.Fatalf("got %s (%s), %v", o.State, o.Reason, err)
		}
		for _, k := range w.tasks {
			w.end(k)
		}
		if _, err := l.e.Collect(context.Background()); err != nil {
			t.Error(err)
		}
		if left := snapshotsOf(w); len(left) != 0 {
			t.Errorf("left %v", left)
		}
	})
}
