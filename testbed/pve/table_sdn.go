package pve

import (
	"slices"

	"savepoint/testbed/pve/schema"
)

// The ways to look at SDN objects.
var viewParams = params{schema.Bool("pending").Opt(), schema.Bool("running").Opt()}

var lockToken = schema.Str("lock-token").Opt().From("9")

// changeParams are what every change of an SDN object takes besides its options.
var changeParams = params{schema.Str("delete").Opt().Fmt("pve-configid-list").Len(4096), schema.Str("digest").Opt().Len(64), lockToken}

func sdnTable() []route {
	const at = "/cluster/sdn"
	allocate := perm("/sdn", "SDN.Allocate")
	release := schema.Bool("release-lock").Opt().From("9")
	return slices.Concat([]route{
		{method: "GET", path: at, perm: perm("/sdn", "SDN.Audit"), handler: index("id", "vnets", "zones", "controllers")},
		{method: "PUT", path: at, perm: allocate, handler: applySDN, until: "8", blind: true},
		{method: "PUT", path: at, perm: allocate, handler: applySDN, since: "9", params: params{lockToken, release}},
		{method: "POST", path: at + "/lock", perm: allocate, handler: lockSDN, since: "9", params: params{schema.Bool("allow-pending").Opt()}},
		{method: "DELETE", path: at + "/lock", perm: allocate, handler: releaseSDN, since: "9", params: params{lockToken, schema.Bool("force").Opt()}},
		{method: "POST", path: at + "/rollback", perm: allocate, handler: rollbackSDN, since: "9", params: params{lockToken, release}},
		{method: "GET", path: at + "/dry-run", perm: perm("/nodes/{node}", "Sys.Audit"), proxy: true, handler: dryRunSDN, since: "9", params: params{pathParams["node"]}},
	}, controllerTable(), zoneTable(), vnetTable())
}

func controllerTable() []route {
	const all, one = "/cluster/sdn/controllers", "/cluster/sdn/controllers/{controller}"
	allocate := perm(all[len("/cluster"):], "SDN.Allocate")
	kinds := []string{"bgp", "evpn", "faucet", "isis"}
	options := params{
		schema.Int("asn").Opt().Range(0, 4294967296).To("8"),
		schema.Int("asn").Opt().Range(0, 4294967295).From("9"),
		schema.Bool("bgp-multipath-as-path-relax").Opt(),
		schema.Bool("ebgp").Opt(),
		schema.Int("ebgp-multihop").Opt(),
		schema.Str("fabric").Opt().Fmt("pve-sdn-fabric-id").From("9"),
		schema.Str("isis-domain").Opt(),
		schema.Str("isis-ifaces").Opt().Fmt("pve-iface-list"),
		schema.Str("isis-net").Opt().Fmt("pve-sdn-isis-net"),
		schema.Str("loopback").Opt(),
		schema.Str("node").Opt().Fmt("pve-node"),
		schema.Str("peers").Opt().Fmt("ip-list"),
	}
	return []route{
		{method: "GET", path: all, perm: users, handler: listControllers, params: slices.Concat(viewParams, params{schema.Str("type").Opt().OneOf(kinds...)})},
		{method: "POST", path: all, perm: allocate, handler: createController, params: slices.Concat(options, params{
			pathParams["controller"], schema.Str("type").Fmt("pve-configid").OneOf(kinds...), lockToken,
		})},
		{method: "GET", path: one, perm: perm("/sdn/controllers/{controller}", "SDN.Allocate"), handler: readController, params: viewParams},
		{method: "PUT", path: one, perm: allocate, handler: updateController, params: slices.Concat(options, changeParams)},
		{method: "DELETE", path: one, perm: allocate, handler: deleteController, params: params{lockToken}},
	}
}

func zoneTable() []route {
	const all, one = "/cluster/sdn/zones", "/cluster/sdn/zones/{zone}"
	allocate := perm("/sdn/zones/{zone}", "SDN.Allocate")
	kinds := []string{"evpn", "faucet", "qinq", "simple", "vlan", "vxlan"}
	options := params{
		schema.Bool("advertise-subnets").Opt(),
		schema.Str("bridge").Opt(),
		schema.Bool("bridge-disable-mac-learning").Opt(),
		schema.Str("controller").Opt(),
		schema.Str("dhcp").Opt().OneOf("dnsmasq"),
		schema.Bool("disable-arp-nd-suppression").Opt(),
		schema.Str("dns").Opt(),
		schema.Str("dnszone").Opt().Fmt("dns-name"),
		schema.Int("dp-id").Opt(),
		schema.Str("exitnodes").Opt().Fmt("pve-node-list"),
		schema.Bool("exitnodes-local-routing").Opt(),
		schema.Str("exitnodes-primary").Opt().Fmt("pve-node"),
		schema.Str("fabric").Opt().Fmt("pve-sdn-fabric-id").From("9"),
		schema.Str("ipam").Opt(),
		schema.Str("mac").Opt().Fmt("mac-addr"),
		schema.Int("mtu").Opt(),
		schema.Str("nodes").Opt().Fmt("pve-node-list"),
		schema.Str("peers").Opt().Fmt("ip-list"),
		schema.Str("reversedns").Opt(),
		schema.Str("rt-import").Opt().Fmt("pve-sdn-bgp-rt-list"),
		schema.Int("tag").Opt().Min(0),
		schema.Str("vlan-protocol").Opt().OneOf("802.1q", "802.1ad"),
		schema.Int("vrf-vxlan").Opt().To("8"),
		schema.Int("vrf-vxlan").Opt().Range(1, 16777215).From("9"),
		schema.Int("vxlan-port").Opt().Range(1, 65536),
	}
	return []route{
		{method: "GET", path: all, perm: users, handler: listZones, params: slices.Concat(viewParams, params{schema.Str("type").Opt().OneOf(kinds...)})},
		{method: "POST", path: all, perm: perm("/sdn/zones", "SDN.Allocate"), handler: createZone, params: slices.Concat(options, params{
			pathParams["zone"], schema.Str("type").Fmt("pve-configid").OneOf(kinds...), lockToken,
		})},
		{method: "GET", path: one, perm: allocate, handler: readZone, params: viewParams},
		{method: "PUT", path: one, perm: allocate, handler: updateZone, params: slices.Concat(options, changeParams)},
		{method: "DELETE", path: one, perm: allocate, handler: deleteZone, params: params{lockToken}},
	}
}

func vnetTable() []route {
	const all, one = "/cluster/sdn/vnets", "/cluster/sdn/vnets/{vnet}"
	options := params{
		schema.Str("alias").Opt().Match(`(?i:[\(\)-_.\w\d\s]{0,256})`).Len(256),
		schema.Bool("isolate-ports").Opt(),
		schema.Int("tag").Opt().To("8"),
		schema.Int("tag").Opt().Range(1, 16777215).From("9"),
		schema.Bool("vlanaware").Opt(),
	}
	subnet := params{
		schema.Str("dhcp-dns-server").Opt().Fmt("ip"),
		schema.List("dhcp-range").Opt(),
		schema.Str("dnszoneprefix").Opt().Fmt("dns-name"),
		schema.Str("gateway").Opt().Fmt("ip"),
		schema.Bool("snat").Opt(),
	}
	return []route{
		{method: "GET", path: all, perm: users, handler: listVNets, params: viewParams},
		{method: "POST", path: all, perm: perm("/sdn/zones/{zone}", "SDN.Allocate"), handler: createVNet, params: slices.Concat(options, params{
			pathParams["vnet"], schema.Str("zone"), schema.Str("type").Opt().OneOf("vnet"), lockToken,
		})},
		{method: "GET", path: one, perm: users, handler: readVNet, params: viewParams},
		{method: "PUT", path: one, perm: users, handler: updateVNet, params: slices.Concat(options, changeParams, params{schema.Str("zone").Opt()})},
		{method: "DELETE", path: one, perm: users, handler: deleteVNet, params: params{lockToken}},
		{method: "GET", path: one + "/subnets", perm: users, handler: listSubnets, params: viewParams},
		{method: "POST", path: one + "/subnets", perm: users, handler: createSubnet, params: slices.Concat(subnet, params{
			pathParams["subnet"], schema.Str("vnet"), schema.Str("type").OneOf("subnet"), lockToken,
		})},
		{method: "GET", path: one + "/subnets/{subnet}", perm: users, handler: readSubnet, params: viewParams},
		{method: "PUT", path: one + "/subnets/{subnet}", perm: users, handler: updateSubnet, params: slices.Concat(subnet, changeParams, params{schema.Str("vnet").Opt()})},
		{method: "DELETE", path: one + "/subnets/{subnet}", perm: users, handler: deleteSubnet, params: params{lockToken}},
	}
}

func sdnNodeTable() []route {
	const at = "/nodes/{node}/sdn"
	audit := perm("/sdn/zones/{zone}", "SDN.Audit")
	anyZone := params{schema.Str("zone")} // also the node's own bridges
	return []route{
		{method: "GET", path: at, perm: users, handler: index("name", "zones"), until: "8"},
		{method: "GET", path: at, perm: users, proxy: true, handler: index("name", "vnets", "zones"), since: "9"},
		{method: "GET", path: at + "/zones", perm: users, proxy: true, handler: nodeZones},
		{method: "GET", path: at + "/zones/{zone}", perm: audit, handler: index("subdir", "content"), until: "8"},
		{method: "GET", path: at + "/zones/{zone}", perm: audit, handler: index("subdir", "bridges", "content", "ip-vrf"), since: "9"},
		{method: "GET", path: at + "/zones/{zone}/content", perm: audit, proxy: true, handler: zoneContent},
		{method: "GET", path: at + "/zones/{zone}/bridges", perm: audit, proxy: true, handler: zoneBridges, since: "9", params: anyZone},
		{method: "GET", path: at + "/zones/{zone}/ip-vrf", perm: audit, proxy: true, handler: zoneRoutes, since: "9", params: anyZone},
		{method: "GET", path: at + "/vnets/{vnet}", perm: users, handler: index("subdir", "mac-vrf"), since: "9"},
		{method: "GET", path: at + "/vnets/{vnet}/mac-vrf", perm: users, proxy: true, handler: vnetMACs, since: "9"},
	}
}
