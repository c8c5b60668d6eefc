package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// night makes a run in its own directory, begun that many days after the first.
func night(t *testing.T, dir, name string, day int, plan Plan, cores int, exps ...Experiment) *Report {
	t.Helper()
	r := &Runner{
		Dir: filepath.Join(dir, name), Plan: plan, Experiments: exps, Environment: Environment{Cores: cores},
		Now: func() time.Time { return time.Date(2026, 1, 1+day, 0, 0, 0, 0, time.UTC) },
	}
	rep, err := r.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return rep
}

func TestRuns(t *testing.T) {
	dir := t.TempDir()
	if runs, err := Runs(filepath.Join(dir, "nowhere")); err != nil || runs != nil {
		t.Fatalf("%q, %v", runs, err)
	}
	night(t, dir, "zulu", 0, QuickPlan(), 2)
	night(t, dir, "alpha", 1, QuickPlan(), 2)
	for name, text := range map[string]string{"odd": "{", "none": ""} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
		if text != "" {
			if err := os.WriteFile(filepath.Join(dir, name, "run.json"), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "history.jsonl"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	runs, err := Runs(dir)
	for i := range runs {
		runs[i] = filepath.Base(runs[i])
	}
	if want := []string{"odd", "zulu", "alpha"}; err != nil || !slices.Equal(runs, want) {
		t.Errorf("%q, %v; want %q", runs, err, want)
	}
}

func TestBefore(t *testing.T) {
	x, y := filled("x", nil, values("a", MetricSeconds, 1)...), filled("y", nil, values("b", MetricSeconds, 1)...)
	none := filled("x", nil)
	none.Run = func(context.Context, *Run) error { return Skip("not here") }
	for name, tt := range map[string]struct {
		make func(dir string)
		want string
	}{
		"no run": {func(string) {}, ""},
		"the latest": {func(dir string) {
			night(t, dir, "a", 1, QuickPlan(), 2, x, y)
			night(t, dir, "b", 2, QuickPlan(), 2, x, y)
		}, "b"},
		"none of later":       {func(dir string) { night(t, dir, "a", 9, QuickPlan(), 2, x, y) }, ""},
		"none of other plans": {func(dir string) { night(t, dir, "a", 1, FullPlan(), 2, x, y) }, ""},
		"none of elsewhere":   {func(dir string) { night(t, dir, "a", 1, QuickPlan(), 64, x, y) }, ""},
		"none that skipped":   {func(dir string) { night(t, dir, "a", 1, QuickPlan(), 2, none) }, ""},
		// A look at one experiment does not hide the others from the night.
		"the whole one": {func(dir string) {
			night(t, dir, "a", 1, QuickPlan(), 2, y, x)
			night(t, dir, "b", 2, QuickPlan(), 2, x)
		}, "a"},
		// A new experiment does not end the comparison of the others.
		"the one with most": {func(dir string) {
			night(t, dir, "a", 1, QuickPlan(), 2, x)
			night(t, dir, "b", 2, QuickPlan(), 2, x)
			night(t, dir, "c", 3, QuickPlan(), 2, none)
		}, "b"},
		"past a broken one": {func(dir string) {
			night(t, dir, "a", 1, QuickPlan(), 2, x, y)
			night(t, dir, "b", 2, QuickPlan(), 2, x, y)
			if err := os.WriteFile(filepath.Join(dir, "b", "x.json"), []byte("{"), 0o600); err != nil {
				t.Fatal(err)
			}
		}, "a"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			tt.make(dir)
			old, err := Before(dir, night(t, dir, "now", 5, QuickPlan(), 2, x, y))
			if err != nil {
				t.Fatal(err)
			}
			got := ""
			if old != nil {
				got = old.Info.ID
			}
			if got != tt.want {
				t.Errorf("%q, want %q", got, tt.want)
			}
		})
	}
}

// Who reports an earlier run again sees the trend until then, in its order.
func TestHistoryOfAnEarlierRun(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "history.jsonl")
	first, second := night(t, dir, "a", 1, QuickPlan(), 2), night(t, dir, "b", 2, QuickPlan(), 2)
	for _, step := range []struct {
		rep  *Report
		want []string
	}{{second, []string{"b"}}, {first, []string{"a"}}, {second, []string{"a", "b"}}} {
		past, err := AppendHistory(path, step.rep)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, p := range past {
			got = append(got, p.Run)
		}
		if !slices.Equal(got, step.want) {
			t.Errorf("after %s: %q, want %q", step.rep.Info.ID, got, step.want)
		}
	}
	if all, err := ReadHistoryFile(path); err != nil || len(all) != 2 || all[0].Run != "a" {
		t.Errorf("%+v, %v", all, err)
	}
}

// What is only a part of a measurement, or too little to say, is a point of its own
// kind in the trend, and the line does not go through it.
func TestTrendOfParts(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "history.jsonl")
	commit := func(syncs float64) []Sample {
		return repeatSample(Sample{Arm: "commit", Metrics: nums{MetricSyncs: syncs, MetricCalls: 0}}, 6)
	}
	journal := func(rate float64, n int) []Sample {
		return repeatSample(Sample{Arm: "journal", Metrics: nums{MetricTxRate: rate}}, n)
	}
	stopped := func(samples ...Sample) Experiment {
		e := filled(ExpScale, nil, samples...)
		run := e.Run
		e.Run = func(ctx context.Context, r *Run) error { return errors.Join(run(ctx, r), errors.New("disk full")) }
		return e
	}
	var history []Past
	for day, e := range []Experiment{
		filled(ExpScale, nil, slices.Concat(journal(800, 6), commit(1))...),
		stopped(slices.Concat(journal(10, 6), commit(2))...), // two syncs are missed, however few have been counted
		filled(ExpScale, nil, slices.Concat(journal(700, 2), commit(1))...),
		filled(ExpScale, nil, slices.Concat(journal(900, 6), commit(1))...),
	} {
		var err error
		if history, err = AppendHistory(path, night(t, dir, fmt.Sprint("run-", day), day, QuickPlan(), 2, e)); err != nil {
			t.Fatal(err)
		}
	}
	want := map[string][]bool{TargetJournal: {false, true, true, false}, TargetCommit: {false, true, false, false}}
	for _, c := range trend(history) {
		l := c.Curve.Lines[0]
		var open []bool
		for _, d := range l.Dots {
			open = append(open, d.Open)
		}
		whole := len(open) - strings.Count(fmt.Sprint(open), "true")
		if !slices.Equal(open, want[c.Title]) || len(strings.Fields(l.Path)) != whole || c.Hollow != "partial or undecided" {
			t.Errorf("%s: %v, line %q, legend %q", c.Title, open, l.Path, c.Hollow)
		}
		delete(want, c.Title)
	}
	if len(want) > 0 {
		t.Errorf("no trend of %v", want)
	}
	var page strings.Builder
	if err := night(t, dir, "last", 9, QuickPlan(), 2).Document().HTML(&page, history); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(page.String(), `class="dot hollow s0"`); n != 3 || !strings.Contains(page.String(), `<span class="key hollow"></span>partial or undecided`) {
		t.Errorf("%d hollow points on the page", n)
	}
	if whole := trend(slices.Delete(history, 1, 3)); whole[0].Hollow != "" {
		t.Errorf("a legend for what is not there: %q", whole[0].Hollow)
	}
}

// repeatSample is a sample so many times.
func repeatSample(s Sample, n int) (out []Sample) {
	for i := range n {
		s.Rep = i
		out = append(out, s)
	}
	return out
}

// Lines of before had figures, and said in a value's words alone that it is partial.
func TestOldHistory(t *testing.T) {
	const old = `{"run":"a","started":"2026-01-01T00:00:00Z","plan":{"warmup":0,"seed":1},"environment":{},"targets":[{"name":"journal","value":"9/s, partial","undecided":false,"reached":false,"number":9}],"figures":[{"experiment":"scale","arm":"journal","metric":"tx_per_second","n":3,"value":9,"p95":9,"low":1,"high":9}]}
{"run":"b","started":"2026-01-02T00:00:00Z","plan":{"warmup":0,"seed":1},"environment":{},"targets":[{"name":"journal","value":"8/s, n = 2: too few to say","undecided":true,"reached":false,"number":8}]}
{"run":"c","started":"2026-01-03T00:00:00Z","plan":{"warmup":0,"seed":1},"environment":{},"targets":[{"name":"journal","value":"7/s","reached":true,"number":7}]}
`
	history, err := ReadHistory(strings.NewReader(old))
	if err != nil || len(history) != 3 {
		t.Fatalf("%+v, %v", history, err)
	}
	dots := trend(history)[0].Curve.Lines[0].Dots
	if len(dots) != 3 || !dots[0].Open || !dots[1].Open || dots[2].Open {
		t.Errorf("%+v", dots)
	}
}
