package network

import (
	"fmt"
	"net/netip"
	"strings"
)

// ZoneType is how a zone connects its guests.
type ZoneType string

// The types of zones. An EVPN zone routes between its own vnets, a VXLAN zone
// connects each vnet over the nodes and does not route, and the vnets of a
// simple zone end at the node they are on.
const (
	EVPN   ZoneType = "evpn"
	VXLAN  ZoneType = "vxlan"
	Simple ZoneType = "simple"
)

// overlay says whether the zone's frames travel between nodes inside VXLAN.
func (t ZoneType) overlay() bool { return t == EVPN || t == VXLAN }

// VNI is a VXLAN network identifier.
type VNI uint32

const maxVNI VNI = 1<<24 - 1

// VNIRange holds the identifiers that may be chosen, both ends included. It
// must belong to this savepoint alone.
type VNIRange struct{ First, Last VNI }

// Wanted is the state of the networks as configured.
type Wanted struct {
	// UnderlayMTU is that of the network between the nodes; 0 is 1500.
	UnderlayMTU int
	// Peers are the nodes' addresses in the underlay, in any order.
	Peers      []netip.Addr
	VNIs       VNIRange
	Controller Controller
	Tenants    []Tenant
}

// Controller is the EVPN controller. A cluster can have only one.
type Controller struct {
	// ID names one that is there and is not ours to change. Empty: one is made
	// with the ASN and the peers.
	ID  string
	ASN uint32
}

// Tenant is a party whose sandboxes are kept apart from all others. It has one
// zone of its own, because the vnets of one EVPN zone reach each other.
type Tenant struct {
	Name  string
	Zone  Zone
	VNets []VNet
}

// Zone is what is configured of a tenant's zone. Its id is allocated.
type Zone struct {
	Type ZoneType
	// VRF is the identifier of an EVPN zone's routing table; 0 allocates one.
	VRF VNI
	// MTU for guests; 0 is the largest that the underlay carries, and for a
	// simple zone the cluster's default.
	MTU int
	// Nodes that have the zone. Empty: all.
	Nodes []string
}

// VNet is one layer 2 network of a tenant. Its id is allocated.
type VNet struct {
	Name    string
	VNI     VNI // 0 allocates one; a simple zone has none
	Subnets []Subnet
	// Guests is how many sandboxes the vnet must have addresses for.
	Guests int
}

// Subnet is a network of addresses, all of it given to sandboxes but for the
// first hosts, see [Reserved].
type Subnet struct {
	Prefix netip.Prefix
	// Gateway is the address that an EVPN zone routes from on every node. It
	// is one of the reserved hosts. The zero value: no routing.
	Gateway netip.Addr
}

// underlayMTU is what one frame between nodes can carry.
func (w Wanted) underlayMTU() int {
	if w.UnderlayMTU == 0 {
		return 1500
	}
	return w.UnderlayMTU
}

// overhead is what VXLAN adds to a frame: Ethernet, IP, UDP and its own header.
func (w Wanted) overhead() int {
	for _, p := range w.Peers {
		if p.Is6() {
			return 70
		}
	}
	return 50
}

// mtu is what guests of the zone can send; 0 means the cluster's default.
func (w Wanted) mtu(z Zone) int {
	if z.MTU == 0 && z.Type.overlay() {
		return w.underlayMTU() - w.overhead()
	}
	return z.MTU
}

// ownController says whether the EVPN controller is ours to make.
func (w Wanted) ownController() bool { return w.Controller.ID == "" && w.uses(EVPN) }

// uses says whether any tenant has a zone of the type.
func (w Wanted) uses(t ZoneType) bool {
	for _, tenant := range w.Tenants {
		if tenant.Zone.Type == t {
			return true
		}
	}
	return false
}

// Problem is one thing that is wrong with the wanted state.
type Problem struct {
	Key   string // below the configuration's network section: "tenants[0].mtu"
	Cause string
	Mend  string
}

// String is one line: key, cause, what to do.
func (p Problem) String() string { return fmt.Sprintf("%s: %s; %s", p.Key, p.Cause, p.Mend) }

// ConfigError holds every problem of a wanted state, never none. Callers turn
// it into the exit code for usage and configuration.
type ConfigError struct{ Problems []Problem }

func (e *ConfigError) Error() string {
	lines := make([]string, len(e.Problems))
	for i, p := range e.Problems {
		lines[i] = p.String()
	}
	if len(lines) == 1 {
		return "plan networks: " + lines[0]
	}
	return fmt.Sprintf("plan networks: %d problems\n  %s", len(lines), strings.Join(lines, "\n  "))
}
