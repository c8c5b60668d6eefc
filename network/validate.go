package network

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

const (
	lower   = "abcdefghijklmnopqrstuvwxyz"
	digits  = "0123456789"
	letters = lower + "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
)

// validate finds every problem of the wanted state, also those that only show
// next to what is recorded and what the cluster has.
func validate(w Wanted, o Observed, a Allocation) []Problem {
	v := &validator{w: w, o: o, a: a, vnis: newVNIs(o, a), names: map[string]bool{}}
	if len(w.Tenants) == 0 {
		return nil // nothing is wanted, so nothing else is used
	}
	v.underlay()
	v.controller()
	for i, t := range w.Tenants {
		v.tenant(fmt.Sprintf("tenants[%d]", i), t)
	}
	v.overlaps()
	return v.problems
}

// validator collects problems.
type validator struct {
	w        Wanted
	o        Observed
	a        Allocation
	vnis     map[VNI]string // identifiers that are taken → by whom
	names    map[string]bool
	problems []Problem
}

// newVNIs knows the identifiers of others. Our own are compared by name.
func newVNIs(o Observed, a Allocation) map[VNI]string {
	out := map[VNI]string{}
	known := a.signs()
	for _, obj := range o.planned() {
		if _, recorded := known[obj.Kind][obj.ID]; recorded {
			continue
		}
		for _, vni := range vnisOf(o, obj) {
			out[vni] = fmt.Sprintf("%s %s of the cluster", obj.Kind, obj.ID)
		}
	}
	for tenant, z := range a.Zones {
		if z.VRF != 0 {
			out[z.VRF] = "tenant " + tenant
		}
	}
	for key, v := range a.VNets {
		if v.VNI != 0 {
			out[v.VNI] = "vnet " + key
		}
	}
	return out
}

func (v *validator) bad(key, cause, mend string, args ...any) {
	v.problems = append(v.problems, Problem{key, fmt.Sprintf(cause, args...), mend})
}

func (v *validator) underlay() {
	if m := v.w.underlayMTU(); m < 1350 || m > 65535 {
		v.bad("underlay_mtu", "%d is not the MTU of a network between nodes", "give the MTU of the interfaces that carry VXLAN, usually 1500 or 9000", m)
		v.w.UnderlayMTU = 65535 // the zones are not to blame
	}
	if r := v.w.VNIs; r.First < 1 || r.Last > maxVNI || r.Last < r.First {
		v.bad("vni_first", "%d to %d is not a range within 1 to %d", "give a range that belongs to savepoint alone, such as 100000 to 109999", r.First, r.Last, maxVNI)
	}
	seen := map[netip.Addr]bool{}
	for i, p := range v.w.Peers {
		key := fmt.Sprintf("peers[%d]", i)
		switch {
		case !p.IsValid() || p.Is4In6() || p.IsUnspecified() || p.IsMulticast() || p.IsLoopback() || p.Zone() != "":
			v.bad(key, "%s is not the address of a node", "give the node's address in the network that carries VXLAN", p)
		case seen[p]:
			v.bad(key, "%s is there twice", "remove one", p)
		}
		seen[p] = true
		v.w.eachSubnet(func(at string, s Subnet) {
			if s.Prefix.Contains(p) {
				v.bad(at, "%s contains the node's address %s", "choose another network for guests", s.Prefix, p)
			}
		})
	}
}

func (v *validator) controller() {
	c := v.w.Controller
	switch {
	case !v.w.uses(EVPN):
	case c.ID != "" && c.ASN != 0:
		v.bad("controller", "has an id, which names one that is there, and an ASN, which makes a new one", "remove one of the two")
	case c.ID != "" && c.ID == v.a.Controller:
		v.bad("controller", "names the one that savepoint made", "remove it")
	case c.ID != "":
		there := slices.ContainsFunc(v.o.Controllers, func(obj Object) bool {
			return obj.ID == c.ID && obj.Pending != nil && obj.Pending["type"] == "evpn"
		})
		if !there {
			v.bad("controller", "the cluster has no EVPN controller %q", "name the one it has, or remove the key to have one made", c.ID)
		}
	case c.ASN == 0:
		v.bad("asn", "an EVPN zone needs a controller", "give an ASN such as 65000 to have one made, or the id of the cluster's in controller")
	}
	if needs := v.w.uses(VXLAN) || v.w.ownController(); needs && len(v.w.Peers) == 0 {
		v.bad("peers", "there are none", "list the address of each node in the network that carries VXLAN")
	}
}

// name checks a name, and that it is there once.
func (v *validator) name(key, what, scope, name string) {
	switch {
	case name == "" || len(name) > 32 || strings.Trim(name, lower+digits+"-") != "" || !strings.Contains(lower, name[:1]):
		v.bad(key, "%q is not a name", "use at most 32 lower-case letters, digits and '-', beginning with a letter", name)
	case v.names[scope+name]:
		v.bad(key, "there is another %s %q", "choose another name", what, name)
	}
	v.names[scope+name] = true
}

func (v *validator) tenant(at string, t Tenant) {
	v.name(at+".name", "tenant", "", t.Name)
	z := t.Zone
	if !slices.Contains([]ZoneType{EVPN, VXLAN, Simple}, z.Type) {
		v.bad(at+".zone", "%q is not a type of zone", "write evpn, vxlan or simple", z.Type)
		return
	}
	rec, known := v.a.Zones[t.Name]
	if known && rec.Type != z.Type {
		v.bad(at+".zone", "the zone was made as %s, and the type of a zone cannot change", "destroy the tenant's sandboxes and take it out of the configuration once, or give it another name", rec.Type)
	}
	v.mtu(at+".mtu", t)
	seen := map[string]bool{}
	for i, n := range z.Nodes {
		key := fmt.Sprintf("%s.nodes[%d]", at, i)
		switch {
		case !slices.ContainsFunc(v.o.Nodes, func(have Node) bool { return have.Name == n }):
			v.bad(key, "the cluster has no node %q", "name nodes as the cluster does", n)
		case seen[n]:
			v.bad(key, "node %q is there twice", "remove one", n)
		}
		seen[n] = true
	}
	if z.Type == EVPN {
		v.vni(at+".vrf", z.VRF, rec.VRF, "tenant "+t.Name)
	} else if z.VRF != 0 {
		v.bad(at+".vrf", "a %s zone has no routing table", "remove it", z.Type)
	}
	if len(t.VNets) == 0 {
		v.bad(at+".vnets", "there are none", "give the tenant at least one vnet")
	}
	for i, n := range t.VNets {
		v.vnet(fmt.Sprintf("%s.vnets[%d]", at, i), t, n)
	}
}

func (v *validator) mtu(key string, t Tenant) {
	most, least := 65535, 576
	if t.Zone.Type.overlay() {
		most = v.w.underlayMTU() - v.w.overhead()
	}
	for _, n := range t.VNets {
		if slices.ContainsFunc(n.Subnets, func(s Subnet) bool { return s.Prefix.Addr().Is6() }) {
			least = 1280
		}
	}
	switch mtu := v.w.mtu(t.Zone); {
	case mtu > most:
		v.bad(key, "%d is more than %d, the underlay's %d less what VXLAN adds", "lower it, or raise the underlay's on every node and in underlay_mtu", mtu, most, v.w.underlayMTU())
	case mtu != 0 && mtu < least:
		v.bad(key, "%d is less than the %d that the addresses need", "raise it", mtu, least)
	}
}

// vni checks an identifier that is configured by hand.
func (v *validator) vni(key string, n, recorded VNI, who string) {
	switch {
	case n == 0:
	case n > maxVNI:
		v.bad(key, "%d is not a VNI", fmt.Sprintf("choose one from 1 to %d", maxVNI), n)
	case recorded != 0 && recorded != n:
		v.bad(key, "%d is not %d, with which it was made", "remove the key, or destroy the network first", n, recorded)
	case v.vnis[n] != "" && v.vnis[n] != who:
		v.bad(key, "%d is in use by %s", "choose another one, or remove the key", n, v.vnis[n])
	default:
		v.vnis[n] = who
	}
}

func (v *validator) vnet(at string, t Tenant, n VNet) {
	key := vnetKey(t.Name, n.Name)
	v.name(at+".name", "vnet", t.Name+"/", n.Name)
	if t.Zone.Type.overlay() {
		v.vni(at+".vni", n.VNI, v.a.VNets[key].VNI, "vnet "+key)
	} else if n.VNI != 0 {
		v.bad(at+".vni", "a vnet of a simple zone has no VNI", "remove it")
	}
	if len(n.Subnets) == 0 {
		v.bad(at+".subnets", "there are none", "give the vnet a network for its guests")
	}
	room := uint64(0)
	for i, s := range n.Subnets {
		room += v.subnet(fmt.Sprintf("%s.subnets[%d]", at, i), t.Zone.Type, s)
	}
	if n.Guests < 0 {
		v.bad(at+".guests", "%d is not a number of guests", "leave it out, or give the number of sandboxes that must fit", n.Guests)
	} else if uint64(n.Guests) > room && len(n.Subnets) > 0 {
		v.bad(at+".guests", "%d guests need more than the %d addresses of its subnets", "give it a larger subnet", n.Guests, room)
	}
}

// subnet checks one subnet and returns how many guests it has addresses for.
func (v *validator) subnet(at string, z ZoneType, s Subnet) uint64 {
	p := s.Prefix
	switch {
	case !p.IsValid():
		v.bad(at+".prefix", "is not a network", `write it as "10.20.0.0/24"`)
		return 0
	case p.Masked() != p:
		v.bad(at+".prefix", "%s has host bits set", fmt.Sprintf("write %q", p.Masked()), p)
		return Capacity(p)
	case p.Addr().IsMulticast() || p.Addr().IsLoopback() || p.Addr().IsUnspecified() || p.Addr().IsLinkLocalUnicast() || p.Addr().Is4In6():
		v.bad(at+".prefix", "%s is not a network for guests", "choose a private network", p)
		return 0
	case Capacity(p) == 0:
		v.bad(at+".prefix", "%s has no address for a guest", "choose a larger network", p)
	}
	if g := s.Gateway; g.IsValid() {
		switch {
		case z != EVPN:
			// In a simple zone it would be the node itself, in reach of guests.
			v.bad(at+".gateway", "a %s zone does not route", "remove it, or make the zone evpn", z)
		case !p.Contains(g):
			v.bad(at+".gateway", "%s is outside of %s", "choose one of the first addresses of the subnet", g, p)
		case !isReserved(p, g):
			v.bad(at+".gateway", "%s is an address that a guest could get, or that is not a host's", fmt.Sprintf("choose %s", p.Addr().Next()), g)
		}
	}
	return Capacity(p)
}

// isReserved says whether the address is one of the hosts that are left to
// gateways.
func isReserved(p netip.Prefix, a netip.Addr) bool {
	host := p.Addr()
	for range Reserved(p) {
		if host = host.Next(); host == a {
			return true
		}
	}
	return false
}

// eachSubnet calls f with each subnet and its key.
func (w Wanted) eachSubnet(f func(at string, s Subnet)) {
	for i, t := range w.Tenants {
		for j, n := range t.VNets {
			for k, s := range n.Subnets {
				f(fmt.Sprintf("tenants[%d].vnets[%d].subnets[%d].prefix", i, j, k), s)
			}
		}
	}
}

// overlaps finds subnets that share addresses, also those of different tenants:
// an address names one sandbox, and the jump host must know which.
func (v *validator) overlaps() {
	type placed struct {
		at string
		p  netip.Prefix
	}
	var before []placed
	v.w.eachSubnet(func(at string, s Subnet) {
		if !s.Prefix.IsValid() {
			return
		}
		for _, b := range before {
			if b.p.Overlaps(s.Prefix) {
				v.bad(at, "%s overlaps %s of %s", "choose a network that nobody else has", s.Prefix, b.p, b.at)
			}
		}
		before = append(before, placed{at, s.Prefix})
	})
}
