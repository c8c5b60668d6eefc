// Package pve is a server that answers like the API of one Proxmox VE node and
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
//   - For one VM the backend gets one call at a time, except Status and Agent.
//   - Secrets are random, kept in files of mode 0600, and print as "redacted".
//
// # Limits
//
// One node; no HA, no migration, no backup jobs. SDN has evpn controllers,
// simple, vxlan and evpn zones, and no fabrics, DNS, address management or
// DHCP; the firewall has options and rules of VMs and vnets only. Options
// that a backend cannot change on a running VM stay pending until it is
// restarted, and its disks cannot be resized before. VMs have no figures of
// their use of processor, memory and network. Bandwidth limits are accepted
// and not kept. The not-newest rule of ZFS and volume chains is kept by the server
// itself, whatever the backend could do.
package pve
