package provision

import (
	"context"
	"fmt"

	"savepoint/orchestrator"
)

// Wake makes sure that the sandbox's VM is ours and runs. It starts one that is
// off (a node was restarted, say) and waits until its guest answers. A
// quarantined sandbox is refused with *StuckError, one in the making or being
// removed with ErrBusy.
func (p *Provisioner) Wake(ctx context.Context, sb orchestrator.Sandbox) error {
	switch sb.State {
	case orchestrator.SandboxReady:
	case orchestrator.SandboxQuarantined:
		return &orchestrator.StuckError{
			Sandbox: sb.Name, Reason: sb.Reason,
			Mend: "see savepoint sandbox show " + sb.Name,
		}
	default:
		return fmt.Errorf("use sandbox %s: it is %s: %w; run savepoint recover", sb.Name, sb.State, orchestrator.ErrBusy)
	}
	status, err := p.c.Hypervisor.Status(ctx, sb.VM)
	if err != nil {
		return fmt.Errorf("use sandbox %s: %w", sb.Name, err)
	}
	if status.Owner != sb.ID {
		return fmt.Errorf("use sandbox %s: %s does not say that it belongs to it: %w", sb.Name, sb.VM, orchestrator.ErrDenied)
	}
	if status.Running {
		return nil
	}
	bctx, cancel := p.bootContext(ctx)
	defer cancel()
	err = p.step("start", sb.VM.String(), func() error {
		if err := p.c.Hypervisor.Start(bctx, vmRequest(sb)); err != nil {
			return err
		}
		_, err := p.c.Guest.Inspect(bctx, sb)
		return err
	})
	if err != nil {
		return fmt.Errorf("use sandbox %s: %w", sb.Name, explain(bctx, err))
	}
	return nil
}
