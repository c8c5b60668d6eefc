package sim_test

import (
	"context"
	"fmt"
	"testing"

	"savepoint/orchestrator"
	"savepoint/testbed/sim/world"
)

// A list of files that cannot be made means: roll back. Before the command
// nothing runs; after it what it did is undone, however well it behaved.
func TestCrashUnlistedFiles(t *testing.T) {
	for _, class := range []error{orchestrator.ErrUnavailable, orchestrator.ErrUnknownOutcome, orchestrator.ErrDenied, orchestrator.ErrBusy} {
		for _, after := range []bool{false, true} {
			for n := 1; ; n++ {
				hit := false
				bubble(t, func(t *testing.T) { hit = unlisted(t, class, after, n) })
				if hit {
					continue
				}
				if n != 5 {
					t.Errorf("%d lists were made instead of 4", n-1)
				}
				break
			}
		}
	}
}

// unlisted fails the n-th list of a transaction that would be committed.
func unlisted(t *testing.T, class error, after bool, n int) (hit bool) {
	l := newLab(scenario{}, nil)
	seen, ran := 0, false
	l.boot(func(at world.Point) error {
		if at.Name == "run" {
			ran = true
		}
		if at.Name != "manifest" || at.After != after {
			return nil
		}
		if seen++; seen != n {
			return nil
		}
		hit = true
		return fmt.Errorf("injected: %w", class)
	})
	o := l.run(context.Background(), behaves())
	want := orchestrator.StateRolledBack
	if !hit {
		want = orchestrator.StateCommitted
	}
	if l.checks(false); o.State != want || len(l.found) > 0 {
		t.Errorf("list %d, %v after the effect %t: %s (%s), %v", n, class, after, o.State, o.Reason, l.found)
	}
	if hit && ran != (n > 2) {
		t.Errorf("list %d, %v: the command ran %t", n, class, ran)
	}
	return hit
}

// A cluster that restores nothing and says that it did is not believed, also
// when the process died meanwhile: the sandbox is stuck or was never changed.
// F21, F27.
func TestCrashNothingRestored(t *testing.T) {
	for _, b := range boundaries {
		bubble(t, func(t *testing.T) {
			spec := single(b)["fail"]
			sc := scenario{name: string(b) + "-nothing-restored",
				do: func(ctx context.Context, l *lab) { l.run(ctx, spec) },
				wrap: func(_ *lab, c *orchestrator.Config) {
					c.Snapshotters[b] = idle{c.Snapshotters[b]}
				}}
			stuck := 0
			for n := 0; ; n++ {
				found, alive := play(sc, []int{n}, nil)
				if n > 0 && alive == 0 {
					break
				}
				for _, f := range found {
					if stuck++; f.Invariant != world.Needed {
						t.Errorf("%s, death at %d: %v", sc.name, n, f)
					}
				}
			}
			if stuck == 0 {
				t.Errorf("%s was never stuck", sc.name)
			}
		})
	}
}
