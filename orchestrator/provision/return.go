package provision

import (
	"context"
	"fmt"
	"slices"

	"savepoint/orchestrator"
)

// Return takes a sandbox back that its user is done with: it is reset to its
// first moment and waits in the pool for the next one, without a user's name; or
// it is removed, when the pool has enough or new sandboxes are made differently
// by now. It returns what has become of it. The caller makes sure that no
// transaction is open in it.
//
// Until the last record, which is one write, it is withheld under its old name,
// with the reason: after a crash Return can be repeated.
func (p *Provisioner) Return(ctx context.Context, sb orchestrator.Sandbox) (orchestrator.Sandbox, error) {
	switch sb.State {
	case orchestrator.SandboxReady, orchestrator.SandboxQuarantined:
	default:
		return sb, fmt.Errorf("return sandbox %s: it is %s: %w; run savepoint recover", sb.Name, sb.State, orchestrator.ErrBusy)
	}
	keep, err := p.keeps(ctx, sb)
	if err != nil {
		return sb, fmt.Errorf("return sandbox %s: %w", sb.Name, err)
	}
	if !keep {
		if err := p.Destroy(ctx, sb); err != nil {
			return sb, err
		}
		sb.State = orchestrator.SandboxDestroyed
		return sb, nil
	}
	return p.reset(ctx, sb, neutralName(sb.ID))
}

// keeps reports whether the pool has a place for the sandbox.
func (p *Provisioner) keeps(ctx context.Context, sb orchestrator.Sandbox) (bool, error) {
	w, wanted := p.wish(sb)
	if !wanted || sb.HostKey == "" {
		return false, nil
	}
	now, err := p.look(ctx)
	if err != nil {
		return false, err
	}
	if v, _ := p.stands(sb, now); v == spoilt {
		return false, nil
	}
	missing, full, err := p.missing(ctx, w, now)
	return missing > 0 && !slices.Contains(full, sb.VM.Node), err
}
