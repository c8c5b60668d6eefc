package bench

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

type (
	nums = map[string]float64
	tags = map[string]string
)

// made is a finished run of results that were filled by hand.
func made(t *testing.T, plan Plan, exps ...Experiment) *Report {
	t.Helper()
	at := time.Date(2026, 3, 1, 2, 30, 0, 0, time.UTC)
	rep, err := (&Runner{
		Dir: filepath.Join(t.TempDir(), "run-a"), Plan: plan, Experiments: exps, Now: func() time.Time { return at },
		Environment: Environment{OS: "linux", Arch: "amd64", Cores: 2, CPU: "Some CPU", Memory: 8 << 30, Versions: tags{"go": "go1.26"}},
	}).Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return rep
}

// filled is an experiment that has these samples.
func filled(name string, metrics []Metric, samples ...Sample) Experiment {
	return Experiment{Name: name, Title: "About " + name, Method: "Made by hand.", Metrics: metrics, Run: func(_ context.Context, r *Run) error {
		r.Add(samples...)
		return nil
	}}
}

// timed are samples of an arm with these seconds, of which execute are the
// command's own.
func timed(arm string, labels tags, execute float64, seconds ...float64) []Sample {
	var out []Sample
	for i, v := range seconds {
		out = append(out, Sample{Arm: arm, Labels: labels, Rep: i, Metrics: nums{MetricSeconds: v}, Steps: nums{StepExecute: execute, StepSnapshot: v - execute}})
	}
	return out
}

// everything has samples for every target; better makes them reached.
func everything(better bool) []Experiment {
	pick := func(good, bad float64) float64 {
		if better {
			return good
		}
		return bad
	}
	install, other := tags{LabelWorkload: WorkloadInstall, LabelSize: PaperSize}, tags{LabelWorkload: WorkloadInstall, LabelSize: "10MB"}
	read, think := tags{LabelWorkload: WorkloadRead}, func(boundary string) tags { return tags{LabelThink: "2", "boundary": boundary} }
	w, m, ro, slow := pick(4.2, 4.5), pick(4.6, 5.1), pick(0.0102, 0.02), pick(2.03, 2.5)
	var overhead, turn, interception, scale []Sample
	add := func(to *[]Sample, arm string, labels tags, execute float64, seconds ...float64) {
		*to = append(*to, timed(arm, labels, execute, seconds...)...)
	}
	six := func(v float64) []float64 { return repeat(v, 6) }
	add(&overhead, ArmBare, install, 4, six(4)...)
	add(&overhead, ArmCopy, install, 4, 6.5, 6.4, 6.6, 6.5, 6.4, 6.6)
	add(&overhead, ArmWorkspace, install, 4, six(w)...)
	add(&overhead, ArmMachine, install, 4, six(m)...)
	// Another size of workspace is another question.
	add(&overhead, ArmWorkspace, other, 4, repeat(40, 7)...)
	add(&overhead, ArmBare, read, 0.01, six(0.01)...)
	add(&overhead, ArmNone, read, 0.01, six(ro)...)
	add(&turn, ArmBare, think("workspace"), 2, six(2)...)
	add(&turn, ArmSavepoint, think("workspace"), 2, six(2.01)...)
	add(&turn, ArmBare, think("machine"), 2, six(2)...)
	add(&turn, ArmSavepoint, think("machine"), 2, six(slow)...)
	add(&turn, ArmBare, tags{LabelThink: "8"}, 8, 8)
	add(&turn, ArmSavepoint, tags{LabelThink: "8"}, 8, 80)
	for range 60 {
		interception = append(interception,
			Sample{Arm: "blacklist", Metrics: nums{MetricDecision: 1e-4, MetricCaught: 1}}, Sample{Arm: "disguised", Metrics: nums{MetricDecision: pick(2e-4, 2e-3), MetricCaught: pick(1, 0)}})
	}
	rate := func(arm string, labels tags, v float64) Sample {
		return Sample{Arm: arm, Labels: labels, Metrics: nums{MetricTxRate: v, MetricGrowth: 1.02}}
	}
	for i := range 6 {
		scale = append(scale,
			rate("engine", tags{LabelSandboxes: "1000"}, pick(2000, 900)), rate("engine", tags{LabelSandboxes: "1"}, 90000),
			rate("journal", tags{"writers": "1"}, pick(800, 400)), rate("journal", tags{"writers": "16"}, 5000),
			Sample{Arm: "commit", Metrics: nums{MetricSyncs: 1, MetricCalls: pick(0, float64(min(1, i)))}})
	}
	return []Experiment{
		filled(ExpInterception, []Metric{{Name: MetricDecision, Unit: Seconds, Better: Lower}, {Name: MetricCaught, Unit: Share, Better: Higher, Exact: true}}, interception...),
		filled(ExpOverhead, nil, overhead...),
		filled(ExpAgentTurn, nil, turn...),
		filled(ExpScale, []Metric{{Name: MetricTxRate, Unit: PerSec, Better: Higher, Text: "journal in memory"}}, scale...),
		filled(ExpCrash, nil, Sample{Arm: "deaths", Metrics: nums{MetricSchedules: 4000, MetricViolations: 0}},
			Sample{Arm: "pairs", Metrics: nums{MetricSchedules: 500, MetricViolations: pick(0, 1), MetricPairs: 500, MetricPairsAll: 500}}),
		filled(ExpRollback, []Metric{{Name: MetricExact, Unit: Share}}, Sample{Arm: ArmWorkspace, Metrics: nums{MetricExact: 1}}, Sample{Arm: ArmMachine, Metrics: nums{MetricExact: pick(1, 0)}}),
		filled(ExpGemini, []Metric{{Name: MetricSuccess, Unit: Share}}, Sample{Arm: GeminiBare, Metrics: nums{MetricSuccess: 0}}),
	}
}

func TestTargets(t *testing.T) {
	for _, tt := range []struct {
		better bool
		want   map[string]string // words of the value
	}{
		{true, map[string]string{
			"policy decision, p99": "200 µs", "read-only command / bare SSH": "1.02 (1.02 to 1.02)",
			"overhead, workspace boundary / the paper's copy of 250 MB": "0.08 (0.0769 to 0.0833)", "overhead, machine boundary / the paper's copy of 250 MB": "0.24",
			"commit on the critical path": "1 sync, 0 calls", "overhead of a whole agent turn, 2 s of model time": "1.5 % (1.5 % to 1.5 %), boundary=machine",
			"engine, simulated hypervisor, 1,000 sandboxes": "2,000/s (2,000 to 2,000), memory × 1.02", "journal": "800/s (800 to 800), writers=1", "crash schedules explored": "0 of 4,500 schedules; pairs: 500 of 500",
		}},
		{false, map[string]string{
			"policy decision, p99": "2 ms", "read-only command / bare SSH": "2 (2 to 2)",
			"overhead, workspace boundary / the paper's copy of 250 MB": "0.2 (", "overhead, machine boundary / the paper's copy of 250 MB": "0.44",
			"commit on the critical path": "1 sync, 1 call", "overhead of a whole agent turn, 2 s of model time": "25 % (25 % to 25 %), boundary=machine",
			"engine, simulated hypervisor, 1,000 sandboxes": "900/s", "journal": "400/s", "crash schedules explored": "1 of 4,500 schedules",
		}},
	} {
		got := Targets(made(t, QuickPlan(), everything(tt.better)...))
		if len(got) != len(tt.want) {
			t.Fatalf("%d targets, want %d", len(got), len(tt.want))
		}
		for _, g := range got {
			// The turn is judged by its worst boundary: 1.5 % is reached.
			if g.Reached != tt.better || g.Undecided || !strings.HasPrefix(g.Value, tt.want[g.Name]) || g.Number == nil || g.Explain == "" {
				t.Errorf("%s: %+v, want %q", g.Name, g, tt.want[g.Name])
			}
		}
	}
}

// What was not measured is no target reached, whatever the reason.
func TestTargetsNotMeasured(t *testing.T) {
	skip := filled(ExpOverhead, nil)
	skip.Run = func(context.Context, *Run) error { return Skip("there is no guest") }
	fail := filled(ExpScale, nil)
	fail.Run = func(_ context.Context, r *Run) error {
		r.Add(Sample{Arm: "journal", Metrics: nums{MetricTxRate: 1e6}})
		return fmt.Errorf("disk full")
	}
	failed := Sample{Arm: "pairs", Metrics: nums{MetricSchedules: 10, MetricViolations: 0}, Err: "could not be played"}
	rep := made(t, QuickPlan(), skip, fail, filled(ExpAgentTurn, nil, timed(ArmBare, tags{LabelThink: "2"}, 2, 2)...),
		filled(ExpCrash, nil, Sample{Arm: "deaths", Metrics: nums{MetricSchedules: 10, MetricViolations: 0}}, failed))
	why := map[string]string{
		ExpInterception: "not in this run", ExpOverhead: "skipped: there is no guest", ExpScale: "failed: disk full", ExpAgentTurn: "no samples for it",
	}
	for _, g := range Targets(rep) {
		if g.Reached {
			t.Errorf("reached: %+v", g)
		}
		if g.Experiment == ExpCrash {
			if g.Value == NotMeasured || !strings.Contains(g.Value, "1 of 2 of those it is about failed") {
				t.Errorf("%+v", g)
			}
		} else if g.Name == TargetJournal { // what there is of an experiment that failed is shown
			if g.Value != "1,000,000/s, partial" || !g.Undecided || !strings.Contains(g.Explain, "failed: disk full (partial: 1 sample so far)") {
				t.Errorf("%+v", g)
			}
		} else if g.Value != NotMeasured || g.Number != nil || !strings.Contains(g.Explain, why[g.Experiment]) {
			t.Errorf("%+v", g)
		}
	}
	for _, f := range Paper(rep) {
		if f.Ours != NotMeasured {
			t.Errorf("the paper: %+v", f)
		}
	}
}

// Every ratio of ours names its base, and the paper's 14.5 % stands beside a
// whole turn and nothing else.
func TestPaper(t *testing.T) {
	rows := Paper(made(t, QuickPlan(), everything(true)...))
	text := map[string]PaperFigure{}
	for _, f := range rows {
		text[f.Paper+"|"+f.Item] = f
		if f.Ours == NotMeasured || f.Base == "" {
			t.Errorf("%+v", f)
		}
	}
	for key, want := range map[string]string{
		"100 % (20 of 20)|interception of black-listed commands":                  "100 % (60 of 60)",
		"100 % (20 of 20)|rollback restores the state":                            "100 % (2 of 2)",
		"4.69 s|direct execution":                                                 "4 s",
		"6.51 s|sandboxed execution, the paper's way":                             "6.5 s",
		"1.82 s|overhead per transaction, the paper's way":                        "2.5 s (2.4 s to 2.6 s)",
		"38.8 %|the same over direct execution":                                   "62.5 %",
		"14.5 %|overhead, base open":                                              "1.5 % (1.5 % to 1.5 %), boundary=machine",
		"0 % succeed, asks for sign-in|Gemini CLI, headless, without credentials": "0 % (0 of 1)",
	} {
		if text[key].Ours != want {
			t.Errorf("%s: %q, want %q", key, text[key].Ours, want)
		}
	}
	if f := text["14.5 %|overhead, base open"]; !strings.Contains(f.Base, "whole agent turn") {
		t.Errorf("the base of the turn: %q", f.Base)
	}
}
