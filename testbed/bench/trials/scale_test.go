package trials

import (
	"context"
	"math"
	"strconv"
	"sync"
	"testing"

	"savepoint/orchestrator"
	"savepoint/testbed/bench"
	"savepoint/testbed/sim"
	"savepoint/testbed/sim/world"
)

func TestDrive(t *testing.T) {
	s, err := drive(t.Context(), nil, 4, 40)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range []string{bench.MetricTxRate, metricMedian, metricLatency, metricHeap, bench.MetricGrowth} {
		if s.Metrics[m] <= 0 {
			t.Errorf("%s is %v", m, s.Metrics[m])
		}
	}
	if g := s.Metrics[bench.MetricGrowth]; g > 1.05 {
		t.Errorf("the heap of the second half is %v times that of the first", g)
	}
	j, drop, err := onDisk(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer drop()
	if _, err := drive(t.Context(), j, 2, 8); err != nil {
		t.Fatal(err)
	}
	if s, err = writeJournal(t.Context(), t.TempDir(), 2, 20); err != nil || s.Metrics[bench.MetricTxRate] <= 0 {
		t.Errorf("%v, %v", s, err)
	}
}

// A little that each transaction leaves behind is seen beside a large cluster, whose
// heap it does not make grow by much.
func TestDriveSeesWhatIsRetained(t *testing.T) {
	for _, leaks := range []bool{false, true} {
		j := &leakyJournal{Forgetful: sim.NewForgetful(), leaks: leaks}
		s, err := drive(t.Context(), j, 50, 2000)
		if err != nil {
			t.Fatal(err)
		}
		if retained := s.Metrics[bench.MetricRetained]; (retained > 200) != leaks {
			t.Errorf("leaks %v: %.0f bytes of each transaction are said to be retained, growth %v", leaks, retained, s.Metrics[bench.MetricGrowth])
		}
	}
}

// leakyJournal keeps something of each write.
type leakyJournal struct {
	*sim.Forgetful
	leaks bool
	mu    sync.Mutex
	kept  [][]byte
}

func (j *leakyJournal) AppendAll(ctx context.Context, rs []orchestrator.Record) error {
	if j.leaks {
		j.mu.Lock()
		j.kept = append(j.kept, make([]byte, 128))
		j.mu.Unlock()
	}
	return j.Forgetful.AppendAll(ctx, rs)
}

func (j *leakyJournal) Append(ctx context.Context, r orchestrator.Record) error {
	return j.AppendAll(ctx, []orchestrator.Record{r})
}

// A commit is one durable write and no call to the cluster (DESIGN's promise), in
// each boundary, and the counters see what a rollback costs.
func TestCommitCost(t *testing.T) {
	plan := bench.QuickPlan()
	run := bench.NewRun(Scale(t.TempDir()), plan)
	if err := commitCost(t.Context(), run); err != nil {
		t.Fatal(err)
	}
	seen := map[string]int{}
	for _, s := range run.Result().Samples {
		seen[s.Labels[labelBoundary]]++
		if s.Metrics[bench.MetricSyncs] != 1 || s.Metrics[bench.MetricCalls] != 0 {
			t.Fatalf("boundary %s, after the command: %v", s.Labels[labelBoundary], s.Metrics)
		}
	}
	for _, b := range []orchestrator.Boundary{orchestrator.BoundaryWorkspace, orchestrator.BoundaryDisk, orchestrator.BoundaryMachine} {
		if seen[string(b)] < 5 {
			t.Errorf("%d commits in the boundary %s", seen[string(b)], b)
		}
		e, c, err := counting()
		if err != nil {
			t.Fatal(err)
		}
		s := work(world.Box(0), b)
		s.Command += " && cat /nowhere"
		state, err := c.run(t.Context(), e, s)
		if err != nil || state != orchestrator.StateRolledBack {
			t.Fatalf("boundary %s: %s, %v", b, state, err)
		}
		if c.calls.Load() == 0 || c.syncs.Load() < 2 {
			t.Errorf("boundary %s: %d calls and %d syncs counted of a rollback", b, c.calls.Load(), c.syncs.Load())
		}
	}
	plan.Boundaries = []string{"disk"}
	run = bench.NewRun(Scale(t.TempDir()), plan)
	if err := commitCost(t.Context(), run); err != nil {
		t.Fatal(err)
	}
	for _, s := range run.Result().Samples {
		if s.Labels[labelBoundary] != "disk" {
			t.Errorf("the plan does not name the boundary %s", s.Labels[labelBoundary])
		}
	}
}

// Nodes bound what they do: with one, transactions wait for each other, and each
// transaction needs a task of it; with ten the same work is done by all ten.
func TestNodes(t *testing.T) {
	const n = 40
	one, err := driveNodes(t.Context(), 20, 1, n)
	if err != nil {
		t.Fatal(err)
	}
	if most := 1 / nodeTask.Seconds(); one.Metrics[bench.MetricTxRate] > most {
		t.Errorf("one node makes %.0f transactions a second, and its tasks allow %.0f", one.Metrics[bench.MetricTxRate], most)
	}
	if _, err := driveNodes(t.Context(), 20, 10, n); err != nil {
		t.Fatal(err)
	}
	// A sandbox that comes round often has its snapshots deleted, and is no more work
	// for its node than one that does not.
	if _, err := driveNodes(t.Context(), 2, 2, n); err != nil {
		t.Fatal(err)
	}
	on := newNodes(3)
	if a, b := on.box(1).VM.Node, on.box(4).VM.Node; a != b || a == on.box(2).VM.Node {
		t.Errorf("sandboxes are on %s, %s and %s", a, on.box(2).VM.Node, b)
	}
	for _, node := range []string{"pve1", "node3", "node-1", ""} {
		if _, _, err := on.on(orchestrator.VMRef{Node: node, ID: 9000}); err == nil {
			t.Errorf("node %q is one of three", node)
		}
	}
}

// Every figure of the engine says on how many processors and with which journal it
// was measured; sandboxes go to 1,000 and nodes to 100.
func TestScaleArms(t *testing.T) {
	for _, quick := range []bool{true, false} {
		points := map[string]bool{}
		arms, several := scaleArms(bench.NewRun(Scale("."), bench.Plan{Quick: quick}), ".", 2)
		for _, a := range append(arms, several...) {
			if a.Labels[bench.LabelProcs] != "2" || a.Labels[labelJournal] == "" {
				t.Errorf("%s %v does not say its processors or its journal", a.Name, a.Labels)
			}
			if a.Name == armNodes {
				points[a.Labels[bench.LabelSandboxes]+"/"+a.Labels[labelNodes]] = true
			}
		}
		for _, p := range []string{"1000/1", "1000/10", "1000/100"} {
			if !points[p] {
				t.Errorf("quick %v: %s sandboxes and nodes are not measured", quick, p)
			}
		}
		if points["1/1"] == quick || points["10/100"] {
			t.Errorf("quick %v: %v", quick, points)
		}
	}
}

func TestExponent(t *testing.T) {
	x, flat, linear, square := []float64{1, 10, 100}, []float64{7, 7, 7}, []float64{3, 30, 300}, []float64{1, 100, 10000}
	for _, c := range []struct {
		y    []float64
		want float64
	}{{flat, 0}, {linear, 1}, {square, 2}} {
		if b, ok := exponent(x, c.y); !ok || math.Abs(b-c.want) > 1e-9 {
			t.Errorf("%v grows by %v (%v), want %v", c.y, b, ok, c.want)
		}
	}
	if _, ok := exponent([]float64{5, 5}, []float64{1, 2}); ok {
		t.Error("a growth is fitted through one point")
	}
	r := bench.NewRun(Scale("."), bench.QuickPlan())
	for _, boxes := range []string{"1", "10", "100"} {
		n, _ := strconv.ParseFloat(boxes, 64)
		r.Add(bench.Sample{Arm: "engine", Labels: map[string]string{bench.LabelSandboxes: boxes}, Metrics: map[string]float64{bench.MetricTxRate: 5000 / n, metricHeap: 100 * n}})
	}
	r.Add(bench.Sample{Arm: "engine", Labels: map[string]string{bench.LabelSandboxes: "1000"}, Metrics: map[string]float64{metricHeap: 1}, Err: "it failed"})
	grows(r, []growth{{"engine", bench.LabelSandboxes, bench.MetricTxRate, nil}, {"engine", bench.LabelSandboxes, metricHeap, nil}})
	res := r.Result()
	for metric, want := range map[string]float64{bench.MetricTxRate: -1, metricHeap: 1} {
		got := res.Values(res.Is("growth of engine", "of", metric), metricExponent)
		if len(got) != 1 || math.Abs(got[0]-want) > 1e-9 {
			t.Errorf("%s grows by %v, want %v", metric, got, want)
		}
	}
}
