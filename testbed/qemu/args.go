package qemu

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"savepoint/testbed/pve"
)

// File descriptors that a new QEMU process inherits: listening sockets, made
// before it, so that the other end never has to wait for a path to appear.
const (
	fdQMP    = 3
	fdSerial = 4
	fdAgent  = 5
	fdTaps   = 6 // the first tap; one more for each network card on a tap
)

// launch is everything that decides a QEMU command line.
type launch struct {
	Machine pve.Machine
	Accel   Accelerator
	Token   string // proves that a process is ours
	// Taps are the network cards that are on an inherited tap instead of a
	// user-mode network, by slot, in the order of the taps.
	Taps []string
	// Direct says which disks are used past the host's cache; nil: none.
	Direct func(pve.Disk) bool
}

// processName is the -name argument, which the kernel shows in cmdline.
func processName(vmid int, token string) string {
	return "savepoint-" + strconv.Itoa(vmid) + "-" + token
}

// nodeName is how QEMU calls the disk of a slot.
func nodeName(slot string) string { return "disk-" + slot }

// arguments builds the command line. Everything with a path in it is JSON, so
// no character of a path has a meaning to QEMU.
func arguments(l launch) ([]string, error) {
	m := l.Machine
	if m.MemoryMiB < 16 {
		return nil, fmt.Errorf("memory of %d MiB is too small", m.MemoryMiB)
	}
	if m.Cores < 1 {
		return nil, fmt.Errorf("%d cores", m.Cores)
	}
	a := []string{
		"-name", processName(m.VMID, l.Token),
		"-nodefaults", "-no-user-config", "-display", "none", "-S",
		"-machine", "pc", "-rtc", "base=utc",
		"-m", strconv.Itoa(m.MemoryMiB), "-smp", strconv.Itoa(m.Cores),
	}
	a = append(a, l.Accel.args()...)
	a = append(a,
		"-chardev", "socket,id=qmp,fd="+strconv.Itoa(fdQMP)+",server=on,wait=off", "-mon", "chardev=qmp,mode=control",
		"-chardev", "socket,id=serial,fd="+strconv.Itoa(fdSerial)+",server=on,wait=off", "-serial", "chardev:serial",
		"-object", "rng-random,id=rng0,filename=/dev/urandom", "-device", "virtio-rng-pci,rng=rng0",
		"-device", "virtio-scsi-pci,id=scsihw0")
	if m.Agent {
		a = append(a, "-device", "virtio-serial-pci,id=serial0",
			"-chardev", "socket,id=agent,fd="+strconv.Itoa(fdAgent)+",server=on,wait=off",
			"-device", "virtserialport,bus=serial0.0,chardev=agent,name=org.qemu.guest_agent.0")
	}
	ahci := false
	for _, d := range m.Disks {
		if strings.HasPrefix(d.Slot, "sata") && !ahci {
			ahci = true
			a = append(a, "-device", "ahci,id=ahci0")
		}
		dev, err := diskDevice(d, d.Slot == m.BootSlot)
		if err != nil {
			return nil, err
		}
		if d.Path != "" {
			node, err := blockNode(d, l.Direct != nil && l.Direct(d))
			if err != nil {
				return nil, err
			}
			a = append(a, "-blockdev", node)
		}
		a = append(a, "-device", dev)
	}
	for i, n := range m.NICs {
		net, err := netdev(m, n, i, slices.Index(l.Taps, n.Slot))
		if err != nil {
			return nil, err
		}
		dev, err := encode(map[string]any{"driver": "virtio-net-pci", "id": n.Slot, "netdev": "net-" + n.Slot, "mac": n.MAC})
		if err != nil {
			return nil, err
		}
		a = append(a, "-netdev", net, "-device", dev)
	}
	// Memory that the guest frees is given back, as on Proxmox VE: a snapshot with
	// memory is as large as what is in use. Last, so that the others keep the slots
	// that older states were saved with; QEMU makes what is not JSON before what is.
	dev, err := encode(map[string]any{"driver": "virtio-balloon-pci", "id": "balloon0", "free-page-reporting": true})
	if err != nil {
		return nil, err
	}
	return append(a, "-device", dev), nil
}

func encode(v any) (string, error) {
	b, err := json.Marshal(v)
	return string(b), err
}

// blockNode is the -blockdev of one disk. Under a direct one the file may change
// while QEMU has it open: nothing of it is kept in a cache of the host.
func blockNode(d pve.Disk, direct bool) (string, error) {
	file := map[string]any{"driver": "file", "filename": d.Path}
	if direct {
		file["cache"] = map[string]bool{"direct": true}
	}
	node := map[string]any{"driver": d.Format, "node-name": nodeName(d.Slot), "file": file}
	switch {
	case d.Format != "qcow2" && d.Format != "raw":
		return "", fmt.Errorf("disk %s: format %q is neither qcow2 nor raw", d.Slot, d.Format)
	case d.CDROM:
		node["read-only"] = true
	default:
		node["discard"] = "unmap"
		file["discard"] = "unmap"
	}
	return encode(node)
}

// slotNumber splits "scsi12" into "scsi" and 12.
func slotNumber(slot string) (string, int, error) {
	bus := strings.TrimRight(slot, "0123456789")
	n, err := strconv.Atoi(slot[len(bus):])
	if err != nil || bus == "" || strconv.Itoa(n) != slot[len(bus):] {
		return "", 0, fmt.Errorf("disk slot %q is not understood", slot)
	}
	return bus, n, nil
}

// diskDevice is the -device of one disk. The guest sees slots as PVE's guests
// do: the number is the target.
func diskDevice(d pve.Disk, boot bool) (string, error) {
	bus, n, err := slotNumber(d.Slot)
	if err != nil {
		return "", err
	}
	dev := map[string]any{"id": d.Slot}
	kind := "hd"
	if d.CDROM {
		kind = "cd"
	}
	switch {
	case bus == "scsi" && n <= 30:
		dev["driver"], dev["bus"], dev["channel"], dev["scsi-id"], dev["lun"] = "scsi-"+kind, "scsihw0.0", 0, n, 0
	case bus == "virtio" && n <= 15 && !d.CDROM:
		dev["driver"] = "virtio-blk-pci"
	case bus == "ide" && n <= 3:
		dev["driver"], dev["bus"], dev["unit"] = "ide-"+kind, "ide."+strconv.Itoa(n/2), n%2
	case bus == "sata" && n <= 5:
		dev["driver"], dev["bus"] = "ide-"+kind, "ahci0."+strconv.Itoa(n)
	default:
		return "", fmt.Errorf("disk slot %q does not exist", d.Slot)
	}
	if d.Path != "" {
		dev["drive"] = nodeName(d.Slot)
	} else if !d.CDROM {
		return "", fmt.Errorf("disk %s has no file", d.Slot)
	}
	if boot {
		dev["bootindex"] = 1
	}
	return encode(dev)
}

// netdev is the -netdev of one card: the first one carries the forward. tap is
// the number of its tap, -1 when it has none.
func netdev(m pve.Machine, n pve.NIC, i, tap int) (string, error) {
	if _, _, err := slotNumber(n.Slot); err != nil {
		return "", err
	}
	id := "net-" + n.Slot
	if tap >= 0 {
		return fmt.Sprintf("tap,id=%s,fd=%d", id, fdTaps+tap), nil
	}
	s := "user,id=" + id + ",restrict=on,ipv6=off"
	if !m.Address.IsValid() || i != 0 {
		return s, nil
	}
	host, dns, err := hostAddresses(m.Address)
	if err != nil {
		return "", err
	}
	guest := m.Address.Addr()
	return fmt.Sprintf("%s,net=%s,host=%s,dns=%s,dhcpstart=%s,hostfwd=tcp:127.0.0.1:0-%s:22",
		s, m.Address.Masked(), host, dns, guest, guest), nil
}

// hostAddresses picks two addresses of the guest's network for QEMU's side.
// Left alone QEMU takes the second and third, and a guest that has one of them
// is never reached.
func hostAddresses(p netip.Prefix) (host, dns netip.Addr, err error) {
	if !p.Addr().Is4() || p.Bits() < 8 || p.Bits() > 29 {
		return host, dns, fmt.Errorf("address %s: a user-mode network needs IPv4 with a prefix of 8 to 29 bits", p)
	}
	first := p.Masked().Addr()
	var free []netip.Addr
	for a := first.Next(); len(free) < 2; a = a.Next() {
		if a != p.Addr() {
			free = append(free, a)
		}
	}
	return free[0], free[1], nil
}

// forwardedPort reads the answer of "info usernet":
//
//	Hub -1 (net-net0):
//	  Protocol[State]    FD  Source Address  Port   Dest. Address  Port RecvQ SendQ
//	  TCP[HOST_FORWARD]  15       127.0.0.1 39871        10.9.0.2    22     0     0
func forwardedPort(text string) (netip.AddrPort, bool) {
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) < 6 || f[0] != "TCP[HOST_FORWARD]" || f[5] != "22" {
			continue
		}
		if ap, err := netip.ParseAddrPort(f[2] + ":" + f[3]); err == nil && ap.Port() != 0 {
			return ap, true
		}
	}
	return netip.AddrPort{}, false
}
