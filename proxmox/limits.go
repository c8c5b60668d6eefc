package proxmox

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"savepoint/orchestrator"
)

// Wait tells that a call has to wait for its turn, so that a person can see
// why nothing seems to happen.
type Wait struct {
	Op      string // what waits: "clone vm 8000 on pve1 to"
	Subject string // "vm 9001 on pve1"
	For     string // "a full clone of vm 8000 on pve1"
	Ahead   int    // how many have to end first; 0 = its turn has come
}

func (w Wait) String() string {
	if w.Ahead == 0 {
		return "goes on: " + w.For
	}
	return fmt.Sprintf("waiting for %s, %d ahead", w.For, w.Ahead)
}

// caller is who asks for a turn.
type caller struct {
	op, subject string
	first       bool // before all that wait already
}

// keyed lets at most width holders at a time have the same key, in the order
// in which they asked. Keys nobody holds or waits for take no memory.
type keyed struct {
	width int // 0 = as many as want
	what  string
	told  func(Wait) // may be nil; called without a lock
	mu    sync.Mutex
	held  map[string]*line
}

// line is the holders and waiters of one key.
type line struct {
	busy    int
	waiting []*waiter
}

// waiter is one call in a line. ready is closed once the turn is its own; ahead
// holds the newest number only.
type waiter struct {
	ready chan struct{}
	ahead chan int
}

// acquire waits for the key or the end of ctx. The returned function gives the
// key back and must be called once.
func (k *keyed) acquire(ctx context.Context, key string, who caller) (func(), error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if k.width == 0 {
		return func() {}, nil
	}
	w := k.enter(key, who.first)
	say := func(ahead int) {
		if k.told != nil {
			k.told(Wait{Op: who.op, Subject: who.subject, For: k.what + key, Ahead: ahead})
		}
	}
	said := 0
	for {
		select {
		case <-w.ready:
			if said > 0 {
				say(0)
			}
			return sync.OnceFunc(func() { k.leave(key) }), nil
		default:
		}
		select {
		case <-w.ready: // said above
		case n := <-w.ahead:
			if n != said {
				said = n
				say(n)
			}
		case <-ctx.Done():
			k.giveUp(key, w)
			return nil, ctx.Err()
		}
	}
}

func (k *keyed) enter(key string, first bool) *waiter {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.held == nil {
		k.held = make(map[string]*line)
	}
	l := k.held[key]
	if l == nil {
		l = &line{}
		k.held[key] = l
	}
	w := &waiter{ready: make(chan struct{}), ahead: make(chan int, 1)}
	if first {
		l.waiting = append([]*waiter{w}, l.waiting...)
	} else {
		l.waiting = append(l.waiting, w)
	}
	k.advance(l)
	return w
}

func (k *keyed) leave(key string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	l := k.held[key]
	l.busy--
	k.advance(l)
	k.drop(key, l)
}

// giveUp takes a waiter out of its line. One whose turn came at the same
// moment gives it back.
func (k *keyed) giveUp(key string, w *waiter) {
	k.mu.Lock()
	defer k.mu.Unlock()
	l := k.held[key]
	if at := slices.Index(l.waiting, w); at >= 0 {
		l.waiting = slices.Delete(l.waiting, at, at+1)
	} else {
		l.busy--
	}
	k.advance(l)
	k.drop(key, l)
}

// advance gives free turns to those who asked first and tells the others how
// many are ahead.
func (k *keyed) advance(l *line) {
	for l.busy < k.width && len(l.waiting) > 0 {
		close(l.waiting[0].ready)
		l.waiting = l.waiting[1:]
		l.busy++
	}
	for i, w := range l.waiting {
		select {
		case <-w.ahead:
		default:
		}
		w.ahead <- l.busy - k.width + 1 + i
	}
}

func (k *keyed) drop(key string, l *line) {
	if l.busy == 0 && len(l.waiting) == 0 {
		delete(k.held, key)
	}
}

// nodeTurn bounds the calls that load a node and can wait: clones, new
// snapshots, removals. Going back never waits for it, nor do stopping and
// starting, which belong to going back.
func (c *Cluster) nodeTurn(ctx context.Context, op, subject, node string) (func(), error) {
	release, err := c.nodes.acquire(ctx, node, caller{op: op, subject: subject})
	if err != nil {
		return nil, &failure{op: op, subject: subject, class: orchestrator.ErrUnavailable, err: err,
			cause: "not begun: gave up waiting for a turn on node " + node + " (" + err.Error() + ")",
			mend:  "others work on that node (cluster.limits.per_node); give it more time"}
	}
	return release, nil
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
	var before error
	for n := 0; ; n++ {
		err := try()
		if before != nil && ctx.Err() != nil && errors.Is(err, orchestrator.ErrUnavailable) {
			return before // it did nothing for want of time: what it waited for says more
		}
		if err == nil || !retriable(err) {
			return err
		}
		before = err
		d := backoff(n, 100*time.Millisecond, 3*time.Second)
		if time.Now().Add(d).After(end) || pause(ctx, d) != nil {
			return err
		}
		c.log.Debug().Err(err).Int("attempt", n+2).Msg("trying again")
	}
}
