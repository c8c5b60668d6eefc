package fabric

import (
	"context"
	"fmt"
	"slices"

	"savepoint/orchestrator"
	"savepoint/proxmox/evpn"
)

// ZoneRoutes reads the routing table of an EVPN zone from a node's zebra: what
// is installed, of both families, in a stable order. Guests of the node itself
// have no route: its bridges reach them.
func (f *Fabric) ZoneRoutes(ctx context.Context, name, zone string) ([]orchestrator.ZoneRoute, error) {
	n, err := f.node(name)
	if err != nil {
		return nil, err
	}
	n.mu.Lock()
	s := n.zones[zone]
	n.mu.Unlock()
	if s == nil || s.zone.Kind != EVPN {
		return nil, fmt.Errorf("node %s has no EVPN zone %q", name, zone)
	}
	var out []orchestrator.ZoneRoute
	for _, family := range []string{"ip", "ipv6"} {
		text, err := n.zebra.ask(ctx, "show "+family+" route vrf "+vrfName(zone)+" json")
		if err != nil {
			return nil, fmt.Errorf("read the routes of zone %s on node %s: %w", zone, name, err)
		}
		more, err := evpn.Parse(text)
		if err != nil {
			return nil, fmt.Errorf("read the routes of zone %s on node %s: %w", zone, name, err)
		}
		out = append(out, more...)
	}
	return out, nil
}

// VNetMACs lists the guests of a vnet that a node's BGP knows with an address,
// its own and those of other nodes: IP address, MAC address, and the address of
// the node.
func (f *Fabric) VNetMACs(ctx context.Context, name, vnet string) ([][3]string, error) {
	n, err := f.node(name)
	if err != nil {
		return nil, err
	}
	n.mu.Lock()
	s, v := n.vnet(vnet)
	n.mu.Unlock()
	if s == nil || s.zone.Kind != EVPN {
		return nil, fmt.Errorf("node %s has no EVPN vnet %q", name, vnet)
	}
	routes, err := f.Routes(ctx, name)
	if err != nil {
		return nil, err
	}
	var out [][3]string
	for _, r := range routes {
		if r.Type == MACRoute && r.IP != "" && slices.Contains(r.VNIs, v.VNI) {
			out = append(out, [3]string{r.IP, r.MAC, r.NextHop})
		}
	}
	return out, nil
}

// Sockets is the directory of a node's routing daemons' command sockets, for
// FRR's vtysh.
func (f *Fabric) Sockets(name string) (string, error) {
	n, err := f.node(name)
	if err != nil {
		return "", err
	}
	return n.run, nil
}
