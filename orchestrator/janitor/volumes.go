package janitor

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"savepoint/orchestrator"
)

// volumes goes through the volumes of saved memory.
func (l *look) volumes(ctx context.Context) error {
	for _, vol := range l.inv.Volumes {
		tx, ours := orchestrator.TxOf(vol.Snapshot)
		if !ours && !slices.Contains(l.j.c.Keep, vol.Snapshot) {
			continue
		}
		v, sb, ok := l.holder(vol)
		if !ok {
			l.ownerless(ctx, vol)
			continue
		}
		if sb.ID == "" || v.Saved == vol.ID {
			continue
		}
		all, err := l.list(ctx, v.VM)
		if err != nil && !errors.Is(err, orchestrator.ErrNotFound) {
			return err
		}
		if err != nil || slices.ContainsFunc(all, func(s orchestrator.Snapshot) bool { return s.Name == vol.Snapshot }) {
			continue
		}
		if ours {
			claim, err := l.j.c.Ledger.Claim(ctx, tx)
			if err != nil && !errors.Is(err, orchestrator.ErrNotFound) {
				return &orchestrator.JournalError{Cause: err}
			}
			if err == nil && (!claim.Settled && !claim.State.Final() || claim.Sandbox.ID != sb.ID) {
				continue // recovery has it, or it is another's
			}
		}
		f := Finding{
			Kind: KindMemory, Level: LevelCollect, Subject: "volume " + vol.ID, Sandbox: sb.Name, Bytes: vol.Size,
			Evidence: fmt.Sprintf("no snapshot of %s refers to it", v.VM), Action: "it is deleted",
			Command: fmt.Sprintf("pvesm free %s (as root on node %s)", vol.ID, vol.Node),
			Check:   fmt.Sprintf("that qm listsnapshot %d shows no %s; to let savepoint do it give its token Datastore.Allocate on the storage", vol.VM, vol.Snapshot),
			act: func(ctx context.Context, started orchestrator.Started) error {
				return l.j.c.Cluster.DeleteVolume(ctx, v.VM, sb.ID, vol.ID, started)
			},
		}
		if err := l.delay(ctx, &f, v); err != nil {
			return err
		}
		l.add(f)
	}
	return nil
}

// holder finds the VM of a volume. sb is empty for a VM that is not a living
// sandbox's: what it has goes with it, or is not our business.
func (l *look) holder(vol Volume) (v VM, sb orchestrator.Sandbox, ok bool) {
	for _, v := range l.inv.VMs {
		if v.VM.ID != vol.VM {
			continue
		}
		sb, known := l.byID[v.Sandbox]
		alive := sb.State == orchestrator.SandboxReady || sb.State == orchestrator.SandboxQuarantined || sb.State == orchestrator.SandboxPooled
		if !known || !v.Ours || !alive || sb.VM != v.VM {
			sb = orchestrator.Sandbox{}
		}
		return v, sb, true
	}
	return VM{}, orchestrator.Sandbox{}, false
}

// ownerless is a volume of ours, by its name, whose VM is gone: nothing carries
// our mark any more, so an operator decides. The registry has to have used the id.
func (l *look) ownerless(ctx context.Context, vol Volume) {
	if len(l.inv.Nodes) > 0 || vol.VM < l.j.c.First || vol.VM > l.j.c.Last {
		return
	}
	for _, sb := range l.sandboxes {
		if sb.VM.ID != vol.VM {
			continue
		}
		if _, err := l.j.c.Hypervisor.Status(ctx, orchestrator.VMRef{Node: vol.Node, ID: vol.VM}); !errors.Is(err, orchestrator.ErrNotFound) {
			return
		}
		l.add(Finding{
			Kind: KindMemory, Level: LevelOperator, Subject: "volume " + vol.ID, Sandbox: sb.Name, Bytes: vol.Size,
			Evidence: fmt.Sprintf("vm %d", vol.VM) + " of sandbox " + sb.Name + " is gone and left it",
			Action:   "left alone: without its vm nothing proves that it is ours",
			Command:  fmt.Sprintf("pvesm free %s (as root on node %s)", vol.ID, vol.Node), Check: fmt.Sprintf("that no vm %d exists on any node", vol.VM),
		})
		return
	}
}
