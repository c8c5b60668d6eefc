package lab

import (
	"errors"
	"net/netip"
	"reflect"
	"strings"
	"testing"

	"savepoint/testbed/fabric"
	"savepoint/testbed/jump"
	"savepoint/testbed/pve"
)

func sdn() pve.SDN {
	subnet := func(vnet, cidr, gateway string) pve.SDNSubnet {
		s := pve.SDNSubnet{VNet: vnet, CIDR: netip.MustParsePrefix(cidr)}
		if gateway != "" {
			s.Gateway = netip.MustParseAddr(gateway)
		}
		return s
	}
	return pve.SDN{
		Zones: []pve.SDNZone{
			{ID: "red", Type: "evpn", VRFVXLAN: 200, MTU: 1400, Controller: "bgp"},
			{ID: "flat", Type: "vxlan", Nodes: []string{"pve2"}},
			{ID: "own", Type: "simple", Nodes: []string{"pve1"}},
		},
		VNets: []pve.SDNVNet{
			{ID: "reda", Zone: "red", Tag: 100}, {ID: "redb", Zone: "red", Tag: 101},
			{ID: "flata", Zone: "flat", Tag: 102}, {ID: "owna", Zone: "own", Tag: 7},
		},
		Subnets: []pve.SDNSubnet{
			subnet("reda", "10.99.0.0/24", "10.99.0.1"), subnet("reda", "fd00::/64", "fd00::1"), subnet("redb", "10.99.1.0/24", ""),
			subnet("flata", "10.99.2.0/24", "10.99.2.1"), subnet("owna", "10.99.3.0/25", "10.99.3.1"),
		},
	}
}

func TestZonesOf(t *testing.T) {
	red := fabric.Zone{ID: "red", Kind: fabric.EVPN, VRF: 200, VNets: []fabric.VNet{
		{ID: "reda", VNI: 100, MTU: 1400, Gateways: []netip.Prefix{netip.MustParsePrefix("10.99.0.1/24"), netip.MustParsePrefix("fd00::1/64")}},
		{ID: "redb", VNI: 101, MTU: 1400},
	}}
	for node, want := range map[string][]fabric.Zone{
		"pve1": {red, {ID: "own", Kind: fabric.Simple, VNets: []fabric.VNet{{ID: "owna", Gateways: []netip.Prefix{netip.MustParsePrefix("10.99.3.1/25")}}}}},
		"pve2": {red, {ID: "flat", Kind: fabric.VXLAN, VNets: []fabric.VNet{{ID: "flata", VNI: 102}}}},
		"pve3": {red},
	} {
		if got, err := zonesOf(sdn(), node); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %+v, %v\nwant %+v", node, got, err, want)
		}
	}
}

// What would open a zone, or close it further, and is not built is no success: F101.
func TestZonesRefused(t *testing.T) {
	for want, change := range map[string]func(*pve.SDN){
		"imported route targets": func(s *pve.SDN) { s.Zones[0].RTImport = []string{"65000:1"} },
		"other than 4789":        func(s *pve.SDN) { s.Zones[0].VXLANPort = 4790 },
		"isolated ports":         func(s *pve.SDN) { s.VNets[0].IsolatePorts = true },
		"VLANs":                  func(s *pve.SDN) { s.VNets[0].VLANAware = true },
	} {
		s := sdn()
		change(&s)
		if _, err := zonesOf(s, "pve3"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v; want %q", err, want)
		}
	}
}

func TestPortOf(t *testing.T) {
	p, err := portOf(9001, pve.NIC{Slot: "net1", MAC: "BC:24:11:00:00:01", Addresses: []netip.Prefix{netip.MustParsePrefix("10.99.0.5/24"), netip.MustParsePrefix("fd00::5/64")}})
	if err != nil || p.Name != "tap9001i1" || p.MAC.String() != "bc:24:11:00:00:01" || !reflect.DeepEqual(p.Addresses, []netip.Addr{netip.MustParseAddr("10.99.0.5"), netip.MustParseAddr("fd00::5")}) {
		t.Errorf("%+v, %v", p, err)
	}
	if _, err := portOf(9001, pve.NIC{Slot: "net0", MAC: "none"}); err == nil {
		t.Error("a MAC address that is none was taken")
	}
}

// The bastion finds the running guest, on the node where it runs now.
func TestFind(t *testing.T) {
	running := map[string]bool{"pve1/1": true, "pve2/2": true, "pve2/3": true, "pve1/4": true}
	n := &network{
		runs:  func(node string, vmid int) bool { return running[node+"/"+string(rune('0'+vmid))] },
		zones: map[string][]fabric.Zone{"pve1": {{ID: "red", VNets: []fabric.VNet{{ID: "reda"}}}}, "pve2": {{ID: "red", VNets: []fabric.VNet{{ID: "reda"}}}, {ID: "blue", VNets: []fabric.VNet{{ID: "bluea"}}}}},
		ports: map[string][]guestPort{},
	}
	add := func(node string, vmid int, vnet string, address string) {
		n.note(node, guestPort{vmid, vnet, fabric.Port{Name: "tap" + string(rune('0'+vmid)) + "i0", Addresses: []netip.Addr{netip.MustParseAddr(address)}}})
	}
	add("pve1", 1, "reda", "10.99.0.11")
	add("pve1", 2, "reda", "10.99.0.12") // it was here, and is on the other node now
	add("pve2", 2, "reda", "10.99.0.12")
	add("pve2", 3, "bluea", "10.99.0.11") // the other tenant may have the same addresses
	add("pve1", 4, "gone", "10.99.0.14")  // its vnet is not there any more
	add("pve1", 5, "reda", "10.99.0.15")  // it does not run
	if node, zone, err := n.find(netip.MustParseAddr("10.99.0.12")); node != "pve2" || zone != "red" || err != nil {
		t.Errorf("got %s, %s, %v", node, zone, err)
	}
	if _, _, err := n.find(netip.MustParseAddr("10.99.0.11")); !errors.Is(err, errTwoGuests) {
		t.Errorf("an address of two guests: %v", err)
	}
	for _, address := range []string{"10.99.0.14", "10.99.0.15", "10.99.0.16"} {
		if node, zone, err := n.find(netip.MustParseAddr(address)); !errors.Is(err, jump.ErrNoGuest) {
			t.Errorf("%s: %s, %s, %v", address, node, zone, err)
		}
	}
	if _, err := n.dial(t.Context(), netip.MustParseAddr("10.99.0.12"), 80); !errors.Is(err, jump.ErrNoGuest) {
		t.Errorf("another port: %v", err)
	}
	running["pve2/3"] = false
	if node, zone, err := n.find(netip.MustParseAddr("10.99.0.11")); node != "pve1" || zone != "red" || err != nil {
		t.Errorf("got %s, %s, %v", node, zone, err)
	}
}
