package bench

import (
	"fmt"
	"slices"
)

// The overhead of an arm is the median of its seconds less the median of those of
// the bare command, with the same labels, in the same run. It is not what is left
// without the step "execute": under savepoint that step contains what the guest does
// around the command (syncing its disk, ending its processes).

// overBareText says so to the reader.
const overBareText = "Over bare is the median of the arm's seconds less that of the bare command's, of the same workload and size in the same run; " +
	"its interval is bootstrapped over both. The step execute contains what the guest does around the command (sync, ending of processes), " +
	"so the other steps alone are less than the overhead."

// bareOf are the samples of the bare command that belong beside those of an arm:
// those with the same labels.
func (r *Result) bareOf(samples []Sample) []Sample {
	if len(samples) == 0 || samples[0].Arm == ArmBare {
		return nil
	}
	labels := labelsOf(samples[0])
	return slices.DeleteFunc(r.Is(ArmBare), func(s Sample) bool { return labelsOf(s) != labels })
}

// overBare is the overhead of samples of one group. There is none of the bare
// command, and none where it was not measured.
func (r *Result) overBare(samples []Sample) *Figure {
	a, b := r.Values(samples, MetricSeconds), r.Values(r.bareOf(samples), MetricSeconds)
	if len(a) == 0 || len(b) == 0 {
		return nil
	}
	first := samples[0]
	return &Figure{
		Arm: first.Arm, Labels: first.Labels, Metric: MetricSeconds, Unit: Seconds, N: min(len(a), len(b)),
		Value: Median(a) - Median(b), Interval: DifferenceInterval(a, b),
	}
}

// ofWorkload keeps the samples of an arm on the paper's workspace. An experiment
// whose workspace has one size need not say so.
func ofWorkload(r *Result, arm, workload string) []Sample {
	return slices.DeleteFunc(r.Is(arm, LabelWorkload, workload), func(s Sample) bool {
		size, ok := s.Labels[LabelSize]
		return ok && size != PaperSize
	})
}

// aimed is the workload that targets, and the figures beside the paper's, are about.
// What a boundary adds depends little on the command, so a run that has made the long
// one too seldom to say is judged by the short one.
func aimed(r *Result) string {
	if n := len(ofWorkload(r, ArmBare, WorkloadInstall)); n < leastSamples && len(ofWorkload(r, ArmBare, WorkloadEdit)) > n {
		return WorkloadEdit
	}
	return WorkloadInstall
}

// overheadRatio holds what an arm adds to the bare command against what the paper's
// way adds to it.
func overheadRatio(arm string, most float64) func(*Result) (found, bool) {
	return func(r *Result) (found, bool) {
		workload := aimed(r)
		ours, copied, plain := ofWorkload(r, arm, workload), ofWorkload(r, ArmCopy, workload), ofWorkload(r, ArmBare, workload)
		a, b, bare := r.Values(ours, MetricSeconds), r.Values(copied, MetricSeconds), r.Values(plain, MetricSeconds)
		v, in := OverheadRatio(a, b, bare)
		if !finite(v) {
			f := found{about: ours, beside: slices.Concat(copied, plain)}
			if len(a) > 0 && len(b) > 0 && len(bare) > 0 {
				f.explain = fmt.Sprintf("%s adds nothing to %s, so there is nothing to hold it against", ArmCopy, ArmBare)
			}
			return f, false
		}
		return found{
			value: number(v) + in.text(number), number: v, reached: v <= most,
			explain: fmt.Sprintf("%s adds %s / %s adds %s: what their medians are above %s of %s, workload %s, n = %d, %d and %d",
				arm, seconds(Median(a)-Median(bare)), ArmCopy, seconds(Median(b)-Median(bare)), seconds(Median(bare)), ArmBare, workload, len(a), len(b), len(bare)),
			about: ours, beside: slices.Concat(copied, plain), n: min(len(a), len(b), len(bare)), least: leastSamples,
		}, true
	}
}

// ratio of the medians of two groups of samples, to be at most most.
func ratio(r *Result, ours, base []Sample, most float64, what string) (found, bool) {
	a, b := r.Values(ours, MetricSeconds), r.Values(base, MetricSeconds)
	if len(a) == 0 || len(b) == 0 || Median(b) <= 0 {
		return found{about: ours, beside: base}, false
	}
	v := Median(a) / Median(b)
	return found{
		value: number(v) + RatioInterval(a, b).text(number), number: v, reached: v <= most,
		explain: fmt.Sprintf("%s %s / %s %s: %s, n = %d and %d", ours[0].Arm, seconds(Median(a)), base[0].Arm, seconds(Median(b)), what, len(a), len(b)),
		about:   ours, beside: base, n: min(len(a), len(b)), least: leastSamples,
	}, true
}
