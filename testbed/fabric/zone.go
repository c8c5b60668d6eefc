package fabric

import (
	"crypto/sha256"
	"fmt"
	"net"
	"net/netip"
	"regexp"
	"slices"
)

// Kind is what sort of zone it is, as PVE calls them.
type Kind string

// The kinds of zones.
const (
	// EVPN zones learn from BGP and route between their vnets on every node.
	EVPN Kind = "evpn"
	// VXLAN zones flood to every other node and do not route: PVE gives no
	// address to their bridges.
	VXLAN Kind = "vxlan"
	// Simple zones are bridges of one node; the node routes between them.
	Simple Kind = "simple"
)

// Zone is the wanted state of one zone.
type Zone struct {
	ID    string
	Kind  Kind
	VRF   uint32 // VNI of the zone's routing instance; EVPN only
	VNets []VNet
}

// VNet is the wanted state of one vnet.
type VNet struct {
	ID       string
	VNI      uint32         // none in a Simple zone
	Gateways []netip.Prefix // the gateway's address in each subnet, with the subnet's bits
	MTU      int            // 0 means what fits into the underlay
}

// tunnelBytes is what VXLAN adds to a frame.
const tunnelBytes = 50

const maxVNI = 1<<24 - 1

// An SDN id, as PVE checks it: interface names are made of it.
var sdnID = regexp.MustCompile(`^[a-zA-Z][a-zA-Z0-9]{0,6}[a-zA-Z0-9]$`)

// checkZones refuses what PVE refuses, and what could not be kept apart here.
func checkZones(zones []Zone, underlay netip.Prefix, mtu int) error {
	vnis := map[uint32]string{}
	claim := func(vni uint32, who string) error {
		if vni < 1 || vni > maxVNI {
			return fmt.Errorf("%s: VNI %d: want 1 to %d", who, vni, maxVNI)
		}
		if other := vnis[vni]; other != "" {
			return fmt.Errorf("%s: VNI %d is the one of %s already", who, vni, other)
		}
		vnis[vni] = who
		return nil
	}
	ids, vnets := map[string]bool{}, map[string]bool{}
	for _, z := range zones {
		if !sdnID.MatchString(z.ID) || ids[z.ID] {
			return fmt.Errorf("zone id %q: want 2 to 8 letters and digits, a letter first, each once", z.ID)
		}
		ids[z.ID] = true
		switch {
		case !slices.Contains([]Kind{EVPN, VXLAN, Simple}, z.Kind):
			return fmt.Errorf("zone %s: unknown kind %q", z.ID, z.Kind)
		case z.Kind == EVPN:
			if err := claim(z.VRF, "zone "+z.ID); err != nil {
				return err
			}
		case z.VRF != 0:
			return fmt.Errorf("zone %s: only an evpn zone has a VRF VNI", z.ID)
		}
		for _, v := range z.VNets {
			who := "vnet " + v.ID
			if !sdnID.MatchString(v.ID) || vnets[v.ID] {
				return fmt.Errorf("vnet id %q: want 2 to 8 letters and digits, a letter first, each once", v.ID)
			}
			vnets[v.ID] = true
			if z.Kind != Simple {
				if err := claim(v.VNI, who); err != nil {
					return err
				}
			} else if v.VNI != 0 {
				return fmt.Errorf("%s: a simple zone's vnet has no VNI", who)
			}
			if most := z.mostMTU(mtu); v.MTU != 0 && (v.MTU < 1280 || v.MTU > most) {
				return fmt.Errorf("%s: MTU %d: want 1280 to %d", who, v.MTU, most)
			}
			if err := v.checkGateways(z.Kind, underlay); err != nil {
				return fmt.Errorf("%s: %w", who, err)
			}
		}
	}
	return nil
}

func (v VNet) checkGateways(kind Kind, underlay netip.Prefix) error {
	for _, g := range v.Gateways {
		if kind == VXLAN {
			return fmt.Errorf("gateway %s: a vxlan zone has no router; leave it out", g)
		}
		if !g.IsValid() || g.Addr() == g.Masked().Addr() || g.Addr().IsLinkLocalUnicast() || g.Addr().IsMulticast() || g.Addr().IsLoopback() {
			return fmt.Errorf("gateway %s: want a host's address with the bits of its subnet", g)
		}
		for _, other := range append(outsideNetworks(), underlay) {
			if g.Masked().Overlaps(other) {
				return fmt.Errorf("gateway %s: its subnet overlaps %s, which is the fabric's own", g, other)
			}
		}
	}
	return nil
}

// mostMTU is the largest MTU of the zone's vnets.
func (z Zone) mostMTU(underlay int) int {
	if z.Kind == Simple {
		return underlay
	}
	return underlay - tunnelBytes
}

func (z Zone) mtu(v VNet, underlay int) int {
	if v.MTU != 0 {
		return v.MTU
	}
	return z.mostMTU(underlay)
}

// hardware makes a stable MAC address: PVE's prefix for the gateway that is the
// same on every node, a locally administered one for what is a node's own.
func hardware(first []byte, of ...string) net.HardwareAddr {
	h := sha256.New()
	for _, s := range of {
		fmt.Fprintf(h, "%d:%s", len(s), s)
	}
	return append(slices.Clone(first), h.Sum(nil)[:6-len(first)]...)
}

// GatewayMAC is the address of a zone's gateways, on every node.
func GatewayMAC(zone string) net.HardwareAddr {
	return hardware([]byte{0xbc, 0x24, 0x11}, "gateway", zone)
}

// routerMAC is a node's own address in a zone; the other nodes send to it what
// they route.
func routerMAC(instance, node, zone string) net.HardwareAddr {
	return hardware([]byte{0x02}, "router", instance, node, zone)
}

// wantedLinks are the bridges and tunnels of a zone on a node, by name.
func (f *Fabric) wantedLinks(n *node, z Zone) map[string]link {
	out := map[string]link{}
	tunnel := func(bridge, name string, vni uint32, mtu int) {
		out[name] = link{Name: name, Kind: "vxlan", Master: bridge, VNI: vni, MTU: mtu}
	}
	for _, v := range z.VNets {
		mtu := z.mtu(v, f.cfg.MTU)
		b := link{Name: v.ID, Kind: "bridge", MAC: GatewayMAC(z.ID).String(), MTU: mtu, Addresses: v.Gateways}
		if z.Kind == VXLAN {
			b.MAC = routerMAC(f.instance, n.name, v.ID).String()
		}
		out[v.ID] = b
		if z.Kind != Simple {
			tunnel(v.ID, "vxlan_"+v.ID, v.VNI, mtu)
		}
	}
	if z.Kind == EVPN {
		mtu := z.mostMTU(f.cfg.MTU)
		b := link{Name: "vrfbr_" + z.ID, Kind: "bridge", MAC: routerMAC(f.instance, n.name, z.ID).String(), MTU: mtu}
		out[b.Name] = b
		tunnel(b.Name, "vrfvx_"+z.ID, z.VRF, mtu)
	}
	return out
}
