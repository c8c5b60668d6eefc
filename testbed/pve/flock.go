package pve

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// flock is the lock file of one VM: many may share it, or one holds it alone.
// Unlike a sync.RWMutex its waiters give up after a time.
type flock struct {
	mu      sync.Mutex
	readers int
	writer  bool
	changed chan struct{} // closed and replaced at every release
}

func newFlock() *flock { return &flock{changed: make(chan struct{})} }

// try takes the lock if that is possible now; otherwise it returns what to wait on.
func (f *flock) try(exclusive bool) (bool, <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.writer, exclusive && f.readers > 0:
		return false, f.changed
	case exclusive:
		f.writer = true
	default:
		f.readers++
	}
	return true, nil
}

func (f *flock) release(exclusive bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if exclusive {
		f.writer = false
	} else {
		f.readers--
	}
	close(f.changed)
	f.changed = make(chan struct{})
}

// acquire waits for the lock and returns how to give it back. waiting, when
// not nil, is called once before the first wait.
func (f *flock) acquire(ctx context.Context, exclusive bool, timeout time.Duration, waiting func()) (release func(), err error) {
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	for {
		ok, changed := f.try(exclusive)
		if ok {
			return sync.OnceFunc(func() { f.release(exclusive) }), nil
		}
		if waiting != nil {
			waiting()
			waiting = nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-timer.C:
			return nil, errLockTimeout
		}
	}
}

var errLockTimeout = fmt.Errorf("got timeout")

// lockFile is the path that texts about the lock name.
func lockFile(vmid int) string { return fmt.Sprintf("/var/lock/qemu-server/lock-%d.conf", vmid) }
