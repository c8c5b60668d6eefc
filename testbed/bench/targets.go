package bench

import (
	"cmp"
	"fmt"
	"strings"
)

// Target is one figure to reach, and what this run says of it.
type Target struct {
	Name string `json:"name"`
	// Target is the figure to reach, Value what was measured, in words.
	Target  string `json:"target"`
	Value   string `json:"value"`
	Reached bool   `json:"reached"`
	// Undecided says that the run has a value and cannot say whether it is enough:
	// too few samples, an experiment that is partial, a selection of what there is.
	// It is never reached then, and not missed either. Why says which.
	Undecided bool `json:"undecided,omitempty"`
	// Partial says that the value is of an experiment that was not made to its end.
	// What is exact and missed in it already is missed, and not undecided.
	Partial    bool   `json:"partial,omitempty"`
	Experiment string `json:"experiment"`
	// Number is the value alone, for a trend; nil when nothing was measured.
	Number *float64 `json:"number,omitempty"`
	// Unit is that of Number.
	Unit string `json:"unit,omitempty"`
	// Limit is the value of Number that is just enough.
	Limit *float64 `json:"limit,omitempty"`
	// Explain says what the value is made of: which arms, how many samples. Or why
	// there is none.
	Explain string `json:"explain,omitempty"`
	// Why is why a target is not reached: failed samples, what the experiment says of
	// it, and Profile in words. Or why it is undecided.
	Why string `json:"why,omitempty"`
	// Profile is where the time of the samples went that a missed target is about.
	Profile *StepTimes `json:"profile,omitempty"`
}

// NotMeasured is the value of a target that this run says nothing of.
const NotMeasured = "not measured"

// partialText is behind the value of an experiment that was not made to its end.
const partialText = ", partial"

// found is what a target's function found in the samples.
type found struct {
	value   string
	number  float64
	reached bool
	explain string
	about   []Sample // those that had to be better
	beside  []Sample // those they are held against
	// n is the smallest number of values that went into one of its medians, least how
	// many there have to be.
	n, least int
	// open is why it cannot be said, whatever n is.
	open string
	// exact says that no further sample makes good what is missed.
	exact bool
}

// goal is a target before a run is held against it.
type goal struct {
	name, target, experiment, unit string
	limit                          float64
	// measure may say of what it finds nothing in what it is about, and why.
	measure func(*Result) (found, bool)
}

const (
	mostDecision, mostReadOnly, mostTurn = 1e-3, 1.05, 0.02
	mostWorkspace, mostMachine           = 0.10, 0.35
	mostSyncs                            = 1
	leastEngine, leastJournal            = 1000, 500
)

// How many samples there have to be for a target: the median of fewer than five is
// as good as any of them, and of fewer than a hundred the 99th percentile is the
// largest.
const leastSamples, leastDecisions = 5, 100

// goals are the figures to reach: all are ratios or rates of one run.
var goals = []goal{
	{TargetDecision, "< 1 ms per command", ExpInterception, Seconds, mostDecision, decisionTime},
	{TargetReadOnly, "≤ 1.05", ExpOverhead, Ratio, mostReadOnly, func(r *Result) (found, bool) {
		return ratio(r, r.Is(ArmNone, LabelWorkload, WorkloadRead), r.Is(ArmBare, LabelWorkload, WorkloadRead), mostReadOnly, "medians of the whole command, on the same connection")
	}},
	{TargetWorkspace, "≤ 0.10", ExpOverhead, Ratio, mostWorkspace, overheadRatio(ArmWorkspace, mostWorkspace)},
	{TargetMachine, "≤ 0.35", ExpOverhead, Ratio, mostMachine, overheadRatio(ArmMachine, mostMachine)},
	{TargetCommit, "1 journal sync, no Proxmox call", ExpScale, Count, mostSyncs, commitCost},
	{TargetTurn, "≤ 2 %", ExpAgentTurn, Share, mostTurn, turnOverhead},
	{TargetEngine, "≥ 1,000 transactions/s, memory flat", ExpScale, PerSec, leastEngine, engineRate},
	{TargetJournal, "≥ 500 durable transactions/s", ExpScale, PerSec, leastJournal, journalRate},
	{TargetCrash, "all single and double crash points, 0 lost or half-applied", ExpCrash, Count, 0, crashes},
}

// Targets holds a run against every figure to reach.
func Targets(rep *Report) []Target {
	out := make([]Target, len(goals))
	for i, g := range goals {
		t := Target{Name: g.name, Target: g.target, Experiment: g.experiment, Unit: g.unit, Limit: &g.limit, Value: NotMeasured}
		r := rep.Result(g.experiment)
		if r == nil {
			t.Explain = "the experiment is not in this run"
		} else {
			t.fill(g, r)
			if t.Value == NotMeasured && len(rep.Info.Plan.Boundaries) > 0 {
				t.Explain += "; the plan measures the boundaries " + strings.Join(rep.Info.Plan.Boundaries, ", ") + " only"
			}
		}
		out[i] = t
	}
	return out
}

// fill says what a result says of a target.
func (t *Target) fill(g goal, r *Result) {
	state := r.state()
	if state != "" && !r.Partial {
		t.Explain = state
		return
	}
	f, ok := g.measure(r)
	lost := strings.TrimPrefix(failedOf(f.about, "those it is about")+failedOf(f.beside, "those beside it"), "; ")
	if !ok || !finite(f.number) {
		t.Explain = joinText(state, cmp.Or(f.explain, lost, "the experiment has no samples for it"))
		return
	}
	t.Value, t.Number, t.Explain = f.value, &f.number, joinText(state, f.explain)
	if r.Partial {
		t.Partial, t.Value = true, t.Value+partialText
	}
	switch {
	case f.exact && !f.reached:
		t.missedBy(r, f.about)
	case r.Partial:
		t.Undecided, t.Why = true, "the experiment has not been made to its end"
	case f.n < f.least:
		t.Value, t.Undecided = fmt.Sprintf("%s, n = %d: too few to say", t.Value, f.n), true
		t.Why = fmt.Sprintf("n = %d is too few to say, it takes %d", f.n, f.least)
	case f.open != "" && f.reached && lost == "":
		t.Undecided, t.Why = true, f.open
	case f.reached && lost == "":
		t.Reached = true
	case !f.reached:
		t.missedBy(r, f.about)
	}
	if lost != "" {
		t.Value, t.Why = t.Value+", "+lost, joinText(t.Why, lost)
	}
}

// failedOf counts the failed samples; there is no text for none.
func failedOf(samples []Sample, which string) string {
	failed := 0
	for _, s := range samples {
		if s.Err != "" {
			failed++
		}
	}
	if failed == 0 {
		return ""
	}
	return fmt.Sprintf("; %d of %d of %s failed", failed, len(samples), which)
}

// state says why a result is not finished; nothing of one that is.
func (r *Result) state() string {
	var text string
	switch {
	case r.Skipped != "":
		text = "skipped: " + r.Skipped
	case r.Err != "":
		text = "the experiment failed: " + r.Err
	case r.Partial:
		text = "the experiment was stopped before its end"
	}
	if r.Partial {
		text += fmt.Sprintf(" (partial: %s so far)", counted(float64(len(r.Samples)), "sample", "samples"))
	}
	return text
}
