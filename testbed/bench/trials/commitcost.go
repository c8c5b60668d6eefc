package trials

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"savepoint/orchestrator"
	"savepoint/policy"
	"savepoint/testbed/bench"
	"savepoint/testbed/sim"
	"savepoint/testbed/sim/world"
)

// counted are an engine's ports that count what happens after a command's end.
type counted struct {
	after        atomic.Bool
	syncs, calls atomic.Int64
}

func (c *counted) call() {
	if c.after.Load() {
		c.calls.Add(1)
	}
}

type countedJournal struct {
	*sim.Forgetful
	c *counted
}

func (j countedJournal) AppendAll(ctx context.Context, rs []orchestrator.Record) error {
	if j.c.after.Load() {
		j.c.syncs.Add(1)
	}
	return j.Forgetful.AppendAll(ctx, rs)
}

func (j countedJournal) Append(ctx context.Context, r orchestrator.Record) error {
	return j.AppendAll(ctx, []orchestrator.Record{r})
}

type countedExecutor struct {
	orchestrator.Executor
	c *counted
}

func (x countedExecutor) Run(ctx context.Context, sb orchestrator.Sandbox, p policy.Permit, r orchestrator.ExecRequest) (orchestrator.ExecResult, error) {
	res, err := x.Executor.Run(ctx, sb, p, r)
	x.c.after.Store(true)
	return res, err
}

type countedVMs struct {
	orchestrator.Hypervisor
	c *counted
}

func (h countedVMs) Status(ctx context.Context, vm orchestrator.VMRef) (orchestrator.VMStatus, error) {
	h.c.call()
	return h.Hypervisor.Status(ctx, vm)
}

func (h countedVMs) Start(ctx context.Context, r orchestrator.VMRequest) error {
	h.c.call()
	return h.Hypervisor.Start(ctx, r)
}

func (h countedVMs) Stop(ctx context.Context, r orchestrator.VMRequest) error {
	h.c.call()
	return h.Hypervisor.Stop(ctx, r)
}

type countedSnapshots struct {
	orchestrator.Snapshotter
	c *counted
}

func (s countedSnapshots) Create(ctx context.Context, r orchestrator.SnapshotRequest) error {
	s.c.call()
	return s.Snapshotter.Create(ctx, r)
}

func (s countedSnapshots) Delete(ctx context.Context, r orchestrator.SnapshotRequest) error {
	s.c.call()
	return s.Snapshotter.Delete(ctx, r)
}

func (s countedSnapshots) List(ctx context.Context, vm orchestrator.VMRef) ([]orchestrator.Snapshot, error) {
	s.c.call()
	return s.Snapshotter.List(ctx, vm)
}

func (s countedSnapshots) Rollback(ctx context.Context, r orchestrator.SnapshotRequest) error {
	s.c.call()
	return s.Snapshotter.Rollback(ctx, r)
}

type countedTasks struct {
	orchestrator.Tasks
	c *counted
}

func (t countedTasks) Await(ctx context.Context, id orchestrator.UPID) error {
	t.c.call()
	return t.Tasks.Await(ctx, id)
}

func (t countedTasks) Find(ctx context.Context, vm orchestrator.VMRef, kind string, since time.Time) ([]orchestrator.Task, error) {
	t.c.call()
	return t.Tasks.Find(ctx, vm, kind, since)
}

// counting is an engine with one simulated sandbox, whose ports count.
func counting() (*orchestrator.Engine, *counted, error) {
	cfg, err := simulated(1)
	if err != nil {
		return nil, nil, err
	}
	c := &counted{}
	cfg.Journal = countedJournal{sim.NewForgetful(), c}
	cfg.Executor = countedExecutor{cfg.Executor, c}
	cfg.Hypervisor = countedVMs{cfg.Hypervisor, c}
	cfg.Tasks = countedTasks{cfg.Tasks, c}
	for b, s := range cfg.Snapshotters {
		cfg.Snapshotters[b] = countedSnapshots{s, c}
	}
	e, err := orchestrator.New(cfg)
	return e, c, err
}

// run counts what lies between the end of a command and its answer.
func (c *counted) run(ctx context.Context, e *orchestrator.Engine, s orchestrator.Spec) (orchestrator.State, error) {
	c.after.Store(false)
	c.syncs.Store(0)
	c.calls.Store(0)
	out, err := e.Run(ctx, s)
	return out.State, err
}

// commitCost counts it of commits in each boundary of the plan.
func commitCost(ctx context.Context, r *bench.Run) error {
	for _, b := range covering(world.Box(0)) {
		if !r.Wants(string(b)) {
			continue
		}
		e, c, err := counting()
		if err != nil {
			return err
		}
		for rep := range 20 {
			state, err := c.run(ctx, e, work(world.Box(0), b))
			if err == nil && state != orchestrator.StateCommitted {
				err = fmt.Errorf("it is %s", state)
			}
			if err != nil {
				return fmt.Errorf("count what a commit costs, boundary %s: %w", b, err)
			}
			r.Add(bench.Sample{Arm: "commit", Labels: map[string]string{labelBoundary: string(b)}, Rep: rep, Metrics: map[string]float64{
				bench.MetricSyncs: float64(c.syncs.Load()), bench.MetricCalls: float64(c.calls.Load()),
			}})
		}
	}
	return nil
}
