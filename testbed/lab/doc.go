// Package lab runs the local Proxmox-compatible cluster as a background
// process: the API server, its guests, and the SSH jump host of its node.
//
// # Overview
//
// Serve is the process; Up starts it from the savepoint binary and waits until
// it is ready; Down ends it; Read tells its state. Everything lives in one
// directory:
//
//	lab.lock       held (flock) by the process for as long as it lives
//	process.json   its pid and start time
//	status.json    where it listens and the lab's own credentials (mode 0600)
//	lab.log        what it has to say
//	savepoint.yaml the configuration that makes savepoint use this lab (0600)
//	id_ed25519     the key that savepoint shows to the jump host and the guests
//	pve/           the API server's state, pve/images the disks
//	qemu/          the records of running guests
//	orchestrator/  the journal of the savepoint that uses this lab
//
// # Invariants
//
//   - The lab runs if and only if lab.lock is held. Nothing is concluded from
//     a pid alone.
//   - Every listener is on 127.0.0.1, at a port the system chose.
//   - A killed lab leaves its guests running; the next Serve adopts them, and
//     Down ends them by their records, never by name.
//
// # Limits
//
// One node, user-mode networks: a guest reaches nothing and is reached only
// through the jump host. Credentials in status.json are good for this lab and
// nothing else; they may do everything there, while savepoint.yaml has a token
// with just the rights that savepoint needs.
package lab
