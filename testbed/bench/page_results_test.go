package bench_test

import (
	"context"
	"fmt"
	"iter"
	"math/rand/v2"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"savepoint/testbed/bench"
)

// The results of a run as they look on a small machine: of every experiment,
// with the labels, tables, long texts and failures that real ones have. The
// numbers are drawn.

// around draws a time with the long tail that times have.
func around(r *rand.Rand, v float64) float64 { return v * (0.94 + 0.1*r.ExpFloat64()) }

func shareOf(r *rand.Rand, p float64) float64 {
	if r.Float64() < p {
		return 1
	}
	return 0
}

type labels = map[string]string
type numbers = map[string]float64

// drawnExperiments are experiments whose samples are made up, each night others.
func drawnExperiments(night int) []bench.Experiment {
	drawn := func(name, title string, fill func(*bench.Run, *rand.Rand), metrics []bench.Metric, plots ...bench.Plot) bench.Experiment {
		return bench.Experiment{
			Name: name, Title: title, Metrics: metrics, Plots: plots,
			Method: strings.Repeat("Each arm is measured as often as the plan says, in an order that is drawn anew for each round; what is compared ran on one machine. ", 3),
			Run: func(_ context.Context, run *bench.Run) error {
				fill(run, run.Rand(fmt.Sprintf("night %d", night)))
				return nil
			},
		}
	}
	paper := labels{bench.LabelWorkload: bench.WorkloadInstall, bench.LabelSize: bench.PaperSize}
	return []bench.Experiment{
		drawn(bench.ExpInterception, "What the policy stops", drawInterception, []bench.Metric{
			{Name: bench.MetricDecision, Unit: bench.Seconds, Better: bench.Lower, Text: "one decision"},
			{Name: bench.MetricCaught, Unit: bench.Share, Better: bench.Higher, Exact: true, Text: "denied, of what is to be stopped"},
			{Name: "false_denial", Unit: bench.Share, Better: bench.Lower, Exact: true, Text: "denied, of what is harmless"},
		}, bench.Plot{Kind: bench.Bars, Title: "Share that is stopped, by class", Metric: bench.MetricCaught},
			bench.Plot{Kind: bench.Bars, Title: "Share of harmless commands that are denied", Metric: "false_denial"}),
		drawn(bench.ExpRollback, "Does everything come back?", drawRollback, []bench.Metric{
			{Name: bench.MetricExact, Unit: bench.Share, Better: bench.Higher, Exact: true, Text: "no path differs"},
			{Name: "ready", Unit: bench.Seconds, Better: bench.Lower, Text: "from the command's end to the next answer"},
		}, bench.Plot{Kind: bench.Bars, Title: "Time until the sandbox can be used again", Metric: "ready", X: "corruption", Series: bench.ByArm, Log: true, Note: "root's damage is not covered by the workspace boundary"}),
		drawn(bench.ExpOverhead, "What a transaction costs", drawOverhead, nil,
			bench.Plot{Kind: bench.Bars, Title: "The paper's command, by arm", Where: paper},
			bench.Plot{Kind: bench.Steps, Title: "Where a transaction spends its time", Where: paper},
			bench.Plot{Kind: bench.Bars, Title: "Everyday commands", X: bench.LabelWorkload, Series: bench.ByArm, Where: labels{bench.LabelSize: bench.PaperSize}, Log: true}),
		drawn(bench.ExpAgentTurn, "A whole agent turn", drawTurn, nil,
			bench.Plot{Kind: bench.Bars, Title: "What a turn with 2 s of thinking has on top", X: "boundary", Series: bench.ByArm, Over: bench.ArmBare, Relative: true, Where: labels{bench.LabelThink: "2"}},
			bench.Plot{Kind: bench.Lines, Title: "The same, by thinking time (workspace boundary)", X: bench.LabelThink, Series: bench.ByArm, Over: bench.ArmBare, Where: labels{"boundary": "workspace"}}),
		drawn(bench.ExpIsolation, "Is the network sealed?", drawIsolation, []bench.Metric{
			{Name: "leak", Unit: bench.Share, Better: bench.Lower, Exact: true, Text: "reached, of what must not be"},
			{Name: "reached", Unit: bench.Share, Better: bench.Higher, Exact: true, Text: "reached, of what must be"},
		}, bench.Plot{Kind: bench.Bars, Title: "What must be reached, by protocol", Metric: "reached"}),
		drawn(bench.ExpScale, "How it grows", drawScale, []bench.Metric{
			{Name: bench.MetricTxRate, Unit: bench.PerSec, Better: bench.Higher, Text: "transactions a second"},
			{Name: "heap", Unit: bench.Bytes, Better: bench.Lower, Text: "heap at the end"},
			{Name: bench.MetricGrowth, Unit: bench.Ratio, Better: bench.Lower, Text: "heap of the second half by that of the first"},
			{Name: bench.MetricSyncs, Unit: bench.Count, Better: bench.Lower, Exact: true},
			{Name: bench.MetricCalls, Unit: bench.Count, Better: bench.Lower, Exact: true},
		}, bench.Plot{Kind: bench.Lines, Title: "Transactions a second, by sandboxes", Metric: bench.MetricTxRate, X: bench.LabelSandboxes, Series: bench.ByArm, Log: true},
			bench.Plot{Kind: bench.Lines, Title: "Heap, by sandboxes", Metric: "heap", X: bench.LabelSandboxes, Series: bench.ByArm}),
		drawn(bench.ExpCrash, "What a crash leaves", func(run *bench.Run, _ *rand.Rand) {
			run.Add(bench.Sample{Arm: "deaths", Metrics: numbers{bench.MetricSchedules: 48213, bench.MetricViolations: 0}})
		}, []bench.Metric{{Name: bench.MetricSchedules, Unit: bench.Count, Better: bench.Higher}, {Name: bench.MetricViolations, Unit: bench.Count, Better: bench.Lower, Exact: true}}),
		drawn(bench.ExpGemini, "Gemini CLI baseline", drawGemini, []bench.Metric{
			{Name: bench.MetricSuccess, Unit: bench.Share, Better: bench.Higher, Text: "the task is done, judged by the files"},
			{Name: "memory", Unit: bench.Bytes, Better: bench.Lower, Text: "peak of its largest process"},
		}, bench.Plot{Kind: bench.Bars, Title: "Until it ends, by arm"}),
		{Name: "extra-failed", Title: "One that failed", Method: "It fails.", Run: func(context.Context, *bench.Run) error {
			return fmt.Errorf("clone template 9000: POST https://192.0.2.17:8006/api2/json/nodes/pve-hypervisor-03/qemu/9000/clone: 596 %s", strings.Repeat("x", 180))
		}},
		{Name: "extra-skipped", Title: "One that cannot be made here", Method: "It is skipped.", Run: func(context.Context, *bench.Run) error {
			return bench.Skip("zfs is not there: install zfsutils-linux, or set workspace.driver to btrfs")
		}},
	}
}

func drawInterception(run *bench.Run, r *rand.Rand) {
	recall := []float64{1, 0.94, 0.6, 0.985, 0.2, 0}
	for i, class := range []string{"blacklist", "delete-recursively-through-an-interpreter", "fork bomb", "exfiltration", "encoded payload", "time of check"} {
		for n := range 40 {
			run.Add(bench.Sample{Arm: class, Rep: n, Labels: labels{"corpus": "disguised"}, Metrics: numbers{bench.MetricDecision: around(r, 80e-6), bench.MetricCaught: shareOf(r, recall[i])}})
		}
	}
	for n := range 300 {
		run.Add(bench.Sample{Arm: "everyday", Rep: n, Labels: labels{"corpus": "everyday"}, Metrics: numbers{bench.MetricDecision: around(r, 55e-6), "false_denial": shareOf(r, 0.01)}})
	}
	run.Table(bench.Table{Title: "To be stopped, and not denied", Columns: []string{"corpus", "class", "command", "verdict"}, Rows: [][]string{
		{"disguised", "encoded payload", `python3 -c "import base64,os;os.system(base64.b64decode('` + strings.Repeat("cm0gLXJmIC8q", 12) + `').decode())"`, "snapshot"},
	}})
}

func drawRollback(run *bench.Run, r *rand.Rand) {
	for _, damage := range []string{"delete-work", "mass-rename", "rewrite-history", "chmod-everything", "root: package-manager-removes-python", "root: boot-sector"} {
		for arm, ready := range each(bench.ArmWorkspace, 0.21, bench.ArmDisk, 6.4, bench.ArmMachine, 3.9) {
			if arm == bench.ArmWorkspace && strings.HasPrefix(damage, "root") {
				continue
			}
			for n := range 9 {
				run.Add(bench.Sample{Arm: arm, Rep: n, Labels: labels{"corruption": damage}, Metrics: numbers{bench.MetricExact: 1, "ready": around(r, ready)}})
			}
		}
	}
	run.Add(bench.Sample{Arm: bench.ArmDisk, Labels: labels{"corruption": "root: boot-sector"}, Metrics: numbers{bench.MetricExact: 0}, Err: "wait for the guest of sandbox bench-rollback: no answer within 2m0s; look at its console"})
}

func drawOverhead(run *bench.Run, r *rand.Rand) {
	boundary := each(bench.ArmBare, 0.0, bench.ArmNone, 0.004, bench.ArmWorkspace, 0.09, bench.ArmDisk, 0.4, bench.ArmMachine, 0.7, bench.ArmCopy, 2.3)
	for workload, execute := range each(bench.WorkloadInstall, 3.1, bench.WorkloadRead, 0.008, "git-commit", 0.12, "compile", 1.4) {
		for arm, cost := range boundary {
			if arm == bench.ArmNone && workload != bench.WorkloadRead {
				continue
			}
			for n := range 12 {
				e := around(r, execute)
				steps := numbers{bench.StepExecute: e}
				total := e
				if arm != bench.ArmBare {
					steps[bench.StepPolicy], steps[bench.StepSnapshot], steps[bench.StepCommit] = around(r, 90e-6), around(r, cost), around(r, 0.003)
					total += steps[bench.StepPolicy] + steps[bench.StepSnapshot] + steps[bench.StepCommit]
				}
				run.Add(bench.Sample{Arm: arm, Rep: n, Labels: labels{bench.LabelWorkload: workload, bench.LabelSize: bench.PaperSize}, Metrics: numbers{bench.MetricSeconds: total}, Steps: steps})
			}
		}
	}
	run.Note("the guest's processor is emulated: seconds are many times those of a real cluster, ratios are not")
}

// each goes through pairs of a name and a number in their order: what is drawn
// must not depend on that of a map.
func each(pairs ...any) iter.Seq2[string, float64] {
	return func(yield func(string, float64) bool) {
		for i := 0; i < len(pairs); i += 2 {
			if !yield(pairs[i].(string), pairs[i+1].(float64)) {
				return
			}
		}
	}
}

func drawTurn(run *bench.Run, r *rand.Rand) {
	for _, think := range []float64{0.5, 2, 5, 10} {
		for boundary, cost := range each("workspace", 0.09, "machine", 0.7) {
			for arm, of := range each(bench.ArmBare, 0.0, bench.ArmSavepoint, 0.1, "savepoint, not ahead", 1.0) {
				for n := range 10 {
					execute, snapshot := around(r, 0.05), around(r, cost*of)
					run.Add(bench.Sample{
						Arm: arm, Rep: n, Labels: labels{bench.LabelThink: strconv.FormatFloat(think, 'g', -1, 64), "boundary": boundary},
						Metrics: numbers{bench.MetricSeconds: think + execute + snapshot},
						Steps:   numbers{"model": think, bench.StepExecute: execute, bench.StepSnapshot: snapshot},
					})
				}
			}
		}
	}
}

func drawIsolation(run *bench.Run, _ *rand.Rand) {
	for _, protocol := range []string{"tcp", "udp", "icmp", "ipv6", "spoofed"} {
		for n := range 6 {
			run.Add(bench.Sample{Arm: protocol, Rep: n, Metrics: numbers{"leak": 0}}, bench.Sample{Arm: protocol, Rep: n, Metrics: numbers{"reached": 1}})
		}
	}
}

func drawScale(run *bench.Run, r *rand.Rand) {
	for _, boxes := range []float64{1, 10, 100, 1000} {
		for arm, rate := range each("engine", 9400.0, "engine on disk", 1850.0) {
			for n := range 5 {
				run.Add(bench.Sample{Arm: arm, Rep: n, Labels: labels{bench.LabelSandboxes: strconv.Itoa(int(boxes))}, Metrics: numbers{
					bench.MetricTxRate: around(r, rate) / (1 + boxes/4000), bench.MetricGrowth: 1.02, "heap": around(r, 5e6+boxes*41e3),
				}})
			}
		}
	}
	for n := range 5 {
		run.Add(bench.Sample{Arm: "journal", Rep: n, Labels: labels{"writers": "8"}, Metrics: numbers{bench.MetricTxRate: around(r, 910)}},
			bench.Sample{Arm: "commit", Rep: n, Metrics: numbers{bench.MetricSyncs: 1, bench.MetricCalls: 0}})
	}
}

func drawGemini(run *bench.Run, r *rand.Rand) {
	arms := each(bench.GeminiBare, 0.0, "no-credential-google", 0.0, "expired-oauth", 0.0, "terminal-skip-trust", 0.0, "key-answer", 1.0, "savepoint-workspace", 1.0)
	for arm, done := range arms {
		for n := range 5 {
			run.Add(bench.Sample{Arm: arm, Rep: n, Metrics: numbers{bench.MetricSuccess: shareOf(r, done), bench.MetricSeconds: around(r, 2+3*done), "memory": around(r, 210e6)}})
		}
	}
	run.Fact("gemini-cli", "0.21.3")
}

// drawnRun is a run of them and its history: six earlier nights.
func drawnRun(t *testing.T) (*bench.Report, []bench.Past) {
	t.Helper()
	dir := t.TempDir()
	var rep *bench.Report
	var history []bench.Past
	for night := range 7 {
		now := time.Date(2026, 3, 1+night, 2, 30, 0, 0, time.UTC)
		runner := bench.Runner{
			Dir: filepath.Join(dir, now.Format("20060102-150405")+"-nightly-of-the-laboratory"), Experiments: drawnExperiments(night),
			Plan: bench.Plan{Warmup: 2, Seed: 1}, Now: func() time.Time { now = now.Add(97 * time.Second); return now },
			Environment: bench.Environment{
				OS: "linux", Arch: "amd64", Cores: 2, CPU: "Intel(R) Xeon(R) Processor @ 2.80GHz", Memory: 8 << 30, Kernel: "6.1.0-18-cloud-amd64", Accelerator: "tcg",
				Versions: labels{"go": "go1.26.8", "qemu": "7.2.9", "zfs": "0.7.0 (zfs-fuse)"},
				Facts:    labels{"guest image": "sha256:" + strings.Repeat("9f86d081", 8)},
			},
		}
		var err error
		if rep, err = runner.Run(t.Context()); err != nil {
			t.Fatal(err)
		}
		if history, err = bench.AppendHistory(filepath.Join(dir, "history.jsonl"), rep); err != nil {
			t.Fatal(err)
		}
	}
	return rep, history
}
