package orchestrator

// Boundary is what the snapshot of a transaction covers.
type Boundary string

// The boundaries, from the cheapest. Auto is a request only: the engine
// replaces it by the cheapest boundary that covers what the command may do.
const (
	BoundaryAuto      Boundary = "auto"
	BoundaryNone      Boundary = "none"      // nothing; for commands proved read-only
	BoundaryWorkspace Boundary = "workspace" // the agent's volume
	BoundaryDisk      Boundary = "disk"      // all disks of the VM, no memory
	BoundaryMachine   Boundary = "machine"   // disks and memory
)
