package sim_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"savepoint/orchestrator"
	"savepoint/orchestrator/provision"
	"savepoint/testbed/sim"
	"savepoint/testbed/sim/world"
)

// renewed is what an operator relies on who gives a sandbox back its first moment, or destroys it.
const renewed = "a sandbox that is handed out after a reset is as it was at first, one that was destroyed is gone"

// registry is the durable list of sandboxes.
type registry struct {
	boxes map[orchestrator.SandboxID]orchestrator.Sandbox
	fresh map[orchestrator.SandboxID]orchestrator.TxID // made as at first since the last check, after that transaction
}

func newRegistry(boxes []orchestrator.Sandbox) registry {
	r := registry{map[orchestrator.SandboxID]orchestrator.Sandbox{}, map[orchestrator.SandboxID]orchestrator.TxID{}}
	for _, sb := range boxes {
		r.boxes[sb.ID] = sb
	}
	return r
}

// handedOut has the checker look at the sandboxes that anybody may use, and
// tells it which of them were made anew.
func (l *lab) handedOut() {
	l.check.Boxes = slices.DeleteFunc(slices.Clone(l.boxes), func(sb orchestrator.Sandbox) bool {
		return l.reg.boxes[sb.ID].State != orchestrator.SandboxReady
	})
	for id, after := range l.reg.fresh {
		l.check.Anew(id, after)
		delete(l.reg.fresh, id)
	}
}

// holdOf is a process's hold of the registry.
type holdOf struct{ l *lab }

func (h holdOf) PutSandbox(_ context.Context, sb orchestrator.Sandbox) error {
	if h.l.room(nil) != sim.JournalWorks { // it is in the journal's file
		return fmt.Errorf("write sandbox %s: no room: %w", sb.Name, orchestrator.ErrUnavailable)
	}
	return h.l.p.Record(sb.ID, "journal sandbox "+string(sb.State), func() { h.l.put(sb) })
}

func (l *lab) put(sb orchestrator.Sandbox) {
	was := l.reg.boxes[sb.ID].State
	l.reg.boxes[sb.ID] = sb
	if sb.State != orchestrator.SandboxReady || was == orchestrator.SandboxReady {
		return
	}
	l.reg.fresh[sb.ID] = ""
	for id := range l.disk.Transactions(context.Background()) {
		l.reg.fresh[sb.ID] = id
		break
	}
}

func (h holdOf) Sandboxes(context.Context) (all []orchestrator.Sandbox, err error) {
	for _, sb := range h.l.boxes {
		all = append(all, h.l.reg.boxes[sb.ID])
	}
	return all, nil
}

var errNotMade = fmt.Errorf("no sandbox is made here: %w", orchestrator.ErrDenied)

func (holdOf) ReserveVMID(context.Context, orchestrator.VMID, orchestrator.VMID, time.Duration, orchestrator.SandboxID) (orchestrator.VMID, error) {
	return 0, errNotMade
}

func (holdOf) ReserveAddress(context.Context, netip.Prefix, orchestrator.SandboxID) (netip.Addr, error) {
	return netip.Addr{}, errNotMade
}

func (holdOf) ReleaseAddress(context.Context, orchestrator.SandboxID) error { return nil }

type guestOf struct{ *world.Process }

func (guestOf) Prepare(context.Context, orchestrator.Sandbox, []string) error { return errNotMade }

func (l *lab) provisioner() *provision.Provisioner {
	return provision.New(provision.Config{
		Registry: holdOf{l}, Hypervisor: l.p, Snapshots: l.p.Driver(orchestrator.BoundaryMachine), Guest: guestOf{l.p},
		Workspaces:  volumesOf{l.p.Driver(orchestrator.BoundaryWorkspace)},
		BootTimeout: 5 * time.Minute, Now: l.p.Now,
	})
}

// volumesOf are the workspace volumes of sandboxes that are there already.
type volumesOf struct{ orchestrator.Snapshotter }

func (volumesOf) Find(_ context.Context, sb orchestrator.Sandbox) (string, error) {
	return sb.Workspace, nil
}
func (volumesOf) Claim(context.Context, orchestrator.Sandbox) error { return nil }

// reset is the operator's order.
func (l *lab) reset(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Minute)
	defer cancel()
	sb := l.reg.boxes[l.boxes[0].ID]
	if !l.careless {
		release, err := l.e.Hold(ctx, sb, "reset")
		if err != nil {
			return err
		}
		defer release()
	}
	return l.provisioner().Reset(ctx, sb)
}

// destroy is the operator's order, and what recovery goes on with.
func (l *lab) destroy(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Minute)
	defer cancel()
	sb := l.reg.boxes[l.boxes[0].ID]
	if sb.State == orchestrator.SandboxReady {
		release, err := l.e.Hold(ctx, sb, "destroy")
		if err != nil {
			return err
		}
		release()
	}
	if err := l.provisioner().Destroy(ctx, sb); err != nil {
		return err
	}
	return l.e.Forget(ctx, sb.ID)
}

// work is a transaction that is kept and one that is undone.
func (l *lab) work(ctx context.Context, b orchestrator.Boundary) {
	if l.reg.boxes[l.boxes[0].ID].State == orchestrator.SandboxReady {
		l.run(ctx, single(b)["commit"])
		l.run(ctx, single(b)["fail"])
	}
}

// resets returns the sandbox to its first moment between transactions.
func resets(b orchestrator.Boundary) scenario {
	return scenario{
		name: string(b) + "-reset",
		do: func(ctx context.Context, l *lab) {
			l.work(ctx, b)
			if l.reset(ctx) != nil {
				return
			}
			x, err := l.e.Begin(ctx, orchestrator.BeginSpec{Sandbox: l.boxes[0], Boundary: b})
			if err == nil && joined(orders(ctx, x, "exec echo after > /workspace/after"), x.Close(ctx)) == nil {
				l.refusesReset(ctx)
			}
		},
		next: func(ctx context.Context, l *lab) {
			l.refusesReset(ctx)
			if _, err := l.e.Recover(ctx); err == nil {
				_ = l.reset(ctx)
			}
		},
		again: func(ctx context.Context, l *lab) {
			l.refusesReset(ctx)
			l.endHere()
			err := l.reset(ctx)
			for try := 0; errors.Is(err, orchestrator.ErrBusy) && try < 5; try++ {
				time.Sleep(10 * time.Second) // the task of an earlier process
				err = l.reset(ctx)
			}
			if got := l.c.Files(l.boxes[0]); err != nil || fmt.Sprint(got) != fmt.Sprint(world.Initial()) {
				l.finding(renewed, "after a reset it holds %v, %v", got, err)
			}
			if st, err := l.p.Status(ctx, l.boxes[0].VM); err != nil || !st.Running || st.Parent != provision.Pristine {
				l.finding(renewed, "after a reset it is %+v, %v", st, err)
			}
		},
	}
}

// refusesReset asks for a reset where a transaction is not at its end.
func (l *lab) refusesReset(ctx context.Context) {
	views, _ := orchestrator.List(ctx, l.disk, orchestrator.Filter{Open: true})
	busy := slices.DeleteFunc(views, func(t view) bool { return t.State.Final() || t.Unused() })
	if len(busy) == 0 || l.p.Gone() {
		return
	}
	if err := l.reset(ctx); err == nil || l.reg.boxes[l.boxes[0].ID].State != orchestrator.SandboxReady {
		l.finding(renewed, "a reset under %s, which is %s: %v", busy[0].ID, busy[0].State, err)
	}
}

// destroys removes the sandbox; another one is made in its place.
func destroys() scenario {
	return scenario{
		name: "machine-destroy",
		do: func(ctx context.Context, l *lab) {
			l.work(ctx, "machine")
			_ = l.destroy(ctx)
		},
		next: func(ctx context.Context, l *lab) {
			if _, err := l.e.Recover(ctx); err == nil {
				_ = l.destroy(ctx)
			}
		},
		again: func(ctx context.Context, l *lab) {
			sb := l.boxes[0]
			err := l.destroy(ctx)
			for try := 0; errors.Is(err, orchestrator.ErrBusy) && try < 5; try++ {
				time.Sleep(10 * time.Second)
				err = l.destroy(ctx)
			}
			if err != nil {
				l.finding(renewed, "destroy: %v", err)
			}
			if _, err := l.p.Status(ctx, sb.VM); !errors.Is(err, orchestrator.ErrNotFound) {
				l.finding(renewed, "the vm of a destroyed sandbox: %v", err)
			}
			for _, t := range l.unfinished() {
				l.finding(renewed, "%s, which is %s, is left of a destroyed sandbox", t.ID, t.State)
			}
			if _, err := l.e.Collect(ctx); err != nil {
				l.finding(renewed, "collect after it was destroyed: %v", err)
			}
			l.c.Rebuild(sb)
			l.put(sb)
		},
	}
}
