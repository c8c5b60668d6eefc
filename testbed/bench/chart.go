package bench

import (
	"cmp"
	"math"
	"slices"
	"strconv"
)

// chart is a plot with its numbers, ready to be drawn. Bars and steps are rows of
// boxes whose widths are percentages, so that the page's own text serves at every
// width; lines are an SVG.
type chart struct {
	Kind   PlotKind
	Title  string
	Note   string
	Scale  string // what lengths, lines and bands stand for
	Legend []string
	Hollow string // what hollow points are; "" without one
	Rows   []chartRow
	Curve  *curve
}

// chartRow is one bar, or the heading of those below it.
type chartRow struct {
	Label string
	Head  bool
	Parts []part
	// Low and High are the ends of the interval; both 0 without one.
	Low, High float64
	Text      string
}

// part is a box of a row: where it begins and ends, in per cent of the width.
type part struct {
	Series      int // position in the legend, which is its colour
	Left, Width float64
	Title       string
}

// point and line are what a curve is made of. A point that is open is of a measurement
// that is not whole or too little to say.
type point struct {
	x, y, low, high float64
	open            bool
}

// openText is what open points are.
const openText = "partial or undecided"

type line struct {
	name   string
	points []point
}

// value is the place of samples along an axis: their arm, a label or a metric.
func place(s Sample, axis string) string {
	if axis == "" || axis == ByArm {
		return s.Arm
	}
	if v, ok := s.Labels[axis]; ok {
		return v
	}
	if v, ok := s.Metrics[axis]; ok {
		return strconv.FormatFloat(v, 'g', -1, 64)
	}
	return ""
}

// draw makes a plot of a result. There is none when no sample has what it shows.
func draw(r *Result, p Plot) (chart, bool) {
	sel := selectFor(r, p)
	c := chart{Kind: p.Kind, Title: p.Title, Note: p.Note}
	switch p.Kind {
	case Steps:
		c.steps(sel.kept, p)
	case Lines:
		c.lines(sel)
	default:
		c.bars(sel)
	}
	return c, len(c.Rows) > 0 || c.Curve != nil
}

func metricOf(p Plot) string { return cmp.Or(p.Metric, MetricSeconds) }

// bar is one value of a plot, where it stands.
type bar struct {
	label, series string
	f             Figure
	beyond        string
}

// bars are one value with its interval per place and series.
func (c *chart) bars(sel selection) {
	p, unit := sel.p, sel.unit()
	var all []bar
	for _, x := range groups(sel.kept, func(s Sample) string { return place(s, p.X) }) {
		for _, y := range groups(x.samples, func(s Sample) string {
			if p.Series == "" {
				return ""
			}
			return place(s, p.Series)
		}) {
			if f, beyond, ok := sel.figure(y.samples); ok {
				all = append(all, bar{x.name, y.name, f, beyond})
			}
		}
	}
	figures, bottom := make([]Figure, len(all)), math.Inf(1)
	for i, b := range all {
		figures[i] = b.f
		if b.f.Value > 0 {
			bottom = min(bottom, b.f.Value)
		}
	}
	top := sel.widest(figures)
	scale := scaleOf(bottom, top, p.Log)
	if p.Series == ByArm {
		// The order of the arms, not that of the first place, gives the colours.
		for _, arm := range sel.r.arms() {
			if slices.ContainsFunc(all, func(b bar) bool { return b.series == arm }) {
				c.Legend = append(c.Legend, arm)
			}
		}
	}
	intervals := c.barRows(all, p, unit, scale)
	c.Scale = "full width: " + withUnit(top, unit)
	switch {
	case p.Over != "" && top <= 0:
		c.Scale = "nothing is above the median of " + p.Over
	case p.Over != "":
		c.Scale += " above the median of " + p.Over
	}
	if p.Log {
		c.Scale += ", logarithmic"
	}
	if intervals {
		c.Scale += "; the thin lines are 95 % intervals, of fewer than six values ranges"
	}
}

// barRows adds the rows of bars, and says whether there are intervals among them.
func (c *chart) barRows(all []bar, p Plot, unit string, scale func(float64) float64) (intervals bool) {
	head := ""
	for _, b := range all {
		if p.Series != "" && b.label != head {
			head = b.label
			c.Rows = append(c.Rows, chartRow{Label: head, Head: true})
		}
		row := chartRow{Label: b.label, Text: withUnit(b.f.Value, unit)}
		k := 0
		if p.Series != "" {
			row.Label = b.series
			if k = slices.Index(c.Legend, b.series); k < 0 {
				k = len(c.Legend)
				c.Legend = append(c.Legend, b.series)
			}
		}
		row.Parts = []part{{Series: k, Width: scale(b.f.Value), Title: row.Text}}
		if finite(b.f.Low) && finite(b.f.High) && b.f.High > b.f.Low {
			row.Low, row.High, intervals = scale(b.f.Low), scale(b.f.High), true
			row.Text += b.f.Interval.text(func(v float64) string { return withUnit(v, unit) })
		}
		if b.beyond != "" {
			row.Text += ", " + b.beyond
		}
		c.Rows = append(c.Rows, row)
	}
	return intervals
}

func finiteOr(v, other float64) float64 {
	if finite(v) {
		return v
	}
	return other
}

// scaleOf maps values to per cent of the width.
func scaleOf(bottom, top float64, log bool) func(float64) float64 {
	return func(v float64) float64 {
		if top <= 0 || v <= 0 || !finite(v) {
			return 0
		}
		if log && bottom > 0 && top > bottom {
			// One decade below the smallest is the left edge.
			// Logarithms are subtracted: a quotient may be no number.
			from := math.Log10(bottom) - 1
			return min(100, max(0, 100*(math.Log10(v)-from)/(math.Log10(top)-from)))
		}
		return min(100, 100*v/top)
	}
}

// steps are the medians of each group's steps, one after the other.
func (c *chart) steps(samples []Sample, p Plot) {
	times := stepTimes(groups(samples, func(s Sample) string { return place(s, p.X) }))
	c.Legend = stepNames(times)
	total := func(t StepTimes) (sum float64) {
		for _, v := range t.Steps {
			sum += max(0, v) // what is below zero has no length
		}
		return sum
	}
	top := 0.0
	for _, t := range times {
		top = max(top, total(t))
	}
	for _, t := range times {
		row, left := chartRow{Label: t.Group, Text: seconds(total(t))}, 0.0
		for k, name := range c.Legend {
			v, ok := t.Steps[name]
			if !ok || v <= 0 {
				continue
			}
			w := 100 * v / top
			row.Parts = append(row.Parts, part{Series: k, Left: left, Width: w, Title: name + " " + seconds(v)})
			left += w
		}
		c.Rows = append(c.Rows, row)
	}
	c.Scale = "full width: " + seconds(top) + ", as the sum of the medians of the steps"
}

// lines are a curve per series over a numeric axis.
func (c *chart) lines(sel selection) {
	p, unit := sel.p, sel.unit()
	var out []line
	for _, g := range groups(sel.kept, func(s Sample) string { return place(s, cmp.Or(p.Series, ByArm)) }) {
		l := line{name: g.name}
		for _, x := range groups(g.samples, func(s Sample) string { return place(s, p.X) }) {
			v, err := strconv.ParseFloat(x.name, 64)
			f, _, ok := sel.figure(x.samples)
			if err != nil || !plausible(v) || !ok {
				continue
			}
			l.points = append(l.points, point{x: v, y: f.Value, low: f.Low, high: f.High})
		}
		slices.SortFunc(l.points, func(a, b point) int { return cmp.Compare(a.x, b.x) })
		if len(l.points) > 1 {
			out = append(out, l)
		}
	}
	if len(out) == 0 {
		return
	}
	for _, l := range out {
		c.Legend = append(c.Legend, l.name)
	}
	c.Curve = newCurve(out, unit, p.Log)
	c.Curve.XName = p.X
	c.Scale = "the bands are 95 % intervals, of fewer than six values ranges"
	if p.Over != "" {
		c.Scale += "; 0 is the median of " + p.Over
	}
}
