package proof

import (
	"cmp"
	"crypto/rand"
	"encoding/binary"
	"net"
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
		if k.Tenant == sb.Tenant && k.VNet == sb.VNet && k.ID != sb.ID {
			o.Neighbours = append(o.Neighbours, k.Address)
		}
	}
	for _, p := range w.places {
		for _, a := range p.Addresses {
			if p.Role == network.RoleJump && w.onLink(sb, a) {
				o.Jumps, o.JumpPort = append(o.Jumps, a), p.JumpPort()
			}
		}
	}
	return o
}

// onLink says whether the address is in the sandbox's own network.
func (w *world) onLink(sb orchestrator.Sandbox, a netip.Addr) bool {
	for _, s := range w.subnets(sb) {
		if s.Prefix.Contains(a) {
			return true
		}
	}
	return false
}

// plan is which probes serve which check.
type plan struct {
	orders map[string][]orchestrator.Probe
	probes [][]uint64 // of each check
	// lively are probes that are answered where nothing is wrong, by guest: what
	// must be reachable, and the gateway.
	lively map[string][]uint64
}

// alive says whether a guest's silence means something: something that has to
// answer did, in the same time. A guest that is on no router and alone cannot
// show it.
func (p plan) alive(name string, report orchestrator.ProbeReport) bool {
	return len(p.lively[name]) == 0 || slices.ContainsFunc(p.lively[name], func(id uint64) bool {
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
	p := plan{orders: map[string][]orchestrator.Probe{}, probes: make([][]uint64, len(checks)), lively: map[string][]uint64{}}
	order := func(name string, probe orchestrator.Probe) uint64 {
		probe.ID = secret()
		p.orders[name] = append(p.orders[name], probe)
		return probe.ID
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

// secret is the id of a probe, which nobody can know who was not told, or reached.
func secret() uint64 {
	var b [8]byte
	_, _ = rand.Read(b[:]) // it never fails
	return binary.BigEndian.Uint64(b[:]) >> 1
}

// nobodys is a MAC address that no guest has: locally administered, and made up.
// A new one each time: one that was seen at another guest a minute ago would have
// moved, which EVPN counts.
func nobodys() net.HardwareAddr {
	out := make(net.HardwareAddr, 6)
	binary.BigEndian.PutUint32(out[2:], uint32(secret()))
	out[0], out[1] = 0x02, 0x5a
	return out
}

// parts divides checks so that no guest is told more than it accepts at once.
// Every part has a few things that must be reachable of each guest, because its
// silence counts only beside those.
func (w *world) parts(checks []network.Check, facts map[string]orchestrator.ProbeReport) [][]network.Check {
	const signs = 4 // of life, of each guest
	life, living := map[string]int{}, []network.Check(nil)
	for _, c := range checks {
		if c.Source != "" && c.Expected == network.Reachable && life[c.Source] < signs {
			life[c.Source] += len(w.probes(c, facts))
			living = append(living, c)
		}
	}
	parts, told := [][]network.Check{nil}, []map[string]int{{}}
	add := func(i int, c network.Check) {
		parts[i] = append(parts[i], c)
		told[i][c.Source] += len(w.probes(c, facts))
	}
	for _, c := range checks {
		room := orchestrator.MaxProbes - len(w.gateways(c.Source)) - len(w.probes(c, facts))
		i := slices.IndexFunc(told, func(t map[string]int) bool { return c.Source == "" || t[c.Source] <= room })
		if i < 0 {
			i = len(parts)
			parts, told = append(parts, nil), append(told, map[string]int{})
			for _, sign := range living {
				add(i, sign)
			}
			if slices.ContainsFunc(living, func(l network.Check) bool { return key(l) == key(c) }) {
				continue
			}
		}
		add(i, c)
	}
	return parts
}

// subnets are those of the sandbox's network.
func (w *world) subnets(sb orchestrator.Sandbox) []network.Subnet {
	for _, t := range w.p.c.Wanted.Tenants {
		for _, v := range t.VNets {
			if t.Name == sb.Tenant && v.Name == sb.VNet {
				return v.Subnets
			}
		}
	}
	return nil
}

// gateways are the routers of a guest's network.
func (w *world) gateways(name string) []netip.Addr {
	var out []netip.Addr
	for _, s := range w.subnets(w.sandboxes[name]) {
		if s.Gateway.IsValid() {
			out = append(out, s.Gateway)
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
		return []orchestrator.Probe{{Kind: orchestrator.ProbeForge, Address: c.Address, MAC: nobodys()}}
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
