package orchestrator

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// maxSkew is how far a restored guest's clock may be off.
const maxSkew = time.Second

// unprovedError says that the cluster calls the rollback done and the state is
// not the one at begin.
type unprovedError struct{ what string }

func (e *unprovedError) Error() string { return e.what }

// verify brings the VM to its run state and proves that the state of the point
// is back: the snapshot is the current parent, no lock is left, the run state is
// the one at begin, the guest answers with its pinned key, carries the
// snapshot's generation, was or was not booted as the boundary demands, and
// its clock is right.
func (t *tx) verify(ctx context.Context, p PointView) (restoredData, error) {
	sb := t.view.Sandbox
	st, err := t.unlocked(ctx)
	if err != nil {
		return restoredData{}, err
	}
	snap, found, err := t.find(ctx, p)
	switch {
	case err != nil:
		return restoredData{}, fmt.Errorf("list the snapshots of %s: %w", sb.VM, err)
	case !found:
		return restoredData{}, fmt.Errorf("snapshot %s of %s: %w", p.Snapshot, sb.VM, ErrNotFound)
	case snap.Incomplete != "":
		return restoredData{}, &unprovedError{fmt.Sprintf("snapshot %s is incomplete (%s)", snap.Name, snap.Incomplete)}
	case !snap.Current:
		return restoredData{}, &unprovedError{fmt.Sprintf("%s does not descend from snapshot %s", sb.VM, snap.Name)}
	}
	if st.Running != t.view.RunningAtBegin {
		if p.Boundary != BoundaryDisk || !t.view.RunningAtBegin {
			return restoredData{}, &unprovedError{fmt.Sprintf("%s has the wrong run state (running: %t)", sb.VM, st.Running)}
		}
		if err := t.start(ctx); err != nil {
			return restoredData{}, err
		}
	}
	if !t.view.RunningAtBegin {
		return restoredData{}, nil
	}
	return t.proveGuest(ctx, p)
}

// unlocked is the status of a VM that is ours and that nobody works on.
func (t *tx) unlocked(ctx context.Context) (VMStatus, error) {
	sb := t.view.Sandbox
	st, err := t.e.c.Hypervisor.Status(ctx, sb.VM)
	switch {
	case err != nil:
		return st, fmt.Errorf("look at %s: %w", sb.VM, err)
	case st.Owner != sb.ID:
		return st, fmt.Errorf("%s now belongs to %q: %w", sb.VM, st.Owner, ErrDenied)
	case st.Lock != "":
		return st, fmt.Errorf("%s is locked (%s): %w", sb.VM, st.Lock, ErrBusy)
	}
	return st, nil
}

// proveGuest asks the guest itself.
func (t *tx) proveGuest(ctx context.Context, p PointView) (restoredData, error) {
	ctx, cancel := context.WithTimeout(ctx, t.e.c.Deadlines.Boot)
	defer cancel()
	sb := t.view.Sandbox
	for try := 0; ; try++ {
		facts, err := t.inspect(ctx)
		now := t.e.c.Now()
		if err != nil {
			return restoredData{}, err
		}
		if want := string(p.Snapshot); facts.Generation != want {
			return restoredData{}, &unprovedError{fmt.Sprintf("the guest's generation is %q instead of %q", facts.Generation, want)}
		}
		if err := t.proveBoot(p, facts.BootID); err != nil {
			return restoredData{}, err
		}
		skew, _ := skewOf(facts, now)
		if skew.Abs() <= maxSkew {
			return restoredData{BootID: facts.BootID, Skew: skew}, t.proveNetwork(ctx, p)
		}
		if try == attempts {
			return restoredData{}, &unprovedError{fmt.Sprintf("the guest's clock is still %s off after it was set", skew)}
		}
		if err := t.e.c.Guest.SetClock(ctx, sb, t.e.c.Now()); err != nil {
			return restoredData{}, fmt.Errorf("set the clock of %s: %w", sb.Name, err)
		}
	}
}

// inspect asks a guest that may be booting until it answers. One that does not
// before the deadline was not restored to what it was.
func (t *tx) inspect(ctx context.Context) (GuestFacts, error) {
	sb := t.view.Sandbox
	for pause := newPause(); ; {
		facts, err := t.askFacts(ctx)
		switch {
		case err == nil:
			return facts, nil
		case errors.Is(err, errOff):
			return GuestFacts{}, &unprovedError{fmt.Sprintf("the restored guest of %s went off again", sb.Name)}
		case errors.Is(err, ErrDenied):
			return GuestFacts{}, fmt.Errorf("inspect the restored guest of %s: %w", sb.Name, err)
		}
		if t.e.c.Wait(ctx, pause.next()) != nil {
			return GuestFacts{}, &unprovedError{fmt.Sprintf("the restored guest of %s does not answer: %v", sb.Name, err)}
		}
	}
}

// proveBoot checks that memory came back with a machine boundary and that it did
// not with a disk boundary. A workspace is restored also in a guest that was
// rebooted meanwhile: what ran could write nothing else, and no repetition
// brings the old boot back.
func (t *tx) proveBoot(p PointView, id string) error {
	switch {
	case p.Boundary == BoundaryDisk && id == t.view.boot:
		return &unprovedError{"the guest still runs from before the rollback"}
	case p.Boundary == BoundaryMachine && id != p.BootID:
		return &unprovedError{"the guest was booted anew instead of resumed"}
	}
	return nil
}

// proveNetwork measures again that the sandbox is sealed: a restored VM has the
// network cards of its snapshot, which may name what the network was then.
// Without a proof it is not handed out (F108).
func (t *tx) proveNetwork(ctx context.Context, p PointView) error {
	sb := t.view.Sandbox
	switch {
	case sb.Tenant == "" || p.Boundary == BoundaryWorkspace:
		return nil
	case t.e.c.Prover == nil:
		return &UnsupportedError{
			What: fmt.Sprintf("prove that the network of sandbox %s is sealed: nothing is configured to measure it", sb.Name),
			Mend: "configure network.tenants as it was when the sandbox was made, and run savepoint recover",
		}
	}
	if err := t.e.c.Prover.Prove(ctx, sb); err != nil {
		return fmt.Errorf("prove that the network of sandbox %s is sealed: %w", sb.Name, err)
	}
	return nil
}
