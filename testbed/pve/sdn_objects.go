package pve

import (
	"fmt"
	"strings"
)

// sdnSee are the privileges with which an object is listed.
var sdnSee = []string{"SDN.Audit", "SDN.Allocate"}

// createSDN makes a new object; check may refuse and complete it.
func (c *call) createSDN(kind, id, typ string, check func(sdnConfig, options) error) error {
	k := c.s.sdnKinds[kind]
	o, err := k.read(c, typ, true)
	if err != nil {
		return err
	}
	return c.writeSDN("create "+k.name+" failed", func(conf sdnConfig) error {
		if _, ok := conf[kind][id]; ok {
			return fail("%s ID '%s' already defined", k.name, id)
		}
		conf.set(kind, id, o)
		return check(conf, o)
	})
}

// updateSDN changes an object.
func (c *call) updateSDN(kind string, check func(conf sdnConfig, old, o options) error) error {
	k := c.s.sdnKinds[kind]
	id := c.p.Str(k.id)
	return c.writeSDN("update "+k.name+" failed", func(conf sdnConfig) error {
		if d := c.p.Str("digest"); d != "" && d != conf.digest(kind) {
			return errModified()
		}
		old, ok := conf[kind][id]
		if !ok {
			return k.missing(id)
		}
		set, err := k.read(c, old["type"], false)
		if err != nil {
			return err
		}
		o, err := k.change(c, old, set)
		if err != nil {
			return err
		}
		conf.set(kind, id, o)
		return check(conf, old, o)
	})
}

// deleteSDN removes an object; check may refuse.
func (c *call) deleteSDN(kind string, check func(conf sdnConfig, id string) error) error {
	k := c.s.sdnKinds[kind]
	id := c.p.Str(k.id)
	return c.writeSDN("delete "+k.name+" failed", func(conf sdnConfig) error {
		if _, ok := conf[kind][id]; !ok {
			return k.missing(id)
		}
		if err := check(conf, id); err != nil {
			return err
		}
		delete(conf[kind], id)
		return nil
	})
}

// listControllers is GET /cluster/sdn/controllers.
func listControllers(c *call) (any, error) {
	return c.listSDN(sdnControllers, func(id string, item map[string]any) bool {
		return c.may("/sdn/controllers/"+id, sdnSee...) && c.ofType(item)
	}), nil
}

// ofType reports whether the call asks for objects of this one's type.
func (c *call) ofType(item map[string]any) bool {
	t := c.p.Str("type")
	return t == "" || t == item["type"]
}

func readController(c *call) (any, error) { return c.readSDN(sdnControllers) }

// createController is POST /cluster/sdn/controllers.
func createController(c *call) (any, error) {
	id := c.p.Str("controller")
	return nil, c.createSDN(sdnControllers, id, c.p.Str("type"), func(conf sdnConfig, o options) error {
		return c.s.checkController(conf, id, o)
	})
}

// updateController is PUT /cluster/sdn/controllers/{controller}.
func updateController(c *call) (any, error) {
	return nil, c.updateSDN(sdnControllers, func(conf sdnConfig, _, o options) error {
		return c.s.checkController(conf, c.p.Str("controller"), o)
	})
}

func (s *Server) checkController(conf sdnConfig, id string, o options) error {
	if s.cfg.major() >= "9" && (o["peers"] == "") == (o["fabric"] == "") {
		return fail("must have exactly one of peers / fabric defined%s", place)
	}
	if o["fabric"] != "" {
		return fail("fabric '%s' does not exist", o["fabric"])
	}
	for _, other := range conf.ids(sdnControllers) {
		if other != id && conf[sdnControllers][other]["type"] == "evpn" {
			return fail("only 1 global evpn controller can be defined%s", place)
		}
	}
	return nil
}

// deleteController is DELETE /cluster/sdn/controllers/{controller}.
func deleteController(c *call) (any, error) {
	return nil, c.deleteSDN(sdnControllers, func(conf sdnConfig, id string) error {
		for _, zone := range conf.ids(sdnZones) {
			if conf[sdnZones][zone]["controller"] == id {
				return fail("controller %s is used by %s%s", id, zone, place)
			}
		}
		return nil
	})
}

// listZones is GET /cluster/sdn/zones.
func listZones(c *call) (any, error) {
	return c.listSDN(sdnZones, func(id string, item map[string]any) bool {
		return c.may("/sdn/zones/"+id, sdnSee...) && c.ofType(item)
	}), nil
}

func readZone(c *call) (any, error) { return c.readSDN(sdnZones) }

// createZone is POST /cluster/sdn/zones.
func createZone(c *call) (any, error) {
	id := c.p.Str("zone")
	return nil, c.createSDN(sdnZones, id, c.p.Str("type"), func(conf sdnConfig, o options) error {
		return c.s.checkZone(conf, id, o)
	})
}

// updateZone is PUT /cluster/sdn/zones/{zone}.
func updateZone(c *call) (any, error) {
	return nil, c.updateSDN(sdnZones, func(conf sdnConfig, _, o options) error {
		return c.s.checkZone(conf, c.p.Str("zone"), o)
	})
}

// checkZone refuses a zone that does not fit, and gives an evpn zone its MAC.
func (s *Server) checkZone(conf sdnConfig, id string, o options) error {
	for _, name := range []string{"dns", "reversedns"} {
		if o[name] != "" {
			return badParam(name, "%s not existing", o[name])
		}
	}
	switch {
	case o["dnszone"] != "":
		return badParam("dnszone", "missing dns server")
	case o["ipam"] != "" && o["ipam"] != "pve":
		return badParam("ipam", "%s not existing", o["ipam"])
	}
	switch o["type"] {
	case "vxlan":
		if s.cfg.major() >= "9" && (o["peers"] == "") == (o["fabric"] == "") {
			const text = "must have exactly one of peers / fabric defined"
			return badParams(map[string]string{"fabric": text, "peers": text})
		}
		if o["fabric"] != "" {
			return fail("fabric '%s' does not exist", o["fabric"])
		}
	case "evpn":
		if _, ok := conf[sdnControllers][o["controller"]]; !ok {
			return fail("controller %s don't exist%s", o["controller"], place)
		}
		for _, other := range conf.ids(sdnZones) {
			if z := conf[sdnZones][other]; other != id && z["type"] == "evpn" && z["vrf-vxlan"] == o["vrf-vxlan"] {
				return fail("vrf-vxlan %s is already declared in %s%s", o["vrf-vxlan"], other, place)
			}
		}
		if o["mac"] == "" {
			o["mac"] = newMAC()
		}
	}
	return nil
}

// deleteZone is DELETE /cluster/sdn/zones/{zone}.
func deleteZone(c *call) (any, error) {
	return nil, c.deleteSDN(sdnZones, func(conf sdnConfig, id string) error {
		for _, vnet := range conf.ids(sdnVNets) {
			if conf[sdnVNets][vnet]["zone"] == id {
				return fail("zone %s is used by vnet %s%s", id, vnet, place)
			}
		}
		return nil
	})
}

// mayVNet refuses unless the vnet exists and the caller has one of the
// privileges on it; it returns the vnet's zone.
func (c *call) mayVNet(vnet string, privs ...string) (zone string, err error) {
	o, ok := c.s.sdnNow().Config[sdnVNets][vnet]
	if !ok {
		return "", c.s.sdnKinds[sdnVNets].missing(vnet)
	}
	return o["zone"], checkPrivs(c.s.access, c.who, fmt.Sprintf("/sdn/zones/%s/%s", o["zone"], vnet), true, privs...)
}

// subnetID is the id of a subnet of a zone.
func subnetID(zone, cidr string) string { return zone + "-" + strings.Replace(cidr, "/", "-", 1) }
