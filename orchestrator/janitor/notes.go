package janitor

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"savepoint/orchestrator"
)

// Event is what a note is about.
type Event string

// The events. They are stored: the list is append-only.
const (
	EventIntend  Event = "intend"  // a destructive call comes next
	EventTask    Event = "task"    // the cluster's name of its task
	EventEnd     Event = "end"     // what came of it
	EventSighted Event = "sighted" // a lock without a task
	EventCleared Event = "cleared" // that lock is gone
)

// Note is one durable line of the janitor's own record.
type Note struct {
	At      time.Time         `json:"at"`
	Event   Event             `json:"event"`
	ID      int64             `json:"id,omitempty"` // of the intent
	Kind    Kind              `json:"kind,omitempty"`
	Subject string            `json:"subject,omitempty"`
	Sandbox string            `json:"sandbox,omitempty"`
	UPID    orchestrator.UPID `json:"upid,omitempty"`
	Outcome string            `json:"outcome,omitempty"`
	// Lock, First and Looks are of a sighting.
	Lock  string    `json:"lock,omitempty"`
	First time.Time `json:"first,omitzero"`
	Looks int       `json:"looks,omitempty"`
}

// Notes is the janitor's durable record. Append returns once the note is on
// disk; an error means that nothing may be done on the strength of it.
type Notes interface {
	Append(n Note) error
	// Open lists the intents without an end, oldest first.
	Open() []Note
	// Sightings are the locks that were seen without a task, by "LOCK VM".
	Sightings() map[string]Note
	// NextID is an id that no intent has had.
	NextID() int64
}

// folded is what notes come to.
type folded struct {
	open  []Note
	seen  map[string]Note
	maxID int64
}

func sightingKey(lock, subject string) string { return lock + " " + subject }

func (f *folded) apply(n Note) {
	f.maxID = max(f.maxID, n.ID)
	switch n.Event {
	case EventIntend:
		f.open = append(f.open, n)
	case EventTask: // for the operator who reads the file; its intent stays open
	case EventEnd:
		for i, o := range f.open {
			if o.ID == n.ID {
				f.open = append(f.open[:i:i], f.open[i+1:]...)
				break
			}
		}
	case EventSighted:
		if f.seen == nil {
			f.seen = map[string]Note{}
		}
		f.seen[sightingKey(n.Lock, n.Subject)] = n
	case EventCleared:
		delete(f.seen, sightingKey(n.Lock, n.Subject))
	}
}

// File keeps notes as lines of JSON in a file, each one synced. A last line
// without its end is what a crash left of a note that nobody relied on; it is
// cut off. One process at a time uses the file.
type File struct {
	f      *os.File
	s      folded
	broken error // after a note that may be there in part
}

var _ Notes = (*File)(nil)

// OpenFile opens the notes, making the file the first time.
func OpenFile(path string) (*File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the janitor's notes: %w", err)
	}
	n := &File{f: f}
	if err := errors.Join(n.load(path), syncDir(filepath.Dir(path))); err != nil {
		f.Close()
		return nil, err
	}
	return n, nil
}

func (n *File) load(path string) error {
	r := bufio.NewReader(n.f)
	var good int64
	for line := 1; ; line++ {
		text, err := r.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return fmt.Errorf("read the janitor's notes: %w", err)
		}
		var note Note
		d := json.NewDecoder(bytes.NewReader(text))
		if err := d.Decode(&note); err != nil {
			return fmt.Errorf("read the janitor's notes: %s line %d: %w; move the file away after a look at it", path, line, err)
		}
		n.s.apply(note)
		good += int64(len(text))
	}
	if err := n.f.Truncate(good); err != nil {
		return fmt.Errorf("read the janitor's notes: %w", err)
	}
	_, err := n.f.Seek(good, io.SeekStart)
	return err
}

// Append writes and syncs one note. After an error it writes nothing more: the
// next OpenFile cuts off what is there of the last one.
func (n *File) Append(note Note) error {
	if n.broken != nil {
		return n.broken
	}
	text, err := json.Marshal(note)
	if err == nil {
		_, err = n.f.Write(append(text, '\n'))
	}
	if err == nil {
		err = n.f.Sync()
	}
	if err != nil {
		n.broken = &orchestrator.JournalError{Cause: fmt.Errorf("write the janitor's notes: %w", err)}
		return n.broken
	}
	n.s.apply(note)
	return nil
}

// Open lists the intents without an end.
func (n *File) Open() []Note { return append([]Note(nil), n.s.open...) }

// Sightings are the locks that were seen without a task.
func (n *File) Sightings() map[string]Note { return n.s.seen }

// NextID is an id that no intent has had.
func (n *File) NextID() int64 { return n.s.maxID + 1 }

// Close closes the file.
func (n *File) Close() error { return n.f.Close() }

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("open the janitor's notes: %w", err)
	}
	defer d.Close()
	return d.Sync()
}
