package sim_test

import (
	"context"
	"errors"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"savepoint/orchestrator"
	"savepoint/orchestrator/journal"
	"savepoint/testbed/sim"
	"savepoint/testbed/sim/world"
)

// engine is one on a cluster that answers at once.
func engine(tb testing.TB, boxes int, j orchestrator.Journal) *orchestrator.Engine {
	tb.Helper()
	d, err := world.Policy()
	if err != nil {
		tb.Fatal(err)
	}
	p := &world.Process{C: world.New(world.Options{Sandboxes: boxes, NewestOnly: true}), Disk: sim.NewJournal("sim", nil)}
	c := p.Config(d)
	c.Journal, c.NewID = j, nil
	e, err := orchestrator.New(c)
	if err != nil {
		tb.Fatal(err)
	}
	return e
}

func sqlite(tb testing.TB) *journal.Journal {
	tb.Helper()
	j, err := journal.Open(filepath.Join(tb.TempDir(), "journal.db"), journal.Options{})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = j.Close() })
	return j
}

func heap() float64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc) / (1 << 20)
}

const sandboxes = 1000

// hammer runs n transactions spread over the sandboxes, by so many callers.
func hammer(tb testing.TB, e *orchestrator.Engine, n, callers int, spec orchestrator.Spec) {
	tb.Helper()
	var next atomic.Int64
	var wg sync.WaitGroup
	for range callers {
		wg.Go(func() {
			for {
				i := int(next.Add(1)) - 1
				if i >= n {
					return
				}
				s := spec
				s.Sandbox = world.Box(i % sandboxes)
				if _, err := e.Run(context.Background(), s); err != nil && !errors.Is(err, orchestrator.ErrBusy) {
					tb.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
}

// BenchmarkEngine is the engine with 1,000 sandboxes on a cluster that answers
// at once. The metrics heap-before and heap-after are in MiB, after as many
// transactions as were run; -benchtime 100000x shows whether memory is flat.
func BenchmarkEngine(b *testing.B) {
	kinds := single("machine")
	for _, j := range []string{"memory", "sqlite"} {
		for _, kind := range []string{"commit", "fail"} {
			b.Run(j+"/"+kind, func(b *testing.B) {
				var jj orchestrator.Journal = sim.NewForgetful()
				if j == "sqlite" {
					jj = sqlite(b)
				}
				e := engine(b, sandboxes, jj)
				hammer(b, e, 8*sandboxes, 64, kinds[kind]) // every sandbox has its snapshots and old tasks
				before := heap()
				b.ResetTimer()
				hammer(b, e, b.N, 64, kinds[kind])
				b.StopTimer()
				b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "tx/s")
				b.ReportMetric(before, "heap-before")
				b.ReportMetric(heap(), "heap-after")
				runtime.KeepAlive(e)
			})
		}
	}
}

// BenchmarkRecovery is the recovery of a journal with 100,000 finished and
// 1,000 open transactions, one in each sandbox.
func BenchmarkRecovery(b *testing.B) {
	finished, open := 100_000, sandboxes
	if testing.Short() {
		finished, open = 2000, 100
	}
	for range b.N {
		b.StopTimer()
		path := filepath.Join(b.TempDir(), "journal.db")
		c := world.New(world.Options{Sandboxes: sandboxes, NewestOnly: true})
		fill(b, path, c, finished, open)
		j, err := journal.Open(path, journal.Options{})
		if err != nil {
			b.Fatal(err)
		}
		e := engineOn(b, c, j, nil)
		b.StartTimer()
		start := time.Now()
		outs, err := e.Recover(context.Background())
		b.ReportMetric(time.Since(start).Seconds(), "s/recovery")
		if err != nil || len(outs) != open {
			b.Fatalf("%d outcomes, want %d; %v", len(outs), open, err)
		}
		b.StopTimer()
		_ = j.Close()
	}
}
