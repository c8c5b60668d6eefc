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

	// Spends are the grants that are used up with this record. They are not
	// part of what Records yields: the begin's data names them. See GrantKeeper.
	Spends []GrantID

	// Key is the caller's own name for this begin or step, "" = none. It is
	// taken once per sandbox: see Keyed.
	Key string
	// Session is what the sandbox's next commands start from, kept with this
	// record; nil leaves what is kept. It is not part of what Records yields:
	// see SessionKeeper.
	Session json.RawMessage
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

// Finder is what a Journal may offer besides: the records of the transactions
// that the filter may select, the newest transaction first, each one's in a
// row and in the order they were appended. It may yield transactions that do
// not match and takes no notice of Limit.
type Finder interface {
	Find(ctx context.Context, f Filter) iter.Seq2[Record, error]
}

// Keyed is what a Journal may offer besides: it finds the transaction that has
// a record with the key in the sandbox. A Journal that offers it refuses a
// second record with a key that is taken: it writes nothing and returns
// ErrExists. A key goes when its transaction is removed from the journal.
type Keyed interface {
	ByKey(ctx context.Context, sb SandboxID, key string) (TxID, bool, error)
}

// SessionKeeper is what a Journal may offer besides: the last Record.Session
// of the sandbox; nil when there is none. A Journal that offers it keeps the
// session with the record: both become durable, or neither.
type SessionKeeper interface {
	Session(ctx context.Context, sb SandboxID) ([]byte, error)
}

// Fencer is what a Journal may offer besides: the number of this hold of it,
// which is in every record it writes. A later holder has a higher one.
type Fencer interface {
	Fence() int64
}

// Judgement is a verdict as it is recorded and reported.
type Judgement struct {
	Decision    string          `json:"decision"` // "allow", "snapshot" or "deny"
	Rule        string          `json:"rule"`
	Reason      string          `json:"reason"`
	Alternative string          `json:"alternative,omitempty"`
	Recoverable bool            `json:"recoverable"`
	Effects     []policy.Effect `json:"effects,omitempty"`
	// Lifted are the rules that would have denied it and were lifted, each by
	// an exception in the rules or by a grant.
	Lifted []policy.Lift `json:"lifted,omitempty"`
}

func judgement(v policy.Verdict) Judgement {
	return Judgement{
		Decision: v.Decision.String(), Rule: v.Rule, Reason: v.Reason,
		Alternative: v.Alternative, Recoverable: v.Recoverable, Effects: v.Effects, Lifted: v.Lifted,
	}
}

// Check is the answer of one validator.
type Check struct {
	Name   string `json:"name"` // "exit", "guest", or the validation command
	OK     bool   `json:"ok"`
	Detail string `json:"detail,omitempty"` // why not
}

// beginData is the record of begin, deny and adopt: everything that recovery
// needs to know of the sandbox is in it, so that it needs no registry.
type beginData struct {
	Box       Sandbox        `json:"sandbox"`
	By        string         `json:"by,omitempty"`
	Command   []byte         `json:"command"`        // the exact bytes that were asked for
	Runs      []byte         `json:"runs,omitempty"` // the exact bytes that run, when they are others
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
	Request   string         `json:"request_sha256,omitempty"` // only with a key: what makes two requests the same
	Guard     *Guard         `json:"guard,omitempty"`
	Several   *severalData   `json:"several,omitempty"`
	// Ahead: there is no command yet. The record "adopt" has the rest.
	Ahead   bool          `json:"ahead,omitempty"`
	Checked time.Duration `json:"checked_ns,omitempty"` // adopt: how long it took to see that the snapshot still serves
}

// severalData is what begins a transaction of several commands besides.
type severalData struct {
	Bound   bool          `json:"bound,omitempty"`
	Idle    time.Duration `json:"idle_ns"`
	Session bool          `json:"session,omitempty"`
}

// stepData is the record of "run" and "deny" of one of several commands. It
// says itself what replaying the policy needs to know.
type stepData struct {
	N        int            `json:"step"`
	Box      boxNote        `json:"sandbox"`
	Command  []byte         `json:"command"`
	Runs     []byte         `json:"runs,omitempty"`
	Digest   string         `json:"command_sha256"`
	As       policy.User    `json:"as"`
	Dir      string         `json:"dir,omitempty"` // where it begins, the session's included
	EnvNames []string       `json:"env_names,omitempty"`
	Timeout  time.Duration  `json:"timeout_ns"`
	Profile  string         `json:"profile,omitempty"`
	Verdict  Judgement      `json:"verdict"`
	Validate []validateNote `json:"validate,omitempty"`
	Policy   time.Duration  `json:"policy_ns"`
	Request  string         `json:"request_sha256,omitempty"`
	Guard    *Guard         `json:"guard,omitempty"`
}

type boxNote struct {
	Name string `json:"name"`
}

type validateNote struct {
	Command []byte        `json:"command"`
	Runs    []byte        `json:"runs,omitempty"`
	As      policy.User   `json:"as"`
	Verdict Judgement     `json:"verdict"`
	Timeout time.Duration `json:"timeout_ns,omitempty"`
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
	UPID     UPID         `json:"upid"`
	Action   string       `json:"action"`
	Snapshot SnapshotName `json:"snapshot,omitempty"` // of a savepoint; "" = the one of the begin
}

type snapshotData struct {
	BootID string        `json:"boot_id"`
	Took   time.Duration `json:"took_ns"`
	Health *healthData   `json:"health,omitempty"` // before the first command
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
	// Session is what this one of several commands leaves to the next of its
	// account; absent when it is as before.
	Session *sessionData `json:"session,omitempty"`
}

// openData ends a step whose transaction goes on.
type openData struct {
	Changed  []Change      `json:"changed,omitempty"` // see Transaction
	ChangedN int           `json:"changed_count,omitempty"`
	Reason   string        `json:"reason,omitempty"`
	Checks   []Check       `json:"checks,omitempty"`
	Validate time.Duration `json:"validate_ns,omitempty"`
}

// reasonData says why a command did not run, or a savepoint was not taken.
type reasonData struct {
	Reason string `json:"reason"`
}

// saveData is the intent of a savepoint.
type saveData struct {
	N        int          `json:"n"`
	Name     string       `json:"name"`
	Snapshot SnapshotName `json:"snapshot"`
	Boundary Boundary     `json:"boundary"`
}

// returnData is the intent to restore the state at a savepoint.
type returnData struct {
	N    int    `json:"n"`
	Name string `json:"name"`
}

type commitData struct {
	Changed  []Change      `json:"changed,omitempty"`
	ChangedN int           `json:"changed_count,omitempty"`
	Reason   string        `json:"reason,omitempty"`
	Checks   []Check       `json:"checks,omitempty"`
	Validate time.Duration `json:"validate_ns"`
}

type rollBackData struct {
	Changed     []Change      `json:"changed,omitempty"`
	ChangedN    int           `json:"changed_count,omitempty"`
	Reason      string        `json:"reason"`
	Interrupted bool          `json:"interrupted,omitempty"`
	Checks      []Check       `json:"checks,omitempty"`
	Validate    time.Duration `json:"validate_ns,omitempty"`
	Loose       bool          `json:"loose,omitempty"`
}

type attemptData struct {
	Number int    `json:"number"` // 2 for the first repetition
	Cause  string `json:"cause"`
	Loose  bool   `json:"loose,omitempty"` // an earlier order to restore may still arrive
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
	Loose       bool   `json:"loose,omitempty"`
}

type stuckData struct {
	Reason string `json:"reason"`
	Mend   string `json:"mend"`
	From   State  `json:"from"`
}

type collectData struct {
	Snapshot SnapshotName `json:"snapshot"`
}
