package janitor

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The notes survive a crash in the middle of a line, and nothing else damaged.
func TestNotesFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "janitor.log")
	use := func(do func(f *File)) {
		t.Helper()
		f, err := OpenFile(path)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		do(f)
	}
	add := func(f *File, notes ...Note) {
		t.Helper()
		for _, n := range notes {
			if err := f.Append(n); err != nil {
				t.Fatal(err)
			}
		}
	}
	use(func(f *File) {
		add(f, Note{Event: EventIntend, ID: 1, Subject: "a"}, Note{Event: EventSighted, Lock: "clone", Subject: "vm 1", Looks: 1},
			Note{Event: EventIntend, ID: 2, Subject: "b"}, Note{Event: EventEnd, ID: 1}, Note{Event: EventCleared, Lock: "clone", Subject: "vm 1"})
	})
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for cut := 0; cut <= len(text); cut += 7 { // places where a crash can cut it
		if err := os.WriteFile(path, text[:cut], 0o600); err != nil {
			t.Fatal(err)
		}
		whole := strings.Count(string(text[:cut]), "\n")
		use(func(f *File) {
			if open, seen := []int{0, 1, 1, 2, 1, 1}[whole], []int{0, 0, 1, 1, 1, 0}[whole]; len(f.Open()) != open || len(f.Sightings()) != seen {
				t.Fatalf("cut at %d: open %v, sightings %v", cut, f.Open(), f.Sightings())
			}
			add(f, Note{Event: EventIntend, ID: f.NextID()})
		})
		use(func(f *File) {
			if n := f.Open(); n[len(n)-1].ID != f.NextID()-1 {
				t.Fatalf("cut at %d: %v", cut, n)
			}
		})
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	if err := os.WriteFile(path, []byte("not a note\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenFile(path); err == nil || !strings.Contains(err.Error(), "line 1") {
		t.Errorf("a damaged file: %v", err)
	}
}

// After a note that may be there in part nothing more is written.
func TestNotesBroken(t *testing.T) {
	f, err := OpenFile(filepath.Join(t.TempDir(), "janitor.log"))
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
	for range 2 {
		if err := f.Append(Note{Event: EventIntend, ID: 1}); err == nil || len(f.Open()) > 0 {
			t.Errorf("%v, open %v", err, f.Open())
		}
	}
}
