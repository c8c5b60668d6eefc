package thread

import (
	"runtime"

	"golang.org/x/sys/unix"
)

// Go runs f in a goroutine that is locked to its thread.
func Go(f func()) {
	go func() {
		runtime.LockOSThread()
		if unix.Gettid() != unix.Getpid() {
			f()
			return
		}
		defer runtime.UnlockOSThread()
		done := make(chan struct{})
		Go(func() { defer close(done); f() }) // this thread is held until it is done
		<-done
	}()
}
