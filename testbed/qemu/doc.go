// Package qemu runs the lab's virtual machines: real guests, each a QEMU
// process, and their disks.
//
// # Overview
//
// Machines implements pve.Machines and Images implements pve.Disks. A machine
// is one qemu-system-x86_64 process with explicit block devices, a QMP socket,
// a guest-agent socket and a serial console; it has no display and, by
// default, a user-mode network that reaches nothing: one loopback port of the
// host is forwarded to the guest's port 22 and that is all. Accel finds out by
// trying whether KVM runs a real kernel here.
//
// A memory snapshot is QEMU's snapshot-save job: one instant for all disks (an
// internal qcow2 snapshot each) and the memory (in a qcow2 file of its own).
// Resuming starts a new process, stopped, loads the memory and lets it run, as
// PVE does it. Volumes of a storage that takes snapshots itself (Volumes) are
// snapshotted by it while the VM is halted, at the same instant as the rest; the
// memory then has a file of its own all the same.
//
// # Invariants
//
//   - A record is on disk before a process is started and is removed after it
//     is gone. New on the same directory adopts what still runs and is proved
//     to be ours (process start time and a random token in its arguments) and
//     ends what a crash left half-started. One owner per directory (a lock).
//   - Processes are ended by id through a pidfd or as our own child, never by
//     name, and only after that proof.
//   - A guest cannot make host files grow but its disks: the console log is
//     bounded.
//   - No guest reaches anything outside: user-mode networks are restricted.
//
// # Limits
//
//   - The host is Linux on amd64; QEMU 7.2 or newer.
//   - Snapshots need qcow2 disks or volumes; another raw disk is refused with the reason.
//   - A VM that was paused and is adopted runs on.
//   - A saved state loads into the QEMU version and accelerator that wrote it.
//   - A connection made through the forwarded port before the guest is up is
//     accepted and then silent for seconds: ask the guest agent first.
//   - User-mode networks are IPv4 only and join no two guests.
package qemu
