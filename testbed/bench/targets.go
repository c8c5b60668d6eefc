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
	// Explain says what the value is made of, or why there is none.
	Explain string `json:"explain,omitempty"`
}

// NotMeasured is the value of a target that this run says nothing of.
const NotMeasured = "not measured"

// found is what a target's function found in the samples.
type found struct {
	value   string
	number  float64
	reached bool
	explain string
}

// goal is a target before a run is held against it.
type goal struct {
	name, target, experiment, unit string
	measure                        func(*Result) (found, bool)
}

// goals are the figures to reach: all are ratios or rates of one run.
var goals = []goal{
	{"policy decision, p99", "< 1 ms per command", ExpInterception, Seconds, decisionTime},
	{"read-only command / bare SSH", "≤ 1.05", ExpOverhead, Ratio, func(r *Result) (found, bool) {
		a := timesOf(r, ArmNone, WorkloadRead)
		return ratio(a, timesOf(r, ArmBare, WorkloadRead), 1.05, "medians of the whole command, on the same connection")
	}},
	{"overhead, workspace boundary / the paper's copy of 250 MB", "≤ 0.10", ExpOverhead, Ratio, func(r *Result) (found, bool) {
		return ratio(overheadOf(r, ArmWorkspace), overheadOf(r, ArmCopy), 0.10, overheadText)
	}},
	{"overhead, machine boundary / the paper's copy of 250 MB", "≤ 0.35", ExpOverhead, Ratio, func(r *Result) (found, bool) {
		return ratio(overheadOf(r, ArmMachine), overheadOf(r, ArmCopy), 0.35, overheadText)
	}},
	{"commit on the critical path", "1 journal sync, no Proxmox call", ExpScale, Count, commitCost},
	{"overhead of a whole agent turn, 2 s of model time", "≤ 2 %", ExpAgentTurn, Share, turnOverhead},
	{"engine, simulated hypervisor, 1,000 sandboxes", "≥ 1,000 transactions/s, memory flat", ExpScale, PerSec, engineRate},
	{"journal", "≥ 500 durable transactions/s", ExpScale, PerSec, journalRate},
	{"crash schedules explored", "all single and double crash points, 0 lost or half-applied", ExpCrash, Count, crashes},
}

const overheadText = "medians of the time that is not the command's own, workload " + WorkloadInstall

// Targets holds a run against every figure to reach.
func Targets(rep *Report) []Target {
	out := make([]Target, len(goals))
	for i, g := range goals {
		t := Target{Name: g.name, Target: g.target, Experiment: g.experiment, Unit: g.unit, Value: NotMeasured}
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
	return found{text, v, v <= most, fmt.Sprintf("%s / %s: %s, n = %d and %d", seconds(Median(a)), seconds(Median(b)), explain, len(a), len(b))}, true
}

func decisionTime(r *Result) (found, bool) {
	v := r.Values(r.Samples, MetricDecision)
	if len(v) == 0 {
		return found{}, false
	}
	p99 := Quantile(v, 0.99)
	return found{seconds(p99), p99, p99 < 1e-3, fmt.Sprintf("over %d decisions, median %s", len(v), seconds(Median(v)))}, true
}

func commitCost(r *Result) (found, bool) {
	commits := r.Is("commit")
	syncs, calls := r.Values(commits, MetricSyncs), r.Values(commits, MetricCalls)
	if len(syncs) == 0 || len(calls) == 0 {
		return found{}, false
	}
	s, c := slices.Max(syncs), slices.Max(calls)
	return found{
		fmt.Sprintf("%s, %s", counted(s, "sync", "syncs"), counted(c, "call", "calls")), s + c, s <= 1 && c == 0,
		fmt.Sprintf("the most of %d commits", len(commits)),
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
		f, ok := ratio(a, b, 1.02, "a whole turn with savepoint / without")
		if !ok {
			continue
		}
		in := RatioInterval(a, b)
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
		all = append(all, found{text, m, m >= 500, fmt.Sprintf("%s%s, median of %d", apart(g, ""), text, len(rates))})
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
		fmt.Sprintf("%s/s, memory × %s", number(rate), number(g)), rate, rate >= 1000 && g <= 1.10,
		fmt.Sprintf("median of %d; memory of the second half by that of the first, flat is at most 1.10", len(rates)),
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
	f := found{fmt.Sprintf("%s of %s schedules", number(v), number(n)), v, v == 0 && n > 0 && failed == 0, "violations, of all schedules that were played"}
	if failed > 0 {
		f.explain += fmt.Sprintf("; %d sets of them could not be played", failed)
	}
	return f, true
}
