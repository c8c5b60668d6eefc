package proof

import (
	"cmp"
	"net/netip"
	"slices"

	"savepoint/network"
	"savepoint/orchestrator"
)

// order is what one guest is told.
func (w *world) order(name, nonce string, probes []orchestrator.Probe, listen bool) orchestrator.ProbeOrder {
	sb := w.sandboxes[name]
	o := orchestrator.ProbeOrder{Own: sb.Address, Nonce: nonce, Wait: w.p.c.Wait, Listen: listen, Probes: probes, Gateways: w.gateways(name)}
	for _, k := range w.known {
		if k.Tenant != sb.Tenant {
			continue
		}
		if listen {
			o.Watch = append(o.Watch, k.Address)
		}
		if k.VNet == sb.VNet && k.ID != sb.ID {
			o.Neighbours = append(o.Neighbours, k.Address)
		}
	}
	return o
}

// plan is which probes serve which check.
type plan struct {
	orders map[string][]orchestrator.Probe
	probes [][]uint32 // of each check
	// lively are probes that are answered where nothing is wrong, by guest: what
	// must be reachable, and the gateway.
	lively map[string][]uint32
}

// alive says whether a guest's silence means something: something that has to
// answer did, in the same time. A guest that is on no router and alone cannot
// show it.
func (p plan) alive(name string, report orchestrator.ProbeReport) bool {
	return len(p.lively[name]) == 0 || slices.ContainsFunc(p.lively[name], func(id uint32) bool {
		a := report.Results[id].Answer
		return a == orchestrator.ProbeAnswered || a == orchestrator.ProbeAccepted
	})
}

// Ports of guests that checks without a port use: sshd's, and one at which
// nothing listens, so that the target's kernel answers.
const (
	guestTCP = 22
	guestUDP = 33434
)

func (w *world) plan(checks []network.Check, names []string, facts map[string]orchestrator.ProbeReport) plan {
	p := plan{orders: map[string][]orchestrator.Probe{}, probes: make([][]uint32, len(checks)), lively: map[string][]uint32{}}
	id := uint32(0)
	order := func(name string, probe orchestrator.Probe) uint32 {
		id++
		probe.ID = id
		p.orders[name] = append(p.orders[name], probe)
		return id
	}
	for i, c := range checks {
		for _, probe := range w.probes(c, facts) {
			n := order(c.Source, probe)
			p.probes[i] = append(p.probes[i], n)
			if c.Expected == network.Reachable {
				p.lively[c.Source] = append(p.lively[c.Source], n)
			}
		}
	}
	for _, name := range names {
		for _, a := range w.gateways(name) {
			if a.Is6() != w.sandboxes[name].Address.Is6() {
				continue
			}
			p.lively[name] = append(p.lively[name], order(name, orchestrator.Probe{Kind: orchestrator.ProbeEcho, Address: a}))
		}
	}
	return p
}

// gateways are the routers of a guest's network.
func (w *world) gateways(name string) []netip.Addr {
	sb := w.sandboxes[name]
	var out []netip.Addr
	for _, t := range w.p.c.Wanted.Tenants {
		for _, v := range t.VNets {
			for _, s := range v.Subnets {
				if t.Name == sb.Tenant && v.Name == sb.VNet && s.Gateway.IsValid() {
					out = append(out, s.Gateway)
				}
			}
		}
	}
	return out
}

// probes are the ways in which a check is tried. None: it cannot be, or nobody
// has to.
func (w *world) probes(c network.Check, facts map[string]orchestrator.ProbeReport) []orchestrator.Probe {
	if c.Source == "" {
		return nil
	}
	tcp, udp := cmp.Or(c.Port, guestTCP), cmp.Or(c.Port, guestUDP)
	every := func(a netip.Addr) []orchestrator.Probe {
		return []orchestrator.Probe{
			{Kind: orchestrator.ProbeTCP, Address: a, Port: tcp}, {Kind: orchestrator.ProbeUDP, Address: a, Port: udp},
			{Kind: orchestrator.ProbeEcho, Address: a},
		}
	}
	target := facts[c.Target]
	switch c.Protocol {
	case network.TCP:
		return every(c.Address)[:1]
	case network.UDP:
		return every(c.Address)[1:2]
	case network.ICMP:
		return every(c.Address)[2:]
	case network.IPv6:
		return every(c.Address)
	case network.MTU:
		return []orchestrator.Probe{{Kind: orchestrator.ProbeEcho, Address: c.Address, Size: c.MTU}}
	case network.LinkLocal:
		if c.Target == "" {
			return []orchestrator.Probe{{Kind: orchestrator.ProbeLink, Port: c.Port}}
		}
		if a := linkLocal(target); a.IsValid() {
			return every(a)
		}
	case network.ARPSpoof:
		return []orchestrator.Probe{{Kind: orchestrator.ProbeClaim, Address: c.Address}}
	case network.MACSpoof:
		if len(target.MAC) == 6 {
			return []orchestrator.Probe{{Kind: orchestrator.ProbeForge, Address: c.Address, MAC: target.MAC}}
		}
	case network.Route:
	}
	return nil
}

// linkLocal is the link-local address of a guest, or the one that it would have.
func linkLocal(r orchestrator.ProbeReport) netip.Addr {
	if r.LinkLocal.IsValid() || len(r.MAC) != 6 {
		return r.LinkLocal
	}
	m := r.MAC
	return netip.AddrFrom16([16]byte{0xfe, 0x80, 8: m[0] ^ 2, m[1], m[2], 0xff, 0xfe, m[3], m[4], m[5]})
}
