package sim_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"savepoint/orchestrator"
	"savepoint/testbed/sim/world"
)

// trouble is one thing that goes wrong. play plays a scenario in which the n-th
// thing that can have it has it; hit is false when there is no n-th.
type trouble struct {
	name string // for -sim.fault
	play func(sc scenario, n int, log func(string)) (found []world.Finding, hit bool)
}

func troubles() []trouble {
	return []trouble{
		fails("unavailable", orchestrator.ErrUnavailable, false), fails("busy", orchestrator.ErrBusy, false), fails("denied", orchestrator.ErrDenied, false),
		fails("unknown-before", orchestrator.ErrUnknownOutcome, false), fails("unknown-after", orchestrator.ErrUnknownOutcome, true),
		fares("slow", world.FateSlow), fares("task-fails", world.FateFails), fares("task-dies", world.FateDies),
		fares("hangs", world.FateHangs), fares("no-worker", world.FateNoWorker), fares("late", world.FateLate),
		full("journal-full", 0), full("journal-full-restarts", 2),
	}
}

// fails is an error at a point, before its effect or after it.
func fails(name string, class error, after bool) trouble {
	return disturbed(name, func(l *lab, n int, hit *bool) {
		seen := 0
		l.p.At = func(at world.Point) error {
			journal := strings.HasPrefix(at.Name, "journal")
			if at.After != after || at.Name == "listen" || journal && (errors.Is(class, orchestrator.ErrBusy) || errors.Is(class, orchestrator.ErrDenied)) {
				return nil
			}
			if seen++; seen != n {
				return nil
			}
			*hit = true
			if errors.Is(class, orchestrator.ErrDenied) {
				l.c.Grieve(at.Sandbox, "was denied")
			}
			return fmt.Errorf("injected at %s: %w", at, class)
		}
	}, nil)
}

// fares is a fate of an order to the cluster.
func fares(name string, fate world.Fate) trouble {
	return disturbed(name, func(l *lab, n int, hit *bool) {
		seen := 0
		l.p.Fate = func(world.Point) world.Fate {
			if seen++; seen == n {
				*hit = true
				return fate
			}
			return world.FateDone
		}
	}, nil)
}

// disturbed is a trouble that arm prepares for the first process, after whose
// work comes what then does, if it was met. At last everything is brought to its
// end, by an operator where one is needed.
func disturbed(name string, arm func(l *lab, n int, hit *bool), then func(l *lab)) trouble {
	return trouble{name: name, play: func(sc scenario, n int, log func(string)) ([]world.Finding, bool) {
		l, hit := newLab(sc, log), false
		l.boot(nil)
		arm(l, n, &hit)
		l.together(sc.callers(l)...)
		if !hit {
			l.full = nil // it is for the work, and for what comes of that
		} else if then != nil {
			then(l)
		}
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
	}}
}

// Every call fails once, in every way that a call can fail, every order to the
// cluster has every fate that an order can have, and the journal is full from
// every write on.
func TestCrashFaults(t *testing.T) {
	one := chosen(t, false)
	var mu sync.Mutex
	total, played := 0, 0
	t.Run("scenarios", func(t *testing.T) {
		for _, sc := range scenarios() {
			if one == nil && !everything() && !telling(sc.name) {
				continue
			}
			t.Run(sc.name, func(t *testing.T) {
				t.Parallel()
				bubble(t, func(t *testing.T) {
					if one != nil {
						replay(t, sc, *one)
						return
					}
					n := 0
					for _, x := range troubles() {
						n += troubled(t, sc, x)
					}
					t.Logf("%-28s %4d faults, %s", sc.name, n, verdict(t))
					mu.Lock()
					defer mu.Unlock()
					total, played = total+n, played+1
				})
			})
		}
	})
	if one != nil {
		return
	}
	more := ""
	if !everything() {
		more = " (all with SAVEPOINT_DEEP=1)"
	}
	t.Logf("%d faults in %d of %d scenarios%s, %s", total, played, len(scenarios()), more, verdict(t))
}

// telling leaves out what differs little from others.
func telling(name string) bool {
	for _, kind := range []string{"-fail", "several-commit", "-several", "-collect", "-panic", "-key", "-grant", "-guard", "-session", "-lazy-rollback", "-ahead-used", "-ahead-written"} {
		if strings.HasSuffix(name, kind) {
			return true
		}
	}
	return false
}

// troubled lets everything have the trouble that can, one after the other, until
// something is found, and returns how many had it and were settled.
func troubled(t *testing.T, sc scenario, x trouble) (n int) {
	t.Helper()
	for n = 1; ; n++ {
		found, hit := x.play(sc, n, nil)
		if len(found) > 0 {
			report(t, sc, schedule{x: x, n: n}, found)
			return n - 1
		}
		if !hit {
			return n - 1
		}
	}
}
