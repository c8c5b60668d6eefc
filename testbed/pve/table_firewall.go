package pve

import (
	"slices"

	"savepoint/testbed/pve/schema"
)

var logLevels = []string{"emerg", "alert", "crit", "err", "warning", "notice", "info", "debug", "nolog"}

func firewallTable() []route {
	const vm, vnet = "/nodes/{node}/qemu/{vmid}/firewall", "/cluster/sdn/vnets/{vnet}/firewall"
	audit, network := perm("/vms/{vmid}", "VM.Audit"), perm("/vms/{vmid}", "VM.Config.Network")
	change := params{schema.Str("delete").Opt().Fmt("pve-configid-list"), schema.Str("digest").Opt().Len(64)}
	level := func(name string) schema.Param { return schema.Str(name).Opt().OneOf(logLevels...) }
	policy := func(name string) schema.Param { return schema.Str(name).Opt().OneOf("ACCEPT", "REJECT", "DROP") }
	vmOptions := params{
		schema.Bool("dhcp").Opt(), schema.Bool("enable").Opt(), schema.Bool("ipfilter").Opt(), schema.Bool("macfilter").Opt(),
		schema.Bool("ndp").Opt(), schema.Bool("radv").Opt(), level("log_level_in"), level("log_level_out"), policy("policy_in"), policy("policy_out"),
	}
	vnetOptions := params{schema.Bool("enable").Opt(), level("log_level_forward"), schema.Str("policy_forward").Opt().OneOf("ACCEPT", "DROP")}
	ofVM, ofVNet := wallOf(ofVM), wallOf(ofVNet)
	return slices.Concat([]route{
		{method: "GET", path: vm, perm: users, handler: index("name", "options", "rules")},
		{method: "GET", path: vm + "/options", perm: audit, proxy: true, handler: ofVM.reads(readWallOptions)},
		{method: "PUT", path: vm + "/options", perm: network, proxy: true, handler: ofVM.writes(putWallOptions), params: slices.Concat(vmOptions, change)},
		{method: "GET", path: vnet + "/options", perm: users, handler: ofVNet.reads(readWallOptions)},
		{method: "PUT", path: vnet + "/options", perm: users, handler: ofVNet.writes(putWallOptions), params: slices.Concat(vnetOptions, change)},
	}, ruleTable(vm, audit, network, ofVM), ruleTable(vnet, users, users, ofVNet))
}

// ruleTable are the calls for the rules of one kind of firewall.
func ruleTable(at string, read, write permission, of wallOf) []route {
	digest := schema.Str("digest").Opt().Len(64)
	action := schema.Str("action").AtLeast(2).Len(20).Match(`[A-Za-z][A-Za-z0-9\-\_]+`)
	kind := schema.Str("type").OneOf("in", "out", "forward", "group")
	rule := params{
		schema.Str("comment").Opt(),
		schema.Str("dest").Opt().Fmt("pve-fw-addr-spec").Len(512),
		schema.Str("dport").Opt().Fmt("pve-fw-dport-spec"),
		schema.Int("enable").Opt().Min(0),
		schema.Str("icmp-type").Opt().Fmt("pve-fw-icmp-type-spec"),
		schema.Str("iface").Opt().Fmt("pve-iface").AtLeast(2).Len(20),
		schema.Str("log").Opt().OneOf(logLevels...),
		schema.Str("macro").Opt().Len(128),
		schema.Str("proto").Opt().Fmt("pve-fw-protocol-spec"),
		schema.Str("source").Opt().Fmt("pve-fw-addr-spec").Len(512),
		schema.Str("sport").Opt().Fmt("pve-fw-sport-spec"),
		digest,
	}
	one := at + "/rules/{pos}"
	return []route{
		{method: "GET", path: at + "/rules", perm: read, handler: of.reads(listRules)},
		{method: "POST", path: at + "/rules", perm: write, handler: of.writes(addRule), params: slices.Concat(rule, params{action, kind, pathParams["pos"]})},
		{method: "GET", path: one, perm: read, handler: of.reads(readRule)},
		{method: "PUT", path: one, perm: write, handler: of.writes(putRule), params: slices.Concat(rule, params{
			action.Opt(), kind.Opt(), schema.Int("moveto").Opt().Min(0), schema.Str("delete").Opt().Fmt("pve-configid-list"),
		})},
		{method: "DELETE", path: one, perm: write, handler: of.writes(deleteRule), params: params{digest}},
	}
}
