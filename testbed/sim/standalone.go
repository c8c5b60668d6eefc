package sim

import (
	"context"
	"fmt"
	"net/netip"

	"savepoint/testbed/pve"
)

// Boot makes and starts a VM without an API server: a standard disk, a
// cloud-init drive that lets the key in as root, one card, a guest agent. The
// disk is at "/sim/VMID/disk". It returns how the VM was started, to stop and
// start it again; it does not wait for the guest.
func (b *Backend) Boot(ctx context.Context, vmid int, address netip.Prefix, rootKey string) (pve.Machine, error) {
	disk := pve.Disk{Slot: "scsi0", Path: fmt.Sprintf("/sim/%d/disk", vmid)}
	iso := pve.Disk{Slot: "ide2", Path: fmt.Sprintf("/sim/%d/cloudinit", vmid), CDROM: true}
	if err := b.Disks().Standard(ctx, disk.Path, 1<<30); err != nil {
		return pve.Machine{}, err
	}
	err := b.Disks().ISO(ctx, iso, "cidata", map[string][]byte{
		"meta-data": fmt.Appendf(nil, "instance-id: sim-%d\n", vmid),
		"user-data": fmt.Appendf(nil, "#cloud-config\nhostname: sim-%d\nuser: root\nssh_authorized_keys:\n  - %q\n", vmid, rootKey),
	})
	if err != nil {
		return pve.Machine{}, err
	}
	m := pve.Machine{VMID: vmid, Name: fmt.Sprintf("sim-%d", vmid), MemoryMiB: 512, Cores: 1, Disks: []pve.Disk{disk, iso}, BootSlot: "scsi0",
		NICs: []pve.NIC{{Slot: "net0", MAC: fmt.Sprintf("BC:24:11:00:%02X:%02X", vmid>>8&255, vmid&255), Bridge: "vmbr0"}}, Agent: true, Address: address}
	return m, b.Machines().Start(ctx, m)
}

// HostKey waits until the VM's guest has booted and returns the key its sshd
// shows, in authorized_keys form.
func (b *Backend) HostKey(ctx context.Context, vmid int) (string, error) {
	g, err := b.guest(vmid)
	if err != nil {
		return "", err
	}
	select {
	case <-g.booted:
	case <-ctx.Done():
		return "", fmt.Errorf("host key of vm %d: it has not booted: %w", vmid, ctx.Err())
	}
	return g.tree.read(rootUser, hostKeyFile+".pub")
}
