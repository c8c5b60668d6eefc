package sim_test

import (
	"context"

	"savepoint/orchestrator"
)

// aheadMistakes are those about snapshots that are taken ahead.
func aheadMistakes() []planted {
	return []planted{
		{name: "a snapshot taken ahead is used whatever was written since", in: []string{"disk-ahead-written"}, wrap: func(_ *lab, c *orchestrator.Config) {
			c.Guest = unread{examined{c.Guest}}
		}},
		{name: "recovery rolls a snapshot back that was taken ahead", in: []string{"disk-ahead-written"}, wrap: func(l *lab, c *orchestrator.Config) {
			if l.n > 1 {
				c.Journal = restoring{batching{c.Journal}, l, c.Snapshotters[orchestrator.BoundaryDisk], c.Hypervisor}
			}
		}},
		{name: "a snapshot that was taken ahead and is not used is not released", in: []string{"disk-ahead-used"}, wrap: func(l *lab, c *orchestrator.Config) {
			c.Journal = keeping{batching{c.Journal}, l}
		}},
		{name: "what was taken ahead is released and its snapshot kept", in: []string{"disk-ahead-written"}, wrap: func(l *lab, c *orchestrator.Config) {
			c.Snapshotters[orchestrator.BoundaryDisk] = &hoardsAhead{Snapshotter: c.Snapshotters[orchestrator.BoundaryDisk], l: l}
		}},
		{name: "the adoption comes after its command", in: []string{"disk-ahead-used"}, wrap: func(_ *lab, c *orchestrator.Config) {
			c.Journal = &lazyJournal{Journal: c.Journal, late: []string{"adopt"}}
		}},
		{name: "a snapshot is taken ahead before its intent", in: []string{"disk-ahead-quiet"}, wrap: func(l *lab, c *orchestrator.Config) {
			c.Journal = &lazyAhead{batching: batching{c.Journal}}
		}},
	}
}

// examined is a guest with all that the engine asks of the simulated one.
type examined struct{ orchestrator.Guest }

func (g examined) Health(ctx context.Context, sb orchestrator.Sandbox) (orchestrator.GuestHealth, error) {
	return g.Guest.(orchestrator.Examiner).Health(ctx, sb)
}

func (g examined) Manifest(ctx context.Context, sb orchestrator.Sandbox, r orchestrator.ManifestRequest) (orchestrator.Manifest, error) {
	return g.Guest.(orchestrator.Examiner).Manifest(ctx, sb, r)
}

// unread says that nothing is ever written.
type unread struct{ examined }

func (g unread) Inspect(ctx context.Context, sb orchestrator.Sandbox) (orchestrator.GuestFacts, error) {
	f, err := g.Guest.Inspect(ctx, sb)
	f.Writes = "nothing"
	return f, err
}

// waiting is the transaction, when the journal says that it only waits.
func (l *lab) waiting(r orchestrator.Record) (view, bool) {
	t, err := orchestrator.Show(context.Background(), l.disk, r.Tx)
	return t, err == nil && t.State == orchestrator.StatePrepared && r.Event == "restored"
}

// restoring restores what it releases.
type restoring struct {
	batching
	l *lab
	d orchestrator.Snapshotter
	h orchestrator.Hypervisor
}

func (j restoring) AppendAll(ctx context.Context, rs []orchestrator.Record) error {
	if t, ok := j.l.waiting(rs[0]); ok {
		if err := j.d.Rollback(ctx, orchestrator.SnapshotRequest{Sandbox: t.Sandbox.ID, VM: t.Sandbox.VM, Name: t.Snapshot}); err == nil {
			_ = j.h.Start(ctx, orchestrator.VMRequest{Sandbox: t.Sandbox.ID, VM: t.Sandbox.VM})
		}
	}
	return j.batching.AppendAll(ctx, rs)
}

// keeping does not write that something is released.
type keeping struct {
	batching
	l *lab
}

func (j keeping) AppendAll(ctx context.Context, rs []orchestrator.Record) error {
	if _, ok := j.l.waiting(rs[0]); ok {
		return nil
	}
	return j.batching.AppendAll(ctx, rs)
}

// hoardsAhead says that it deleted what was taken ahead.
type hoardsAhead struct {
	orchestrator.Snapshotter
	l *lab
}

func (d *hoardsAhead) Delete(ctx context.Context, r orchestrator.SnapshotRequest) error {
	if id, ok := orchestrator.TxOf(r.Name); ok {
		if t, err := orchestrator.Show(ctx, d.l.disk, id); err == nil && t.Unused() {
			return nil
		}
	}
	return d.Snapshotter.Delete(ctx, r)
}

// lazyAhead says that it wrote the begin of a snapshot without a command, and
// writes it with whatever is next.
type lazyAhead struct {
	batching
	held []orchestrator.Record
}

func (j *lazyAhead) AppendAll(ctx context.Context, rs []orchestrator.Record) error {
	rs = append(j.held, rs...)
	j.held = nil
	if last := rs[len(rs)-1]; last.Event == "begin" {
		j.held = rs
		return nil
	}
	return j.batching.AppendAll(ctx, rs)
}
