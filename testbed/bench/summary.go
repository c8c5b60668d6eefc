package bench

import (
	"cmp"
	"maps"
	"math"
	"slices"
)

// Figure is one metric of one group of samples, summed up.
type Figure struct {
	Arm    string            `json:"arm"`
	Labels map[string]string `json:"labels,omitempty"`
	Metric string            `json:"metric"`
	Unit   string            `json:"unit,omitempty"`
	// N is how many values there are, Failed how many samples failed.
	N      int `json:"n"`
	Failed int `json:"failed,omitempty"`
	// Value is the median, of shares the mean. P95 is the value that 95 % of
	// the samples do not exceed.
	Value float64 `json:"value"`
	P95   float64 `json:"p95"`
	Interval
}

// Group is the name of the figure's samples.
func (f Figure) Group() string { return Sample{Arm: f.Arm, Labels: f.Labels}.Group() }

// sum sums up values. There is at least one.
func sum(values []float64, unit string) Figure {
	f := Figure{Unit: unit, N: len(values), P95: Quantile(values, 0.95)}
	if unit == Share {
		f.Value = Mean(values)
		f.Interval = ShareInterval(f.Value, f.N)
		return f
	}
	f.Value, f.Interval = Median(values), MedianInterval(values)
	return f
}

// group is samples that are repetitions of each other.
type group struct {
	name    string
	samples []Sample
}

// groups in the order in which they first appear.
func groups(samples []Sample, key func(Sample) string) []group {
	var out []group
	at := map[string]int{}
	for _, s := range samples {
		k := key(s)
		i, ok := at[k]
		if !ok {
			i = len(out)
			at[k] = i
			out = append(out, group{name: k})
		}
		out[i].samples = append(out[i].samples, s)
	}
	return out
}

// ordered are the groups of a result by arm and labels, the arms in the order in
// which they first appear and the labels by name: interleaving does not show.
func (r *Result) ordered() []group {
	gs := groups(r.Samples, Sample.Group)
	rank := map[string]int{}
	for _, arm := range r.arms() {
		rank[arm] = len(rank)
	}
	slices.SortStableFunc(gs, func(a, b group) int {
		return cmp.Or(cmp.Compare(rank[a.samples[0].Arm], rank[b.samples[0].Arm]), cmp.Compare(a.name, b.name))
	})
	return gs
}

// arms in a fixed order: the known ones first, from the bare command to the
// widest boundary, then others by name.
func (r *Result) arms() []string {
	seen := map[string]bool{}
	for _, s := range r.Samples {
		seen[s.Arm] = true
	}
	known := []string{ArmBare, ArmSavepoint, ArmNone, ArmWorkspace, ArmDisk, ArmMachine, ArmCopy}
	return slices.SortedFunc(maps.Keys(seen), func(a, b string) int { return byList(known, a, b) })
}

// byList orders by the position in a list, then by name.
func byList(list []string, a, b string) int {
	at := func(s string) int {
		if i := slices.Index(list, s); i >= 0 {
			return i
		}
		return len(list)
	}
	return cmp.Or(cmp.Compare(at(a), at(b)), cmp.Compare(a, b))
}

// metricNames in the order of their description, "seconds" first, then others
// by name.
func (r *Result) metricNames() []string {
	seen := map[string]bool{}
	for _, s := range r.Samples {
		for name := range s.Metrics {
			seen[name] = true
		}
	}
	list := []string{MetricSeconds}
	for _, m := range r.Metrics {
		list = append(list, m.Name)
	}
	return slices.SortedFunc(maps.Keys(seen), func(a, b string) int { return byList(list, a, b) })
}

// Figures sums up every metric of every group. A group of which every sample
// failed has a figure without values.
func (r *Result) Figures() []Figure {
	var out []Figure
	names := r.metricNames()
	for _, g := range r.ordered() {
		failed, first := 0, g.samples[0]
		for _, s := range g.samples {
			if s.Err != "" {
				failed++
			}
		}
		any := false
		for _, name := range names {
			values := r.Values(g.samples, name)
			if len(values) == 0 {
				continue
			}
			any = true
			f := sum(values, r.Metric(name).Unit)
			f.Arm, f.Labels, f.Metric, f.Failed = first.Arm, first.Labels, name, failed
			out = append(out, f)
		}
		if !any {
			out = append(out, Figure{Arm: first.Arm, Labels: first.Labels, Failed: failed})
		}
	}
	return out
}

// StepTimes are the medians of the steps of samples that did not fail.
type StepTimes struct {
	Group string             `json:"group"`
	Steps map[string]float64 `json:"steps"`
	// OverBare is what the median of their seconds is above that of the bare command
	// beside them; nil where there is none.
	OverBare *Figure `json:"over_bare,omitempty"`
}

// Names of the steps of some times, in the order of a transaction.
func stepNames(times []StepTimes) []string {
	seen := map[string]bool{}
	for _, t := range times {
		for name := range t.Steps {
			seen[name] = true
		}
	}
	return slices.SortedFunc(maps.Keys(seen), func(a, b string) int { return byList(stepOrder, a, b) })
}

// StepTimes are where the time of each group went.
func (r *Result) StepTimes() []StepTimes {
	gs := r.ordered()
	out := stepTimes(gs)
	for i := range out {
		at := slices.IndexFunc(gs, func(g group) bool { return g.name == out[i].Group })
		out[i].OverBare = r.overBare(gs[at].samples)
	}
	return out
}

func stepTimes(gs []group) []StepTimes {
	var out []StepTimes
	for _, g := range gs {
		values := map[string][]float64{}
		for _, s := range g.samples {
			for name, v := range s.Steps {
				if s.Err == "" {
					values[name] = append(values[name], v)
				}
			}
		}
		if len(values) == 0 {
			continue
		}
		t := StepTimes{Group: g.name, Steps: map[string]float64{}}
		for name, v := range values {
			t.Steps[name] = Median(v)
		}
		out = append(out, t)
	}
	return out
}

// finite reports whether a number can be printed and drawn.
func finite(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) }
