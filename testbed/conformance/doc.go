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
//	conformance.Hold(t, factory, caps)     // the part of it that needs no shell
//	conformance.Journal(t, factory)        // and what it may offer besides
//
// # Who runs them
//
//	Snapshotter  proxmox, guests in memory: qcow2 and volume chains of 9.2, qcow2 and ZFS of 8.4
//	             proxmox, QEMU and its images (lab tier)
//	             testbed/sim/world: workspace, disk and machine, each with and without newest-only
//	Hypervisor   proxmox, guests in memory: 8.4, 9.2, without messages, lagging
//	             proxmox, QEMU and its images (lab tier)
//	             testbed/sim/world
//	Executor     orchestrator/sshexec, simulated guests (in testbed/sim)
//	             orchestrator/sshexec, OpenSSH with three ways to hold processes (lab tier)
//	             orchestrator/sshexec, a guest under QEMU (lab tier)
//	Hold         all of these, and testbed/sim/world
//	Journal      orchestrator/journal; its unknown outcomes need a full disk, see its own tests
//	             testbed/sim
//
// The engine's own tests have a double of one VM that does not run them: it
// knows one sandbox only. What the engine does with every implementation is
// shown by testbed/sim and the stories of cmd/savepoint.
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
// be tested from outside; testbed/sim explores that. On QEMU the VMs of the
// snapshots' suite have no guest, so memory is left to testbed/qemu.
package conformance
