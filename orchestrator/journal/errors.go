package journal

import (
	"errors"
	"fmt"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"savepoint/orchestrator"
)

// HeldError says that another process has the journal.
type HeldError struct {
	Path string
	PID  int // 0 when the holder did not say
}

func (e *HeldError) Error() string {
	if e.PID == 0 {
		return fmt.Sprintf("open journal %s: another instance holds it; end that one first", e.Path)
	}
	return fmt.Sprintf("open journal %s: process %d holds it; end that one first", e.Path, e.PID)
}

// Is makes it a case of busy for callers that only know classes.
func (e *HeldError) Is(target error) bool { return target == orchestrator.ErrBusy }

// CorruptError says that the file is damaged or is no journal. Nothing was
// changed in it.
type CorruptError struct {
	Path   string
	Detail string
}

func (e *CorruptError) Error() string {
	return fmt.Sprintf("journal %s is damaged: %s; keep the file, restore a copy or start with a new path, and check the sandboxes by hand", e.Path, e.Detail)
}

// VersionError says that the file's schema is not one this program can use.
type VersionError struct {
	Path      string
	Have, Max int
}

func (e *VersionError) Error() string {
	if e.Have > e.Max {
		return fmt.Sprintf("journal %s has schema %d, this program knows up to %d; use a newer savepoint", e.Path, e.Have, e.Max)
	}
	return fmt.Sprintf("journal %s has schema %d and has to be brought to %d; open it once for writing", e.Path, e.Have, e.Max)
}

// FencedError says that another process took the journal over although this
// one had not let go: somebody removed the lock file, or it is on a file system
// without locks. Nothing was written, and nothing will be by this process.
type FencedError struct {
	Path  string
	Fence int64 // the number of this process's hold
	Now   int64 // that of the one which has it
}

func (e *FencedError) Error() string {
	return fmt.Sprintf("change journal %s: another process took it over (its hold is %d, ours was %d); end this process, and keep the file and its lock on a local disk", e.Path, e.Now, e.Fence)
}

// Is makes it a denial for callers that only know classes.
func (e *FencedError) Is(target error) bool { return target == orchestrator.ErrDenied }

// ChainError says where the records stop being what was written. The journal
// was changed by something else than savepoint, or its disk is failing.
type ChainError struct {
	Path string
	Seq  int64 // the first record that is not proved; 0 = it is not about one
	What string
}

func (e *ChainError) Error() string {
	where := ""
	if e.Seq > 0 {
		where = fmt.Sprintf("record %d: ", e.Seq)
	}
	return fmt.Sprintf("verify journal %s: %s%s; keep the file as it is, compare it with a copy from before, and trust nothing from there on", e.Path, where, e.What)
}

// code is SQLite's primary result code, 0 for errors of other origin.
func code(err error) int {
	var e *sqlite.Error
	if errors.As(err, &e) {
		return e.Code() & 0xff
	}
	return 0
}

// explain gives an SQLite error its class and a cause for a person.
func (j *Journal) explain(err error) error {
	if err == nil {
		return nil
	}
	switch code(err) {
	case sqlite3.SQLITE_FULL:
		return fmt.Errorf("%w: no space for journal %s; free some, nothing was written (%v)", orchestrator.ErrUnavailable, j.path, err)
	case sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED:
		return fmt.Errorf("%w: journal %s is locked by another program (%v)", orchestrator.ErrBusy, j.path, err)
	case sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB:
		return &CorruptError{Path: j.path, Detail: err.Error()}
	case sqlite3.SQLITE_READONLY:
		return fmt.Errorf("%w: journal %s cannot be written (%v)", orchestrator.ErrDenied, j.path, err)
	case sqlite3.SQLITE_CANTOPEN:
		return fmt.Errorf("%w: journal %s cannot be opened (%v)", orchestrator.ErrUnavailable, j.path, err)
	default:
		return fmt.Errorf("%w: journal %s: %v", orchestrator.ErrUnknownOutcome, j.path, err)
	}
}
