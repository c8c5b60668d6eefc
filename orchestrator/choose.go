package orchestrator

import (
	"fmt"

	"savepoint/policy"
)

// cover is how much a boundary has to cover.
type cover int

const (
	coverNothing cover = iota // everything is proved read-only
	coverAgent                // what the unprivileged user can write
	coverVM                   // all of the VM
)

// cover is what the command and its validations may do together. The boundary
// follows privilege: what the account can write is what has to be covered. The
// policy knows the values of the caller's and the session's variables but not
// what programs make of them (a PATH, say): with any nothing is proved read-only.
func (t *tx) cover() cover {
	need := coverNothing
	add := func(v policy.Verdict, as policy.User, env map[string]string) {
		switch {
		case v.Decision == policy.Allow && len(env) == 0:
		case as == policy.Agent:
			need = max(need, coverAgent)
		default:
			need = coverVM
		}
	}
	add(t.verdict, t.spec.As, t.env)
	for _, p := range t.probes {
		add(p.verdict, p.as, t.spec.Env)
	}
	return need
}

// covers says how much the boundary covers.
func (b Boundary) covers() cover {
	switch b {
	case BoundaryMachine, BoundaryDisk:
		return coverVM
	case BoundaryWorkspace:
		return coverAgent
	default:
		return coverNothing
	}
}

// choose returns the boundary: the cheapest that covers the need, or the
// requested one if it does. *UsageError when it does not, *UnsupportedError
// when there is no driver for it; the command does not run then.
func (e *Engine) choose(s Spec, need cover) (Boundary, error) {
	b := s.Boundary
	if b == BoundaryAuto {
		switch {
		case need == coverNothing:
			return BoundaryNone, nil
		case need == coverAgent && s.Sandbox.Workspace != "" && e.c.Snapshotters[BoundaryWorkspace] != nil:
			return BoundaryWorkspace, nil
		default:
			b = e.c.RootBoundary
		}
	}
	if b.covers() < need {
		mend := "use auto, disk or machine"
		if need == coverAgent {
			mend = "use auto, workspace, disk or machine"
		}
		return "", &UsageError{What: fmt.Sprintf("boundary %s does not cover what the command or a validation may do as %s", b, s.As), Mend: mend}
	}
	if b == BoundaryNone {
		return b, nil
	}
	if b == BoundaryWorkspace && s.Sandbox.Workspace == "" {
		return "", &UnsupportedError{What: fmt.Sprintf("sandbox %s has no workspace volume", s.Sandbox.Name), Mend: "use boundary disk or machine"}
	}
	if e.c.Snapshotters[b] == nil {
		return "", &UnsupportedError{What: fmt.Sprintf("no driver for boundary %s; the command does not run without one", b), Mend: "see savepoint doctor"}
	}
	return b, nil
}
