package provision

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"savepoint/orchestrator"
)

// warmed returns a world whose pool of tenant alpha has n sandboxes.
func warmed(t *testing.T, n int) (*world, []orchestrator.Sandbox) {
	t.Helper()
	w := newWorld()
	w.warm = Warm{Size: n, Wishes: []Wish{{Tenant: "alpha"}}}
	done, err := NewPool(w.provisioner()).Fill(t.Context())
	if err != nil || len(done.Made) != n || len(done.Removed) != 0 {
		t.Fatalf("fill: %+v, %v", done, err)
	}
	w.ops = nil
	return w, done.Made
}

// asked takes from the pool where it may.
var asked = Wish{Tenant: "alpha", Warm: true}

func (w *world) states() string {
	var out []string
	for _, sb := range w.living() {
		out = append(out, fmt.Sprintf("%s %s", sb.Name, sb.State))
	}
	return strings.Join(out, ", ")
}

// A pooled sandbox is handed out with a look at it and one write: nothing is
// cloned, started or proved again (F106).
func TestTake(t *testing.T) {
	w, pooled := warmed(t, 2)
	if got := w.states(); got != "sp-sb1 pooled, sp-sb2 pooled" {
		t.Fatal(got)
	}
	sb, err := w.provisioner().Create(t.Context(), "box", asked)
	if err != nil {
		t.Fatal(err)
	}
	want := pooled[0]
	want.Name, want.State = "box", orchestrator.SandboxReady
	if sb != want || w.sandboxes[sb.ID] != want {
		t.Errorf("got %+v, recorded %+v, want %+v", sb, w.sandboxes[sb.ID], want)
	}
	if ops := []string{"status", "inspect", "clock", "inspect", "put ready"}; !slices.Equal(w.ops, ops) {
		t.Errorf("did %q, want %q", w.ops, ops)
	}
	if _, err := w.provisioner().Create(t.Context(), "box", asked); !errors.Is(err, orchestrator.ErrExists) {
		t.Errorf("the same name again: %v", err)
	}
	if _, err := w.provisioner().Create(t.Context(), "sp-x", asked); err == nil {
		t.Error("a name of the pool was accepted")
	}
	if got := w.states(); got != "box ready, sp-sb2 pooled" {
		t.Error(got)
	}
}

// The proof of isolation is repeated when it is old, when the networks were
// changed since, and when there is none (F101, F108).
func TestTakeProves(t *testing.T) {
	for name, change := range map[string]func(*world){
		"old":       func(w *world) { w.now = w.now.Add(time.Hour + 1) },
		"applied":   func(w *world) { w.applied = w.now },
		"never":     func(w *world) { clear(w.proofs) },
		"of future": func(w *world) { w.now = w.now.Add(-time.Minute) },
	} {
		t.Run(name, func(t *testing.T) {
			w, pooled := warmed(t, 1)
			change(w)
			if sb, err := w.provisioner().Create(t.Context(), "box", asked); err != nil || sb.ID != pooled[0].ID || w.count("prove") != 1 {
				t.Errorf("%v, %+v, %q", err, sb, w.ops)
			}
		})
	}
	t.Run("the proved one first", func(t *testing.T) {
		w, pooled := warmed(t, 2)
		delete(w.proofs, pooled[0].ID)
		if sb, err := w.provisioner().Create(t.Context(), "box", asked); err != nil || sb.ID != pooled[1].ID || w.count("prove") != 0 {
			t.Errorf("%v, %+v, %q", err, sb, w.ops)
		}
	})
}

// What is not as a new one would be is not handed out, and left in the pool for
// Fill; a new one is made where that is possible.
func TestTakeOther(t *testing.T) {
	for name, tc := range map[string]struct {
		wish   Wish
		change func(*world)
		fails  bool
	}{
		"no warm one wanted": {wish: Wish{Tenant: "alpha"}},
		"another tenant":     {wish: Wish{Warm: true}},
		"another node":       {Wish{Tenant: "alpha", Warm: true, Node: "pve2"}, func(w *world) { w.nodes = append(w.nodes, site("pve2")) }, false},
		"outside the zone":   {Wish{Tenant: "alpha", Warm: true, Zone: []string{"pve2"}}, func(w *world) { w.nodes = append(w.nodes, site("pve2")) }, false},
		"another template":   {Wish{Tenant: "alpha", Warm: true, Template: orchestrator.VMRef{Node: "pve1", ID: 8009}}, nil, true},
		"rebuilt template":   {asked, func(w *world) { w.nodes[0].Templates[0].VM.ID = 8001 }, false},
		"another identity":   {asked, func(w *world) { w.keys = []string{"ssh-ed25519 BBBB"} }, false},
		"drained node":       {asked, func(w *world) { w.limits.Drained = []string{"pve1"} }, true},
		"node away":          {asked, func(w *world) { w.down = []string{"pve1"} }, true},
	} {
		t.Run(name, func(t *testing.T) {
			w, _ := warmed(t, 1)
			if tc.change != nil {
				tc.change(w)
			}
			sb, err := w.provisioner().Create(t.Context(), "box", tc.wish)
			if tc.fails != (err != nil) || !tc.fails && (w.count("clone") != 1 || sb.State != orchestrator.SandboxReady) {
				t.Errorf("%v, %+v, %q", err, sb, w.ops)
			}
			if !strings.Contains(w.states(), "sp-sb1 pooled") {
				t.Errorf("left: %s", w.states())
			}
		})
	}
	t.Run("network gone", func(t *testing.T) {
		w, _ := warmed(t, 3) // two in the small one
		w.narrow = true
		for i := range 3 { // the third is not in it, and has no room there
			_, err := w.provisioner().Create(t.Context(), fmt.Sprintf("box-%d", i), asked)
			if (err != nil) != (i == 2) {
				t.Errorf("%d: %v", i, err)
			}
		}
	})
}

// One that is not all right any more is removed, and the next one is taken.
func TestTakeUnfit(t *testing.T) {
	for name, tc := range map[string]struct {
		spoil func(w *world, id orchestrator.VMID)
		left  string // of the spoilt one
	}{
		"gone":            {func(w *world, id orchestrator.VMID) { delete(w.vms, id) }, ""},
		"off":             {func(w *world, id orchestrator.VMID) { w.vms[id].running = false }, ""},
		"another guest":   {func(w *world, id orchestrator.VMID) { w.vms[id].hostKey = "ssh-ed25519 other" }, ""},
		"used":            {func(w *world, id orchestrator.VMID) { w.vms[id].generation = "sp-other" }, ""},
		"somebody else's": {func(w *world, id orchestrator.VMID) { w.vms[id].owner = "another" }, "sp-sb1 quarantined, "},
		"locked":          {func(w *world, id orchestrator.VMID) { w.vms[id].lock = "backup" }, "sp-sb1 pooled, "},
	} {
		t.Run(name, func(t *testing.T) {
			w, pooled := warmed(t, 2)
			tc.spoil(w, pooled[0].VM.ID)
			sb, err := w.provisioner().Create(t.Context(), "box", asked)
			if err != nil || sb.ID != pooled[1].ID || w.states() != tc.left+"box ready" {
				t.Errorf("%v, %+v, left %s", err, sb, w.states())
			}
		})
	}
	t.Run("open", func(t *testing.T) { // nothing is handed out, from the pool or not (F101, F108)
		w, _ := warmed(t, 2)
		w.leaks, w.applied = true, w.now
		_, err := w.provisioner().Create(t.Context(), "box", asked)
		var open *orchestrator.UnsealedError
		if !errors.As(err, &open) {
			t.Errorf("%v, want that it is not sealed", err)
		}
		empty(t, w)
	})
	t.Run("all", func(t *testing.T) { // hardly the fault of each
		w, _ := warmed(t, 5)
		for _, m := range w.vms {
			m.hostKey = "ssh-ed25519 other"
		}
		if _, err := w.provisioner().Create(t.Context(), "box", asked); err != nil || w.states() != "sp-sb4 pooled, sp-sb5 pooled, box ready" {
			t.Errorf("%v, left %s", err, w.states())
		}
	})
}

// After a crash at any point of a hand-out, which removes an unfit one on its
// way, each sandbox is in the pool, or removed, or has the name: nothing is lost
// and nothing is handed out twice (F124).
func TestTakeCrashes(t *testing.T) {
	begin := func(t *testing.T) *world {
		w, pooled := warmed(t, 2)
		w.vms[pooled[0].VM.ID].running = false
		w.applied = w.now // proved anew
		return w
	}
	w := begin(t)
	if _, err := w.provisioner().Create(t.Context(), "box", asked); err != nil {
		t.Fatal(err)
	}
	ops := w.ops
	for i, op := range ops {
		for _, effect := range []bool{false, true} {
			t.Run(fmt.Sprintf("%d-%s-%t", i, op, effect), func(t *testing.T) {
				w := begin(t)
				w.crash(i, effect)
				_, _ = w.provisioner().Create(t.Context(), "box", asked)
				w.before, w.after = nil, nil
				p := w.provisioner()
				if _, err := p.Recover(t.Context()); err != nil {
					t.Fatal(err)
				}
				done := i == len(ops)-1 && effect
				if named := strings.Contains(w.states(), "box ready"); named != done {
					t.Errorf("left: %s", w.states())
				}
				for _, sb := range w.living() {
					if w.vms[sb.VM.ID] == nil || w.addresses[sb.ID] != sb.Address {
						t.Errorf("%s %s has no vm, or not its address", sb.Name, sb.State)
					}
				}
				if !done {
					if _, err := p.Create(t.Context(), "box", asked); err != nil || w.count("clone") != 0 {
						t.Errorf("again: %v, left %s", err, w.states())
					}
				}
			})
		}
	}
}

// crash lets operation i be the last one, with its effect or without.
func (w *world) crash(i int, effect bool) {
	w.before = func(n int, _ string) error {
		if n > i || n == i && !effect {
			return fmt.Errorf("crashed: %w", orchestrator.ErrUnavailable)
		}
		return nil
	}
	w.after = func(n int, _ string) error {
		if n == i {
			return fmt.Errorf("crashed: %w", orchestrator.ErrUnavailable)
		}
		return nil
	}
}

// Everyone gets another one, and who comes when it is empty gets a new one.
func TestTakeAtOnce(t *testing.T) {
	w, _ := warmed(t, 4)
	p := w.provisioner()
	var wg sync.WaitGroup
	got := make([]orchestrator.Sandbox, 6)
	for i := range got {
		wg.Go(func() {
			var err error
			if got[i], err = p.Create(t.Context(), fmt.Sprintf("box-%d", i), asked); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	ids := map[orchestrator.SandboxID]bool{}
	for _, sb := range got {
		ids[sb.ID] = true
	}
	if len(ids) != 6 || len(w.vms) != 6 || w.count("clone") != 2 {
		t.Errorf("%d sandboxes, %d vms, %d clones", len(ids), len(w.vms), w.count("clone"))
	}
}

// While one is looked at nobody else gets it, nor does Fill or Drain remove it.
func TestTakeHolds(t *testing.T) {
	w, pooled := warmed(t, 2)
	p := w.provisioner()
	p.c.Observe = func(s Step) {
		p.c.Observe = func(Step) {}
		if other, err := p.Create(t.Context(), "other", asked); err != nil || other.ID != pooled[1].ID {
			t.Errorf("at %s: %+v, %v", s.Name, other, err)
		}
		if gone, err := NewPool(p).Drain(t.Context()); err != nil || len(gone) != 0 {
			t.Errorf("drained %+v, %v", gone, err)
		}
	}
	if sb, err := p.Create(t.Context(), "box", asked); err != nil || sb.ID != pooled[0].ID || w.states() != "box ready, other ready" {
		t.Errorf("%+v, %v, %s", sb, err, w.states())
	}
}

// A pooled one is nobody's: it cannot be used or reset, and when an operator
// releases one that was withheld it is back in the pool.
func TestPooledIsNobodys(t *testing.T) {
	w, pooled := warmed(t, 1)
	p, sb := w.provisioner(), pooled[0]
	if err := p.Wake(t.Context(), sb); !errors.Is(err, orchestrator.ErrBusy) || !strings.Contains(err.Error(), "sandbox create") {
		t.Errorf("wake: %v", err)
	}
	if err := p.Reset(t.Context(), sb); !errors.Is(err, orchestrator.ErrBusy) {
		t.Errorf("reset: %v", err)
	}
	if _, err := p.Return(t.Context(), sb); !errors.Is(err, orchestrator.ErrBusy) {
		t.Errorf("return: %v", err)
	}
	for name, mend := range map[string]func(orchestrator.Sandbox) error{
		"release": func(sb orchestrator.Sandbox) error { return p.Release(t.Context(), sb) },
		"reset":   func(sb orchestrator.Sandbox) error { return p.Reset(t.Context(), sb) },
	} {
		sb.State, sb.Reason = orchestrator.SandboxQuarantined, "a lock"
		w.sandboxes[sb.ID] = sb
		if err := mend(sb); err != nil || w.states() != "sp-sb1 pooled" {
			t.Errorf("%s: %v, %s", name, err, w.states())
		}
	}
}
