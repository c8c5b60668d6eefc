package provision

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"savepoint/orchestrator"
)

// Release makes a quarantined sandbox ready again, or pooled, after an operator mended what
// it was withheld for. Nothing of that is believed: the VM has to say that it
// is the sandbox's, its lock has to be gone, its snapshots have to be complete
// with the pristine one among them, and the guest has to answer with the pinned
// key and not with the generation of a snapshot that it does not descend from:
// that is what a rollback leaves that ended half-way. The caller
// makes sure that no transaction is open in it. On an error the sandbox stays
// quarantined and nothing but its power state was changed.
func (p *Provisioner) Release(ctx context.Context, sb orchestrator.Sandbox) error {
	switch {
	case sb.State == usable(sb):
		return nil
	case sb.State != orchestrator.SandboxQuarantined:
		return fmt.Errorf("release sandbox %s: it is %s: %w; run savepoint recover", sb.Name, sb.State, orchestrator.ErrBusy)
	case sb.HostKey == "":
		return p.refused(sb, orchestrator.ErrNotFound, "it was never finished", "savepoint sandbox destroy "+sb.Name)
	}
	p.c.Guest.Disconnect(sb.ID)
	err := p.step("verify", sb.VM.String(), func() error {
		snaps, err := p.sound(ctx, sb)
		if err != nil {
			return err
		}
		return p.answers(ctx, sb, snaps)
	})
	if err == nil {
		err = p.seal(ctx, sb)
	}
	if err != nil {
		return err
	}
	return p.put(ctx, &sb, usable(sb), "")
}

func (p *Provisioner) refused(sb orchestrator.Sandbox, class error, cause, mend string) error {
	return fmt.Errorf("release sandbox %s: %s: %w; %s", sb.Name, cause, class, mend)
}

// sound checks the VM as the cluster shows it and returns its snapshots.
func (p *Provisioner) sound(ctx context.Context, sb orchestrator.Sandbox) ([]orchestrator.Snapshot, error) {
	st, err := p.c.Hypervisor.Status(ctx, sb.VM)
	switch {
	case errors.Is(err, orchestrator.ErrNotFound):
		return nil, p.refused(sb, orchestrator.ErrNotFound, "there is no "+sb.VM.String(), "run savepoint sandbox destroy "+sb.Name)
	case err != nil:
		return nil, fmt.Errorf("release sandbox %s: %w", sb.Name, err)
	case st.Owner != sb.ID:
		return nil, p.refused(sb, orchestrator.ErrDenied, sb.VM.String()+" does not say that it belongs to it", "give the vm its tags and description back, or run savepoint sandbox destroy "+sb.Name)
	case st.Lock != "":
		return nil, p.refused(sb, orchestrator.ErrBusy, fmt.Sprintf("%s is locked (%s)", sb.VM, st.Lock),
			fmt.Sprintf("once no task of it runs, run qm unlock %d on node %s as root", sb.VM.ID, sb.VM.Node))
	}
	all, err := p.c.Snapshots.List(ctx, sb.VM)
	if err != nil {
		return nil, fmt.Errorf("release sandbox %s: %w", sb.Name, err)
	}
	pristine := false
	for _, s := range all {
		if s.Incomplete != "" {
			return nil, p.refused(sb, orchestrator.ErrBusy, fmt.Sprintf("snapshot %s is incomplete (%s)", s.Name, s.Incomplete), "run savepoint gc")
		}
		pristine = pristine || s.Name == Pristine
	}
	if !pristine {
		return nil, p.refused(sb, orchestrator.ErrNotFound, "the snapshot "+string(Pristine)+" is gone, so it cannot be reset any more", "run savepoint sandbox destroy "+sb.Name)
	}
	return all, nil
}

// answers starts the VM if it is off and asks the guest who it is.
func (p *Provisioner) answers(ctx context.Context, sb orchestrator.Sandbox, snaps []orchestrator.Snapshot) error {
	bctx, cancel := p.bootContext(ctx)
	defer cancel()
	if err := p.c.Hypervisor.Start(bctx, vmRequest(sb)); err != nil {
		return fmt.Errorf("release sandbox %s: %w", sb.Name, explain(bctx, err))
	}
	facts, err := p.c.Guest.Inspect(bctx, sb)
	if err != nil {
		return fmt.Errorf("release sandbox %s: %w", sb.Name, explain(bctx, err))
	}
	if strings.HasSuffix(facts.Generation, orchestrator.Undone) {
		return p.refused(sb, orchestrator.ErrUnknownOutcome, "the guest is one that was to be rolled back, and was not", "run savepoint sandbox reset "+sb.Name)
	}
	for _, s := range snaps {
		if string(s.Name) == facts.Generation && !s.Current {
			return p.refused(sb, orchestrator.ErrUnknownOutcome,
				fmt.Sprintf("the guest's generation is that of snapshot %s, from which its vm does not descend: its disks may be mixed", s.Name),
				"run savepoint sandbox reset "+sb.Name)
		}
	}
	return nil
}
