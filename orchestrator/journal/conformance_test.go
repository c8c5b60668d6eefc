package journal

import (
	"os"
	"path/filepath"
	"testing"

	"savepoint/orchestrator"
	"savepoint/testbed/conformance"
)

func TestConforms(t *testing.T) {
	t.Parallel()
	conformance.Journal(t, func(t *testing.T) *conformance.JournalSubject {
		path := filepath.Join(t.TempDir(), "journal.db")
		j := open(t, path, Options{})
		return &conformance.JournalSubject{
			Journal: j, PutGrant: j.PutGrant,
			Reopen: func(t *testing.T) orchestrator.Journal {
				t.Helper()
				if err := j.Close(); err != nil {
					t.Fatal(err)
				}
				return open(t, path, Options{})
			},
			Overtake: func(t *testing.T) orchestrator.Journal {
				t.Helper()
				if err := os.Remove(path + ".lock"); err != nil {
					t.Fatal(err)
				}
				return open(t, path, Options{})
			},
		}
	})
}
