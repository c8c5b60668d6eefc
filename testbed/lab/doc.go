// Package lab runs the local Proxmox-compatible cluster as a background
// process: the API server, its nodes with their guests, the network between
// them, and the SSH servers in front of both.
//
// # Overview
//
// Serve is the process; Up starts it from the savepoint binary and waits until
// it is ready; Down ends it; Read tells its state. Everything lives in one
// directory:
//
//	lab.lock       held (flock) by the process for as long as it lives
//	process.json   its pid and start time
//	made.json      what it was made as: nodes, network, storage
//	status.json    where it listens and the lab's own credentials (mode 0600)
//	lab.log        what it has to say
//	savepoint.yaml the configuration that makes savepoint use this lab (0600)
//	id_ed25519     the key that savepoint shows to the SSH servers and the guests
//	pve/           the API server's state, with the disks of storage "local"
//	qemu*/         the records of each node's running guests
//	fabric/        the record of the network between the nodes
//	zfs/           the pool, with the disks of storage "local-zfs"
//	ssh/           host keys of the nodes' sshd
//	orchestrator/  the journal of the savepoint that uses this lab
//
// Parts are brought up in the order of what stands on what, and ended in the
// other: disks, network, guests, API, SSH.
//
// The network is "user", where a guest reaches nothing, no guest reaches another
// and nothing about isolation can be shown, or "evpn": package fabric, with two
// tenants in savepoint.yaml. There a network card on a vnet is a tap that holds
// the guest to its MAC address and those of ipconfigN; one on vmbr0 is on
// user-mode networking all the same. The bastion reaches a guest by address: over
// its user-mode forward, or from its zone's router on its own node.
//
// Storage "qcow2" is files. A sandbox has a workspace volume all the same: a btrfs,
// of which its guest takes the snapshots.
//
// Storage "zfs" puts the disks on one pool, in which each node has a dataset of
// its own. Each node then has an sshd with one account, savepoint-zfs, which runs
// package proxmox/zfs's program for that dataset.
//
// # Invariants
//
//   - The lab runs if and only if lab.lock is held. Nothing is concluded from
//     a pid alone.
//   - Every listener is on 127.0.0.1, at a port the system chose.
//   - A killed lab leaves its guests running, with their network and disks. The
//     next Serve adopts them: it builds the network that the API says runs, and
//     moves their taps into it. A guest that it has no place for runs on without
//     a network, which the log says.
//   - Down ends what there is by its records, never by name: guests, then the
//     network's processes and namespaces, then the pool's daemon.
//   - A lab stays what it was made as, but for the version and further nodes:
//     nothing of its guests is left behind.
//   - A network that cannot be built as it is written is an error of the node's
//     reload; nothing is built that is not what it is said to be.
//
// # Limits
//
// Nodes share one machine, one QEMU and one clock; none of them has its power
// taken but by tests. A zone's exit node opens it for the guests on that node only,
// and only to the lab's own outside. Zones have no imported routes, isolated ports
// or VLANs. A guest in a vxlan zone has no router, so the bastion cannot reach
// it; nor one whose address another running guest has too, in whatever zone.
// "local" has disks of each node's own: a linked clone needs its template on the
// same node. There is one pool with ZFS on a machine, so one such lab.
// Credentials in status.json are good for this lab and nothing else; they may do
// everything there, while savepoint.yaml has a token with just the rights that
// savepoint needs.
package lab
