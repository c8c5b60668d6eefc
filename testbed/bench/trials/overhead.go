package trials

import (
	"context"
	"fmt"
	"time"

	"savepoint/orchestrator"
	"savepoint/policy"
	"savepoint/testbed/bench"
)

// Overhead compares what commands cost bare, the paper's way, and inside each
// boundary.
func Overhead(g *Rig) bench.Experiment {
	return bench.Experiment{
		Name: bench.ExpOverhead, Title: "What a transaction costs",
		Method: `The paper's command (an installation with pip, from a local directory, of a package that is made for it) and everyday commands, each: bare over the sandbox's SSH connection; the paper's way (the workspace, ` + bench.PaperSize + ` unless the label says otherwise, is copied in the guest before, the command runs, the copy is dropped: cp -a and rm); and as a transaction in each boundary. A commit ends the measurement; deletions come later and are not in it. Commands under savepoint are judged, recorded durably and synced to the guest's disk; the others are not. Overhead is what is not the command's own time.`,
		Plots: []bench.Plot{
			{Kind: bench.Bars, Title: "The paper's command, by arm", Where: map[string]string{bench.LabelWorkload: bench.WorkloadInstall, bench.LabelSize: bench.PaperSize}},
			{Kind: bench.Steps, Title: "Where a transaction spends its time", Where: map[string]string{bench.LabelWorkload: bench.WorkloadInstall, bench.LabelSize: bench.PaperSize}},
			{Kind: bench.Bars, Title: "Everyday commands", X: bench.LabelWorkload, Series: bench.ByArm, Where: map[string]string{bench.LabelSize: bench.PaperSize}},
		},
		Quick: 110 * time.Second, Full: 50 * time.Minute,
		Run: g.overhead,
	}
}

func (g *Rig) overhead(ctx context.Context, r *bench.Run) error {
	sb, err := g.ready(ctx, r)
	if err != nil {
		return err
	}
	if res, err := g.bare(ctx, sb, "python3 -m pip --version", nil); err != nil {
		r.Note("the guest has no pip, so the paper's command is not measured: %v", err)
	} else {
		r.Fact("pip", firstLine(res.Stdout))
	}
	for _, mb := range []int{250, 10, 1000} {
		size := sizes()[mb]
		if r.Plan.Quick && size != bench.PaperSize {
			continue
		}
		if _, err := g.bare(ctx, sb, "sh "+stage+"/fill-"+size+".sh", nil); err != nil {
			return fmt.Errorf("fill the workspace with %s: %w", size, err)
		}
		changing, reading := g.arms(sb, size, r.Plan.Quick)
		// What reads is short, and its ratio is close to 1.
		if err := bench.Interleave(ctx, r, reading, r.Reps(12, 60), r.Plan.Warmup); err != nil {
			return err
		}
		warmup := r.Plan.Warmup
		if r.Plan.Quick { // a round is a minute, and its medians are far apart
			warmup = 0
		}
		if err := bench.Interleave(ctx, r, changing, r.Reps(2, 20), warmup); err != nil {
			return err
		}
	}
	// The next experiment lists what is in the workspace.
	if _, err := g.bare(ctx, sb, "sh "+stage+"/clean.sh && rm -rf /workspace/fill /workspace/.filled", nil); err != nil {
		return err
	}
	_, err = g.Engine.Collect(ctx)
	return err
}

// arms are the commands, in everything they are measured in: those that change
// something, and those that read. Workspaces of other sizes than the paper's are
// for what a size matters to.
func (g *Rig) arms(sb orchestrator.Sandbox, size string, quick bool) (changing, reading []bench.Arm) {
	for _, w := range workloads() {
		if quick && !w.quick || size != bench.PaperSize && w.name != bench.WorkloadInstall {
			continue
		}
		labels := map[string]string{bench.LabelWorkload: w.name, bench.LabelSize: size}
		bare := bench.Arm{Name: bench.ArmBare, Labels: labels, Setup: g.cleaned(sb, w), Do: g.doBare(sb, w)}
		if w.reads {
			reading = append(reading, bare, bench.Arm{Name: bench.ArmNone, Labels: labels, Do: g.doBoundary(sb, w, orchestrator.BoundaryNone)})
			continue
		}
		changing = append(changing, bare, bench.Arm{Name: bench.ArmCopy, Labels: labels, Setup: g.cleaned(sb, w), Do: g.doCopy(sb, w)})
		for _, b := range covering(sb) {
			if quick && b == orchestrator.BoundaryDisk { // it boots, and no figure to reach is about it
				continue
			}
			changing = append(changing, bench.Arm{Name: string(b), Labels: labels, Setup: g.cleaned(sb, w), Do: g.doBoundary(sb, w, b)})
		}
	}
	return changing, reading
}

// cleaned takes away what the last run of the workload made, and what the engine
// has to spare, which a process that stays does between two commands.
func (g *Rig) cleaned(sb orchestrator.Sandbox, w workload) func(context.Context) error {
	return func(ctx context.Context) error {
		if w.clean != "" {
			if _, err := g.bare(ctx, sb, "sh "+stage+"/clean.sh", nil); err != nil {
				return err
			}
		}
		_, err := g.Engine.Collect(ctx)
		return err
	}
}

func (g *Rig) doBare(sb orchestrator.Sandbox, w workload) func(context.Context) (bench.Sample, error) {
	return func(ctx context.Context) (bench.Sample, error) {
		began := time.Now()
		_, err := g.bare(ctx, sb, w.command, nil)
		took := time.Since(began).Seconds()
		return bench.Sample{Metrics: map[string]float64{bench.MetricSeconds: took}, Steps: map[string]float64{bench.StepExecute: took}}, err
	}
}

// doCopy is the paper's way.
func (g *Rig) doCopy(sb orchestrator.Sandbox, w workload) func(context.Context) (bench.Sample, error) {
	return func(ctx context.Context) (bench.Sample, error) {
		steps, total := map[string]float64{}, 0.0
		for _, step := range []struct{ name, command string }{
			{bench.StepSnapshot, "sh " + stage + "/copy.sh"},
			{bench.StepExecute, w.command},
			{bench.StepCommit, "sh " + stage + "/drop.sh"},
		} {
			began := time.Now()
			_, err := g.bare(ctx, sb, step.command, nil)
			steps[step.name] = time.Since(began).Seconds()
			total += steps[step.name]
			if err != nil {
				return bench.Sample{Steps: steps}, err
			}
		}
		return bench.Sample{Metrics: map[string]float64{bench.MetricSeconds: total}, Steps: steps}, nil
	}
}

// doBoundary runs it as a transaction: by the agent where the workspace covers
// it, by root elsewhere.
func (g *Rig) doBoundary(sb orchestrator.Sandbox, w workload, b orchestrator.Boundary) func(context.Context) (bench.Sample, error) {
	as := policy.Root
	if b == orchestrator.BoundaryWorkspace || b == orchestrator.BoundaryNone {
		as = policy.Agent
	}
	return func(ctx context.Context) (bench.Sample, error) {
		return committed(ctx, g.Engine, orchestrator.Spec{Sandbox: sb, Command: w.command, As: as, Boundary: b})
	}
}
