package sim_test

import (
	"context"

	"savepoint/orchestrator"
	"savepoint/testbed/sim"
)

// What everybody relies on while the journal's disk is full, and after.
const (
	unwritten = "no command runs that the journal has no room for"
	resumed   = "a process goes on when its journal has room again"
)

// full is a journal that refuses its n-th write and all later ones, in so many
// processes after the first, until the operator makes room. Nothing but the room
// may need him.
func full(name string, restarts int) trouble {
	return disturbed(name, func(l *lab, n int, hit *bool) {
		writes := 0
		l.full = func() bool {
			writes++
			*hit = *hit || writes == n
			return *hit
		}
	}, func(l *lab) {
		for range restarts {
			l.boot(nil)
			l.standstill()
		}
		if l.full = nil; restarts > 0 {
			return
		}
		if _, err := l.recover(); err != nil {
			l.finding(resumed, "recover: %v", err)
		}
		if err := l.collect(); err != nil {
			l.finding(resumed, "collect: %v", err)
		}
	})
}

// room is what becomes of a write to the journal.
func (l *lab) room([]orchestrator.Record) sim.JournalFault {
	if l.full != nil && l.full() {
		return sim.JournalRefuses
	}
	return sim.JournalWorks
}

// standstill asks a process without room for all that it does.
func (l *lab) standstill() {
	ctx := context.Background()
	_, _ = l.recover()
	_ = l.collect()
	for _, sb := range l.boxes {
		for _, s := range []orchestrator.Spec{
			{Sandbox: sb, Command: "echo full > /workspace/full", Boundary: "machine"},
			{Sandbox: sb, Command: "cat /workspace/a /workspace/keep"},
		} {
			l.together(func() {
				o, err := l.e.Run(ctx, s)
				if runs := l.c.Runs(sb)[s.Command]; err == nil || runs > 0 {
					l.finding(unwritten, "sandbox %s: %q ran %d times and is %s (%s), %v", sb.Name, s.Command, runs, o.State, o.Reason, err)
				}
			})
		}
	}
}
