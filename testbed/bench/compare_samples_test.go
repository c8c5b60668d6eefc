package bench

import (
	"fmt"
	"testing"
)

// Too few samples to tell where there were enough are as bad as none: an arm that ended
// early must not hide behind them.
func TestCompareLostSamples(t *testing.T) {
	of := func(n int) Experiment { return filled("x", nil, values("a", MetricSeconds, repeat(1, n)...)...) }
	for _, tt := range []struct {
		name     string
		old, now int
		plan     Plan
		want     Verdict
	}{
		{"an arm that ended", 20, 3, QuickPlan(), Gone},
		{"still enough", 20, 4, QuickPlan(), NoChange},
		{"never enough", 3, 1, QuickPlan(), NoChange},
		{"another plan", 20, 3, FullPlan(), NoChange},
	} {
		c := Compare(made(t, QuickPlan(), of(tt.old)), made(t, tt.plan, of(tt.now)), 0.1)
		if len(c.Changes) != 1 || c.Changes[0].Verdict != tt.want {
			t.Errorf("%s: %+v", tt.name, c.Changes)
		}
	}
}

// Figures that cannot differ are no comparisons that chance had: they hide no regression.
func TestCompareBesideConstants(t *testing.T) {
	side := func(by float64) Experiment {
		all := values("a", MetricSeconds, by+1, by+1.01, by+1.02, by+1.03, by+1.04)
		for i := range 30 {
			all = append(all, values(fmt.Sprintf("constant %d", i), MetricSeconds, repeat(1, 5)...)...)
		}
		return filled("x", nil, all...)
	}
	c := Compare(runOf(t, "old", side(0)), runOf(t, "new", side(1)), 0.1)
	if bad := c.Regressions(); len(bad) != 1 || bad[0].Group != "a" || bad[0].Q != bad[0].P {
		t.Errorf("%+v", bad)
	}
}
