package trials

import (
	"context"
	"io"
	"strings"
	"testing"

	"savepoint/orchestrator"
	"savepoint/policy"
	"savepoint/testbed/bench"
	"savepoint/testbed/sim/world"
)

// simulatedRig acts on one sandbox of a simulated cluster that answers at once.
// Commands without savepoint answer like a guest that does all it is told.
func simulatedRig(t testing.TB) (*Rig, *[]string) {
	t.Helper()
	engine := func(ahead bool) *orchestrator.Engine {
		c, err := simulated(1)
		if err != nil {
			t.Fatal(err)
		}
		c.Ahead = ahead
		e, err := orchestrator.New(c)
		if err != nil {
			t.Fatal(err)
		}
		return e
	}
	d, err := world.Policy()
	if err != nil {
		t.Fatal(err)
	}
	var ran []string
	return &Rig{
		Engine: engine(false), Eager: engine(true), Decider: d,
		Bare: func(_ context.Context, _ orchestrator.Sandbox, p policy.Permit, _ io.Reader) (orchestrator.ExecResult, error) {
			ran = append(ran, p.Command())
			return orchestrator.ExecResult{}, nil
		},
		Box:   func(context.Context) (orchestrator.Sandbox, error) { return world.Box(0), nil },
		Reset: func(context.Context, orchestrator.Sandbox) error { return nil },
	}, &ran
}

// A repetition is a turn: as many as the plan says, in every arm.
func TestTurnsRepeat(t *testing.T) {
	for _, repeat := range []int{1, 3, 7} {
		g, _ := simulatedRig(t)
		m, err := startModel()
		if err != nil {
			t.Fatal(err)
		}
		defer m.close()
		plan := bench.FullPlan()
		plan.Repeat = repeat
		r := bench.NewRun(Turns(g), plan)
		if err := g.turnsOf(t.Context(), r, m, world.Box(0), orchestrator.BoundaryWorkspace, 0); err != nil {
			t.Fatal(err)
		}
		res := r.Result()
		for _, arm := range []string{bench.ArmBare, bench.ArmSavepoint, armOnDemand} {
			reps := map[int]bool{}
			for _, s := range res.Is(arm) {
				reps[s.Rep] = true
			}
			if n := len(res.Is(arm)); n != repeat || len(reps) != repeat {
				t.Errorf("--repeat %d: %s has %d turns of %d different numbers", repeat, arm, n, len(reps))
			}
		}
	}
}

func TestSessions(t *testing.T) {
	for turns, want := range map[int][]int{1: {1}, 2: {1, 1}, 5: {3, 2}, 24: {6, 6, 6, 6}, 25: {5, 5, 5, 5, 5}} {
		got := sessions(turns)
		if len(got) != len(want) {
			t.Errorf("%d turns: %v, want %v", turns, got, want)
			continue
		}
		for i := range got {
			if got[i] != want[i] {
				t.Errorf("%d turns: %v, want %v", turns, got, want)
				break
			}
		}
	}
}

// The loop is said to be the experiment's own, and only the boundaries of the plan
// are measured.
func TestTurnsBoundaries(t *testing.T) {
	for _, c := range []struct {
		want  []string
		quick bool
	}{{[]string{"machine"}, true}, {[]string{"workspace", "machine"}, false}} {
		g, _ := simulatedRig(t)
		plan := bench.QuickPlan()
		plan.Quick, plan.Boundaries, plan.Repeat = c.quick, c.want, 1
		got := turnBoundaries(bench.NewRun(Turns(g), plan), world.Box(0))
		var names []string
		for _, b := range got {
			names = append(names, string(b))
		}
		if strings.Join(names, " ") != strings.Join(c.want, " ") {
			t.Errorf("%v: got %v", c.want, names)
		}
	}
}
