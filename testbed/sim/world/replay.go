package world

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"savepoint/orchestrator"
	"savepoint/policy"
)

// Left is what a sandbox's committed transactions have left: files, and a
// session for each account.
type Left struct {
	Files  Tree
	Shells Shells
}

// Shells are sessions by account.
type Shells map[policy.User]Shell

// String is the same for equal sessions.
func (s Shells) String() string {
	text := ""
	for _, as := range slices.Sorted(maps.Keys(s)) {
		if sh := s[as]; sh.Dir != "" || len(sh.Env) > 0 {
			text += fmt.Sprintf("%s in %q with %q; ", as, sh.Dir, sh.Env)
		}
	}
	return text
}

func (l Left) copy() Left {
	c := Left{maps.Clone(l.Files), Shells{}}
	for as, sh := range l.Shells {
		c.Shells[as] = sh.copy()
	}
	return c
}

// did lets a command happen that was not disturbed. Scenarios change the
// directory and export variables with a session only.
func (l Left) did(command string, as policy.User, result *orchestrator.RanView) {
	sh := l.Shells[as].copy()
	Apply(l.Files, &sh, command, as == policy.Root)
	if result != nil && !result.TimedOut {
		l.Shells[as] = sh
	}
}

// Replay is what the journal's story makes of a sandbox: nothing, unless the
// transaction was committed or is still open. add is told of what commands
// changed that their guards forbid.
func Replay(t orchestrator.Transaction, before Left, add func(invariant, format string, args ...any)) Left {
	if t.State != orchestrator.StateCommitted && t.State != orchestrator.StateOpen {
		return before
	}
	now := before.copy()
	if !t.Several {
		if t.Boundary != orchestrator.BoundaryNone {
			now.did(t.Command, t.As, t.Result)
			guarded(t, t.Command, t.Guard, before.Files, now.Files, add)
		}
		return now
	}
	type point struct {
		name string
		left Left
	}
	points := []point{{orchestrator.PointBegin, now.copy()}}
	next, saving := 0, ""
	for _, s := range t.Steps {
		switch s.Event {
		case "deny":
			next++
		case "run":
			next++
		case "ran":
			c, was := t.Commands[next-1], maps.Clone(now.Files)
			now.did(c.Command, c.As, c.Result)
			guarded(t, c.Command, c.Guard, was, now.Files, add)
		case "save":
			saving = s.Detail
		case "saved":
			points = append(points, point{saving, now.copy()})
		case "returned":
			for i := len(points) - 1; i >= 0; i-- {
				if points[i].name == s.Detail {
					points, now = points[:i+1], points[i].left.copy()
					break
				}
			}
		}
	}
	return now
}

// guarded compares what a command did with what it was not to do. A failure
// that is kept was asked for.
func guarded(t orchestrator.Transaction, command string, g *orchestrator.Guard, was, now Tree, add func(invariant, format string, args ...any)) {
	if g == nil || t.OnFailure == orchestrator.OnFailureKeep {
		return
	}
	within := func(path string, roots []string) bool {
		return slices.ContainsFunc(roots, func(r string) bool { return path == r || strings.HasPrefix(path, r+"/") })
	}
	both := maps.Clone(was)
	maps.Copy(both, now)
	for _, path := range slices.Sorted(maps.Keys(both)) {
		before, there := was[path]
		after, still := now[path]
		changed := there != still || before != after
		if changed && (within(path, g.Protect) || len(g.OnlyChange) > 0 && !within(path, g.OnlyChange)) {
			add(Guarded, "transaction %s is %s and %q changed %s", t.ID, t.State, command, path)
		}
	}
}
