package sim_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"savepoint/orchestrator"
	"savepoint/testbed/sim/world"
)

// late are orders whose answer is lost and that arrive when the sandbox has
// gone on to other work: nothing that was committed meanwhile may be undone.
func late() (all []scenario) {
	for _, b := range boundaries {
		fail, commit := single(b)["fail"], single(b)["commit"]
		for _, any := range []bool{false, true} {
			name := fmt.Sprintf("%s-any=%t", b, any)
			all = append(all,
				scenario{name: name + "-run", anySnapshot: any, do: func(ctx context.Context, l *lab) {
					l.run(ctx, fail)
					l.run(ctx, commit)
					time.Sleep(time.Minute)
				}},
				scenario{name: name + "-collected", anySnapshot: any, do: func(ctx context.Context, l *lab) {
					l.run(ctx, fail)
					l.run(ctx, commit)
					for range 12 { // the newest snapshot goes first, so that there is a moment in which it is not in the way
						_, _ = l.e.Collect(ctx)
						time.Sleep(5 * time.Second)
					}
				}},
				scenario{name: name + "-return", anySnapshot: any, do: func(ctx context.Context, l *lab) {
					x, err := l.e.Begin(ctx, orchestrator.BeginSpec{Sandbox: l.boxes[0], Boundary: b})
					if err != nil {
						return
					}
					if orders(ctx, x, "exec echo one > /workspace/a", "save s1", "exec echo two > /workspace/a", "back s1", "exec echo three > /workspace/a") == nil {
						l.tell(x.Commit(ctx))
					}
					time.Sleep(time.Minute)
				}},
			)
		}
	}
	return append(all, lateAhead("workspace"), lateAhead("disk"), lateAhead("machine"))
}

// lateAhead loses the order for a snapshot that is taken ahead, among others.
func lateAhead(b orchestrator.Boundary) scenario {
	return scenario{name: string(b) + "-ahead", ahead: true, do: func(ctx context.Context, l *lab) {
		l.run(ctx, single(b)["commit"])
		time.Sleep(10 * time.Second)
		l.run(ctx, single(b)["fail"])
		time.Sleep(time.Minute)
		next := single(b)["commit"]
		next.Command = "echo next > /workspace/a"
		l.run(ctx, next)
		time.Sleep(time.Minute)
	}}
}

// Every order to the cluster arrives late, once while its process lives and
// once after it died of the loss.
func TestCrashLate(t *testing.T) {
	one := chosen(t, false)
	for _, sc := range late() {
		t.Run(sc.name, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(t *testing.T) {
				if one != nil {
					replay(t, sc, *one)
					return
				}
				n := troubled(t, sc, fares("late", world.FateLate))
				n += troubled(t, sc, dead())
				t.Logf("%-28s %2d orders came late, %s", sc.name, n, verdict(t))
			})
		})
	}
}

// dead is an order that comes late and whose process dies with it; the next one
// settles what it left and gives the sandbox other work.
func dead() trouble {
	return trouble{name: "late-death", play: func(sc scenario, n int, log func(string)) ([]world.Finding, bool) {
		l := newLab(sc, log)
		l.boot(nil)
		seen, hit := 0, false
		l.p.Fate = func(world.Point) world.Fate {
			if seen++; seen == n {
				hit = true
				return world.FateLate
			}
			return world.FateDone
		}
		l.p.At = func(world.Point) error {
			if hit {
				return world.ErrCrash
			}
			return nil
		}
		l.together(sc.callers(l)...)
		if !hit {
			return l.found, false
		}
		l.boot(nil)
		_, _ = l.recover()
		l.together(func() {
			l.run(context.Background(), orchestrator.Spec{Command: "echo next > /workspace/next", Boundary: "machine"})
		})
		time.Sleep(time.Minute)
		l.calm()
		return l.found, true
	}}
}
