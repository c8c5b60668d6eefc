package orchestrator

import (
	"encoding/json"
	"fmt"
	"time"

	"savepoint/policy"
)

// Transaction is what the journal says of one transaction. It is always built
// by folding its records, in the engine as in queries, so that what recovery
// sees is what the live engine saw.
type Transaction struct {
	ID        TxID           `json:"transaction"`
	Sandbox   Sandbox        `json:"sandbox"` // as it was at begin
	State     State          `json:"state"`
	By        string         `json:"by,omitempty"`
	Owner     string         `json:"owner,omitempty"` // the instance that began it
	Began     time.Time      `json:"began"`
	Ended     time.Time      `json:"ended,omitzero"` // when it became final
	Command   string         `json:"command"`
	Digest    string         `json:"command_sha256"`
	As        policy.User    `json:"as"`
	Dir       string         `json:"dir,omitempty"`
	OnFailure OnFailure      `json:"on_failure"`
	Profile   string         `json:"profile,omitempty"`
	Verdict   Judgement      `json:"verdict"`
	Validate  []ValidateView `json:"validate,omitempty"`
	Boundary  Boundary       `json:"boundary,omitempty"`
	Snapshot  SnapshotName   `json:"snapshot,omitempty"`
	// RunningAtBegin is the VM's run state that a rollback has to bring back.
	RunningAtBegin bool   `json:"running_at_begin"`
	BootID         string `json:"boot_id,omitempty"` // of the guest when the snapshot was taken

	Tasks  []TaskView `json:"tasks,omitempty"`
	Steps  []StepView `json:"steps"`
	Result *RanView   `json:"result,omitempty"` // nil: did not run, or its end is not known
	Checks []Check    `json:"checks,omitempty"`
	// Reason says why it was rolled back, kept in spite of a failure, or is stuck.
	Reason      string  `json:"reason,omitempty"`
	Mend        string  `json:"mend,omitempty"` // what an operator has to do; stuck only
	Interrupted bool    `json:"interrupted,omitempty"`
	Attempts    int     `json:"rollback_attempts,omitempty"`
	Timings     Timings `json:"timings_ms"`
	// Settled: nothing is left to do. A final transaction that is not settled
	// still has its snapshot on the cluster.
	Settled bool `json:"settled"`

	stuckFrom State // the state that "stuck" was entered from
	taken     bool  // the snapshot was complete before anything ran
	restarts  int   // of the guest during rollback
	dropping  bool  // the deletion of the unused snapshot was begun
}

// ValidateView is one validation command as it was asked for.
type ValidateView struct {
	Command string      `json:"command"`
	As      policy.User `json:"as"`
	Verdict Judgement   `json:"verdict"`
}

// TaskView is one cluster task that the transaction started.
type TaskView struct {
	UPID   UPID      `json:"upid"`
	Action string    `json:"action"` // create, rollback, delete, start, stop
	At     time.Time `json:"at"`

	attempt int
}

// StepView is one record: what happened and when.
type StepView struct {
	Seq    int64         `json:"seq"`
	At     time.Time     `json:"at"`
	Event  string        `json:"event"`
	State  State         `json:"state"`
	Took   time.Duration `json:"took_ns,omitempty"` // where the record says
	Detail string        `json:"detail,omitempty"`
}

// RanView is how the command ended. The outputs are the recorded beginnings;
// the digests are of everything that was written.
type RanView struct {
	Exit         int           `json:"exit"` // -1: ended by Signal
	Signal       string        `json:"signal,omitempty"`
	TimedOut     bool          `json:"timed_out,omitempty"`
	Truncated    bool          `json:"truncated"`
	Stdout       string        `json:"stdout"`
	Stderr       string        `json:"stderr"`
	StdoutBytes  int64         `json:"stdout_bytes"`
	StderrBytes  int64         `json:"stderr_bytes"`
	StdoutDigest string        `json:"stdout_sha256"`
	StderrDigest string        `json:"stderr_sha256"`
	Took         time.Duration `json:"took_ns"`
}

// apply folds one record in. It refuses what the table does not allow.
func (t *Transaction) apply(m moves, r Record) error {
	to, err := m.next(r.Tx, t.State, r.Event)
	if err != nil {
		return err
	}
	if r.State != to {
		return &TransitionError{Tx: r.Tx, From: t.State, Event: r.Event, To: r.State}
	}
	step := StepView{Seq: r.Seq, At: r.At, Event: r.Event, State: to}
	if err := t.fold(r, &step); err != nil {
		return fmt.Errorf("read %s record %d of transaction %s: %w", r.Event, r.Seq, r.Tx, err)
	}
	if to.Final() && !t.State.Final() {
		t.Ended = r.At
		t.Timings.Total = r.At.Sub(t.Began) + t.Timings.Policy
	}
	t.State, t.Settled = to, r.Settled
	t.Steps = append(t.Steps, step)
	return nil
}

// fold takes the facts of one record over.
func (t *Transaction) fold(r Record, step *StepView) error {
	switch r.Event {
	case evBegin, evDeny:
		return t.foldBegin(r, step)
	case evTask:
		var d taskData
		if err := decode(r, &d); err != nil {
			return err
		}
		t.Tasks = append(t.Tasks, TaskView{UPID: d.UPID, Action: d.Action, At: r.At, attempt: t.Attempts})
		step.Detail = d.Action + " " + string(d.UPID)
	case evSnapshot:
		var d snapshotData
		if err := decode(r, &d); err != nil {
			return err
		}
		t.taken, t.BootID, t.Timings.Snapshot, step.Took = true, d.BootID, d.Took, d.Took
	case evRan:
		return t.foldRan(r, step)
	case evCommit:
		var d commitData
		if err := decode(r, &d); err != nil {
			return err
		}
		t.Checks, t.Reason, t.Timings.Validate, step.Took = d.Checks, d.Reason, d.Validate, d.Validate
	case evRollBack:
		var d rollBackData
		if err := decode(r, &d); err != nil {
			return err
		}
		t.Checks, t.Reason, t.Interrupted = d.Checks, d.Reason, d.Interrupted
		t.Timings.Validate, t.Attempts, step.Detail = d.Validate, 1, d.Reason
	case evAttempt:
		var d attemptData
		if err := decode(r, &d); err != nil {
			return err
		}
		t.Attempts, step.Detail = d.Number, d.Cause
	case evRestart:
		t.restarts++
	case evRestored:
		var d restoredData
		if err := decode(r, &d); err != nil {
			return err
		}
		t.Timings.Rollback, step.Took = d.Took, d.Took
		if d.Reason != "" {
			t.Reason, t.Interrupted, step.Detail = d.Reason, d.Interrupted, d.Reason
		}
	case evStuck:
		var d stuckData
		if err := decode(r, &d); err != nil {
			return err
		}
		t.Reason, t.Mend, t.stuckFrom, step.Detail = d.Reason, d.Mend, d.From, d.Reason
	case evRetry, evResume:
		t.Mend = ""
		if r.Event == evRetry {
			t.Attempts++
		}
	case evDrop:
		t.dropping = true
	}
	return nil
}

func (t *Transaction) foldBegin(r Record, step *StepView) error {
	var d beginData
	if err := decode(r, &d); err != nil {
		return err
	}
	t.ID, t.Sandbox, t.By, t.Owner, t.Began = r.Tx, d.Box, d.By, r.Owner, r.At
	t.Command, t.Digest, t.As, t.Dir = string(d.Command), d.Digest, d.As, d.Dir
	t.OnFailure, t.Profile, t.Verdict = d.OnFailure, d.Profile, d.Verdict
	t.Boundary, t.Snapshot, t.RunningAtBegin = d.Boundary, d.Snapshot, d.RunState
	t.Timings.Policy, step.Detail = d.Policy, d.Verdict.Decision
	for _, v := range d.Validate {
		t.Validate = append(t.Validate, ValidateView{Command: string(v.Command), As: v.As, Verdict: v.Verdict})
	}
	if r.Event == evDeny {
		t.Reason = d.Verdict.Reason
	}
	return nil
}

func (t *Transaction) foldRan(r Record, step *StepView) error {
	var d ranData
	if err := decode(r, &d); err != nil {
		return err
	}
	t.Result = &RanView{
		Exit: d.Exit, Signal: d.Signal, TimedOut: d.TimedOut, Truncated: d.Truncated,
		Stdout: string(d.Stdout), Stderr: string(d.Stderr), StdoutBytes: d.StdoutBytes, StderrBytes: d.StderrBytes,
		StdoutDigest: d.StdoutDigest, StderrDigest: d.StderrDigest, Took: d.Took,
	}
	t.Timings.Execute, step.Took = d.Took, d.Took
	return nil
}

func decode(r Record, into any) error {
	if len(r.Data) == 0 {
		return fmt.Errorf("it has no data")
	}
	return json.Unmarshal(r.Data, into)
}

// task returns the last task of the kind, of the current rollback attempt if
// it is a rollback.
func (t *Transaction) task(action string) (UPID, bool) {
	for i := len(t.Tasks) - 1; i >= 0; i-- {
		k := t.Tasks[i]
		if k.Action == action && (action != taskRollback || k.attempt == t.Attempts) {
			return k.UPID, true
		}
	}
	return "", false
}
