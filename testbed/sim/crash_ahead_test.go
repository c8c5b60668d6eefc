package sim_test

import (
	"context"
	"fmt"
	"slices"
	"time"

	"savepoint/orchestrator"
	"savepoint/testbed/sim/world"
)

// taken is what a scenario is there for whose snapshots are taken ahead.
const taken = "a snapshot is taken ahead, and used when nothing was written since"

// thinks is the time between two commands: longer than any preparation.
func thinks() { time.Sleep(40 * time.Minute) }

// used counts the commands that went on with a snapshot taken ahead.
func (l *lab) used() (n int) {
	views, _ := orchestrator.List(context.Background(), l.recent(), orchestrator.Filter{Used: true})
	for _, t := range views {
		if t.Ahead {
			n++
		}
	}
	return n
}

// wantUsed checks that, where nothing went wrong.
func (l *lab) wantUsed(n int) {
	if got := l.used(); !l.p.Gone() && l.calmly && got != n {
		l.finding(taken, "%d commands went on with one instead of %d", got, n)
	}
}

// typed is what somebody else writes in the guest between two commands. It is of
// no transaction, so none may undo it.
func (l *lab) typed() {
	last := len(l.ends) - 1
	if l.p.Gone() || last < 0 || l.ends[last] != orchestrator.StateCommitted || len(l.stuck()) > 0 {
		return // a command may be under way, which is undone with all that was written since
	}
	l.c.Write(l.boxes[0], "/workspace/typed", "by hand")
	l.check.Wrote(l.boxes[0].ID, "/workspace/typed", "by hand")
}

func (l *lab) stuck() []view {
	return slices.DeleteFunc(l.unfinished(), func(t view) bool { return t.Unused() && t.State == orchestrator.StatePrepared })
}

// aheads are scenarios of a process that takes snapshots ahead.
func aheads() (all []scenario) {
	const done, undone = orchestrator.StateCommitted, orchestrator.StateRolledBack
	add := func(name string, ends []orchestrator.State, do func(ctx context.Context, l *lab)) *scenario {
		all = append(all, scenario{name: name, ahead: true, ends: ends, do: do})
		return &all[len(all)-1]
	}
	for _, b := range boundaries {
		commit, fail := single(b)["commit"], single(b)["fail"]
		again := commit
		again.Command = "echo again > /workspace/a"
		add(string(b)+"-ahead-used", []orchestrator.State{done, undone, done}, func(ctx context.Context, l *lab) {
			l.run(ctx, commit)
			thinks()
			l.run(ctx, fail)
			l.run(ctx, again) // while the next one is being taken
			l.wantUsed(1)
		})
		add(string(b)+"-ahead-written", []orchestrator.State{done, undone, done}, func(ctx context.Context, l *lab) {
			l.run(ctx, commit)
			thinks()
			l.typed()
			l.run(ctx, fail)
			thinks()
			l.run(ctx, again)
			l.wantUsed(1)
		})
	}
	commit, fail := single("disk")["commit"], single("disk")["fail"]
	again := commit
	again.Command = "echo again > /workspace/a"
	sc := add("disk-ahead-one-by-one", []orchestrator.State{done, undone}, func(ctx context.Context, l *lab) {
		l.run(ctx, commit)
		thinks()
		l.run(ctx, fail)
		l.wantUsed(1)
	})
	sc.single = true
	sc = add("disk-ahead-no-recovery", []orchestrator.State{done, undone}, func(ctx context.Context, l *lab) {
		l.run(ctx, commit)
		thinks()
		l.run(ctx, fail)
	})
	sc.next = func(ctx context.Context, l *lab) { // what is left of a preparation is in nobody's way
		if len(l.stuck()) == 0 {
			l.runs(ctx, orchestrator.Spec{Command: fmt.Sprintf("echo next > /workspace/next%d", l.n), Boundary: "disk"})
		}
		_, _ = l.e.Recover(ctx)
	}
	add("workspace-ahead-asked", []orchestrator.State{done, done}, func(ctx context.Context, l *lab) {
		_ = l.e.Ahead(ctx, l.boxes[0], "")
		thinks()
		l.run(ctx, orchestrator.Spec{Command: "cat /workspace/a"}) // writes nothing
		l.run(ctx, single("workspace")["commit"])
		l.wantUsed(1)
	})
	add("ahead-other-boundary", []orchestrator.State{done, undone, done}, func(ctx context.Context, l *lab) {
		l.run(ctx, single("workspace")["commit"])
		thinks()
		l.run(ctx, fail)
		thinks() // the disk's is taken, and is in the way of another one
		_ = l.e.Ahead(ctx, l.boxes[0], "machine")
		thinks()
		l.run(ctx, orchestrator.Spec{Command: again.Command, Boundary: "machine"})
		l.wantUsed(1)
	})
	add("machine-ahead-several", []orchestrator.State{done}, func(ctx context.Context, l *lab) {
		l.run(ctx, single("machine")["commit"])
		thinks()
		l.tell(l.e.Do(ctx, orchestrator.BeginSpec{Sandbox: l.boxes[0], Boundary: "machine"}, func(x *orchestrator.Tx) error {
			return orders(ctx, x, "exec echo one > /workspace/one", "save s1", "exec echo two > /workspace/a", "back s1")
		}))
	})
	add("disk-ahead-collect", []orchestrator.State{done, undone, done}, func(ctx context.Context, l *lab) {
		l.run(ctx, commit)
		l.run(ctx, fail)
		thinks()
		_, _ = l.e.Collect(ctx)
		l.run(ctx, again)
		thinks()
		if left := l.c.Owned(l.boxes[0]); len(left) > 4 {
			l.finding(world.Clean, "%d snapshots: %v", len(left), left)
		}
		l.wantUsed(1)
	})
	add("workspace-ahead-quiet", []orchestrator.State{done}, func(ctx context.Context, l *lab) {
		l.run(ctx, single("workspace")["commit"])
		if l.e.Quiet(ctx) == nil && !l.p.Gone() && l.calmly && len(l.unfinished()) > 0 {
			l.finding(world.Ended, "after quiet: %v", l.unfinished())
		}
	})
	add("disk-ahead-quiet", []orchestrator.State{done}, func(ctx context.Context, l *lab) {
		l.run(ctx, commit)
		thinks()
		if l.e.Quiet(ctx) == nil && l.calmly && !l.p.Gone() && len(l.c.Owned(l.boxes[0])) != 1 {
			l.finding(world.Clean, "after quiet: %v", l.c.Owned(l.boxes[0]))
		}
	})
	all = append(all, aheadRace(), aheadKeyed(), aheadGranted(), aheadResets(), aheadDestroys(), aheadSideBySide())
	return all
}

// runs is run for a caller whose answer nobody waits for.
func (l *lab) runs(ctx context.Context, s orchestrator.Spec) {
	s.Sandbox = l.boxes[0]
	l.tell(l.e.Run(ctx, s))
}

// aheadRace has two callers who want the sandbox at once: one of them gets it,
// and with it the snapshot.
func aheadRace() scenario {
	return scenario{name: "disk-ahead-race", ahead: true, boxes: 2, each: func(ctx context.Context, l *lab, sb orchestrator.Sandbox, i int) {
		for n := range 3 {
			s := single("disk")[[]string{"commit", "fail"}[(i+n)%2]]
			s.Command = fmt.Sprintf("echo race%d-%d > /workspace/race && %s", i, n, s.Command)
			l.runs(ctx, s) // both in the same one
			time.Sleep(time.Duration(7+11*i) * time.Second)
		}
	}}
}

// aheadKeyed has a caller with a key who comes back.
func aheadKeyed() scenario {
	sc := keyed("disk")
	first := sc.do
	sc.name, sc.ahead, sc.ends = "disk-ahead-key", true, []orchestrator.State{orchestrator.StateCommitted, orchestrator.StateCommitted}
	sc.do = func(ctx context.Context, l *lab) {
		l.run(ctx, orchestrator.Spec{Command: "echo before > /workspace/before", Boundary: "disk"})
		thinks()
		first(ctx, l)
		l.wantUsed(1)
	}
	return sc
}

// aheadGranted spends a grant with the adoption.
func aheadGranted() scenario {
	sc := granted()
	first := sc.do
	sc.name, sc.ahead, sc.ends = "workspace-ahead-grant", true, append([]orchestrator.State{orchestrator.StateCommitted}, sc.ends...)
	sc.do = func(ctx context.Context, l *lab) {
		l.run(ctx, orchestrator.Spec{Command: "echo before > /workspace/before", Boundary: "workspace"})
		thinks()
		first(ctx, l)
	}
	return sc
}

func aheadResets() scenario {
	sc := resets("disk")
	sc.name, sc.ahead = "disk-ahead-reset", true
	return sc
}

func aheadDestroys() scenario {
	sc := destroys()
	sc.name, sc.ahead = "machine-ahead-destroy", true
	return sc
}

// aheadSideBySide prepares in several sandboxes at once.
func aheadSideBySide() scenario {
	return scenario{name: "side-by-side-ahead", ahead: true, boxes: 3, each: func(ctx context.Context, l *lab, sb orchestrator.Sandbox, i int) {
		for _, kind := range []string{"commit", "fail"} {
			s := single(boundaries[i])[kind]
			s.Sandbox = sb
			l.run(ctx, s)
			time.Sleep(20 * time.Second)
		}
	}}
}
