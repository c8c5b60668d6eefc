package zfs

import (
	"context"
	"errors"
	"strings"

	"savepoint/orchestrator"
)

// failure is every error of this package: what was done to what, why it
// did not work, what to do, and its one class.
type failure struct {
	op, subject string
	cause, mend string
	class       error
	ended       error // the context's end, where that was the cause
}

func (f *failure) Error() string {
	text := f.op + " " + f.subject + ": " + f.cause
	if f.mend != "" {
		text += "; " + f.mend
	}
	return text
}

// Unwrap gives the class, and the end of the context where that was the cause.
func (f *failure) Unwrap() []error {
	if f.ended != nil {
		return []error{f.class, f.ended}
	}
	return []error{f.class}
}

// as puts an error of a part into the words of the whole. class replaces its
// own unless that is nil, or the error says more than a class and is to be kept.
func as(op, subject string, err, class error) error {
	f := &failure{op: op, subject: subject, cause: err.Error(), class: class}
	if class == nil {
		f.class = classOf(err)
	}
	for _, end := range []error{context.Canceled, context.DeadlineExceeded} {
		if errors.Is(err, end) {
			f.ended = end
		}
	}
	return f
}

// classOf returns the class of an error. One that says more than a class is its
// own, one without any counts as unknown.
func classOf(err error) error {
	var full *orchestrator.FullError
	var newer *orchestrator.NotLatestError
	var never *orchestrator.UnsupportedError
	var key *orchestrator.HostKeyError
	switch {
	case errors.As(err, &newer):
		return newer
	case errors.As(err, &never):
		return never
	case errors.As(err, &key):
		return key
	case errors.As(err, &full):
		return full
	}
	for _, c := range []error{
		orchestrator.ErrNotFound, orchestrator.ErrExists, orchestrator.ErrBusy,
		orchestrator.ErrUnknownOutcome, orchestrator.ErrUnavailable, orchestrator.ErrDenied,
	} {
		if errors.Is(err, c) {
			return c
		}
	}
	return orchestrator.ErrUnknownOutcome
}

// unknown reports whether nobody knows what became of it.
func unknown(err error) bool { return errors.Is(classOf(err), orchestrator.ErrUnknownOutcome) }

// meaning is what a text of zfs says.
type meaning struct {
	text  string // in lower case, anywhere in what zfs said
	class error
	mend  string
}

// meanings is read from the top; the first that fits decides. The texts are
// those of zfs-fuse 0.7 and of OpenZFS 2.
var meanings = []meaning{
	{"more recent snapshots", errNotLatest, "delete the newer snapshots first"},
	{"out of space", errFull, ""},
	{"no space left", errFull, ""},
	{"quota exceeded", errFull, ""},
	{"has dependent clones", orchestrator.ErrBusy, "destroy its clones first"},
	{"snapshot has clones", orchestrator.ErrBusy, "destroy its clones first"},
	{"being held", orchestrator.ErrBusy, "somebody holds the snapshot: see zfs holds, then zfs release"},
	{"is busy", orchestrator.ErrBusy, "something else uses it; try again"},
	{"already exists", orchestrator.ErrExists, "use another name"},
	{"permission denied", orchestrator.ErrDenied, "delegate it to savepoint's user with zfs allow (see savepoint doctor)"},
	{"operation not permitted", orchestrator.ErrDenied, "delegate it to savepoint's user with zfs allow (see savepoint doctor)"},
	{"initialize zfs library", orchestrator.ErrUnavailable, "ZFS does not run on the node: load its module"},
	{"zfs modules", orchestrator.ErrUnavailable, "ZFS does not run on the node: load its module"},
	{"/dev/zfs", orchestrator.ErrUnavailable, "ZFS does not run on the node: load its module"},
	{"failed to run command", orchestrator.ErrUnavailable, "install ZFS on the node"},
	{"i/o is currently suspended", orchestrator.ErrUnavailable, "the pool lost its disks: see zpool status"},
	{"does not exist", orchestrator.ErrNotFound, "it is gone, or it is on another node"},
	{"no such pool", orchestrator.ErrNotFound, "it is gone, or it is on another node"},
	{"is read-only", orchestrator.ErrDenied, "the pool or dataset was made read-only"},
	{"snapshots are not supported", orchestrator.ErrDenied, "choose another dataset"},
}

// These stand in the table for errors that need the dataset or the snapshot.
var (
	errFull      = &orchestrator.FullError{}
	errNotLatest = &orchestrator.NotLatestError{}
)

// said turns what zfs said of an order that it refused into an error. A text
// nobody knows leaves open how far it came.
func said(op string, t Target, name orchestrator.SnapshotName, text string) error {
	f := &failure{op: op, subject: t.subject(name), cause: text, class: orchestrator.ErrUnknownOutcome, mend: "look at the dataset on the node"}
	if text == "" {
		f.cause = "zfs did not end in time and said nothing"
		return f
	}
	lower := strings.ToLower(text)
	for _, m := range meanings {
		if !strings.Contains(lower, m.text) {
			continue
		}
		f.class, f.mend = m.class, m.mend
		switch {
		case errors.Is(m.class, errFull):
			f.class = &orchestrator.FullError{Place: t.Dataset, Text: text}
		case errors.Is(m.class, errNotLatest):
			f.class = &orchestrator.NotLatestError{Name: name}
		}
		break
	}
	return f
}

// subject names a snapshot, or the dataset, on its node.
func (t Target) subject(name orchestrator.SnapshotName) string {
	if name == "" {
		return t.Dataset + " on " + t.Node
	}
	return t.Dataset + "@" + string(name) + " on " + t.Node
}
