package janitor

import (
	"context"
	"fmt"
	"slices"
	"time"

	"savepoint/orchestrator"
)

// ownLocks are what our own orders take; other locks are somebody else's.
var ownLocks = []string{"clone", "create", "rollback", "snapshot", "snapshot-delete"}

const (
	// otherLockAge is how long a lock that savepoint never takes (backup,
	// migration) has to be seen without a task before it is called stale.
	otherLockAge = 6 * time.Hour
	// lookGap is how far apart two looks may be and still be about one lock.
	lookGap = 2 * time.Hour
)

// sighting is one look at a lock that no task holds.
type sighting struct {
	stale bool
	since time.Time // seen first
	wait  time.Duration
}

// sight judges a lock without a task by what earlier looks saw, and notes this
// look if it is not a dry one. Two looks too far apart may be about two locks.
func (l *look) sight(vm orchestrator.VMRef, lock string) (sighting, error) {
	now, age := l.j.c.Now(), otherLockAge
	if slices.Contains(ownLocks, lock) {
		age = l.j.c.LockAge
	}
	key := sightingKey(lock, vm.String())
	l.sighted[key] = true
	n := Note{At: now, Event: EventSighted, Subject: vm.String(), Lock: lock, First: now, Looks: 1}
	if old, ok := l.j.c.Notes.Sightings()[key]; ok && now.Sub(old.At) <= lookGap && !now.Before(old.At) {
		n.First, n.Looks = old.First, old.Looks+1
	}
	if !l.dry {
		if err := l.j.c.Notes.Append(n); err != nil {
			return sighting{}, err
		}
	}
	return sighting{stale: n.Looks > 1 && now.Sub(n.First) >= age, since: n.First, wait: age - now.Sub(n.First)}, nil
}

// forget notes the locks that earlier looks saw and this one did not. Those on
// nodes that did not answer stay as they are.
func (l *look) forget() error {
	if l.dry || len(l.inv.Nodes) > 0 {
		return nil
	}
	var gone []Note
	for key, n := range l.j.c.Notes.Sightings() {
		if !l.sighted[key] {
			gone = append(gone, Note{At: l.j.c.Now(), Event: EventCleared, Subject: n.Subject, Lock: n.Lock})
		}
	}
	for _, n := range gone {
		if err := l.j.c.Notes.Append(n); err != nil {
			return err
		}
	}
	return nil
}

// unlocking is what an operator does about a stale lock, and what he looks at
// before.
func unlocking(vm orchestrator.VMRef) (command, check string) {
	return fmt.Sprintf("qm unlock %d (as root on node %s)", vm.ID, vm.Node),
		fmt.Sprintf("on node %s: no task of vm %d runs (qm list, the node's task log, ps for a worker or a qemu-img of it)", vm.Node, vm.ID)
}

// locked makes the finding for a lock and reports whether it is stale.
func (l *look) locked(ctx context.Context, v VM, name string) (f Finding, stale bool, err error) {
	tasks, err := l.working(ctx, v)
	if err != nil {
		return f, false, err
	}
	f = Finding{Kind: KindLock, Subject: v.VM.String(), Sandbox: name}
	if len(tasks) > 0 {
		f.Kind, f.Level = KindBusy, LevelWait
		f.Evidence = fmt.Sprintf("it is locked (%s) and task %s runs", v.Lock, tasks[0])
		f.Action = "left for a later run"
		return f, false, nil
	}
	s, err := l.sight(v.VM, v.Lock)
	if err != nil {
		return f, false, err
	}
	f.Evidence = fmt.Sprintf("it is locked (%s) and no running task is visible, seen so since %s", v.Lock, s.since.UTC().Format(time.RFC3339))
	if slices.Contains(l.inv.OwnTasks, v.VM.Node) {
		f.Evidence += " (the token sees only its own tasks: Sys.Audit on /nodes/" + v.VM.Node + " shows all)"
	}
	if !s.stale {
		f.Level = LevelWait
		f.Action = "watched: a later run decides"
		if s.wait > 0 {
			f.Action = fmt.Sprintf("watched: run savepoint gc again in %s", s.wait.Round(time.Second))
		}
		return f, false, nil
	}
	f.Level = LevelOperator
	f.Command, f.Check = unlocking(v.VM)
	return f, true, nil
}
