package provision

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"savepoint/orchestrator"
)

// A crash at any point of a Fill leaves sandboxes that are pooled, or half-made
// ones that recovery removes; the next Fill makes the rest (F124).
func TestFillCrashes(t *testing.T) {
	w, _ := warmed(t, 0)
	w.warm.Size = 2
	if _, err := NewPool(w.provisioner()).Fill(t.Context()); err != nil {
		t.Fatal(err)
	}
	ops := w.ops
	for i, op := range ops {
		for _, effect := range []bool{false, true} {
			t.Run(fmt.Sprintf("%d-%s-%t", i, op, effect), func(t *testing.T) {
				w, _ := warmed(t, 0)
				w.warm.Size = 2
				w.crash(i, effect)
				_, _ = NewPool(w.provisioner()).Fill(t.Context())
				w.before, w.after = nil, nil
				p := w.provisioner()
				if _, err := p.Recover(t.Context()); err != nil {
					t.Fatal(err)
				}
				if left := w.living(); len(left) != len(w.vms) || len(left) != len(w.addresses) {
					t.Errorf("left: %s, %d vms, %d addresses", w.states(), len(w.vms), len(w.addresses))
				}
				if _, err := NewPool(p).Fill(t.Context()); err != nil {
					t.Fatal(err)
				}
				if strings.Count(w.states(), "pooled") != 2 || len(w.living()) != 2 || len(w.vms) != 2 || len(w.addresses) != 2 {
					t.Errorf("after the next one: %s, %d vms, %d addresses", w.states(), len(w.vms), len(w.addresses))
				}
			})
		}
	}
}

// Fill removes what would not be handed out any more and makes it anew.
func TestFillTidies(t *testing.T) {
	for name, tc := range map[string]struct {
		change  func(w *world)
		removed string // part of why each of the two is; "" = none is
		kept    int
	}{
		"nothing":          {func(*world) {}, "", 2},
		"rebuilt template": {func(w *world) { w.nodes[0].Templates[0].VM.ID = 8001 }, "the template is vm 8001", 2},
		"another identity": {func(w *world) { w.keys = []string{"ssh-ed25519 BBBB"} }, "settings", 2},
		"off":              {func(w *world) { w.vms[9000].running, w.vms[9001].running = false, false }, "is off", 2},
		"open":             {func(w *world) { w.leaks, w.applied = true, w.now }, "not sealed", 0},
		"smaller":          {func(w *world) { w.warm.Size = 0 }, "pool.size", 0},
		"other tenants":    {func(w *world) { w.warm.Wishes = []Wish{{}} }, "pool.tenants", 2},
	} {
		t.Run(name, func(t *testing.T) {
			w, _ := warmed(t, 2)
			tc.change(w)
			done, err := NewPool(w.provisioner()).Fill(t.Context())
			if (err != nil) != (name == "open") {
				t.Error(err)
			}
			want := 2
			if tc.removed == "" {
				want = 0
			}
			if len(done.Removed) != want || strings.Count(w.states(), "pooled") != tc.kept || len(w.vms) != tc.kept {
				t.Errorf("%+v, left %s, %d vms", done, w.states(), len(w.vms))
			}
			for _, r := range done.Removed {
				if !strings.Contains(r.Why, tc.removed) {
					t.Errorf("%s: %s", r.Sandbox.Name, r.Why)
				}
			}
		})
	}
	t.Run("too many", func(t *testing.T) {
		w, _ := warmed(t, 3)
		w.warm.Size = 1
		if done, err := NewPool(w.provisioner()).Fill(t.Context()); err != nil || len(done.Removed) != 2 || w.states() != "sp-sb1 pooled" {
			t.Errorf("%+v, %v, left %s", done, err, w.states())
		}
	})
	t.Run("old proofs", func(t *testing.T) { // before a hand-out has to wait for one
		w, _ := warmed(t, 2)
		w.now = w.now.Add(31 * time.Minute)
		if done, err := NewPool(w.provisioner()).Fill(t.Context()); err != nil || len(done.Removed)+len(done.Made) != 0 || w.count("prove") != 2 {
			t.Errorf("%+v, %v, %q", done, err, w.ops)
		}
	})
	t.Run("node away", func(t *testing.T) { // its sandboxes are kept, and replaced meanwhile
		w, _ := warmed(t, 1)
		w.nodes, w.down = append(w.nodes, site("pve2")), []string{"pve1"}
		if _, err := NewPool(w.provisioner()).Fill(t.Context()); err != nil || w.states() != "sp-sb1 pooled, sp-sb2 pooled" {
			t.Errorf("%v, %s", err, w.states())
		}
		w.down = nil
		if _, err := NewPool(w.provisioner()).Fill(t.Context()); err != nil || w.states() != "sp-sb1 pooled" {
			t.Errorf("when it is back: %v, %s", err, w.states())
		}
	})
	t.Run("per node", func(t *testing.T) {
		w, _ := warmed(t, 0)
		w.nodes = append(w.nodes, site("pve2"))
		w.warm.Size, w.warm.PerNode = 3, 1
		done, err := NewPool(w.provisioner()).Fill(t.Context())
		var place *PlaceError
		if !errors.As(err, &place) || !strings.Contains(err.Error(), "pool.max_per_node") || len(done.Made) != 2 || done.Made[0].VM.Node == done.Made[1].VM.Node {
			t.Errorf("%+v, %v", done, err)
		}
	})
}

// Status says of each what Fill would find, and changes nothing.
func TestStatus(t *testing.T) {
	w, _ := warmed(t, 2)
	l := NewPool(w.provisioner())
	list, err := l.Status(t.Context())
	if err != nil || len(list) != 2 || !list[0].Current || !list[0].Proved.Equal(w.now) || list[0].Outdated+list[0].Waiting != "" {
		t.Errorf("%+v, %v", list, err)
	}
	w.applied, w.nodes[0].Templates[0].VM.ID = w.now, 8001
	if list, err = l.Status(t.Context()); err != nil || list[0].Current || !strings.Contains(list[0].Outdated, "8001") {
		t.Errorf("%+v, %v", list, err)
	}
	w.down = []string{"pve1"}
	if list, err = l.Status(t.Context()); err != nil || list[0].Outdated != "" || !strings.Contains(list[0].Waiting, "offline") {
		t.Errorf("%+v, %v", list, err)
	}
	w.mute = true
	if list, err = l.Status(t.Context()); !errors.Is(err, orchestrator.ErrUnavailable) || len(list) != 2 || list[0].Outdated+list[0].Waiting != "" {
		t.Errorf("%+v, %v", list, err)
	}
	if len(w.ops) != 0 {
		t.Errorf("did %q", w.ops)
	}
}

func TestDrain(t *testing.T) {
	w, _ := warmed(t, 2)
	if _, err := w.provisioner().Create(t.Context(), "box", asked); err != nil {
		t.Fatal(err)
	}
	done, err := NewPool(w.provisioner()).Drain(t.Context())
	if err != nil || len(done) != 1 || w.states() != "box ready" || len(w.vms) != 1 {
		t.Errorf("%+v, %v, left %s", done, err, w.states())
	}
}

// A long-lived process refills when one is taken and looks again in intervals;
// when nothing works it waits longer and longer; it ends with its context.
func TestRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, _ := warmed(t, 0)
		w.warm.Size = 1
		var pauses []time.Duration
		tick := make(chan time.Time)
		w.warm.After = func(d time.Duration) <-chan time.Time { pauses = append(pauses, d); return tick }
		p := w.provisioner()
		ctx, cancel := context.WithCancel(t.Context())
		var looks []error
		ended := make(chan error)
		go func() {
			ended <- NewPool(p).Run(ctx, func(_ Filled, err error) { looks = append(looks, err) })
		}()
		synctest.Wait()
		if w.states() != "sp-sb1 pooled" || len(looks) != 1 {
			t.Fatalf("at first: %s, %v", w.states(), looks)
		}
		if _, err := p.Create(ctx, "box", asked); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if w.states() != "box ready, sp-sb2 pooled" || len(looks) != 2 {
			t.Errorf("after one was taken: %s, %v", w.states(), looks)
		}
		w.mute = true
		for range 6 {
			tick <- w.now
			synctest.Wait()
		}
		w.mute = false
		tick <- w.now
		synctest.Wait()
		want := fmt.Sprint([]time.Duration{1, 1, 2, 4, 8, 10, 10, 10, 1})
		for i := range pauses {
			pauses[i] /= time.Minute
		}
		if got := fmt.Sprint(pauses); got != want || looks[2] == nil || looks[8] != nil {
			t.Errorf("waited %s minutes, want %s; %v", got, want, looks)
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// A sandbox that comes back is reset to its first moment and waits without a
// name; its own next user finds nothing of the last one (F23, F124).
func TestReturn(t *testing.T) {
	w, pooled := warmed(t, 1)
	p := w.provisioner()
	sb, err := p.Create(t.Context(), "box", asked)
	if err != nil {
		t.Fatal(err)
	}
	w.snap(sb, older, newer)
	back, err := p.Return(t.Context(), sb)
	if err != nil || back != pooled[0] || w.states() != "sp-sb1 pooled" {
		t.Fatalf("%v, %+v, %s", err, back, w.states())
	}
	if m := w.vms[sb.VM.ID]; m.generation != string(Pristine) || len(m.snaps) != 1 || m.skew != 0 {
		t.Errorf("vm %+v, want it as it was made", m)
	}
	again, err := p.Create(t.Context(), "next", asked)
	if err != nil || again.VM != sb.VM || w.count("clone") != 0 {
		t.Errorf("%v, %+v", err, again)
	}
	for name, change := range map[string]func(*world){
		"full":             func(w *world) { _, err = NewPool(w.provisioner()).Fill(t.Context()) },
		"rebuilt template": func(w *world) { w.nodes[0].Templates[0].VM.ID = 8001 },
		"no pool":          func(w *world) { w.warm.Size = 0 },
	} {
		t.Run(name, func(t *testing.T) {
			w, _ := warmed(t, 1)
			sb, cerr := w.provisioner().Create(t.Context(), "box", asked)
			if change(w); err != nil || cerr != nil {
				t.Fatal(err, cerr)
			}
			back, err := w.provisioner().Return(t.Context(), sb)
			if err != nil || back.State != orchestrator.SandboxDestroyed || w.vms[sb.VM.ID] != nil || strings.Contains(w.states(), "box") {
				t.Errorf("%v, %+v, left %s", err, back, w.states())
			}
		})
	}
}

// A crash in the middle of a return leaves the sandbox with its name, as it was
// or withheld, and it can be repeated; only one that is wholly reset is pooled.
func TestReturnCrashes(t *testing.T) {
	begin := func(t *testing.T) (*world, orchestrator.Sandbox) {
		w, _ := warmed(t, 1)
		sb, err := w.provisioner().Create(t.Context(), "box", asked)
		if err != nil {
			t.Fatal(err)
		}
		w.snap(sb, older, newer)
		w.ops = nil
		return w, sb
	}
	w, sb := begin(t)
	if _, err := w.provisioner().Return(t.Context(), sb); err != nil {
		t.Fatal(err)
	}
	ops := w.ops
	for i, op := range ops {
		for _, effect := range []bool{false, true} {
			t.Run(fmt.Sprintf("%d-%s-%t", i, op, effect), func(t *testing.T) {
				w, sb := begin(t)
				w.crash(i, effect)
				_, _ = w.provisioner().Return(t.Context(), sb)
				w.before, w.after = nil, nil
				p := w.provisioner()
				if removed, err := p.Recover(t.Context()); err != nil || len(removed) != 0 {
					t.Fatal(removed, err)
				}
				done := i == len(ops)-1 && effect
				if got := w.states(); done != (got == "sp-sb1 pooled") || !done && !strings.HasPrefix(got, "box ") {
					t.Errorf("left: %s", got)
				}
				if done {
					return
				}
				if _, err := p.Return(t.Context(), w.living()[0]); err != nil || w.states() != "sp-sb1 pooled" || len(w.vms[sb.VM.ID].snaps) != 1 {
					t.Errorf("again: %v, left %s", err, w.states())
				}
			})
		}
	}
}
