package fabric

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Types of EVPN routes (RFC 7432 and 9136).
const (
	MACRoute       = 2 // a guest, with or without its IP address
	MulticastRoute = 3 // a node takes part in a VNI
	PrefixRoute    = 5 // a subnet
)

// Route is one valid EVPN route that a node has.
type Route struct {
	Type    int
	VNIs    []uint32 // from its route targets: the vnet's and, for a routed guest, the zone's
	MAC     string   // type 2
	IP      string   // type 2, if it has one; the node's address for type 3
	NextHop string   // the underlay address of the node it leads to
	Local   bool     // it is this node's own
}

// Routes lists the EVPN routes of a node, in a stable order.
func (f *Fabric) Routes(ctx context.Context, name string) ([]Route, error) {
	n, err := f.node(name)
	if err != nil {
		return nil, err
	}
	text, err := n.bgpd.ask(ctx, "show bgp l2vpn evpn json")
	if err != nil {
		return nil, fmt.Errorf("read the EVPN routes of node %s: %w", name, err)
	}
	routes, err := parseRoutes(text, n.address)
	if err != nil {
		return nil, fmt.Errorf("read the EVPN routes of node %s: %w", name, err)
	}
	return routes, nil
}

var routeTarget = regexp.MustCompile(`RT:\d+:(\d+)`)

// parseRoutes reads the answer of "show bgp l2vpn evpn json": an object whose
// members are numbers and strings about the table, and one object for each
// route distinguisher, which has a string "rd" and an object for each route.
func parseRoutes(text []byte, own netip.Addr) ([]Route, error) {
	var table map[string]json.RawMessage
	if err := json.Unmarshal(text, &table); err != nil {
		return nil, err
	}
	var out []Route
	for _, rd := range slices.Sorted(maps.Keys(table)) {
		var members map[string]json.RawMessage
		if json.Unmarshal(table[rd], &members) != nil || members["rd"] == nil {
			continue
		}
		for _, prefix := range slices.Sorted(maps.Keys(members)) {
			if !strings.HasPrefix(prefix, "[") {
				continue
			}
			var route struct {
				Paths []struct {
					Valid     bool
					RouteType int
					MAC, IP   string
					Extended  struct{ String string } `json:"extendedCommunity"`
					Nexthops  []struct{ IP string }
				}
			}
			if err := json.Unmarshal(members[prefix], &route); err != nil {
				return nil, fmt.Errorf("route %s: %w", prefix, err)
			}
			for _, p := range route.Paths {
				if !p.Valid || len(p.Nexthops) == 0 {
					continue
				}
				r := Route{Type: p.RouteType, MAC: p.MAC, IP: p.IP, NextHop: p.Nexthops[0].IP}
				r.Local = r.NextHop == own.String()
				for _, m := range routeTarget.FindAllStringSubmatch(p.Extended.String, -1) {
					if vni, err := strconv.ParseUint(m[1], 10, 32); err == nil {
						r.VNIs = append(r.VNIs, uint32(vni))
					}
				}
				out = append(out, r)
			}
		}
	}
	return out, nil
}

// Status is how a node is.
type Status struct {
	Node    string
	Address netip.Addr
	Running bool              // both routing daemons run
	Peers   map[string]string // state of the BGP session with each other node, by its name
	VNIs    map[uint32][]string
	// VNIs has, for each VNI that the node takes part in, the names of the other nodes that do.
	Zones []string
}

// Established reports whether the node runs and speaks with all others.
func (s Status) Established() bool {
	for _, state := range s.Peers {
		if state != "Established" {
			return false
		}
	}
	return s.Running
}

// Status asks a node's routing daemons. One that does not run is no error.
func (f *Fabric) Status(ctx context.Context, name string) (Status, error) {
	n, err := f.node(name)
	if err != nil {
		return Status{}, err
	}
	st := Status{Node: name, Address: n.address, Running: n.zebra.running() && n.bgpd.running(), Peers: map[string]string{}, VNIs: map[uint32][]string{}}
	names := map[string]string{}
	for _, p := range f.nodes {
		names[p.address.String()] = p.name
		if p != n {
			st.Peers[p.name] = "unknown"
		}
	}
	n.mu.Lock()
	st.Zones = slices.Sorted(maps.Keys(n.zones))
	n.mu.Unlock()
	if !st.Running {
		return st, nil
	}
	text, err := n.bgpd.ask(ctx, "show bgp l2vpn evpn summary json")
	if err == nil {
		err = readPeers(text, names, st.Peers)
	}
	if err == nil {
		text, err = n.zebra.ask(ctx, "show evpn vni json")
	}
	if err == nil {
		err = readVNIs(text, names, st.VNIs)
	}
	if err != nil {
		return st, fmt.Errorf("read the status of node %s: %w", name, err)
	}
	return st, nil
}

func readPeers(text []byte, names, peers map[string]string) error {
	var summary struct {
		Peers map[string]struct{ State string }
	}
	if err := json.Unmarshal(text, &summary); err != nil {
		return err
	}
	for address, p := range summary.Peers {
		peers[names[address]] = p.State
	}
	return nil
}

func readVNIs(text []byte, names map[string]string, vnis map[uint32][]string) error {
	var all map[string]struct {
		VNI    uint32
		Remote []string `json:"remoteVteps"`
	}
	if err := json.Unmarshal(text, &all); err != nil {
		return err
	}
	for _, v := range all {
		remote := []string{}
		for _, address := range v.Remote {
			remote = append(remote, names[address])
		}
		slices.Sort(remote)
		vnis[v.VNI] = remote
	}
	return nil
}

// hasNoVRF reports whether bgpd has no instance of a VRF.
func (d *daemon) hasNoVRF(ctx context.Context, vrf string) (bool, error) {
	text, err := d.ask(ctx, "show bgp vrfs json")
	if err != nil {
		return false, err
	}
	var all struct{ VRFs map[string]json.RawMessage }
	if err := json.Unmarshal(text, &all); err != nil {
		return false, err
	}
	_, has := all.VRFs[vrf]
	return !has, nil
}
