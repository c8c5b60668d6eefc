// Package memory is a backend for testbed/pve whose VMs and disks are data in
// memory.
//
// # Overview
//
// Backend implements pve.Machines and pve.Disks. A disk holds one string of
// content that tests write and read, so that snapshots, reverts, copies and
// links can be seen to work. A guest agent can be switched between silent and
// answering, per VM.
//
// # Invariants
//
//   - A link shows its base's content until it is written; a base with links
//     cannot be removed.
//   - A revert brings back exactly the content of the snapshot.
//   - Snapshotting a running VM snapshots all its disks at one instant.
//
// # Limits
//
// Nothing boots, nothing survives the process, sizes are numbers only. Files
// on the real file system can be copied from (their size is taken), never to.
package memory
