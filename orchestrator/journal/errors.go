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
