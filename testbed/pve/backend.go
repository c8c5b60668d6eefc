package pve

import (
	"context"
	"encoding/json"
	"net/netip"
)

// Disk is one image file of the node.
type Disk struct {
	Slot   string // "scsi0", "ide2"; how the VM's configuration calls it
	Path   string // absolute
	Format string // "qcow2" or "raw"
	CDROM  bool   // read-only medium, never snapshotted
}

// NIC is one network card.
type NIC struct {
	Slot   string // "net0"
	MAC    string
	Bridge string
	// Addresses are the guest's static ones on it, from ipconfigN.
	Addresses []netip.Prefix
}

// Machine is what a backend needs to start one VM.
type Machine struct {
	VMID      int
	Name      string
	MemoryMiB int
	Cores     int
	Disks     []Disk
	BootSlot  string // slot of the disk to boot from
	NICs      []NIC
	Agent     bool // give it a guest-agent channel
	// Address is the guest's static address from ipconfig0, which a user-mode
	// network needs to know; the zero value when there is none.
	Address netip.Prefix
	// Resume names the saved state to continue from instead of booting; the
	// disks have been reverted to ResumeTag already.
	Resume    string
	ResumeTag string
}

// MachineStatus is what a backend knows of one VM.
type MachineStatus struct {
	Running bool
	PID     int
	Paused  bool
	// SSH is where the guest's port 22 is reachable from the node, on
	// loopback; the zero value when the VM has no address or does not run.
	SSH netip.AddrPort
}

// Machines runs the VMs of one node. Implementations: testbed/qemu (real
// guests), testbed/sim (simulated ones). All calls are safe for concurrent
// use for different VMs; the server never makes two at once for one VM except
// Status and Agent.
type Machines interface {
	// Start returns once the VM runs (not: once the guest has booted).
	Start(ctx context.Context, m Machine) error
	// Stop ends the VM and returns once it is gone. With graceful it asks the
	// guest to power down and waits until ctx ends; it does not kill then.
	Stop(ctx context.Context, vmid int, graceful bool) error
	Status(vmid int) MachineStatus
	// Snapshot snapshots all disks of a running VM at one instant under tag;
	// with stateFile it saves the memory there first. The VM runs on.
	Snapshot(ctx context.Context, vmid int, tag, stateFile string) error
	// DeleteSnapshot removes tag from one disk of a running VM.
	DeleteSnapshot(ctx context.Context, vmid int, slot, tag string) error
	// Agent sends one command to the guest agent and returns its "return"
	// value. *AgentError is the agent's own refusal; any other error means
	// that the agent did not answer in time.
	Agent(ctx context.Context, vmid int, command string, args any) (json.RawMessage, error)
	// Close ends every VM the backend started.
	Close() error
}

// AgentError is an error answer of the guest agent.
type AgentError struct {
	Class string
	Desc  string
}

func (e *AgentError) Error() string { return e.Desc }

// Disks makes and changes image files of VMs that do not run.
type Disks interface {
	Create(ctx context.Context, d Disk, size int64) error
	// Link makes d a copy-on-write child of base.
	Link(ctx context.Context, base, d Disk) error
	// Copy copies src, or its internal snapshot tag when not "", to d. It may
	// run while the VM of src runs only when tag is not "".
	Copy(ctx context.Context, src Disk, tag string, d Disk) error
	Snapshot(ctx context.Context, d Disk, tag string) error
	Revert(ctx context.Context, d Disk, tag string) error
	DeleteSnapshot(ctx context.Context, d Disk, tag string) error
	Resize(ctx context.Context, d Disk, size int64) error
	Size(ctx context.Context, d Disk) (virtual, used int64, err error)
	// ISO writes an ISO 9660 image with the label and files: the cloud-init drive.
	ISO(ctx context.Context, d Disk, label string, files map[string][]byte) error
	Remove(ctx context.Context, d Disk) error
}

// PoolDisks are Disks that know pools, where each volume is a file in a place of
// its own (Storage.Pool) and takes its snapshots itself.
type PoolDisks interface {
	Disks
	// Base makes a volume one that others can be linked to, and from then on it
	// has the other path.
	Base(ctx context.Context, d Disk, path string) error
	// Snapshots lists a volume's, oldest first, whoever took them.
	Snapshots(ctx context.Context, d Disk) ([]string, error)
	// Usage is how many bytes a storage's directory holds and has left.
	Usage(ctx context.Context, dir string) (used, free int64, err error)
}

// Pauser is implemented by Machines that can also halt and reset a VM's CPUs.
// Where it is missing the suspend, resume and reset calls fail in their task.
type Pauser interface {
	// Pause halts the CPUs of a running VM; no error when they are halted.
	Pause(ctx context.Context, vmid int) error
	// Resume lets halted CPUs go on; no error when they run.
	Resume(ctx context.Context, vmid int) error
	// Reset restarts the guest like a reset button.
	Reset(ctx context.Context, vmid int) error
}
