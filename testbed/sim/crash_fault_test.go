package sim_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"savepoint/orchestrator"
	"savepoint/testbed/sim/world"
)

// trouble is one thing that goes wrong in the life of the first process.
type trouble struct {
	err   error // at a point; nil: a fate of an order
	after bool
	fate  world.Fate
}

func (x trouble) String() string {
	if x.err == nil {
		return "a task that " + x.fate.String()
	}
	if x.after {
		return fmt.Sprintf("%v after", x.err)
	}
	return fmt.Sprintf("%v before", x.err)
}

func troubles() []trouble {
	return []trouble{
		{err: orchestrator.ErrUnavailable}, {err: orchestrator.ErrBusy}, {err: orchestrator.ErrDenied},
		{err: orchestrator.ErrUnknownOutcome}, {err: orchestrator.ErrUnknownOutcome, after: true},
		{fate: world.FateSlow}, {fate: world.FateFails}, {fate: world.FateDies},
		{fate: world.FateHangs}, {fate: world.FateNoWorker}, {fate: world.FateLate},
	}
}

// endure plays a scenario in which the n-th thing that can have the trouble
// has it, and then everything is brought to its end, by an operator where one
// is needed. hit is false when there is no n-th.
func endure(sc scenario, x trouble, n int, log func(string)) (found []world.Finding, hit bool) {
	l := newLab(sc, log)
	l.boot(nil)
	seen := 0
	if x.err == nil {
		l.p.Fate = func(world.Point) world.Fate {
			if seen++; seen == n {
				hit = true
				return x.fate
			}
			return world.FateDone
		}
	} else {
		l.p.At = func(at world.Point) error {
			journal := strings.HasPrefix(at.Name, "journal")
			if at.After != x.after || at.Name == "listen" || journal && (x.err == orchestrator.ErrBusy || x.err == orchestrator.ErrDenied) {
				return nil
			}
			if seen++; seen != n {
				return nil
			}
			hit = true
			if x.err == orchestrator.ErrDenied {
				l.c.Grieve(at.Sandbox, "was denied")
			}
			return fmt.Errorf("injected at %s: %w", at, x.err)
		}
	}
	l.together(sc.callers(l)...)
	l.calm()
	if len(l.found) == 0 {
		l.boot(nil)
		for _, sb := range l.boxes {
			l.c.Boot(sb) // an order to stop it may have come late
		}
		l.again()
		l.usable()
	}
	return l.found, hit
}

// Every call fails once, in every way that a call can fail, and every order to
// the cluster has every fate that an order can have.
func TestCrashFaults(t *testing.T) {
	var mu sync.Mutex
	total := 0
	t.Run("scenarios", func(t *testing.T) {
		for _, sc := range scenarios() {
			if !everything() && !telling(sc.name) {
				continue
			}
			t.Run(sc.name, func(t *testing.T) {
				t.Parallel()
				bubble(t, func(t *testing.T) {
					n := 0
					for _, x := range troubles() {
						n += troubled(t, sc, x)
					}
					t.Logf("%-28s %4d faults, all settled", sc.name, n)
					mu.Lock()
					defer mu.Unlock()
					total += n
				})
			})
		}
	})
	t.Logf("%d faults", total)
}

// telling leaves out what differs little from others.
func telling(name string) bool {
	for _, kind := range []string{"-fail", "several-commit", "-several", "-collect", "-panic", "-key", "-grant", "-guard", "-session", "-lazy-rollback"} {
		if strings.HasSuffix(name, kind) {
			return true
		}
	}
	return false
}

func troubled(t *testing.T, sc scenario, x trouble) (n int) {
	t.Helper()
	for n = 1; ; n++ {
		found, hit := endure(sc, x, n, nil)
		if len(found) > 0 {
			var lines []string
			_, _ = endure(sc, x, n, func(s string) { lines = append(lines, s) })
			t.Errorf("scenario %s, %v, at %d:\n%v\npoints:\n%s\nagain: go test ./testbed/sim -run 'CrashFaults/.*/%s$' -v",
				sc.name, x, n, found, joinLines(lines), sc.name)
			return n
		}
		if !hit {
			return n - 1
		}
	}
}
