package provision

import (
	"context"
	"errors"
	"fmt"

	"savepoint/orchestrator"
)

// Destroy stops and removes the sandbox's VM and frees its address. It is
// safe to repeat: what is gone already is no error. ErrDenied means the VM
// does not carry the sandbox as its owner; it is left alone.
func (p *Provisioner) Destroy(ctx context.Context, sb orchestrator.Sandbox) error {
	if err := p.remove(ctx, &sb); err != nil {
		return fmt.Errorf("destroy sandbox %s: %w", sb.Name, err)
	}
	return nil
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
	if err := p.put(ctx, sb, orchestrator.SandboxDestroyed, sb.Reason); err != nil {
		return err
	}
	return p.c.Registry.ReleaseAddress(ctx, sb.ID)
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

// Recover finishes what a crash left: sandboxes that were being made or
// removed are removed. It returns those it touched; dryRun only names them.
func (p *Provisioner) Recover(ctx context.Context, dryRun bool) ([]orchestrator.Sandbox, error) {
	all, err := p.c.Registry.Sandboxes(ctx)
	if err != nil {
		return nil, err
	}
	var touched []orchestrator.Sandbox
	var errs []error
	for _, sb := range all {
		if sb.State != orchestrator.SandboxCreating && sb.State != orchestrator.SandboxDestroying {
			continue
		}
		touched = append(touched, sb)
		if !dryRun {
			errs = append(errs, p.Destroy(ctx, sb))
		}
	}
	return touched, errors.Join(errs...)
}
