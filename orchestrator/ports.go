package orchestrator

import (
	"context"
	"io"
	"iter"
	"net/netip"
	"time"

	"savepoint/policy"
)

// Started receives the cluster's name of a task as soon as it is known and
// before anybody waits for it, so that the journal can hold it. An error stops
// the wait; the task goes on. A nil Started is allowed.
type Started func(UPID) error

// SnapshotRequest names one snapshot of one sandbox's VM.
type SnapshotRequest struct {
	Sandbox     SandboxID // the VM must carry this owner
	VM          VMRef
	Name        SnapshotName
	Memory      bool   // Create only: save the memory too
	Description string // Create only
	Started     Started
}

// Snapshot is one snapshot as the cluster lists it.
type Snapshot struct {
	Name        SnapshotName
	Parent      SnapshotName // "" for the oldest
	Taken       time.Time
	Memory      bool
	Description string
	// Incomplete is the cluster's word for a snapshot that is not usable:
	// "prepare" or "delete". Empty for a usable one.
	Incomplete string
	// Current is true if the VM's present state descends directly from it.
	Current bool
}

// Snapshotter takes and restores snapshots of one kind. Errors wrap one of the
// classes of this package: ErrNotFound, ErrExists, ErrBusy, ErrUnavailable,
// ErrUnknownOutcome, ErrDenied; *NotLatestError where only the newest snapshot
// can be restored. After ErrUnknownOutcome the effect may have happened: look
// with List before doing anything. A crash in the middle of any call leaves
// either the old or the new state, or a snapshot marked Incomplete.
type Snapshotter interface {
	// Create takes the snapshot and returns once the cluster lists it as
	// complete and current.
	Create(ctx context.Context, r SnapshotRequest) error
	// Rollback restores the snapshot. Afterwards the VM has the run state the
	// snapshot holds: running for one with memory, stopped for one without.
	Rollback(ctx context.Context, r SnapshotRequest) error
	// Delete removes the snapshot. Removing a missing one is no error.
	Delete(ctx context.Context, r SnapshotRequest) error
	// List returns the snapshots, oldest first along the parent chain.
	List(ctx context.Context, vm VMRef) ([]Snapshot, error)
}

// VMRequest is an order about one owned VM.
type VMRequest struct {
	Sandbox SandboxID // the VM must carry this owner
	VM      VMRef
	Started Started
}

// CloneRequest asks for a new owned, configured, stopped VM.
type CloneRequest struct {
	VMRequest                 // VM is the new one
	Template     VMRef        // what to clone
	Name         string       // host name of the guest
	Full         bool         // copy the disks instead of linking to the template's
	SSHKeys      []string     // authorized_keys lines for root
	Address      netip.Prefix // static address
	Gateway      netip.Addr   // may be the zero value: no default route
	Bridge       string       // bridge or vnet of the network card; "" = the cluster's configured one
	CloneStorage string       // target storage of a full clone; "" = the template's
}

// VMStatus is what the cluster says of a VM.
type VMStatus struct {
	Running  bool
	Template bool
	Name     string
	Lock     string       // the cluster's config lock, "" when free
	Parent   SnapshotName // the snapshot the present state descends from
	Owner    SandboxID    // from tag and description; "" when not ours
}

// Hypervisor makes, runs and removes VMs. Errors as for Snapshotter. Every
// call but Clone and Status first checks that the VM carries the sandbox as
// its owner and returns ErrDenied when it does not.
type Hypervisor interface {
	// Clone makes the VM. ErrExists means the id is taken by somebody: choose
	// another. A failure removes what it made where the cluster lets it.
	Clone(ctx context.Context, r CloneRequest) error
	// Start is no error on a running VM.
	Start(ctx context.Context, r VMRequest) error
	// Stop ends the VM at once, like pulling the plug; no error on a stopped one.
	Stop(ctx context.Context, r VMRequest) error
	// Destroy removes a stopped VM with its disks; no error on a missing one.
	Destroy(ctx context.Context, r VMRequest) error
	// Status returns ErrNotFound for a VM that does not exist.
	Status(ctx context.Context, vm VMRef) (VMStatus, error)
}

// Task is one task of the cluster.
type Task struct {
	UPID    UPID
	Type    string // "qmsnapshot", "qmrollback", …
	VM      VMRef
	Started time.Time
	Running bool
	Failure string // exit status of a finished task that failed; "" otherwise
}

// Tasks looks at tasks that an earlier process started.
type Tasks interface {
	// Await waits for the task's end. A task that failed is returned as its
	// error class; a task nobody knows any more is ErrNotFound.
	Await(ctx context.Context, id UPID) error
	// Find lists tasks of one type on one VM started at or after since, newest first.
	Find(ctx context.Context, vm VMRef, kind string, since time.Time) ([]Task, error)
}

// ExecRequest is how a permitted command is to run.
type ExecRequest struct {
	Dir     string            // working directory; "" = the user's home
	Env     map[string]string // added to the login environment
	Stdin   io.Reader         // nil = /dev/null
	Stdout  io.Writer         // streamed copy while it runs, uncapped; may be nil
	Stderr  io.Writer
	Limit   int64         // bytes kept per stream in the result; 0 = 1 MiB
	Timeout time.Duration // 0 = until ctx ends
	Capture bool          // report the session that the command's shell leaves
	Health  bool          // ask how the guest is after the command, in the same exchange
}

// ExecResult is what a command did. A non-zero exit is a result, not an error.
type ExecResult struct {
	ExitCode    int    // -1 when a signal ended it
	Signal      string // "KILL", "TERM", …; "" for a normal exit
	Stdout      []byte
	Stderr      []byte
	StdoutBytes int64 // all that was written, kept or not
	StderrBytes int64
	Truncated   bool // at least one stream was longer than Limit
	TimedOut    bool // the deadline ended it, and everything it started is gone
	Duration    time.Duration
	// Session is what the shell left, with Capture; nil when it did not report.
	Session *Session
	// Health is, with Health, how the guest was when everything that the command
	// started was gone. RoundTrip is the whole of the exchange, the command's run
	// too. nil when it was not asked or the guest did not say: ask an Examiner.
	Health *GuestHealth
}

// Executor runs permitted commands in a guest.
type Executor interface {
	// Run runs the command and waits for its end, or until the deadline or ctx
	// ends it together with every process it started. ErrUnknownOutcome: the
	// connection was lost or the kill could not be confirmed, so the command
	// may have run, may still run. ErrUnavailable: it provably never started.
	// An invalid permit is ErrDenied.
	Run(ctx context.Context, sb Sandbox, p policy.Permit, r ExecRequest) (ExecResult, error)
	// Disconnect closes the sandbox's connections, now. The next call dials.
	Disconnect(sb SandboxID)
}

// GuestFacts is what the guest says about itself.
type GuestFacts struct {
	BootID     string
	Generation string        // what Mark wrote last, as restored by any rollback since
	Clock      time.Time     // the guest's clock, half a round trip ago
	RoundTrip  time.Duration // of the question
	// Writes is told by Inspect: equal texts of two answers of one boot say that
	// between them no block of any of the guest's disks was written. Inspect has
	// everything written that is still in the guest's memory first, and writes
	// nothing itself. "" = the guest cannot tell.
	Writes string
}

// Guest is savepoint's own hold of a guest: fixed questions, never text from
// an agent. Every call authenticates the guest by its pinned host key and
// fails with *HostKeyError when it is another.
type Guest interface {
	// Mark writes the generation marker, durably, and returns the facts after it.
	// The marker lies where each boundary of the sandbox brings it back, out of
	// the agent's reach: on the workspace volume where there is one, because a
	// rollback of that takes nothing else back that could prove it.
	Mark(ctx context.Context, sb Sandbox, generation string) (GuestFacts, error)
	// Inspect waits until the guest answers or ctx ends.
	Inspect(ctx context.Context, sb Sandbox) (GuestFacts, error)
	// SetClock sets the guest's clock.
	SetClock(ctx context.Context, sb Sandbox, t time.Time) error
}

// Prover measures that a sandbox's network is sealed: what it must reach it
// reaches, and nothing else. *UnsealedError says that it is not; any other error,
// that it could not be measured, which proves nothing either.
type Prover interface {
	Prove(ctx context.Context, sb Sandbox) error
}

// Decider judges a command. policy.Engine is one.
type Decider interface {
	Decide(r policy.Request) policy.Verdict
}

// Journal is the durable record. Append returns once the record is on disk;
// an error means nothing may be done on the strength of it. After an error that
// wraps ErrUnknownOutcome the record may be there, and the journal refuses
// everything until it is opened again; after any other it is not there.
type Journal interface {
	Append(ctx context.Context, r Record) error
	// Records yields the records of one transaction, or of all when tx is "",
	// in the order they were appended.
	Records(ctx context.Context, tx TxID) iter.Seq2[Record, error]
	Close() error
}
