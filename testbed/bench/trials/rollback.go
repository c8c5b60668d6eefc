package trials

import (
	"context"
	"fmt"
	"strings"
	"time"

	"savepoint/orchestrator"
	"savepoint/policy"
	"savepoint/testbed/bench"
)

// labelDamage names the damage of a sample of the rollback experiment.
const labelDamage = "corruption"

const metricReady = "ready"

// compared are the trees whose files must be as before. What the system itself
// writes while it runs and boots (logs, caches, random seeds) is not in them.
func compared(quick bool) []string {
	all := []string{"/etc", "/root", "/home/agent", "/workspace"}
	if quick { // the digests of all programs take a minute on an emulated guest
		return all
	}
	return append(all, "/usr/bin", "/usr/sbin", "/boot")
}

// Rollback ruins the sandbox in every way it knows, inside every boundary that
// covers it, and looks whether it comes back.
func Rollback(g *Rig) bench.Experiment {
	return bench.Experiment{
		Name: bench.ExpRollback, Title: "Does everything come back?",
		Method: fmt.Sprintf(`%d kinds of damage, those of the agent's account inside every boundary, those of root inside the boundaries disk and machine: the workspace boundary does not cover root, and the engine refuses it there. Each is one transaction: it runs, proves by its exit code that it took, fails, and is rolled back. Then every path below %s (in a quick run: %s) is compared with what it was before: kind, mode, owner, extended attributes, flags, link target, content. "ready" is the time from the end of the command until the next command has answered.`,
			len(damages()), strings.Join(compared(false), ", "), strings.Join(compared(true), ", ")),
		Metrics: []bench.Metric{
			{Name: bench.MetricExact, Unit: bench.Share, Better: bench.Higher, Exact: true, Text: "no path differs"},
			{Name: metricReady, Unit: bench.Seconds, Better: bench.Lower, Text: "from the command's end to the next answer"},
		},
		Plots: []bench.Plot{{
			Kind: bench.Bars, Title: "Time until the sandbox can be used again", Metric: metricReady, X: labelDamage, Series: bench.ByArm,
		}},
		Quick: 45 * time.Second, Full: 6 * time.Hour,
		Run: g.rollback,
	}
}

// quickDamages are those that a quick run tries.
var quickDamages = map[string]bool{
	"delete-work": true, "background": true, "attributes": true, "etc": true,
}

func (g *Rig) rollback(ctx context.Context, r *bench.Run) error {
	sb, err := g.ready(ctx, r)
	if err != nil {
		return err
	}
	if err := g.plant(ctx, sb); err != nil {
		return err
	}
	roots := compared(r.Plan.Quick)
	before, err := g.Examiner.Manifest(ctx, sb, orchestrator.ManifestRequest{Roots: roots, Hash: true})
	if err != nil {
		return fmt.Errorf("list the files before: %w", err)
	}
	r.Fact("paths compared", fmt.Sprint(len(before.Entries)))
	var table [][]string
	var arms []bench.Arm
	for _, d := range damages() {
		row := []string{d.name, d.what, string(d.as)}
		for _, b := range []orchestrator.Boundary{orchestrator.BoundaryWorkspace, orchestrator.BoundaryDisk, orchestrator.BoundaryMachine} {
			switch {
			case b == orchestrator.BoundaryWorkspace && sb.Workspace == "":
				row = append(row, "the sandbox has no workspace volume")
			case b == orchestrator.BoundaryWorkspace && d.as == policy.Root:
				row = append(row, "not covered, refused")
			case r.Plan.Quick && !quickly(d, b):
				row = append(row, "not in a quick run")
			default:
				row = append(row, "tried")
				arms = append(arms, g.ruin(sb, &before, roots, d, b))
			}
		}
		table = append(table, row)
	}
	r.Table(bench.Table{Title: "Damages and boundaries", Columns: []string{"damage", "what", "account", "workspace", "disk", "machine"}, Rows: table})
	return bench.Interleave(ctx, r, arms, r.Reps(1, 20), 0)
}

func quickly(d damage, b orchestrator.Boundary) bool {
	least := orchestrator.BoundaryMachine
	if d.as == policy.Agent {
		least = orchestrator.BoundaryWorkspace
	}
	return quickDamages[d.name] && b == least
}

// plant makes what the damages ruin.
func (g *Rig) plant(ctx context.Context, sb orchestrator.Sandbox) error {
	if err := g.send(ctx, sb, map[string]string{"seed.sh": seed}); err != nil {
		return err
	}
	_, err := g.bare(ctx, sb, "sh "+stage+"/seed.sh", nil)
	return err
}

// ruin is the arm of one damage in one boundary. before is what the sandbox is
// compared with; a sandbox that did not come back is made anew, and so is that.
func (g *Rig) ruin(sb orchestrator.Sandbox, before *orchestrator.Manifest, roots []string, d damage, b orchestrator.Boundary) bench.Arm {
	whole := true
	return bench.Arm{
		Name: string(b), Labels: map[string]string{labelDamage: d.name},
		Do: func(ctx context.Context) (bench.Sample, error) {
			whole = false
			sample, out, err := transact(ctx, g.Engine, orchestrator.Spec{
				Sandbox: sb, Command: d.command(), As: d.as, Boundary: b, Timeout: time.Minute,
			})
			sample.Metrics[bench.MetricExact] = 0
			if err != nil {
				return sample, err
			}
			if err := undone(out); err != nil {
				return sample, err
			}
			began := time.Now()
			if _, err := committed(ctx, g.Engine, orchestrator.Spec{Sandbox: sb, Command: "ls /"}); err != nil {
				return sample, fmt.Errorf("use the sandbox afterwards: %w", err)
			}
			sample.Metrics[metricReady] = out.Timings.Rollback.Seconds() + time.Since(began).Seconds()
			after, err := g.Examiner.Manifest(ctx, sb, orchestrator.ManifestRequest{Roots: roots, Hash: true})
			if err != nil {
				return sample, fmt.Errorf("list the files afterwards: %w", err)
			}
			if diff := before.Diff(after); len(diff) > 0 {
				return sample, fmt.Errorf("%d paths differ, the first: %s %s (%s)", len(diff), diff[0].Path, diff[0].Kind, diff[0].What)
			}
			sample.Metrics[bench.MetricExact], whole = 1, true
			return sample, nil
		},
		Undo: func(ctx context.Context) error {
			if whole {
				_, err := g.Engine.Collect(ctx)
				return err
			}
			return g.replant(ctx, sb, before, roots)
		},
	}
}

// undone says why an outcome is not a damage that took and was rolled back.
func undone(out orchestrator.Outcome) error {
	switch {
	case out.State != orchestrator.StateRolledBack:
		return fmt.Errorf("it is %s: %s", out.State, out.Reason)
	case out.ExitCode != nil && *out.ExitCode != 1: // without one, the damage took the connection away
		return fmt.Errorf("the damage did not take: exit %d: %s", *out.ExitCode, firstLine([]byte(out.Stderr)))
	}
	return nil
}

// replant makes the sandbox as at the start of the experiment.
func (g *Rig) replant(ctx context.Context, sb orchestrator.Sandbox, before *orchestrator.Manifest, roots []string) error {
	if err := g.reset(ctx, sb); err != nil {
		return err
	}
	if err := g.plant(ctx, sb); err != nil {
		return err
	}
	m, err := g.Examiner.Manifest(ctx, sb, orchestrator.ManifestRequest{Roots: roots, Hash: true})
	if err == nil {
		*before = m
	}
	return err
}
