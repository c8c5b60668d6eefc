package orchestrator

import "fmt"

// TxID names a transaction: a ULID in lower case, so that ids sort by time.
type TxID string

// SandboxID names a sandbox for its whole life, also after its name is used
// again: a ULID in lower case. It is the ownership proof written on the VM.
type SandboxID string

// SnapshotName is the name of a snapshot on the cluster: 2 to 40 characters,
// a letter first, then letters, digits, '_' and '-'.
type SnapshotName string

// UPID is the cluster's name of one task.
type UPID string

// VMID is the number of a VM, 100 to 999999999.
type VMID int

// VMRef says where a VM is.
type VMRef struct {
	Node string `json:"node"`
	ID   VMID   `json:"vmid"`
}

func (r VMRef) String() string { return fmt.Sprintf("vm %d on %s", r.ID, r.Node) }
