package pve

import (
	"maps"
	"net/netip"
	"slices"
	"strconv"
)

// vnetStatus is what a node tells of one vnet.
type vnetStatus struct{ zone, status, message string }

// nodeSDN is the state of the zones and vnets on a node, as far as they are
// applied: "available", "pending" (the node has not begun to reload) or
// "error".
func (k sdnKept) nodeSDN(node string) (zones map[string]string, vnets map[string]vnetStatus) {
	zones, vnets = map[string]string{}, map[string]vnetStatus{}
	n, now := k.Nodes[node], k.snapshot()
	late := ""
	switch {
	case n.Version == 0:
		late = "local sdn network configuration is not yet generated, please reload"
	case n.Version < k.Version:
		late = "local sdn network configuration is too old, please reload"
	}
	for _, z := range now.Zones {
		switch {
		case !z.On(node):
		case late != "":
			zones[z.ID] = "pending"
		case n.Failed:
			zones[z.ID] = "error"
		default:
			zones[z.ID] = "available"
		}
	}
	for _, v := range now.VNets {
		if !now.zoneOn(v.Zone, node) {
			continue
		}
		st := vnetStatus{zone: v.Zone, status: "available"}
		switch {
		case late != "":
			st.status, st.message = "pending", late
		case !slices.Contains(n.Bridges, v.ID):
			st.status, st.message = "error", "missing "+v.ID
			zones[v.Zone] = "error"
		case n.Failed:
			st.status, st.message = "error", "error "+v.ID
		}
		vnets[v.ID] = st
	}
	return zones, vnets
}

// bridgeExists reports whether VMs on the node can be attached to a bridge.
func (s *Server) bridgeExists(node, bridge string) bool {
	return slices.Contains(s.cfg.Bridges, bridge) || slices.Contains(s.sdnNow().Nodes[node].Bridges, bridge)
}

// node is the node in the path.
func (c *call) node() string {
	if n := c.p.Str("node"); n != "localhost" {
		return n
	}
	return c.s.cfg.Node
}

// nodeZones is GET /nodes/{node}/sdn/zones.
func nodeZones(c *call) (any, error) {
	zones, _ := c.s.sdnNow().nodeSDN(c.node())
	out := []map[string]any{}
	for _, id := range slices.Sorted(maps.Keys(zones)) {
		if c.may("/sdn/zones/"+id, "SDN.Audit") {
			out = append(out, map[string]any{"zone": id, "status": zones[id]})
		}
	}
	return out, nil
}

// zoneContent is GET /nodes/{node}/sdn/zones/{zone}/content; a zone that is
// not there is empty.
func zoneContent(c *call) (any, error) {
	_, vnets := c.s.sdnNow().nodeSDN(c.node())
	out := []map[string]any{}
	for _, id := range slices.Sorted(maps.Keys(vnets)) {
		st := vnets[id]
		if st.zone != c.p.Str("zone") {
			continue
		}
		item := map[string]any{"vnet": id, "status": st.status, "statusmsg": nil}
		if st.message != "" {
			item["statusmsg"] = st.message
		}
		out = append(out, item)
	}
	return out, nil
}

// zoneBridges is GET /nodes/{node}/sdn/zones/{zone}/bridges: the bridges that
// exist on the node with the network cards of running VMs.
func zoneBridges(c *call) (any, error) {
	s, zone, node := c.s, c.p.Str("zone"), c.node()
	now := s.sdnNow()
	bridges := []string{}
	if zone == localZone {
		bridges = s.cfg.Bridges
	}
	for _, id := range now.Nodes[node].Bridges {
		if now.Running[sdnVNets][id]["zone"] == zone {
			bridges = append(bridges, id)
		}
	}
	out := []map[string]any{}
	for _, id := range bridges {
		ports := []map[string]any{}
		for _, p := range s.portsOf(id) {
			ports = append(ports, map[string]any{"name": p.name, "vmid": p.vmid, "index": p.nic.Slot})
		}
		filtering := "0"
		if now.Running[sdnVNets][id]["vlanaware"] == "1" {
			filtering = "1"
		}
		out = append(out, map[string]any{"name": id, "vlan_filtering": filtering, "ports": ports})
	}
	return out, nil
}

// port is a running VM's network card on a bridge.
type port struct {
	name string
	vmid int
	nic  NIC
}

func (s *Server) portsOf(bridge string) []port {
	var out []port
	for _, vmid := range s.vmids() {
		conf, err := s.peek(vmid)
		if err != nil || !s.cfg.Machines.Status(vmid).Running {
			continue
		}
		for _, nic := range s.vmOpts.nics(conf.main) {
			if nic.Bridge == bridge {
				_, n := splitName(nic.Slot)
				out = append(out, port{name: "tap" + itoa(vmid) + "i" + strconv.Itoa(n), vmid: vmid, nic: nic})
			}
		}
	}
	return out
}

// zoneRoutes is GET /nodes/{node}/sdn/zones/{zone}/ip-vrf: the routing table of
// an evpn zone, or, where no fabric knows it, the routes that the zone's subnets
// make by themselves.
func zoneRoutes(c *call) (any, error) {
	zone, node, now := c.p.Str("zone"), c.node(), c.s.sdnNow()
	if now.Running[sdnZones][zone]["type"] != "evpn" {
		return nil, fail("zone %s is not an EVPN zone", zone)
	}
	out := []map[string]any{}
	if tables, ok := c.s.cfg.Fabric.(RouteTables); ok {
		routes, err := tables.ZoneRoutes(c.ctx, node, zone)
		if err != nil {
			return nil, fail("could not query routes of zone %s: %v", zone, err)
		}
		for _, r := range routes {
			hops := r.NextHops
			if hops == nil {
				hops = []string{}
			}
			out = append(out, map[string]any{"ip": r.Prefix.String(), "metric": r.Metric, "protocol": r.Protocol, "nexthops": hops})
		}
		return out, nil
	}
	for _, sub := range now.snapshot().Subnets {
		if now.Running[sdnVNets][sub.VNet]["zone"] == zone && slices.Contains(now.Nodes[node].Bridges, sub.VNet) {
			out = append(out, map[string]any{"ip": sub.CIDR.Masked().String(), "metric": 0, "protocol": "kernel", "nexthops": []string{sub.VNet}})
		}
	}
	return out, nil
}

// vnetMACs is GET /nodes/{node}/sdn/vnets/{vnet}/mac-vrf: the guests of an evpn
// vnet that the fabric's daemons know, or, without one, those that run and have
// an address in their configuration.
func vnetMACs(c *call) (any, error) {
	vnet, now := c.p.Str("vnet"), c.s.sdnNow()
	v, ok := now.Running[sdnVNets][vnet]
	if !ok {
		return nil, c.s.sdnKinds[sdnVNets].missing(vnet)
	}
	zone := now.Running[sdnZones][v["zone"]]
	if err := c.need("/sdn/zones/"+v["zone"]+"/"+vnet, "SDN.Audit"); err != nil {
		return nil, err
	}
	if zone["type"] != "evpn" {
		return nil, fail("vnet %s is not in an EVPN zone", vnet)
	}
	out := []map[string]any{}
	if tables, ok := c.s.cfg.Fabric.(RouteTables); ok {
		guests, err := tables.VNetMACs(c.ctx, c.node(), vnet)
		if err != nil {
			return nil, fail("could not query guests of vnet %s: %v", vnet, err)
		}
		for _, g := range guests {
			out = append(out, map[string]any{"ip": g[0], "mac": g[1], "nexthop": g[2]})
		}
		return out, nil
	}
	nexthop := ""
	if peers := addrs(now.Running[sdnControllers][zone["controller"]]["peers"]); len(peers) > 0 {
		nexthop = peers[0].String()
	}
	for _, p := range c.s.portsOf(vnet) {
		conf, err := c.s.peek(p.vmid)
		if err != nil {
			continue
		}
		_, n := splitName(p.nic.Slot)
		ip, err := c.s.vmOpts.byName["ipconfig0"].Props.Parse("ipconfig", conf.main["ipconfig"+strconv.Itoa(n)])
		if err != nil {
			continue
		}
		if a, err := netip.ParsePrefix(ip["ip"]); err == nil {
			out = append(out, map[string]any{"ip": a.Addr().String(), "mac": p.nic.MAC, "nexthop": nexthop})
		}
	}
	return out, nil
}

// zoneResources are the zones in /cluster/resources.
func (c *call) zoneResources() []map[string]any {
	s, now := c.s, c.s.sdnNow()
	var out []map[string]any
	for _, node := range s.nodeNames() {
		zones, _ := now.nodeSDN(node)
		zones[localZone] = "ok"
		for _, zone := range slices.Sorted(maps.Keys(zones)) {
			if c.may("/sdn/zones/"+zone, "SDN.Audit", "SDN.Use") {
				out = append(out, s.zoneResource(node, zone, zones[zone]))
			}
		}
	}
	return out
}

// vnetInterfaces are the vnets of a node in its list of networks.
func (c *call) vnetInterfaces(node string) []map[string]any {
	now := c.s.sdnNow()
	run := now.snapshot()
	var out []map[string]any
	for _, v := range run.VNets {
		if !run.zoneOn(v.Zone, node) || !c.may("/sdn/zones/"+v.Zone+"/"+v.ID, "SDN.Audit", "SDN.Use") {
			continue
		}
		item := map[string]any{"iface": v.ID, "type": "vnet", "active": "1", "vlanaware": 0, "ipam": 0}
		if v.VLANAware {
			item["vlanaware"] = 1
		}
		if now.Running[sdnZones][v.Zone]["ipam"] != "" {
			item["ipam"] = 1
		}
		out = append(out, item)
	}
	return out
}
