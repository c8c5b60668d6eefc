package bench

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// stepRest is the time of samples that is in none of their steps.
const stepRest = "in no step"

// leastRest is the part of the time from which on it is told that steps lack it.
const leastRest = 0.01

// profileOf is where the time of samples went: the median of each step, and of
// what is in none. There is none of samples without steps.
func profileOf(samples []Sample) *StepTimes {
	var kept []Sample
	var rest, all []float64
	for _, s := range samples {
		if s.Err != "" || len(s.Steps) == 0 {
			continue
		}
		kept = append(kept, s)
		if total, ok := s.Metrics[MetricSeconds]; ok {
			left := total
			for _, v := range s.Steps {
				left -= v
			}
			rest, all = append(rest, left), append(all, total)
		}
	}
	if len(kept) == 0 {
		return nil
	}
	// Samples that a target is about are one thing, whatever tells them apart.
	names := groups(kept, Sample.Group)
	p := stepTimes([]group{{names[0].name, kept}})[0]
	if len(names) > 1 {
		p.Group = fmt.Sprintf("%s and %d more", p.Group, len(names)-1)
	}
	if left := Median(rest); left > leastRest*Median(all) {
		p.Steps[stepRest] = left
	}
	return &p
}

// Text is the profile in a line: the longest step first, with its part of all.
func (t StepTimes) Text() string {
	names, sum := stepNames([]StepTimes{t}), 0.0
	for _, v := range t.Steps {
		sum += max(0, v)
	}
	slices.SortStableFunc(names, func(a, b string) int { return cmp.Compare(t.Steps[b], t.Steps[a]) })
	var texts []string
	for _, name := range names {
		text := name + " " + seconds(t.Steps[name])
		if v := t.Steps[name]; v > 0 {
			text += fmt.Sprintf(" (%s)", percent(roundTo(v/sum, 1e-3)))
		}
		texts = append(texts, text)
	}
	return fmt.Sprintf("medians of the steps of %s: %s", t.Group, strings.Join(texts, ", "))
}

// missedBy says what explains that a target is missed.
func (t *Target) missedBy(r *Result, about []Sample) {
	t.Profile = profileOf(about)
	var texts []string
	if said := r.Profiles[t.Name]; said != "" {
		texts = append(texts, said)
	}
	if t.Profile != nil {
		texts = append(texts, t.Profile.Text())
	}
	if t.Why = strings.Join(texts, "; "); t.Why == "" {
		t.Why = "not known: the experiment says nothing of it, and its samples have no steps"
	}
}

// missedTable lists the targets that are missed or undecided, with what explains it.
func (d *Document) missedTable() Table {
	t := Table{Title: "Targets that are missed or undecided, and why", Columns: []string{"what", "target", "this run", "why"}}
	for _, g := range d.Targets {
		if g.Why != "" {
			t.Rows = append(t.Rows, []string{g.Name, g.Target, g.Value, g.Why})
		}
	}
	return t
}
