package orchestrator

import (
	"errors"
	"fmt"
	"strings"
)

// The classes of failure. Every adapter's error wraps exactly one of them;
// callers decide with errors.Is and never by text.
var (
	// ErrNotFound: the object does not exist, or not any more.
	ErrNotFound = errors.New("not found")
	// ErrExists: the name or id is taken.
	ErrExists = errors.New("already exists")
	// ErrBusy: somebody holds the lock; nothing was done.
	ErrBusy = errors.New("busy")
	// ErrUnavailable: it was not reached and nothing was done; safe to try again.
	ErrUnavailable = errors.New("unavailable")
	// ErrUnknownOutcome: it may or may not have happened; look before acting.
	ErrUnknownOutcome = errors.New("outcome unknown")
	// ErrDenied: credentials, privilege, ownership or policy forbid it.
	ErrDenied = errors.New("denied")
	// ErrUnmounted: the guest answers, and its workspace volume is not mounted. It
	// wraps ErrUnavailable.
	ErrUnmounted = fmt.Errorf("its workspace volume is not mounted: %w", ErrUnavailable)
)

// NotLatestError says that a snapshot cannot be restored while newer ones exist.
type NotLatestError struct {
	Name  SnapshotName
	Newer []SnapshotName // oldest first; may be empty when the storage does not say
}

func (e *NotLatestError) Error() string {
	names := make([]string, len(e.Newer))
	for i, n := range e.Newer {
		names[i] = string(n)
	}
	return fmt.Sprintf("snapshot %s is not the newest (newer: %s)", e.Name, strings.Join(names, ", "))
}

// FullError says that there is too little room for a snapshot: in a pool, in a
// dataset's quota, or on the sandbox's own volume. Nothing was done, and to wait
// frees nothing. It counts as ErrUnavailable: when room is made the same order works.
type FullError struct {
	Place string // the dataset, or the volume
	Text  string // what was said
}

func (e *FullError) Error() string {
	return fmt.Sprintf("no room on %s (%s); delete snapshots or other data there, then try again", e.Place, e.Text)
}

// Is makes it a case of unavailable for callers that only know classes.
func (e *FullError) Is(target error) bool { return target == ErrUnavailable }

// NodeError says that a node of the cluster is out of reach, or not in the
// cluster any more. Nothing was done there; what is on it is not lost, and can be
// used when the node is back. It counts as ErrUnavailable.
type NodeError struct{ Node string }

func (e *NodeError) Error() string { return "node " + e.Node + " is out of reach" }

// Is makes it a case of unavailable for callers that only know classes.
func (e *NodeError) Is(target error) bool { return target == ErrUnavailable }

// HostKeyError says that a host answered with another SSH key than the pinned
// one. It is never retried: either the pin is wrong or somebody is in between.
type HostKeyError struct {
	Host      string
	Want, Got string // SHA256 fingerprints
}

func (e *HostKeyError) Error() string {
	return fmt.Sprintf("ssh host key of %s changed: pinned %s, got %s", e.Host, e.Want, e.Got)
}

// Is makes a changed host key a denial for callers that only know classes.
func (e *HostKeyError) Is(target error) bool { return target == ErrDenied }

// UnsealedError says that a sandbox's network is not what it has to be. It is a
// kind of ErrDenied: the sandbox is not handed out.
type UnsealedError struct {
	Sandbox string   // its name
	Failed  []string // what was measured and not expected, a line each
}

func (e *UnsealedError) Error() string {
	return fmt.Sprintf("the network of sandbox %s is not sealed: %s", e.Sandbox, strings.Join(e.Failed, "; "))
}

// Is makes it a case of denied for callers that only know classes.
func (e *UnsealedError) Is(target error) bool { return target == ErrDenied }

// JournalError tells a failure of the durable record, which is on this machine,
// from one of the cluster. It has the class of its cause.
type JournalError struct{ Cause error }

func (e *JournalError) Error() string { return e.Cause.Error() }
func (e *JournalError) Unwrap() error { return e.Cause }

// StuckError says that an operator has to look at a sandbox first: a transaction
// in it is stuck, it is quarantined, or a snapshot of a finished transaction
// cannot be deleted. It counts as ErrBusy.
type StuckError struct {
	Sandbox  string
	Tx       TxID         // "" when the sandbox itself is quarantined
	Snapshot SnapshotName // what cannot be deleted, otherwise ""
	Reason   string
	Mend     string // what to do
}

func (e *StuckError) Error() string {
	if e.Snapshot != "" {
		return fmt.Sprintf("sandbox %s: snapshot %s of transaction %s cannot be deleted (%s); %s", e.Sandbox, e.Snapshot, e.Tx, e.Reason, e.Mend)
	}
	if e.Tx == "" {
		return fmt.Sprintf("sandbox %s is quarantined (%s); %s", e.Sandbox, e.Reason, e.Mend)
	}
	return fmt.Sprintf("sandbox %s: transaction %s is stuck (%s); %s", e.Sandbox, e.Tx, e.Reason, e.Mend)
}

// Is makes it a case of busy for callers that only know classes.
func (e *StuckError) Is(target error) bool { return target == ErrBusy }

// OpenError says that a transaction of several commands has its sandbox until
// somebody ends it. It counts as ErrBusy.
type OpenError struct{ Tx TxID }

func (e *OpenError) Error() string {
	return fmt.Sprintf("transaction %s is open; end it with savepoint tx commit %s or savepoint tx rollback %s", e.Tx, e.Tx, e.Tx)
}

// Is makes it a case of busy for callers that only know classes.
func (e *OpenError) Is(target error) bool { return target == ErrBusy }

// UnsupportedError says that the cluster cannot do it here, now or later:
// a storage without snapshots, a boundary without a driver.
type UnsupportedError struct {
	What string // e.g. `storage "raw" does not support snapshots`
	Mend string // what to do
}

func (e *UnsupportedError) Error() string {
	if e.Mend == "" {
		return e.What
	}
	return e.What + "; " + e.Mend
}
