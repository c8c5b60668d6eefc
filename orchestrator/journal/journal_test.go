package journal

import (
	"bufio"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"savepoint/orchestrator"
)

var (
	_ orchestrator.Journal   = (*Journal)(nil)
	_ orchestrator.Batcher   = (*Journal)(nil)
	_ orchestrator.Unsettler = (*Journal)(nil)
	_ orchestrator.Fencer    = (*Journal)(nil)
	_ orchestrator.Indexer   = (*Journal)(nil)
)

func TestAppendAndRead(t *testing.T) {
	t.Parallel()
	// A path with every character that a careless DSN would trip over.
	path := filepath.Join(t.TempDir(), "a b?c%41#d.db")
	j := open(t, path, Options{})
	ctx := context.Background()
	var want []orchestrator.Record
	for i := 1; i <= 7; i++ {
		r := sample(i)
		if i == 2 {
			r.Data = nil
		}
		if err := j.Append(ctx, r); err != nil {
			t.Fatal(err)
		}
		r.Seq, r.Owner, r.Fence = int64(i), j.Instance(), j.Fence()
		want = append(want, r)
	}
	if diff := cmp.Diff(want, records(t, j, "")); diff != "" {
		t.Errorf("all records (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(want[3:6], records(t, j, "tx00001")); diff != "" {
		t.Errorf("one transaction (-want +got):\n%s", diff)
	}
	var open []orchestrator.Record
	for r, err := range j.Unsettled(ctx) {
		if err != nil {
			t.Fatal(err)
		}
		open = append(open, r)
	}
	if diff := cmp.Diff(want[6:], open); diff != "" {
		t.Errorf("unsettled (-want +got):\n%s", diff)
	}
	var ids []orchestrator.TxID
	for id, err := range j.Transactions(ctx) {
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, id)
	}
	if diff := cmp.Diff([]orchestrator.TxID{"tx00002", "tx00001", "tx00000"}, ids); diff != "" {
		t.Errorf("transactions (-want +got):\n%s", diff)
	}
	if _, err := os.Stat(path); err != nil {
		t.Errorf("the file is not where it was asked for: %v", err)
	}
	if fi, _ := os.Stat(path); fi != nil && fi.Mode().Perm() != 0o600 {
		t.Errorf("the file's mode is %v", fi.Mode())
	}
}

// A record can be appended while records are read: recovery does that.
func TestAppendWhileReading(t *testing.T) {
	t.Parallel()
	j := open(t, filepath.Join(t.TempDir(), "j"), Options{})
	ctx := context.Background()
	for i := 1; i <= 3; i++ {
		if err := j.Append(ctx, sample(i)); err != nil {
			t.Fatal(err)
		}
	}
	n := 0
	for _, err := range j.Records(ctx, "") {
		if err != nil {
			t.Fatal(err)
		}
		n++
		if err := j.Append(ctx, sample(3+n)); err != nil {
			t.Fatal(err)
		}
	}
	if n != 3 {
		t.Errorf("read %d records, want the 3 that were there", n)
	}
}

func TestConcurrentAppends(t *testing.T) {
	t.Parallel()
	j := open(t, filepath.Join(t.TempDir(), "j"), Options{})
	var wg sync.WaitGroup
	const writers, each = 16, 20
	for w := range writers {
		wg.Go(func() {
			for i := range each {
				r := sample(1)
				r.Tx = orchestrator.TxID(fmt.Sprintf("w%d", w))
				r.Event = fmt.Sprint(i)
				if err := j.Append(context.Background(), r); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	for w := range writers {
		got := records(t, j, orchestrator.TxID(fmt.Sprintf("w%d", w)))
		if len(got) != each {
			t.Fatalf("writer %d: %d records", w, len(got))
		}
		for i, r := range got {
			if r.Event != fmt.Sprint(i) {
				t.Errorf("writer %d: record %d is %s", w, i, r.Event)
			}
		}
	}
}

// Records cannot be changed, not even by our own code.
func TestAppendOnly(t *testing.T) {
	t.Parallel()
	j := open(t, filepath.Join(t.TempDir(), "j"), Options{})
	if err := j.Append(context.Background(), sample(1)); err != nil {
		t.Fatal(err)
	}
	for _, q := range []string{"UPDATE records SET state = 'committed'", "DELETE FROM records"} {
		err := j.change(context.Background(), func(ctx context.Context, tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, q)
			return err
		})
		if err == nil {
			t.Errorf("%s succeeded", q)
		}
	}
	if got := records(t, j, ""); len(got) != 1 || got[0].State != orchestrator.StateRunning {
		t.Errorf("the records were changed: %+v", got)
	}
}

// A second opener, in another process or in this one, learns who holds it.
func TestHeld(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "j")
	c := spawn(t, "hold", path)
	in, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "held\n" {
		t.Fatalf("child: %q %v", line, err)
	}
	_, err = Open(path, Options{})
	var held *HeldError
	if !errors.As(err, &held) || held.PID != c.Process.Pid || !errors.Is(err, orchestrator.ErrBusy) {
		t.Errorf("second open: got %v, want a *HeldError of process %d", err, c.Process.Pid)
	}
	ro, err := OpenReadOnly(path)
	if err != nil {
		t.Fatalf("read beside the holder: %v", err)
	}
	if err := ro.Append(context.Background(), sample(1)); !errors.Is(err, orchestrator.ErrDenied) {
		t.Errorf("append to a read-only journal: got %v", err)
	}
	if err := ro.Close(); err != nil {
		t.Error(err)
	}
	_ = in.Close()
	if err := c.Wait(); err != nil {
		t.Fatal(err)
	}
	j := open(t, path, Options{})
	if _, err := Open(path, Options{}); !errors.As(err, &held) || held.PID != os.Getpid() {
		t.Errorf("second open in this process: got %v", err)
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	if err := j.Append(context.Background(), sample(1)); !errors.Is(err, orchestrator.ErrUnavailable) {
		t.Errorf("append after close: got %v", err)
	}
}

func TestReadOnly(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "j")
	if _, err := OpenReadOnly(path); !errors.Is(err, orchestrator.ErrNotFound) {
		t.Errorf("a missing journal: got %v", err)
	}
	j := open(t, path, Options{})
	if err := j.Append(context.Background(), sample(1)); err != nil {
		t.Fatal(err)
	}
	ro, err := OpenReadOnly(path)
	if err != nil {
		t.Fatal(err)
	}
	defer ro.Close()
	if err := j.Append(context.Background(), sample(2)); err != nil {
		t.Fatal(err)
	}
	if got := len(records(t, ro, "")); got != 2 {
		t.Errorf("the reader sees %d records, want 2", got)
	}
	if ro.Instance() != j.Instance() {
		t.Errorf("instance %q and %q", ro.Instance(), j.Instance())
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	ro2, err := OpenReadOnly(path) // nobody holds it
	if err != nil {
		t.Fatal(err)
	}
	defer ro2.Close()
	if got := len(records(t, ro2, "")); got != 2 {
		t.Errorf("the reader sees %d records, want 2", got)
	}
}

// A damaged file is refused, told apart from other failures, and left alone.
func TestCorrupt(t *testing.T) {
	t.Parallel()
	build := func(t *testing.T) string {
		path := filepath.Join(t.TempDir(), "j")
		j, err := Open(path, Options{})
		if err != nil {
			t.Fatal(err)
		}
		for i := 1; i <= 200; i++ {
			if err := j.Append(context.Background(), sample(i)); err != nil {
				t.Fatal(err)
			}
		}
		if err := j.Close(); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for name, damage := range map[string]func([]byte) []byte{
		"header":    func(b []byte) []byte { copy(b, "not a database at all"); return b },
		"page":      func(b []byte) []byte { clear(b[5*4096 : 6*4096]); return b },
		"last page": func(b []byte) []byte { copy(b[len(b)-4096:], "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"); return b },
		"truncated": func(b []byte) []byte { return b[:len(b)/2] },
		"text": func([]byte) []byte {
			return []byte("some notes of mine, longer than one header of a database file would be, for sure and certain")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := build(t)
			b, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			b = damage(b)
			if err := os.WriteFile(path, b, 0o600); err != nil {
				t.Fatal(err)
			}
			_, err = Open(path, Options{})
			var corrupt *CorruptError
			if !errors.As(err, &corrupt) {
				t.Fatalf("open: got %v, want a *CorruptError", err)
			}
			after, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if string(after) != string(b) {
				t.Error("the damaged file was changed")
			}
		})
	}
	t.Run("foreign database", func(t *testing.T) {
		t.Parallel()
		path := filepath.Join(t.TempDir(), "j")
		db, err := sql.Open("sqlite", path)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := db.Exec("CREATE TABLE mine (x)"); err != nil {
			t.Fatal(err)
		}
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
		var corrupt *CorruptError
		if _, err := Open(path, Options{}); !errors.As(err, &corrupt) {
			t.Errorf("open: got %v, want a *CorruptError", err)
		}
	})
}

// A file that a crash left right after its creation is taken as new.
func TestEmptyFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "j")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	j := open(t, path, Options{})
	if j.Instance() == "" || j.Fence() != 1 {
		t.Errorf("instance %q, fence %d", j.Instance(), j.Fence())
	}
}

func BenchmarkAppend(b *testing.B) {
	for _, writers := range []int{1, 16} {
		b.Run(fmt.Sprintf("writers=%d", writers), func(b *testing.B) {
			j, err := Open(filepath.Join(b.TempDir(), "j"), Options{})
			if err != nil {
				b.Fatal(err)
			}
			defer j.Close()
			b.SetParallelism(writers)
			if writers == 1 {
				for i := 0; b.Loop(); i++ {
					if err := j.Append(context.Background(), sample(i+1)); err != nil {
						b.Fatal(err)
					}
				}
			} else {
				b.RunParallel(func(p *testing.PB) {
					for p.Next() {
						if err := j.Append(context.Background(), sample(1)); err != nil {
							b.Fatal(err)
						}
					}
				})
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "appends/s")
		})
	}
}
