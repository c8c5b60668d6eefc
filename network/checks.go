package network

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// Protocol is how a check is measured.
type Protocol string

// The protocols. For all but the last four, "reachable" means that any answer
// came back: a refused connection and an ICMP error of the target too, because
// a closed port alone seals nothing.
const (
	TCP  Protocol = "tcp"
	UDP  Protocol = "udp"
	ICMP Protocol = "icmp"
	// IPv6 is TCP, UDP or ICMPv6 to an IPv6 address.
	IPv6 Protocol = "ipv6"
	// LinkLocal is the same to the target's link-local address, which the one
	// who measures finds out.
	LinkLocal Protocol = "ipv6-link-local"
	// ARPSpoof: From claims an address of To's network by ARP and neighbour
	// advertisements. "reachable" means that the claim arrived at a guest of another
	// tenant. The address is nobody's.
	ARPSpoof Protocol = "arp-spoof"
	// MACSpoof is the same with frames from a MAC address that is nobody's.
	MACSpoof Protocol = "mac-spoof"
	// MTU: a packet of Check.MTU bytes that must not be fragmented arrives whole.
	MTU Protocol = "mtu"
	// Route: the routing table of Check.Zone on Check.Node has an EVPN route to
	// the address.
	Route Protocol = "evpn-route"
)

// Reach is what is expected or was observed. The zero value is neither.
type Reach string

// The results.
const (
	Reachable   Reach = "reachable"
	Unreachable Reach = "unreachable"
	// NoRoute is only observed: From's kernel has no route to To, and what was put
	// on the link all the same was not answered. Without that the silence would be
	// the guest's own and no property of the network. It is as expected where the
	// network is sealed by having no gateway: Check.Gateless.
	NoRoute Reach = "no route"
	// Exempt is only expected, and whatever is measured is as expected: the SSH
	// port of a jump host, in the networks of the tenants that it has a leg in.
	Exempt Reach = "exempt"
)

// Guest is a sandbox that takes part in the proof.
type Guest struct {
	Name         string
	Tenant, VNet string // names in the configuration
	Node         string
	Addresses    []netip.Addr // IPv4 and global IPv6
}

// Role is what a place outside of the zones is to a sandbox.
type Role string

// The roles. A proof needs a place of each of the first five: what was not tried
// is not sealed.
const (
	RoleOrchestrator Role = "orchestrator"
	RoleAPI          Role = "api"
	RoleNode         Role = "node"
	RoleMetadata     Role = "metadata"
	RoleOutside      Role = "outside"
	// RoleUnderlay are addresses of nodes between the nodes, where they are not
	// those of RoleNode.
	RoleUnderlay Role = "underlay"
	// RoleJump is a host through which guests are reached. Its addresses in a
	// tenant's subnets are legs; at those its SSH port is exempt, for that tenant,
	// and nothing else is.
	RoleJump Role = "jump"
)

var (
	needed = []Role{RoleOrchestrator, RoleAPI, RoleNode, RoleMetadata, RoleOutside}
	roles  = append(slices.Clone(needed), RoleUnderlay, RoleJump)
)

// Place is something that no sandbox may reach.
type Place struct {
	Role      Role
	Name      string // of a node: its name in the cluster
	Addresses []netip.Addr
	TCP, UDP  []uint16 // ports to try
	SSH       uint16   // of RoleJump: the exempt port; 0 = 22
}

// JumpPort is the port that is exempt at the legs of a jump host.
func (p Place) JumpPort() uint16 { return cmp.Or(p.SSH, 22) }

// Scene is where the proof is made. Placements are data: nothing is looked up.
type Scene struct {
	Guests []Guest
	Places []Place
	// Focus is the guest to prove before it is handed out. Empty: all of them.
	Focus string
}

// Check is one thing to measure. From, To and Protocol name it; the rest is
// what the one who measures needs besides.
type Check struct {
	From, To string
	Protocol Protocol
	Expected Reach

	Source  string     // guest that sends; "" when a node or the orchestrator looks
	Target  string     // guest that is tried; "" for a place
	Node    string     // of Route: where to look
	Zone    string     // of Route: id of the zone whose table to read
	Address netip.Addr // of ARPSpoof: what is claimed
	Port    uint16     // 0: any that has a listener
	MTU     int
	// Open: of a router that has to answer anyway; only a connection that is
	// accepted is "reachable", because a refusal shows that nothing listens.
	Open bool
	// Gateless: From's network has no way out for the address, so NoRoute is as
	// good as Unreachable.
	Gateless bool
}

// Checks returns the table of what has to be measured, in order. Each guest is
// tried against one other guest of every vnet and node, since those of one vnet
// on one node are attached alike; with a focus, only what begins or ends there.
// Every guest is also to be reached by the orchestrator, so that a guest whose
// network is dead does not pass for a sealed one.
func Checks(w Wanted, a Allocation, s Scene) ([]Check, error) {
	b := &checker{w: w, a: a, s: s}
	if err := b.fits(); err != nil {
		return nil, err
	}
	others := b.representatives()
	for _, g := range s.Guests {
		focus := s.Focus == "" || g.Name == s.Focus
		if focus {
			b.outside(g)
		}
		for _, r := range others {
			if focus && r.Name != g.Name {
				b.pair(g, r)
			}
			if g.Name == s.Focus && r.Name != g.Name {
				b.pair(r, g)
			}
		}
		if focus {
			b.routes(g)
		}
	}
	slices.SortFunc(b.out, func(x, y Check) int {
		return cmp.Or(cmp.Compare(x.From, y.From), cmp.Compare(x.To, y.To), cmp.Compare(x.Protocol, y.Protocol))
	})
	return slices.CompactFunc(b.out, func(x, y Check) bool { return x.key() == y.key() }), nil
}

// key is what an observation answers to.
func (c Check) key() [3]string { return [3]string{c.From, c.To, string(c.Protocol)} }

type checker struct {
	w   Wanted
	a   Allocation
	s   Scene
	out []Check
}

// network is the configuration of the guest's zone and vnet.
func (b *checker) network(g Guest) (Zone, VNet, bool) {
	for _, t := range b.w.Tenants {
		for _, v := range t.VNets {
			if t.Name == g.Tenant && v.Name == g.VNet {
				return t.Zone, v, true
			}
		}
	}
	return Zone{}, VNet{}, false
}

// fits refuses a scene from which no proof can come.
func (b *checker) fits() error {
	var errs []error
	bad := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("plan isolation checks: "+format, args...))
	}
	seen := map[string]bool{}
	for _, g := range b.s.Guests {
		_, v, found := b.network(g)
		switch {
		case g.Name == "" || g.Node == "" || seen[g.Name]:
			bad("guest %q on node %q has no name or node, or is there twice", g.Name, g.Node)
		case !found || b.a.Zones[g.Tenant].ID == "" || b.a.VNets[vnetKey(g.Tenant, g.VNet)].ID == "":
			bad("guest %s is on vnet %s, which is not a network of ours; run savepoint network apply", g.Name, vnetKey(g.Tenant, g.VNet))
		case len(g.Addresses) == 0:
			bad("guest %s has no address", g.Name)
		}
		for _, addr := range g.Addresses {
			if found && !slices.ContainsFunc(v.Subnets, func(s Subnet) bool { return s.Prefix.Contains(addr) }) {
				bad("guest %s has address %s, which is in no subnet of its vnet", g.Name, addr)
			}
		}
		seen[g.Name] = true
	}
	if len(b.s.Guests) == 0 {
		bad("there is no guest to measure from; create a sandbox first")
	}
	if b.s.Focus != "" && !seen[b.s.Focus] {
		bad("guest %q is not among the guests", b.s.Focus)
	}
	for _, r := range needed {
		if !slices.ContainsFunc(b.s.Places, func(p Place) bool { return p.Role == r }) {
			bad("no place of role %s is given, and what is not tried is not sealed; write network.places", r)
		}
	}
	for _, p := range b.s.Places {
		if !slices.Contains(roles, p.Role) || p.Name == "" || len(p.Addresses) == 0 || len(p.TCP) == 0 || len(p.UDP) == 0 {
			bad("place %q of role %q needs a name, a known role, an address, and TCP and UDP ports to try", p.Name, p.Role)
		}
	}
	for _, n := range b.nodes() {
		if !slices.ContainsFunc(b.s.Places, func(p Place) bool { return p.Role == RoleNode && p.Name == n }) {
			bad("node %s has guests or a zone and is not among the places", n)
		}
	}
	return errors.Join(errs...)
}

// nodes are those that guests are on or that a guest's zone is limited to.
func (b *checker) nodes() []string {
	var out []string
	for _, g := range b.s.Guests {
		zone, _, _ := b.network(g)
		out = append(append(out, g.Node), zone.Nodes...)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// representatives are the first guest by name of every vnet and node.
func (b *checker) representatives() []Guest {
	first := map[string]Guest{}
	for _, g := range b.s.Guests {
		key := strings.Join([]string{g.Tenant, g.VNet, g.Node}, "/")
		if have, found := first[key]; !found || g.Name < have.Name {
			first[key] = g
		}
	}
	var out []Guest
	for _, key := range sorted(first) {
		out = append(out, first[key])
	}
	return out
}

func (b *checker) add(c Check) { b.out = append(b.out, c) }

// outside adds the checks against everything that is no guest.
func (b *checker) outside(g Guest) {
	name := "guest " + g.Name
	b.add(Check{From: "orchestrator", To: fmt.Sprintf("%s %s", name, g.Addresses[0]), Protocol: TCP, Expected: Reachable, Target: g.Name, Address: g.Addresses[0], Port: 22})
	for _, p := range b.s.Places {
		b.place(g, string(p.Role)+" "+p.Name, p)
	}
	// The gateway's address is on the node itself, in the zone's routing
	// table: none of the node's services may listen there.
	_, v, _ := b.network(g)
	for _, s := range v.Subnets {
		if s.Gateway.IsValid() {
			for _, p := range b.s.Places {
				if p.Role == RoleNode {
					b.ports(Check{From: name, To: "gateway", Expected: Unreachable, Source: g.Name, Address: s.Gateway, Open: true}, TCP, b.notExempt(s.Gateway, p.TCP))
				}
			}
		}
	}
}

// notExempt are those ports at an address that are not a jump host's SSH port.
func (b *checker) notExempt(addr netip.Addr, ports []uint16) []uint16 {
	return slices.DeleteFunc(slices.Clone(ports), func(port uint16) bool {
		return slices.ContainsFunc(b.s.Places, func(p Place) bool {
			return p.Role == RoleJump && p.JumpPort() == port && slices.Contains(p.Addresses, addr)
		})
	})
}

// leg says whether the address is in a subnet of the guest's tenant.
func (b *checker) leg(g Guest, addr netip.Addr) bool {
	for _, t := range b.w.Tenants {
		for _, v := range t.VNets {
			if t.Name == g.Tenant && slices.ContainsFunc(v.Subnets, func(s Subnet) bool { return s.Prefix.Contains(addr) }) {
				return true
			}
		}
	}
	return false
}

// jump adds the checks against a leg of a jump host. It is a neighbour, whose
// kernel answers; but nothing may listen beside its SSH server.
func (b *checker) jump(c Check, p Place) {
	c.Expected = Exempt
	b.ports(c, TCP, []uint16{p.JumpPort()})
	c.Expected, c.Open = Unreachable, true
	b.ports(c, TCP, b.notExempt(c.Address, p.TCP))
}

// gateless says whether the guest's network has no way to an address that must not
// be reached.
func (b *checker) gateless(g Guest, addr netip.Addr) bool {
	_, v, _ := b.network(g)
	onLink := slices.ContainsFunc(v.Subnets, func(s Subnet) bool { return s.Prefix.Contains(addr) })
	return !onLink && !(routed(v, addr) && speaks(g, addr))
}

// place adds the checks against one place.
func (b *checker) place(g Guest, to string, p Place) {
	c := Check{From: "guest " + g.Name, To: to, Source: g.Name}
	for _, addr := range p.Addresses {
		c.Address, c.Expected, c.Gateless = addr, Unreachable, b.gateless(g, addr)
		if p.Role == RoleJump && b.leg(g, addr) {
			b.jump(c, p)
			continue
		}
		b.ports(c, TCP, p.TCP)
		b.ports(c, UDP, p.UDP)
		at := c
		at.To, at.Protocol = fmt.Sprintf("%s %s", to, addr), ICMP
		if addr.Is6() {
			at.Protocol = IPv6
		}
		b.add(at)
	}
	// A node is the guest's neighbour: its end of the vnet has a link-local
	// address whether or not anybody configured one.
	if p.Role == RoleNode && p.Name == g.Node {
		c.Address, c.Protocol, c.Expected, c.Gateless, c.Open = netip.Addr{}, LinkLocal, Unreachable, false, true
		for _, port := range p.TCP {
			c.To, c.Port = fmt.Sprintf("%s port %d", to, port), port
			b.add(c)
		}
	}
}

// ports adds a check for each port.
func (b *checker) ports(c Check, proto Protocol, ports []uint16) {
	to := c.To
	for _, port := range ports {
		c.To, c.Protocol, c.Port = fmt.Sprintf("%s %s", to, netip.AddrPortFrom(c.Address, port)), proto, port
		b.add(c)
	}
}

// pair adds the checks from one guest to another.
func (b *checker) pair(from, to Guest) {
	base := Check{From: "guest " + from.Name, Source: from.Name, Target: to.Name}
	with := func(p Protocol, expected Reach, addr netip.Addr, mtu int) {
		c := base
		c.To, c.Protocol, c.Expected, c.Address, c.MTU = "guest "+to.Name, p, expected, addr, mtu
		if addr.IsValid() {
			c.To += " " + addr.String()
		}
		b.add(c)
	}
	zone, fromNet, _ := b.network(from)
	_, toNet, _ := b.network(to)
	for _, addr := range to.Addresses {
		expected := Unreachable
		if from.Tenant == to.Tenant && speaks(from, addr) {
			expected = within(zone, fromNet, toNet, addr, from.Node == to.Node)
		}
		base.Gateless = expected == Unreachable && b.gateless(from, addr)
		if addr.Is6() {
			with(IPv6, expected, addr, 0)
		} else {
			with(TCP, expected, addr, 0)
			with(UDP, expected, addr, 0)
			with(ICMP, expected, addr, 0)
		}
		if expected == Reachable && fromNet.Name == toNet.Name && b.w.mtu(zone) != 0 {
			with(MTU, Reachable, addr, b.w.mtu(zone))
		}
	}
	base.Gateless = false
	if from.Tenant != to.Tenant {
		with(LinkLocal, Unreachable, netip.Addr{}, 0)
		with(MACSpoof, Unreachable, to.Addresses[0], 0)
		base.Protocol, base.Expected, base.Address = ARPSpoof, Unreachable, decoy(toNet, to.Addresses[0])
		base.To = fmt.Sprintf("guest %s as %s", to.Name, base.Address)
		b.add(base)
	}
}

// decoy is what is claimed in the place of a guest's address: its subnet's own,
// which nobody has and which is never given out.
func decoy(v VNet, addr netip.Addr) netip.Addr {
	for _, s := range v.Subnets {
		if s.Prefix.Contains(addr) {
			return s.Prefix.Masked().Addr()
		}
	}
	return netip.Addr{} // no guest is elsewhere
}

// speaks says whether the guest has an address of the same family.
func speaks(g Guest, addr netip.Addr) bool {
	return slices.ContainsFunc(g.Addresses, func(own netip.Addr) bool { return own.Is6() == addr.Is6() })
}

// within is what two guests of one tenant are to each other.
func within(z Zone, from, to VNet, addr netip.Addr, sameNode bool) Reach {
	switch {
	case z.Type == Simple && !sameNode:
		return Unreachable
	case from.Name == to.Name:
		return Reachable
	case z.Type == EVPN && routed(from, addr) && routed(to, addr):
		return Reachable
	default:
		return Unreachable
	}
}

// routed says whether the vnet has a gateway for the address's family.
func routed(v VNet, addr netip.Addr) bool {
	return slices.ContainsFunc(v.Subnets, func(s Subnet) bool {
		return s.Gateway.IsValid() && s.Gateway.Is6() == addr.Is6()
	})
}

// routes adds what the nodes' tables must have and must not have: a route to
// the guest in its own zone, on every other node of it, and in no other zone.
func (b *checker) routes(g Guest) {
	zone, vnet, _ := b.network(g)
	if zone.Type != EVPN {
		return
	}
	for _, p := range b.s.Places {
		if p.Role != RoleNode {
			continue
		}
		for _, t := range b.w.Tenants {
			rec := b.a.Zones[t.Name]
			has := len(t.Zone.Nodes) == 0 || slices.Contains(t.Zone.Nodes, p.Name)
			own := t.Name == g.Tenant
			if t.Zone.Type != EVPN || rec.ID == "" || !has || own && p.Name == g.Node {
				continue
			}
			c := Check{From: "node " + p.Name + " zone " + rec.ID, Protocol: Route, Expected: Unreachable, Target: g.Name, Node: p.Name, Zone: rec.ID}
			if own {
				c.Expected = Reachable
			}
			for _, addr := range g.Addresses {
				if own && !routed(vnet, addr) {
					continue // without a gateway nobody learns the address, only where the MAC is
				}
				c.To, c.Address = "guest "+g.Name+" "+addr.String(), addr
				b.add(c)
			}
		}
	}
}
