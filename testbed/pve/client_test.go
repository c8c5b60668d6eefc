package pve_test

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	proxmox "github.com/luthermonson/go-proxmox"
)

// The whole life of a sandbox, as the product's client makes it.
func TestGoProxmoxLife(t *testing.T) {
	n := newNode(t, nil)
	ctx := t.Context()
	v, err := n.client.Version(ctx)
	n.must(err)
	if v.Version != "9.2.11" {
		t.Errorf("version %q", v.Version)
	}
	n.must(n.post("/nodes/pve1/qemu", map[string]any{
		"vmid": 100, "name": "tpl", "memory": 512, "scsi0": "local:1", "ide2": "local:cloudinit", "net0": "virtio,bridge=vmbr0",
		"agent": 1, "ipconfig0": "ip=10.1.0.5/24,gw=10.1.0.1", "ciuser": "root", "sshkeys": "ssh-ed25519%20AAAA%20me",
	}))
	n.must(n.post("/nodes/pve1/qemu/100/template", nil))
	n.must(n.post("/nodes/pve1/qemu/100/clone", map[string]any{"newid": 120, "name": "box", "full": 0}))

	vm := n.client.NodeRef("pve1").VirtualMachineRef(120)
	task, err := vm.Start(ctx)
	n.must(err)
	n.must(task.Wait(ctx, 5*time.Millisecond, 10*time.Second))
	m, ok := n.mem.Machine(120)
	if !ok || m.BootSlot != "scsi0" || m.Address != netip.MustParsePrefix("10.1.0.5/24") || !m.Agent || len(m.Disks) != 2 {
		t.Fatalf("machine %+v", m)
	}
	var iso, disk string
	for _, d := range m.Disks {
		if d.CDROM {
			iso = d.Path
		} else {
			disk = d.Path
		}
	}
	files := n.mem.Files(iso)
	if !strings.Contains(string(files["user-data"]), "'ssh-ed25519 AAAA me'") || !strings.Contains(string(files["user-data"]), "hostname: box") {
		t.Errorf("user-data:\n%s", files["user-data"])
	}
	if !strings.Contains(string(files["network-config"]), "netmask: '255.255.255.0'") {
		t.Errorf("network-config:\n%s", files["network-config"])
	}

	n.must(n.mem.Write(disk, "before"))
	n.mem.SetMemory(120, "mem before")
	n.must(n.post("/nodes/pve1/qemu/120/snapshot", map[string]any{"snapname": "sp-1", "vmstate": 1, "description": "mine"}))
	n.must(n.mem.Write(disk, "after"))
	n.mem.SetMemory(120, "mem after")
	n.must(n.post("/nodes/pve1/qemu/120/snapshot/sp-1/rollback", nil))
	if got, _ := n.mem.Read(disk); got != "before" {
		t.Errorf("disk after rollback %q", got)
	}
	if got := n.mem.Memory(120); got != "mem before" {
		t.Errorf("memory after rollback %q", got)
	}
	snaps, err := vm.Snapshots(ctx)
	n.must(err)
	if len(snaps) != 2 {
		t.Errorf("snapshots %v", snaps)
	}
	at := netip.MustParseAddrPort("127.0.0.1:2222")
	n.mem.SetSSH(120, at)
	if got, ok := n.srv.SSHEndpoint(netip.MustParseAddr("10.1.0.5")); !ok || got != at {
		t.Errorf("ssh endpoint %v %v", got, ok)
	}

	task, err = vm.Stop(ctx)
	n.must(err)
	n.must(task.Wait(ctx, 5*time.Millisecond, 10*time.Second))
	task, err = vm.Delete(ctx, &proxmox.VirtualMachineDeleteOptions{})
	n.must(err)
	n.must(task.Wait(ctx, 5*time.Millisecond, 10*time.Second))
	if p := n.mem.Paths(); len(p) != 1 {
		t.Errorf("disks left: %v", p)
	}
}
