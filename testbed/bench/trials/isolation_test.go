package trials

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"savepoint/orchestrator"
	"savepoint/testbed/bench"
)

// sealed is a proof in which everything is as expected.
func sealed() []Pair {
	return []Pair{
		{"guest a (blue)", "guest b (red)", "tcp", unreachable, unreachable},
		{"guest b (red)", "guest a (blue)", "icmp", unreachable, noRoute},
		{"guest a (blue)", "api cluster", "tcp", unreachable, unreachable},
		{"guest a (blue)", "guest c (blue)", "tcp", reachable, reachable},
		{"guest a (blue)", "jump", "tcp", exempt, reachable},
	}
}

func isolate(t *testing.T, pairs []Pair, err error) (*bench.Result, error) {
	t.Helper()
	e := Isolation(func(context.Context) ([]Pair, []string, error) {
		return pairs, []string{"red/other: nobody took part"}, err
	})
	r := bench.NewRun(e, bench.QuickPlan())
	err = e.Run(t.Context(), r)
	return r.Result(), err
}

func table(r *bench.Result, title string) (rows [][]string) {
	for _, t := range r.Tables {
		if strings.Contains(t.Title, title) {
			rows = append(rows, t.Rows...)
		}
	}
	return rows
}

func TestIsolationSealed(t *testing.T) {
	r, err := isolate(t, sealed(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for metric, want := range map[string][2]float64{metricLeak: {3, 0}, metricReached: {1, 1}, metricUnmeasured: {5, 0}, metricTenants: {1, 2}} {
		v := r.Values(r.Samples, metric)
		if float64(len(v)) != want[0] || bench.Mean(v) != want[1] {
			t.Errorf("%s: %v, want %v of %v", metric, v, want[1], want[0])
		}
	}
	if notes := strings.Join(r.Notes, "\n"); !strings.Contains(notes, "nobody took part") || strings.Contains(notes, "no guest of one tenant") {
		t.Errorf("notes: %s", notes)
	}
}

// A leak fails the experiment, and the lines that show it are kept.
func TestIsolationLeak(t *testing.T) {
	pairs := sealed()
	pairs[0].Observed = reachable
	r, err := isolate(t, pairs, nil)
	if err == nil || !strings.Contains(err.Error(), "guest b (red)") {
		t.Errorf("a leak is no failure: %v", err)
	}
	if v := r.Values(r.Samples, metricLeak); bench.Mean(v)*float64(len(v)) != 1 {
		t.Errorf("leaks: %v", v)
	}
	if rows := table(r, "LEAKS"); len(rows) != 1 || rows[0][0] != "guest a (blue)" {
		t.Errorf("evidence: %v", rows)
	}
	if !r.Metric(metricLeak).Exact {
		t.Error("leaks depend on chance")
	}
}

// What was not measured is no leak, no success and no pair of tenants.
func TestIsolationUnmeasured(t *testing.T) {
	for _, observed := range []string{"not measured", "contradictory", ""} {
		pairs := sealed()
		for i := range pairs {
			pairs[i].Observed = observed
		}
		r, err := isolate(t, pairs, nil)
		if err != nil {
			t.Errorf("%q: %v", observed, err)
		}
		if n := len(r.Values(r.Samples, metricLeak)) + len(r.Values(r.Samples, metricReached)); n != 0 {
			t.Errorf("%q: %d pairs count as measured", observed, n)
		}
		if v := r.Values(r.Samples, metricUnmeasured); bench.Mean(v) != 1 || len(table(r, "Not measured")) != len(pairs) {
			t.Errorf("%q: unmeasured %v", observed, v)
		}
		if !strings.Contains(strings.Join(r.Notes, "\n"), "no guest of one tenant") {
			t.Errorf("%q: that no tenants were tried is not said: %v", observed, r.Notes)
		}
	}
}

// A sandbox that is open when it is made is evidence too.
func TestIsolationOpenWhenMade(t *testing.T) {
	open := &orchestrator.UnsealedError{Sandbox: "bench-2", Failed: []string{"guest bench-2 to guest bench: tcp reachable"}}
	r, err := isolate(t, nil, fmt.Errorf("create sandbox bench-2: %w", open))
	if !errors.Is(err, open) || len(table(r, "Found open")) != 1 {
		t.Errorf("%v: %v", err, r.Tables)
	}
	var skip *bench.SkipError
	if _, err := isolate(t, nil, nil); !errors.As(err, &skip) {
		t.Errorf("without pairs: %v", err)
	}
}
