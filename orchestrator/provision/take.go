package provision

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"savepoint/network"
	"savepoint/orchestrator"
)

// spoiltAtOnce bounds how many pooled sandboxes that do not answer are removed
// in one go: when so many do not, it is hardly their fault.
const spoiltAtOnce = 3

// take hands out a pooled sandbox that is what was asked for; not ok when there
// is none. It is looked at first, and one durable write gives it its name: a
// crash before that leaves it in the pool, one after it a sandbox of that name.
// One that is not all right is removed and the next one is tried.
func (p *Provisioner) take(ctx context.Context, name string, w Wish, nodes []Node, pools []network.Pool) (sb orchestrator.Sandbox, ok bool, err error) {
	tried := map[orchestrator.SandboxID]bool{}
	for bad := 0; bad < spoiltAtOnce; {
		sb, ok, err = p.candidate(ctx, w, nodes, pools, tried)
		if err != nil || !ok {
			return orchestrator.Sandbox{}, false, err
		}
		tried[sb.ID] = true
		sb, ok, err = p.handOut(ctx, sb, name)
		var unfit *unfitError
		switch {
		case ok:
			return sb, true, nil
		case errors.As(err, &unfit):
			bad++
		case ctx.Err() != nil, errors.Is(err, orchestrator.ErrExists), recordFailed(err):
			return orchestrator.Sandbox{}, false, fmt.Errorf("create sandbox %s: %w", name, explain(ctx, err))
		}
	}
	return orchestrator.Sandbox{}, false, nil
}

func recordFailed(err error) bool {
	var failed *orchestrator.JournalError
	return errors.As(err, &failed)
}

// candidate holds the pooled sandbox that can be handed out soonest: one whose
// proof need not be repeated, then the oldest.
func (p *Provisioner) candidate(ctx context.Context, w Wish, nodes []Node, pools []network.Pool, not map[orchestrator.SandboxID]bool) (orchestrator.Sandbox, bool, error) {
	p.placing.Lock()
	defer p.placing.Unlock()
	pooled, err := p.pooled(ctx)
	if err != nil {
		return orchestrator.Sandbox{}, false, err
	}
	late := map[orchestrator.SandboxID]int{}
	pooled = slices.DeleteFunc(pooled, func(sb orchestrator.Sandbox) bool {
		if not[sb.ID] || p.held[sb.ID] || sb.Tenant != w.Tenant ||
			w.Node != "" && sb.VM.Node != w.Node || w.Template.ID != 0 && sb.Template != w.Template {
			return true
		}
		v, _ := p.judge(sb, nodes, w, pools)
		proved, err := p.proved(ctx, sb, p.c.Warm.ProofAge)
		late[sb.ID] = rank(err != nil || !proved)
		return v != fits
	})
	if len(pooled) == 0 {
		return orchestrator.Sandbox{}, false, nil
	}
	sb := slices.MinFunc(pooled, func(a, b orchestrator.Sandbox) int {
		return cmp.Or(late[a.ID]-late[b.ID], a.Created.Compare(b.Created), cmp.Compare(a.ID, b.ID))
	})
	p.held[sb.ID] = true
	return sb, true, nil
}

// pooled returns the sandboxes that wait in the pool.
func (p *Provisioner) pooled(ctx context.Context) ([]orchestrator.Sandbox, error) {
	all, err := p.c.Registry.Sandboxes(ctx)
	return slices.DeleteFunc(all, func(sb orchestrator.Sandbox) bool { return sb.State != orchestrator.SandboxPooled }), err
}

// hold keeps a pooled sandbox from being handed out or removed by another call;
// not ok when one has it, or it is not in the pool any more.
func (p *Provisioner) hold(ctx context.Context, id orchestrator.SandboxID) (sb orchestrator.Sandbox, ok bool, err error) {
	p.placing.Lock()
	defer p.placing.Unlock()
	pooled, err := p.pooled(ctx)
	i := slices.IndexFunc(pooled, func(sb orchestrator.Sandbox) bool { return sb.ID == id })
	if err != nil || i < 0 || p.held[id] {
		return orchestrator.Sandbox{}, false, err
	}
	p.held[id] = true
	return pooled[i], true, nil
}

func (p *Provisioner) letGo(id orchestrator.SandboxID) {
	p.placing.Lock()
	defer p.placing.Unlock()
	delete(p.held, id)
}

// handOut looks at a pooled sandbox that is held, and gives it its name. One that
// is not all right is removed: *unfitError.
func (p *Provisioner) handOut(ctx context.Context, sb orchestrator.Sandbox, name string) (orchestrator.Sandbox, bool, error) {
	defer p.letGo(sb.ID)
	err := p.step("take", sb.VM.String(), func() error { return p.check(ctx, sb, p.c.Warm.ProofAge) })
	var unfit *unfitError
	if errors.As(err, &unfit) {
		_ = p.Destroy(ctx, sb) // what of it stays is withheld, or finished by Recover
		p.left()
	}
	if err != nil {
		return sb, false, err
	}
	p.placing.Lock()
	defer p.placing.Unlock()
	if err := p.unused(ctx, name); err != nil {
		return sb, false, err
	}
	sb.Name = name
	if err := p.put(ctx, &sb, orchestrator.SandboxReady, ""); err != nil {
		return sb, false, err
	}
	p.left()
	return sb, true, nil
}

// left wakes Pool.Run.
func (p *Provisioner) left() {
	select {
	case p.taken <- struct{}{}:
	default:
	}
}

// check makes sure that a pooled sandbox is what a new one is: its VM is ours and
// runs, its guest answers with the pinned key, is the pristine one and has the
// time, and its network is proved to be sealed, not longer than age ago.
// *unfitError: it is not. Another error says that this could not be found out.
func (p *Provisioner) check(ctx context.Context, sb orchestrator.Sandbox, age time.Duration) error {
	st, err := p.c.Hypervisor.Status(ctx, sb.VM)
	switch {
	case errors.Is(err, orchestrator.ErrNotFound):
		return &unfitError{what: sb.VM.String() + " is gone"}
	case err != nil:
		return err
	case st.Owner != sb.ID:
		return &unfitError{what: sb.VM.String() + " does not say any more that it is ours"}
	case st.Lock != "":
		return fmt.Errorf("%s is locked (%s): %w", sb.VM, st.Lock, orchestrator.ErrBusy)
	case !st.Running:
		return &unfitError{what: sb.VM.String() + " is off"}
	}
	if err := p.awake(ctx, sb); err != nil {
		return err
	}
	proved, err := p.proved(ctx, sb, age)
	if err != nil || proved {
		return err
	}
	err = p.seal(ctx, sb)
	var open *orchestrator.UnsealedError
	if errors.As(err, &open) {
		return &unfitError{cause: err}
	}
	return err
}

// awake asks the guest of a pooled sandbox who it is.
func (p *Provisioner) awake(ctx context.Context, sb orchestrator.Sandbox) error {
	actx, cancel := context.WithTimeoutCause(ctx, p.c.Warm.Answer, fmt.Errorf("it did not answer within %s", p.c.Warm.Answer))
	defer cancel()
	err := p.prove(actx, sb)
	var away *orchestrator.NodeError
	if err == nil || ctx.Err() != nil || errors.As(err, &away) {
		return err
	}
	return &unfitError{"the guest of " + sb.VM.String(), explain(actx, err)}
}

// proved reports whether the sandbox's isolation needs no new proof: the last one
// is not older than age, and nothing was applied to the networks since.
func (p *Provisioner) proved(ctx context.Context, sb orchestrator.Sandbox, age time.Duration) (bool, error) {
	if sb.Tenant == "" {
		return true, nil
	}
	if p.c.Warm.Proofs == nil {
		return false, nil
	}
	at, err := p.c.Warm.Proofs.Proved(ctx, sb.ID)
	if err != nil {
		return false, err
	}
	changed, err := p.c.Warm.Proofs.NetworksChanged(ctx)
	since := p.c.Now().Sub(at)
	return at.After(changed) && since >= 0 && since <= age, err // one of the future counts for nothing
}
