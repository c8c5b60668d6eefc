package trials

import (
	"testing"

	"savepoint/testbed/bench"
)

func TestDrive(t *testing.T) {
	s, err := drive(t.Context(), nil, 4, 40)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range []string{bench.MetricTxRate, metricLatency, metricHeap, bench.MetricGrowth} {
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

// A commit is one durable write and no call to the cluster (DESIGN's promise),
// and the counters see a call that is made.
func TestCommitCost(t *testing.T) {
	run := bench.NewRun(Scale(t.TempDir()), bench.QuickPlan())
	if err := commitCost(t.Context(), run); err != nil {
		t.Fatal(err)
	}
	for _, s := range run.Result().Samples {
		if s.Metrics[bench.MetricSyncs] != 1 || s.Metrics[bench.MetricCalls] != 0 {
			t.Fatalf("after the command: %v", s.Metrics)
		}
	}
	c := &counted{}
	c.call()
	c.after.Store(true)
	c.call()
	if c.calls.Load() != 1 {
		t.Errorf("%d calls counted after the command, want 1", c.calls.Load())
	}
}
