package orchestrator

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
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
	Runs      string         `json:"runs,omitempty"` // the hardened form that ran in place of it
	Digest    string         `json:"command_sha256"`
	As        policy.User    `json:"as"`
	Dir       string         `json:"dir,omitempty"`
	EnvNames  []string       `json:"env_names,omitempty"` // of the variables it began with
	Timeout   time.Duration  `json:"timeout_ns,omitempty"`
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
	// Several: it was begun to have several commands. They are Commands then,
	// and Command is empty.
	Several  bool          `json:"several,omitempty"`
	Commands []CommandView `json:"commands,omitempty"`
	// Points are the states that can come back, oldest first; the first is the
	// one at begin.
	Points  []PointView `json:"points,omitempty"`
	Bound   bool        `json:"bound,omitempty"`  // ends with the process that began it
	Expires time.Time   `json:"expires,omitzero"` // when an open one is rolled back
	Key     string      `json:"key,omitempty"`
	Session bool        `json:"session,omitempty"`
	// Changed is what the command did to the files that were compared, the
	// first of ChangedCount; of several commands see each of them.
	Changed      []Change `json:"changed,omitempty"`
	ChangedCount int      `json:"changed_count,omitempty"`
	// Guard is what the command was not to change.
	Guard *Guard `json:"guard,omitempty"`
	// Ahead: its snapshot was taken before there was a command.
	Ahead bool `json:"ahead,omitempty"`
	// Redacted is how many secrets were taken out of its records.
	Redacted int `json:"redacted,omitempty"`
	// Settled: nothing is left to do. A final transaction that is not settled
	// still has its snapshot on the cluster.
	Settled bool `json:"settled"`

	stuckFrom State     // the state that "stuck" was entered from
	taken     bool      // the snapshot was complete before anything ran
	restarts  int       // of the guest during the restore
	looked    time.Time // when the collector last found that a snapshot may still appear
	restores  int       // numbers every order to restore, and every repetition
	loose     bool      // one of them may still arrive at the cluster
	target    int       // position in Points of the state that is being restored
	saves     int       // savepoints ever begun: the numbers used up
	boot      string    // the boot id that the guest should have now
	request   string    // see beginData.Request
	idle      time.Duration
	session   sessions // what the commands have left, by account
	health    *healthData
}

// ValidateView is one validation command as it was asked for.
type ValidateView struct {
	Command string      `json:"command"`
	Runs    string      `json:"runs,omitempty"` // the hardened form that ran in place of it
	As      policy.User `json:"as"`
	Verdict Judgement   `json:"verdict"`
	// Timeout is its own deadline, 0 = the engine's.
	Timeout time.Duration `json:"timeout_ns,omitempty"`
}

// CommandView is one command of a transaction of several.
type CommandView struct {
	N        int            `json:"step"`
	At       time.Time      `json:"at"`
	Key      string         `json:"key,omitempty"`
	Command  string         `json:"command"`
	Runs     string         `json:"runs,omitempty"` // the hardened form that ran in place of it
	Digest   string         `json:"command_sha256"`
	As       policy.User    `json:"as"`
	Dir      string         `json:"dir,omitempty"`
	EnvNames []string       `json:"env_names,omitempty"`
	Timeout  time.Duration  `json:"timeout_ns,omitempty"`
	Verdict  Judgement      `json:"verdict"`
	Validate []ValidateView `json:"validate,omitempty"`
	State    State          `json:"state"`            // running, open (it ended, the transaction went on), denied, rolled-back
	Result   *RanView       `json:"result,omitempty"` // nil: did not run, or its end is not known
	Checks   []Check        `json:"checks,omitempty"`
	Reason   string         `json:"reason,omitempty"`
	// Changed is what it did to the files that were compared.
	Changed      []Change `json:"changed,omitempty"`
	ChangedCount int      `json:"changed_count,omitempty"`
	Guard        *Guard   `json:"guard,omitempty"`

	request string // see stepData.Request
}

// PointView is one state of a transaction that can come back.
type PointView struct {
	N        int          `json:"n"`
	Name     string       `json:"name"` // "begin" for the first
	Snapshot SnapshotName `json:"snapshot"`
	Boundary Boundary     `json:"boundary"`
	At       time.Time    `json:"at"`
	BootID   string       `json:"boot_id,omitempty"`

	pending  bool     // it is not known to be complete
	dropping bool     // its deletion was begun
	session  sessions // what the transaction's commands had left then
}

// TaskView is one cluster task that the transaction started.
type TaskView struct {
	UPID   UPID      `json:"upid"`
	Action string    `json:"action"` // create, rollback, delete, start, stop
	At     time.Time `json:"at"`

	attempt int          // which restore it belongs to
	of      SnapshotName // the snapshot it is about
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
	t.State, t.Settled, t.Expires = to, r.Settled, time.Time{}
	if to == StateOpen && !t.Bound {
		t.Expires = r.At.Add(t.idle)
	}
	t.Steps = append(t.Steps, step)
	t.Redacted += redactedIn(r.Data)
	return nil
}

// fold takes the facts of one record over.
func (t *Transaction) fold(r Record, step *StepView) error {
	switch r.Event {
	case evBegin:
		return t.foldBegin(r, step)
	case evAdopt:
		return t.foldAdopt(r, step)
	case evDeny:
		if t.State == "" {
			return t.foldBegin(r, step)
		}
		return t.foldStep(r, step)
	case evRun:
		if t.Several {
			return t.foldStep(r, step)
		}
	case evRan:
		return t.foldRan(r, step)
	case evOpen, evNotRun, evSave, evSaved, evUnsaved, evDropped, evReturn, evReturned, evValidate:
		return t.foldSeveral(r, step)
	case evTask, evDrop, evSnapshot, evAhead:
		return t.foldSnapshot(r, step)
	case evCommit:
		var d commitData
		if err := decode(r, &d); err != nil {
			return err
		}
		t.Checks, t.Reason, t.Timings.Validate, step.Took = d.Checks, d.Reason, t.Timings.Validate+d.Validate, d.Validate
		t.Changed, t.ChangedCount = d.Changed, d.ChangedN
	case evRollBack:
		var d rollBackData
		if err := decode(r, &d); err != nil {
			return err
		}
		t.Checks, t.Reason, t.Interrupted = d.Checks, d.Reason, d.Interrupted
		t.Changed, t.ChangedCount = d.Changed, d.ChangedN
		t.Timings.Validate, step.Detail = t.Timings.Validate+d.Validate, d.Reason
		t.Attempts, t.target = 1, 0
		t.restores++
		t.loose = t.loose || d.Loose
		if n := len(t.Commands); n > 0 && t.Commands[n-1].State == StateRunning {
			t.Commands[n-1].State, t.Commands[n-1].Reason, t.Commands[n-1].Checks = StateRolledBack, d.Reason, d.Checks
			t.Commands[n-1].Changed, t.Commands[n-1].ChangedCount = d.Changed, d.ChangedN
		}
	case evAttempt:
		var d attemptData
		if err := decode(r, &d); err != nil {
			return err
		}
		t.Attempts, step.Detail = d.Number, d.Cause
		t.restores++
		t.loose = t.loose || d.Loose
	case evRestart:
		t.restarts++
	case evRestored:
		var d restoredData
		if err := decode(r, &d); err != nil {
			return err
		}
		t.Timings.Rollback, step.Took = d.Took, d.Took
		t.loose = t.loose || d.Loose
		if d.Reason != "" {
			t.Reason, t.Interrupted, step.Detail = d.Reason, d.Interrupted, d.Reason
		}
	case evStuck:
		var d stuckData
		if err := decode(r, &d); err != nil {
			return err
		}
		t.Reason, t.Mend, t.stuckFrom, step.Detail = d.Reason, d.Mend, d.From, d.Reason
	case evRetry, evResume, evSettle:
		t.Mend = ""
		if r.Event == evRetry {
			t.Attempts++
			t.restores++
			t.target = 0 // whatever was being restored, the whole is undone now
		}
	}
	return nil
}

// foldSnapshot folds what is about one snapshot.
func (t *Transaction) foldSnapshot(r Record, step *StepView) error {
	switch r.Event {
	case evTask:
		var d taskData
		if err := decode(r, &d); err != nil {
			return err
		}
		of := d.Snapshot
		if of == "" {
			of = t.Snapshot
		}
		t.Tasks = append(t.Tasks, TaskView{UPID: d.UPID, Action: d.Action, At: r.At, attempt: t.restores, of: of})
		step.Detail = d.Action + " " + string(d.UPID)
	case evDrop:
		if n := len(t.Points); n > 0 {
			t.Points[n-1].dropping = true
		}
	case evSnapshot, evAhead:
		if t.Ahead != (r.Event == evAhead) {
			return errAhead
		}
		var d snapshotData
		if err := decode(r, &d); err != nil {
			return err
		}
		t.taken, t.BootID, t.boot, t.Timings.Snapshot, step.Took = true, d.BootID, d.BootID, d.Took, d.Took
		t.health = d.Health
		if len(t.Points) > 0 {
			t.Points[0].pending, t.Points[0].BootID = false, d.BootID
		}
	}
	return nil
}

func (t *Transaction) foldBegin(r Record, step *StepView) error {
	var d beginData
	if err := decode(r, &d); err != nil {
		return err
	}
	t.ID, t.Sandbox, t.By, t.Owner, t.Began = r.Tx, d.Box, d.By, r.Owner, r.At
	t.Command, t.Runs, t.Digest, t.As, t.Dir = string(d.Command), string(d.Runs), d.Digest, d.As, d.Dir
	t.EnvNames, t.Timeout = d.EnvNames, d.Timeout
	t.OnFailure, t.Profile, t.Verdict = d.OnFailure, d.Profile, d.Verdict
	t.Boundary, t.Snapshot, t.RunningAtBegin = d.Boundary, d.Snapshot, d.RunState
	t.Timings.Policy, step.Detail = d.Policy, d.Verdict.Decision
	t.Validate, t.Key = validateViews(d.Validate), r.Key
	t.request, t.Guard = d.Request, d.Guard
	if r.Event == evBegin && d.Ahead {
		t.Ahead, step.Detail = true, "ahead"
	}
	if d.Several != nil {
		t.Several, t.Bound, t.idle, t.Session = true, d.Several.Bound, d.Several.Idle, d.Several.Session
	}
	if r.Event == evBegin && d.Snapshot == "" && d.Boundary.covers() > coverNothing {
		d.Snapshot = SnapshotOf(r.Tx) // a record that does not say is not written any more
	}
	if r.Event == evBegin && d.Snapshot != "" {
		t.Points = []PointView{{Name: PointBegin, Snapshot: d.Snapshot, Boundary: d.Boundary, At: r.At, pending: true}}
	}
	if r.Event == evDeny {
		t.Reason = d.Verdict.Reason
	}
	return nil
}

// errAhead is met in a damaged journal only.
var errAhead = errors.New("whether the snapshot was taken ahead of its command is told differently before")

// foldAdopt gives a snapshot that was taken ahead its command: the transaction
// is from now on as if it had begun with it.
func (t *Transaction) foldAdopt(r Record, step *StepView) error {
	unused, taken, boundary, snapshot := t.Unused(), t.Timings.Snapshot, t.Boundary, t.Snapshot
	if err := t.foldBegin(r, step); err != nil {
		return err
	}
	if !unused || t.Several || t.Boundary != boundary || t.Snapshot != snapshot {
		return errAhead
	}
	var d beginData
	if err := decode(r, &d); err != nil {
		return err
	}
	t.Timings.Snapshot, step.Took = d.Checked, d.Checked
	step.Detail = strings.TrimSpace(fmt.Sprintf("%s, the snapshot took %s before", step.Detail, taken.Round(time.Millisecond)))
	return nil
}

// Unused reports whether the transaction is only a snapshot that was taken
// ahead: no command has come for it, or none came before it ended.
func (t *Transaction) Unused() bool { return t.Ahead && !t.Several && t.Command == "" }

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
	t.Timings.Execute, step.Took = t.Timings.Execute+d.Took, d.Took
	if n := len(t.Commands); n > 0 {
		c := &t.Commands[n-1]
		c.Result = t.Result
		if d.Session != nil {
			t.session = t.session.with(c.As, *d.Session)
		}
	}
	return nil
}

func validateViews(notes []validateNote) (views []ValidateView) {
	for _, v := range notes {
		views = append(views, ValidateView{Command: string(v.Command), Runs: string(v.Runs), As: v.As, Verdict: v.Verdict, Timeout: v.Timeout})
	}
	return views
}

func decode(r Record, into any) error {
	if len(r.Data) == 0 {
		return fmt.Errorf("it has no data")
	}
	return json.Unmarshal(r.Data, into)
}

// task returns the last task of the kind that is about the snapshot, of the
// current order to restore if it is a rollback.
func (t *Transaction) task(action string, of SnapshotName) (UPID, bool) {
	for i := len(t.Tasks) - 1; i >= 0; i-- {
		k := t.Tasks[i]
		if k.Action == action && k.of == of && (action != taskRollback || k.attempt == t.restores) {
			return k.UPID, true
		}
	}
	return "", false
}
