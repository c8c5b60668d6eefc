// Package zfs takes and restores snapshots of a sandbox's workspace volume,
// with ZFS on the node that has the VM: the boundary workspace.
//
// # Overview
//
// Snapshots implements orchestrator.Snapshotter. It talks to two parties, each
// behind an interface of its own:
//
//	Guest  freeze, thaw, unmount and mount the volume inside the VM
//	Node   one ZFS order on the node: Client carries it over any Exchange
//
//	create    freeze | zfs snapshot | thaw
//	rollback  look | kill the agent's processes, unmount | zfs rollback | mount
//
// On the node the program savepoint-zfs, which is part of this package, is the
// forced command of savepoint's SSH key. Its head draws the protocol. Setup
// returns the commands that an administrator runs once on each node.
//
// Ownership is the user property savepoint:owner, "instance/sandbox", set on
// the dataset (Claim) and, in the same command that takes it, on every snapshot.
// A value that is inherited proves nothing: a foreign snapshot of our dataset
// inherits one.
//
// # Invariants
//
//   - No frozen guest is left: Thaw is called on every path after Freeze, also
//     after a loss and when ctx has ended, and Freeze itself is bounded by a
//     watchdog in the guest that needs nobody.
//   - A snapshot that took longer than the freeze was good for is deleted.
//   - Rollback looks before it touches the guest, and names what is newer.
//     zfs rollback has exactly one snapshot as its argument and never an option.
//   - Nothing is restored below a mounted file system: after an order without an
//     answer the volume stays unmounted, and rolling back again mends that. The
//     node does one order at a time, so the next waits for one that still runs.
//   - The node checks prefix, names and owner itself before every order. Nothing
//     of a request is ever read by a shell as text.
//   - A nearly full pool is refused before the snapshot (orchestrator.FullError), as long as
//     there still is room to roll back and to delete.
//
// # Limits
//
// List has every snapshot of the dataset, foreign ones and those of the cluster
// included, because each of them is in the way of an older one. A bookmark is
// in the way too; it is named with its '#' and is not listed.
// When the answer to a snapshot's order is lost, nobody knows whether the guest
// still held its writes when it was taken: if the engine finds it, it is as good
// as a disk whose power failed, with everything in it that was synced before.
// A freeze that reaches the guest late lasts until its watchdog ends it.
// A sandbox that is turned off has no guest to help: its workspace is neither
// snapshotted nor restored. Processes of root that hold the volume open make the
// unmount fail; they are not killed.
// That the volume may be rolled back while it is attached holds for a zvol that
// is not mounted in the guest, and for a raw file that QEMU reads past the host's
// cache, as the lab's does.
// zfs-fuse, which tests use, lacks delegation (zfs allow): Setup's commands for
// it were not run against a real node.
package zfs
