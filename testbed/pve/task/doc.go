// Package task runs the worker tasks of one node and remembers them.
//
// # Overview
//
// Run starts a worker and returns its UPID at once; what the worker did is
// told by its log and exit status only. Index lists running and finished
// tasks the way the API does. Everything is kept below one directory, so that
// a later process still knows what happened.
//
// # Invariants
//
//   - A task's log ends in "TASK OK", "TASK WARNINGS: n" or "TASK ERROR: text"
//     exactly when its worker ended by itself or was interrupted.
//   - A worker that was killed, by Kill, by Close or with the whole process,
//     leaves no such line; its exit status is then "unexpected status".
//   - Close returns only after every worker's goroutine has ended.
//
// # Limits
//
// A worker is a goroutine: killing it means that its context ends and that
// Worker.Alive turns false, and it is up to the worker's code to change
// nothing afterwards. The index keeps the newest 20,000 finished tasks.
package task
