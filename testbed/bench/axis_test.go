package bench

import (
	"strings"
	"testing"
)

// Ticks are round numbers of the unit, also on a logarithmic axis of less than a
// decade or two and of bytes, which are counted by 1,024.
func TestAxisTicks(t *testing.T) {
	for _, tt := range []struct {
		name   string
		values []float64
		log    bool
		unit   string
		want   string
	}{
		{"decades", []float64{1, 10, 1000}, true, "", "1|10|100|1,000"},
		{"less than a decade", []float64{1407, 11812}, true, PerSec, "2,000/s|5,000/s|10,000/s"},
		{"one decade", []float64{10, 100}, true, "", "10|20|50|100"},
		{"no round number within", []float64{3.1, 3.3}, true, Seconds, "3.1 s|3.3 s"},
		{"one value", []float64{5, 5}, true, PerSec, "5/s"},
		{"bytes", []float64{5e6, 48e6}, false, Bytes, "0 B|20 MiB|40 MiB|60 MiB"},
		{"few bytes", []float64{300, 900}, false, Bytes, "0 B|500 B|1,000 B"},
		{"times", []float64{108e-6}, false, Seconds, "0 s|50 µs|100 µs|150 µs"},
		{"below zero", []float64{-0.0105, 0.012}, false, Share, "-1 %|0 %|1 %|2 %"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ax := axisOf(tt.values, tt.log, tt.unit, 0, 100)
			var texts []string
			for i, tick := range ax.ticks {
				texts = append(texts, tick.Text)
				if tick.At < -1e-9 || tick.At > 100+1e-9 || i > 0 && tick.At <= ax.ticks[i-1].At {
					t.Errorf("tick %q is at %v, after %v", tick.Text, tick.At, ax.ticks[:i])
				}
			}
			if got := strings.Join(texts, "|"); got != tt.want {
				t.Errorf("ticks %s, want %s", got, tt.want)
			}
		})
	}
}

// An arm has its colour by the order of the arms, whatever a plot begins with,
// and a chart speaks of intervals when it has some.
func TestBarsLegend(t *testing.T) {
	run := NewRun(Experiment{Name: "x"}, Plan{})
	add := func(arm, workload string, seconds ...float64) {
		for _, v := range seconds {
			run.Add(Sample{Arm: arm, Labels: map[string]string{LabelWorkload: workload}, Metrics: map[string]float64{MetricSeconds: v}, Steps: map[string]float64{StepExecute: v}})
		}
	}
	add(ArmCopy, "a", 3, 4, 5, 6)
	add(ArmBare, "a", 1, 2, 3, 4)
	add(ArmNone, "b", 1, 2, 3, 4)
	r := run.Result()
	c, _ := draw(r, Plot{Kind: Bars, X: LabelWorkload, Series: ByArm})
	if got := strings.Join(c.Legend, " "); got != "bare none copy" || !strings.Contains(c.Scale, "thin lines") {
		t.Errorf("legend %q, scale %q", got, c.Scale)
	}
	if c, _ := draw(r, Plot{Kind: Steps}); c.Scale != "full width: 4.5 s, as the sum of the medians of the steps" {
		t.Errorf("steps have no intervals, and the scale is %q", c.Scale)
	}
}

// A trend shows the figure to reach: within the drawing, with its text beside it
// and not over what is measured.
func TestTrendAim(t *testing.T) {
	const room = 14
	for _, tt := range []struct {
		name   string
		values []float64
		limit  *float64
		unit   string
		text   string
		above  bool // the text stands above its line
	}{
		{"reached, at most", []float64{0.1, 0.12}, ref(0.35), Ratio, "target 0.35", true},
		{"missed, at most", []float64{0.5, 0.6}, ref(0.35), Ratio, "target 0.35", false},
		{"reached, at least", []float64{950, 900}, ref(500), PerSec, "target 500/s", false},
		{"at the top", []float64{0.0001, 0.0001}, ref(0.001), Seconds, "target 1 ms", false},
		{"at the bottom", []float64{0, 0}, ref(0), Count, "target 0", true},
		{"none, of an older run", []float64{1, 2}, nil, Count, "", false},
	} {
		var history []Past
		for _, v := range tt.values {
			history = append(history, Past{Targets: []Target{{Name: "x", Number: &v, Unit: tt.unit, Limit: tt.limit}}})
		}
		c := trend(history)[0].Curve
		if tt.limit == nil {
			if len(c.Aims) > 0 {
				t.Errorf("%s: %+v", tt.name, c.Aims)
			}
			continue
		}
		a := c.Aims[0]
		if a.Text != tt.text || (a.TextAt < a.At) != tt.above || a.At < drawing.Top || a.At > drawing.Bottom || a.TextAt < drawing.Top || a.TextAt > a.At+room {
			t.Errorf("%s: %+v, above %v", tt.name, a, tt.above)
		}
	}
}

func ref(v float64) *float64 { return &v }
