package bench

import (
	"bytes"
	"fmt"
	"io"
	"math"
	"slices"
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
	Gone     Verdict = "gone"
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
	// P is the probability that chance alone makes such a difference.
	P       float64 `json:"p"`
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
// not explain it (Mann-Whitney, p < 0.05) and it is larger than limit (0.1 is 10 %
// of the old value, or 10 points of a share). Exact metrics count at any change
// for the worse.
func Compare(old, new *Report, limit float64) *Comparison {
	c := &Comparison{Old: old.Info.ID, New: new.Info.ID, Limit: limit, Changes: []Change{}}
	if !old.Info.Plan.Same(new.Info.Plan) {
		c.Warnings = append(c.Warnings, "the runs have different plans")
	}
	for _, o := range old.Results {
		n := new.Result(o.Experiment)
		switch {
		case !o.Finished():
		case n == nil:
			c.Warnings = append(c.Warnings, "experiment "+o.Experiment+" is not in the new run")
		case n.Err != "":
			c.Changes = append(c.Changes, Change{Experiment: o.Experiment, P: 1, Verdict: Worse, Why: "the experiment failed: " + n.Err})
		case n.Skipped != "":
			c.Changes = append(c.Changes, Change{Experiment: o.Experiment, P: 1, Verdict: Gone, Why: "skipped: " + n.Skipped})
		default:
			if !sameMachine(o.Environment, n.Environment) {
				c.Warnings = append(c.Warnings, "experiment "+o.Experiment+" ran on another machine: "+o.Environment.Brief()+"; now "+n.Environment.Brief())
			}
			c.Changes = append(c.Changes, changes(o, n, limit)...)
		}
	}
	for _, n := range new.Results {
		if o := old.Result(n.Experiment); n.Finished() && (o == nil || !o.Finished()) {
			c.Changes = append(c.Changes, Change{Experiment: n.Experiment, P: 1, Verdict: New, Why: "the old run has no finished one"})
		}
	}
	return c
}

// failedMetric counts the samples that failed.
var failedMetric = Metric{Name: "failed", Unit: Share, Better: Lower}

func failedValues(samples []Sample) []float64 {
	out := make([]float64, len(samples))
	for i, s := range samples {
		if s.Err != "" {
			out[i] = 1
		}
	}
	return out
}

func changes(o, n *Result, limit float64) []Change {
	var out []Change
	find := func(r *Result, name string) []Sample {
		gs := r.ordered()
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
	for _, g := range o.ordered() {
		now := find(n, g.name)
		for _, name := range names {
			m := n.Metric(name)
			a, b := o.Values(g.samples, name), n.Values(now, name)
			switch {
			case len(a) == 0 && len(b) == 0:
			case len(a) == 0:
				add(Change{Metric: name, Unit: m.Unit, New: sum(b, m.Unit).Value, P: 1, N: [2]int{0, len(b)}, Verdict: New}, g.name)
			case len(b) == 0 && len(now) > 0:
				add(Change{Metric: name, Unit: m.Unit, Old: sum(a, m.Unit).Value, P: 1, N: [2]int{len(a), 0}, Verdict: Worse, Why: "no sample has it any more: " + now[0].Err}, g.name)
			case len(b) == 0:
				add(Change{Metric: name, Unit: m.Unit, Old: sum(a, m.Unit).Value, P: 1, N: [2]int{len(a), 0}, Verdict: Gone}, g.name)
			default:
				add(change(m, a, b, limit), g.name)
			}
		}
		a, b := failedValues(g.samples), failedValues(now)
		if len(b) > 0 && Mean(a)+Mean(b) > 0 {
			add(change(failedMetric, a, b, limit), g.name)
		}
	}
	for _, g := range n.ordered() {
		if find(o, g.name) == nil {
			add(Change{P: 1, N: [2]int{0, len(g.samples)}, Verdict: New}, g.name)
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

// change compares the values of one metric; there are some on both sides.
func change(m Metric, a, b []float64, limit float64) Change {
	c := Change{
		Metric: m.Name, Unit: m.Unit, Old: sum(a, m.Unit).Value, New: sum(b, m.Unit).Value,
		P: MannWhitney(a, b), N: [2]int{len(a), len(b)}, Verdict: NoChange,
	}
	if m.Exact {
		c.Old, c.New = worst(m, a), worst(m, b)
	}
	c.By = c.New - c.Old
	if m.Unit != Share && c.Old != 0 {
		c.By /= math.Abs(c.Old)
	}
	direction := Changed
	if m.Better != "" && c.By != 0 {
		direction = Worse
		if c.By < 0 == (m.Better == Lower) {
			direction = Improved
		}
	}
	switch {
	case c.By == 0:
	case m.Exact:
		c.Verdict = direction
	case len(a) < fewest || len(b) < fewest:
		c.Why = "too few samples to tell"
	case c.P >= significance:
		c.Why = "chance explains it"
	case math.Abs(c.New-c.Old) < m.Floor:
		c.Why = "too small to matter"
	case math.Abs(c.By) <= limit:
		c.Why = "smaller than the limit"
	default:
		c.Verdict = direction
	}
	return c
}

// Regressions are the changes for the worse.
func (c *Comparison) Regressions() []Change {
	var out []Change
	for _, ch := range c.Changes {
		if ch.Verdict == Worse {
			out = append(out, ch)
		}
	}
	return out
}

// Markdown writes what got worse, better, changed, came and went; noise is
// counted.
func (c *Comparison) Markdown(w io.Writer) error {
	var b bytes.Buffer
	count := map[Verdict]int{}
	for _, ch := range c.Changes {
		count[ch.Verdict]++
	}
	fmt.Fprintf(&b, "# %s against %s\n\n%d worse, %d better, %d changed, %d noise, %d new, %d gone. ", mdText(c.New), mdText(c.Old),
		count[Worse], count[Improved], count[Changed], count[NoChange], count[New], count[Gone])
	fmt.Fprintf(&b, "A change counts when p < %v (Mann-Whitney) and it is larger than %s.\n\n", significance, percent(c.Limit))
	for _, warning := range c.Warnings {
		fmt.Fprintf(&b, "- Beware: %s\n", mdText(warning))
	}
	if len(c.Warnings) > 0 {
		b.WriteString("\n")
	}
	if t := c.table(); len(t.Rows) > 0 {
		mdTable(&b, t)
	}
	if _, err := w.Write(append(bytes.TrimRight(printable(b.Bytes()), "\n"), '\n')); err != nil {
		return fmt.Errorf("write the comparison: %w", err)
	}
	return nil
}

// table of all changes but noise.
func (c *Comparison) table() Table {
	t := Table{Columns: []string{"", "experiment", "samples", "metric", "old", "new", "change", "p", "n", "why"}}
	for _, v := range []Verdict{Worse, Improved, Changed, New, Gone} {
		for _, ch := range c.Changes {
			if ch.Verdict != v {
				continue
			}
			row := []string{string(v), ch.Experiment, ch.Group, ch.Metric, "–", "–", "–", "–", fmt.Sprintf("%d, %d", ch.N[0], ch.N[1]), ch.Why}
			if ch.N[0] > 0 {
				row[4] = withUnit(ch.Old, ch.Unit)
			}
			if ch.N[1] > 0 && ch.Metric != "" {
				row[5] = withUnit(ch.New, ch.Unit)
			}
			if ch.N[0] > 0 && ch.N[1] > 0 {
				row[6], row[7] = byText(ch), number(ch.P)
			}
			t.Rows = append(t.Rows, row)
		}
	}
	return t
}

func byText(c Change) string {
	sign := ""
	if c.By > 0 {
		sign = "+"
	}
	switch {
	case c.Unit == Share:
		return sign + number(100*c.By) + " points"
	case c.Old == 0:
		return sign + withUnit(c.By, c.Unit)
	}
	return sign + percent(c.By)
}
