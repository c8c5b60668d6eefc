package provision

import (
	"context"
	"errors"
	"fmt"

	"savepoint/orchestrator"
)

// Destroy stops and removes the sandbox's VM and frees its address. It is
// safe to repeat: what is gone already is no error. ErrDenied means the VM
// does not carry the sandbox as its owner, or we lack the right; it is left
// alone and the sandbox quarantined with the reason. After any other error the
// sandbox stays "destroying" and Recover goes on.
func (p *Provisioner) Destroy(ctx context.Context, sb orchestrator.Sandbox) error {
	if sb.State == orchestrator.SandboxDestroyed {
		return nil // its VM id may be somebody else's by now
	}
	err := p.remove(ctx, &sb)
	if err == nil {
		return nil
	}
	err = fmt.Errorf("destroy sandbox %s: %w", sb.Name, err)
	if errors.Is(err, orchestrator.ErrDenied) {
		return errors.Join(err, p.quarantine(ctx, &sb, err.Error()+"; mend the cause and run savepoint sandbox destroy "+sb.Name))
	}
	return err
}

func (p *Provisioner) remove(ctx context.Context, sb *orchestrator.Sandbox) error {
	if err := p.put(ctx, sb, orchestrator.SandboxDestroying, sb.Reason); err != nil {
		return err
	}
	p.c.Guest.Disconnect(sb.ID)
	if sb.VM.ID != 0 {
		if err := p.step("destroy", sb.VM.String(), func() error { return p.removeVM(ctx, sb) }); err != nil {
			return err
		}
	}
	// Recovery looks at no sandbox that is destroyed: its address goes first.
	if err := p.c.Registry.ReleaseAddress(ctx, sb.ID); err != nil {
		return err
	}
	return p.put(ctx, sb, orchestrator.SandboxDestroyed, sb.Reason)
}

func (p *Provisioner) removeVM(ctx context.Context, sb *orchestrator.Sandbox) error {
	status, err := p.c.Hypervisor.Status(ctx, sb.VM)
	switch {
	case errors.Is(err, orchestrator.ErrNotFound):
		return nil
	case err != nil:
		return err
	case status.Owner == sb.ID:
	case sb.HostKey == "":
		// The clone never got as far as to make it ours, or the id was somebody
		// else's all along: not ours to touch.
		return nil
	default:
		return fmt.Errorf("%s does not say that it belongs to sandbox %s: %w; somebody changed its tags or description, or used its id again; it is left alone",
			sb.VM, sb.ID, orchestrator.ErrDenied)
	}
	if err := p.c.Hypervisor.Stop(ctx, vmRequest(*sb)); err != nil {
		return err
	}
	return p.c.Hypervisor.Destroy(ctx, vmRequest(*sb))
}

// Unfinished returns the sandboxes whose creation or removal was interrupted.
func Unfinished(ctx context.Context, r Registry) ([]orchestrator.Sandbox, error) {
	all, err := r.Sandboxes(ctx)
	if err != nil {
		return nil, err
	}
	var left []orchestrator.Sandbox
	for _, sb := range all {
		if sb.State == orchestrator.SandboxCreating || sb.State == orchestrator.SandboxDestroying {
			left = append(left, sb)
		}
	}
	return left, nil
}

// Recover finishes what a crash left: the sandboxes that are Unfinished are
// removed. It returns those it removed, as they were before, and the joined
// errors of the others.
func (p *Provisioner) Recover(ctx context.Context) ([]orchestrator.Sandbox, error) {
	left, err := Unfinished(ctx, p.c.Registry)
	if err != nil {
		return nil, err
	}
	var removed []orchestrator.Sandbox
	var errs []error
	for _, sb := range left {
		if err := p.Destroy(ctx, sb); err != nil {
			errs = append(errs, err)
			continue
		}
		removed = append(removed, sb)
	}
	return removed, errors.Join(errs...)
}
