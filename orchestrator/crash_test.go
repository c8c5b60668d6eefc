package orchestrator_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"savepoint/orchestrator"
)

// scenario is one transaction whose every moment is explored.
type scenario struct {
	name   string
	spec   orchestrator.Spec
	single bool // a journal that cannot write several records at once
	slow   bool // the command takes longer than the cluster's clock is coarse
	grant  bool // the command runs by a grant
}

func scenarios() []scenario {
	var all []scenario
	for _, single := range []bool{false, true} {
		for _, b := range []orchestrator.Boundary{"workspace", "disk", "machine"} {
			name := string(b)
			if single {
				name += "/single"
			}
			all = append(all,
				scenario{name: name + "/commit", spec: orchestrator.Spec{Command: overwrite, Boundary: b}, single: single},
				scenario{name: name + "/fail", spec: orchestrator.Spec{Command: damage, Boundary: b}, single: single},
				scenario{name: name + "/slow", spec: orchestrator.Spec{Command: damage, Boundary: b}, single: single, slow: true},
				scenario{name: name + "/granted", spec: orchestrator.Spec{Command: forbidden, Boundary: b}, single: single, grant: true},
				scenario{name: name + "/panic", spec: orchestrator.Spec{Command: "rm /workspace/a && mkdir /panic", Boundary: b}, single: single},
			)
		}
		all = append(all, scenario{name: fmt.Sprintf("none/single=%t", single), spec: orchestrator.Spec{Command: "cat /workspace/a"}, single: single})
	}
	return all
}

func (s scenario) boot(t testing.TB, w *world, plan func(int, string, bool) error) *lab {
	l := boot(t, w, func(c *orchestrator.Config) {
		if s.single {
			c.Journal = simple{c.Journal.(*proc)}
		}
	})
	l.p.plan = plan
	if s.grant && len(w.grants) == 0 {
		w.grant(t, "gr-1")
	}
	if s.slow {
		w.hooks["run"] = func(context.Context) error { time.Sleep(3 * time.Second); return nil }
	}
	return l
}

// dieAt ends the process at its n-th point.
func dieAt(n int) func(int, string, bool) error {
	return func(point int, _ string, _ bool) error {
		if point == n {
			return errCrash
		}
		return nil
	}
}

// F25, F27: the process dies at every point of every scenario: before and
// after each journal write and each effect. A new one settles the transaction
// to exactly the state before it or after it, without running the command
// again, and nothing is left behind.
func TestCrashEverywhere(t *testing.T) {
	for _, s := range scenarios() {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(t *testing.T) {
				for n := 1; ; n++ {
					w := newWorld()
					l := s.boot(t, w, dieAt(n))
					o, err := l.run(s.spec)
					if !l.p.gone {
						if n < 4 {
							t.Fatalf("only %d points", n)
						}
						return
					}
					if err == nil && o.State != orchestrator.StateCommitted {
						t.Errorf("point %d: a dead process reported %s", n, o.State)
					}
					settled(t, s, w, l.p.log)
				}
			})
		})
	}
}

// The process dies at every point, and the one that recovers at every point of
// its recovery. The third one has to bring it to the end.
func TestCrashTwice(t *testing.T) {
	var total atomic.Int64
	t.Cleanup(func() { t.Logf("%d pairs of crash points", total.Load()) })
	for _, s := range telling(scenarios()) {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(t *testing.T) {
				for n := 1; ; n++ {
					for m := 1; ; m++ {
						w := newWorld()
						first := s.boot(t, w, dieAt(n))
						_, _ = first.run(s.spec)
						if !first.p.gone {
							return
						}
						second := s.boot(t, w, dieAt(m))
						_, _ = second.e.Recover(context.Background())
						total.Add(1)
						settled(t, s, w, append(append(first.p.log, "--"), second.p.log...))
						if !second.p.gone || t.Failed() {
							break
						}
					}
				}
			})
		})
	}
}

// telling leaves out, unless SAVEPOINT_DEEP=1 asks for everything, the scenarios
// that take long to explore in depth and differ little from others.
func telling(all []scenario) []scenario {
	if os.Getenv("SAVEPOINT_DEEP") == "1" {
		return all
	}
	keep := []string{"workspace/fail", "workspace/granted", "workspace/panic", "machine/single/granted", "disk/slow", "machine/commit", "machine/slow", "machine/single/panic", "none/single=false"}
	return slices.DeleteFunc(all, func(s scenario) bool { return !slices.Contains(keep, s.name) })
}

// settled recovers what a crash left and checks the invariant.
func settled(t *testing.T, s scenario, w *world, log []string) {
	t.Helper()
	if t.Failed() {
		return
	}
	defer func() {
		if t.Failed() {
			t.Logf("points passed: %v\ntrace:\n%v", log, w.trace)
		}
	}()
	l := s.boot(t, w, nil)
	ctx := context.Background()
	outs, err := l.e.Recover(ctx)
	if err != nil {
		t.Errorf("recover: %v", err)
		return
	}
	if again, err := l.e.Recover(ctx); err != nil || len(again) != 0 {
		t.Errorf("recover again: %v, %v", again, err)
	}
	txs, err := orchestrator.List(ctx, l.p, orchestrator.Filter{})
	if err != nil || len(txs) > 1 || len(outs) > 1 {
		t.Errorf("%d transactions, %d outcomes, %v", len(txs), len(outs), err)
		return
	}
	want := before()
	if len(txs) == 1 {
		switch txs[0].State {
		case orchestrator.StateCommitted:
			if s.spec.Command == overwrite {
				want = after()
			} else if s.spec.Command != "cat /workspace/a" {
				t.Errorf("a failed command was committed")
			}
		case orchestrator.StateRolledBack:
		default:
			t.Errorf("the transaction ended %s: %s", txs[0].State, txs[0].Reason)
		}
	}
	if s.grant {
		usedWhenBegun(t, w, "settled")
	}
	for range 5 {
		w.tick() // what survived would act now
	}
	if !maps.Equal(want, w.files) {
		t.Errorf("files: got %v, want %v", w.files, want)
	}
	if n := w.ran[s.spec.Command]; n > 1 {
		t.Errorf("the command ran %d times", n)
	}
	// After an operator's Retry a repetition is right: he may have changed the VM.
	if log != nil && w.ran[s.spec.Command] > 0 && s.slow && s.spec.Boundary != "workspace" && w.counts["rollback"] > 1 {
		t.Errorf("a rollback that was done was repeated: %d", w.counts["rollback"])
	}
	if w.counts["create"] > 1 {
		t.Errorf("%d snapshots were taken", w.counts["create"])
	}
	if _, err := l.e.Collect(ctx); err != nil {
		t.Errorf("collect: %v", err)
	}
	if left := snapshotsOf(w); len(left) != 0 {
		t.Errorf("snapshots are left: %v", left)
	}
	if !w.running || w.dead || w.lock != "" {
		t.Errorf("running %t, dead %t, lock %q", w.running, w.dead, w.lock)
	}
	if o, err := l.run(orchestrator.Spec{Command: "cat /workspace/a"}); err != nil || !o.State.Final() {
		t.Errorf("the sandbox is not usable: %+v, %v", o, err)
	}
}

// Every call fails once, in every way a call can fail: without having done
// anything, refused, or with its outcome unknown before or after its effect.
// What the engine says is what the world is.
func TestFaultEverywhere(t *testing.T) {
	type fault struct {
		after bool
		err   error
	}
	for name, f := range map[string]fault{
		"unavailable":   {false, orchestrator.ErrUnavailable},
		"busy":          {false, orchestrator.ErrBusy},
		"denied":        {false, orchestrator.ErrDenied},
		"lost before":   {false, orchestrator.ErrUnknownOutcome},
		"lost after":    {true, orchestrator.ErrUnknownOutcome},
		"without class": {true, errors.New("something")},
	} {
		for _, s := range telling(scenarios()) {
			t.Run(name+"/"+s.name, func(t *testing.T) {
				t.Parallel()
				bubble(t, func(t *testing.T) {
					for n := 1; ; n++ {
						w := newWorld()
						hit := ""
						l := s.boot(t, w, nil)
						points := 0
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
						o, err := l.run(s.spec)
						if hit == "" {
							return
						}
						truthful(t, s, w, l, o, err, fmt.Sprintf("fault %d at %s", n, hit))
						if t.Failed() {
							return
						}
					}
				})
			})
		}
	}
}

// truthful checks an outcome against the world, and that what is open or
// stuck can be settled once the fault is gone.
func truthful(t *testing.T, s scenario, w *world, l *lab, o orchestrator.Outcome, err error, what string) {
	t.Helper()
	defer func() {
		if t.Failed() {
			t.Logf("%s\noutcome %s (%s), %v\ntrace:\n%v\npoints %v", what, o.State, o.Reason, err, w.trace, l.p.log)
		}
	}()
	switch o.State {
	case orchestrator.StateCommitted:
		if err != nil || (s.spec.Command == overwrite && !maps.Equal(w.files, after())) {
			t.Errorf("committed, but %v, files %v", err, w.files)
		}
	case orchestrator.StateRolledBack:
		if !maps.Equal(w.files, before()) {
			t.Errorf("rolled back, but files are %v", w.files)
		}
	case orchestrator.StateStuck:
		if o.Reason == "" {
			t.Error("stuck without a reason")
		}
		if _, err := l.run(orchestrator.Spec{Command: "cat /workspace/a"}); !errors.Is(err, orchestrator.ErrBusy) {
			t.Errorf("a stuck sandbox was not refused: %v", err)
		}
	default:
		if err == nil {
			t.Errorf("%q without an error", o.State)
		}
	}
	if err != nil && class(err) == nil {
		t.Errorf("an error without a class: %v", err)
	}
	// An operator restarts savepoint and asks it to go on.
	next := s.boot(t, w, nil)
	outs, rerr := next.e.Recover(context.Background())
	if rerr != nil {
		t.Errorf("recover: %v", rerr)
	}
	for _, o := range outs {
		if o.State == orchestrator.StateStuck {
			if o, err := next.e.Retry(context.Background(), o.Transaction); err != nil || o.State != orchestrator.StateRolledBack {
				t.Errorf("retry: %s (%s), %v", o.State, o.Reason, err)
			}
		}
	}
	settled(t, s, w, nil)
}

func class(err error) error {
	for _, c := range []error{orchestrator.ErrNotFound, orchestrator.ErrExists, orchestrator.ErrBusy, orchestrator.ErrUnavailable, orchestrator.ErrUnknownOutcome, orchestrator.ErrDenied} {
		if errors.Is(err, c) {
			return c
		}
	}
	return nil
}

// The rollback of the transaction before, in the same second of the cluster's
// clock, is not taken for the one that a crash kept from being ordered.
func TestEarlierRollbackIsNotOurs(t *testing.T) {
	for _, b := range []orchestrator.Boundary{"disk", "machine"} {
		t.Run(string(b), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w := newWorld()
				l := boot(t, w)
				spec := orchestrator.Spec{Command: damage, Boundary: b}
				if o, err := l.run(spec); err != nil || o.State != orchestrator.StateRolledBack {
					t.Fatalf("%s, %v", o.State, err)
				}
				l.p.plan = func(_ int, name string, _ bool) error {
					if name == "rollback" {
						return errCrash
					}
					return nil
				}
				if _, err := l.run(spec); err == nil {
					t.Fatal("the process did not die")
				}
				outs, err := boot(t, w).e.Recover(context.Background())
				if err != nil || len(outs) != 1 || outs[0].State != orchestrator.StateRolledBack {
					t.Fatalf("recover: %+v, %v", outs, err)
				}
				files(t, w, before())
			})
		})
	}
}
