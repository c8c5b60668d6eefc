package qemu

import (
	"encoding/json"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"savepoint/testbed/pve"
)

func testMachine() pve.Machine {
	return pve.Machine{
		VMID: 104, Name: "sb", MemoryMiB: 512, Cores: 2, BootSlot: "scsi0", Agent: true,
		Address: netip.MustParsePrefix("10.9.0.2/24"),
		NICs:    []pve.NIC{{Slot: "net0", MAC: "bc:24:11:00:00:01"}, {Slot: "net1", MAC: "bc:24:11:00:00:02"}},
		Disks: []pve.Disk{
			{Slot: "scsi0", Path: `/srv/a,b="c"/disk.qcow2`, Format: "qcow2"},
			{Slot: "scsi1", Path: "/srv/seed.iso", Format: "raw", CDROM: true},
			{Slot: "ide2", CDROM: true, Format: "raw"},
		},
	}
}

// after returns the values that follow an option.
func after(args []string, option string) []string {
	var out []string
	for i, a := range args[:len(args)-1] {
		if a == option {
			out = append(out, args[i+1])
		}
	}
	return out
}

func TestArguments(t *testing.T) {
	args, err := arguments(launch{Machine: testMachine(), Token: "tok"})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"-S", "-nodefaults", "savepoint-104-tok", "tcg,thread=multi"} {
		if !slices.Contains(args, want) {
			t.Errorf("no %s in %q", want, args)
		}
	}
	var node struct {
		Driver string
		Node   string `json:"node-name"`
		File   struct{ Filename string }
	}
	blocks := after(args, "-blockdev")
	if len(blocks) != 2 {
		t.Fatalf("block devices: %q", blocks)
	}
	if err := json.Unmarshal([]byte(blocks[0]), &node); err != nil || node.File.Filename != `/srv/a,b="c"/disk.qcow2` || node.Node != "disk-scsi0" || node.Driver != "qcow2" {
		t.Errorf("first disk: %+v, %v", node, err)
	}
	if !strings.Contains(blocks[1], `"read-only":true`) {
		t.Errorf("the cloud-init drive can be written: %s", blocks[1])
	}
	devices := strings.Join(after(args, "-device"), "\n")
	for _, want := range []string{`"bootindex":1`, `"driver":"scsi-hd"`, `"driver":"scsi-cd"`, `"driver":"ide-cd"`, `"scsi-id":1`, `"bus":"ide.1"`, "name=org.qemu.guest_agent.0", "virtio-rng-pci"} {
		if !strings.Contains(devices, want) {
			t.Errorf("no %s in\n%s", want, devices)
		}
	}
	// Last and JSON: what precedes it keeps the slots that saved memory was written with.
	if d := after(args, "-device"); d[len(d)-1] != `{"driver":"virtio-balloon-pci","free-page-reporting":true,"id":"balloon0"}` {
		t.Errorf("the last device is %s", d[len(d)-1])
	}
	if strings.Count(devices, "bootindex") != 1 {
		t.Error("more than one disk to boot from")
	}
}

// F108: a guest on a user-mode network reaches nothing, and nothing but one
// loopback port leads to it.
func TestNetworkIsSealed(t *testing.T) {
	args, err := arguments(launch{Machine: testMachine(), Token: "tok"})
	if err != nil {
		t.Fatal(err)
	}
	nets := after(args, "-netdev")
	if len(nets) != 2 {
		t.Fatalf("networks: %q", nets)
	}
	for _, n := range nets {
		if !strings.Contains(n, "restrict=on") || !strings.Contains(n, "ipv6=off") {
			t.Errorf("network is open: %s", n)
		}
	}
	if want := "hostfwd=tcp:127.0.0.1:0-10.9.0.2:22"; !strings.Contains(nets[0], want) || strings.Contains(nets[1], "hostfwd") {
		t.Errorf("forward: %q", nets)
	}
	// QEMU's own addresses must not be the guest's.
	if strings.Contains(nets[0], "host=10.9.0.2,") || strings.Contains(nets[0], "dns=10.9.0.2,") {
		t.Errorf("address clash: %s", nets[0])
	}
	m := testMachine()
	m.Address = netip.Prefix{}
	if args, err = arguments(launch{Machine: m, Token: "tok"}); err != nil || strings.Contains(strings.Join(args, " "), "hostfwd") {
		t.Errorf("a VM without address has a forward: %v, %q", err, args)
	}
	if args, err = arguments(launch{Machine: m, Token: "tok", Taps: []string{"net0", "net1"}}); err != nil || !slices.Contains(args, "tap,id=net-net1,fd=7") {
		t.Errorf("taps: %v, %q", err, args)
	}
	args, err = arguments(launch{Machine: testMachine(), Token: "tok", Taps: []string{"net1"}})
	if err != nil || !slices.Contains(args, "tap,id=net-net1,fd=6") || !strings.Contains(strings.Join(args, " "), "user,id=net-net0,restrict=on") {
		t.Errorf("one tap, one user-mode network: %v, %q", err, args)
	}
}

func TestHostAddresses(t *testing.T) {
	for in, want := range map[string]string{"10.0.0.1/24": "10.0.0.2 10.0.0.3", "10.0.0.2/29": "10.0.0.1 10.0.0.3", "10.0.0.200/24": "10.0.0.1 10.0.0.2"} {
		host, dns, err := hostAddresses(netip.MustParsePrefix(in))
		if got := host.String() + " " + dns.String(); err != nil || got != want {
			t.Errorf("%s: got %s, %v; want %s", in, got, err, want)
		}
	}
	for _, in := range []string{"10.0.0.1/31", "fd00::1/64"} {
		if _, _, err := hostAddresses(netip.MustParsePrefix(in)); err == nil {
			t.Errorf("%s: no error", in)
		}
	}
}

func TestArgumentsRefuse(t *testing.T) {
	for name, change := range map[string]func(*pve.Machine){
		"no memory":    func(m *pve.Machine) { m.MemoryMiB = 0 },
		"no cores":     func(m *pve.Machine) { m.Cores = 0 },
		"format":       func(m *pve.Machine) { m.Disks[0].Format = "vmdk" },
		"slot":         func(m *pve.Machine) { m.Disks[0].Slot = "scsi0,x=y" },
		"no such slot": func(m *pve.Machine) { m.Disks[0].Slot = "scsi31" },
		"no file":      func(m *pve.Machine) { m.Disks[0].Path = "" },
		"card slot":    func(m *pve.Machine) { m.NICs[0].Slot = "net0,script=x" },
	} {
		m := testMachine()
		change(&m)
		if _, err := arguments(launch{Machine: m, Token: "tok"}); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
