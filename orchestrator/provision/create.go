package provision

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"savepoint/network"
	"savepoint/orchestrator"
)

// Create makes a sandbox where there is room for it and returns it ready, or
// hands out a pooled one that is what was asked for, if Wish.Warm allows that.
// ErrExists: the name is in use. *PlaceError: no node takes it, and nothing was
// made. On any other error, and when ctx ends, the parts made so far are
// removed; if that is not possible the sandbox stays, quarantined, or, if its
// node is out of reach, for Recover to remove.
func (p *Provisioner) Create(ctx context.Context, name string, w Wish) (orchestrator.Sandbox, error) {
	if err := CheckName(name); err != nil {
		return orchestrator.Sandbox{}, err
	}
	if err := p.unused(ctx, name); err != nil {
		return orchestrator.Sandbox{}, err
	}
	pools, err := p.pools(ctx, w.Tenant)
	if err != nil {
		return orchestrator.Sandbox{}, fmt.Errorf("create sandbox %s: %w", name, err)
	}
	nodes, err := p.c.Fleet.Nodes(ctx, p.c.Template)
	if err != nil {
		return orchestrator.Sandbox{}, fmt.Errorf("create sandbox %s: %w", name, err)
	}
	if w.Warm {
		if sb, ok, err := p.take(ctx, name, w, nodes, pools); ok || err != nil {
			return sb, err
		}
	}
	return p.make(ctx, name, w, nodes, pools)
}

// make makes a sandbox; without a name, one for the pool.
func (p *Provisioner) make(ctx context.Context, name string, w Wish, nodes []Node, pools []network.Pool) (orchestrator.Sandbox, error) {
	sb, err := p.admit(ctx, name, nodes, w)
	if err != nil {
		return sb, err
	}
	if err := p.build(ctx, &sb, pools); err != nil {
		return sb, p.undo(ctx, &sb, fmt.Errorf("create sandbox %s: %w", sb.Name, err))
	}
	return sb, nil
}

func (p *Provisioner) build(ctx context.Context, sb *orchestrator.Sandbox, pools []network.Pool) error {
	pool, err := p.plug(ctx, sb, pools)
	if err != nil {
		return err
	}
	if err := p.clone(ctx, sb, pool); err != nil {
		return err
	}
	if err := p.workspace(ctx, sb); err != nil {
		return err
	}
	if err := p.boot(ctx, sb); err != nil {
		return err
	}
	if err := p.seal(ctx, *sb); err != nil {
		return err
	}
	err = p.step("pristine", string(Pristine), func() error {
		if _, err := p.c.Guest.Mark(ctx, *sb, string(Pristine)); err != nil {
			return err
		}
		return p.c.Snapshots.Create(ctx, orchestrator.SnapshotRequest{
			Sandbox: sb.ID, VM: sb.VM, Name: Pristine, Memory: true,
			Description: "savepoint: the sandbox as it was made",
		})
	})
	if err != nil {
		return err
	}
	return p.put(ctx, sb, usable(*sb), "")
}

// clone finds a free id and makes the VM.
func (p *Provisioner) clone(ctx context.Context, sb *orchestrator.Sandbox, pool network.Pool) error {
	storage := ""
	if p.c.FullClone { // a linked clone stays where the template is
		storage = p.c.Storage
	}
	for range attempts {
		id, err := p.c.Registry.ReserveVMID(ctx, p.c.FirstVMID, p.c.LastVMID, p.c.Rest, sb.ID)
		if err != nil {
			return err
		}
		sb.VM.ID = id
		if err := p.put(ctx, sb, orchestrator.SandboxCreating, ""); err != nil {
			return err
		}
		err = p.step("clone", fmt.Sprintf("template %d to %s", sb.Template.ID, sb.VM), func() error {
			return p.c.Hypervisor.Clone(ctx, orchestrator.CloneRequest{
				VMRequest: vmRequest(*sb), Template: sb.Template, Name: sb.Name, Full: p.c.FullClone,
				SSHKeys: p.c.SSHKeys, Address: netip.PrefixFrom(sb.Address, pool.Subnet.Bits()), Gateway: pool.Gateway,
				Bridge: pool.Bridge, CloneStorage: storage,
			})
		})
		if !isTaken(err) {
			return err
		}
	}
	return fmt.Errorf("find a free vm id between %d and %d: %w: %d ids in a row are taken by others; choose another range (cluster.vmid_first, cluster.vmid_last)",
		p.c.FirstVMID, p.c.LastVMID, orchestrator.ErrExists, attempts)
}

// boot starts the VM, pins its host key and prepares the guest.
func (p *Provisioner) boot(ctx context.Context, sb *orchestrator.Sandbox) error {
	if err := p.step("start", sb.VM.String(), func() error { return p.c.Hypervisor.Start(ctx, vmRequest(*sb)) }); err != nil {
		return err
	}
	bctx, cancel := p.bootContext(ctx)
	defer cancel()
	err := p.step("identity", "host key through the guest agent", func() (err error) {
		sb.HostKey, err = p.c.Identity.HostKey(bctx, sb.VM)
		return err
	})
	if err != nil {
		return explain(bctx, err)
	}
	err = p.step("prepare", sb.Address.String(), func() error { return p.c.Guest.Prepare(bctx, *sb, p.c.SSHKeys) })
	return explain(bctx, err)
}

// explain adds why the context ended, if it did.
func explain(ctx context.Context, err error) error {
	if err == nil || ctx.Err() == nil {
		return err
	}
	return fmt.Errorf("%w: %w", context.Cause(ctx), err)
}

// undo removes a half-made sandbox and returns the first cause with whatever
// went wrong on the way.
func (p *Provisioner) undo(ctx context.Context, sb *orchestrator.Sandbox, cause error) error {
	cctx, cancel := detach(ctx)
	defer cancel()
	if err := p.remove(cctx, sb); err != nil {
		var away *orchestrator.NodeError
		if errors.As(err, &away) { // nothing is wrong with it: recovery removes it when the node is back
			return errors.Join(cause, err)
		}
		reason := fmt.Sprintf("creation failed (%v) and so did its removal: %v; run savepoint sandbox destroy %s", cause, err, sb.Name)
		return errors.Join(cause, err, p.quarantine(ctx, sb, reason))
	}
	return cause
}
