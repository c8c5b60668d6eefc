package proxmox

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"testing"
	"time"

	"savepoint/orchestrator"
)

// F34 F35: no more holders of a key at a time than allowed, others wait, and
// keys that nobody uses take no memory.
func TestKeyed(t *testing.T) {
	for _, width := range []int64{1, 2} {
		k := keyed{width: width}
		var mu sync.Mutex
		var now, most int64
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() {
				release, err := k.acquire(t.Context(), "template")
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				now++
				most = max(most, now)
				mu.Unlock()
				for range 100 { // so that holders overlap if they can
					runtime.Gosched()
				}
				mu.Lock()
				now--
				mu.Unlock()
				release()
			})
		}
		wg.Wait()
		if most > width || len(k.held) != 0 {
			t.Errorf("width %d: %d held it at once, %d keys are kept", width, most, len(k.held))
		}
	}
}

func TestKeyedGivesUp(t *testing.T) {
	k := keyed{width: 1}
	release, err := k.acquire(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := k.acquire(ctx, "a"); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	other, err := k.acquire(t.Context(), "b") // another key is free
	if err != nil {
		t.Fatal(err)
	}
	other()
	release()
	if len(k.held) != 0 {
		t.Errorf("%d keys are kept", len(k.held))
	}
}

// Nobody waits for a template while holding one of a storage's turns.
func TestCloneTurn(t *testing.T) {
	c := &Cluster{clones: keyed{width: 1}, storages: keyed{width: 2}}
	release, err := c.cloneTurn(t.Context(), "template a", "local")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	waiting := make(chan error, 1)
	go func() {
		r, err := c.cloneTurn(ctx, "template a", "local")
		if err == nil {
			r()
		}
		waiting <- err
	}()
	other, err := c.cloneTurn(t.Context(), "template b", "local")
	if err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-waiting:
		t.Fatalf("two clones of one template at once: %v", err)
	default:
	}
	cancel()
	if err := <-waiting; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	other()
	release()
	if len(c.clones.held) != 0 || len(c.storages.held) != 0 {
		t.Error("turns are kept")
	}
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
