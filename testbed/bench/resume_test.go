package bench

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// counting is an experiment of two arms, interleaved over so many rounds, that counts
// how often what was measured. before is asked before each measurement.
func counting(reps int, before func(done int) error) (Experiment, map[string]int) {
	measured := map[string]int{}
	done := 0
	arm := func(name string) Arm {
		return Arm{Name: name, Labels: tags{"corruption": "etc"}, Do: func(context.Context) (Sample, error) {
			if err := before(done); err != nil {
				return Sample{}, err
			}
			done++
			measured[name]++
			return Sample{Metrics: nums{MetricSeconds: 1}, Labels: tags{"more": "m"}}, nil
		}}
	}
	return Experiment{Name: "long", Run: func(ctx context.Context, r *Run) error {
		if err := Interleave(ctx, r, []Arm{arm("a"), arm("b")}, reps, r.Plan.Warmup); err != nil {
			return err
		}
		return before(-1)
	}}, measured
}

// rounds are the rounds of each arm, in their order.
func rounds(res *Result) map[string][]int {
	out := map[string][]int{}
	for _, s := range res.Samples {
		out[s.Arm] = append(out[s.Arm], s.Rep)
	}
	for _, r := range out {
		slices.Sort(r)
	}
	return out
}

// However often an experiment is stopped, what it measured is on disk, and is not
// measured again.
func TestStoppedTwice(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run-1")
	unplugged := errors.New("pulled the plug")
	stop, at := context.CancelCauseFunc(nil), 0
	e, measured := counting(10, func(done int) error {
		if done == at {
			stop(unplugged)
		}
		return nil
	})
	kept := 0
	for start, stopAt := range []int{7, 12} {
		ctx, cancel := context.WithCancelCause(t.Context())
		stop, at = cancel, stopAt
		r := &Runner{Dir: dir, Plan: Plan{Seed: 1}, Experiments: []Experiment{e}}
		_, err := r.Run(ctx)
		if !errors.Is(err, unplugged) || !strings.Contains(err.Error(), "samples are kept") {
			t.Fatalf("start %d: %v", start+1, err)
		}
		rep, err := Load(dir)
		if err != nil {
			t.Fatal(err)
		}
		res := rep.Result("long")
		if res == nil || !res.Partial || res.Finished() || len(res.Samples) <= kept || !slices.Equal(rep.Open(), []string{"long"}) {
			t.Fatalf("start %d: %+v, open %q", start+1, res, rep.Open())
		}
		kept = len(res.Samples)
		var md strings.Builder
		if err := rep.Document().Markdown(&md); err != nil || !strings.Contains(md.String(), fmt.Sprintf("**Stopped before its end.** Partial: the figures are those of %d samples", kept)) {
			t.Errorf("%v: the report does not say that it is partial:\n%s", err, md.String())
		}
	}
	at = -2
	var lines strings.Builder
	r := &Runner{Dir: dir, Plan: Plan{Seed: 1}, Experiments: []Experiment{e}, Progress: ProgressLines(&lines, time.Now)}
	rep, err := r.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	all := []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}
	res := rep.Result("long")
	if got := rounds(res); !res.Finished() || !slices.Equal(got["a"], all) || !slices.Equal(got["b"], all) {
		t.Errorf("rounds %v, partial %v", got, res.Partial)
	}
	// What was cut short is measured again, once per stop.
	if n := measured["a"] + measured["b"]; n != 20+2 {
		t.Errorf("%d measurements for 20 samples", n)
	}
	if r.Resumed != kept || res.Resumed != kept || !strings.Contains(lines.String(), fmt.Sprintf("long goes on: %d samples of an earlier start", kept)) {
		t.Errorf("resumed %d and %d of %d:\n%s", r.Resumed, res.Resumed, kept, lines.String())
	}
}

// An experiment that fails keeps what it had, is reported with it, and goes on.
func TestFailedGoesOn(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run-1")
	broken := errors.New("the cluster is gone")
	fail := true
	e, measured := counting(4, func(done int) error {
		if done == -1 && fail {
			return broken
		}
		return nil
	})
	r := &Runner{Dir: dir, Plan: Plan{Seed: 1, Warmup: 1}, Experiments: []Experiment{e}}
	rep, err := r.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if res := rep.Result("long"); res.Err != broken.Error() || !res.Partial || len(res.Samples) != 8 || rep.Open() != nil {
		t.Errorf("%+v", res)
	}
	// A start that does not come to anything loses nothing either.
	for _, nothing := range []error{broken, Skip("no cluster")} {
		dead := e
		dead.Run = func(context.Context, *Run) error { return nothing }
		if rep, err = (&Runner{Dir: dir, Plan: r.Plan, Experiments: []Experiment{dead}}).Run(t.Context()); err != nil || len(rep.Result("long").Samples) != 8 {
			t.Fatalf("%v: %v", nothing, err)
		}
	}
	fail = false
	before := maps.Clone(measured)
	if rep, err = r.Run(t.Context()); err != nil || !rep.Result("long").Finished() || len(rep.Result("long").Samples) != 8 {
		t.Errorf("%+v, %v", rep, err)
	}
	if !maps.Equal(measured, before) { // not even to warm up
		t.Errorf("measured again: %v, before %v", measured, before)
	}
}

// An arm that ended is tried again whenever the run goes on, once each time, and what
// it measured before stays.
func TestEndedArmGoesOn(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run-1")
	broken, measured := true, map[string]int{}
	e := Experiment{Name: "long", Run: func(ctx context.Context, r *Run) error {
		arm := func(name string, undo func(context.Context) error) Arm {
			return Arm{Name: name, Undo: undo, Do: func(context.Context) (Sample, error) {
				if measured[name]++; broken && name == "bad" {
					return Sample{}, errors.New("no answer")
				}
				return Sample{Metrics: nums{MetricSeconds: 1}}, nil
			}}
		}
		err := Interleave(ctx, r, []Arm{arm("good", nil), arm("bad", func(context.Context) error {
			if broken {
				return errors.New("cannot be reset")
			}
			return nil
		})}, 4, 0)
		r.Table(Table{Title: "sum", Columns: []string{"a"}, Rows: [][]string{{"1"}}})
		return err
	}}
	start := func(e Experiment) *Result {
		t.Helper()
		rep, err := (&Runner{Dir: dir, Plan: Plan{Seed: 1}, Experiments: []Experiment{e}}).Run(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return rep.Result("long")
	}
	for n := 1; n <= 2; n++ {
		res := start(e)
		if got := rounds(res); len(got["good"]) != 4 || len(got["bad"]) != n || measured["bad"] != n || measured["good"] != 4 || !res.Finished() {
			t.Fatalf("start %d: rounds %v, measured %v, %+v", n, got, measured, res)
		}
	}
	// A start that does not come to the arm leaves everything as it is.
	dead := e
	for _, nothing := range []error{errors.New("the cluster is gone"), Skip("no cluster")} {
		dead.Run = func(context.Context, *Run) error { return nothing }
		if res := start(dead); !res.Finished() || len(res.Samples) != 6 || len(res.Tables) != 1 {
			t.Errorf("%v: %+v", nothing, res)
		}
	}
	ctx, stop := context.WithCancelCause(t.Context())
	dead.Run = func(context.Context, *Run) error { stop(errors.New("stopped")); return ctx.Err() }
	if _, err := (&Runner{Dir: dir, Plan: Plan{Seed: 1}, Experiments: []Experiment{dead}}).Run(ctx); err == nil {
		t.Error("it was not stopped")
	}
	if res, err := readResultFile(filepath.Join(dir, "long.json")); err != nil || !res.Finished() || len(res.Samples) != 6 || len(res.Tables) != 1 {
		t.Errorf("%+v, %v", res, err)
	}
	broken = false
	res := start(e)
	if got := rounds(res); !slices.Equal(got["bad"], []int{0, 1, 2, 3}) || measured["good"] != 4 || len(res.Is("bad")) != 4 {
		t.Errorf("rounds %v, measured %v", got, measured)
	}
	failed := 0
	for _, s := range res.Is("bad") {
		if s.Err != "" {
			failed++
		}
	}
	if failed != 2 {
		t.Errorf("%d failed samples, want those of both starts before", failed)
	}
	// Now everything is measured: nothing is made again.
	before := maps.Clone(measured)
	if start(e); !maps.Equal(before, measured) {
		t.Errorf("measured %v, before %v", measured, before)
	}
}

// A process that is killed leaves the samples that it had seconds before.
func TestKilledGoesOn(t *testing.T) {
	dir := os.Getenv("BENCH_TEST_KILLED")
	now := time.Unix(0, 0)
	e, measured := counting(6, func(done int) error {
		if dir != "" && done == 5 {
			os.Exit(7)
		}
		now = now.Add(saveEvery)
		return nil
	})
	if dir != "" {
		_, err := (&Runner{Dir: dir, Plan: Plan{Seed: 1}, Experiments: []Experiment{e}, Now: func() time.Time { return now }}).Run(t.Context())
		t.Fatalf("lives on: %v", err)
	}
	dir = t.TempDir()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestKilledGoesOn$")
	cmd.Env = append(os.Environ(), "BENCH_TEST_KILLED="+dir)
	out, err := cmd.CombinedOutput()
	if exit := (&exec.ExitError{}); !errors.As(err, &exit) || exit.ExitCode() != 7 {
		t.Fatalf("%v: %s", err, out)
	}
	found := dir
	dir = "" // from here on nothing is killed
	r := &Runner{Dir: found, Plan: Plan{Seed: 1}, Experiments: []Experiment{e}}
	rep, err := r.Run(t.Context())
	if err != nil || r.Resumed != 5 || len(rep.Result("long").Samples) != 12 || measured["a"]+measured["b"] != 7 {
		t.Errorf("%d resumed, %v measured, %v", r.Resumed, measured, err)
	}
}

// What an experiment measures anew by itself replaces what there was, and until it
// has come to it that stays.
func TestMeasuredAnew(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run-1")
	value, most := 1.0, 4
	e := Experiment{Name: "plain", Run: func(_ context.Context, r *Run) error {
		for rep := range most {
			r.Add(Sample{Arm: "a", Rep: rep, Metrics: nums{MetricSeconds: value}}, Sample{Arm: "a", Rep: rep, Metrics: nums{MetricSeconds: value}})
		}
		if most == 6 {
			return nil
		}
		return errors.New("stopped")
	}}
	for _, tt := range []struct {
		value float64
		most  int
		want  string
	}{{1, 4, "1 1 1 1 1 1 1 1"}, {2, 2, "2 2 2 2 1 1 1 1"}, {3, 6, "3 3 3 3 3 3 3 3 3 3 3 3"}} {
		value, most = tt.value, tt.most
		rep, err := (&Runner{Dir: dir, Plan: QuickPlan(), Experiments: []Experiment{e}}).Run(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		res := rep.Result("plain")
		got := strings.Trim(fmt.Sprint(res.Values(res.Samples, MetricSeconds)), "[]")
		if got != tt.want || res.Finished() != (tt.most == 6) {
			t.Errorf("%s, want %s", got, tt.want)
		}
	}
	// Made again on purpose, the old one is put aside.
	if _, err := (&Runner{Dir: dir, Plan: QuickPlan(), Experiments: []Experiment{e}, Again: []string{"plain"}}).Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	if old, err := readResultFile(filepath.Join(dir, "plain.before.json")); err != nil || len(old.Samples) != 12 {
		t.Errorf("%+v, %v", old, err)
	}
}

// A sample is found by its arm's labels, and never taken for that of another arm.
func TestFind(t *testing.T) {
	arms := []Arm{{Name: "a"}, {Name: "a", Labels: tags{"k": "v"}}, {Name: "b"}}
	e := newEarlier(&Result{Samples: []Sample{
		{Arm: "a", Labels: tags{"k": "v", "more": "m"}, Rep: 1}, {Arm: "a", Labels: tags{"more": "m"}, Rep: 1}, {Arm: "b", Rep: 2},
	}})
	for _, tt := range []struct{ arm, rep, want int }{{0, 1, 1}, {1, 1, 0}, {2, 2, 2}, {2, 1, -1}, {0, 2, -1}} {
		if got := e.find(arms, tt.arm, tt.rep); got != tt.want {
			t.Errorf("arm %d, round %d: %d, want %d", tt.arm, tt.rep, got, tt.want)
		}
	}
	e.replace(Sample{Arm: "b", Rep: 2})
	if e.find(arms, 2, 2) != -1 || len(e.rest()) != 2 {
		t.Errorf("what was measured again is still there: %+v", e.rest())
	}
}
