package sim_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"savepoint/orchestrator"
	"savepoint/policy"
	"savepoint/testbed/sim/world"
)

// planted is an engine with a mistake in it, made by ports that do what the
// mistake would have done. The explorations have to catch every one.
type planted struct {
	name string
	in   []string // the scenarios that are explored
	wrap func(l *lab, c *orchestrator.Config)
	add  *scenario // besides
}

func mistakes() []planted {
	eachDriver := func(f func(orchestrator.Snapshotter, *lab) orchestrator.Snapshotter) func(*lab, *orchestrator.Config) {
		return func(l *lab, c *orchestrator.Config) {
			for b, d := range c.Snapshotters {
				c.Snapshotters[b] = f(d, l)
			}
		}
	}
	return []planted{
		{name: "the effect comes before its intent", in: []string{"disk-fail"}, wrap: func(_ *lab, c *orchestrator.Config) {
			c.Journal = &lazyJournal{Journal: c.Journal, late: []string{"begin"}}
		}},
		{name: "the savepoint comes before its intent", in: []string{"disk-several-commit"}, wrap: func(_ *lab, c *orchestrator.Config) {
			c.Journal = &lazyJournal{Journal: c.Journal, late: []string{"save"}}
		}},
		{name: "a commit is told before it is durable", in: []string{"workspace-collect"}, wrap: func(_ *lab, c *orchestrator.Config) {
			c.Journal = &lazyJournal{Journal: c.Journal, late: []string{"commit"}}
		}},
		{name: "the snapshot is deleted before the commit record", in: []string{"machine-commit"}, wrap: func(_ *lab, c *orchestrator.Config) {
			c.Journal = eagerJournal{c.Journal, c.Snapshotters[orchestrator.BoundaryMachine]}
		}},
		{name: "a command is sent again after an unknown outcome", in: []string{"workspace-cut"}, wrap: func(_ *lab, c *orchestrator.Config) {
			c.Executor = resending{c.Executor}
		}},
		{name: "an unknown outcome is taken for a command that never started", add: lostStep(), wrap: func(_ *lab, c *orchestrator.Config) {
			c.Executor = optimist{c.Executor}
		}},
		{name: "a lock is taken for nothing", in: []string{"disk-collect"}, wrap: eachDriver(func(d orchestrator.Snapshotter, _ *lab) orchestrator.Snapshotter {
			return careless{d}
		})},
		{name: "a POST is repeated after an unknown outcome", in: []string{"disk-collect"}, wrap: eachDriver(func(d orchestrator.Snapshotter, _ *lab) orchestrator.Snapshotter {
			return reposting{d}
		})},
		{name: "an order to restore is repeated after an unknown outcome", in: []string{"disk-any=true-run"}, wrap: eachDriver(func(d orchestrator.Snapshotter, _ *lab) orchestrator.Snapshotter {
			return rerestoring{d}
		})},
		{name: "a stale lock is taken for free", in: []string{"disk-fail"}, wrap: func(l *lab, c *orchestrator.Config) {
			c.Hypervisor = unlocking{c.Hypervisor, l}
		}},
		{name: "a journal that was full is not asked again", in: []string{"disk-fail"}, wrap: func(_ *lab, c *orchestrator.Config) {
			c.Journal = &resigned{batching: batching{c.Journal}}
		}},
		{name: "a process that starts on a full journal goes to work", in: []string{"disk-fail"}, wrap: func(l *lab, c *orchestrator.Config) {
			if l.n > 1 {
				c.Journal = boastful{batching{c.Journal}}
			}
		}},
		{name: "a rollback is not verified", in: []string{"machine-fail"}, wrap: func(l *lab, c *orchestrator.Config) {
			c.Snapshotters[orchestrator.BoundaryMachine] = idle{c.Snapshotters[orchestrator.BoundaryMachine]}
			c.Guest = &gullible{Guest: c.Guest}
		}},
		{name: "a workspace that did not come back is not noticed", in: []string{"workspace-fail"}, wrap: func(l *lab, c *orchestrator.Config) {
			c.Snapshotters[orchestrator.BoundaryWorkspace] = idle{c.Snapshotters[orchestrator.BoundaryWorkspace]}
			c.Guest = &gullible{Guest: c.Guest}
		}},
		{name: "keys are remembered by the process only", in: []string{"disk-key"}, wrap: func(_ *lab, c *orchestrator.Config) {
			c.Journal = &forgetful{batching: batching{c.Journal}, keys: map[string]orchestrator.TxID{}}
		}},
		{name: "keys are not written down", in: []string{"workspace-key"}, wrap: func(_ *lab, c *orchestrator.Config) {
			c.Journal = keyless{batching{c.Journal}}
		}},
		{name: "a session changes with the next record after the commit", in: []string{"workspace-session"}, wrap: func(_ *lab, c *orchestrator.Config) {
			c.Journal = &lateSession{batching: batching{c.Journal}}
		}},
		{name: "a grant is spent by the commit only", in: []string{"workspace-grant"}, wrap: func(_ *lab, c *orchestrator.Config) {
			c.Journal = &lateSpending{batching: batching{c.Journal}}
		}},
		{name: "files that cannot be listed count as unchanged", in: []string{"workspace-guard"}, wrap: func(_ *lab, c *orchestrator.Config) {
			c.Guest = &trusting{Guest: c.Guest}
		}},
		{name: "a sandbox is reset under an open transaction", in: []string{"machine-reset"}, wrap: func(l *lab, _ *orchestrator.Config) {
			l.careless = true
		}},
		{name: "the connection is kept over a rollback", in: []string{"workspace-fail"}, wrap: func(_ *lab, c *orchestrator.Config) {
			c.Executor = clinging{c.Executor}
		}},
		{name: "whatever is newer is deleted to roll back", add: autosnap(), wrap: eachDriver(func(d orchestrator.Snapshotter, _ *lab) orchestrator.Snapshotter {
			return ruthless{d}
		})},
		{name: "stuck is what was only busy", in: []string{"disk-fail"}, wrap: eachDriver(func(d orchestrator.Snapshotter, _ *lab) orchestrator.Snapshotter {
			return hasty{d}
		})},
		{name: "what was snapshotted is never collected", in: []string{"disk-fail"}, wrap: eachDriver(func(d orchestrator.Snapshotter, _ *lab) orchestrator.Snapshotter {
			return hoarder{d}
		})},
	}
}

// Planted mistakes are caught, and no exploration calls the engine mistaken
// without one: the other tests are the proof of that.
func TestCrashFindsMistakes(t *testing.T) {
	for _, m := range append(mistakes(), aheadMistakes()...) {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(t *testing.T) {
				for _, sc := range m.scenarios() {
					sc.wrap = nil
					if found, _ := play(sc, []int{0}, nil); len(found) > 0 {
						t.Fatalf("without the mistake: %v", found)
					}
					sc.wrap, sc.ends = m.wrap, nil
					s, found := catch(sc)
					if len(found) == 0 {
						continue
					}
					sc.wrap = nil
					if found, _ := s.play(sc, nil); len(found) > 0 {
						t.Errorf("without the mistake, %s, %s: %v", sc.name, s, found)
					}
					t.Logf("%-62s caught by: %s (%s, %s)", m.name, invariants(found), sc.name, s)
					return
				}
				t.Error("the mistake was not caught")
			})
		})
	}
}

func (m planted) scenarios() (all []scenario) {
	if m.add != nil {
		return []scenario{*m.add}
	}
	for _, sc := range append(scenarios(), late()...) {
		for _, name := range m.in {
			if sc.name == name {
				all = append(all, sc)
			}
		}
	}
	return all
}

// invariants are those that do not hold, each once.
func invariants(found []world.Finding) string {
	var all []string
	for _, f := range found {
		if !slices.Contains(all, f.Invariant) {
			all = append(all, f.Invariant)
		}
	}
	return strings.Join(all, "; ")
}

// catch explores until something is found, and says by which schedule.
func catch(sc scenario) (s schedule, found []world.Finding) {
	for n := 0; ; n++ {
		s = schedule{deaths: []int{n}}
		found, fits := s.play(sc, nil)
		if len(found) > 0 {
			return s, found
		}
		if !fits {
			break
		}
	}
	for _, x := range troubles() {
		for n := 1; ; n++ {
			s = schedule{x: x, n: n}
			found, hit := s.play(sc, nil)
			if len(found) > 0 {
				return s, found
			}
			if !hit {
				break
			}
		}
	}
	return s, nil
}

// lostStep loses the connection of a step, and commits if it may.
func lostStep() *scenario {
	return &scenario{name: "lost-step", do: func(ctx context.Context, l *lab) {
		x, err := l.e.Begin(ctx, orchestrator.BeginSpec{Sandbox: l.boxes[0], Boundary: "machine", OnFailure: orchestrator.OnFailureKeep})
		if err != nil {
			return
		}
		_ = orders(ctx, x, "exec echo one > /workspace/one && mkdir /cut && sleep 2")
		l.tell(x.Commit(ctx))
	}}
}

// autosnap has an operator's snapshot taken while the command runs.
func autosnap() *scenario {
	return &scenario{name: "autosnap", do: func(ctx context.Context, l *lab) {
		x, err := l.e.Begin(ctx, orchestrator.BeginSpec{Sandbox: l.boxes[0], Boundary: "machine"})
		if err != nil {
			return
		}
		_ = orders(ctx, x, "exec echo one > /workspace/one")
		l.c.TakeSnapshot(l.boxes[0], "autodaily")
		if l.sc.wrap == nil {
			l.c.Mend(l.boxes[0], x.View().Snapshot) // the engine rightly asks for that
		}
		l.tell(x.Rollback(ctx, "the test does"))
	}}
}

// lazyJournal says that it wrote some records before it did.
type lazyJournal struct {
	orchestrator.Journal
	late []string
	mu   sync.Mutex
	held []orchestrator.Record
}

func (j *lazyJournal) AppendAll(ctx context.Context, rs []orchestrator.Record) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	rs = append(j.held, rs...)
	j.held = nil
	for _, r := range rs[max(0, len(rs)-2):] {
		for _, event := range j.late {
			if r.Event == event {
				j.held = rs
				return nil
			}
		}
	}
	return j.Journal.(orchestrator.Batcher).AppendAll(ctx, rs)
}

func (j *lazyJournal) Append(ctx context.Context, r orchestrator.Record) error {
	return j.AppendAll(ctx, []orchestrator.Record{r})
}

// eagerJournal deletes the snapshot when the commit is about to be written.
type eagerJournal struct {
	orchestrator.Journal
	d orchestrator.Snapshotter
}

func (j eagerJournal) AppendAll(ctx context.Context, rs []orchestrator.Record) error {
	for _, r := range rs {
		if r.Event == "commit" {
			sb := world.Box(0)
			_ = j.d.Delete(ctx, orchestrator.SnapshotRequest{Sandbox: sb.ID, VM: sb.VM, Name: orchestrator.SnapshotOf(r.Tx)})
		}
	}
	return j.Journal.(orchestrator.Batcher).AppendAll(ctx, rs)
}

type resending struct{ orchestrator.Executor }

func (x resending) Run(ctx context.Context, sb orchestrator.Sandbox, p policy.Permit, r orchestrator.ExecRequest) (orchestrator.ExecResult, error) {
	res, err := x.Executor.Run(ctx, sb, p, r)
	if errors.Is(err, orchestrator.ErrUnknownOutcome) {
		return x.Executor.Run(ctx, sb, p, r)
	}
	return res, err
}

type optimist struct{ orchestrator.Executor }

func (x optimist) Run(ctx context.Context, sb orchestrator.Sandbox, p policy.Permit, r orchestrator.ExecRequest) (orchestrator.ExecResult, error) {
	res, err := x.Executor.Run(ctx, sb, p, r)
	if errors.Is(err, orchestrator.ErrUnknownOutcome) {
		err = fmt.Errorf("it failed: %w", orchestrator.ErrUnavailable)
	}
	return res, err
}

type clinging struct{ orchestrator.Executor }

func (clinging) Disconnect(orchestrator.SandboxID) {}

type careless struct{ orchestrator.Snapshotter }

func (d careless) Delete(ctx context.Context, r orchestrator.SnapshotRequest) error {
	if err := d.Snapshotter.Delete(ctx, r); err != nil && !errors.Is(err, orchestrator.ErrBusy) && !errors.Is(err, orchestrator.ErrUnknownOutcome) {
		return err
	}
	return nil
}

// reposting orders again what got no answer, and does not look first. Deletions
// alone could be repeated: no name is used twice.
type reposting struct{ orchestrator.Snapshotter }

func (d reposting) Create(ctx context.Context, r orchestrator.SnapshotRequest) error {
	return twice(func() error { return d.Snapshotter.Create(ctx, r) })
}

func (d reposting) Rollback(ctx context.Context, r orchestrator.SnapshotRequest) error {
	return twice(func() error { return d.Snapshotter.Rollback(ctx, r) })
}

func (d reposting) Delete(ctx context.Context, r orchestrator.SnapshotRequest) error {
	return twice(func() error { return d.Snapshotter.Delete(ctx, r) })
}

type rerestoring struct{ orchestrator.Snapshotter }

func (d rerestoring) Rollback(ctx context.Context, r orchestrator.SnapshotRequest) error {
	return twice(func() error { return d.Snapshotter.Rollback(ctx, r) })
}

func twice(order func() error) error {
	err := order()
	if errors.Is(err, orchestrator.ErrUnknownOutcome) {
		return order()
	}
	return err
}

// unlocking sees no lock that no task holds.
type unlocking struct {
	orchestrator.Hypervisor
	l *lab
}

func (h unlocking) Status(ctx context.Context, ref orchestrator.VMRef) (orchestrator.VMStatus, error) {
	st, err := h.Hypervisor.Status(ctx, ref)
	if st.Lock != "" && slices.Contains(h.l.c.NeedsOperator(view{Sandbox: h.l.boxes[0]}), "stale lock "+st.Lock) {
		st.Lock = ""
	}
	return st, err
}

type hoarder struct{ orchestrator.Snapshotter }

func (hoarder) Delete(context.Context, orchestrator.SnapshotRequest) error { return nil }

type idle struct{ orchestrator.Snapshotter }

func (idle) Rollback(context.Context, orchestrator.SnapshotRequest) error { return nil }

// gullible believes that the guest carries the marker that it shall.
type gullible struct {
	orchestrator.Guest
	want string
}

func (g *gullible) Mark(ctx context.Context, sb orchestrator.Sandbox, generation string) (orchestrator.GuestFacts, error) {
	if _, ok := orchestrator.TxOf(orchestrator.SnapshotName(generation)); ok {
		g.want = generation
	}
	return g.Guest.Mark(ctx, sb, generation)
}

func (g *gullible) Inspect(ctx context.Context, sb orchestrator.Sandbox) (orchestrator.GuestFacts, error) {
	f, err := g.Guest.Inspect(ctx, sb)
	if g.want != "" {
		f.Generation = g.want
	}
	return f, err
}

type ruthless struct{ orchestrator.Snapshotter }

func (d ruthless) Rollback(ctx context.Context, r orchestrator.SnapshotRequest) error {
	err := d.Snapshotter.Rollback(ctx, r)
	var stack *orchestrator.NotLatestError
	if errors.As(err, &stack) {
		for i := len(stack.Newer) - 1; i >= 0; i-- {
			q := r
			q.Name = stack.Newer[i]
			_ = d.Snapshotter.Delete(ctx, q)
		}
		return d.Snapshotter.Rollback(ctx, r)
	}
	return err
}

type hasty struct{ orchestrator.Snapshotter }

func (d hasty) Rollback(ctx context.Context, r orchestrator.SnapshotRequest) error {
	err := d.Snapshotter.Rollback(ctx, r)
	if errors.Is(err, orchestrator.ErrBusy) || errors.Is(err, orchestrator.ErrUnavailable) {
		return &orchestrator.UnsupportedError{What: "it did not work at once"}
	}
	return err
}
