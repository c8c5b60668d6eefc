package bench

import (
	"context"
	"errors"
	"slices"
	"testing"
)

// Why there is no value is told as it is: not that nothing was tried.
func TestTargetWithoutValue(t *testing.T) {
	labels := tags{LabelWorkload: WorkloadInstall, LabelSize: PaperSize}
	bare, ours := timed(ArmBare, labels, 4, repeat(4, 6)...), timed(ArmWorkspace, labels, 4, repeat(5, 6)...)
	lost := timed(ArmWorkspace, labels, 4, repeat(5, 6)...)
	for i := range lost {
		lost[i].Err = "no answer"
	}
	for want, samples := range map[string][]Sample{
		"copy adds nothing to bare, so there is nothing to hold it against": slices.Concat(bare, timed(ArmCopy, labels, 4, repeat(3.9, 6)...), ours),
		"6 of 6 of those it is about failed":                                slices.Concat(bare, timed(ArmCopy, labels, 4, repeat(6, 6)...), lost),
		"the experiment has no samples for it":                              bare,
	} {
		if g := targetOf(t, TargetWorkspace, QuickPlan(), filled(ExpOverhead, nil, samples...)); g.Answer() != "–" || g.Explain != want {
			t.Errorf("%s, %q, want %q", g.Answer(), g.Explain, want)
		}
	}
}

// What is one too many stays so, however much is still to be measured.
func TestPartialTargetThatIsMissed(t *testing.T) {
	e := filled(ExpCrash, nil, Sample{Arm: "deaths", Metrics: nums{MetricSchedules: 10, MetricViolations: 1}})
	whole := e.Run
	e.Run = func(ctx context.Context, r *Run) error { return errors.Join(whole(ctx, r), errors.New("no answer")) }
	if g := targetOf(t, TargetCrash, FullPlan(), e); g.Answer() != "no" || g.Value != "1 of 10 schedules, partial" || g.Why == "" {
		t.Errorf("%+v", g)
	}
}

// A sample that failed before anything could be counted is told beside the paper's figure.
func TestPaperTellsFailures(t *testing.T) {
	rep := made(t, QuickPlan(), filled(ExpRollback, []Metric{{Name: MetricExact, Unit: Share}},
		Sample{Arm: ArmWorkspace, Metrics: nums{MetricExact: 1}}, Sample{Arm: ArmWorkspace, Err: "set up: no answer"},
		Sample{Arm: ArmWorkspace, Metrics: nums{MetricExact: 0}, Err: "2 differences"}))
	rows := Paper(rep)
	i := slices.IndexFunc(rows, func(f PaperFigure) bool { return f.Experiment == ExpRollback })
	if got := rows[i].Ours; got != "50 % (1 of 2), 1 more failed" {
		t.Error(got)
	}
}
