package bench

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
)

func targetOf(t *testing.T, name string, plan Plan, exps ...Experiment) Target {
	t.Helper()
	all := Targets(made(t, plan, exps...))
	i := slices.IndexFunc(all, func(g Target) bool { return g.Name == name })
	if i < 0 {
		t.Fatalf("no target %q", name)
	}
	return all[i]
}

// However good the figures are, a target takes enough samples on every side and none
// that failed.
func TestTargetsTakeEnough(t *testing.T) {
	read, think := tags{LabelWorkload: WorkloadRead}, tags{LabelThink: "2", "boundary": "workspace"}
	failing := func(s []Sample) []Sample { s[0].Err = "no answer"; return s }
	allFailing := func(s []Sample) []Sample {
		for i := range s {
			s[i].Err = "no answer"
		}
		return s
	}
	commits := func(n int, syncs, calls float64) (out []Sample) {
		for range n {
			out = append(out, Sample{Arm: "commit", Metrics: nums{MetricSyncs: syncs, MetricCalls: calls}})
		}
		return out
	}
	decisions := func(n int) (out []Sample) {
		for range n {
			out = append(out, Sample{Arm: "x", Metrics: nums{MetricDecision: 1e-5}})
		}
		return out
	}
	rates := func(arm, label, of string, n int) (out []Sample) {
		for range n {
			out = append(out, Sample{Arm: arm, Labels: tags{label: of}, Metrics: nums{MetricTxRate: 9000, MetricGrowth: 1}})
		}
		return out
	}
	of := func(arm string, labels tags, v float64, n int) []Sample {
		return timed(arm, labels, v, repeat(v, n)...)
	}
	for _, tt := range []struct {
		name, target, exp string
		samples           []Sample
		answer, value     string
	}{
		{"five each", TargetReadOnly, ExpOverhead, slices.Concat(of(ArmBare, read, 1, 5), of(ArmNone, read, 1, 5)), "yes", "1"},
		{"two", TargetReadOnly, ExpOverhead, slices.Concat(of(ArmBare, read, 1, 50), of(ArmNone, read, 1, 2)), "undecided", "1, n = 2: too few to say"},
		{"four of what it is held against", TargetReadOnly, ExpOverhead, slices.Concat(of(ArmBare, read, 1, 4), of(ArmNone, read, 1, 50)), "undecided", "1, n = 4: too few to say"},
		{"two, and far too slow", TargetReadOnly, ExpOverhead, slices.Concat(of(ArmBare, read, 1, 2), of(ArmNone, read, 9, 2)), "undecided", "9, n = 2: too few to say"},
		{"one failed", TargetReadOnly, ExpOverhead, slices.Concat(of(ArmBare, read, 1, 9), failing(of(ArmNone, read, 1, 9))), "no", "1 (1 to 1), 1 of 9 of those it is about failed"},
		{"one failed beside it", TargetReadOnly, ExpOverhead, slices.Concat(failing(of(ArmBare, read, 1, 9)), of(ArmNone, read, 1, 9)), "no", "1 (1 to 1), 1 of 9 of those beside it failed"},
		{"another boundary has too few", TargetTurn, ExpAgentTurn, slices.Concat(of(ArmBare, think, 2, 6), of(ArmSavepoint, think, 2, 6),
			of(ArmBare, tags{LabelThink: "2", "boundary": "machine"}, 2, 6), of(ArmSavepoint, tags{LabelThink: "2", "boundary": "machine"}, 2, 1)), "undecided", "0 % (0 % to 0 %), boundary=workspace, n = 1: too few to say"},
		{"another boundary failed", TargetTurn, ExpAgentTurn, slices.Concat(of(ArmBare, think, 2, 6), of(ArmSavepoint, think, 2.01, 6),
			of(ArmBare, tags{LabelThink: "2", "boundary": "machine"}, 2, 6), failing(of(ArmSavepoint, tags{LabelThink: "2", "boundary": "machine"}, 2, 7))), "no", "0.5 % (0.5 % to 0.5 %), boundary=workspace, 1 of 19 of those beside it failed"},
		{"another boundary failed each time", TargetTurn, ExpAgentTurn, slices.Concat(of(ArmBare, think, 2, 6), of(ArmSavepoint, think, 2.01, 6),
			of(ArmBare, tags{LabelThink: "2", "boundary": "machine"}, 2, 6), allFailing(of(ArmSavepoint, tags{LabelThink: "2", "boundary": "machine"}, 2, 7))), "no", "0.5 % (0.5 % to 0.5 %), boundary=workspace, 7 of 19 of those beside it failed"},
		{"99 decisions", TargetDecision, ExpInterception, decisions(99), "undecided", "10 µs, n = 99: too few to say"},
		{"100 decisions", TargetDecision, ExpInterception, decisions(100), "yes", "10 µs"},
		{"rates of two", TargetEngine, ExpScale, rates("engine", LabelSandboxes, "1000", 2), "undecided", "9,000/s, memory × 1, n = 2: too few to say"},
		{"rates of five", TargetEngine, ExpScale, rates("engine", LabelSandboxes, "1000", 5), "yes", "9,000/s, memory × 1"},
		{"journals that failed each time", TargetJournal, ExpScale, append(rates("journal", "writers", "1", 5), allFailing(rates("journal", "writers", "16", 5))...), "no", "9,000/s, writers=1, 5 of 5 of those beside it failed"},
		{"commits", TargetCommit, ExpScale, commits(5, 1, 0), "yes", "1 sync, 0 calls"},
		{"commits that are not synced", TargetCommit, ExpScale, append(commits(5, 1, 0), commits(1, 0, 0)...), "no", "0 syncs, 0 calls"},
		{"one commit that calls, which is one too many", TargetCommit, ExpScale, commits(1, 1, 3), "no", "1 sync, 3 calls"},
		{"commits whose calls were counted but twice", TargetCommit, ExpScale, append(commits(2, 1, 0), timedSyncs(3)...), "undecided", "1 sync, 0 calls, n = 2: too few to say"},
		{"journals of two", TargetJournal, ExpScale, append(rates("journal", "writers", "1", 5), rates("journal", "writers", "16", 2)...), "undecided", "9,000/s, writers=1, n = 2: too few to say"},
	} {
		g := targetOf(t, tt.target, QuickPlan(), filled(tt.exp, nil, tt.samples...))
		if g.Answer() != tt.answer || g.Value != tt.value || g.Reached != (tt.answer == "yes") || (g.Why == "") != g.Reached {
			t.Errorf("%s: %s, %q, why %q; want %s, %q", tt.name, g.Answer(), g.Value, g.Why, tt.answer, tt.value)
		}
	}
}

// timedSyncs are commits of which nobody counted the calls.
func timedSyncs(n int) (out []Sample) {
	for range n {
		out = append(out, Sample{Arm: "commit", Metrics: nums{MetricSyncs: 1}})
	}
	return out
}

// What an arm adds is held against the bare command, and not against its own step
// "execute", which holds a part of it.
func TestOverheadIsOverBare(t *testing.T) {
	labels := tags{LabelWorkload: WorkloadInstall, LabelSize: PaperSize}
	bare, copied := timed(ArmBare, labels, 4, repeat(4, 6)...), timed(ArmCopy, labels, 4, repeat(6, 6)...)
	ours := timed(ArmWorkspace, labels, 4.5, repeat(4.6, 6)...) // 0.6 s more than bare, 0.1 s of them outside of execute
	rep := made(t, QuickPlan(), filled(ExpOverhead, nil, slices.Concat(bare, copied, ours)...))
	g := Targets(rep)[2]
	if g.Name != TargetWorkspace || g.Answer() != "no" || math.Abs(*g.Number-0.3) > 1e-9 || !strings.HasPrefix(g.Explain, "workspace adds 600 ms / copy adds 2 s: what their medians are above 4 s of bare") {
		t.Errorf("%+v", g)
	}
	steps := rep.Result(ExpOverhead).StepTimes()
	if len(steps) != 3 || steps[0].OverBare != nil || math.Abs(steps[1].OverBare.Value-0.6) > 1e-9 || math.Abs(steps[2].OverBare.Value-2) > 1e-9 {
		t.Errorf("%+v", steps)
	}
	var md bytes.Buffer
	if err := rep.Document().Markdown(&md); err != nil || !strings.Contains(md.String(), "| execute | over bare |") ||
		!strings.Contains(md.String(), "| 4.5 s | 600 ms (600 ms to 600 ms) |") || !strings.Contains(md.String(), overBareText) {
		t.Errorf("%v:\n%s", err, md.String())
	}
	for name, samples := range map[string][]Sample{"without bare": slices.Concat(copied, ours), "a copy that costs nothing": slices.Concat(bare, timed(ArmCopy, labels, 4, repeat(3.9, 6)...), ours)} {
		if g := targetOf(t, TargetWorkspace, QuickPlan(), filled(ExpOverhead, nil, samples...)); g.Value != NotMeasured || g.Reached {
			t.Errorf("%s: %+v", name, g)
		}
	}
}

// A run that made the long command too seldom is judged by the short one, of one
// workload alone: what a command costs in another is no base.
func TestOverheadOfShortCommand(t *testing.T) {
	of := func(workload string, n int, bare, copied, ours float64) []Sample {
		labels := tags{LabelWorkload: workload, LabelSize: PaperSize}
		return slices.Concat(timed(ArmBare, labels, bare, repeat(bare, n)...), timed(ArmCopy, labels, bare, repeat(copied, n)...), timed(ArmWorkspace, labels, bare, repeat(ours, n)...))
	}
	for _, tt := range []struct {
		name          string
		samples       []Sample
		answer, about string
	}{
		{"both long enough", slices.Concat(of(WorkloadInstall, 5, 4, 8, 4.2), of(WorkloadEdit, 5, 1, 2, 3)), "yes", WorkloadInstall},
		{"the long one once", slices.Concat(of(WorkloadInstall, 1, 4, 8, 9), of(WorkloadEdit, 5, 1, 5, 1.2)), "yes", WorkloadEdit},
		{"the short one no oftener", slices.Concat(of(WorkloadInstall, 2, 4, 8, 4.2), of(WorkloadEdit, 2, 1, 5, 1.2)), "undecided", WorkloadInstall},
	} {
		g := targetOf(t, TargetWorkspace, QuickPlan(), filled(ExpOverhead, nil, tt.samples...))
		if g.Answer() != tt.answer || !strings.Contains(g.Explain, "workload "+tt.about) {
			t.Errorf("%s: %s, %s", tt.name, g.Answer(), g.Explain)
		}
	}
}

// All is said of all only.
func TestCrashTarget(t *testing.T) {
	for _, tt := range []struct {
		name                      string
		schedules, bad, pairs, of float64
		lost                      bool
		answer, value, why        string
	}{
		{"all", 900, 0, 700, 700, false, "yes", "0 of 900 schedules; pairs: 700 of 700", ""},
		{"a selection", 300, 0, 100, 700, false, "undecided", "0 of 300 schedules; pairs: 100 of 700", "a quick run plays a selection; `bench run --only crash` plays all"},
		{"a selection that found something", 300, 1, 100, 700, false, "no", "1 of 300 schedules; pairs: 100 of 700", "not known"},
		{"nobody counted", 300, 0, 0, 0, false, "undecided", "0 of 300 schedules", "does not say how many pairs"},
		{"a part could not be played", 900, 0, 700, 700, true, "no", "0 of 900 schedules; pairs: 700 of 700, 1 of 2 of those it is about failed", "1 of 2"},
	} {
		s := Sample{Arm: "deaths", Metrics: nums{MetricSchedules: tt.schedules, MetricViolations: tt.bad}}
		if tt.of > 0 {
			s.Metrics[MetricPairs], s.Metrics[MetricPairsAll] = tt.pairs, tt.of
		}
		all := []Sample{s}
		if tt.lost {
			all = append(all, Sample{Arm: "deaths", Err: "it did not end"})
		}
		g := targetOf(t, TargetCrash, QuickPlan(), filled(ExpCrash, nil, all...))
		if g.Answer() != tt.answer || g.Value != tt.value || !strings.Contains(g.Why, tt.why) || g.Reached != (tt.answer == "yes") {
			t.Errorf("%s: %+v", tt.name, g)
		}
	}
}

// A target of an experiment that was not made to its end is not reached, and says so.
func TestPartialTarget(t *testing.T) {
	e := everything(true)[3]
	whole := e.Run
	e.Run = func(ctx context.Context, r *Run) error { return errors.Join(whole(ctx, r), errors.New("no answer")) }
	rep := made(t, QuickPlan(), e)
	for _, g := range Targets(rep) {
		if g.Experiment != ExpScale {
			continue
		}
		if g.Answer() != "undecided" || !strings.HasSuffix(g.Value, ", partial") || g.Number == nil || !strings.Contains(g.Explain, "no answer (partial: 30 samples so far)") {
			t.Errorf("%+v", g)
		}
	}
	d := rep.Document()
	var md, page bytes.Buffer
	if err := errors.Join(d.Markdown(&md), d.HTML(&page, nil)); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"Failed after 0 s:", "no answer Partial: the figures are those of 30 samples", "3 undecided"} {
		if !strings.Contains(strings.ReplaceAll(md.String(), "**", ""), want) || !strings.Contains(strings.NewReplacer("<strong>", "", "</strong>", "").Replace(page.String()), want) {
			t.Errorf("a report lacks %q", want)
		}
	}
	if !d.Experiments[0].Partial || strings.Count(page.String(), `class="state">undecided`) != 3 {
		t.Errorf("%+v", d.Experiments[0])
	}
}

// What the plan leaves out is told from what has no samples.
func TestBoundaries(t *testing.T) {
	some := QuickPlan()
	some.Boundaries = []string{ArmWorkspace}
	labels := tags{LabelWorkload: WorkloadInstall}
	samples := slices.Concat(timed(ArmBare, labels, 4, repeat(4, 6)...), timed(ArmCopy, labels, 4, repeat(6, 6)...), timed(ArmWorkspace, labels, 4, repeat(4.1, 6)...))
	e := filled(ExpOverhead, nil, samples...)
	if g := targetOf(t, TargetMachine, some, e); g.Value != NotMeasured || !strings.Contains(g.Explain, "the plan measures the boundaries workspace only") {
		t.Errorf("%+v", g)
	}
	if g := targetOf(t, TargetWorkspace, some, e); !g.Reached {
		t.Errorf("%+v", g)
	}
	run := NewRun(e, some)
	if !run.Wants(ArmWorkspace) || run.Wants(ArmMachine) || !NewRun(e, QuickPlan()).Wants(ArmMachine) {
		t.Error("what is wanted")
	}
	if some.Same(QuickPlan()) || !some.Same(some) || !strings.Contains(some.text(), "boundaries workspace,") {
		t.Errorf("the plan: %s", some.text())
	}
}

// A rate says with how many processors it was measured, which are those of the arm
// and not the machine's, and where it wrote.
func TestEngineSaysHow(t *testing.T) {
	e := everything(true)[3]
	rep := made(t, QuickPlan(), e)
	rep.Results[0].Environment.Facts = tags{FactProcs: "64"}
	for i := range rep.Results[0].Samples {
		if s := &rep.Results[0].Samples[i]; s.Arm == "engine" {
			s.Labels = maps.Clone(s.Labels)
			s.Labels["gomaxprocs"] = "2"
		}
	}
	for _, g := range Targets(rep) {
		if g.Name == TargetEngine && !strings.HasSuffix(g.Explain, "; rate: journal in memory; the arm has GOMAXPROCS 2") {
			t.Errorf("%q", g.Explain)
		}
	}
}

// Memory is flat when a transaction leaves nothing behind: beside a large cluster the
// heap as a whole hardly grows by what each of them leaks.
func TestEngineMemory(t *testing.T) {
	for _, tt := range []struct {
		name     string
		growth   float64
		retained []float64
		reached  bool
		value    string
	}{
		{"leaks beside a large heap", 1.02, repeat(200, 6), false, "memory +200 B a transaction"},
		{"flat", 1.02, repeat(1.5, 6), true, "memory +1.5 B a transaction"},
		{"less than before", 1, repeat(-1.5, 6), true, "memory -1.5 B a transaction"},
		{"a small heap that grows by what a collector leaves", 1.5, repeat(10, 6), true, "memory +10 B a transaction"},
		{"of an older run", 1.02, nil, true, "memory × 1.02"},
		{"of an older run, grown", 1.2, nil, false, "memory × 1.2"},
		{"half of it of an older run", 1.02, repeat(1, 3), false, "n = 3: too few to say"},
	} {
		var samples []Sample
		for i := range 6 {
			s := Sample{Arm: "engine", Rep: i, Labels: tags{LabelSandboxes: "1000"}, Metrics: nums{MetricTxRate: 2000, MetricGrowth: tt.growth}}
			if i < len(tt.retained) {
				s.Metrics["retained"] = tt.retained[i]
			}
			samples = append(samples, s)
		}
		g := targetOf(t, TargetEngine, QuickPlan(), filled(ExpScale, nil, samples...))
		if g.Reached != tt.reached || !strings.Contains(g.Value, tt.value) {
			t.Errorf("%s: reached %v: %s (%s)", tt.name, g.Reached, g.Value, g.Explain)
		}
	}
}

func TestSmallSamples(t *testing.T) {
	five, six := []float64{1, 2, 3, 4, 90}, []float64{1, 2, 3, 4, 5, 90}
	if in := MedianInterval(five); in != (Interval{1, 90, true}) || in.text(number) != " (range 1 to 90)" {
		t.Errorf("of five: %+v", in)
	}
	if in := MedianInterval(six); in.Range || in.Low < 1 || in.High > 90 {
		t.Errorf("of six: %+v", in)
	}
	if in := RatioInterval(five, []float64{1, 2, 1, 2, 1, 2, 1, 2}); in != (Interval{0.5, 90, true}) {
		t.Errorf("a ratio: %+v", in)
	}
	if in := DifferenceInterval(six, []float64{1, 3}); in != (Interval{-2, 89, true}) {
		t.Errorf("a difference: %+v", in)
	}
	// (a - bare) / (b - bare): 2 of 10.
	bare := repeat(4, 6)
	v, in := OverheadRatio([]float64{5.9, 6, 6.1, 6, 6, 6}, []float64{13, 14, 15, 14, 14, 14}, bare)
	if math.Abs(v-0.2) > 1e-9 || in.Range || in.Low > 0.2 || in.High < 0.2 || in.Low < 0.17 || in.High > 0.24 {
		t.Errorf("%v %+v", v, in)
	}
	// Where the copy may have cost nothing there is no bound.
	if v, in = OverheadRatio([]float64{6, 6}, []float64{4, 14, 14}, bare); math.Abs(v-0.2) > 1e-9 || in.text(number) != " (range 0.2 to no bound)" {
		t.Errorf("%v %+v", v, in)
	}
	if v, _ = OverheadRatio(six, nil, bare); !math.IsNaN(v) {
		t.Errorf("of nothing: %v", v)
	}
}
