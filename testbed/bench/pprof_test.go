package bench_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"savepoint/testbed/bench"
)

// A profiled run has what go tool pprof and go tool trace read, of the experiment
// alone; a run without is another plan.
func TestProfile(t *testing.T) {
	dir := t.TempDir()
	plan := bench.Plan{Quick: true, Profile: true}
	if plan.Same(bench.Plan{Quick: true}) {
		t.Error("a profiled run counts as one without a profile")
	}
	busy := bench.Experiment{Name: "busy", Title: "Busy", Run: func(ctx context.Context, r *bench.Run) error {
		r.Add(bench.Sample{Arm: "all", Metrics: map[string]float64{"digest": float64(spin(time.Now().Add(300 * time.Millisecond)))}})
		return nil
	}}
	r := bench.Runner{Dir: dir, Plan: plan, Experiments: []bench.Experiment{busy}}
	for range 2 { // a second start makes nothing, and fails of nothing
		if _, err := r.Run(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	for name, tool := range map[string][]string{
		"busy.cpu.pprof":  {"tool", "pprof", "-top", "-nodecount=5"},
		"busy.heap.pprof": {"tool", "pprof", "-top", "-nodecount=5"},
	} {
		out, err := exec.Command("go", append(tool, filepath.Join(dir, name))...).CombinedOutput()
		if err != nil || !strings.Contains(string(out), "flat%") {
			t.Errorf("%s: %v: %s", name, err, out)
		}
		if name == "busy.cpu.pprof" && !strings.Contains(string(out), "spin") {
			t.Errorf("%s lacks what was run: %s", name, out)
		}
	}
	head, err := os.ReadFile(filepath.Join(dir, "busy.trace"))
	if err != nil || !strings.HasPrefix(string(head), "go 1.") {
		t.Errorf("the trace: %v, it begins with %q", err, head[:min(20, len(head))])
	}
}

//go:noinline
func spin(until time.Time) (n uint64) {
	for time.Now().Before(until) {
		for i := range uint64(1 << 16) {
			n = n*31 + i
		}
	}
	return n % 1000
}
