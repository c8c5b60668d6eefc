package trials

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"savepoint/orchestrator"
	"savepoint/policy"
	"savepoint/testbed/bench"
	"savepoint/testbed/sim"
	"savepoint/testbed/sim/world"
)

// nodeTask is how long a simulated node takes for a snapshot.
const nodeTask = 2 * time.Millisecond

// nodeTransactions is how many transactions there are for each node.
const nodeTransactions = 400

// nodes spread the sandboxes of a simulated cluster, which knows one node, over
// several. Each of them makes one snapshot or rollback at a time. Deletions take
// no time of it: how many there are depends on how often each sandbox has had its
// turn, and few nodes make fewer transactions than many.
type nodes struct {
	home  string // the node that the cluster knows
	count int
	busy  []sync.Mutex
	made  []int // snapshots, by node; busy guards its own
}

func newNodes(count int) *nodes {
	return &nodes{home: world.Box(0).VM.Node, count: count, busy: make([]sync.Mutex, count), made: make([]int, count)}
}

// box is the i-th sandbox, on its node.
func (n *nodes) box(i int) orchestrator.Sandbox {
	sb := world.Box(i)
	sb.VM.Node = "node" + strconv.Itoa(i%n.count)
	return sb
}

// on is the VM as the cluster knows it, and the index of its node.
func (n *nodes) on(vm orchestrator.VMRef) (orchestrator.VMRef, int, error) {
	var at int
	if _, err := fmt.Sscanf(vm.Node, "node%d", &at); err != nil || at < 0 || at >= n.count {
		return vm, 0, fmt.Errorf("node %q: %w", vm.Node, orchestrator.ErrNotFound)
	}
	vm.Node = n.home
	return vm, at, nil
}

// task makes one on the VM's node, when that is free.
func (n *nodes) task(ctx context.Context, vm *orchestrator.VMRef, do func() error) error {
	there, at, err := n.on(*vm)
	if err != nil {
		return err
	}
	*vm = there
	n.busy[at].Lock()
	defer n.busy[at].Unlock()
	n.made[at]++
	select {
	case <-time.After(nodeTask):
		return do()
	case <-ctx.Done():
		return ctx.Err()
	}
}

// spread puts the nodes before the ports of a cluster.
func (n *nodes) spread(c *orchestrator.Config) {
	c.Hypervisor, c.Executor, c.Guest, c.Tasks = nodeVMs{c.Hypervisor, n}, nodeExecutor{c.Executor, n}, nodeGuest{c.Guest, n}, nodeTasks{c.Tasks, n}
	for b, s := range c.Snapshotters {
		c.Snapshotters[b] = nodeSnapshots{s, n}
	}
}

type nodeSnapshots struct {
	orchestrator.Snapshotter
	n *nodes
}

func (s nodeSnapshots) Create(ctx context.Context, r orchestrator.SnapshotRequest) error {
	return s.n.task(ctx, &r.VM, func() error { return s.Snapshotter.Create(ctx, r) })
}

func (s nodeSnapshots) Delete(ctx context.Context, r orchestrator.SnapshotRequest) error {
	vm, _, err := s.n.on(r.VM)
	if err != nil {
		return err
	}
	r.VM = vm
	return s.Snapshotter.Delete(ctx, r)
}

func (s nodeSnapshots) Rollback(ctx context.Context, r orchestrator.SnapshotRequest) error {
	return s.n.task(ctx, &r.VM, func() error { return s.Snapshotter.Rollback(ctx, r) })
}

func (s nodeSnapshots) List(ctx context.Context, vm orchestrator.VMRef) ([]orchestrator.Snapshot, error) {
	vm, _, err := s.n.on(vm)
	if err != nil {
		return nil, err
	}
	return s.Snapshotter.List(ctx, vm)
}

// nodeVMs are the VMs' states; simulated sandboxes are not made, started or
// stopped by commits.
type nodeVMs struct {
	orchestrator.Hypervisor
	n *nodes
}

func (h nodeVMs) Status(ctx context.Context, vm orchestrator.VMRef) (orchestrator.VMStatus, error) {
	vm, _, err := h.n.on(vm)
	if err != nil {
		return orchestrator.VMStatus{}, err
	}
	return h.Hypervisor.Status(ctx, vm)
}

type nodeTasks struct {
	orchestrator.Tasks
	n *nodes
}

func (t nodeTasks) Find(ctx context.Context, vm orchestrator.VMRef, kind string, since time.Time) ([]orchestrator.Task, error) {
	vm, _, err := t.n.on(vm)
	if err != nil {
		return nil, err
	}
	return t.Tasks.Find(ctx, vm, kind, since)
}

type nodeExecutor struct {
	orchestrator.Executor
	n *nodes
}

func (x nodeExecutor) Run(ctx context.Context, sb orchestrator.Sandbox, p policy.Permit, r orchestrator.ExecRequest) (orchestrator.ExecResult, error) {
	return x.Executor.Run(ctx, x.n.withHome(sb), p, r)
}

// withHome is the sandbox as the cluster knows it.
func (n *nodes) withHome(sb orchestrator.Sandbox) orchestrator.Sandbox {
	if vm, _, err := n.on(sb.VM); err == nil { // else the cluster does not know it
		sb.VM = vm
	}
	return sb
}

type nodeGuest struct {
	orchestrator.Guest
	n *nodes
}

func (g nodeGuest) Mark(ctx context.Context, sb orchestrator.Sandbox, generation string) (orchestrator.GuestFacts, error) {
	return g.Guest.Mark(ctx, g.n.withHome(sb), generation)
}

func (g nodeGuest) Inspect(ctx context.Context, sb orchestrator.Sandbox) (orchestrator.GuestFacts, error) {
	return g.Guest.Inspect(ctx, g.n.withHome(sb))
}

func (g nodeGuest) SetClock(ctx context.Context, sb orchestrator.Sandbox, t time.Time) error {
	return g.Guest.SetClock(ctx, g.n.withHome(sb), t)
}

// driveNodes runs n transactions over the sandboxes, which are spread over the
// nodes, with a caller for each sandbox, 256 at most.
func driveNodes(ctx context.Context, boxes, count, n int) (bench.Sample, error) {
	c, err := simulated(boxes)
	if err != nil {
		return bench.Sample{}, err
	}
	c.Journal = sim.NewForgetful()
	on := newNodes(count)
	on.spread(&c)
	e, err := orchestrator.New(c)
	if err != nil {
		return bench.Sample{}, err
	}
	took := make([]float64, n)
	began := time.Now()
	err = hammer(ctx, e, min(256, boxes), n, func(i int) orchestrator.Spec {
		return work(on.box(i%boxes), orchestrator.BoundaryMachine)
	}, took)
	seconds := time.Since(began).Seconds()
	if err != nil {
		return bench.Sample{}, err
	}
	used := heap()
	sum := 0
	for at, made := range on.made {
		if made == 0 && n >= count {
			return bench.Sample{}, fmt.Errorf("node %d of %d made nothing", at, count)
		}
		sum += made
	}
	if sum != n { // rates of different nodes are of the same work
		return bench.Sample{}, fmt.Errorf("%d nodes made %d snapshots for %d transactions", count, sum, n)
	}
	return bench.Sample{Metrics: map[string]float64{
		bench.MetricTxRate: float64(n) / seconds, metricMedian: bench.Median(took), metricLatency: bench.Quantile(took, 0.99), metricHeap: used,
	}}, nil
}

// exponent is b of the fit y = a·x^b by least squares of the logarithms. It is not
// known of fewer than two different x.
func exponent(x, y []float64) (float64, bool) {
	var n, sx, sy, sxx, sxy float64
	for i := range x {
		if x[i] <= 0 || y[i] <= 0 {
			continue
		}
		a, b := math.Log(x[i]), math.Log(y[i])
		n, sx, sy, sxx, sxy = n+1, sx+a, sy+b, sxx+a*a, sxy+a*b
	}
	d := n*sxx - sx*sx
	if n < 2 || d < 1e-9 {
		return 0, false
	}
	return (n*sxy - sx*sy) / d, true
}

// growth is a quantity whose growth is fitted: of an arm, along a label, of the
// samples with some labels.
type growth struct {
	arm, along, metric string
	where              map[string]string
}

// grows keeps how what was measured grows.
func grows(r *bench.Run, all []growth) {
	res := r.Result()
	var rows [][]string
	for _, g := range all {
		var pairs []string
		for _, k := range slices.Sorted(maps.Keys(g.where)) {
			pairs = append(pairs, k, g.where[k])
		}
		samples := res.Is(g.arm, pairs...)
		var x, y []float64
		for _, s := range samples {
			at, err := strconv.ParseFloat(s.Labels[g.along], 64)
			if v, ok := s.Metrics[g.metric]; ok && err == nil && s.Err == "" {
				x, y = append(x, at), append(y, v)
			}
		}
		b, ok := exponent(x, y)
		if !ok {
			continue
		}
		labels := map[string]string{"along": g.along, "of": g.metric}
		maps.Copy(labels, g.where)
		r.Add(bench.Sample{Arm: "growth of " + g.arm, Labels: labels, Metrics: map[string]float64{metricExponent: b}})
		rows = append(rows, []string{strings.Join(append([]string{g.arm}, pairs...), " "), g.metric, g.along, fmt.Sprintf("%.2f", b), strconv.Itoa(len(x))})
	}
	r.Table(bench.Table{
		Title: "How it grows", Columns: []string{"arm", "quantity", "along", "exponent", "samples"}, Rows: rows,
		Note: "exponent b of the fit quantity = a · along^b",
	})
}
