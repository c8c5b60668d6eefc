// Package world is a simulated cluster on a simulated clock: virtual machines
// with their guests, disks, snapshots, locks and tasks, in this process and
// deterministic, for exploring every way in which the transaction engine can
// be cut off, and for measuring it with a thousand sandboxes.
//
// # Overview
//
// A Cluster is what is left when an orchestrator dies. It has no goroutines:
// what is due by now happens when somebody looks, in the order of its time.
// A Process is one orchestrator process: the engine's ports on the cluster and
// on a sim.Journal. Before and after the effect of every call it passes a
// Point, at which a test lets it die or fail; every order to the cluster has a
// Fate: the task is slow, fails, dies and leaves its lock, hangs, or its order
// arrives late. Faults draws both from a seed. Turns makes several callers of
// one process take turns, so that a seed decides what they do together; the
// engine's work in the background takes part.
//
// The methods of an operator (operator.go) interfere, and mend. A Checker
// replays what the journal tells on a copy of the files and compares: each
// Finding names the invariant that does not hold.
//
// Time is that of package time: run in a testing/synctest bubble it is
// simulated, deadlines of contexts included. With the zero Options everything
// happens at once, which is for benchmarks on the real clock.
//
// # Invariants
//
//   - Equal seeds, plans and engines make equal stories, points and findings.
//   - A dead process changes nothing any more; what it ordered, and what it
//     started in a guest, goes on without it.
//   - A snapshot restores exactly the files of its instant: all of them for the
//     VM's kinds, those of its volume for the workspace's: the ones under
//     /workspace and the generation marker. Memory brings back the boot, its
//     clock and its processes.
//   - GuestFacts.Writes changes with every step of a command that writes, with the
//     marker, an operator's Write and a restore, and with nothing else.
//   - With NewestOnly a snapshot of either kind blocks the ones before it.
//   - A task holds the VM's lock from its order to its end, and one that died
//     holds it until an operator takes it away.
//   - The snapshotters and the hypervisor pass the suites of testbed/conformance.
//
// # Limits
//
// One node; no storage space, no network, no cloud-init. A file has a path and
// a content, no mode and no owner; who is not root writes under /workspace
// only. A shell's working directory is not where its words look for files. An
// order whose answer was lost arrives twenty seconds later or never. The
// journal's reads never fail.
package world
