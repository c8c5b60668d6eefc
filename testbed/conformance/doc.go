// Package conformance holds the suites that every implementation of a port
// must pass: the real adapters on the lab and on a real cluster, and the
// simulated ones.
//
// # Overview
//
// Each suite is an ordinary function that takes a *testing.T and a factory.
// The factory makes one fresh subject per test and registers its clean-up with
// t.Cleanup. What implementations may differ in is a field of the suite's
// capabilities, never a name.
//
//	conformance.Snapshotter(t, factory, caps)
//	conformance.Hypervisor(t, factory, caps)
//	conformance.Executor(t, factory, caps) // and Guest and Examiner
//	conformance.Journal(t, factory)        // and what it may offer besides
//
// # Invariants
//
//   - A suite uses only the port, and the subject's own way of writing and
//     reading a guest's state.
//   - A suite asserts what the comments in ports.go and guestports.go promise and
//     nothing else, so that a simulated and a real cluster can both pass.
//   - Subjects are independent; subtests may run in any order.
//
// # Limits
//
// Whether a crash in the middle of a call leaves what the port allows cannot
// be tested from outside; testbed/sim explores that.
package conformance
