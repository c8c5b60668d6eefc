package trials

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"savepoint/orchestrator"
	"savepoint/orchestrator/journal"
	"savepoint/policy"
	"savepoint/testbed/bench"
	"savepoint/testbed/sim"
	"savepoint/testbed/sim/world"
)

// keep is how many snapshots of finished transactions a simulated sandbox may carry,
// before a transaction of it deletes them.
const keep = 4

const (
	metricMedian   = "latency_p50"
	metricLatency  = "latency_p99"
	metricHeap     = "heap"
	metricExponent = "exponent"

	labelNodes   = "nodes"
	labelJournal = "journal"

	inMemory  = "memory"
	inSQLite  = "SQLite, synchronous FULL"
	armNodes  = "engine on nodes"
	armOnDisk = "engine on disk"
)

// procs is how many processors the engine is measured on, so that figures of large
// and small machines are of the same thing; it is fewer on a smaller machine.
const procs = 2

// Scale measures the engine on a simulated cluster that answers at once, and the
// journal on this machine's disk, in a directory below dir.
func Scale(dir string) bench.Experiment {
	return bench.Experiment{
		Name: bench.ExpScale, Title: "How it grows",
		Method: `The engine runs transactions that commit, each with a snapshot of the whole machine, in 1 to 1,000 sandboxes of a simulated cluster: what is measured is savepoint itself, with GOMAXPROCS as labelled. In the arms "engine" and "engine on disk" the cluster answers at once; the journal is one in memory, or SQLite with synchronous FULL on this machine's disk, as labelled. In the arm "engine on nodes" the sandboxes are spread over 1 to 100 nodes, each of which makes one snapshot at a time and takes ` + nodeTask.String() + ` for it, so that few nodes bound the rate and many do not; a deletion takes no time of the node; the journal is in memory. A sandbox may carry ` + strconv.Itoa(keep) + ` snapshots before they are deleted, which is part of the transactions that are measured. "exponent" is how a quantity grows with the sandboxes or nodes, fitted over all of an arm's points: 0 does not grow, 1 grows with them. "memory growth" is the heap after the second half of the transactions by that after the first, with the simulated cluster in both; "retained" is their difference by the transactions of the second half, so that a little that each leaves behind is seen beside a large cluster. "journal" writes transactions alone, two durable writes each, from as many writers as the label says. "commit" counts the durable writes and the calls to the cluster between the end of a command and its answer, in each boundary. A quick run leaves out "engine on disk", 10 sandboxes, and nodes with fewer than 1,000 sandboxes.`,
		Metrics: []bench.Metric{
			{Name: bench.MetricTxRate, Unit: bench.PerSec, Better: bench.Higher, Text: `transactions a second; the journal is in memory in the arms "engine" and "engine on nodes", and SQLite with synchronous FULL in "engine on disk" and "journal"`},
			{Name: metricMedian, Unit: bench.Seconds, Better: bench.Lower, Text: "of one transaction, median"},
			{Name: metricLatency, Unit: bench.Seconds, Better: bench.Lower, Text: "of one transaction, 99th percentile"},
			{Name: metricHeap, Unit: bench.Bytes, Better: bench.Lower, Text: "heap at the end"},
			{Name: bench.MetricGrowth, Unit: bench.Ratio, Better: bench.Lower, Text: "heap after the second half by that after the first"},
			{Name: bench.MetricRetained, Unit: bench.Bytes, Better: bench.Lower, Floor: bench.MostRetained, Text: "what the heap grew by in the second half, for each of its transactions"},
			{Name: metricExponent, Unit: bench.Ratio, Text: "of the growth of what the labels name"},
			{Name: bench.MetricSyncs, Unit: bench.Count, Better: bench.Lower, Exact: true, Text: "durable writes between the end of a command and its answer"},
			{Name: bench.MetricCalls, Unit: bench.Count, Better: bench.Lower, Exact: true, Text: "calls to the cluster between the end of a command and its answer"},
		},
		Plots: []bench.Plot{
			{Kind: bench.Lines, Title: "Transactions a second, by sandboxes", Metric: bench.MetricTxRate, X: bench.LabelSandboxes, Series: bench.ByArm, Log: true},
			{Kind: bench.Lines, Title: "1,000 sandboxes: transactions a second, by nodes", Metric: bench.MetricTxRate, X: labelNodes, Where: map[string]string{bench.ByArm: armNodes, bench.LabelSandboxes: "1000"}, Log: true},
			{Kind: bench.Lines, Title: "Heap, by sandboxes", Metric: metricHeap, X: bench.LabelSandboxes, Series: bench.ByArm},
		},
		Quick: 30 * time.Second, Full: 20 * time.Minute,
		Run: func(ctx context.Context, r *bench.Run) error { return scale(ctx, r, dir) },
	}
}

func scale(ctx context.Context, r *bench.Run, dir string) error {
	if err := commitCost(ctx, r); err != nil {
		return err
	}
	has := min(procs, runtime.GOMAXPROCS(0))
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(has))
	r.Fact("GOMAXPROCS", strconv.Itoa(has))
	arms, nodes := scaleArms(r, dir, has)
	if err := bench.Interleave(ctx, r, arms, r.Reps(5, 7), 0); err != nil {
		return err
	}
	if err := bench.Interleave(ctx, r, nodes, r.Reps(1, 7), 0); err != nil {
		return err
	}
	most := map[string]string{bench.LabelSandboxes: "1000"}
	grows(r, []growth{
		{"engine", bench.LabelSandboxes, bench.MetricTxRate, nil},
		{"engine", bench.LabelSandboxes, metricHeap, nil},
		{armOnDisk, bench.LabelSandboxes, bench.MetricTxRate, nil},
		{armNodes, labelNodes, bench.MetricTxRate, most},
		{armNodes, labelNodes, metricLatency, most},
	})
	res := r.Result()
	if alone := res.Values(res.Is("journal", "writers", "1"), bench.MetricTxRate); len(alone) > 0 {
		r.Profile(bench.TargetJournal, "with one writer, a transaction is two writes, each synced to the disk before the next: %.1f ms a write here", 500/bench.Median(alone))
	}
	return nil
}

// scaleArms are those of the plan, on so many processors, and those on several nodes,
// which no figure to reach is about.
func scaleArms(r *bench.Run, dir string, has int) (arms, several []bench.Arm) {
	// Transactions of a sample, and those of one whose journal is on the disk.
	n, durable, written := 40000, 5000, 2000
	if r.Plan.Quick || r.Plan.Repeat > 0 {
		n, durable, written = 6000, 200, 1000
	}
	labels := func(journal string, boxes, nodes int) map[string]string {
		l := map[string]string{bench.LabelProcs: strconv.Itoa(has), labelJournal: journal, bench.LabelSandboxes: strconv.Itoa(boxes)}
		if nodes > 0 {
			l[labelNodes] = strconv.Itoa(nodes)
		}
		return l
	}
	for _, boxes := range []int{1, 10, 100, 1000} {
		if r.Plan.Quick && boxes == 10 {
			continue
		}
		arms = append(arms, bench.Arm{Name: "engine", Labels: labels(inMemory, boxes, 0), Do: func(ctx context.Context) (bench.Sample, error) { return drive(ctx, nil, boxes, n) }})
		if r.Plan.Quick { // the journal is an arm of its own
			continue
		}
		arms = append(arms, bench.Arm{Name: armOnDisk, Labels: labels(inSQLite, boxes, 0), Do: func(ctx context.Context) (bench.Sample, error) {
			j, drop, err := onDisk(dir)
			if err != nil {
				return bench.Sample{}, err
			}
			defer drop()
			return drive(ctx, j, boxes, durable)
		}})
	}
	for _, boxes := range []int{1, 10, 100, 1000} {
		for _, nodes := range []int{1, 10, 100} {
			if nodes > boxes || r.Plan.Quick && boxes < 1000 {
				continue
			}
			several = append(several, bench.Arm{Name: armNodes, Labels: labels(inMemory, boxes, nodes), Do: func(ctx context.Context) (bench.Sample, error) {
				return driveNodes(ctx, boxes, nodes, min(n, nodeTransactions*nodes))
			}})
		}
	}
	for _, writers := range []int{1, 16} {
		arms = append(arms, bench.Arm{
			Name: "journal", Labels: map[string]string{"writers": strconv.Itoa(writers), bench.LabelProcs: strconv.Itoa(has), labelJournal: inSQLite},
			Do: func(ctx context.Context) (bench.Sample, error) { return writeJournal(ctx, dir, writers, written) },
		})
	}
	return arms, several
}

// onDisk opens a journal in a directory of its own; drop closes and removes it.
func onDisk(dir string) (*journal.Journal, func(), error) {
	d, err := os.MkdirTemp(dir, "bench-journal-")
	if err != nil {
		return nil, nil, fmt.Errorf("make a directory for a journal: %w", err)
	}
	j, err := journal.Open(filepath.Join(d, "journal.db"), journal.Options{})
	if err != nil {
		_ = os.RemoveAll(d)
		return nil, nil, err
	}
	return j, func() { _ = j.Close(); _ = os.RemoveAll(d) }, nil
}

// simulated is the configuration of an engine on a cluster that answers at once.
func simulated(boxes int) (orchestrator.Config, error) {
	d, err := world.Policy()
	if err != nil {
		return orchestrator.Config{}, err
	}
	p := &world.Process{C: world.New(world.Options{Sandboxes: boxes, NewestOnly: true}), Disk: sim.NewJournal("sim", nil)}
	c := p.Config(d)
	c.NewID, c.Keep = nil, keep
	return c, nil
}

// work is what the simulated transactions do.
func work(sb orchestrator.Sandbox, b orchestrator.Boundary) orchestrator.Spec {
	s := orchestrator.Spec{Sandbox: sb, Command: "echo a > /etc/a", As: policy.Root, Boundary: b}
	if b == orchestrator.BoundaryWorkspace {
		s.Command, s.As = "echo a > /workspace/a", policy.Agent
	}
	return s
}

// machineWork is a transaction of the i-th sandbox of n, over and over.
func machineWork(boxes int) func(i int) orchestrator.Spec {
	return func(i int) orchestrator.Spec { return work(world.Box(i%boxes), orchestrator.BoundaryMachine) }
}

// drive runs about n transactions over the sandboxes with 64 callers, in two halves.
// A nil journal is one in memory that forgets what is settled.
//
// A sandbox's snapshots grow to a bound and are then deleted together, so the heap
// is a saw: halves are whole teeth of every sandbox, one at least, after a first one.
func drive(ctx context.Context, j orchestrator.Journal, boxes, n int) (bench.Sample, error) {
	c, err := simulated(boxes)
	if err != nil {
		return bench.Sample{}, err
	}
	if c.Journal = j; j == nil {
		c.Journal = sim.NewForgetful()
	}
	e, err := orchestrator.New(c)
	if err != nil {
		return bench.Sample{}, err
	}
	teeth := boxes * 2 * keep
	half := teeth * max(1, n/2/teeth)
	if err := hammer(ctx, e, min(64, boxes), teeth, machineWork(boxes), nil); err != nil {
		return bench.Sample{}, err
	}
	took := make([]float64, 2*half)
	began := time.Now()
	if err := hammer(ctx, e, min(64, boxes), half, machineWork(boxes), took[:half]); err != nil {
		return bench.Sample{}, err
	}
	first := time.Since(began)
	before := heap()
	began = time.Now()
	if err := hammer(ctx, e, min(64, boxes), half, machineWork(boxes), took[half:]); err != nil {
		return bench.Sample{}, err
	}
	total := first + time.Since(began)
	after := heap()
	runtime.KeepAlive(e)
	return bench.Sample{Metrics: map[string]float64{
		bench.MetricTxRate: float64(2*half) / total.Seconds(), metricMedian: bench.Median(took), metricLatency: bench.Quantile(took, 0.99),
		metricHeap: after, bench.MetricGrowth: after / before, bench.MetricRetained: (after - before) / float64(half),
	}}, nil
}

// hammer runs n transactions. Callers that meet in one sandbox try again.
func hammer(ctx context.Context, e *orchestrator.Engine, callers, n int, what func(i int) orchestrator.Spec, took []float64) error {
	var next atomic.Int64
	var wg sync.WaitGroup
	fails := make([]error, callers)
	for k := range callers {
		wg.Go(func() {
			for i := int(next.Add(1)) - 1; i < n && ctx.Err() == nil; i = int(next.Add(1)) - 1 {
				began := time.Now()
				out, err := e.Run(ctx, what(i))
				for errors.Is(err, orchestrator.ErrBusy) {
					runtime.Gosched()
					out, err = e.Run(ctx, what(i))
				}
				if err == nil && out.State != orchestrator.StateCommitted {
					err = fmt.Errorf("a simulated transaction is %s: %s", out.State, out.Reason)
				}
				if err != nil {
					fails[k] = err
					return
				}
				if took != nil {
					took[i] = time.Since(began).Seconds()
				}
			}
		})
	}
	wg.Wait()
	return errors.Join(append(fails, context.Cause(ctx))...)
}

func heap() float64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc)
}

// writeJournal writes n transactions of two durable writes.
func writeJournal(ctx context.Context, dir string, writers, n int) (bench.Sample, error) {
	j, drop, err := onDisk(dir)
	if err != nil {
		return bench.Sample{}, err
	}
	defer drop()
	box := world.Box(0)
	began := time.Now()
	var next atomic.Int64
	var wg sync.WaitGroup
	fails := make([]error, writers)
	for k := range writers {
		wg.Go(func() {
			for i := next.Add(1); i <= int64(n); i = next.Add(1) {
				id := orchestrator.NewTxID(time.Now())
				for _, r := range []orchestrator.Record{
					{Tx: id, Sandbox: box.ID, At: time.Now(), State: orchestrator.StateBegun, Event: "begin", Data: []byte(`{}`)},
					{Tx: id, Sandbox: box.ID, At: time.Now(), State: orchestrator.StateCommitted, Event: "committed", Data: []byte(`{}`), Settled: true},
				} {
					if err := j.Append(ctx, r); err != nil {
						fails[k] = err
						return
					}
				}
			}
		})
	}
	wg.Wait()
	return bench.Sample{Metrics: map[string]float64{bench.MetricTxRate: float64(n) / time.Since(began).Seconds()}}, errors.Join(fails...)
}
