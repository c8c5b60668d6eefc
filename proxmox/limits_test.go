package proxmox

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"savepoint/orchestrator"
)

// F34 F35 F36: no more holders of a key at a time than allowed, others wait in
// the order they came, and keys that nobody uses take no memory.
func TestKeyed(t *testing.T) {
	for _, width := range []int{1, 2} {
		synctest.Test(t, func(t *testing.T) {
			k := keyed{width: width}
			var mu sync.Mutex
			var now, most int
			var order []int
			var wg sync.WaitGroup
			for i := range 20 {
				wg.Go(func() {
					release, err := k.acquire(t.Context(), "template", caller{})
					if err != nil {
						t.Error(err)
						return
					}
					mu.Lock()
					now++
					most = max(most, now)
					order = append(order, i)
					mu.Unlock()
					time.Sleep(time.Second)
					mu.Lock()
					now--
					mu.Unlock()
					release()
				})
				synctest.Wait() // so that they ask one after the other
			}
			wg.Wait()
			if most != width || len(k.held) != 0 {
				t.Errorf("width %d: %d held it at once, %d keys are kept", width, most, len(k.held))
			}
			for i := 0; i < len(order); i += width { // those of one round come together
				round := slices.Sorted(slices.Values(order[i : i+width]))
				if round[0] != i || round[width-1] != i+width-1 {
					t.Errorf("width %d: the order is %v", width, order)
					break
				}
			}
		})
	}
}

// Who waits is told how many are ahead, each time one of them ends or gives
// up, and when the turn has come.
func TestKeyedTells(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		told := map[string][]string{}
		k := keyed{width: 1, what: "a clone of ", told: func(w Wait) {
			mu.Lock()
			defer mu.Unlock()
			told[w.Subject] = append(told[w.Subject], w.String())
		}}
		first, err := k.acquire(t.Context(), "tpl", caller{subject: "first"})
		if err != nil {
			t.Fatal(err)
		}
		wait := func(ctx context.Context, who string) chan func() {
			got := make(chan func(), 1)
			go func() {
				release, err := k.acquire(ctx, "tpl", caller{subject: who})
				if err != nil {
					release = nil
				}
				got <- release
			}()
			synctest.Wait()
			return got
		}
		ctx, cancel := context.WithCancel(t.Context())
		second, impatient, last := wait(t.Context(), "second"), wait(ctx, "impatient"), wait(t.Context(), "last")
		cancel()
		if r := <-impatient; r != nil {
			t.Error("one that was cancelled got its turn")
		}
		synctest.Wait()
		first()
		r := <-second
		synctest.Wait()
		r()
		(<-last)()
		want := map[string][]string{
			"second":    {"waiting for a clone of tpl, 1 ahead", "goes on: a clone of tpl"},
			"impatient": {"waiting for a clone of tpl, 2 ahead"},
			"last":      {"waiting for a clone of tpl, 3 ahead", "waiting for a clone of tpl, 2 ahead", "waiting for a clone of tpl, 1 ahead", "goes on: a clone of tpl"},
		}
		if !reflect.DeepEqual(told, want) || len(k.held) != 0 {
			t.Errorf("told %v, want %v; %d keys are kept", told, want, len(k.held))
		}
	})
}

// Nobody starves: a steady stream of newcomers never overtakes one that waits.
func TestKeyedStarvation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := keyed{width: 2}
		ctx, stop := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for range 4 { // each comes again as soon as it is done
			wg.Go(func() {
				for ctx.Err() == nil {
					release, err := k.acquire(ctx, "node", caller{})
					if err != nil {
						return
					}
					time.Sleep(time.Second)
					release()
				}
			})
		}
		synctest.Wait()
		begun := time.Now()
		release, err := k.acquire(t.Context(), "node", caller{})
		if err != nil {
			t.Fatal(err)
		}
		if waited := time.Since(begun); waited > 3*time.Second {
			t.Errorf("waited %s behind two rounds of newcomers", waited)
		}
		release()
		stop()
		wg.Wait()
	})
}

func TestKeyedGivesUp(t *testing.T) {
	k := keyed{width: 1}
	release, err := k.acquire(t.Context(), "a", caller{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, key := range []string{"a", "free"} {
		if _, err := k.acquire(ctx, key, caller{}); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: got %v", key, err)
		}
	}
	other, err := k.acquire(t.Context(), "b", caller{}) // another key is free
	if err != nil {
		t.Fatal(err)
	}
	other()
	release()
	if len(k.held) != 0 {
		t.Errorf("%d keys are kept", len(k.held))
	}
	for range 3 { // without a limit nobody waits
		if _, err := (&keyed{}).acquire(t.Context(), "a", caller{}); err != nil {
			t.Error(err)
		}
	}
}

// A turn that comes at the moment its waiter gives up is not lost.
func TestKeyedTurnAndEnd(t *testing.T) {
	for range 50 {
		k := keyed{width: 1}
		release, err := k.acquire(t.Context(), "a", caller{})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			if r, err := k.acquire(ctx, "a", caller{}); err == nil {
				r()
			}
		}()
		go cancel()
		release()
		<-done
		k.mu.Lock()
		if len(k.held) != 0 {
			t.Fatalf("a turn is lost: %+v", k.held["a"])
		}
		k.mu.Unlock()
	}
}

func limited(full, linked, storage, node int) *Cluster {
	return &Cluster{
		fullClones: keyed{width: full}, linkedClones: keyed{width: linked}, storages: keyed{width: storage}, nodes: keyed{width: node},
		vms: keyed{width: 1},
	}
}

func cloneOf(template, vm orchestrator.VMRef, full bool) orchestrator.CloneRequest {
	return orchestrator.CloneRequest{VMRequest: orchestrator.VMRequest{VM: vm}, Template: template, Full: full}
}

// F84: full clones of one template go one after the other, linked ones a few
// at a time, and clones to different target nodes do not wait for one another.
func TestCloneTurns(t *testing.T) {
	a, b := orchestrator.VMRef{Node: "pve1", ID: 8000}, orchestrator.VMRef{Node: "pve1", ID: 8001}
	on := func(node string, id orchestrator.VMID) orchestrator.VMRef {
		return orchestrator.VMRef{Node: node, ID: id}
	}
	for _, tc := range []struct {
		name    string
		clones  []orchestrator.CloneRequest
		seconds int // each clone takes one
	}{
		{"full of one template", []orchestrator.CloneRequest{cloneOf(a, on("pve1", 1), true), cloneOf(a, on("pve1", 2), true), cloneOf(a, on("pve1", 3), true)}, 3},
		{"full of two templates", []orchestrator.CloneRequest{cloneOf(a, on("pve1", 1), true), cloneOf(b, on("pve1", 2), true)}, 1},
		{"linked of one template", []orchestrator.CloneRequest{cloneOf(a, on("pve1", 1), false), cloneOf(a, on("pve1", 2), false), cloneOf(a, on("pve1", 3), false)}, 2},
		{"full to two nodes", []orchestrator.CloneRequest{cloneOf(a, on("pve2", 1), true), cloneOf(a, on("pve3", 2), true)}, 1},
		{"full to one other node", []orchestrator.CloneRequest{cloneOf(a, on("pve2", 1), true), cloneOf(a, on("pve2", 2), true)}, 2},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := limited(1, 4, 2, 8)
				begun := time.Now()
				var wg sync.WaitGroup
				for _, r := range tc.clones {
					wg.Go(func() {
						release, err := c.cloneTurn(t.Context(), "clone", r, "local")
						if err != nil {
							t.Error(err)
							return
						}
						time.Sleep(time.Second)
						release()
					})
				}
				wg.Wait()
				if got := time.Since(begun); got != time.Duration(tc.seconds)*time.Second {
					t.Errorf("took %s, want %d s", got, tc.seconds)
				}
				if len(c.fullClones.held)+len(c.linkedClones.held)+len(c.storages.held)+len(c.nodes.held) != 0 {
					t.Error("turns are kept")
				}
			})
		})
	}
}

// Nobody waits for a template while holding one of a storage's turns, and who
// gives up gives back what it had.
func TestCloneTurnOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := orchestrator.VMRef{Node: "pve1", ID: 8000}, orchestrator.VMRef{Node: "pve1", ID: 8001}
		c := limited(1, 4, 2, 8)
		release, err := c.cloneTurn(t.Context(), "clone", cloneOf(a, testVM, true), "local")
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		waiting := make(chan error, 1)
		go func() {
			_, err := c.cloneTurn(ctx, "clone", cloneOf(a, testVM, true), "local")
			waiting <- err
		}()
		synctest.Wait()
		other, err := c.cloneTurn(t.Context(), "clone", cloneOf(b, testVM, true), "local")
		if err != nil {
			t.Fatal(err)
		}
		third := make(chan error, 1)
		go func() { // has its template, waits for the storage
			_, err := c.cloneTurn(ctx, "clone", cloneOf(b, testVM, false), "local")
			third <- err
		}()
		synctest.Wait()
		cancel()
		if err := errors.Join(<-waiting, <-third); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
		other()
		release()
		if len(c.fullClones.held)+len(c.linkedClones.held)+len(c.storages.held)+len(c.nodes.held) != 0 {
			t.Error("turns are kept")
		}
	})
}

// Going back is before everything that waits for the VM, and a node that is
// full of work does not concern it.
func TestRollbackGoesFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := limited(1, 4, 2, 1)
		busy, err := c.nodeTurn(t.Context(), "create snapshot of", "another vm", testVM.Node)
		if err != nil {
			t.Fatal(err)
		}
		now, err := c.exclusive(t.Context(), "start", testVM)
		if err != nil {
			t.Fatal(err)
		}
		var order []string
		var wg sync.WaitGroup
		enter := func(name string, f func(context.Context, string, orchestrator.VMRef) (func(), error)) {
			wg.Go(func() {
				release, err := f(t.Context(), name, testVM)
				if err != nil {
					t.Error(err)
					return
				}
				order = append(order, name)
				release()
			})
			synctest.Wait()
		}
		enter("create snapshot", c.exclusive)
		enter("delete snapshot", c.exclusive)
		enter("roll back", c.exclusiveFirst)
		now()
		wg.Wait()
		if want := []string{"roll back", "create snapshot", "delete snapshot"}; !slices.Equal(order, want) {
			t.Errorf("order %q, want %q", order, want)
		}
		busy()
	})
}

func TestExclusive(t *testing.T) {
	c := &Cluster{vms: keyed{width: 1}}
	release, err := c.exclusive(t.Context(), "start", testVM)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	_, err = c.exclusive(ctx, "stop", testVM)
	wantClass(t, err, orchestrator.ErrBusy)
	release()
	_, err = c.exclusive(ctx, "stop", testVM) // ended, so nothing is begun
	wantClass(t, err, orchestrator.ErrUnavailable)
}

func TestBackoff(t *testing.T) {
	for n := range 80 {
		d := backoff(n, 100*time.Millisecond, 3*time.Second)
		full := 3 * time.Second
		if n < 5 {
			full = 100 * time.Millisecond << n
		}
		if d < full/2 || d > full {
			t.Errorf("%d: %v", n, d)
		}
	}
}

func TestAgain(t *testing.T) {
	busy := &failure{op: "o", subject: "s", class: orchestrator.ErrBusy, retry: true}
	final := &failure{op: "o", subject: "s", class: orchestrator.ErrDenied}
	for _, tc := range []struct {
		wait  time.Duration
		errs  []error
		calls int
		want  error
	}{
		{time.Minute, []error{busy, busy, nil}, 3, nil},
		{time.Minute, []error{busy, final}, 2, final},
		{time.Minute, []error{final}, 1, final},
		{-1, []error{busy, nil}, 1, busy},
	} {
		c := &Cluster{cfg: Config{LockWait: tc.wait}}
		calls := 0
		err := c.again(t.Context(), func() error { calls++; return tc.errs[calls-1] })
		if err != tc.want || calls != tc.calls {
			t.Errorf("got %v after %d calls", err, calls)
		}
	}
}

// At the end of the time the error says who was in the way, not that there was
// no time for another attempt; one that may have done something is never hidden.
func TestAgainOutOfTime(t *testing.T) {
	busy := &failure{op: "o", subject: "s", class: orchestrator.ErrBusy, retry: true}
	late := &failure{op: "o", subject: "s", class: orchestrator.ErrUnavailable, err: context.DeadlineExceeded}
	lost := &failure{op: "o", subject: "s", class: orchestrator.ErrUnknownOutcome, err: context.DeadlineExceeded}
	for last, want := range map[*failure]error{late: busy, lost: lost} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			c := &Cluster{cfg: Config{LockWait: time.Minute}}
			calls := 0
			err := c.again(ctx, func() error {
				if calls++; calls == 1 {
					return busy
				}
				cancel()
				return last
			})
			if err != want || calls != 2 {
				t.Errorf("got %v after %d calls, want %v", err, calls, want)
			}
		})
	}
}
