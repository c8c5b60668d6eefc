package trials

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"savepoint/orchestrator"
	"savepoint/policy"
	"savepoint/testbed/bench"
)

// labelDamage names the damage of a sample of the rollback experiment.
const labelDamage = "corruption"

const metricReady, metricCompare = "ready", "compare"

// fullEvery is after how many samples the big trees are read again.
const fullEvery = 10

// Rollback ruins the sandbox in every way it knows, inside every boundary that
// covers it, and looks whether it comes back.
func Rollback(g *Rig) bench.Experiment {
	return bench.Experiment{
		Name: bench.ExpRollback, Title: "Does everything come back?",
		Method: fmt.Sprintf(`%d kinds of damage: %d of the agent's account inside every boundary, %d of root inside the boundaries disk and machine. The workspace boundary does not cover root: that the engine refuses it there is tried. Each sample is one transaction: the damage looks itself whether it took and exits %d (%d when it did not), and is rolled back for that; another exit code is a failed sample. One takes the network away, so that no exit code can come: it announces that, looks too, and its %d would come over a network that is still there; it counts when nothing more was heard and savepoint gave the silent connection up by itself, never when its time limit of %s came first or its end was lost at once. A guest that hung in that moment would look the same. Then every path of the guest is compared with what was there before: kind, mode, owner, group, size, number of links, inode, device, flags, extended attributes, link target, mtime and ctime to the nanosecond. Left out is what the system writes while it runs: %s but for /var/lib/dpkg and /dev/shm. After a boot, which the boundary disk takes, times and inodes below %s are not compared, because a boot writes there, and %s not at all, because it may empty them. Content is compared by SHA-256. Below %s the content, flags and extended attributes are read in one of %d samples and once at the end only, the rest each time. That is sound: nobody can change them without another ctime afterwards, unless the clock is changed, and after the damage that does so everything is read; and what the others did not read is read later, and held against what it was first. A quick run reads none of it. No process that a damage started may be left, and services it ended have to be alive. What a snapshot cannot know is not compared: memory. Nothing is listed twice: what was found exact is what the next sample is held against. "ready" is the time from the end of the command until the next command has answered.`,
			len(damages()), len(agentDamages()), len(rootDamages()), take, noTake, noTake, cutLimit, strings.Join(treeSkips, ", "), strings.Join(treeBoot, " and "), strings.Join(treeEmpty, " and "), strings.Join(treeBig, " and "), fullEvery),
		Metrics: []bench.Metric{
			{Name: bench.MetricExact, Unit: bench.Share, Better: bench.Higher, Exact: true, Text: "no path differs"},
			{Name: metricReady, Unit: bench.Seconds, Better: bench.Lower, Text: "from the command's end to the next answer"},
			{Name: metricCompare, Unit: bench.Seconds, Text: "to list all files and compare them"},
		},
		Plots: []bench.Plot{{
			Kind: bench.Bars, Title: "Time until the sandbox can be used again", Metric: metricReady, X: labelDamage, Series: bench.ByArm,
		}},
		Quick: 35 * time.Second, Full: 8 * time.Hour, OneStage: true,
		Run: g.rollback,
	}
}

// ruins is what the arms of the experiment share.
type ruins struct {
	g     *Rig
	sb    orchestrator.Sandbox
	quick bool // the big trees are never read
	// before is what the next sample has to be like. A sandbox that did not come back
	// is made anew, and so is this.
	before files
	n      int // samples until now
}

func (g *Rig) rollback(ctx context.Context, r *bench.Run) error {
	sb, err := g.ready(ctx, r)
	if err != nil {
		return err
	}
	e := &ruins{g: g, sb: sb, quick: r.Plan.Quick}
	if err := e.plant(ctx); err != nil {
		return err
	}
	r.Fact("paths compared", fmt.Sprint(len(e.before.all)))
	r.Fact("files read in full", fmt.Sprint(e.before.read()))
	var arms []bench.Arm
	var rows []row
	for _, d := range damages() {
		w := row{damage: d, cells: cells{}}
		for _, b := range boundaries {
			switch {
			case b == orchestrator.BoundaryWorkspace && sb.Workspace == "":
				w.cells[b] = "not tried: the sandbox has no workspace volume"
			case !r.Wants(string(b)):
				w.cells[b] = "not tried: not in this plan"
			case b == orchestrator.BoundaryWorkspace && d.as == policy.Root:
				if err := e.refused(ctx, d); err != nil {
					return err
				}
				w.cells[b] = "not covered; refused"
			case r.Plan.Quick && !quickly(d, b):
				w.cells[b] = "not tried: not in a quick run"
			default:
				arms = append(arms, e.ruin(d, b))
			}
		}
		rows = append(rows, w)
	}
	if len(arms) == 0 {
		return bench.Skip("no boundary of the plan can be taken of this sandbox, which has %s", strings.Join(names(covering(sb)), ", "))
	}
	// Every sample of a quick run has read what it reads at all.
	if err = bench.Interleave(ctx, r, arms, r.Reps(1, 20), 0); err == nil && !e.quick {
		err = e.last(ctx)
	}
	count(r, rows, err == nil)
	return err
}

func names(all []orchestrator.Boundary) (out []string) {
	for _, b := range all {
		out = append(out, string(b))
	}
	return out
}

func quickly(d damage, b orchestrator.Boundary) bool {
	least := orchestrator.BoundaryMachine
	if d.as == policy.Agent {
		least = orchestrator.BoundaryWorkspace
	}
	return d.quick && b == least
}

// plant makes what the damages ruin, and notes everything there is.
func (e *ruins) plant(ctx context.Context) error {
	if err := e.g.send(ctx, e.sb, map[string]string{"seed.sh": seed}); err != nil {
		return err
	}
	if _, err := e.g.bare(ctx, e.sb, "sh "+stage+"/seed.sh", nil); err != nil {
		return err
	}
	before, err := e.g.files(ctx, e.sb, !e.quick)
	if err != nil {
		return fmt.Errorf("list the files before: %w", err)
	}
	e.before = before
	return nil
}

// refused reports an error unless the engine refuses root's damage inside the
// workspace boundary. It is asked: nothing runs.
func (e *ruins) refused(ctx context.Context, d damage) error {
	_, out, err := transact(ctx, e.g.Engine, orchestrator.Spec{Sandbox: e.sb, Command: d.command(), As: d.as, Boundary: orchestrator.BoundaryWorkspace})
	var usage *orchestrator.UsageError
	if errors.As(err, &usage) {
		return nil
	}
	return errors.Join(fmt.Errorf("damage %s of root inside the workspace boundary is not refused: it is %q", d.name, out.State), err)
}

// ruin is the arm of one damage in one boundary.
func (e *ruins) ruin(d damage, b orchestrator.Boundary) bench.Arm {
	whole := true
	return bench.Arm{
		Name: string(b), Labels: map[string]string{labelDamage: d.name},
		Do: func(ctx context.Context) (bench.Sample, error) {
			whole = false
			e.n++
			full := d.times || !e.quick && e.n%fullEvery == 0
			sample, err := e.undo(ctx, d, b, full)
			whole = err == nil
			return sample, err
		},
		Undo: func(ctx context.Context) error {
			if whole {
				return nil
			}
			if err := e.g.reset(ctx, e.sb); err != nil {
				return err
			}
			return e.plant(ctx)
		},
	}
}

// undo is one damage and its end.
func (e *ruins) undo(ctx context.Context, d damage, b orchestrator.Boundary, full bool) (bench.Sample, error) {
	sample, out, silent, err := d.play(ctx, e.g.Engine, e.sb, b)
	sample.Metrics[bench.MetricExact] = 0
	if err != nil {
		return sample, err
	}
	if err := d.undone(out, silent); err != nil {
		return sample, err
	}
	began := time.Now()
	if _, err := committed(ctx, e.g.Engine, orchestrator.Spec{Sandbox: e.sb, Command: "ls /"}); err != nil {
		return sample, fmt.Errorf("use the sandbox afterwards: %w", err)
	}
	sample.Metrics[metricReady] = out.Timings.Rollback.Seconds() + time.Since(began).Seconds()
	collected := make(chan error, 1)
	go func() { // the cluster deletes the snapshot while the guest lists its files
		_, err := e.g.Engine.Collect(ctx)
		collected <- err
	}()
	began = time.Now()
	err = e.compare(ctx, d, b, full)
	sample.Metrics[metricCompare] = time.Since(began).Seconds()
	if err = errors.Join(err, <-collected); err == nil {
		sample.Metrics[bench.MetricExact] = 1
	}
	return sample, err
}

// compare holds the guest against what it was.
func (e *ruins) compare(ctx context.Context, d damage, b orchestrator.Boundary, full bool) error {
	after, err := e.g.files(ctx, e.sb, full)
	if err != nil {
		return fmt.Errorf("list the files afterwards: %w", err)
	}
	if diff := e.before.diff(after, b == orchestrator.BoundaryDisk); len(diff) > 0 {
		return fmt.Errorf("%d differences: %s", len(diff), strings.Join(diff[:min(3, len(diff))], "; "))
	}
	if d.stops {
		if err := e.g.alive(ctx, e.sb); err != nil {
			return err
		}
	}
	e.before = e.before.follow(after)
	return nil
}

// last reads everything at the end. What differs then was not found before, so that
// no sample can be said to be exact.
func (e *ruins) last(ctx context.Context) error {
	after, err := e.g.files(ctx, e.sb, true)
	if err != nil {
		return fmt.Errorf("list the files at the end: %w", err)
	}
	if diff := e.before.diff(after, false); len(diff) > 0 {
		return fmt.Errorf("at the end there are %d differences that no sample found: %s", len(diff), strings.Join(diff[:min(3, len(diff))], "; "))
	}
	return nil
}

// alive waits for savepoint's own ways into a guest.
func (g *Rig) alive(ctx context.Context, sb orchestrator.Sandbox) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	again := time.NewTicker(250 * time.Millisecond)
	defer again.Stop()
	for {
		h, err := g.Examiner.Health(ctx, sb)
		if err != nil {
			return fmt.Errorf("ask for the services: %w", err)
		}
		if h.Services[orchestrator.ServiceSSH] && h.Services[orchestrator.ServiceAgent] {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("services that were ended are not back: %v", h.Services)
		case <-again.C:
		}
	}
}
