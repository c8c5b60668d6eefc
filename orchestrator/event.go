package orchestrator

import "time"

// Step is one part of a transaction that takes time.
type Step string

// The steps, in the order they can occur.
const (
	StepPolicy   Step = "policy"
	StepSnapshot Step = "snapshot"
	StepExecute  Step = "execute"
	StepValidate Step = "validate"
	StepCommit   Step = "commit"
	StepRollback Step = "rollback"
	StepRecover  Step = "recover" // settling what an earlier process left
	StepCollect  Step = "collect" // deleting snapshots nobody needs
)

// Phase says what happened to a step.
type Phase string

// The phases of a step. Every started step is finished exactly once; progress
// comes in between and only when there is something to say.
const (
	PhaseStarted  Phase = "started"
	PhaseProgress Phase = "progress"
	PhaseFinished Phase = "finished"
)

// Event tells an observer what the engine is doing. The engine calls the
// observer from the goroutine that works, so it must be quick, must be safe
// for concurrent use, and must not call the engine.
type Event struct {
	At       time.Time
	Tx       TxID
	Sandbox  SandboxID
	Step     Step
	Phase    Phase
	Duration time.Duration // PhaseFinished only
	State    State         // of the transaction
	// Background is true for what the engine does of itself between two orders.
	// A snapshot of it that a command uses later gives its Tx to that command's
	// events, but for those of the step policy.
	Background bool
	Boundary   Boundary
	Detail     string // one short line: a verdict, a snapshot's name, a reason
	Err        error  // why the step failed; nil otherwise. Unlike Detail it is not redacted: see Redact
}
