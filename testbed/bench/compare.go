package bench

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// Verdict is what became of a figure.
type Verdict string

// Verdicts.
const (
	Improved Verdict = "better"
	Worse    Verdict = "worse"
	Changed  Verdict = "changed" // more than chance, and neither direction is better
	NoChange Verdict = "noise"   // chance explains it, or it is too small
	New      Verdict = "new"
	Gone     Verdict = "gone" // measured before, and no more: as bad as worse
)

// Change is one figure in two runs.
type Change struct {
	Experiment string  `json:"experiment"`
	Group      string  `json:"group"`
	Metric     string  `json:"metric"`
	Unit       string  `json:"unit,omitempty"`
	Old        float64 `json:"old"`
	New        float64 `json:"new"`
	// By is the change: of the old value, of shares in points (0.1 = 10 points).
	By float64 `json:"by"`
	// P is the probability that chance alone makes such a difference (Mann-Whitney), Q
	// that corrected for the number of figures of the experiment (Benjamini-Hochberg).
	// Both are 1 where chance is not asked.
	P       float64 `json:"p"`
	Q       float64 `json:"q"`
	N       [2]int  `json:"n"`
	Verdict Verdict `json:"verdict"`
	Why     string  `json:"why,omitempty"`
}

// Comparison is two runs beside each other.
type Comparison struct {
	Old      string   `json:"old"`
	New      string   `json:"new"`
	Limit    float64  `json:"limit"`
	Warnings []string `json:"warnings,omitempty"`
	Changes  []Change `json:"changes"`
}

// significance is the level below which a difference is more than chance.
const significance = 0.05

// fewest samples on each side that can differ by more than chance.
const fewest = 4

// Compare holds a run against an earlier one. A change counts when chance does
// not explain it (Mann-Whitney, corrected by Benjamini-Hochberg over the figures of
// its experiment, q < 0.05) and it is larger than limit (0.1 is 10 % of the old value,
// or 10 points of a share). Exact metrics, and the share of failed samples, count at
// any change for the worse. What was measured before and is no more is Gone, unless
// the plan of the new run did not have it.
func Compare(old, new *Report, limit float64) *Comparison {
	c := &Comparison{Old: old.Info.ID, New: new.Info.ID, Limit: limit, Changes: []Change{}}
	samePlan := old.Info.Plan.Same(new.Info.Plan)
	if !samePlan {
		c.Warnings = append(c.Warnings, "the runs have different plans")
	}
	for _, o := range old.Results {
		n := new.Result(o.Experiment)
		lost := func(v Verdict, why string) {
			c.Changes = append(c.Changes, Change{Experiment: o.Experiment, P: 1, Q: 1, Verdict: v, Why: why})
		}
		switch {
		case !o.Finished():
		case n == nil && !slices.Contains(new.Info.Experiments, o.Experiment):
			c.Warnings = append(c.Warnings, "experiment "+o.Experiment+" is not in the new run")
		case n == nil:
			lost(Gone, "the new run has not come to it")
		case n.Skipped != "":
			lost(Gone, n.state())
		case !n.Finished():
			lost(Worse, n.state())
		default:
			if machine, versions := o.Environment.Differences(n.Environment); len(machine) > 0 {
				c.Warnings = append(c.Warnings, "experiment "+o.Experiment+" ran on another machine: "+strings.Join(append(machine, versions...), "; "))
			} else if len(versions) > 0 {
				c.Warnings = append(c.Warnings, "experiment "+o.Experiment+" ran with other versions: "+strings.Join(versions, "; "))
			}
			c.Changes = append(c.Changes, changes(o, n, limit, samePlan)...)
		}
	}
	for _, n := range new.Results {
		if o := old.Result(n.Experiment); n.Finished() && (o == nil || !o.Finished()) {
			c.Changes = append(c.Changes, Change{Experiment: n.Experiment, P: 1, Q: 1, Verdict: New, Why: "the old run has no finished one"})
		}
	}
	return c
}

// failedMetric is the share of the samples that failed.
var failedMetric = Metric{Name: "failed", Unit: Share, Better: Lower, Exact: true}

func failedValues(samples []Sample) []float64 {
	out := make([]float64, len(samples))
	for i, s := range samples {
		if s.Err != "" {
			out[i] = 1
		}
	}
	return out
}

func changes(o, n *Result, limit float64, samePlan bool) []Change {
	var out []Change
	before, after := o.ordered(), n.ordered()
	find := func(gs []group, name string) []Sample {
		if i := slices.IndexFunc(gs, func(g group) bool { return g.name == name }); i >= 0 {
			return gs[i].samples
		}
		return nil
	}
	add := func(c Change, group string) {
		c.Experiment, c.Group = n.Experiment, group
		out = append(out, c)
	}
	names := n.metricNames()
	for _, name := range o.metricNames() {
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	for _, g := range before {
		now := find(after, g.name)
		if now == nil {
			add(Change{P: 1, Q: 1, N: [2]int{len(g.samples), 0}, Verdict: Gone, Why: "the new run has no such samples"}, g.name)
			continue
		}
		for _, name := range names {
			m := n.Metric(name)
			a, b := o.Values(g.samples, name), n.Values(now, name)
			switch {
			case len(a) == 0 && len(b) == 0:
			case len(a) == 0:
				add(Change{Metric: name, Unit: m.Unit, New: sum(b, m.Unit).Value, P: 1, Q: 1, N: [2]int{0, len(b)}, Verdict: New}, g.name)
			case len(b) == 0:
				add(Change{Metric: name, Unit: m.Unit, Old: sum(a, m.Unit).Value, P: 1, Q: 1, N: [2]int{len(a), 0}, Verdict: Worse, Why: joinText("no sample has it any more", now[0].Err)}, g.name)
			default:
				c := change(m, a, b)
				if samePlan && !m.Exact && len(a) >= fewest && len(b) < fewest {
					c.Verdict, c.Why = Gone, fmt.Sprintf("%d samples are too few to tell, there were %d", len(b), len(a))
				}
				add(c, g.name)
			}
		}
		a, b := failedValues(g.samples), failedValues(now)
		if Mean(a)+Mean(b) > 0 {
			add(change(failedMetric, a, b), g.name)
		}
	}
	judge(n, out, limit)
	for _, g := range after {
		if find(before, g.name) == nil {
			add(Change{P: 1, Q: 1, N: [2]int{0, len(g.samples)}, Verdict: New}, g.name)
		}
	}
	return out
}

// worst is what an exact metric is judged by.
func worst(m Metric, v []float64) float64 {
	switch {
	case m.Unit == Share:
		return Mean(v)
	case m.Better == Higher:
		return slices.Min(v)
	}
	return slices.Max(v)
}

// untold is the verdict of a change that is still to be judged.
const untold Verdict = ""

// change compares the values of one metric; there are some on both sides. Those that
// chance may explain are left untold.
func change(m Metric, a, b []float64) Change {
	c := Change{
		Metric: m.Name, Unit: m.Unit, Old: sum(a, m.Unit).Value, New: sum(b, m.Unit).Value,
		P: 1, Q: 1, N: [2]int{len(a), len(b)}, Verdict: NoChange,
	}
	if m.Exact {
		c.Old, c.New = worst(m, a), worst(m, b)
	}
	c.By = c.New - c.Old
	if m.Unit != Share && c.Old != 0 {
		c.By /= math.Abs(c.Old)
	}
	switch {
	case m.Exact && c.By != 0:
		c.Verdict = direction(m, c)
	case m.Exact:
	case constant(a, b): // no comparison: chance could not have made a difference
	case len(a) >= fewest && len(b) >= fewest:
		c.P, c.Verdict = MannWhitney(a, b), untold
	case c.By != 0:
		c.Why = "too few samples to tell"
	}
	return c
}

// constant reports whether all values of both sides are the same one.
func constant(a, b []float64) bool {
	all := slices.Concat(a, b)
	return slices.Min(all) == slices.Max(all)
}

// direction of a change that is one.
func direction(m Metric, c Change) Verdict {
	switch {
	case m.Better == "":
		return Changed
	case c.By < 0 == (m.Better == Lower):
		return Improved
	}
	return Worse
}

// judge gives the changes of one experiment that are untold their verdicts. They are
// one family: the more figures there are, the more of them differ by chance.
func judge(n *Result, all []Change, limit float64) {
	var at []int
	var p []float64
	for i, c := range all {
		if c.Verdict == untold {
			at, p = append(at, i), append(p, c.P)
		}
	}
	q := benjaminiHochberg(p)
	for k, i := range at {
		c := &all[i]
		m := n.Metric(c.Metric)
		c.Q, c.Verdict = q[k], NoChange
		switch {
		case c.By == 0:
		case c.P >= significance:
			c.Why = "chance explains it"
		case c.Q >= significance:
			c.Why = fmt.Sprintf("chance explains it, in one of %d figures", len(p))
		case math.Abs(c.New-c.Old) < m.Floor:
			c.Why = "too small to matter"
		case math.Abs(c.By) <= limit:
			c.Why = "smaller than the limit"
		default:
			c.Verdict = direction(m, *c)
		}
	}
}

// Regressions are the changes for the worse, and what is gone.
func (c *Comparison) Regressions() []Change {
	var out []Change
	for _, ch := range c.Changes {
		if ch.Verdict == Worse || ch.Verdict == Gone {
			out = append(out, ch)
		}
	}
	return out
}
