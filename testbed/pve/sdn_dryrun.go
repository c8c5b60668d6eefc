package pve

import (
	"fmt"
	"slices"
	"strings"
)

// dryRunSDN is GET /cluster/sdn/dry-run: how an apply would change a node's
// interfaces. The diff has whole stanzas and no context.
func dryRunSDN(c *call) (any, error) {
	now, node := c.s.sdnNow(), c.node()
	before, after := now.snapshot(), sdnKept{Running: now.Config}.snapshot()
	have, want := stanzas(before, node), stanzas(after, node)
	var b strings.Builder
	for _, s := range have {
		if !slices.Contains(want, s) {
			writeDiff(&b, "-", s)
		}
	}
	for _, s := range want {
		if !slices.Contains(have, s) {
			writeDiff(&b, "+", s)
		}
	}
	diff := b.String()
	if diff != "" {
		diff = "--- /etc/network/interfaces.d/sdn\n+++ pending\n" + diff
	}
	return map[string]any{"interfaces-diff": diff, "frr-diff": ""}, nil
}

func writeDiff(b *strings.Builder, sign, stanza string) {
	for line := range strings.Lines(stanza) {
		b.WriteString(sign + line)
	}
}

// stanzas describe the vnets' bridges on a node as its interfaces file would.
func stanzas(sdn SDN, node string) []string {
	var out []string
	for _, v := range sdn.VNets {
		if !sdn.zoneOn(v.Zone, node) {
			continue
		}
		ports := "none"
		if v.Tag > 0 {
			ports = "vxlan_" + v.ID
		}
		var b strings.Builder
		fmt.Fprintf(&b, "auto %s\niface %s\n", v.ID, v.ID)
		for _, sub := range sdn.Subnets {
			if sub.VNet == v.ID && sub.Gateway.IsValid() {
				fmt.Fprintf(&b, "\taddress %s/%d\n", sub.Gateway, sub.CIDR.Bits())
			}
		}
		fmt.Fprintf(&b, "\tbridge_ports %s\n\tbridge_stp off\n\tbridge_fd 0\n", ports)
		if v.VLANAware {
			b.WriteString("\tbridge-vlan-aware yes\n")
		}
		for _, z := range sdn.Zones {
			if z.ID == v.Zone && z.MTU > 0 {
				fmt.Fprintf(&b, "\tmtu %d\n", z.MTU)
			}
		}
		if v.Alias != "" {
			fmt.Fprintf(&b, "\talias %s\n", v.Alias)
		}
		out = append(out, b.String()+"\n")
	}
	return out
}
