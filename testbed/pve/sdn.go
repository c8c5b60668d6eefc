package pve

import (
	"context"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"savepoint/orchestrator"
	"savepoint/testbed/pve/schema"
)

// Fabric builds the network that SDN describes. Implementations: the lab's
// bridges and tunnels; nil in Config where VMs need no real network.
type Fabric interface {
	// Apply makes one node's network what the snapshot says and returns once
	// VMs can use it: what is new is made, what is gone is removed, what did not
	// change is left alone. It must be safe to repeat, also after a call that
	// failed or was cut short. The server makes one call at a time per node,
	// and calls for different nodes may overlap.
	Apply(ctx context.Context, node string, sdn SDN) error
}

// RouteTables is what a Fabric may offer besides: what the routing daemons of
// its nodes know. Without it the node's views show what the configuration says.
type RouteTables interface {
	// ZoneRoutes is the routing table of an EVPN zone on a node, without routes
	// to the node's own guests.
	ZoneRoutes(ctx context.Context, node, zone string) ([]orchestrator.ZoneRoute, error)
	// VNetMACs are the guests of an EVPN vnet that a node knows: IP address, MAC
	// address, and the address of their node.
	VNetMACs(ctx context.Context, node, vnet string) ([][3]string, error)
}

// SDN is a snapshot of the running network configuration: what the last apply
// committed. Every list is sorted by id.
type SDN struct {
	// Version counts the applies; 0 is before the first.
	Version     int
	Controllers []SDNController
	Zones       []SDNZone
	VNets       []SDNVNet
	Subnets     []SDNSubnet
}

// SDNController is the routing daemon that evpn zones use.
type SDNController struct {
	ID    string
	Type  string // "evpn"
	ASN   int64
	Peers []netip.Addr // the nodes' addresses
}

// SDNZone is one zone. Fields that its type does not have are zero.
type SDNZone struct {
	ID   string
	Type string // "simple", "vxlan" or "evpn"
	// Nodes limits the zone to these; empty is every node.
	Nodes []string
	MTU   int // 0 = the type's usual one

	Peers     []netip.Addr // vxlan: the tunnels' ends
	VXLANPort int          // vxlan and evpn; 0 = 4789

	// What follows is for evpn alone.
	Controller              string
	VRFVXLAN                int    // the VNI of the zone's routing table
	MAC                     string // of the gateway, the same on every node
	ExitNodes               []string
	ExitNodesPrimary        string
	ExitNodesLocalRouting   bool
	AdvertiseSubnets        bool
	DisableARPNDSuppression bool
	RTImport                []string // "ASN:NN"
}

// On reports whether the zone is on a node.
func (z SDNZone) On(node string) bool { return len(z.Nodes) == 0 || slices.Contains(z.Nodes, node) }

// SDNVNet is one virtual network; its id is the name of its bridge.
type SDNVNet struct {
	ID, Zone, Alias string
	Tag             int // the VNI in vxlan and evpn zones
	VLANAware       bool
	IsolatePorts    bool // guests on one node cannot reach each other
}

// SDNSubnet is an address range of a vnet.
type SDNSubnet struct {
	ID, VNet string
	CIDR     netip.Prefix // as written: bits of the host may be set
	Gateway  netip.Addr   // the zero value when there is none
	SNAT     bool
	// DHCPRanges are the first and last address of each range.
	DHCPRanges [][2]netip.Addr
}

// RunningSDN is what the last apply committed, for whoever builds it anew
// after a restart.
func (s *Server) RunningSDN() SDN {
	s.sdn.mu.Lock()
	defer s.sdn.mu.Unlock()
	return s.sdn.kept.snapshot()
}

// snapshot gives the running configuration its types. What was written passed
// the checks, so a value that does not parse is an empty one.
func (k sdnKept) snapshot() SDN {
	run := k.Running
	out := SDN{Version: k.Version}
	for _, id := range run.ids(sdnControllers) {
		o := run[sdnControllers][id]
		out.Controllers = append(out.Controllers, SDNController{ID: id, Type: o["type"], ASN: int64(o.number("asn")), Peers: addrs(o["peers"])})
	}
	for _, id := range run.ids(sdnZones) {
		o := run[sdnZones][id]
		out.Zones = append(out.Zones, SDNZone{
			ID: id, Type: o["type"], Nodes: schema.SplitList(o["nodes"]), MTU: o.number("mtu"),
			Peers: addrs(o["peers"]), VXLANPort: o.number("vxlan-port"),
			Controller: o["controller"], VRFVXLAN: o.number("vrf-vxlan"), MAC: o["mac"],
			ExitNodes: schema.SplitList(o["exitnodes"]), ExitNodesPrimary: o["exitnodes-primary"],
			ExitNodesLocalRouting: o["exitnodes-local-routing"] == "1", AdvertiseSubnets: o["advertise-subnets"] == "1",
			DisableARPNDSuppression: o["disable-arp-nd-suppression"] == "1", RTImport: schema.SplitList(o["rt-import"]),
		})
	}
	for _, id := range run.ids(sdnVNets) {
		o := run[sdnVNets][id]
		out.VNets = append(out.VNets, SDNVNet{
			ID: id, Zone: o["zone"], Alias: o["alias"], Tag: o.number("tag"),
			VLANAware: o["vlanaware"] == "1", IsolatePorts: o["isolate-ports"] == "1",
		})
	}
	for _, id := range run.ids(sdnSubnets) {
		o := run[sdnSubnets][id]
		sub := SDNSubnet{ID: id, VNet: o["vnet"], SNAT: o["snat"] == "1"}
		sub.CIDR, _ = netip.ParsePrefix(cidrOf(id))
		sub.Gateway, _ = netip.ParseAddr(o["gateway"])
		for _, r := range dhcpRanges(o["dhcp-range"]) {
			first, _ := netip.ParseAddr(r["start-address"])
			last, _ := netip.ParseAddr(r["end-address"])
			sub.DHCPRanges = append(sub.DHCPRanges, [2]netip.Addr{first, last})
		}
		out.Subnets = append(out.Subnets, sub)
	}
	return out
}

// number is an option as a number, 0 when it is not set.
func (o options) number(name string) int {
	n, err := strconv.Atoi(o[name])
	if err != nil {
		return 0
	}
	return n
}

func addrs(list string) []netip.Addr {
	var out []netip.Addr
	for _, s := range schema.SplitList(list) {
		if a, err := netip.ParseAddr(s); err == nil {
			out = append(out, a)
		}
	}
	return out
}

// cidrOf is the network that a subnet's id ("zone1-10.0.0.0-24") names.
func cidrOf(id string) string {
	_, rest, _ := strings.Cut(id, "-")
	return strings.Replace(rest, "-", "/", 1)
}
