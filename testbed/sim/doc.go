// Package sim is a backend for testbed/pve whose guests are simulated in this
// process: what a story needs of a Linux guest, in milliseconds and without
// QEMU.
//
// # Overview
//
// Backend implements pve.Machines and pve.Disks. A disk is a file tree in
// memory with snapshots; a machine that runs is an SSH server on 127.0.0.1
// that boots from its disk like a guest: it reads the cloud-init drive, makes
// its host key on the first boot, answers the guest agent, and serves the
// helper protocol of orchestrator/sshexec, and the steps that make a machine a
// template. Commands are interpreted by
// mvdan.cc/sh over the tree with a set of small programs; nothing they do can
// touch the host. Faults are switched with Behave, Freeze, Cut, ChangeHostKey.
//
// A guest has the users root and agent (uid 1000), /workspace, and the usual
// directories with the usual permissions, which are enforced.
//
// # Invariants
//
//   - A snapshot holds exactly the tree of its instant; a revert brings back
//     exactly that. Trees of different disks never share what can change.
//   - A command's processes form a group. Once a group is ended, no process of
//     it has any further effect: every effect asks the group first.
//   - The clock of a machine that resumes from saved memory continues from the
//     instant of the snapshot, so it is behind until somebody sets it. Its boot
//     id is the saved one; a machine that boots has a new one.
//   - Inspect tells a count of the changes of the boot disk as GuestFacts.Writes:
//     reading changes nothing, every write, removal and change of a mode does.
//   - Close ends every machine, connection and goroutine.
//
// # Limits
//
// Processes are not part of saved memory: they are gone after a resume.
// Only the boot disk holds files; further disks are sizes. There are no
// signals but the end of a group, no extended attributes, no mounts and so one
// file system, whose inode numbers and change times are counters, no network inside a guest, no process
// substitution, no sudo, no unsynced data that a power cut could lose.
// Programs know the options that stories use and refuse others with exit
// status 2; an unknown program is exit status 127. Nothing survives this
// process. The session of a command whose subshell becomes another program or
// sets an EXIT trap is not reported, unlike bash's.
package sim
