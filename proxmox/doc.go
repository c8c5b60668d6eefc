// Package proxmox drives a Proxmox VE cluster through its HTTP API. It is the
// only package that imports go-proxmox (as pve) and retryablehttp.
//
// # Overview
//
// Open makes a *Cluster from a Config without any request. From it come the
// adapters of the orchestrator's ports:
//
//	Cluster.Snapshots   orchestrator.Snapshotter   boundaries disk and machine
//	Cluster.VMs         orchestrator.Hypervisor    clone, start, stop, destroy, status
//	Cluster.Tasks       orchestrator.Tasks         tasks an earlier process started
//	Cluster.SDN         networks.Fabric            zones, vnets and subnets
//
// and what provisioning, the janitor and the doctor need besides: HostKey,
// Templates, BuildTemplate, Version, Nodes, Storages, MissingPrivileges,
// Inventory, Working, SavedMemories, DeleteSavedMemory, Guards,
// LookAt, Membership, Edition, BackupJobs, TemplateFacts, Rename.
//
// A call that changes something goes through one path (order.go): ownership
// and lock are read, the request is sent once, its task is followed to the
// end, and the result is read back from the configuration. Task texts and
// HTTP errors become the orchestrator's classes in errors.go, those about
// networks in sdn_errors.go, and nowhere else.
// Calls that load the cluster wait for their turn first (limits.go): clones per
// template, storage and node, new snapshots and removals per node, everything
// per VM. Who came first goes first, except that a rollback goes before all
// that wait for its VM and waits for nothing else.
//
// # Invariants
//
//   - A write is sent at most once unless it provably never left this host
//     (no connection was made) or the cluster said that it did nothing. Giving
//     back the lock on networks is repeated: twice is the same as once.
//   - HTTP 200 is never success: the task's exit status and the state that
//     was read afterwards are.
//   - A write whose answer was lost is looked for among the node's tasks; when
//     it is not found there, the error wraps orchestrator.ErrUnknownOutcome.
//   - Nothing is changed on a VM that does not carry our tags and, in its
//     description, exactly the expected instance and sandbox.
//   - TLS is verified always; there is no switch that turns it off.
//   - Secrets are never logged: request and response bodies are not logged at all.
//
// # Limits
//
// A config lock left by a dead worker cannot be removed with an API token; it
// is reported as orchestrator.ErrBusy with its name and what to do. VMs under
// HA are supported only in so far as starting and stopping them is waited for
// by state. Of the cluster's networks only what the token may see is known: edits
// that no list shows are found on PVE 9 alone, by its lock.
package proxmox
