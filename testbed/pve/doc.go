// Package pve is a server that answers like the API of a Proxmox VE cluster and
// drives guests through exchangeable backends.
//
// # Overview
//
// New builds a Server from a Config: where its state lives, which backends run
// the machines and keep the disks, which storages, users and tokens there are,
// and whether it behaves like 8.4 or 9.x. ListenAndServe then serves HTTPS on
// loopback with a certificate of the server's own CA.
//
// A request passes, in this order: who are you (auth.go), which call is it
// (table*.go), may you (permission.go), is it for this node, are the parameters
// good (the schema in the table), and then the call's own code. The calls that
// take long start a task (package task) and answer with its name. VM
// configurations are files (vmconf.go), volumes are records (volume.go).
//
// The virtual networks (sdn*.go) are two configurations, what was written and
// what runs. An apply copies the first over the second and starts a reload on
// each node, which hands the running one to the Fabric; what a node has built
// so far is kept per node, and VMs there can use no other bridges. Firewalls
// (firewall*.go) are records that nothing enforces.
//
// A cluster is several Servers in one process (nodes.go), each with its tasks,
// its own storages and the VMs whose configuration it holds; everything else
// is the cluster's. The first one serves, and passes a call that belongs to
// another on to it. SetNode takes a node's power: calls to it answer 595, those
// it was at 596, and without most of the nodes nothing is written. A stopped VM
// changes its node (migrate.go) by a rename of its configuration. Users, roles,
// tokens and grants (access*.go, package access) begin with the configured ones
// and change through the API.
//
// Clients that are not savepoint's (proxmoxer, Ansible, go-proxmox) are tests of
// it, and Config.Seen tells of every request; package official holds the table,
// and what savepoint sends, against the schema that Proxmox publishes.
//
// Tests steer it through Faults: delays, errors and lost connections around a
// request's effect, tasks that fail, hang or lose their worker at a step.
//
// # Invariants
//
//   - Every call is declared once, in the table, with its parameters and
//     permission; what is not declared answers 501, an undeclared parameter 400.
//   - A VM's configuration changes only by replacing its file whole, so a crash
//     leaves either the old or the new one.
//   - A worker that was killed changes nothing any more: every change asks
//     first. What it leaves is what a killed worker of a real node leaves: the
//     configuration's lock, the snapshot's state, allocated volumes.
//   - A vnet is a bridge of a node only once a reload of that node succeeded;
//     the apply's own task ends well either way.
//   - A VM's id is taken on all nodes at once, and its configuration is on
//     exactly one of them, whatever dies when.
//   - For one VM the backend gets one call at a time, except Status and Agent.
//   - Secrets are random, kept in files of mode 0600, and print as "redacted".
//
// # Limits
//
// No HA and no backup jobs. The first node cannot go, and answers of another
// never come late. VMs migrate only while they are stopped, and local disks
// only without snapshots. All nodes show the figures of the one machine. SDN
// has evpn controllers, simple, vxlan and evpn zones, and no fabrics, DNS,
// address management or DHCP; the firewall has options and rules of VMs and
// vnets only. Options that a backend cannot change on a running VM stay pending
// until it is restarted, and its disks cannot be resized before. VMs have no
// figures of their use of processor, memory and network. Bandwidth limits are
// accepted and not kept. The newest-only rule of volume chains, and of a zfspool
// without a real pool (Storage.Pool), is kept by the server itself, whatever the
// backend could do; of a real pool it looks at the snapshots that are there.
package pve
