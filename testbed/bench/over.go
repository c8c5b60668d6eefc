package bench

import (
	"math"
	"slices"
)

// selection is the samples that a plot shows, and those it holds them against.
type selection struct {
	r          *Result
	p          Plot
	kept, base []Sample
}

// selectFor keeps the samples that a plot is about.
func selectFor(r *Result, p Plot) selection {
	s := selection{r: r, p: p}
	for _, g := range r.ordered() {
		for _, sample := range g.samples {
			base, ok := p.Over != "" && sample.Arm == p.Over, true
			for k, v := range p.Where {
				// The base is another arm than those that are shown.
				ok = ok && (place(sample, k) == v || base && k == ByArm)
			}
			switch {
			case ok && base:
				s.base = append(s.base, sample)
			case ok:
				s.kept = append(s.kept, sample)
			}
		}
	}
	return s
}

// unit is that of the values that are drawn.
func (s selection) unit() string {
	if s.p.Over != "" && s.p.Relative {
		return Share
	}
	return s.metric().Unit
}

func (s selection) metric() Metric { return s.r.Metric(metricOf(s.p)) }

// beside are the samples of the base at the same place as some others.
func (s selection) beside(cell []Sample) []Sample {
	var out []Sample
	for _, b := range s.base {
		if !slices.ContainsFunc([]string{s.p.X, s.p.Series}, func(axis string) bool {
			return axis != "" && axis != ByArm && place(b, axis) != place(cell[0], axis)
		}) {
			out = append(out, b)
		}
	}
	return out
}

// figure sums the samples of one place and series up: their metric, or by how
// much it is above that of the base. There is none without values on both sides.
// beyond is the difference in the metric's unit when the figure is relative.
func (s selection) figure(cell []Sample) (f Figure, beyond string, ok bool) {
	metric := metricOf(s.p)
	values := s.r.Values(cell, metric)
	if len(values) == 0 {
		return f, "", false
	}
	if s.p.Over == "" {
		return sum(values, s.metric().Unit), "", true
	}
	base := s.r.Values(s.beside(cell), metric)
	if len(base) == 0 || s.metric().Unit == Share || s.p.Relative && Median(base) <= 0 {
		return f, "", false
	}
	f = Figure{Unit: s.unit(), N: len(values), Value: Median(values) - Median(base)}
	if !s.p.Relative {
		f.Interval = DifferenceInterval(values, base)
		return f, "", true
	}
	in := RatioInterval(values, base)
	beyond = withUnit(f.Value, s.metric().Unit)
	f.Value, f.Interval = f.Value/Median(base), Interval{in.Low - 1, in.High - 1, in.Range}
	return f, beyond, true
}

// widest is the value at the full width of bars. That of shares is 100 % where a
// share is to be high or is so: a recall of 20 % fills no track. Others, as of
// harmless commands that are denied, would not be seen there.
func (s selection) widest(all []Figure) float64 {
	top, high := 0.0, false
	for _, f := range all {
		top = max(top, f.Value, finiteOr(f.High, 0))
		high = high || f.Value >= 0.5
	}
	switch {
	case s.unit() != Share:
		return top
	case s.p.Over != "":
		return roundUp(top)
	case high || s.metric().Better == Higher:
		return 1
	}
	return min(1, roundUp(top))
}

// roundUp is the round number that is not smaller.
func roundUp(v float64) float64 {
	if v <= 0 {
		return 0
	}
	step := niceStep(v / 4)
	return step * math.Ceil(v/step-1e-9) // what is round already stays, whatever is lost in computing
}
