package thread

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"
)

// What enters namespaces never does so on the process's first thread.
func TestThreadIsNotTheFirst(t *testing.T) {
	var wg sync.WaitGroup
	var first atomic.Int64
	for range 2000 {
		wg.Add(1)
		Go(func() {
			defer wg.Done()
			defer runtime.UnlockOSThread()
			if unix.Gettid() == unix.Getpid() {
				first.Add(1)
			}
		})
		runtime.Gosched()
	}
	wg.Wait()
	if n := first.Load(); n > 0 {
		t.Errorf("%d of 2000 ran on the first thread", n)
	}
}
