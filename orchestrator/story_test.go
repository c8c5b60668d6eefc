package orchestrator_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"savepoint/orchestrator"
)

// story is a transaction of several commands whose every moment is explored.
// What it does after its process died has no effect.
type story struct {
	name   string
	single bool // a journal that cannot write several records at once
	slow   bool // commands take longer than the cluster's clock is coarse
	tell   func(l *lab)
}

// follow makes a story of orders that are carried out one after the other
// until the transaction has ended.
func follow(b orchestrator.BeginSpec, orders ...any) func(*lab) {
	return func(l *lab) {
		ctx := context.Background()
		b.Sandbox = l.w.box
		x, err := l.e.Begin(ctx, b)
		if err != nil {
			return
		}
		for _, o := range orders {
			switch o := o.(type) {
			case string:
				_, err = x.Exec(ctx, orchestrator.StepSpec{Command: o})
			case orchestrator.StepSpec:
				_, err = x.Exec(ctx, o)
			case [2]string:
				_, err = x.Savepoint(ctx, o[0], orchestrator.Boundary(o[1]))
			case returnTo:
				_, err = x.RollbackTo(ctx, string(o))
			case order:
				err = o(l, &x)
			}
			if err != nil {
				break
			}
		}
		if !l.p.gone {
			_ = x.Close(ctx)
		}
	}
}

type (
	returnTo string
	order    func(*lab, **orchestrator.Tx) error
)

var (
	toCommit   order = func(_ *lab, x **orchestrator.Tx) error { _, err := (*x).Commit(context.Background()); return err }
	toRollback order = func(_ *lab, x **orchestrator.Tx) error {
		_, err := (*x).Rollback(context.Background(), "")
		return err
	}
	toResume order = func(l *lab, x **orchestrator.Tx) error {
		id := (*x).View().ID
		_ = (*x).Close(context.Background())
		y, err := l.e.Resume(context.Background(), id)
		if err == nil {
			*x = y
		}
		return err
	}
)

func stories() []story {
	var all []story
	checked := []orchestrator.Validation{{Command: "cat /workspace/a"}}
	for _, single := range []bool{false, true} {
		for _, b := range boundaries {
			name := string(b)
			if single {
				name += "/single"
			}
			inner := "workspace"
			all = append(all,
				story{name: name + "/commit", single: single, tell: follow(
					orchestrator.BeginSpec{Boundary: b, Key: "k"},
					put("one", "/workspace/a"), orchestrator.StepSpec{Command: put("two", "/workspace/b"), Key: "k2"}, toCommit)},
				story{name: name + "/bound", single: single, tell: follow(
					orchestrator.BeginSpec{Boundary: b, Bound: true, Validate: checked},
					put("one", "/workspace/a"), [2]string{"s", ""}, put("two", "/workspace/b"), toCommit)},
				story{name: name + "/fails", single: single, tell: follow(
					orchestrator.BeginSpec{Boundary: b},
					put("one", "/workspace/b"), [2]string{"s", inner}, damage)},
				story{name: name + "/savepoints", single: single, tell: follow(
					orchestrator.BeginSpec{Boundary: b, Validate: checked, OnFailure: orchestrator.OnFailureKeep},
					put("one", "/workspace/a"), [2]string{"s1", ""}, "rm /workspace/a", [2]string{"s2", inner}, put("two", "/workspace/b"),
					returnTo("s1"), toResume, put("three", "/workspace/c"), toCommit)},
				story{name: name + "/begin", single: single, tell: follow(
					orchestrator.BeginSpec{Boundary: b},
					put("one", "/workspace/a"), returnTo(orchestrator.PointBegin), put("two", "/workspace/b"), toRollback)},
				story{name: name + "/slow", single: single, slow: true, tell: follow(
					orchestrator.BeginSpec{Boundary: b, OnFailure: orchestrator.OnFailureKeep},
					[2]string{"s1", ""}, damage, returnTo("s1"), put("one", "/workspace/a"), returnTo("s1"), toRollback)},
			)
		}
	}
	return all
}

func (s story) boot(t testing.TB, w *world, plan func(int, string, bool) error) *lab {
	return scenario{single: s.single, slow: s.slow}.boot(t, w, plan)
}

// tellingStories is telling for stories.
func tellingStories() []story {
	if os.Getenv("SAVEPOINT_DEEP") == "1" {
		return stories()
	}
	keep := []string{"workspace/savepoints", "disk/single/fails", "machine/bound", "machine/begin", "disk/slow"}
	return slices.DeleteFunc(stories(), func(s story) bool { return !slices.Contains(keep, s.name) })
}

// The process dies at every point of every story. What is settled afterwards is
// the state at begin or the one at the commit, never one in between; a
// transaction that waits has exactly what its finished steps did, and goes on.
func TestStoryCrashEverywhere(t *testing.T) {
	var total atomic.Int64
	t.Cleanup(func() { t.Logf("%d crash points", total.Load()) })
	for _, s := range stories() {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(t *testing.T) {
				for n := 1; !t.Failed(); n++ {
					w := newWorld()
					l := s.boot(t, w, dieAt(n))
					s.tell(l)
					if !l.p.gone {
						if n < 20 {
							t.Fatalf("only %d points", n)
						}
						storySettled(t, s, w, l.p.log)
						return
					}
					total.Add(1)
					storySettled(t, s, w, l.p.log)
				}
			})
		})
	}
}

// The process dies at every point, and the one that recovers at every point of
// its recovery.
func TestStoryCrashTwice(t *testing.T) {
	var total atomic.Int64
	t.Cleanup(func() { t.Logf("%d pairs of crash points", total.Load()) })
	for _, s := range tellingStories() {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(t *testing.T) {
				for n := 1; ; n++ {
					for m := 1; ; m++ {
						w := newWorld()
						first := s.boot(t, w, dieAt(n))
						s.tell(first)
						if !first.p.gone {
							return
						}
						second := s.boot(t, w, dieAt(m))
						_, _ = second.e.Recover(context.Background())
						total.Add(1)
						storySettled(t, s, w, append(append(first.p.log, "--"), second.p.log...))
						if !second.p.gone || t.Failed() {
							break
						}
					}
					if t.Failed() {
						return
					}
				}
			})
		})
	}
}

// Every call fails once, in every way a call can fail. What the journal says is
// what the world is, and what is left can be settled.
func TestStoryFaultEverywhere(t *testing.T) {
	for name, f := range map[string]struct {
		after bool
		err   error
	}{
		"unavailable": {false, orchestrator.ErrUnavailable},
		"denied":      {false, orchestrator.ErrDenied},
		"lost before": {false, orchestrator.ErrUnknownOutcome},
		"lost after":  {true, orchestrator.ErrUnknownOutcome},
	} {
		for _, s := range tellingStories() {
			t.Run(name+"/"+s.name, func(t *testing.T) {
				t.Parallel()
				bubble(t, func(t *testing.T) {
					for n := 1; !t.Failed(); n++ {
						w := newWorld()
						hit, points := "", 0
						l := s.boot(t, w, nil)
						l.p.plan = func(_ int, name string, after bool) error {
							if after != f.after || name == "step" {
								return nil
							}
							if points++; points == n {
								hit = name
								return fmt.Errorf("injected: %w", f.err)
							}
							return nil
						}
						s.tell(l)
						if hit == "" {
							return
						}
						next := s.boot(t, w, nil)
						outs, _ := next.e.Recover(context.Background())
						for _, o := range outs {
							if o.State == orchestrator.StateStuck {
								if o, err := next.e.Retry(context.Background(), o.Transaction); err != nil || o.State != orchestrator.StateRolledBack {
									t.Errorf("retry: %s (%s), %v", o.State, o.Reason, err)
								}
							}
						}
						storySettled(t, s, w, append(l.p.log, fmt.Sprintf("fault %d at %s", n, hit)))
					}
				})
			})
		}
	}
}

// storySettled recovers what a crash left and checks the invariant.
func storySettled(t *testing.T, s story, w *world, log []string) {
	t.Helper()
	if t.Failed() {
		return
	}
	defer func() {
		if t.Failed() {
			t.Logf("points passed: %v\ntrace:\n%v", log, strings.Join(w.trace, "\n"))
		}
	}()
	ctx := context.Background()
	l := s.boot(t, w, nil)
	if _, err := l.e.Recover(ctx); err != nil {
		t.Errorf("recover: %v", err)
		return
	}
	txs, err := orchestrator.List(ctx, l.p, orchestrator.Filter{})
	if err != nil || len(txs) > 1 {
		t.Errorf("%d transactions, %v", len(txs), err)
		return
	}
	for range 5 {
		w.tick() // what survived would act now
	}
	want := before()
	if len(txs) == 1 {
		switch txs[0].State {
		case orchestrator.StateCommitted:
			want = expected(t, w)
		case orchestrator.StateOpen:
			want = expected(t, w)
			goesOn(t, l, txs[0], want)
			want = maps.Clone(want)
			want["/workspace/last"] = "x"
		case orchestrator.StateRolledBack:
		default:
			t.Errorf("the transaction ended %s: %s", txs[0].State, txs[0].Reason)
		}
	}
	if !maps.Equal(want, w.files) {
		t.Errorf("files: got %v, want %v", w.files, want)
	}
	for c, n := range w.ran {
		if n > 1 && c != "cat /workspace/a" {
			t.Errorf("%q ran %d times", c, n)
		}
	}
	collected(t, l)
	if !w.running || w.dead || w.lock != "" {
		t.Errorf("running %t, dead %t, lock %q", w.running, w.dead, w.lock)
	}
	if o, err := l.run(orchestrator.Spec{Command: "printenv HOME"}); err != nil || !o.State.Final() {
		t.Errorf("the sandbox is not usable: %+v, %v", o, err)
	}
}

// goesOn takes an open transaction up, runs one more step and commits.
func goesOn(t *testing.T, l *lab, tx orchestrator.Transaction, want map[string]string) {
	t.Helper()
	if !maps.Equal(want, l.w.files) {
		t.Errorf("open, with files %v, want %v", l.w.files, want)
	}
	ctx := context.Background()
	x, err := l.e.Resume(ctx, tx.ID)
	if err != nil {
		t.Errorf("resume: %v", err)
		return
	}
	o, err := x.Exec(ctx, orchestrator.StepSpec{Command: put("x", "/workspace/last")})
	if err != nil || o.State != orchestrator.StateOpen {
		t.Errorf("one more step: %s (%s), %v", o.State, o.Reason, err)
		return
	}
	if len(tx.Validate) > 0 && want["/workspace/a"] == "" { // or the validation would fail
		if _, err := x.Exec(ctx, orchestrator.StepSpec{Command: put("y", "/workspace/a")}); err != nil {
			t.Error(err)
		}
		want["/workspace/a"] = "y"
	}
	if o, err := x.Commit(ctx); err != nil || o.State != orchestrator.StateCommitted {
		t.Errorf("commit: %s (%s), %v", o.State, o.Reason, err)
	}
}

// expected is what the guest's files are when everything that the journal calls
// done was done once, and nothing else: a model of the engine, of the records
// alone.
func expected(t *testing.T, w *world) map[string]string {
	t.Helper()
	model := &world{files: before()}
	points := map[int]map[string]string{0: before()}
	var command string
	var to, n int
	for _, r := range w.records {
		var d struct {
			Command []byte
			N       int
		}
		if len(r.Data) > 0 {
			if err := json.Unmarshal(r.Data, &d); err != nil {
				t.Fatal(err)
			}
		}
		switch r.Event {
		case "run":
			command = string(d.Command)
		case "ran":
			for s := range strings.SplitSeq(command, " && ") {
				if exit, _ := model.step(s); exit != 0 {
					break
				}
			}
		case "save":
			n = d.N
		case "saved":
			points[n] = copyFiles(model.files)
		case "return":
			to = d.N
		case "returned":
			model.files = copyFiles(points[to])
		}
	}
	return model.files
}

// A transaction that waits is not touched by the death of processes that only
// look, however often they recover.
func TestOpenSurvivesRecovery(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld()
		l := boot(t, w)
		x := l.begin(orchestrator.BeginSpec{Boundary: "disk"})
		exec(t, x, put("one", "/workspace/a"))
		l.p.gone = true // without a Close
		written := len(w.records)
		for n := 1; n < 10; n++ {
			l := boot(t, w)
			l.p.plan = dieAt(n)
			if outs, err := l.e.Recover(context.Background()); len(outs) != 0 || err != nil && !errors.Is(err, errCrash) {
				t.Fatalf("recover: %+v, %v", outs, err)
			}
			time.Sleep(time.Minute)
		}
		if len(w.records) != written {
			t.Errorf("%d records were written", len(w.records)-written)
		}
		files(t, w, map[string]string{"/workspace/a": "one"})
	})
}
