package journal

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"syscall"
	"testing"

	"savepoint/orchestrator"
)

// told is what a child said of each append before it ended.
type told struct {
	tried   int
	ok      map[int]bool
	unknown map[int]bool
	no      map[int]bool
}

func listen(t *testing.T, r io.Reader) told {
	t.Helper()
	l := told{ok: map[int]bool{}, unknown: map[int]bool{}, no: map[int]bool{}}
	s := bufio.NewScanner(r)
	for s.Scan() {
		var word string
		var n int
		if _, err := fmt.Sscan(s.Text(), &word, &n); err != nil {
			continue // torn by the kill
		}
		switch word {
		case "try":
			l.tried = n
		case "ok":
			l.ok[n] = true
		case "unknown":
			l.unknown[n] = true
		case "no":
			l.no[n] = true
		}
	}
	return l
}

// matches checks what is in the journal against what the child said: every
// acknowledged record is there, whole and in order; none is there twice; none
// that was refused is there; others only if nobody knew.
func (l told) matches(t *testing.T, got []orchestrator.Record) {
	t.Helper()
	seen := map[int]bool{}
	last := 0
	for _, r := range got {
		n := int(r.At.Nanosecond())
		if n <= last {
			t.Errorf("record %d after record %d", n, last)
		}
		last = n
		want := sample(n)
		if r.Tx != want.Tx || !bytes.Equal(r.Data, want.Data) || r.Settled != want.Settled || r.State != want.State {
			t.Errorf("record %d is not what was appended: %+v", n, r)
		}
		if l.no[n] {
			t.Errorf("record %d is there although its append failed", n)
		}
		if !l.ok[n] && !l.unknown[n] && n != l.tried {
			t.Errorf("record %d is there and was not appended", n)
		}
		seen[n] = true
	}
	for n := range l.ok {
		if !seen[n] {
			t.Errorf("record %d was acknowledged and is lost", n)
		}
	}
}

// The process is killed at every n-th append: nothing acknowledged is lost,
// nothing is half there, and the journal opens and goes on.
func TestKillAtEveryAppend(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "journal.db")
	instance, fence := "", int64(0)
	for n := 1; n <= 6; n++ {
		if n > 1 {
			path = filepath.Join(t.TempDir(), "journal.db")
			instance, fence = "", 0
		}
		for range 2 { // and once more on what the first kill left
			c := spawn(t, fmt.Sprintf("kill %d", n), path)
			out, err := c.Output()
			if err == nil {
				t.Fatal("the child was not killed")
			}
			if ws, ok := c.ProcessState.Sys().(syscall.WaitStatus); !ok || ws.Signal() != syscall.SIGKILL {
				t.Fatalf("the child ended by itself: %v", err)
			}
			l := listen(t, bytes.NewReader(out))
			j, err := Open(path, Options{})
			if err != nil {
				t.Fatalf("kill at append %d: %v", n, err)
			}
			all := records(t, j, "")
			if instance != "" {
				all = all[len(all)-count(all, j.Fence()-1):]
				if j.Instance() != instance {
					t.Errorf("the instance id changed from %s to %s", instance, j.Instance())
				}
			}
			if j.Fence() <= fence {
				t.Errorf("fence %d after %d", j.Fence(), fence)
			}
			instance, fence = j.Instance(), j.Fence()
			l.matches(t, all)
			if err := j.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// count returns how many records the hold with that fence wrote.
func count(rs []orchestrator.Record, fence int64) (n int) {
	for _, r := range rs {
		if r.Fence == fence {
			n++
		}
	}
	return n
}

// Writes fail because the file cannot grow, at various places: whatever was
// acknowledged is there, and what was refused is not.
func TestFileCannotGrow(t *testing.T) {
	t.Parallel()
	sure := 0
	for _, limit := range []int{161_000, 180_500, 199_999, 220_001} {
		path := filepath.Join(t.TempDir(), "journal.db")
		c := spawn(t, fmt.Sprintf("limit %d", limit), path)
		out, err := c.Output()
		if err != nil {
			t.Fatalf("limit %d: %v", limit, err)
		}
		l := listen(t, bytes.NewReader(out))
		if len(l.no)+len(l.unknown) != 3 || len(l.ok) == 0 {
			t.Fatalf("limit %d: %d appends succeeded, %d failed", limit, len(l.ok), len(l.no)+len(l.unknown))
		}
		sure += len(l.no)
		j := open(t, path, Options{})
		l.matches(t, records(t, j, ""))
		if err := j.Append(context.Background(), sample(100000)); err != nil {
			t.Errorf("limit %d: the journal does not go on with room: %v", limit, err)
		}
	}
	if sure == 0 {
		t.Error("no failure was reported as certain")
	}
}

// A full journal says so, writes nothing, and keeps on answering questions.
func TestFull(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "journal.db")
	j := open(t, path, Options{MaxBytes: 120 << 10})
	ctx := context.Background()
	var err error
	n := 0
	for n = 1; n < 10000; n++ {
		if err = j.AppendAll(ctx, []orchestrator.Record{sample(2*n - 1), sample(2 * n)}); err != nil {
			break
		}
	}
	if !errors.Is(err, orchestrator.ErrUnavailable) {
		t.Fatalf("append %d to a full journal: got %v, want an unavailable error", n, err)
	}
	if got, want := len(records(t, j, "")), 2*(n-1); got != want {
		t.Errorf("%d records are there, want %d: half a batch was written", got, want)
	}
	if err := j.Append(ctx, sample(1)); !errors.Is(err, orchestrator.ErrUnavailable) {
		t.Errorf("append again: got %v", err)
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	j = open(t, path, Options{}) // room again
	if err := j.Append(ctx, sample(2*n-1)); err != nil {
		t.Error(err)
	}
	if got, want := len(records(t, j, "")), 2*n-1; got != want {
		t.Errorf("%d records are there, want %d", got, want)
	}
}
