package networks

import (
	"context"
	"errors"
	"slices"
	"time"

	"savepoint/network"
	"savepoint/orchestrator"
)

// Plan says what Apply would do and changes nothing.
func (m *Manager) Plan(ctx context.Context, w network.Wanted) (network.Plan, error) {
	r, err := m.cfg.Store.Networks(ctx)
	if err != nil {
		return network.Plan{}, err
	}
	p, _, err := m.look(ctx, w, r)
	return p, err
}

// PlanDestroy says what Destroy would do and changes nothing.
func (m *Manager) PlanDestroy(ctx context.Context) (network.Plan, error) {
	return m.Plan(ctx, network.Wanted{})
}

// look plans against what the cluster has now, and says whether there are
// pending edits, which are ours then. Guests are looked at only if something of
// ours would go.
func (m *Manager) look(ctx context.Context, w network.Wanted, r network.Record) (p network.Plan, pending bool, err error) {
	for _, zones := range [][]string{nil, r.Allocation.ZoneIDs()} {
		o, err := m.cfg.Fabric.Observe(ctx, zones)
		if err != nil {
			return network.Plan{}, false, err
		}
		if p, err = network.Diff(w, o, r.Allocation); err != nil {
			return network.Plan{}, false, err
		}
		pending = slices.ContainsFunc(slices.Concat(o.Controllers, o.Zones, o.VNets, o.Subnets, o.Others),
			func(obj network.Object) bool { return obj.State != network.Settled })
		if p.Settled.Equal(p.Allocation) {
			break
		}
	}
	return p, pending, nil
}

// Apply brings the cluster to the wanted state. After an error, or a crash,
// the next call does the rest. Errors: *network.ConfigError,
// *network.ForeignError, *LagError, and those of the ports. The result is what
// was done, also next to an error.
func (m *Manager) Apply(ctx context.Context, w network.Wanted) (Result, error) {
	if _, err := m.Release(ctx); err != nil {
		return Result{}, err
	}
	r, err := m.cfg.Store.Networks(ctx)
	if err != nil {
		return Result{}, err
	}
	// Before the lock: most calls have nothing to do, or must not do it.
	p, pending, err := m.look(ctx, w, r)
	if err != nil {
		return Result{}, err
	}
	res := result(p)
	if p.Empty() {
		return res, m.record(ctx, p.Settled, p.Settled)
	}
	failed, err := m.change(ctx, w, pending, &res)
	if err != nil || !res.Applied {
		return res, err
	}
	return res, m.follow(ctx, failed, &res)
}

func result(p network.Plan) Result {
	offline := slices.DeleteFunc(slices.Clone(p.Lagging), func(l network.Lag) bool { return l.Online })
	return Result{Kept: p.Kept, Offline: offline, Allocation: p.Allocation}
}

// Destroy removes everything of ours that no guest uses.
func (m *Manager) Destroy(ctx context.Context) (Result, error) {
	return m.Apply(ctx, network.Wanted{})
}

// change makes all changes and the apply under the lock.
func (m *Manager) change(ctx context.Context, w network.Wanted, pending bool, res *Result) (failed map[string]string, err error) {
	token, err := m.lock(ctx, pending)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, m.unlock(ctx, token)) }()
	return m.rounds(ctx, w, token, res)
}

// mostLost is how many answers may be lost before the cluster is given up.
const mostLost = 4

// rounds looks and does the next thing until nothing is left to do.
func (m *Manager) rounds(ctx context.Context, w network.Wanted, token string, res *Result) (map[string]string, error) {
	var doubt lost
	for {
		r, err := m.cfg.Store.Networks(ctx)
		if err != nil {
			return nil, err
		}
		p, _, err := m.look(ctx, w, r)
		if err != nil {
			return nil, err
		}
		writes := slices.DeleteFunc(slices.Clone(p.Changes), func(c network.Change) bool { return c.Op == network.OpApply })
		done := doubt.settle(res.Changes, writes)
		*res = result(p)
		res.Changes = done
		switch {
		case len(writes) > 0:
			// What goes is not given to sandboxes from now on.
			if err := m.record(ctx, p.Allocation, r.Applied.Still(p.Settled)); err != nil {
				return nil, err
			}
			err = m.write(ctx, token, p.Allocation, writes, res, &doubt)
		case doubt.told && len(p.Changes) == 0:
			res.Applied = true
			return nil, m.put(ctx, r, p.Settled, r.Applied.Still(p.Settled))
		case p.Empty():
			return nil, m.record(ctx, p.Settled, p.Settled)
		default:
			// Before and after: no older proof of isolation counts, also after a crash.
			if err := m.put(ctx, r, p.Allocation, r.Applied.Still(p.Settled)); err != nil {
				return nil, err
			}
			m.step("apply", "the cluster's nodes are told")
			var failed map[string]string
			if failed, err = m.cfg.Fabric.Apply(ctx, token); err == nil {
				res.Applied = true
				return failed, m.put(ctx, r, p.Settled, r.Applied.Still(p.Settled))
			}
			doubt.told = doubt.told || errors.Is(err, orchestrator.ErrUnknownOutcome)
		}
		if err == nil {
			continue
		}
		if doubt.n++; doubt.n == mostLost || !lookAgain(err) || wait(ctx, 100*time.Millisecond<<doubt.n) != nil {
			return nil, err
		}
	}
}

// lost is what is known of calls whose answers did not come.
type lost struct {
	n     int
	told  bool            // the nodes were told of the pending configuration, perhaps
	write *network.Change // was made, perhaps
}

// settle adds the change that was in doubt to those that were made, if it is
// not left to do.
func (l *lost) settle(done, left []network.Change) []network.Change {
	c := l.write
	l.write = nil
	if c == nil || slices.ContainsFunc(left, func(n network.Change) bool { return n.Op == c.Op && n.Kind == c.Kind && n.ID == c.ID }) {
		return done
	}
	return append(done, *c)
}

// lookAgain says whether only the cluster's state can tell what an error came
// to: the call may have been carried out, or an earlier one that was thought
// lost was.
func lookAgain(err error) bool {
	return slices.ContainsFunc([]error{
		orchestrator.ErrUnknownOutcome, orchestrator.ErrUnavailable, orchestrator.ErrExists, orchestrator.ErrNotFound,
	}, func(class error) bool { return errors.Is(err, class) })
}

func (m *Manager) write(ctx context.Context, token string, a network.Allocation, changes []network.Change, res *Result, doubt *lost) error {
	for _, c := range changes {
		m.step(string(c.Op)+" "+string(c.Kind), c.ID+" "+a.Name(c.Kind, c.ID))
		if err := m.cfg.Fabric.Write(ctx, token, c); err != nil {
			doubt.write = &c
			return err
		}
		res.Changes = append(res.Changes, c)
	}
	return nil
}

// record keeps what is ours, and what of it runs.
func (m *Manager) record(ctx context.Context, ours, running network.Allocation) error {
	r, err := m.cfg.Store.Networks(ctx)
	if err != nil || r.Allocation.Equal(ours) && r.Applied.Equal(running) {
		return err
	}
	return m.put(ctx, r, ours, running)
}

// put writes the record r, as it was just read, with these in it, also when they are
// not new: when it was written is when the networks may have changed.
func (m *Manager) put(ctx context.Context, r network.Record, ours, running network.Allocation) error {
	r.Allocation, r.Applied = ours, running
	return m.cfg.Store.PutNetworks(ctx, r)
}

func (m *Manager) step(name, detail string) { m.cfg.Observe(Step{name, detail}) }

func wait(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-t.C:
		return nil
	}
}
