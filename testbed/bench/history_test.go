package bench

import (
	"context"
	"os"
	"path/filepath"
	"slices"
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
