package provision

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"savepoint/orchestrator"
)

// maxSkew is how far a guest's clock may be from ours (DESIGN: within 1 s).
const maxSkew = time.Second

// Reset returns the sandbox to the pristine snapshot and proves it. The caller
// makes sure that no transaction is open in it. While it works, and when it is
// interrupted, the sandbox is quarantined with the reason; it can be repeated.
// The snapshots of transactions go first, newest first, because some storages
// restore only the newest one. Snapshots that savepoint did not take are left
// alone; where one is in the way the error is *NotLatestError.
func (p *Provisioner) Reset(ctx context.Context, sb orchestrator.Sandbox) error {
	_, err := p.reset(ctx, sb, sb.Name)
	return err
}

// reset is Reset that gives the sandbox a name with the last record.
func (p *Provisioner) reset(ctx context.Context, sb orchestrator.Sandbox, name string) (orchestrator.Sandbox, error) {
	if sb.State != orchestrator.SandboxReady && sb.State != orchestrator.SandboxQuarantined || sb.HostKey == "" {
		return sb, fmt.Errorf("reset sandbox %s: it is %s: %w; run savepoint recover", sb.Name, sb.State, orchestrator.ErrBusy)
	}
	was, reason := sb.State, sb.Reason
	if err := p.put(ctx, &sb, orchestrator.SandboxQuarantined, "a reset was interrupted; run savepoint sandbox reset "+sb.Name); err != nil {
		return sb, err
	}
	p.c.Guest.Disconnect(sb.ID)
	var away *orchestrator.NodeError
	untouched := false
	err := p.step("reset", string(Pristine), func() error {
		list, err := p.c.Snapshots.List(ctx, sb.VM)
		if err != nil {
			untouched = errors.As(err, &away)
			return err
		}
		return p.restore(ctx, sb, list)
	})
	if untouched { // its node is out of reach: it is as it was, and that is no reason to withhold it
		return sb, errors.Join(fmt.Errorf("reset sandbox %s: %w", sb.Name, err), p.put(ctx, &sb, was, reason))
	}
	if err != nil {
		err = fmt.Errorf("reset sandbox %s: %w", sb.Name, err)
		return sb, errors.Join(err, p.quarantine(ctx, &sb, err.Error()+"; mend the cause and run savepoint sandbox reset "+sb.Name))
	}
	sb.Name = name
	return sb, p.put(ctx, &sb, usable(sb), "")
}

func (p *Provisioner) restore(ctx context.Context, sb orchestrator.Sandbox, list []orchestrator.Snapshot) error {
	found := false
	for i := len(list) - 1; i >= 0; i-- {
		if list[i].Name == Pristine {
			found = list[i].Incomplete == ""
			break
		}
	}
	if !found {
		return fmt.Errorf("snapshot %s of %s: %w; destroy the sandbox and make it again", Pristine, sb.VM, orchestrator.ErrNotFound)
	}
	if err := p.dropWorkspace(ctx, sb, list); err != nil {
		return err
	}
	for i := len(list) - 1; i >= 0 && list[i].Name != Pristine; i-- {
		if _, ours := orchestrator.TxOf(list[i].Name); !ours {
			continue
		}
		if err := p.c.Snapshots.Delete(ctx, p.snapshot(sb, list[i].Name)); err != nil {
			return err
		}
	}
	if err := p.c.Snapshots.Rollback(ctx, p.snapshot(sb, Pristine)); err != nil {
		return err
	}
	bctx, cancel := p.bootContext(ctx)
	defer cancel()
	if err := p.prove(bctx, sb); err != nil {
		return explain(bctx, err)
	}
	return p.seal(ctx, sb) // the restored VM has the network card of its first moment
}

// dropWorkspace deletes the snapshots of transactions that are of the workspace
// volume alone: the volume cannot go back to an older one while they are there.
func (p *Provisioner) dropWorkspace(ctx context.Context, sb orchestrator.Sandbox, whole []orchestrator.Snapshot) error {
	if sb.Workspace == "" {
		return nil
	}
	if p.c.Workspaces == nil {
		return &orchestrator.UnsupportedError{
			What: "the workspace volume " + sb.Workspace + " of sandbox " + sb.Name + ": nothing is configured to reach it",
			Mend: "write workspace.storage and workspace.nodes as they were when the sandbox was made",
		}
	}
	list, err := p.c.Workspaces.List(ctx, sb.VM)
	if err != nil {
		return err
	}
	for _, s := range slices.Backward(list) {
		_, ours := orchestrator.TxOf(s.Name)
		if !ours || slices.ContainsFunc(whole, func(w orchestrator.Snapshot) bool { return w.Name == s.Name }) {
			continue // the cluster's snapshots of the whole VM have a part here
		}
		if err := p.c.Workspaces.Delete(ctx, p.snapshot(sb, s.Name)); err != nil {
			return err
		}
	}
	return nil
}

// prove checks that the guest is the pristine one and sets its clock.
func (p *Provisioner) prove(ctx context.Context, sb orchestrator.Sandbox) error {
	facts, err := p.c.Guest.Inspect(ctx, sb)
	if err != nil {
		return err
	}
	if facts.Generation != string(Pristine) {
		return fmt.Errorf("the guest's generation is %q instead of %q after the rollback: %w", facts.Generation, Pristine, orchestrator.ErrUnknownOutcome)
	}
	if err := p.c.Guest.SetClock(ctx, sb, p.c.Now()); err != nil {
		return err
	}
	if facts, err = p.c.Guest.Inspect(ctx, sb); err != nil {
		return err
	}
	if skew := facts.Clock.Sub(p.c.Now()).Abs() - facts.RoundTrip; skew > maxSkew {
		return fmt.Errorf("the guest's clock is off by %s after it was set: %w", skew, orchestrator.ErrUnknownOutcome)
	}
	return nil
}

func (p *Provisioner) snapshot(sb orchestrator.Sandbox, name orchestrator.SnapshotName) orchestrator.SnapshotRequest {
	return orchestrator.SnapshotRequest{Sandbox: sb.ID, VM: sb.VM, Name: name}
}

// bootContext ends when the guest has had its time to answer.
func (p *Provisioner) bootContext(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, p.c.BootTimeout,
		fmt.Errorf("the guest did not answer within %s (sandbox.boot_timeout)", p.c.BootTimeout))
}
