package proxmox

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
)

// keyed lets at most width holders at a time have the same key. Keys nobody
// holds or waits for take no memory.
type keyed struct {
	width int64
	mu    sync.Mutex
	held  map[string]*keyedEntry
}

type keyedEntry struct {
	sem  *semaphore.Weighted
	refs int // holders and waiters; guarded by keyed.mu
}

// acquire waits for the key or the end of ctx. The returned function gives the
// key back and must be called once.
func (k *keyed) acquire(ctx context.Context, key string) (func(), error) {
	k.mu.Lock()
	if k.held == nil {
		k.held = make(map[string]*keyedEntry)
	}
	e := k.held[key]
	if e == nil {
		e = &keyedEntry{sem: semaphore.NewWeighted(k.width)}
		k.held[key] = e
	}
	e.refs++
	k.mu.Unlock()

	drop := func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		if e.refs--; e.refs == 0 {
			delete(k.held, key)
		}
	}
	if err := e.sem.Acquire(ctx, 1); err != nil {
		drop()
		return nil, err
	}
	return func() { e.sem.Release(1); drop() }, nil
}

// pause waits for d or the end of ctx.
func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}

// backoff is the pause before attempt n (from 0): doubling from lo to hi, half
// of it by chance, so that callers that failed together do not return together.
func backoff(n int, lo, hi time.Duration) time.Duration {
	d := hi
	if n < 16 {
		d = min(lo<<n, hi)
	}
	return d/2 + rand.N(d/2+1)
}

// again repeats try while it fails with "nothing was done, somebody is in the
// way" and the lock wait and ctx allow it. It returns the last error.
func (c *Cluster) again(ctx context.Context, try func() error) error {
	end := time.Now().Add(c.cfg.LockWait)
	for n := 0; ; n++ {
		err := try()
		if err == nil || !retriable(err) {
			return err
		}
		d := backoff(n, 100*time.Millisecond, 3*time.Second)
		if time.Now().Add(d).After(end) || pause(ctx, d) != nil {
			return err
		}
		c.log.Debug().Err(err).Int("attempt", n+2).Msg("trying again")
	}
}
