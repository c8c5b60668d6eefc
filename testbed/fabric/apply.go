package fabric

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
)

// zoneState is what a node has of a zone.
type zoneState struct {
	zone      Zone
	ns        string
	published bool   // zebra was shown the namespace
	vrf       uint32 // the VNI that the routing daemons were told
	ports     map[string]port
}

// Apply makes a node's zones those given: it makes what is missing, changes
// what differs and removes what is not wanted any more. Guests on a vnet that
// stays keep their ports. It can be repeated; after an error or a cancelled ctx
// the node is somewhere in between, and the next Apply goes on from there.
func (f *Fabric) Apply(ctx context.Context, name string, zones []Zone) error {
	n, err := f.node(name)
	if err != nil {
		return err
	}
	if err := checkZones(zones, f.cfg.Underlay, f.cfg.MTU); err != nil {
		return fmt.Errorf("apply zones to node %s: %w", name, err)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	for id, have := range n.zones {
		i := slices.IndexFunc(zones, func(z Zone) bool { return z.ID == id })
		if i < 0 || zones[i].Kind != have.zone.Kind {
			if err := f.removeZone(ctx, n, have); err != nil {
				return fmt.Errorf("remove zone %s from node %s: %w", id, name, err)
			}
		}
	}
	// First every old tunnel goes, then the new ones come: a VNI can move from
	// one zone to another.
	for _, z := range zones {
		if have := n.zones[z.ID]; have != nil {
			if err := f.removeLinks(ctx, n, have, z); err != nil {
				return fmt.Errorf("change zone %s on node %s: %w", z.ID, name, err)
			}
		}
	}
	for _, z := range zones {
		if err := f.applyZone(ctx, n, z); err != nil {
			return fmt.Errorf("apply zone %s to node %s: %w", z.ID, name, err)
		}
	}
	return nil
}

func (f *Fabric) applyZone(ctx context.Context, n *node, z Zone) error {
	s := n.zones[z.ID]
	if s == nil {
		s = &zoneState{zone: Zone{ID: z.ID, Kind: z.Kind}, ns: nsPrefix(f.instance) + n.name + "-" + z.ID, ports: map[string]port{}}
		if err := f.ledger.makeNamespace(ctx, s.ns); err != nil {
			return errors.Join(err, f.forget(ctx, s.ns))
		}
		n.zones[z.ID] = s
	}
	s.zone = z
	routes := "1"
	if z.Kind == VXLAN {
		routes = "0"
	}
	err := sysctl(s.ns, map[string]string{
		"ipv4/ip_forward": routes, "ipv6/conf/all/forwarding": routes,
		"ipv4/conf/all/send_redirects": "0", "ipv4/conf/default/send_redirects": "0",
		// Nothing has an IPv6 address of its own; bridges with a gateway are
		// given one. All nodes share it, so no node may look for duplicates.
		"ipv6/conf/default/disable_ipv6": "1", "ipv6/conf/default/accept_dad": "0", "ipv6/conf/all/accept_ra": "0", "ipv6/conf/default/accept_ra": "0",
	})
	if err != nil {
		return err
	}
	// The daemons first: FRR 8.4 loses links when it has to list many that are
	// there already, and hears of each that is made later.
	if z.Kind == EVPN {
		if err := f.routeZone(ctx, n, s); err != nil {
			return err
		}
	}
	return f.makeLinks(ctx, n, s)
}

// forget removes a namespace and its entry.
func (f *Fabric) forget(ctx context.Context, ns string) error {
	if err := removeNamespace(ctx, ns); err != nil {
		return err
	}
	return f.ledger.dropNamespace(ns)
}

// removeLinks removes the bridges and tunnels that zone z does not have.
func (f *Fabric) removeLinks(ctx context.Context, n *node, s *zoneState, z Zone) error {
	have, err := observe(ctx, s.ns)
	if err != nil {
		return err
	}
	want := f.wantedLinks(n, z)
	for _, name := range slices.Sorted(maps.Keys(have)) {
		l := have[name]
		w, wanted := want[name]
		if (l.Kind == "bridge" || l.Kind == "vxlan") && (!wanted || l.Kind != w.Kind || l.VNI != w.VNI) {
			if err := ip(ctx, s.ns, "link del %s", name); err != nil {
				return err
			}
		}
	}
	for name, p := range s.ports {
		if _, wanted := want[p.vnet]; !wanted {
			delete(s.ports, name)
		}
	}
	return nil
}

func (f *Fabric) makeLinks(ctx context.Context, n *node, s *zoneState) error {
	have, err := observe(ctx, s.ns)
	if err != nil {
		return err
	}
	want := f.wantedLinks(n, s.zone)
	for _, kind := range []string{"bridge", "vxlan"} { // a tunnel needs its bridge
		for _, name := range slices.Sorted(maps.Keys(want)) {
			w := want[name]
			if w.Kind != kind {
				continue
			}
			if kind == "bridge" {
				err = makeBridge(ctx, s.ns, w, have[name])
			} else {
				err = f.makeTunnel(ctx, n, s, w, have[name])
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

func makeBridge(ctx context.Context, ns string, want, have link) error {
	if have.Name == "" {
		// With a MAC address of its own it does not take over those of its ports.
		if err := ip(ctx, ns, "link add %s address %s type bridge forward_delay 0", want.Name, want.MAC); err != nil {
			return err
		}
	} else if have.MAC != want.MAC {
		if err := ip(ctx, ns, "link set %s address %s", want.Name, want.MAC); err != nil {
			return err
		}
	}
	for _, a := range have.Addresses {
		if !slices.Contains(want.Addresses, a) {
			if err := ip(ctx, ns, "addr del %s dev %s", a, want.Name); err != nil {
				return err
			}
		}
	}
	six := slices.ContainsFunc(want.Addresses, func(p netip.Prefix) bool { return p.Addr().Is6() })
	off := "1"
	if six || strings.HasPrefix(want.Name, "vrfbr_") { // the latter carries routed IPv6 without an address
		off = "0"
	}
	if !six {
		if err := ip(ctx, ns, "link set %s addrgenmode none", want.Name); err != nil {
			return err
		}
	} else if err := ip(ctx, ns, "link set %s addrgenmode eui64", want.Name); err != nil {
		return err
	}
	if err := sysctl(ns, map[string]string{"ipv6/conf/" + want.Name + "/disable_ipv6": off}); err != nil {
		return err
	}
	if err := ip(ctx, ns, "link set %s mtu %d up", want.Name, want.MTU); err != nil {
		return err
	}
	for _, a := range want.Addresses {
		if slices.Contains(have.Addresses, a) {
			continue
		}
		options := ""
		if a.Addr().Is6() {
			options = "nodad"
		}
		if err := ip(ctx, ns, "addr add %s dev %s %s", a, want.Name, options); err != nil {
			return err
		}
	}
	return nil
}

// makeTunnel makes a VXLAN device from inside the node's namespace and puts it
// into the zone's: its packets leave by the namespace it was made in, so the
// zone itself has no way to the underlay.
func (f *Fabric) makeTunnel(ctx context.Context, n *node, s *zoneState, want, have link) error {
	if have.Name == "" {
		learning := "nolearning"
		if s.zone.Kind == VXLAN {
			learning = "learning"
		}
		if err := ip(ctx, n.ns, "link add %s netns %s type vxlan id %d local %s dstport 4789 %s", want.Name, s.ns, want.VNI, n.address, learning); err != nil {
			return err
		}
	}
	if err := ip(ctx, s.ns, "link set %s mtu %d master %s", want.Name, want.MTU, want.Master); err != nil {
		return err
	}
	if s.zone.Kind == EVPN {
		if err := ip(ctx, s.ns, "link set %s type bridge_slave learning off neigh_suppress on", want.Name); err != nil {
			return err
		}
	} else {
		for _, peer := range f.nodes {
			if peer == n {
				continue
			}
			if _, err := run(ctx, s.ns, nil, "bridge", "fdb", "append", "00:00:00:00:00:00", "dev", want.Name, "dst", peer.address.String(), "self", "permanent"); err != nil {
				return err
			}
		}
	}
	return ip(ctx, s.ns, "link set %s up", want.Name)
}

// removeZone removes a zone with everything in it.
func (f *Fabric) removeZone(ctx context.Context, n *node, s *zoneState) error {
	if s.zone.Kind == EVPN {
		if err := f.unrouteZone(ctx, n, s); err != nil {
			return err
		}
	}
	if err := f.forget(ctx, s.ns); err != nil {
		return err
	}
	delete(n.zones, s.zone.ID)
	return nil
}

// routeZone makes the routing daemons know a zone and its VNI.
func (f *Fabric) routeZone(ctx context.Context, n *node, s *zoneState) error {
	vrf := vrfName(s.zone.ID)
	if !s.published {
		s.published = true
		if err := n.mounts.publish(s.ns, vrf); err != nil {
			return err
		}
	}
	err := await(ctx, "zebra to see "+vrf, func(ctx context.Context) (bool, error) {
		text, err := n.zebra.ask(ctx, "show vrf")
		return strings.Contains(string(text), "vrf "+vrf+" id "), err
	})
	if err != nil {
		return err
	}
	if s.vrf == s.zone.VRF {
		return nil
	}
	if s.vrf != 0 {
		if err := f.unsetVRF(ctx, n, s); err != nil {
			return err
		}
	}
	s.vrf = s.zone.VRF
	if err := n.zebra.configure(ctx, "vrf "+vrf, fmt.Sprintf("vni %d", s.vrf)); err != nil {
		return err
	}
	return n.bgpd.configure(ctx, fmt.Sprintf("router bgp %d vrf %s", f.cfg.ASN, vrf), "bgp router-id "+n.address.String())
}

// unsetVRF takes the zone's VNI and its BGP instance away. bgpd refuses until
// it has heard from zebra that the VNI is gone.
func (f *Fabric) unsetVRF(ctx context.Context, n *node, s *zoneState) error {
	vrf := vrfName(s.zone.ID)
	if s.vrf != 0 {
		// The answer is an error when an earlier attempt came this far.
		_ = n.zebra.configure(ctx, "vrf "+vrf, fmt.Sprintf("no vni %d", s.vrf))
	}
	var last error
	err := await(ctx, "BGP to leave "+vrf, func(ctx context.Context) (bool, error) {
		if !n.bgpd.running() {
			return true, nil
		}
		if last = n.bgpd.configure(ctx, fmt.Sprintf("no router bgp %d vrf %s", f.cfg.ASN, vrf)); last == nil {
			return true, nil
		}
		gone, err := n.bgpd.hasNoVRF(ctx, vrf)
		return gone, err
	})
	if err != nil {
		return errors.Join(err, last)
	}
	s.vrf = 0
	return nil
}

func (f *Fabric) unrouteZone(ctx context.Context, n *node, s *zoneState) error {
	if err := f.unsetVRF(ctx, n, s); err != nil {
		return err
	}
	if err := f.removeLinks(ctx, n, s, Zone{ID: s.zone.ID, Kind: s.zone.Kind, VRF: 0}); err != nil {
		return err
	}
	vrf := vrfName(s.zone.ID)
	if err := n.mounts.hide(vrf); err != nil {
		return err
	}
	s.published = false
	return await(ctx, "zebra to leave "+vrf, func(ctx context.Context) (bool, error) {
		return !n.zebra.running() || n.zebra.configure(ctx, "no vrf "+vrf) == nil, nil
	})
}
