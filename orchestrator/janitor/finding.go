package janitor

import (
	"context"
	"errors"

	"savepoint/orchestrator"
)

// Kind says what was found. The words are part of the printed form: they never
// change their meaning.
type Kind string

// The kinds of findings.
const (
	KindUnfinished   Kind = "unfinished-sandbox"
	KindHalfClone    Kind = "half-made-clone"
	KindOrphanVM     Kind = "orphan-vm"
	KindHalfTemplate Kind = "half-made-template"
	KindHalfSnapshot Kind = "half-made-snapshot"
	KindOrphanSnap   Kind = "orphan-snapshot"
	KindSpent        Kind = "spent-snapshot"
	KindMemory       Kind = "orphan-memory"
	KindLock         Kind = "stale-lock"
	KindQuarantined  Kind = "quarantined-sandbox"
	KindPooled       Kind = "pooled-sandbox"
	KindMissingVM    Kind = "missing-vm"
	KindMovedVM      Kind = "moved-vm"
	KindLostOwner    Kind = "lost-owner"
	KindUnmarked     Kind = "unmarked-clone"
	KindBusy         Kind = "at-work"
	KindForeignSnap  Kind = "foreign-snapshot"
	KindForeignVM    Kind = "foreign-vm"
	KindHA           Kind = "ha"
	KindReplication  Kind = "replication"
	KindUnseen       Kind = "unseen"
)

// Level says who has to do something about a finding.
type Level string

// The levels.
const (
	LevelCollect  Level = "collect"  // the janitor
	LevelOperator Level = "operator" // a person: see Command
	LevelWait     Level = "wait"     // nobody yet: something still works on it, or it is being watched
	LevelNote     Level = "note"     // nobody: it is said and left alone
)

// State says what came of a finding.
type State string

// The states.
const (
	StateFound  State = "found" // nothing was done
	StateDone   State = "done"
	StateFailed State = "failed"
)

// Finding is one thing that should not be there, or that a person should know.
type Finding struct {
	Kind     Kind   `json:"kind"`
	Level    Level  `json:"level"`
	Subject  string `json:"subject"`           // "snapshot sp-… of vm 9000 on pve1"
	Sandbox  string `json:"sandbox,omitempty"` // name, or id of one that is not in the registry
	Evidence string `json:"evidence"`          // why it was found
	Action   string `json:"action"`            // what is done about it
	Command  string `json:"command,omitempty"` // what an operator runs
	Check    string `json:"check,omitempty"`   // what an operator looks at before
	Bytes    int64  `json:"bytes,omitempty"`   // space that it takes, where that is known
	State    State  `json:"state"`
	Error    string `json:"error,omitempty"`

	err error
	act func(ctx context.Context, started orchestrator.Started) error
	// gone reports whether the thing has gone although act failed; may be nil.
	gone func(ctx context.Context) bool
	// quiet acts change nothing on the cluster and need no note.
	quiet bool
}

// Report is what a look or a cleaning found.
type Report struct {
	Findings []Finding `json:"findings"`
	// Resumed says what an earlier run was at when it was interrupted.
	Resumed []string `json:"interrupted_before,omitempty"`
}

// Count returns how many findings have that level.
func (r Report) Count(l Level) int {
	n := 0
	for _, f := range r.Findings {
		if f.Level == l {
			n++
		}
	}
	return n
}

// Err joins what went wrong; nil when everything that could be done was done.
func (r Report) Err() error {
	var errs []error
	for _, f := range r.Findings {
		if f.State == StateFailed && f.Level != LevelOperator {
			errs = append(errs, f.err)
		}
	}
	return errors.Join(errs...)
}
