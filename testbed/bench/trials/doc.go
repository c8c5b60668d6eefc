// Package trials are the experiments: what is measured, on what, and how.
//
// # Overview
//
// Each function returns a bench.Experiment. Interception, Scale and Crashes need
// nothing but this machine. Rollback, Overhead and Turns act on one sandbox of a
// cluster, the lab or a real one, through a Rig; Isolation needs what measures the
// network. What they need in the guest is sent there first, below /opt/savepoint-bench:
// the texts of damages and workloads, and packages for an installation without
// a network.
//
// # Invariants
//
//   - A command of an arm under savepoint is one transaction of the engine, judged
//     by the same policy as everybody's. Bare arms send the same text over the
//     same connection.
//   - A damage says itself, by its exit code, whether it took: a rollback of
//     nothing is a failed sample. Of the one that cuts the connection, the proof is
//     that savepoint gave the silent connection up, long before a time limit.
//   - Exact means that no path of the trees that are compared differs in kind,
//     mode, owner, extended attributes, flags, link target or content.
//   - The sandbox belongs to the experiments: what is in it is changed.
//
// # Limits
//
// The copy of the paper's way is made by cp on the guest's own disk and dropped
// by rm; the paper's prototype is said to use Python's shutil, which a full run has
// as an arm of its own. Bare
// commands run as root, since only root has an SSH login in a sandbox, and are not
// synced to disk, as those under savepoint are.
// Crash schedules are explored by the project's own tests: without Go and the
// sources that experiment is skipped.
package trials
