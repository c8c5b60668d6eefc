package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"math"
	"strings"
	"testing"
)

// Every target that is missed says why, in every form of the report; one that is
// reached or not measured has nothing to explain.
func TestMissedTargets(t *testing.T) {
	for _, better := range []bool{true, false} {
		for _, g := range Targets(made(t, QuickPlan(), everything(better)...)) {
			if missed := !g.Reached; missed != (g.Why != "") {
				t.Errorf("missed: %v, %+v", missed, g)
			}
			if g.Reached && g.Profile != nil {
				t.Errorf("reached, with a profile: %+v", g)
			}
		}
	}
	for _, g := range Targets(made(t, QuickPlan())) {
		if g.Why != "" || g.Profile != nil {
			t.Errorf("not measured: %+v", g)
		}
	}

	exps := everything(false)
	scale := exps[3].Run
	exps[3].Run = func(ctx context.Context, r *Run) error {
		r.Profile(TargetEngine, "%d %% of the heap are <names>", 60)
		r.Profile(TargetTurn, "of another experiment")
		return scale(ctx, r)
	}
	rep := made(t, QuickPlan(), exps...)
	want := map[string]string{
		TargetReadOnly:  "medians of the steps of none, workload=read-only: snapshot 10 ms (50 %), execute 10 ms (50 %)",
		TargetWorkspace: "medians of the steps of workspace, size=250MB, workload=pip-install: execute 4 s (88.9 %), snapshot 500 ms (11.1 %)",
		TargetMachine:   "medians of the steps of machine, size=250MB, workload=pip-install: execute 4 s (78.4 %), snapshot 1.1 s (21.6 %)",
		// The worst boundary is the one that is explained.
		TargetTurn:   "medians of the steps of savepoint, boundary=machine, think=2: execute 2 s (80 %), snapshot 500 ms (20 %)",
		TargetEngine: "60 % of the heap are <names>",
		// It has no steps, and the experiment says nothing.
		TargetJournal: "not known: the experiment says nothing of it, and its samples have no steps",
	}
	var md, page bytes.Buffer
	d := rep.Document()
	raw, err := json.Marshal(d)
	for _, err := range []error{err, d.Markdown(&md), d.HTML(&page, nil)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, f := range faults(page.Bytes()) {
		t.Error(f)
	}
	var got struct {
		Targets []struct {
			Name, Why string
			Limit     *float64
			Profile   *StepTimes
		}
		Experiments []struct {
			Name  string
			Notes []string
		}
	}
	if err := json.Unmarshal(raw, &got); err != nil {
		t.Fatal(err)
	}
	for _, g := range got.Targets {
		text, ok := want[g.Name]
		if g.Limit == nil {
			t.Errorf("%s has no limit", g.Name)
		}
		if !ok {
			continue
		}
		if g.Why != text {
			t.Errorf("%s: %q, want %q", g.Name, g.Why, text)
		}
		if steps := strings.HasPrefix(text, "medians"); steps != (g.Profile != nil) || steps && math.Abs(g.Profile.Steps[StepExecute]-ownTimes[g.Name]) > 1e-9 {
			t.Errorf("%s: profile %+v", g.Name, g.Profile)
		}
		if !strings.Contains(md.String(), "| "+mdText(text)+" |") {
			t.Errorf("the Markdown lacks %q", text)
		}
		if html := strings.NewReplacer("<", "&lt;", ">", "&gt;").Replace(text); !strings.Contains(page.String(), "why: "+html) {
			t.Errorf("the page lacks %q", html)
		}
	}
	if n := got.Experiments[3].Notes; len(n) != 1 || n[0] != TargetTurn+": of another experiment" {
		t.Errorf("what is no target of the experiment: %q", n)
	}
}

// ownTimes are the commands' own in the arms of everything that targets are about.
var ownTimes = nums{TargetReadOnly: 0.01, TargetWorkspace: 4, TargetMachine: 4, TargetTurn: 2}

// A profile says what the steps do not hold, and failed samples are in none.
func TestProfile(t *testing.T) {
	samples := []Sample{
		{Arm: "a", Metrics: nums{MetricSeconds: 10}, Steps: nums{StepSnapshot: 1, StepExecute: 6}},
		{Arm: "a", Metrics: nums{MetricSeconds: 10}, Steps: nums{StepSnapshot: 1, StepExecute: 6}},
		{Arm: "a", Metrics: nums{MetricSeconds: 900}, Steps: nums{StepSnapshot: 900}, Err: "x"},
		{Arm: "a", Metrics: nums{MetricSeconds: 900}},
	}
	p := profileOf(samples)
	if p == nil || p.Text() != "medians of the steps of a: execute 6 s (60 %), in no step 3 s (30 %), snapshot 1 s (10 %)" {
		t.Errorf("%+v", p)
	}
	for i := range samples {
		samples[i].Steps = nums{StepSnapshot: 1, StepExecute: 8.95}
	}
	samples = append(samples, Sample{Arm: "b", Metrics: nums{MetricSeconds: 10}, Steps: nums{StepSnapshot: 1, StepExecute: 8.95}})
	if p = profileOf(samples[:2]); len(p.Steps) != 2 {
		t.Errorf("a rest that does not matter: %+v", p)
	}
	if p = profileOf([]Sample{samples[0], samples[4]}); p.Group != "a and 1 more" {
		t.Errorf("%+v", p)
	}
	if p = profileOf(samples[2:3]); p != nil {
		t.Errorf("of failed samples: %+v", p)
	}
	zero := StepTimes{Group: "z", Steps: nums{"a": 0, "b": -1}}
	if got := zero.Text(); strings.Contains(got, "NaN") || strings.Contains(got, "%") {
		t.Error(got)
	}
}
