package provision

import (
	"context"
	"errors"
	"fmt"

	"savepoint/orchestrator"
)

// Wake makes sure that the sandbox's VM is ours and runs. One that is off (a node
// was restarted, say) is started, and proved to be sealed when its guest answers:
// its network card may be another than when it was proved last. A quarantined
// sandbox is refused with *StuckError, one in the making or being removed with
// ErrBusy; one that is found open is quarantined.
func (p *Provisioner) Wake(ctx context.Context, sb orchestrator.Sandbox) error {
	started, err := p.start(ctx, sb)
	if err != nil || !started {
		return err
	}
	if err = p.seal(ctx, sb); err == nil {
		return nil
	}
	err = fmt.Errorf("use sandbox %s: %w", sb.Name, err)
	var open *orchestrator.UnsealedError
	if errors.As(err, &open) {
		err = errors.Join(err, p.Withhold(ctx, sb, open.Error()))
	}
	return err
}

// Start is Wake without the proof, for who proves it afterwards.
func (p *Provisioner) Start(ctx context.Context, sb orchestrator.Sandbox) error {
	_, err := p.start(ctx, sb)
	return err
}

func (p *Provisioner) start(ctx context.Context, sb orchestrator.Sandbox) (started bool, err error) {
	switch sb.State {
	case orchestrator.SandboxReady:
	case orchestrator.SandboxQuarantined:
		return false, &orchestrator.StuckError{
			Sandbox: sb.Name, Reason: sb.Reason,
			Mend: "see savepoint sandbox show " + sb.Name,
		}
	case orchestrator.SandboxPooled:
		return false, fmt.Errorf("use sandbox %s: it is nobody's and waits in the pool: %w; take one with savepoint sandbox create NAME", sb.Name, orchestrator.ErrBusy)
	default:
		return false, fmt.Errorf("use sandbox %s: it is %s: %w; run savepoint recover", sb.Name, sb.State, orchestrator.ErrBusy)
	}
	status, err := p.c.Hypervisor.Status(ctx, sb.VM)
	if err != nil {
		return false, fmt.Errorf("use sandbox %s: %w", sb.Name, err)
	}
	if status.Owner != sb.ID {
		return false, fmt.Errorf("use sandbox %s: %s does not say that it belongs to it: %w", sb.Name, sb.VM, orchestrator.ErrDenied)
	}
	if status.Running {
		return false, nil
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
		return false, fmt.Errorf("use sandbox %s: %w", sb.Name, explain(bctx, err))
	}
	return true, nil
}

// Withhold quarantines a sandbox whose network was found open, until an operator
// has closed it and releases the sandbox.
func (p *Provisioner) Withhold(ctx context.Context, sb orchestrator.Sandbox, found string) error {
	return p.quarantine(ctx, &sb, found+"; close the zone and run savepoint sandbox release "+sb.Name)
}
