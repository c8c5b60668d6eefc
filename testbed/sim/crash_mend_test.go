package sim_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"savepoint/orchestrator"
	"savepoint/testbed/sim/world"
)

// calm ends the faults, brings everything to its end, with an operator where
// one is needed, and compares.
func (l *lab) calm() (views []view) {
	l.faults, l.skew = nil, 0
	l.boot(nil)
	_, _ = l.recover()
	l.needs()
	if len(l.found) > 0 {
		return nil
	}
	l.mend()
	l.endOpen()
	if l.needs(); len(l.found) == 0 && len(l.unfinished()) > 0 {
		l.mend() // what was in the way of an open one shows only when it is ended
	}
	_ = l.collect()
	time.Sleep(3 * time.Hour) // no snapshot that was ordered is waited for any longer
	if err := l.collect(); err != nil {
		l.finding(world.Clean, "collect: %v", err)
	}
	views, _ = orchestrator.List(context.Background(), l.recent(), orchestrator.Filter{})
	l.checks(true)
	l.old = l.disk.Fence()
	return views
}

// asked is what an operator relies on who reads what savepoint says.
const asked = "an operator is asked about a lock that no task holds"

// needs checks that what is not finished needs an operator, and that he is told
// so where the cluster shows it.
func (l *lab) needs() {
	for _, t := range l.unfinished() {
		if l.log != nil {
			l.log(fmt.Sprintf("-- %s is %s (%s): %v", t.ID, t.State, t.Reason, l.c.NeedsOperator(t)))
		}
		why := l.c.NeedsOperator(t)
		locks := slices.DeleteFunc(slices.Clone(why), func(s string) bool { return !strings.HasPrefix(s, "stale lock ") })
		switch {
		case len(why) == 0:
			l.finding(world.Needed, "transaction %s is %s without a need: %s", t.ID, t.State, t.Reason)
		case len(locks) == len(why) && t.State != orchestrator.StateStuck:
			l.finding(asked, "transaction %s is %s for a %s, and nobody was told", t.ID, t.State, locks[0])
		}
	}
}

// unfinished are the transactions that wait for recovery or an operator.
func (l *lab) unfinished() (left []view) {
	all, err := orchestrator.List(context.Background(), l.recent(), orchestrator.Filter{Open: true})
	if err != nil {
		l.finding(world.Ended, "list: %v", err)
	}
	for _, t := range all {
		if t.State != orchestrator.StateOpen && !t.Settled {
			left = append(left, t)
		}
	}
	slices.SortFunc(left, func(a, b view) int { return strings.Compare(string(a.ID), string(b.ID)) })
	return left
}

type view = orchestrator.Transaction

// mend is the operator's work, and what savepoint does after it.
func (l *lab) mend() {
	ctx := context.Background()
	keep := map[orchestrator.SandboxID]view{}
	for _, t := range l.unfinished() {
		keep[t.Sandbox.ID] = t
	}
	for _, sb := range l.boxes {
		l.c.Mend(sb, keep[sb.ID].Snapshot)
	}
	l.boot(nil)
	if _, err := l.recover(); err != nil {
		l.finding(world.Mended, "recover: %v", err)
	}
	for _, sb := range l.boxes {
		t, ok := keep[sb.ID]
		if !ok {
			l.c.Boot(sb)
			continue
		}
		now, err := orchestrator.Show(ctx, l.disk, t.ID)
		if err == nil && now.State == orchestrator.StateStuck {
			l.together(func() {
				o, err := l.e.Retry(ctx, t.ID)
				if l.tell(o, err); err != nil {
					l.finding(world.Mended, "retry %s: %s (%s), %v", t.ID, o.State, o.Reason, err)
				}
			})
			now, err = orchestrator.Show(ctx, l.disk, t.ID)
		}
		switch {
		case err != nil:
			l.finding(world.Mended, "show %s: %v", t.ID, err)
		case now.State == orchestrator.StateStuck && len(l.c.NeedsOperator(now)) > 0:
			l.c.Rebuild(sb) // what was to be restored is gone
			l.together(func() {
				if err := l.e.Forget(ctx, sb.ID); err != nil {
					l.finding(world.Mended, "forget %s: %v", sb.Name, err)
				}
			})
			if err := l.disk.ClearSession(ctx, sb.ID); err != nil {
				l.finding(world.Mended, "forget the session of %s: %v", sb.Name, err)
			}
			l.check.Anew(sb.ID, t.ID)
		case !now.State.Final():
			l.finding(world.Mended, "%s is %s (%s) after it was mended", t.ID, now.State, now.Reason)
		}
		l.c.Boot(sb)
	}
}
