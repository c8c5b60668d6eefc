package bench

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
)

// Target is one figure to reach, and what this run says of it.
type Target struct {
	Name string `json:"name"`
	// Target is the figure to reach, Value what was measured, in words.
	Target     string `json:"target"`
	Value      string `json:"value"`
	Reached    bool   `json:"reached"`
	Experiment string `json:"experiment"`
	// Number is the value alone, for a trend; nil when nothing was measured.
	Number *float64 `json:"number,omitempty"`
	// Unit is that of Number.
	Unit string `json:"unit,omitempty"`
	// Limit is the value of Number that is just enough.
	Limit *float64 `json:"limit,omitempty"`
	// Explain says what the value is made of, or why there is none.
	Explain string `json:"explain,omitempty"`
	// Why is what a target that is missed is missed by: what the experiment says
	// of it, and Profile in words.
	Why string `json:"why,omitempty"`
	// Profile is where the time of the samples went that a missed target is about.
	Profile *StepTimes `json:"profile,omitempty"`
}

// NotMeasured is the value of a target that this run says nothing of.
const NotMeasured = "not measured"

// found is what a target's function found in the samples.
type found struct {
	value   string
	number  float64
	reached bool
	explain string
	about   []Sample // those that had to be better
}

// goal is a target before a run is held against it.
type goal struct {
	name, target, experiment, unit string
	limit                          float64
	measure                        func(*Result) (found, bool)
}

const (
	mostDecision, mostReadOnly, mostTurn = 1e-3, 1.05, 0.02
	mostWorkspace, mostMachine           = 0.10, 0.35
	mostSyncs                            = 1
	leastEngine, leastJournal            = 1000, 500
)

// goals are the figures to reach: all are ratios or rates of one run.
var goals = []goal{
	{TargetDecision, "< 1 ms per command", ExpInterception, Seconds, mostDecision, decisionTime},
	{TargetReadOnly, "≤ 1.05", ExpOverhead, Ratio, mostReadOnly, func(r *Result) (found, bool) {
		a := r.Is(ArmNone, LabelWorkload, WorkloadRead)
		f, ok := ratio(r.Values(a, MetricSeconds), timesOf(r, ArmBare, WorkloadRead), mostReadOnly, "medians of the whole command, on the same connection")
		f.about = a
		return f, ok
	}},
	{TargetWorkspace, "≤ 0.10", ExpOverhead, Ratio, mostWorkspace, overheadRatio(ArmWorkspace, mostWorkspace)},
	{TargetMachine, "≤ 0.35", ExpOverhead, Ratio, mostMachine, overheadRatio(ArmMachine, mostMachine)},
	{TargetCommit, "1 journal sync, no Proxmox call", ExpScale, Count, mostSyncs, commitCost},
	{TargetTurn, "≤ 2 %", ExpAgentTurn, Share, mostTurn, turnOverhead},
	{TargetEngine, "≥ 1,000 transactions/s, memory flat", ExpScale, PerSec, leastEngine, engineRate},
	{TargetJournal, "≥ 500 durable transactions/s", ExpScale, PerSec, leastJournal, journalRate},
	{TargetCrash, "all single and double crash points, 0 lost or half-applied", ExpCrash, Count, 0, crashes},
}

const overheadText = "medians of the time that is not the command's own, workload " + WorkloadInstall

// Targets holds a run against every figure to reach.
func Targets(rep *Report) []Target {
	out := make([]Target, len(goals))
	for i, g := range goals {
		t := Target{Name: g.name, Target: g.target, Experiment: g.experiment, Unit: g.unit, Limit: &g.limit, Value: NotMeasured}
		switch r := rep.Result(g.experiment); {
		case r == nil:
			t.Explain = "the experiment is not in this run"
		case r.Skipped != "":
			t.Explain = "skipped: " + r.Skipped
		case r.Err != "":
			t.Explain = "the experiment failed: " + r.Err
		default:
			f, ok := g.measure(r)
			if !ok || !finite(f.number) {
				t.Explain = "the experiment has no samples for it"
				break
			}
			t.Value, t.Reached, t.Number, t.Explain = f.value, f.reached, &f.number, f.explain
			if !f.reached {
				t.missedBy(r, f.about)
			}
		}
		out[i] = t
	}
	return out
}

// install keeps the samples of an arm that targets are about: the workload on
// the paper's workspace. An experiment whose workspace has one size need not say
// so.
func install(r *Result, arm string) []Sample {
	return slices.DeleteFunc(r.Is(arm, LabelWorkload, WorkloadInstall), func(s Sample) bool {
		size, ok := s.Labels[LabelSize]
		return ok && size != PaperSize
	})
}

func overheadOf(r *Result, arm string) []float64 { return Overhead(install(r, arm)) }

// overheadRatio holds what an arm adds against what the paper's way adds.
func overheadRatio(arm string, most float64) func(*Result) (found, bool) {
	return func(r *Result) (found, bool) {
		f, ok := ratio(overheadOf(r, arm), overheadOf(r, ArmCopy), most, overheadText)
		f.about = install(r, arm)
		return f, ok
	}
}

func timesOf(r *Result, arm, workload string) []float64 {
	return r.Values(r.Is(arm, LabelWorkload, workload), MetricSeconds)
}

// ratio of two medians, to be at most most.
func ratio(a, b []float64, most float64, explain string) (found, bool) {
	if len(a) == 0 || len(b) == 0 || Median(b) <= 0 {
		return found{}, false
	}
	v, in := Median(a)/Median(b), RatioInterval(a, b)
	text := number(v)
	if finite(in.Low) && finite(in.High) {
		text += fmt.Sprintf(" (%s to %s)", number(in.Low), number(in.High))
	}
	return found{text, v, v <= most, fmt.Sprintf("%s / %s: %s, n = %d and %d", seconds(Median(a)), seconds(Median(b)), explain, len(a), len(b)), nil}, true
}

func decisionTime(r *Result) (found, bool) {
	v := r.Values(r.Samples, MetricDecision)
	if len(v) == 0 {
		return found{}, false
	}
	p99 := Quantile(v, 0.99)
	return found{
		seconds(p99), p99, p99 < mostDecision, fmt.Sprintf("over %d decisions, median %s", len(v), seconds(Median(v))),
		slices.DeleteFunc(r.Is(""), func(s Sample) bool { _, ok := s.Metrics[MetricDecision]; return !ok }),
	}, true
}

func commitCost(r *Result) (found, bool) {
	commits := r.Is("commit")
	syncs, calls := r.Values(commits, MetricSyncs), r.Values(commits, MetricCalls)
	if len(syncs) == 0 || len(calls) == 0 {
		return found{}, false
	}
	s, c := slices.Max(syncs), slices.Max(calls)
	return found{
		fmt.Sprintf("%s, %s", counted(s, "sync", "syncs"), counted(c, "call", "calls")), s + c, s <= mostSyncs && c == 0,
		fmt.Sprintf("the most of %d commits", len(commits)), commits,
	}, true
}

// turnOverhead judges each boundary by itself, since their times have nothing in
// common, and takes the worst.
func turnOverhead(r *Result) (found, bool) {
	with := groups(r.Is(ArmSavepoint, LabelThink, "2"), labelsOf)
	var all []found
	for _, g := range groups(r.Is(ArmBare, LabelThink, "2"), labelsOf) {
		i := slices.IndexFunc(with, func(w group) bool { return w.name == g.name })
		if i < 0 {
			continue
		}
		a, b := r.Values(with[i].samples, MetricSeconds), r.Values(g.samples, MetricSeconds)
		f, ok := ratio(a, b, 1+mostTurn, "a whole turn with savepoint / without")
		if !ok {
			continue
		}
		in := RatioInterval(a, b)
		f.about = with[i].samples
		f.number--
		f.value = fmt.Sprintf("%s (%s to %s)", percent(f.number), percent(in.Low-1), percent(in.High-1))
		f.explain = apart(g, LabelThink) + f.value + ": " + f.explain
		all = append(all, f)
	}
	return worstOf(all, func(a, b found) bool { return a.number > b.number })
}

// labelsOf names samples of several arms that belong together.
func labelsOf(s Sample) string { return Sample{Labels: s.Labels}.Group() }

// apart is what tells a group from others of its arm, but for one label that all
// have.
func apart(g group, but string) string {
	labels := maps.Clone(g.samples[0].Labels)
	delete(labels, but)
	if text := strings.TrimPrefix(labelsOf(Sample{Labels: labels}), ", "); text != "" {
		return text + ": "
	}
	return ""
}

// worstOf is the worst of what was found, explained by all of it.
func worstOf(all []found, worse func(a, b found) bool) (found, bool) {
	if len(all) == 0 {
		return found{}, false
	}
	worst, texts := all[0], []string{}
	for _, f := range all {
		if worse(f, worst) {
			worst = f
		}
		texts = append(texts, f.explain)
	}
	worst.explain = strings.Join(texts, "; ")
	if len(all) > 1 {
		worst.explain = "the worst of " + worst.explain
	}
	return worst, true
}

// journalRate judges each number of writers by itself and takes the worst.
func journalRate(r *Result) (found, bool) {
	var all []found
	for _, g := range groups(r.Is("journal"), labelsOf) {
		rates := r.Values(g.samples, MetricTxRate)
		if len(rates) == 0 {
			continue
		}
		m := Median(rates)
		text := number(m) + "/s"
		all = append(all, found{text, m, m >= leastJournal, fmt.Sprintf("%s%s, median of %d", apart(g, ""), text, len(rates)), g.samples})
	}
	return worstOf(all, func(a, b found) bool { return a.number < b.number })
}

func engineRate(r *Result) (found, bool) {
	samples := r.Is("engine", LabelSandboxes, "1000")
	rates, growth := r.Values(samples, MetricTxRate), r.Values(samples, MetricGrowth)
	if len(rates) == 0 || len(growth) == 0 {
		return found{}, false
	}
	rate, g := Median(rates), Median(growth)
	// Ten per cent is what a collector leaves lying about.
	return found{
		fmt.Sprintf("%s/s, memory × %s", number(rate), number(g)), rate, rate >= leastEngine && g <= 1.10,
		fmt.Sprintf("median of %d; memory of the second half by that of the first, flat is at most 1.10", len(rates)), samples,
	}, true
}

func crashes(r *Result) (found, bool) {
	points, bad := r.Values(r.Samples, MetricSchedules), r.Values(r.Samples, MetricViolations)
	failed := 0
	for _, s := range r.Samples {
		if s.Err != "" {
			failed++
		}
	}
	if len(points) == 0 || len(bad) == 0 {
		return found{}, false
	}
	n, v := math.Round(Mean(points)*float64(len(points))), math.Round(Mean(bad)*float64(len(bad)))
	f := found{fmt.Sprintf("%s of %s schedules", number(v), number(n)), v, v == 0 && n > 0 && failed == 0, "violations, of all schedules that were played", r.Samples}
	if failed > 0 {
		f.explain += fmt.Sprintf("; %d sets of them could not be played", failed)
	}
	return f, true
}
