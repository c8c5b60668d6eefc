package trials

import (
	"context"
	"fmt"
	"time"

	"savepoint/orchestrator"
	"savepoint/policy"
	"savepoint/testbed/bench"
)

// Arms beside those of package bench.
const (
	armShutil  = "copy, shutil"      // the paper's copy, by Python's shutil
	armCopied  = "copy, rolled back" // the paper's way of a command that fails
	rolledBack = ", rolled back"     // after the name of a boundary
)

// Overhead compares what commands cost bare, the paper's way, and inside each
// boundary.
func Overhead(g *Rig) bench.Experiment {
	return bench.Experiment{
		Name: bench.ExpOverhead, Title: "What a transaction costs",
		Method: `An installation with pip, from a local directory, of a package that is made for it (that the paper's command is a pip install, one of its readers says), and everyday commands, each: bare over the sandbox's SSH connection; the paper's way (the workspace, ` + bench.PaperSize + ` unless the label says otherwise, is copied in the guest before, the command runs, the copy is dropped: cp -a and rm; in a full run also by Python's shutil, which the paper's prototype is said to use); and as a transaction in each boundary. A command that only reads is bare, and proved to read. A commit ends the measurement; deletions come later and are not in it. A full run also has a command that fails: the paper's way copies the workspace back, and a transaction is rolled back, until the sandbox can be used. Commands under savepoint are judged, recorded durably and synced to the guest's disk; the others are not. A quick run has a short command that edits files in place of the installation, and its targets are about that; and the command that reads, without the disk boundary unless it is asked for.`,
		Plots: []bench.Plot{
			{Kind: bench.Bars, Title: "The installation, by arm", Where: map[string]string{bench.LabelWorkload: bench.WorkloadInstall, bench.LabelSize: bench.PaperSize}},
			{Kind: bench.Steps, Title: "Where a transaction spends its time", Where: map[string]string{bench.LabelWorkload: bench.WorkloadInstall, bench.LabelSize: bench.PaperSize}},
			{Kind: bench.Steps, Title: "Where a short one spends its time", Where: map[string]string{bench.LabelWorkload: bench.WorkloadEdit, bench.LabelSize: bench.PaperSize}},
			{Kind: bench.Bars, Title: "Everyday commands", X: bench.LabelWorkload, Series: bench.ByArm, Where: map[string]string{bench.LabelSize: bench.PaperSize}},
			{Kind: bench.Steps, Title: "A command that fails", Where: map[string]string{bench.LabelWorkload: workloadFails, bench.LabelSize: bench.PaperSize}},
		},
		Quick: 90 * time.Second, Full: 2 * time.Hour,
		Run: g.overhead,
	}
}

func (g *Rig) overhead(ctx context.Context, r *bench.Run) error {
	sb, err := g.ready(ctx, r)
	if err != nil {
		return err
	}
	if !r.Plan.Quick { // a quick run installs nothing
		g.notePip(ctx, r, sb)
	}
	for _, mb := range []int{250, 10, 1000} {
		size := sizes()[mb]
		if r.Plan.Quick && size != bench.PaperSize {
			continue
		}
		if _, err := g.bare(ctx, sb, "sh "+stage+"/fill-"+size+".sh", nil); err != nil {
			return fmt.Errorf("fill the workspace with %s: %w", size, err)
		}
		a := g.arms(r, sb, size)
		warmup := r.Plan.Warmup
		if r.Plan.Quick { // a round is long, and what it warms is warm after the first arm
			warmup = 0
		}
		for _, part := range []struct {
			arms         []bench.Arm
			reps, warmup int
		}{
			{a.install, r.Reps(5, 20), warmup},
			{a.others, r.Reps(5, 10), warmup},
			// What reads is short, and its ratio is close to 1. It comes last: a guest
			// whose disk was just filled is at work for a while.
			{a.reading, r.Reps(30, 60), r.Plan.Warmup},
		} {
			if err := bench.Interleave(ctx, r, part.arms, part.reps, part.warmup); err != nil {
				return err
			}
		}
	}
	// The next experiment lists what is in the workspace.
	if _, err := g.bare(ctx, sb, "sh "+stage+"/clean.sh && rm -rf /workspace/fill /workspace/.filled", nil); err != nil {
		return err
	}
	_, err = g.Engine.Collect(ctx)
	return err
}

// notePip says with which pip the guest installs.
func (g *Rig) notePip(ctx context.Context, r *bench.Run, sb orchestrator.Sandbox) {
	res, err := g.bare(ctx, sb, "python3 -m pip --version", nil)
	if err != nil {
		r.Note("the guest has no pip, so the installation is not measured: %v", err)
		return
	}
	r.Fact("pip", firstLine(res.Stdout))
}

// armSet are the commands, in everything they are measured in.
type armSet struct{ reading, install, others []bench.Arm }

// arms are those of the plan. Workspaces of other sizes than the paper's are for
// what a size matters to.
func (g *Rig) arms(r *bench.Run, sb orchestrator.Sandbox, size string) (a armSet) {
	for _, w := range workloads() {
		if r.Plan.Quick && !w.quick || size != bench.PaperSize && w.name != bench.WorkloadInstall {
			continue
		}
		labels := map[string]string{bench.LabelWorkload: w.name, bench.LabelSize: size}
		if w.reads {
			a.reading = append(
				a.reading,
				bench.Arm{Name: bench.ArmBare, Labels: labels, Do: g.doBare(sb, w)},
				bench.Arm{Name: bench.ArmNone, Labels: labels, Do: g.doBoundary(sb, w, orchestrator.BoundaryNone)},
			)
			continue
		}
		arms := []bench.Arm{{Name: bench.ArmBare, Do: g.doBare(sb, w)}}
		switch {
		case w.fails:
			arms = append(arms, bench.Arm{Name: armCopied, Do: g.doCopy(sb, w, "copy.sh", "back.sh")})
		default:
			arms = append(arms, bench.Arm{Name: bench.ArmCopy, Do: g.doCopy(sb, w, "copy.sh", "drop.sh")})
		}
		if w.name == bench.WorkloadInstall && !r.Plan.Quick {
			arms = append(arms, bench.Arm{Name: armShutil, Do: g.doCopy(sb, w, "shutil.sh", "shutil-drop.sh")})
		}
		for _, b := range covering(sb) {
			// The disk boundary boots to roll back, and no figure to reach is about it.
			if !r.Wants(string(b)) || r.Plan.Quick && b == orchestrator.BoundaryDisk && len(r.Plan.Boundaries) == 0 {
				continue
			}
			name := string(b)
			if w.fails {
				name += rolledBack
			}
			arms = append(arms, bench.Arm{Name: name, Do: g.doBoundary(sb, w, b)})
		}
		for i := range arms {
			arms[i].Labels, arms[i].Setup = labels, g.cleaned(sb, w)
		}
		if w.name == bench.WorkloadInstall {
			a.install = append(a.install, arms...)
		} else {
			a.others = append(a.others, arms...)
		}
	}
	return a
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
		took, err := g.ends(ctx, sb, w.command, w.fails)
		return bench.Sample{Metrics: map[string]float64{bench.MetricSeconds: took}, Steps: map[string]float64{bench.StepExecute: took}}, err
	}
}

// ends is how long a bare command took, in seconds. One that is to fail ends with
// failed, and nothing else.
func (g *Rig) ends(ctx context.Context, sb orchestrator.Sandbox, command string, fails bool) (float64, error) {
	res, took, err := g.timed(ctx, sb, command, nil)
	switch {
	case fails && res.ExitCode == failed:
		err = nil
	case fails && err == nil:
		err = fmt.Errorf("%s: exit %d, and %d was expected", command, res.ExitCode, failed)
	}
	return took, err
}

// doCopy is the paper's way: the workspace is copied by one script, and the other
// drops the copy, or puts it back after a command that fails.
func (g *Rig) doCopy(sb orchestrator.Sandbox, w workload, snapshot, end string) func(context.Context) (bench.Sample, error) {
	last := bench.StepCommit
	if w.fails {
		last = bench.StepRollback
	}
	return func(ctx context.Context) (bench.Sample, error) {
		steps, total := map[string]float64{}, 0.0
		for _, step := range []struct {
			name, command string
			fails         bool
		}{
			{bench.StepSnapshot, "sh " + stage + "/" + snapshot, false},
			{bench.StepExecute, w.command, w.fails},
			{last, "sh " + stage + "/" + end, false},
		} {
			took, err := g.ends(ctx, sb, step.command, step.fails)
			steps[step.name] = took
			total += took
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
	spec := orchestrator.Spec{Sandbox: sb, Command: w.command, As: policy.Root, Boundary: b}
	if b == orchestrator.BoundaryWorkspace || b == orchestrator.BoundaryNone {
		spec.As = policy.Agent
	}
	return func(ctx context.Context) (bench.Sample, error) {
		if !w.fails {
			return committed(ctx, g.Engine, spec)
		}
		sample, out, err := transact(ctx, g.Engine, spec)
		if err == nil && (out.State != orchestrator.StateRolledBack || out.ExitCode == nil || *out.ExitCode != failed) {
			err = fmt.Errorf("%s: it is %s, and it was to fail and be rolled back: %s: %s", w.command, out.State, out.Reason, firstLine([]byte(out.Stderr)))
		}
		return sample, err
	}
}
