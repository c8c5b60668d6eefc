package networks_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"savepoint/network"
	"savepoint/orchestrator"
	"savepoint/orchestrator/networks"
)

// The order of calls is a promise: what is ours is recorded before it is
// written, all is written before the one apply (F102), and what is there
// already costs one look (F106). Guests are asked only where something goes.
func TestTraces(t *testing.T) {
	for _, locks := range []bool{true, false} {
		w := newWorld(locks)
		lock, unlock := "record, lock, record, ", ", unlock, record"
		if !locks {
			unlock = ""
		}
		r := w.apply(t, two())
		if got, want := w.traced(), "observe, "+lock+"observe, record, create controller, create zone, create zone, create vnet, create vnet, create vnet, "+
			"create subnet, create subnet, create subnet, observe, record, apply, record"+unlock+", observe, record"; got != want {
			t.Errorf("first apply:\n%s\nwant\n%s", got, want)
		}
		if !r.Applied || len(r.Changes) != 9 || len(r.Kept)+len(r.Offline) != 0 {
			t.Errorf("%+v", r)
		}
		w.settled(t, two())
		w.traced()
		if r := w.apply(t, two()); r.Applied || len(r.Changes) != 0 || w.traced() != "observe" {
			t.Errorf("again: %+v", r)
		}
		w.apply(t, one())
		if got, want := w.traced(), "observe, observe guests, "+lock+"observe, observe guests, record, delete subnet, delete subnet, delete vnet, delete vnet, "+
			"delete zone, update zone, observe, observe guests, record, apply, record"+unlock+", observe"; got != want {
			t.Errorf("less:\n%s\nwant\n%s", got, want)
		}
		w.settled(t, one())
		if _, err := w.manager().Destroy(t.Context()); err != nil {
			t.Fatal(err)
		}
		w.settled(t, network.Wanted{})
		if n := len(w.running[network.KindController]); n != 0 {
			t.Errorf("%d controllers are left", n)
		}
	}
}

// F101: an apply that only repairs what somebody else changed is recorded before and
// after, so that no proof from before it counts, also where the cluster has no lock.
func TestRepairIsRecorded(t *testing.T) {
	for _, locks := range []bool{true, false} {
		w := newWorld(locks)
		w.apply(t, two())
		before := w.kept()
		clear(w.running[network.KindVNet])
		w.traced()
		if r := w.apply(t, two()); !r.Applied || len(r.Changes) != 0 {
			t.Errorf("%+v", r)
		}
		if trace := w.traced(); !strings.Contains(trace, "record, apply, record") {
			t.Errorf("locks %v: %s", locks, trace)
		}
		if now := w.kept(); !now.Allocation.Equal(before.Allocation) || !now.Applied.Equal(before.Applied) {
			t.Errorf("the record became %+v, was %+v", now, before)
		}
		w.settled(t, two())
	}
}

// F101: what guests use stays, with all that it rests on; sandboxes are not
// plugged into what goes any more.
func TestDestroyKeepsWhatIsUsed(t *testing.T) {
	w := newWorld(true)
	w.apply(t, two())
	a := w.kept().Allocation
	w.attached = []network.Attachment{{VM: "vm 104 on pve1", VNet: a.VNets["alpha/side"].ID}}
	r, err := w.manager().Destroy(t.Context())
	if err != nil || len(r.Kept) != 4 || fmt.Sprint(r.Kept[0].VMs) != "[vm 104 on pve1]" {
		t.Errorf("%+v, %v", r.Kept, err)
	}
	if len(w.running[network.KindVNet]) != 1 || len(w.running[network.KindController]) != 1 {
		t.Errorf("running: %v", w.running)
	}
	if _, err := networks.Pools(t.Context(), w, two(), "beta"); err == nil {
		t.Error("there are pools in a zone that is gone")
	}
	w.attached = nil
	if _, err := w.manager().Destroy(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.settled(t, network.Wanted{})
}

// Edits of somebody else's are refused before the lock, under it, and where
// there is no lock right before the apply, which would commit them.
func TestForeignEdits(t *testing.T) {
	dmz := network.Fields{"type": "simple"}
	var foreign *network.ForeignError
	w := newWorld(true)
	w.pending[network.KindZone]["dmz"] = dmz
	if _, err := w.manager().Apply(t.Context(), two()); !errors.As(err, &foreign) || w.traced() != "observe" {
		t.Errorf("got %v", err)
	}
	for _, locks := range []bool{true, false} {
		for _, when := range []string{"lock", "create zone", "create subnet"} {
			w := newWorld(locks)
			m := networks.New(networks.Config{Fabric: w, Store: w, Observe: func(s networks.Step) {
				if s.Name == when {
					w.pending[network.KindZone]["dmz"] = dmz
				}
			}})
			_, err := m.Apply(t.Context(), two())
			if locks && when == "lock" {
				if !errors.Is(err, orchestrator.ErrBusy) {
					t.Errorf("the lock of a cluster with edits: %v", err)
				}
			} else if !errors.As(err, &foreign) {
				t.Errorf("locks %t, %s: got %v", locks, when, err)
			}
			if len(w.running[network.KindZone]) != 0 || w.lock != "" || w.kept().Lock != (network.Lock{}) {
				t.Errorf("locks %t, %s: running %v, lock %q", locks, when, w.running, w.lock)
			}
			delete(w.pending[network.KindZone], "dmz")
			w.apply(t, two())
			w.settled(t, two())
		}
	}
	w = newWorld(true) // edits that this token may not see
	w.hidden = true
	if _, err := w.manager().Apply(t.Context(), two()); !errors.Is(err, orchestrator.ErrBusy) || w.lock != "" {
		t.Errorf("hidden edits: %v", err)
	}
}

// F104: nodes may take their time; one that is off is told of, and one that
// does not follow is an error that names it. Until all have it no sandbox is
// plugged into it.
func TestNodesThatLag(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(true)
		w.behind["pve2"] = true
		w.follows = time.Now().Add(time.Minute)
		w.apply(t, two())
		w.settled(t, two())

		w = newWorld(true)
		w.behind["pve2"] = true
		begun := time.Now()
		_, err := w.manager().Apply(t.Context(), two())
		var lag *networks.LagError
		if !errors.As(err, &lag) || !errors.Is(err, orchestrator.ErrUnavailable) || !strings.Contains(err.Error(), "is pending on node pve2") {
			t.Errorf("got %v", err)
		}
		if d := time.Since(begun).Round(time.Minute); d != 5*time.Minute {
			t.Errorf("waited %s", d)
		}
		if _, err := networks.Pools(t.Context(), w, two(), "alpha"); err == nil {
			t.Error("sandboxes could be plugged into a zone that is not everywhere")
		}
		w.behind["pve2"] = false
		w.apply(t, two())
		w.settled(t, two())

		w = newWorld(true)
		w.behind["pve2"], w.failed = true, map[string]string{"pve2": "ifreload: exit code 1"}
		begun = time.Now()
		if _, err := w.manager().Apply(t.Context(), two()); !errors.As(err, &lag) || !strings.Contains(err.Error(), "ifreload: exit code 1") || time.Since(begun) > time.Second {
			t.Errorf("a reload that failed: %v after %s", err, time.Since(begun))
		}

		w = newWorld(false)
		w.offline["pve2"] = true
		r := w.apply(t, two())
		if len(r.Offline) != 2 || r.Offline[0].Node != "pve2" {
			t.Errorf("%+v", r.Offline)
		}
		if r := w.apply(t, two()); r.Applied || len(r.Offline) != 2 {
			t.Errorf("it is still off: %+v", r)
		}
		w.offline["pve2"], w.behind["pve2"] = false, true
		w.follows = time.Now().Add(time.Second)
		if r := w.apply(t, two()); !r.Applied || len(r.Changes) != 0 {
			t.Errorf("it is back and was not told: %+v", r)
		}
		w.settled(t, two())
	})
}

// The caller's end stops the work and not the giving back of the lock.
func TestInterrupted(t *testing.T) {
	w := newWorld(true)
	ctx, cancel := context.WithCancelCause(t.Context())
	m := networks.New(networks.Config{Fabric: stopping{w, ctx}, Store: w, Observe: func(s networks.Step) {
		if s.Name == "create vnet" {
			cancel(errors.New("stopped by hand"))
		}
	}})
	r, err := m.Apply(ctx, two())
	if err == nil || len(r.Changes) == 0 || w.lock != "" || w.kept().Lock != (network.Lock{}) {
		t.Errorf("%v, lock %q, recorded %+v", err, w.lock, w.kept().Lock)
	}
	w.apply(t, two())
	w.settled(t, two())
}

// stopping refuses calls whose context has ended, as a client does.
type stopping struct {
	*world
	ctx context.Context
}

func (s stopping) Write(ctx context.Context, token string, c network.Change) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%w: %w", orchestrator.ErrUnavailable, err)
	}
	return s.world.Write(ctx, token, c)
}
