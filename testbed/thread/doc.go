// Package thread runs functions on operating-system threads that they may change
// for good: that enter namespaces, or give up what a process shares.
//
// # Overview
//
// Go starts a goroutine that is locked to its thread. What the function does to
// the thread, and what it starts there, stays with it; it must not hand work to
// other goroutines.
//
// # Invariants
//
//   - The thread is never the process's first: that one cannot end when it was
//     changed, and what it has become is what /proc/self says of the whole process.
//   - The thread ends with the function, unless the function unlocks it
//     (runtime.UnlockOSThread) because it is as it was.
//
// # Limits
//
// Linux only. Nobody waits for the function: it says itself when it is done.
package thread
