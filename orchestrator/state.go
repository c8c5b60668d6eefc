package orchestrator

import (
	"fmt"
	"slices"
)

// State is where a transaction is. The words are stored in journals: the list
// is append-only and a word never changes its meaning.
type State string

// The states of a transaction.
const (
	StateBegun       State = "begun"        // the intent is on disk; a snapshot may exist or appear
	StateSnapshotted State = "snapshotted"  // the snapshot is complete; nothing ran
	StateRunning     State = "running"      // a command may have been sent
	StateRan         State = "ran"          // the command's end is known
	StateCommitting  State = "committing"   // the commit point is passed
	StateCommitted   State = "committed"    // final: the effects stay
	StateRollingBack State = "rolling-back" // the state at begin is being restored
	StateRestored    State = "restored"     // the state at begin is back and proved
	StateRolledBack  State = "rolled-back"  // final: nothing of the transaction is left
	StateStuck       State = "stuck"        // an operator is needed; the sandbox is refused until then
	StateDenied      State = "denied"       // final: the policy refused; nothing was done
	StateOpen        State = "open"         // of several commands: waits for the next order
	StateSaving      State = "saving"       // a savepoint's snapshot may exist or appear
	StateReturning   State = "returning"    // the state at a savepoint is being restored
	StatePrepared    State = "prepared"     // a snapshot that was taken ahead waits for its command
)

// Final reports whether the transaction has come to its end. A stuck one has not.
func (s State) Final() bool {
	return s == StateCommitted || s == StateRolledBack || s == StateDenied
}

// States are all states there are.
func States() (all []State) {
	for _, t := range table() {
		if !slices.Contains(all, t.to) {
			all = append(all, t.to)
		}
	}
	return all
}

// Known reports whether there is such a state.
func (s State) Known() bool { return slices.Contains(States(), s) }

// The events that make records. They are stored in journals: append-only.
const (
	evBegin      = "begin"     // intent: what will run where, and the name of the snapshot
	evDeny       = "deny"      // the verdict was a refusal
	evTask       = "task"      // the cluster's name of a task that was just started
	evDrop       = "drop"      // intent: delete a snapshot under which nothing ran
	evSnapshot   = "snapshot"  // the snapshot is complete and current
	evRun        = "run"       // intent: the command is sent next
	evRan        = "ran"       // how the command ended
	evCommit     = "commit"    // the commit point
	evCommitted  = "committed" // nothing is left to do but to collect the snapshot
	evRollBack   = "roll-back" // intent: restore the state at begin
	evAttempt    = "attempt"   // intent: restore once more, and why
	evRestart    = "restart"   // intent: restart a guest that does not answer
	evRestored   = "restored"  // the state at begin was proved
	evRolledBack = "rolled-back"
	evStuck      = "stuck"   // what an operator has to do
	evRetry      = "retry"   // an operator mended it: restore again
	evResume     = "resume"  // an operator mended it: look again for a snapshot under which nothing ran
	evCollect    = "collect" // intent: delete the snapshot of a finished transaction
	evCollected  = "collected"
	evAbandoned  = "abandoned" // the sandbox does not exist any more
	evOpen       = "open"      // of several commands: ready for the next order
	evNotRun     = "not-run"   // the command provably never started
	evSave       = "save"      // intent: take the snapshot of a savepoint
	evSaved      = "saved"     // it is complete and current
	evUnsaved    = "unsaved"   // it could not be taken and nothing of it is left
	evReturn     = "return"    // intent: restore the state at a savepoint
	evReturned   = "returned"  // that state was proved
	evDropped    = "dropped"   // on the way down the snapshot of a newer savepoint was deleted
	evValidate   = "validate"  // intent: the validations of the whole run next
	evSettle     = "settle"    // an operator mended it: the state was proved, end the rollback
	evAhead      = "ahead"     // a snapshot without a command yet is complete and current
	evAdopt      = "adopt"     // the command that it was taken for: what will run where
)

// transition is one line of the table.
type transition struct {
	from  State
	event string
	to    State
}

// table returns every allowed transition. What is not here is refused, when a
// record is written and when one is read.
func table() []transition {
	return []transition{
		{"", evDeny, StateDenied},
		{"", evBegin, StateBegun},

		{StateBegun, evTask, StateBegun},
		{StateBegun, evDrop, StateBegun},
		{StateBegun, evRestart, StateBegun},
		{StateBegun, evSnapshot, StateSnapshotted},
		{StateBegun, evRun, StateRunning}, // boundary none only
		{StateBegun, evRestored, StateRestored},
		{StateBegun, evStuck, StateStuck},

		{StateBegun, evAhead, StatePrepared},
		{StatePrepared, evAdopt, StateSnapshotted},
		{StatePrepared, evRestored, StateRestored},    // it is not used: nothing ran
		{StatePrepared, evRollBack, StateRollingBack}, // the guest does not answer since it was taken

		{StateSnapshotted, evRun, StateRunning},
		{StateSnapshotted, evRollBack, StateRollingBack},

		{StateRunning, evRan, StateRan},
		{StateRunning, evRollBack, StateRollingBack},

		{StateRan, evRun, StateRunning}, // the next command of the same transaction
		{StateRan, evCommit, StateCommitting},
		{StateRan, evRollBack, StateRollingBack},

		{StateSnapshotted, evOpen, StateOpen},
		{StateRan, evOpen, StateOpen},
		{StateRunning, evNotRun, StateOpen},
		{StateOpen, evRun, StateRunning},
		{StateOpen, evDeny, StateOpen}, // of one command
		{StateOpen, evValidate, StateRan},
		{StateOpen, evCommit, StateCommitting},
		{StateOpen, evRollBack, StateRollingBack},

		{StateOpen, evSave, StateSaving},
		{StateSaving, evTask, StateSaving},
		{StateSaving, evDrop, StateSaving},
		{StateSaving, evRestart, StateSaving},
		{StateSaving, evSaved, StateOpen},
		{StateSaving, evUnsaved, StateOpen},
		{StateSaving, evRollBack, StateRollingBack},

		{StateOpen, evReturn, StateReturning},
		{StateReturning, evTask, StateReturning},
		{StateReturning, evDropped, StateReturning},
		{StateReturning, evAttempt, StateReturning},
		{StateReturning, evRestart, StateReturning},
		{StateReturning, evReturned, StateOpen},
		{StateReturning, evRollBack, StateRollingBack},
		{StateReturning, evStuck, StateStuck},

		{StateCommitting, evCommitted, StateCommitted},
		{StateCommitting, evStuck, StateStuck},

		{StateRollingBack, evTask, StateRollingBack},
		{StateRollingBack, evDropped, StateRollingBack},
		{StateRollingBack, evAttempt, StateRollingBack},
		{StateRollingBack, evRestart, StateRollingBack},
		{StateRollingBack, evRestored, StateRestored},
		{StateRollingBack, evStuck, StateStuck},

		{StateRestored, evTask, StateRestored},
		{StateRestored, evRolledBack, StateRolledBack},
		{StateRestored, evStuck, StateStuck},

		{StateStuck, evRetry, StateRollingBack},
		{StateStuck, evResume, StateBegun},
		{StateStuck, evSettle, StateRestored},
		{StateStuck, evAbandoned, StateStuck},

		{StateCommitted, evCollect, StateCommitted},
		{StateCommitted, evTask, StateCommitted},
		{StateCommitted, evCollected, StateCommitted},
		{StateCommitted, evAbandoned, StateCommitted},
		{StateRolledBack, evCollect, StateRolledBack},
		{StateRolledBack, evTask, StateRolledBack},
		{StateRolledBack, evCollected, StateRolledBack},
		{StateRolledBack, evAbandoned, StateRolledBack},
	}
}

// moves is the table made ready for look-ups. It is built once per engine or
// query and never changed.
type moves map[State]map[string]State

func newMoves() moves {
	m := moves{}
	for _, t := range table() {
		if m[t.from] == nil {
			m[t.from] = map[string]State{}
		}
		m[t.from][t.event] = t.to
	}
	return m
}

// next returns the state after the event, or *TransitionError.
func (m moves) next(tx TxID, from State, event string) (State, error) {
	if to, ok := m[from][event]; ok {
		return to, nil
	}
	return "", &TransitionError{Tx: tx, From: from, Event: event}
}

// TransitionError says that an event is impossible in a state: a programming
// error when it is met on the way to the journal, a damaged or foreign record
// when it is met on the way from it.
type TransitionError struct {
	Tx    TxID
	From  State // "" before the first record
	Event string
	To    State // what the record claims, when it claims something else than the table
}

func (e *TransitionError) Error() string {
	from := e.From
	if from == "" {
		from = "new"
	}
	if e.To != "" {
		return fmt.Sprintf("transaction %s: %q in state %q does not lead to %q", e.Tx, e.Event, from, e.To)
	}
	return fmt.Sprintf("transaction %s: %q is impossible in state %q", e.Tx, e.Event, from)
}
