package sim_test

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"savepoint/orchestrator"
	"savepoint/policy"
	"savepoint/testbed/sim/world"
)

var (
	simSeed  = flag.Int("sim.seed", 0, "walk only this seed; 0 = several")
	simSteps = flag.Int("sim.steps", 0, "operations of a walk; 0 = as many as fit")
)

// A walk is thousands of random orders to several sandboxes at once, with
// random faults, crashes and an operator who interferes. After every few
// rounds everything is brought to its end and compared. A failure says how to
// walk the same way again.
func TestCrashWalk(t *testing.T) {
	seeds, steps := 4, 250
	if everything() {
		seeds, steps = 40, 2500
	}
	if *simSteps > 0 {
		steps = *simSteps
	}
	first := 1
	if *simSeed > 0 {
		first, seeds = *simSeed, 1
	}
	for seed := first; seed < first+seeds; seed++ {
		t.Run(fmt.Sprintf("seed-%d", seed), func(t *testing.T) {
			t.Parallel()
			bubble(t, func(t *testing.T) { walkOnce(t, seed, steps) })
		})
	}
}

func walkOnce(t *testing.T, seed, steps int) {
	w := newWalk(seed, nil)
	w.walk(steps)
	if len(w.l.found) == 0 {
		t.Logf("seed %d: %d operations in %d processes: %s faults: %s", seed, w.ops, w.l.n, sortedCounts(w.ends), sortedCounts(w.f.Injected))
		return
	}
	var lines []string
	again := newWalk(seed, func(s string) { lines = append(lines, s) })
	again.walk(steps)
	if fmt.Sprint(again.l.found) != fmt.Sprint(w.l.found) {
		t.Errorf("the replay found something else, it is not deterministic:\n%v", again.l.found)
	}
	t.Errorf("seed %d, after %d operations:\n%v\nschedule:\n%s\nagain: go test ./testbed/sim -run CrashWalk -v -sim.seed %d -sim.steps %d",
		seed, w.ops, w.l.found, joinLines(lines), seed, steps)
}

type walk struct {
	l    *lab
	rng  *rand.Rand
	f    *world.Faults
	ops  int
	ends map[string]int
	// keyed are requests with a key, by sandbox. Each may come again at any
	// time: no command may run twice for that.
	keyed map[orchestrator.SandboxID][]orchestrator.Spec
}

func newWalk(seed int, log func(string)) *walk {
	l := newLab(scenario{name: "walk", boxes: 3, seed: seed * 1000, anySnapshot: seed%3 == 0, single: seed%5 == 0, ahead: seed%2 == 0}, log)
	w := &walk{l: l, rng: rand.New(rand.NewPCG(uint64(seed), 3)), f: world.NewFaults(l.c, uint64(seed), 120), ends: map[string]int{}}
	w.keyed = map[orchestrator.SandboxID][]orchestrator.Spec{}
	return w
}

// walk goes on until so many operations were done or something is found.
func (w *walk) walk(steps int) {
	l := w.l
	for w.ops < steps && len(l.found) == 0 {
		l.faults, l.skew = w.f, time.Duration(w.rng.IntN(80)-40)*time.Minute
		l.boot(nil)
		_, _ = l.recover()
		for range 2 + w.rng.IntN(5) {
			if l.p.Gone() || l.p.Lost() {
				break
			}
			w.round()
		}
		if w.rng.IntN(3) > 0 {
			w.count()
		}
	}
	if len(l.found) == 0 {
		w.count()
	}
}

// round gives every sandbox something to do at once.
func (w *walk) round() {
	l := w.l
	var callers []func()
	for i, sb := range l.boxes {
		do := w.operation(sb, i)
		callers = append(callers, do)
		w.ops++
	}
	if w.rng.IntN(8) == 0 {
		callers = append(callers, w.operator(l.boxes[w.rng.IntN(len(l.boxes))]))
	}
	if w.rng.IntN(6) == 0 {
		callers = append(callers, func() { _, _ = l.e.Collect(context.Background()) })
	}
	l.together(callers...)
}

// command is one that nobody gave before.
func (w *walk) command(n int) string {
	file := fmt.Sprintf("/workspace/f%d", w.rng.IntN(4))
	text := fmt.Sprintf("echo v%d-%d > %s", w.ops, n, file)
	switch w.rng.IntN(10) {
	case 0:
		return text + " && rm /workspace/none"
	case 1:
		return text + " && sleep 3600"
	case 2:
		return text + " && mkdir /panic"
	case 3:
		return text + " && mkdir /cut && sleep 20 && " + fmt.Sprintf("echo late%d-%d > /workspace/late", w.ops, n)
	case 4:
		return text + " && rm " + file
	default:
		return text
	}
}

// operation chooses what a sandbox does; what it does must not choose any more.
func (w *walk) operation(sb orchestrator.Sandbox, i int) func() {
	l := w.l
	ctx := context.Background()
	as := []policy.User{policy.Agent, policy.Agent, policy.Root}[w.rng.IntN(3)]
	boundary := []orchestrator.Boundary{"", "disk", "machine"}[w.rng.IntN(3)]
	timeout := time.Duration(1+w.rng.IntN(30)) * time.Second
	command := w.command(i)
	patience := time.Hour * 24
	if w.rng.IntN(8) == 0 {
		patience = time.Duration(w.rng.IntN(5000)) * time.Millisecond
	}
	session := w.rng.IntN(3) == 0
	moves := func(n int) string {
		if !session {
			return ""
		}
		return fmt.Sprintf("cd /workspace/d%d && export LEVEL=v%d-%d && ", w.rng.IntN(9), w.ops, n)
	}
	if w.rng.IntN(4) > 0 {
		s := orchestrator.Spec{Sandbox: sb, Command: moves(0) + command, As: as, Boundary: boundary, Timeout: timeout, Session: session}
		switch w.rng.IntN(8) {
		case 0:
			s.Guard.Protect = []string{"/workspace/f0", "/workspace/f1"}
		case 1:
			s.Guard.OnlyChange = []string{"/workspace/f2"}
		case 2:
			s.Key = fmt.Sprint("key-", w.ops)
			w.keyed[sb.ID] = append(w.keyed[sb.ID], s)
		case 3:
			if old := w.keyed[sb.ID]; len(old) > 0 {
				s = old[w.rng.IntN(len(old))]
			}
		}
		return func() {
			ctx, cancel := context.WithTimeout(ctx, patience)
			defer cancel()
			if o := l.run(ctx, s); o.Replayed {
				w.ends["repeated"]++
			}
		}
	}
	var todo []string
	for n := range 1 + w.rng.IntN(5) {
		switch w.rng.IntN(4) {
		case 0:
			todo = append(todo, fmt.Sprintf("save s%d", n))
		case 1:
			todo = append(todo, fmt.Sprintf("back s%d", w.rng.IntN(n+1)), "back begin")
		default:
			todo = append(todo, "exec "+moves(n)+fmt.Sprintf("echo m%d-%d-%d > /workspace/f%d", w.ops, i, n, w.rng.IntN(4)))
		}
	}
	end := w.rng.IntN(4)
	return func() {
		ctx, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		x, err := l.e.Begin(ctx, orchestrator.BeginSpec{Sandbox: sb, As: as, Boundary: boundary, Session: session, Bound: end == 3})
		if err != nil {
			return
		}
		for _, order := range todo {
			if err = orders(ctx, x, order); err != nil && x.View().State != orchestrator.StateOpen {
				break
			}
		}
		switch {
		case end < 2:
			l.tell(x.Commit(ctx))
		case end == 2:
			l.tell(x.Rollback(ctx, "the walk does"))
		}
		_ = x.Close(context.Background())
	}
}

// operator is somebody else who has his hands on the cluster.
func (w *walk) operator(sb orchestrator.Sandbox) func() {
	after := time.Duration(w.rng.IntN(6000)) * time.Millisecond
	does := w.rng.IntN(9)
	name := orchestrator.SnapshotName(fmt.Sprintf("auto%d", w.ops))
	c := w.l.c
	return func() {
		time.Sleep(after)
		if w.l.log != nil {
			w.l.log(fmt.Sprintf("the operator does %d to %s", does, sb.Name))
		}
		switch does {
		case 0:
			c.TakeSnapshot(sb, name)
		case 1:
			c.DeleteOurs(sb)
		case 2:
			c.Give(sb, "somebody")
		case 3:
			c.PowerCycle(sb, true)
		case 4:
			c.PowerCycle(sb, false)
		case 5:
			c.Backup(sb, time.Minute)
		case 6:
			c.Mute(sb, 40*time.Second)
		case 7:
			c.Skew(sb, -75*time.Hour)
		case 8:
			c.Rekey(sb)
		}
	}
}

// count compares, and counts how transactions ended.
func (w *walk) count() {
	for _, t := range w.l.calm() {
		w.ends[string(t.State)]++
	}
}

func sortedCounts(m map[string]int) string {
	text := ""
	for _, k := range slices.Sorted(maps.Keys(m)) {
		text += fmt.Sprintf("%s %d, ", k, m[k])
	}
	return text
}
