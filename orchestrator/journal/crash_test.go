package journal

import (
	"bufio"
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"os"
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
			if _, err := j.Verify(context.Background()); err != nil {
				t.Errorf("kill at append %d: %v", n, err)
			}
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

// failing runs a child whose writes begin to fail, and checks what it left:
// what was acknowledged is there, what was refused is not, the chain is whole,
// and the journal goes on.
func failing(t *testing.T, mode string) told {
	t.Helper()
	path := filepath.Join(t.TempDir(), "journal.db")
	out, err := spawn(t, mode, path).Output()
	if err != nil {
		t.Fatalf("%s: %v", mode, err)
	}
	l := listen(t, bytes.NewReader(out))
	if len(l.no)+len(l.unknown) != 3 {
		t.Fatalf("%s: %d appends succeeded, %d failed", mode, len(l.ok), len(l.no)+len(l.unknown))
	}
	if len(l.unknown) > 1 {
		t.Errorf("%s: %d outcomes are unknown: the journal went on after the first", mode, len(l.unknown))
	}
	j := open(t, path, Options{})
	l.matches(t, records(t, j, ""))
	if _, err := j.Verify(context.Background()); err != nil {
		t.Errorf("%s: %v", mode, err)
	}
	if err := j.Append(context.Background(), sample(100000)); err != nil {
		t.Errorf("%s: the journal does not go on: %v", mode, err)
	}
	return l
}

// The file cannot grow, at every place where a write can begin, end or be cut.
func TestFileCannotGrow(t *testing.T) {
	t.Parallel()
	const frame = 4096 + 24
	sure, ok := 0, 0
	for n := range 9 {
		for _, cut := range []int{0, 2100} {
			l := failing(t, fmt.Sprintf("limit %d", n*2*frame+cut))
			sure, ok = sure+len(l.no), ok+len(l.ok)
		}
	}
	if sure == 0 || ok == 0 {
		t.Errorf("%d appends failed for certain, %d succeeded: the limits miss the point", sure, ok)
	}
}

// The disk goes away at the n-th append.
func TestWriteError(t *testing.T) {
	t.Parallel()
	for n := 1; n <= 4; n++ {
		if l := failing(t, fmt.Sprintf("break %d", n)); len(l.ok) != n-1 {
			t.Errorf("%d appends succeeded, want %d", len(l.ok), n-1)
		}
	}
}

// The log is cut at any place, as by a disk that lied about its syncs: what is
// there is a beginning of what was written, whole and verified; a head that
// was noted shows that there was more.
func TestTornLog(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "journal.db")
	j := open(t, path, Options{})
	ctx := context.Background()
	if _, err := j.write.Exec("PRAGMA wal_checkpoint(TRUNCATE)"); err != nil {
		t.Fatal(err)
	}
	const n = 6
	for i := 1; i <= n; i++ {
		if err := j.Append(ctx, sample(i)); err != nil {
			t.Fatal(err)
		}
	}
	rep, err := j.Verify(ctx)
	if err != nil {
		t.Fatal(err)
	}
	log, err := os.ReadFile(path + "-wal")
	if err != nil {
		t.Fatal(err)
	}
	check := func(where, torn string) int {
		t.Helper()
		k := open(t, torn, Options{})
		got := records(t, k, "")
		for i, r := range got {
			if want := sample(i + 1); !bytes.Equal(r.Data, want.Data) || r.Tx != want.Tx {
				t.Errorf("%s: record %d is %+v", where, i, r)
			}
		}
		if _, err := k.Verify(ctx); err != nil {
			t.Errorf("%s: %v", where, err)
		}
		var chain *ChainError
		if _, err := k.Verify(ctx, rep.Head); (err == nil) != (len(got) == n) || err != nil && (!errors.As(err, &chain) || chain.Seq != int64(len(got)+1)) {
			t.Errorf("%s: %d records, against the noted head: %v", where, len(got), err)
		}
		if err := k.Append(ctx, sample(len(got)+1)); err != nil {
			t.Errorf("%s: %v", where, err)
		}
		return len(got)
	}
	last := 0
	for size := 0; size <= len(log); size += len(log)/23 + 1 {
		got := check(fmt.Sprintf("cut at %d of %d", size, len(log)), copied(t, path, size))
		if got < last {
			t.Errorf("cut at %d: %d records, fewer than with less", size, got)
		}
		last = got
	}
	if got := check("whole", copied(t, path, -1)); got != n {
		t.Errorf("whole: %d records", got)
	}
	for _, at := range []int{8, 24, 32, len(log) / 2, len(log) - 10} { // a bit is wrong
		torn := copied(t, path, -1)
		b := bytes.Clone(log)
		b[at] ^= 4
		if err := os.WriteFile(torn+"-wal", b, 0o600); err != nil {
			t.Fatal(err)
		}
		check(fmt.Sprintf("bit at %d", at), torn)
	}
}

// A crash at any write of a compaction leaves a whole journal that can be
// compacted again.
func TestTornCompaction(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "journal.db")
	j := open(t, path, Options{})
	ctx := context.Background()
	fill(t, j, 1, 600)
	if _, err := j.write.Exec("PRAGMA wal_checkpoint(TRUNCATE); PRAGMA wal_autocheckpoint(0)"); err != nil {
		t.Fatal(err)
	}
	rep, err := j.Verify(ctx)
	if err != nil {
		t.Fatal(err)
	}
	c := &compactor{j: j, p: Policy{KeepRecords: 30}}
	if err := j.change(ctx, c.plan); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := j.change(ctx, func(ctx context.Context, tx *sql.Tx) error {
			s, err := c.remove(ctx, tx)
			c.id = s.id
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
	fi, err := os.Stat(path + "-wal")
	if err != nil {
		t.Fatal(err)
	}
	seen := map[int64]bool{}
	for i := range 9 {
		k := open(t, copied(t, path, int(fi.Size())*i/8), Options{})
		got, err := k.Verify(ctx, rep.Head)
		if err != nil || got.Records+got.Removed != 600 {
			t.Errorf("cut at %d/8: %+v, %v", i, got, err)
		}
		seen[got.Removed] = true
		if _, err := k.Compact(ctx, Policy{KeepRecords: 30}); err != nil {
			t.Errorf("cut at %d/8: %v", i, err)
		}
		if got, err = k.Verify(ctx, rep.Head); err != nil || got.Removed != 570 {
			t.Errorf("cut at %d/8, then compacted: %+v, %v", i, got, err)
		}
	}
	if !seen[0] || !seen[500] || !seen[570] {
		t.Errorf("removed: %v, want each step", seen)
	}
}

// Where nothing can be written the journal is refused for writing with the
// reason, and a copy at rest can be read and verified all the same.
func TestDirectoryCannotBeWritten(t *testing.T) {
	t.Parallel()
	path, _ := closed(t, 12)
	dir := filepath.Dir(path)
	for _, d := range []string{filepath.Dir(dir), dir} {
		if err := os.Chmod(d, 0o755); err != nil { // the reader has no privilege
			t.Fatal(err)
		}
	}
	if err := os.Remove(path + ".lock"); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, 0o444); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o555); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Chmod(dir, 0o755) }) // so that it can be removed
	out, err := spawn(t, "unprivileged", path).Output()
	if want := "write unavailable\nrecords 12\n"; err != nil || string(out) != want {
		t.Errorf("got %q, %v, want %q", out, err, want)
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
