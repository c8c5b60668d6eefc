package orchestrator

import (
	"context"
	"encoding/json"
	"iter"
	"time"

	"savepoint/policy"
)

// Record is one line of the journal: a state reached, or an intent or a task
// id noted inside a state.
type Record struct {
	Seq     int64 // set by the journal; increases, gaps allowed
	At      time.Time
	Tx      TxID
	Sandbox SandboxID
	State   State           // the state after this record
	Event   string          // what made it: "begin", "task", "commit", …
	Data    json.RawMessage // the event's facts; schema per event

	// Settled says that nothing is left to do for the transaction once this
	// record is its last: recovery and collection need not look at it again.
	Settled bool
	// Owner is the instance that wrote the record and Fence the number of its
	// hold of the journal; both are set by the journal. A later holder has a
	// higher fence.
	Owner string
	Fence int64
}

// Batcher is what a Journal may offer besides: several records that become
// durable together, with one sync, or not at all. The engine uses it where
// states follow one another without an effect in between.
type Batcher interface {
	AppendAll(ctx context.Context, rs []Record) error
}

// Unsettler is what a Journal may offer besides: the records of only those
// transactions whose last record is not Settled, grouped by transaction or
// not, each transaction's in the order they were appended. Without it the
// engine reads the whole journal once.
type Unsettler interface {
	Unsettled(ctx context.Context) iter.Seq2[Record, error]
}

// Indexer is what a Journal may offer besides: the ids of all transactions,
// the newest first, so that a short list needs not read everything.
type Indexer interface {
	Transactions(ctx context.Context) iter.Seq2[TxID, error]
}

// Judgement is a verdict as it is recorded and reported.
type Judgement struct {
	Decision    string          `json:"decision"` // "allow", "snapshot" or "deny"
	Rule        string          `json:"rule"`
	Reason      string          `json:"reason"`
	Alternative string          `json:"alternative,omitempty"`
	Recoverable bool            `json:"recoverable"`
	Effects     []policy.Effect `json:"effects,omitempty"`
}

func judgement(v policy.Verdict) Judgement {
	return Judgement{
		Decision: v.Decision.String(), Rule: v.Rule, Reason: v.Reason,
		Alternative: v.Alternative, Recoverable: v.Recoverable, Effects: v.Effects,
	}
}

// Check is the answer of one validator.
type Check struct {
	Name   string `json:"name"` // "exit", "guest", or the validation command
	OK     bool   `json:"ok"`
	Detail string `json:"detail,omitempty"` // why not
}

// beginData is the record of begin and deny: everything that recovery needs
// to know of the sandbox is in it, so that it needs no registry.
type beginData struct {
	Box       Sandbox        `json:"sandbox"`
	By        string         `json:"by,omitempty"`
	Command   []byte         `json:"command"` // the exact bytes
	Digest    string         `json:"command_sha256"`
	As        policy.User    `json:"as"`
	Dir       string         `json:"dir,omitempty"`
	EnvNames  []string       `json:"env_names,omitempty"` // names only: values may be secrets
	Timeout   time.Duration  `json:"timeout_ns"`
	OnFailure OnFailure      `json:"on_failure"`
	Profile   string         `json:"profile,omitempty"`
	Verdict   Judgement      `json:"verdict"`
	Validate  []validateNote `json:"validate,omitempty"`
	Boundary  Boundary       `json:"boundary,omitempty"`
	Snapshot  SnapshotName   `json:"snapshot,omitempty"`
	RunState  bool           `json:"running_at_begin"`
	Policy    time.Duration  `json:"policy_ns"`
}

type validateNote struct {
	Command []byte      `json:"command"`
	As      policy.User `json:"as"`
	Verdict Judgement   `json:"verdict"`
}

// What a task was started for.
const (
	taskCreate   = "create"
	taskRollback = "rollback"
	taskDelete   = "delete"
	taskStart    = "start"
	taskStop     = "stop"
)

type taskData struct {
	UPID   UPID   `json:"upid"`
	Action string `json:"action"`
}

type snapshotData struct {
	BootID string        `json:"boot_id"`
	Took   time.Duration `json:"took_ns"`
}

type ranData struct {
	Exit         int           `json:"exit"`
	Signal       string        `json:"signal,omitempty"`
	TimedOut     bool          `json:"timed_out,omitempty"`
	Truncated    bool          `json:"truncated,omitempty"`
	Stdout       []byte        `json:"stdout,omitempty"` // capped, see Config.RecordLimit
	Stderr       []byte        `json:"stderr,omitempty"`
	StdoutBytes  int64         `json:"stdout_bytes"`
	StderrBytes  int64         `json:"stderr_bytes"`
	StdoutDigest string        `json:"stdout_sha256"` // of all that was written
	StderrDigest string        `json:"stderr_sha256"`
	Took         time.Duration `json:"took_ns"`
}

type commitData struct {
	Reason   string        `json:"reason,omitempty"`
	Checks   []Check       `json:"checks,omitempty"`
	Validate time.Duration `json:"validate_ns"`
}

type rollBackData struct {
	Reason      string        `json:"reason"`
	Interrupted bool          `json:"interrupted,omitempty"`
	Checks      []Check       `json:"checks,omitempty"`
	Validate    time.Duration `json:"validate_ns,omitempty"`
}

type attemptData struct {
	Number int    `json:"number"` // 2 for the first repetition
	Cause  string `json:"cause"`
}

type restoredData struct {
	Attempts int           `json:"attempts,omitempty"`
	BootID   string        `json:"boot_id,omitempty"`
	Skew     time.Duration `json:"clock_skew_ns"`
	Took     time.Duration `json:"took_ns"`
	// Reason and Interrupted stand here when nothing ran, so that there is no
	// roll-back record that carries them.
	Reason      string `json:"reason,omitempty"`
	Interrupted bool   `json:"interrupted,omitempty"`
}

type stuckData struct {
	Reason string `json:"reason"`
	Mend   string `json:"mend"`
	From   State  `json:"from"`
}

type collectData struct {
	Snapshot SnapshotName `json:"snapshot"`
}
