package pve

import (
	"net/netip"
	"strconv"
)

// listVNets is GET /cluster/sdn/vnets.
func listVNets(c *call) (any, error) {
	return c.listSDN(sdnVNets, func(id string, item map[string]any) bool {
		return c.may("/sdn/zones/"+effective(item, "zone")+"/"+id, sdnSee...)
	}), nil
}

// readVNet is GET /cluster/sdn/vnets/{vnet}.
func readVNet(c *call) (any, error) {
	item, err := c.readSDN(sdnVNets)
	if err != nil {
		return nil, err
	}
	at := "/sdn/zones/" + effective(item, "zone") + "/" + c.p.Str("vnet")
	return item, checkPrivs(c.s.access, c.who, at, true, sdnSee...)
}

// createVNet is POST /cluster/sdn/vnets.
func createVNet(c *call) (any, error) {
	id := c.p.Str("vnet")
	return nil, c.createSDN(sdnVNets, id, "vnet", func(conf sdnConfig, o options) error {
		return checkVNet(conf, id, o)
	})
}

// updateVNet is PUT /cluster/sdn/vnets/{vnet}.
func updateVNet(c *call) (any, error) {
	id := c.p.Str("vnet")
	if _, err := c.mayVNet(id, "SDN.Allocate"); err != nil {
		return nil, err
	}
	if zone := c.p.Str("zone"); zone != "" {
		if err := c.need("/sdn/zones/"+zone, "SDN.Allocate"); err != nil {
			return nil, err
		}
	}
	return nil, c.updateSDN(sdnVNets, func(conf sdnConfig, old, o options) error {
		if o["zone"] != old["zone"] && len(subnetsOf(conf, id)) > 0 {
			return badParam("zone", "can't change zone if subnets exists")
		}
		return checkVNet(conf, id, o)
	})
}

// maxVNI is the greatest number of a virtual network.
const maxVNI = 16777216

// checkVNet asks the zone's type whether the vnet fits.
func checkVNet(conf sdnConfig, id string, o options) error {
	zone, ok := conf[sdnZones][o["zone"]]
	if !ok {
		return fail("cannot lookup undefined type!%s", place)
	}
	tag, hasTag := o["tag"]
	if zone["type"] == "simple" {
		if hasTag {
			return badParam("tag", "vlan tag is not allowed on simple zone")
		}
		return nil
	}
	n, err := strconv.Atoi(tag)
	switch {
	case zone["type"] == "evpn" && o["vlanaware"] == "1":
		return badParam("vlan-aware", "vlan-aware option can't be enabled with evpn")
	case !hasTag:
		return badParam("tag", "missing vxlan tag")
	case err != nil || n > maxVNI:
		return badParam("tag", "vxlan tag max value is %d", maxVNI)
	case n == 0: // 8.x lets it be
		return nil
	}
	for _, other := range conf.ids(sdnVNets) { // zones without tags have none
		if v := conf[sdnVNets][other]; other != id && v["tag"] == tag {
			return badParam("tag", "vxlan tag %s already exist in vnet %s in zone %s ", tag, other, v["zone"])
		}
	}
	return nil
}

// deleteVNet is DELETE /cluster/sdn/vnets/{vnet}. VMs that use it are not asked.
func deleteVNet(c *call) (any, error) {
	if _, err := c.mayVNet(c.p.Str("vnet"), "SDN.Allocate"); err != nil {
		return nil, err
	}
	return nil, c.deleteSDN(sdnVNets, func(conf sdnConfig, id string) error {
		if len(subnetsOf(conf, id)) > 0 {
			return badParam("vnet", "Can't delete vnet if subnets exists")
		}
		return nil
	})
}

// subnetsOf lists the subnets of a vnet.
func subnetsOf(conf sdnConfig, vnet string) []string {
	var out []string
	for _, id := range conf.ids(sdnSubnets) {
		if conf[sdnSubnets][id]["vnet"] == vnet {
			out = append(out, id)
		}
	}
	return out
}

// listSubnets is GET /cluster/sdn/vnets/{vnet}/subnets.
func listSubnets(c *call) (any, error) {
	vnet := c.p.Str("vnet")
	if _, err := c.mayVNet(vnet, sdnSee...); err != nil {
		return nil, err
	}
	return c.listSDN(sdnSubnets, func(_ string, item map[string]any) bool { return item["vnet"] == vnet }), nil
}

// readSubnet is GET /cluster/sdn/vnets/{vnet}/subnets/{subnet}.
func readSubnet(c *call) (any, error) {
	if _, err := c.mayVNet(c.p.Str("vnet"), sdnSee...); err != nil {
		return nil, err
	}
	item, err := c.readSDN(sdnSubnets)
	if err != nil {
		return nil, err
	}
	if item["vnet"] != c.p.Str("vnet") {
		return nil, badParam("vnet", "wrong vnet")
	}
	return item, nil
}

// createSubnet is POST /cluster/sdn/vnets/{vnet}/subnets.
func createSubnet(c *call) (any, error) {
	zone, err := c.mayVNet(c.p.Str("vnet"), "SDN.Allocate")
	if err != nil {
		return nil, err
	}
	id := subnetID(zone, c.p.Str("subnet"))
	return nil, c.createSDN(sdnSubnets, id, "subnet", func(conf sdnConfig, o options) error {
		// the vnet was looked up before the configuration was held
		if _, ok := conf[sdnVNets][o["vnet"]]; !ok {
			return c.s.sdnKinds[sdnVNets].missing(o["vnet"])
		}
		return checkSubnet(id, o)
	})
}

// updateSubnet is PUT /cluster/sdn/vnets/{vnet}/subnets/{subnet}.
func updateSubnet(c *call) (any, error) {
	if _, err := c.mayVNet(c.p.Str("vnet"), "SDN.Allocate"); err != nil {
		return nil, err
	}
	return nil, c.updateSDN(sdnSubnets, func(_ sdnConfig, old, o options) error {
		if old["vnet"] != o["vnet"] {
			return badParam("vnet", "wrong vnet")
		}
		return checkSubnet(c.p.Str("subnet"), o)
	})
}

func checkSubnet(id string, o options) error {
	cidr := cidrOf(id)
	network, err := netip.ParsePrefix(cidr)
	if err != nil {
		return badParam("subnet", "value does not look like a valid CIDR network")
	}
	within := func(name, text string) error {
		if a, err := netip.ParseAddr(text); text != "" && (err != nil || !network.Masked().Contains(a)) {
			return badParam(name, "%s is not in subnet %s", text, cidr)
		}
		return nil
	}
	if err := within("gateway", o["gateway"]); err != nil {
		return err
	}
	for _, r := range dhcpRanges(o["dhcp-range"]) {
		for _, end := range []string{"start-address", "end-address"} {
			if err := within("dhcp-range", r[end]); err != nil {
				return err
			}
		}
	}
	return nil
}

// deleteSubnet is DELETE /cluster/sdn/vnets/{vnet}/subnets/{subnet}; one that
// is not there is no error.
func deleteSubnet(c *call) (any, error) {
	if _, err := c.mayVNet(c.p.Str("vnet"), "SDN.Allocate"); err != nil {
		return nil, err
	}
	return nil, c.writeSDN("delete "+c.s.sdnKinds[sdnSubnets].name+" failed", func(conf sdnConfig) error {
		id := c.p.Str("subnet")
		if o, ok := conf[sdnSubnets][id]; ok && o["vnet"] != c.p.Str("vnet") {
			return badParam("vnet", "wrong vnet")
		}
		delete(conf[sdnSubnets], id)
		return nil
	})
}
