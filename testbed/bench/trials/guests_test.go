package trials

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"savepoint/orchestrator"
	"savepoint/policy"
	"savepoint/testbed/bench"
	"savepoint/testbed/sim"
	"savepoint/testbed/sim/world"
)

// fleetRig is simulatedRig with so many sandboxes.
func fleetRig(t *testing.T, boxes int) *Rig {
	t.Helper()
	g, _ := simulatedRig(t)
	c, err := simulated(boxes)
	if err != nil {
		t.Fatal(err)
	}
	c.Journal = sim.NewForgetful()
	if g.Engine, err = orchestrator.New(c); err != nil {
		t.Fatal(err)
	}
	return g
}

// Guests double until there are enough, or the cluster refuses; what was measured
// before a refusal is kept, and why there are no more is said.
func TestGuests(t *testing.T) {
	for _, c := range []struct {
		name       string
		most, has  int // has: the sandboxes that the cluster takes
		counts     []string
		why        string
		boundaries []string
	}{
		{"enough", 4, 9, []string{"1", "2", "4"}, "two for each", nil},
		{"not a power of two", 3, 9, []string{"1", "2"}, "two for each", nil},
		{"refused", 8, 3, []string{"1", "2"}, "2 guests at once were the most that were measured: the cluster takes no more: node pve1 is full", nil},
		{"one boundary", 2, 9, []string{"1", "2"}, "two for each", []string{"workspace"}},
	} {
		g := fleetRig(t, 9)
		e := Guests(g, func(_ context.Context, n int, _ string) (orchestrator.Sandbox, error) {
			if n > c.has {
				return orchestrator.Sandbox{}, fmt.Errorf("node pve1 is full")
			}
			return world.Box(n - 1), nil
		}, func() (int, string) { return c.most, "two for each" })
		r := bench.NewRun(e, bench.Plan{Seed: 1, Boundaries: c.boundaries})
		if err := e.Run(t.Context(), r); err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		res := r.Result()
		var counts, bounds []string
		for _, s := range res.Is(armGuests) {
			if s.Err != "" || s.Metrics[bench.MetricTxRate] <= 0 || s.Metrics[metricMedian] > s.Metrics[metricLatency] {
				t.Errorf("%s: %v %s", c.name, s.Metrics, s.Err)
			}
			if n := s.Labels[bench.LabelSandboxes]; !slices.Contains(counts, n) {
				counts = append(counts, n)
			}
			if b := s.Labels[labelBoundary]; !slices.Contains(bounds, b) {
				bounds = append(bounds, b)
			}
		}
		if !slices.Equal(counts, c.counts) {
			t.Errorf("%s: %v guests, want %v", c.name, counts, c.counts)
		}
		slices.Sort(bounds)
		if want := []string{"machine", "workspace"}; c.boundaries == nil && !slices.Equal(bounds, want) || c.boundaries != nil && !slices.Equal(bounds, c.boundaries) {
			t.Errorf("%s: boundaries %v", c.name, bounds)
		}
		if notes := strings.Join(res.Notes, "\n"); !strings.Contains(notes, c.why) {
			t.Errorf("%s: why there are no more is not said: %s", c.name, notes)
		}
	}
}

func TestGuestsSkip(t *testing.T) {
	g := fleetRig(t, 1)
	another := func(context.Context, int, string) (orchestrator.Sandbox, error) {
		t.Error("a sandbox is made")
		return orchestrator.Sandbox{}, nil
	}
	for why, plan := range map[string]bench.Plan{"one guest": bench.QuickPlan(), "there is no lab": bench.FullPlan()} {
		e := Guests(g, another, func() (int, string) { return 0, "there is no lab" })
		err := e.Run(t.Context(), bench.NewRun(e, plan))
		var skip *bench.SkipError
		if !errors.As(err, &skip) || !strings.Contains(skip.Reason, why) {
			t.Errorf("%v, want %q", err, why)
		}
	}
}

// A caller that is done before others does not begin with their sandboxes: each has
// its own.
func TestGuestsHaveACallerEach(t *testing.T) {
	c, err := simulated(2)
	if err != nil {
		t.Fatal(err)
	}
	x := &slowExecutor{Executor: c.Executor, slow: world.Box(1).ID, done: make(chan struct{})}
	c.Journal, c.Executor = sim.NewForgetful(), x
	e, err := orchestrator.New(c)
	if err != nil {
		t.Fatal(err)
	}
	g := &Rig{Engine: e}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	spec := orchestrator.Spec{Command: "echo a > /etc/a", As: policy.Root, Boundary: orchestrator.BoundaryMachine}
	if _, err := g.together(ctx, []orchestrator.Sandbox{world.Box(0), world.Box(1)}, spec); err != nil {
		t.Fatal(err)
	}
}

// slowExecutor holds one sandbox until the others have run all that is for one.
type slowExecutor struct {
	orchestrator.Executor
	slow orchestrator.SandboxID
	ran  atomic.Int64
	done chan struct{}
}

func (x *slowExecutor) Run(ctx context.Context, sb orchestrator.Sandbox, p policy.Permit, r orchestrator.ExecRequest) (orchestrator.ExecResult, error) {
	if sb.ID != x.slow {
		if x.ran.Add(1) == perGuest {
			close(x.done)
		}
		return x.Executor.Run(ctx, sb, p, r)
	}
	select {
	case <-x.done:
		return x.Executor.Run(ctx, sb, p, r)
	case <-ctx.Done():
		return orchestrator.ExecResult{}, context.Cause(ctx)
	}
}
