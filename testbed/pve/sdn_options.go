package pve

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"savepoint/testbed/pve/schema"
)

// sdnKind describes one kind of objects.
type sdnKind struct {
	key  string // in the configuration
	name string // in errors: "sdn zone object"
	// noun begins the text of a missing one: "sdn 'x' does not exist".
	noun string
	id   string // the parameter that names one
	// types are the options of each type, true for those that it needs.
	types map[string]map[string]bool
}

func sdnOptions(required string, optional ...string) map[string]bool {
	out := map[string]bool{}
	for _, name := range optional {
		out[name] = false
	}
	for _, name := range schema.SplitList(required) {
		out[name] = true
	}
	return out
}

// sdnKindsOf describes the kinds of a version. Types that are not here are
// known to the schema and refused by name: vlan and qinq zones, bgp and the
// other controllers.
func sdnKindsOf(major string) map[string]sdnKind {
	common := []string{"nodes", "mtu", "dns", "reversedns", "dnszone", "ipam"}
	with := func(more ...string) []string { return append(slices.Clone(common), more...) }
	peers, controller := "peers", "asn,peers"
	either := []string{}
	if major >= "9" { // peers or a fabric
		peers, controller, either = "", "asn", []string{"peers", "fabric"}
	}
	return map[string]sdnKind{
		sdnControllers: {
			key: sdnControllers, name: "sdn controller object", noun: "sdn", id: "controller",
			types: map[string]map[string]bool{"evpn": sdnOptions(controller, either...)},
		},
		sdnZones: {
			key: sdnZones, name: "sdn zone object", noun: "sdn", id: "zone",
			types: map[string]map[string]bool{
				"simple": sdnOptions("", with("dhcp")...),
				"vxlan":  sdnOptions(peers, append(with("vxlan-port"), either...)...),
				"evpn": sdnOptions("controller,vrf-vxlan", with(
					"exitnodes", "exitnodes-local-routing", "exitnodes-primary", "advertise-subnets",
					"disable-arp-nd-suppression", "bridge-disable-mac-learning", "rt-import", "vxlan-port", "mac",
				)...),
			},
		},
		sdnVNets: {
			key: sdnVNets, name: "sdn vnet object", noun: "sdn vnet", id: "vnet",
			types: map[string]map[string]bool{"vnet": sdnOptions("zone", "tag", "alias", "vlanaware", "isolate-ports")},
		},
		sdnSubnets: {
			key: sdnSubnets, name: "sdn subnet object", noun: "sdn subnet", id: "subnet",
			types: map[string]map[string]bool{
				"subnet": sdnOptions("", "vnet", "gateway", "snat", "dnszoneprefix", "dhcp-range", "dhcp-dns-server"),
			},
		},
	}
}

// missing is the complaint about an object that is not there.
func (k sdnKind) missing(id string) error { return fail("%s '%s' does not exist", k.noun, id) }

// notOptions are parameters of writes that are no options of the object.
var notOptions = []string{"type", "digest", "delete", "lock-token"}

// read takes an object's options from a call's parameters.
func (k sdnKind) read(c *call, kind string, create bool) (options, error) {
	known, ok := k.types[kind]
	if !ok {
		return nil, fail("%s of type '%s' is not supported by this server", k.name, kind)
	}
	o := options{}
	for _, name := range slices.Sorted(maps.Keys(c.p)) {
		if name == k.id || slices.Contains(notOptions, name) {
			continue
		}
		if _, ok := known[name]; !ok {
			return nil, fail("unexpected property '%s'", name)
		}
		o[name] = c.p.Str(name)
		for _, part := range c.p.Strings(name) { // ranges of addresses
			if _, err := dhcpRange.Parse(name, part); err != nil {
				return nil, badParam(name, "invalid format - %v", err)
			}
			o[name] = strings.TrimPrefix(o[name]+";"+part, ";")
		}
	}
	if !create {
		return o, nil
	}
	for _, name := range slices.Sorted(maps.Keys(known)) {
		if known[name] && o[name] == "" {
			return nil, fail("missing value for required option '%s'", name)
		}
	}
	o["type"] = kind
	return o, nil
}

// change gives an object new options and takes off those that the call deletes.
func (k sdnKind) change(c *call, old, set options) (options, error) {
	o := maps.Clone(old)
	for _, name := range schema.SplitList(c.p.Str("delete")) {
		needed, ok := k.types[o["type"]][name]
		_, both := set[name]
		switch {
		case !ok:
			return nil, fail("no such option '%s'", name)
		case needed:
			return nil, fail("unable to delete required option '%s'", name)
		case both:
			return nil, fail("cannot set and delete property '%s' at the same time!", name)
		}
		delete(o, name)
	}
	maps.Copy(o, set)
	return o, nil
}

// numeric are the options that answers give as numbers.
var numeric = []string{
	"asn", "mtu", "tag", "vrf-vxlan", "vxlan-port", "vlanaware", "isolate-ports", "snat",
	"exitnodes-local-routing", "advertise-subnets", "disable-arp-nd-suppression", "bridge-disable-mac-learning",
}

// sdnValue is an option in the type that answers have.
func sdnValue(name, text string) any {
	if slices.Contains(numeric, name) {
		if n, err := strconv.ParseInt(text, 10, 64); err == nil {
			return n
		}
	}
	if name == "dhcp-range" {
		return dhcpRanges(text)
	}
	return text
}

// dhcpRanges reads "start-address=A,end-address=B", several divided by ";".
func dhcpRanges(text string) []map[string]string {
	out := []map[string]string{}
	for part := range strings.FieldsFuncSeq(text, func(r rune) bool { return r == ';' }) {
		if r, err := dhcpRange.Parse("dhcp-range", part); err == nil {
			out = append(out, r)
		}
	}
	return out
}

var dhcpRange = schema.NewProps(schema.Str("start-address").Fmt("ip"), schema.Str("end-address").Fmt("ip"))
