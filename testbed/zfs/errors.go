package zfs

import (
	"errors"
	"fmt"
	"strings"
)

// The classes of failure. Nothing was done in any of them.
var (
	ErrNotFound = errors.New("not found")
	ErrExists   = errors.New("already exists")
	ErrBusy     = errors.New("busy")
	ErrFull     = errors.New("the pool is full")
	ErrClones   = errors.New("it has clones")
	ErrStopped  = errors.New("zfs-fuse does not run")
)

// NewerError says which snapshots are in the way of a rollback, oldest first.
type NewerError struct {
	Volume, Name string
	Newer        []string
}

func (e *NewerError) Error() string {
	return fmt.Sprintf("roll back %s to %s: more recent snapshots exist (%s); delete them first", e.Volume, e.Name, strings.Join(e.Newer, ", "))
}

// ForeignError says that another zfs-fuse runs on this machine.
type ForeignError struct{ PID int }

func (e *ForeignError) Error() string {
	return fmt.Sprintf("start ZFS for the lab: another zfs-fuse runs (pid %d), and a machine has room for one; stop it, or run the lab without ZFS", e.PID)
}

// commandError is a command that did not succeed.
type commandError struct {
	command string
	text    string
	class   error // nil when the text is not known
}

func (e *commandError) Error() string { return e.command + ": " + e.text }
func (e *commandError) Unwrap() error { return e.class }

var errNewer = errors.New("more recent snapshots exist")

// texts are zfs-fuse's, in lower case; the first that fits decides.
var texts = []struct {
	text  string
	class error
}{
	{"more recent snapshots exist", errNewer},
	{"out of space", ErrFull},
	{"no space left", ErrFull},
	{"has dependent clones", ErrClones},
	{"filesystem has children", ErrBusy},
	{"already exists", ErrExists},
	{"failed to initialize zfs library", ErrStopped},
	{"is busy", ErrBusy},
	{"is currently imported", ErrBusy},
	{"does not exist", ErrNotFound},
	{"no such pool", ErrNotFound},
	{"could not find any snapshots", ErrNotFound},
}

// classOf returns the class of what zfs said, nil for a text nobody knows.
func classOf(text string) error {
	lower := strings.ToLower(text)
	for _, t := range texts {
		if strings.Contains(lower, t.text) {
			return t.class
		}
	}
	return nil
}
