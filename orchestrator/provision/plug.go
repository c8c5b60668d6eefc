package provision

import (
	"context"
	"errors"
	"fmt"

	"savepoint/network"
	"savepoint/orchestrator"
)

// pools are the networks that a sandbox may be on, in order of preference.
func (p *Provisioner) pools(ctx context.Context, tenant string) ([]network.Pool, error) {
	switch {
	case tenant == "":
		return []network.Pool{{Subnet: p.c.Subnet, Gateway: p.c.Gateway}}, nil
	case p.c.Networks == nil || p.c.Prover == nil:
		return nil, &orchestrator.UnsupportedError{
			What: fmt.Sprintf("a sandbox of tenant %s: no networks are configured", tenant), Mend: "write network.tenants",
		}
	}
	return p.c.Networks.Pools(ctx, tenant)
}

// plug reserves an address in the first network that has one left. It is
// recorded with the sandbox when the VM gets its id.
func (p *Provisioner) plug(ctx context.Context, sb *orchestrator.Sandbox, pools []network.Pool) (network.Pool, error) {
	var errs []error
	for _, pool := range pools {
		addr, err := p.c.Registry.ReserveAddress(ctx, pool.Subnet, sb.ID)
		switch {
		case err == nil:
			sb.Address, sb.VNet = addr, pool.VNet
			return pool, nil
		case !errors.Is(err, orchestrator.ErrBusy): // not that it is full
			return network.Pool{}, err
		}
		errs = append(errs, err)
	}
	return network.Pool{}, errors.Join(errs...)
}

// workspace finds the volume that holds what the agent writes, records it and
// makes it the sandbox's, before anything can be written to it.
func (p *Provisioner) workspace(ctx context.Context, sb *orchestrator.Sandbox) error {
	if p.c.Workspaces == nil {
		return nil
	}
	return p.step("workspace", sb.VM.String(), func() (err error) {
		if sb.Workspace, err = p.c.Workspaces.Find(ctx, *sb); err != nil || sb.Workspace == "" {
			return err
		}
		if err := p.put(ctx, sb, orchestrator.SandboxCreating, ""); err != nil {
			return err
		}
		return p.c.Workspaces.Claim(ctx, *sb)
	})
}

// seal proves the isolation of a sandbox that is in a zone. Without the proof it
// is not handed out (F101, F108).
func (p *Provisioner) seal(ctx context.Context, sb orchestrator.Sandbox) error {
	if sb.Tenant == "" {
		return nil
	}
	if p.c.Prover == nil {
		return &orchestrator.UnsupportedError{
			What: fmt.Sprintf("prove that the network of sandbox %s is sealed: nothing is configured to measure it", sb.Name),
			Mend: "write network.tenants as it was when the sandbox was made",
		}
	}
	return p.step("prove", "that "+sb.Name+" is sealed", func() error { return p.c.Prover.Prove(ctx, sb) })
}
