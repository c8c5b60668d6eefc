package bench

import (
	"cmp"
	"fmt"
	"math"
	"strings"
)

// frame is the drawing's size and the edges of what is drawn in it, in units of
// its own. What is left and below is for texts.
type frame struct{ Wide, High, Left, Right, Top, Bottom float64 }

// drawing is as wide as a plot on a telephone, so that its text is as large there
// as on a desk, where three plots stand beside each other.
var drawing = frame{Wide: 330, High: 236, Left: 70, Right: 304, Top: 10, Bottom: 196}

// Middle is where the name of the axis stands.
func (f frame) Middle() float64 { return (f.Left + f.Right) / 2 }

// curve is lines over a numeric axis, as an SVG.
type curve struct {
	XName  string
	Lines  []curveLine
	XTicks []tick
	YTicks []tick
	Aims   []aim
}

// aim is a value to reach, as a line across the drawing, and where its text is.
type aim struct {
	At, TextAt float64
	Text       string
}

type curveLine struct {
	Series int
	Path   string    // of the medians
	Band   string    // of the intervals; "" without one
	Dots   []curveAt // of the points
}

type curveAt struct {
	X, Y  float64
	Title string
	// Open is a point that is drawn hollow: no line goes through it.
	Open bool
}

type tick struct {
	At   float64
	Text string
}

// newCurve draws lines, and the values to reach beside them.
func newCurve(lines []line, unit string, log bool, aims ...float64) *curve {
	var xs, ys []float64
	for _, l := range lines {
		for _, p := range l.points {
			xs = append(xs, p.x)
			ys = append(ys, p.y, finiteOr(p.low, p.y), finiteOr(p.high, p.y))
		}
	}
	ys = append(ys, aims...)
	x := axisOf(xs, spansDecades(xs), "", drawing.Left, drawing.Right)
	y := axisOf(ys, log && least(ys) > 0, unit, drawing.Bottom, drawing.Top)
	c := &curve{XTicks: x.ticks, YTicks: y.ticks}
	for i, l := range lines {
		out := curveLine{Series: i}
		var path, up, down []string
		for _, p := range l.points {
			at := curveAt{X: x.at(p.x), Y: y.at(p.y), Title: fmt.Sprintf("%s at %s: %s", l.name, number(p.x), withUnit(p.y, unit))}
			if p.open {
				at.Open, at.Title = true, at.Title+", "+openText
				out.Dots = append(out.Dots, at)
				continue
			}
			out.Dots = append(out.Dots, at)
			path = append(path, fmt.Sprintf("%.1f,%.1f", at.X, at.Y))
			up = append(up, fmt.Sprintf("%.1f,%.1f", at.X, y.at(finiteOr(p.high, p.y))))
			down = append([]string{fmt.Sprintf("%.1f,%.1f", at.X, y.at(finiteOr(p.low, p.y)))}, down...)
		}
		out.Path, out.Band = strings.Join(path, " "), strings.Join(append(up, down...), " ")
		c.Lines = append(c.Lines, out)
	}
	for _, v := range aims {
		c.aim(y.at(v), "target "+withUnit(v, unit))
	}
	return c
}

// aim adds a value to reach. Its text is on the side of the line where there are
// fewer points, if there is room.
func (c *curve) aim(at float64, text string) {
	const above, below = 5, 14
	balance := 0
	for _, l := range c.Lines {
		for _, dot := range l.Dots {
			balance += cmp.Compare(at, dot.Y) // what is above has the smaller Y
		}
	}
	a := aim{At: at, TextAt: at - above, Text: text}
	if at-above-below < drawing.Top || balance > 0 && at+below < drawing.Bottom {
		a.TextAt = at + below
	}
	c.Aims = append(c.Aims, a)
}

func least(v []float64) float64 {
	m := math.Inf(1)
	for _, x := range v {
		m = min(m, x)
	}
	return m
}

// spansDecades says that an axis is better logarithmic: 1, 10, 100, 1,000.
func spansDecades(v []float64) bool {
	lo, hi := least(v), 0.0
	for _, x := range v {
		hi = max(hi, x)
	}
	return lo > 0 && hi/lo >= 100
}

// axis maps values to the drawing.
type axis struct {
	at    func(float64) float64
	ticks []tick
}

// axisOf is an axis over values from one place of the drawing to another. Its
// ticks are round numbers of the unit.
func axisOf(values []float64, log bool, unit string, from, to float64) axis {
	text := func(v float64) string { return withUnit(v, unit) }
	lo, hi := least(values), math.Inf(-1)
	for _, v := range values {
		hi = max(hi, v)
	}
	if log {
		a, b := math.Log10(lo), math.Log10(hi)
		if a == b {
			b++
		}
		at := func(v float64) float64 { return from + (to-from)*(math.Log10(max(v, lo))-a)/(b-a) }
		ax := axis{at: at}
		steps := []float64{1}
		if b-a < 2 {
			steps = []float64{1, 2, 5}
		}
		for e := math.Floor(a); e <= b; e++ {
			for _, m := range steps {
				if v := m * math.Pow(10, e); v >= lo*(1-1e-9) && v <= hi*(1+1e-9) {
					ax.ticks = append(ax.ticks, tick{at(v), text(v)})
				}
			}
		}
		switch {
		case lo == hi:
			ax.ticks = []tick{{at(lo), text(lo)}}
		case len(ax.ticks) < 2:
			ax.ticks = []tick{{at(lo), text(lo)}, {at(hi), text(hi)}}
		}
		return ax
	}
	lo = min(lo, 0)
	size := 1.0
	for unit == Bytes && hi/size >= 1024 {
		size *= 1024
	}
	step := niceStep((hi-lo)/size/4) * size
	hi = math.Ceil(hi/step) * step
	if hi <= lo {
		hi = lo + step
	}
	ax := axis{at: func(v float64) float64 { return from + (to-from)*(v-lo)/(hi-lo) }}
	for k := math.Ceil(lo/step - 1e-6); k*step <= hi+step/1e6; k++ { // whole steps: zero is exact
		ax.ticks = append(ax.ticks, tick{ax.at(k * step), text(k * step)})
	}
	return ax
}

// niceStep is the step of 1, 2 or 5 times a power of ten that is not smaller.
func niceStep(v float64) float64 {
	if v <= 0 || !finite(v) {
		return 1
	}
	p := math.Pow(10, math.Floor(math.Log10(v)))
	for _, m := range []float64{1, 2, 5} {
		if m*p >= v {
			return m * p
		}
	}
	return 10 * p
}
