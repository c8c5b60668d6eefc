package bench

import (
	"math"
	"strings"
	"testing"
)

// turns are whole turns of two boundaries: 2 s of the model and little beside.
func turns() *Result {
	run := NewRun(Experiment{Name: "x", Metrics: []Metric{{Name: "caught", Unit: Share}}}, Plan{})
	for _, t := range []struct {
		arm, boundary, think string
		seconds              []float64
	}{
		{ArmBare, "workspace", "2", []float64{2.0, 2.0, 2.0}}, {ArmSavepoint, "workspace", "2", []float64{2.01, 2.01, 2.01}}, {"on demand", "workspace", "2", []float64{2.08, 2.1, 2.12}},
		{ArmBare, "machine", "2", []float64{4.0, 4.0, 4.0}}, {ArmSavepoint, "machine", "2", []float64{3.9, 3.9, 3.9}},
		{ArmBare, "workspace", "8", []float64{8.0, 8.0, 8.0}}, {ArmSavepoint, "workspace", "8", []float64{8.01, 8.01, 8.01}},
		{ArmSavepoint, "disk", "2", []float64{2.5}}, // of which there is no bare turn
	} {
		for _, v := range t.seconds {
			run.Add(Sample{Arm: t.arm, Labels: tags{"boundary": t.boundary, LabelThink: t.think}, Metrics: nums{MetricSeconds: v, "caught": 1}})
		}
	}
	return run.Result()
}

// What is on top of the base is held against the base of the same place, the base
// has no bar of its own, and neither has what there is no base for.
func TestOverBars(t *testing.T) {
	p := Plot{Kind: Bars, X: "boundary", Series: ByArm, Over: ArmBare, Relative: true, Where: tags{LabelThink: "2"}}
	rows := func(p Plot) (out []string) {
		c, _ := draw(turns(), p)
		for _, r := range c.Rows {
			if !r.Head {
				out = append(out, r.Label+": "+r.Text)
			}
		}
		return append(out, c.Scale, strings.Join(c.Legend, "|"))
	}
	for _, tt := range []struct {
		name string
		of   func(*Plot)
		want string
	}{
		{"a part of it", func(*Plot) {}, "savepoint: -2.5 %, -100 ms; savepoint: 0.5 %, 10 ms; on demand: 5 % (range 4 % to 6 %), 100 ms; full width: 6 % above the median of bare; the thin lines are 95 % intervals, of fewer than six values ranges; savepoint|on demand"},
		{"seconds", func(p *Plot) { p.Relative = false }, "savepoint: -100 ms; savepoint: 10 ms; on demand: 100 ms (range 80 ms to 120 ms); full width: 120 ms above the median of bare; the thin lines are 95 % intervals, of fewer than six values ranges; savepoint|on demand"},
		{"one arm alone", func(p *Plot) { p.Where[ByArm] = "on demand" }, "on demand: 5 % (range 4 % to 6 %), 100 ms; full width: 6 % above the median of bare; the thin lines are 95 % intervals, of fewer than six values ranges; on demand"},
		{"nothing above", func(p *Plot) { p.Where["boundary"] = "machine" }, "savepoint: -2.5 %, -100 ms; nothing is above the median of bare; savepoint"},
		{"by arm", func(p *Plot) { p.X, p.Series, p.Where["boundary"] = ByArm, "", "workspace" }, "savepoint: 0.5 %, 10 ms; on demand: 5 % (range 4 % to 6 %), 100 ms; full width: 6 % above the median of bare; the thin lines are 95 % intervals, of fewer than six values ranges; "},
	} {
		q := p
		q.Where = tags{LabelThink: "2"}
		tt.of(&q)
		if got := strings.Join(rows(q), "; "); got != tt.want {
			t.Errorf("%s:\n%s, want\n%s", tt.name, got, tt.want)
		}
	}
	for _, q := range []Plot{{Kind: Bars, Over: "nobody"}, {Kind: Bars, Over: ArmBare, Metric: "caught"}} {
		if c, ok := draw(turns(), q); ok {
			t.Errorf("%+v: %+v", q, c.Rows)
		}
	}
}

func TestOverLines(t *testing.T) {
	c, ok := draw(turns(), Plot{Kind: Lines, X: LabelThink, Over: ArmBare, Where: tags{"boundary": "workspace"}})
	if !ok || strings.Join(c.Legend, "|") != ArmSavepoint || !strings.Contains(c.Scale, "0 is the median of bare") {
		t.Fatalf("%+v", c)
	}
	if !strings.Contains(c.Scale, "of fewer than six values ranges") {
		t.Errorf("scale %q: bands of few values are no intervals", c.Scale)
	}
	var titles []string
	for _, d := range c.Curve.Lines[0].Dots {
		titles = append(titles, d.Title)
	}
	if got := strings.Join(titles, "; "); got != "savepoint at 2: 10 ms; savepoint at 8: 10 ms" {
		t.Error(got)
	}
}

func TestDifferenceInterval(t *testing.T) {
	if in := DifferenceInterval([]float64{5, 5, 5}, []float64{2, 2}); in != (Interval{3, 3, true}) {
		t.Errorf("of values that do not differ: %v", in)
	}
	if in := DifferenceInterval([]float64{4, 5, 6}, []float64{1, 2, 3}); in.Low != 1 || in.High != 5 {
		t.Errorf("%v, want 1 to 5", in)
	}
	if in := DifferenceInterval(nil, []float64{1}); !math.IsNaN(in.Low) || !math.IsNaN(in.High) {
		t.Errorf("of none: %v", in)
	}
}

// Small shares are drawn so that they can be read, and a recall so that what it
// lacks can be seen.
func TestShareWidth(t *testing.T) {
	for _, tt := range []struct {
		name   string
		better Better
		hits   int // of 400
		full   string
		width  float64
	}{
		{"few denials", Lower, 2, "full width: 2 %", 25},
		{"no denial", Lower, 0, "full width: 1 %", 0},
		{"a recall", Higher, 392, "full width: 100 %", 98},
		{"a poor recall", Higher, 20, "full width: 100 %", 5},
		{"nearly all, of no direction", "", 392, "full width: 100 %", 98},
		{"a third", Lower, 130, "full width: 40 %", 81.25},
	} {
		run := NewRun(Experiment{Name: "x", Metrics: []Metric{{Name: "s", Unit: Share, Better: tt.better}}}, Plan{})
		for i := range 400 {
			v := 0.0
			if i < tt.hits {
				v = 1
			}
			run.Add(Sample{Arm: "a", Metrics: nums{"s": v}})
		}
		c, _ := draw(run.Result(), Plot{Kind: Bars, Metric: "s"})
		if w := c.Rows[0].Parts[0].Width; !strings.HasPrefix(c.Scale, tt.full+";") || math.Abs(w-tt.width) > 1e-6 || c.Rows[0].High > 100 {
			t.Errorf("%s: %q and a width of %v, want %q and %v", tt.name, c.Scale, w, tt.full, tt.width)
		}
	}
}
