package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func runOf(t *testing.T, id string, exps ...Experiment) *Report {
	t.Helper()
	rep := made(t, QuickPlan(), exps...)
	rep.Info.ID = id
	return rep
}

func values(arm, metric string, v ...float64) []Sample {
	var out []Sample
	for i, x := range v {
		out = append(out, Sample{Arm: arm, Rep: i, Metrics: nums{metric: x}})
	}
	return out
}

func repeat(v float64, n int) []float64 {
	out := make([]float64, n)
	for i := range out {
		out[i] = v
	}
	return out
}

func TestCompare(t *testing.T) {
	metrics := []Metric{
		{Name: "rate", Unit: PerSec, Better: Higher}, {Name: "exact", Unit: Share, Better: Higher, Exact: true}, {Name: "leaks", Unit: Count, Better: Lower, Exact: true},
		{Name: "success", Unit: Share, Better: Higher}, {Name: "size", Unit: Bytes},
		{Name: "decision", Unit: Seconds, Better: Lower, Floor: 200e-6},
	}
	tight, up := []float64{1, 1.01, 1.02, 1.03, 1.04}, []float64{1.3, 1.31, 1.32, 1.33, 1.34}
	little := []float64{1.05, 1.06, 1.07, 1.08, 1.09}
	for _, tt := range []struct {
		name     string
		metric   string
		old, new []float64
		want     Verdict
		why      string
	}{
		{"slower", MetricSeconds, tight, up, Worse, ""},
		{"faster", MetricSeconds, up, tight, Improved, ""},
		{"more a second", "rate", tight, up, Improved, ""},
		{"less a second", "rate", up, tight, Worse, ""},
		{"larger, which is neither", "size", tight, up, Changed, ""},
		{"the same", MetricSeconds, tight, tight, NoChange, ""},
		// Surely different, and too little to matter.
		{"below the limit", MetricSeconds, tight, little, NoChange, "smaller than the limit"},
		// Twice the median, and chance explains it.
		{"spread", MetricSeconds, []float64{1, 2, 3, 8, 9}, []float64{1, 2, 6, 7, 9}, NoChange, "chance explains it"},
		// Three times as long, of what nobody waits for.
		{"below the floor", "decision", []float64{20e-6, 21e-6, 22e-6, 23e-6, 24e-6}, []float64{60e-6, 61e-6, 62e-6, 63e-6, 64e-6}, NoChange, "too small to matter"},
		{"above the floor", "decision", []float64{20e-6, 21e-6, 22e-6, 23e-6, 24e-6}, []float64{360e-6, 361e-6, 362e-6, 363e-6, 364e-6}, Worse, ""},
		{"three each", MetricSeconds, tight[:3], up[:3], NoChange, "too few samples"},
		{"one leak", "leaks", []float64{0, 0, 0}, []float64{0, 0, 1}, Worse, ""},
		{"no leak any more", "leaks", []float64{0, 1}, []float64{0, 0}, Improved, ""},
		{"one of many not restored", "exact", repeat(1, 40), append(repeat(1, 39), 0), Worse, ""},
		{"one of many fails", "success", repeat(1, 40), append(repeat(1, 39), 0), NoChange, "chance explains it"},
		{"half of many fail", "success", repeat(1, 40), append(repeat(1, 20), repeat(0, 20)...), Worse, ""},
		{"gone", MetricSeconds, tight, nil, Gone, ""},
		{"new", MetricSeconds, nil, tight, New, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			exp := func(v []float64) Experiment {
				return filled("x", metrics, append(values("a", tt.metric, v...), Sample{Arm: "other", Metrics: nums{MetricSeconds: 1}})...)
			}
			c := Compare(runOf(t, "old", exp(tt.old)), runOf(t, "new", exp(tt.new)), 0.1)
			var got []Change
			for _, ch := range c.Changes {
				if ch.Group == "a" {
					got = append(got, ch)
				}
			}
			if len(got) != 1 || got[0].Verdict != tt.want || !strings.Contains(got[0].Why, tt.why) {
				t.Fatalf("%+v, want %s because %q", got, tt.want, tt.why)
			}
			if bad := len(c.Regressions()); bad != map[bool]int{true: 1}[tt.want == Worse || tt.want == Gone] {
				t.Errorf("%d regressions", bad)
			}
			if len(c.Warnings) != 0 {
				t.Errorf("warnings %q", c.Warnings)
			}
		})
	}
}

func TestCompareFailures(t *testing.T) {
	good := filled("x", nil, values("a", MetricSeconds, 1, 1, 1, 1, 1)...)
	dead := filled("x", nil)
	dead.Run = func(_ context.Context, r *Run) error {
		for range 5 {
			r.Add(Sample{Arm: "a", Err: "no answer"})
		}
		return nil
	}
	broken, skipped := filled("x", nil), filled("x", nil)
	broken.Run = func(context.Context, *Run) error { return errors.New("no guest") }
	skipped.Run = func(context.Context, *Run) error { return Skip("no QEMU") }
	for name, tt := range map[string]struct {
		old, new Experiment
		want     Verdict
		why      string
		worse    int
	}{
		"every sample fails": {good, dead, Worse, "no answer", 2}, // its time is gone, and more fail
		"it fails":           {good, broken, Worse, "no guest", 1},
		"it is skipped":      {good, skipped, Gone, "no QEMU", 1},
		"it was mended":      {broken, good, New, "no finished one", 0},
		"never":              {broken, broken, "", "", 0},
	} {
		c := Compare(runOf(t, "old", tt.old), runOf(t, "new", tt.new), 0.1)
		switch {
		case tt.want == "" && len(c.Changes) > 0, tt.want != "" && len(c.Changes) == 0, len(c.Regressions()) != tt.worse:
			t.Errorf("%s: %+v", name, c.Changes)
		case tt.want != "" && (c.Changes[0].Verdict != tt.want || !strings.Contains(c.Changes[0].Why, tt.why)):
			t.Errorf("%s: %+v", name, c.Changes)
		}
	}
	if c := Compare(runOf(t, "old", good), runOf(t, "new"), 0.1); len(c.Warnings) != 1 || !strings.Contains(c.Warnings[0], "not in the new run") {
		t.Errorf("%+v", c)
	}
}

// What was measured and is no more fails, unless the plan has not got it any more.
func TestCompareGone(t *testing.T) {
	both := filled("x", nil, append(values("a", MetricSeconds, 1, 1, 1, 1), values("b", MetricSeconds, 1, 1, 1, 1)...)...)
	one := filled("x", nil, values("a", MetricSeconds, 1, 1, 1, 1)...)
	y := filled("y", nil, values("a", MetricSeconds, 1)...)
	c := Compare(runOf(t, "old", both), runOf(t, "new", one), 0.1)
	if bad := c.Regressions(); len(bad) != 1 || bad[0].Verdict != Gone || bad[0].Group != "b" || bad[0].N != [2]int{4, 0} {
		t.Errorf("a group: %+v", c.Changes)
	}
	var b bytes.Buffer
	if err := c.Markdown(&b); err != nil || !strings.Contains(b.String(), "| gone | x | b |") {
		t.Errorf("%v:\n%s", err, b.String())
	}
	// Not in the plan: a warning. In it and not made yet, or not to its end: gone.
	old, now := runOf(t, "old", both, y), runOf(t, "new", both)
	if c := Compare(old, now, 0.1); len(c.Regressions()) != 0 || len(c.Warnings) != 1 {
		t.Errorf("another plan: %+v", c)
	}
	now.Info.Experiments = append(now.Info.Experiments, "y")
	if c := Compare(old, now, 0.1); len(c.Regressions()) != 1 || c.Regressions()[0].Why != "the new run has not come to it" {
		t.Errorf("not made yet: %+v", c)
	}
	now = runOf(t, "new", both, y)
	now.Results[1].Partial = true
	if c := Compare(old, now, 0.1); len(c.Regressions()) != 1 || !strings.Contains(c.Regressions()[0].Why, "stopped before its end") {
		t.Errorf("stopped: %+v", c)
	}
}

// One more failed sample is worse, at any number of samples.
func TestCompareFailedSamples(t *testing.T) {
	exp := func(failed int) Experiment {
		s := values("a", MetricSeconds, repeat(1, 40)...)
		for i := range failed {
			s[i].Err = "no answer"
		}
		return filled("x", nil, s...)
	}
	for _, tt := range []struct {
		old, new int
		want     Verdict
	}{{0, 1, Worse}, {1, 2, Worse}, {2, 1, Improved}, {2, 2, NoChange}} {
		c := Compare(runOf(t, "old", exp(tt.old)), runOf(t, "new", exp(tt.new)), 99)
		i := slices.IndexFunc(c.Changes, func(ch Change) bool { return ch.Metric == "failed" })
		if i < 0 || c.Changes[i].Verdict != tt.want {
			t.Errorf("%d, then %d: %+v", tt.old, tt.new, c.Changes)
		}
	}
}

// Of many figures some differ by chance: what would count alone does not among them,
// and what differs beyond that still does.
func TestCompareManyFigures(t *testing.T) {
	exp := func(n int, shift func(i int) float64) Experiment {
		var s []Sample
		for i := range n {
			s = append(s, values(fmt.Sprintf("a%02d", i), MetricSeconds, 1+shift(i), 1.01+shift(i), 1.02+shift(i), 1.03+shift(i), 1.04+shift(i))...)
		}
		return filled("x", nil, s...)
	}
	none := func(int) float64 { return 0 }
	first := func(i int) float64 {
		if i == 0 {
			return 1
		}
		return 0
	}
	for _, tt := range []struct {
		name  string
		n     int
		shift func(int) float64
		worse int
	}{{"one alone", 1, first, 1}, {"one of forty", 40, first, 0}, {"all of forty", 40, func(int) float64 { return 1 }, 40}} {
		c := Compare(runOf(t, "old", exp(tt.n, none)), runOf(t, "new", exp(tt.n, tt.shift)), 0.1)
		if got := len(c.Regressions()); got != tt.worse {
			t.Errorf("%s: %d worse, want %d", tt.name, got, tt.worse)
		}
		if a := c.Changes[0]; tt.worse == 0 && (a.P >= significance || a.Q < significance || a.Why != "chance explains it, in one of 40 figures") {
			t.Errorf("%s: %+v", tt.name, a)
		}
	}
	// Of the tables of Benjamini and Hochberg: p times how many there are by its rank, and never falling.
	got := benjaminiHochberg([]float64{0.04, 0.005, 0.03, 0.9})
	for i, want := range []float64{0.04 * 4 / 3, 0.02, 0.04 * 4 / 3, 0.9} {
		near(t, fmt.Sprintf("q %d", i), got[i], want, 1e-12)
	}
	if got := benjaminiHochberg(nil); len(got) != 0 {
		t.Errorf("of none: %v", got)
	}
}

func TestCompareMarkdown(t *testing.T) {
	old := runOf(t, "night-1", filled("x", nil, values("a", MetricSeconds, 1, 1.01, 1.03, 1.04)...), filled("y", nil, values("b", MetricSeconds, 1, 1, 1, 1)...))
	now := runOf(t, "night-2", filled("x", nil, values("a", MetricSeconds, 2, 2.01, 2.03, 2.04)...), filled("y", nil, values("b", MetricSeconds, 1, 1, 1, 1)...))
	now.Results[0].Environment.Cores, now.Info.Plan = 64, FullPlan()
	c := Compare(old, now, 0.1)
	var b bytes.Buffer
	if err := c.Markdown(&b); err != nil {
		t.Fatal(err)
	}
	want := "# night-2 against night-1\n\n1 worse, 0 better, 0 changed, 1 noise, 0 new, 0 gone. " +
		"A change counts when q < 0.05 (Mann-Whitney's p, corrected by Benjamini-Hochberg over the figures of its experiment) and it is larger than 10 %; " +
		"what is exact, as the share of failed samples, counts at any change. What is gone is as bad as worse.\n\n" +
		"- Beware: the runs have different plans\n- Beware: experiment x ran on another machine: cores: 2, now 64\n\n" +
		"|  | experiment | samples | metric | old | new | change | p | q | n | why |\n| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |\n" +
		"| worse | x | a | seconds | 1.02 s | 2.02 s | +98 % | 0.0286 | 0.0286 | 4, 4 |  |\n"
	if b.String() != want {
		t.Errorf("got:\n%s\nwant:\n%s", b.String(), want)
	}
}

func TestHistory(t *testing.T) {
	path := filepath.Join(t.TempDir(), "history.jsonl")
	if h, err := ReadHistoryFile(path); err != nil || h != nil {
		t.Fatalf("%v, %v", h, err)
	}
	var history []Past
	for night, rate := range []float64{800, 700, 900} {
		rep := made(t, QuickPlan(), filled(ExpScale, []Metric{{Name: MetricTxRate, Unit: PerSec}}, Sample{Arm: "journal", Metrics: nums{MetricTxRate: rate}}, Sample{Arm: "dead", Err: "x"}))
		rep.Info.Started = rep.Info.Started.AddDate(0, 0, night)
		// A run that goes on has one line.
		for range 2 {
			var err error
			if history, err = AppendHistory(path, rep); err != nil {
				t.Fatal(err)
			}
		}
	}
	read, err := ReadHistoryFile(path)
	if err != nil || len(read) != 3 || len(history) != 3 || !read[0].Started.Before(read[2].Started) {
		t.Fatalf("%d lines, %v", len(read), err)
	}
	charts := trend(read)
	if len(charts) != 1 || charts[0].Title != "journal" || len(charts[0].Curve.Lines[0].Dots) != 3 {
		t.Errorf("%+v", charts)
	}
	// Another machine and another plan are another trend.
	read[0].Environment.Cores, read[1].Plan = 64, FullPlan()
	if charts := trend(read); charts != nil {
		t.Errorf("%+v", charts)
	}
	raw, err := os.ReadFile(path)
	if err != nil || strings.Count(string(raw), "\n") != 3 {
		t.Fatalf("%v: %s", err, raw)
	}
	if err := os.WriteFile(path, append(raw, "{half"...), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := AppendHistory(path, made(t, QuickPlan())); err == nil || !strings.Contains(err.Error(), "line 4") || !strings.Contains(err.Error(), path) {
		t.Errorf("a broken line: %v", err)
	}
	if again, _ := os.ReadFile(path); !strings.HasSuffix(string(again), "{half") {
		t.Error("the broken history was written over")
	}
	if _, err := ReadHistory(strings.NewReader("\n\n")); err != nil {
		t.Errorf("empty lines: %v", err)
	}
}
