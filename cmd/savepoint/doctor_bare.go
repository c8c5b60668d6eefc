package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"savepoint/orchestrator"
	"savepoint/orchestrator/provision"
)

// bare proves what can be proved without a guest that answers: that a VM can be
// cloned, snapshotted, rolled back and removed, and that its configuration comes
// back. That its disks do is not to be seen from outside.
func (c *canary) bare(ctx context.Context) {
	d := c.d
	sb, err := c.bareVM(ctx)
	if sb.ID != "" {
		defer func() {
			end, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Minute)
			defer cancel()
			if err := d.s.prov.Destroy(end, sb); err != nil {
				d.add("canary", levelProblem, fmt.Sprintf("on %s: the canary could not be removed: %v", c.perch, err), "savepoint recover")
			}
		}()
	}
	if err == nil {
		c.sb = sb
		err = c.bareProof(ctx, orchestrator.VMRequest{Sandbox: sb.ID, VM: sb.VM})
	}
	switch {
	case err != nil:
		c.report(ctx, err)
	default:
		d.add("canary", levelWarning, fmt.Sprintf("%s: a VM was cloned, snapshotted, and its configuration rolled back; that disks and memory come back is not proved, because no guest can be reached", c.perch),
			"mend what keeps guests from being reached, then run savepoint doctor --canary again")
	}
}

// bareVM records a sandbox and clones its VM, which is not started.
func (c *canary) bareVM(ctx context.Context) (orchestrator.Sandbox, error) {
	d, cl := c.d, c.d.cfg.Cluster
	if _, err := d.s.prov.Lookup(ctx, canaryName); err == nil {
		return orchestrator.Sandbox{}, fmt.Errorf("make the canary: %w: there is a sandbox %s; destroy it first", orchestrator.ErrExists, canaryName)
	}
	source, ok := d.sourceOn(c.perch.node)
	if !ok {
		return orchestrator.Sandbox{}, provision.NoTemplate(d.cfg.Sandbox.Template)
	}
	sb := orchestrator.Sandbox{
		ID: orchestrator.SandboxID(orchestrator.NewTxID(time.Now())), Name: canaryName, State: orchestrator.SandboxCreating,
		VM: orchestrator.VMRef{Node: c.perch.node}, Template: source.VM, Created: time.Now(),
	}
	reg := d.s.registry()
	subnet := d.cfg.Sandbox.Subnet
	if !subnet.IsValid() {
		subnet = netip.MustParsePrefix("192.0.2.0/24") // it is never started
	}
	c.at(c.perch.storage, "clone")
	storage := ""
	if c.perch.full {
		storage = c.perch.storage
	}
	for {
		if err := reg.PutSandbox(ctx, sb); err != nil {
			return orchestrator.Sandbox{}, &orchestrator.JournalError{Cause: err}
		}
		id, err := reg.ReserveVMID(ctx, orchestrator.VMID(cl.VMIDFirst), orchestrator.VMID(cl.VMIDLast), cl.VMIDRest, sb.ID)
		if err != nil {
			return sb, err
		}
		sb.VM.ID = id
		if err := reg.PutSandbox(ctx, sb); err != nil {
			return sb, &orchestrator.JournalError{Cause: err}
		}
		err = d.s.cluster.VMs().Clone(ctx, orchestrator.CloneRequest{
			VMRequest: orchestrator.VMRequest{Sandbox: sb.ID, VM: sb.VM}, Template: sb.Template, Name: canaryName, Full: c.perch.full,
			SSHKeys: d.s.keys, Address: netip.PrefixFrom(subnet.Masked().Addr().Next(), subnet.Bits()), CloneStorage: storage,
		})
		if !errors.Is(err, orchestrator.ErrExists) { // somebody else has the id: the next one
			return sb, err
		}
	}
}

func (c *canary) bareProof(ctx context.Context, r orchestrator.VMRequest) error {
	snaps := c.d.s.cluster.Snapshots()
	snap := orchestrator.SnapshotRequest{Sandbox: r.Sandbox, VM: r.VM, Name: canaryDisk, Description: "savepoint: a canary's"}
	c.at(c.perch.storage, "snapshot %s", canaryDisk)
	if err := snaps.Create(ctx, snap); err != nil {
		return err
	}
	c.at("", "change its configuration")
	if err := c.d.s.cluster.Rename(ctx, r, "damaged"); err != nil {
		return err
	}
	c.at(c.perch.storage, "rollback to %s", canaryDisk)
	if err := snaps.Rollback(ctx, snap); err != nil {
		return err
	}
	st, err := c.d.s.cluster.VMs().Status(ctx, r.VM)
	if err != nil {
		return err
	}
	if st.Name != canaryName {
		return fmt.Errorf("the rollback did not restore the configuration: the name of %s is %q: %w", r.VM, st.Name, orchestrator.ErrUnknownOutcome)
	}
	return c.remove(ctx, snaps, canaryDisk)
}
