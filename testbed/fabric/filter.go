package fabric

import (
	"context"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"
)

// filter loads the rules of a zone's ports, all at once.
func (s *zoneState) filter(ctx context.Context) error {
	_, err := run(ctx, s.ns, []byte(filterRules(s.ports)), "nft", "-f", "-")
	return err
}

// filterRules is what PVE's macfilter and ipfilter do, for nft(8): what comes
// in from a guest has the guest's own sender addresses, in the frame and in
// ARP and neighbour discovery, and is no router advertisement.
func filterRules(ports map[string]port) string {
	var b strings.Builder
	// The table is made so that deleting it works the first time too.
	b.WriteString("table bridge savepoint\ndelete table bridge savepoint\ntable bridge savepoint {\n")
	b.WriteString(" chain from_guests {\n  type filter hook prerouting priority -300; policy accept;\n")
	names := slices.Sorted(maps.Keys(ports))
	for _, name := range names {
		fmt.Fprintf(&b, "  iifname \"%s\" jump port_%s\n", name, name)
	}
	b.WriteString(" }\n")
	for _, name := range names {
		p := ports[name]
		fmt.Fprintf(&b, " chain port_%s {\n", name)
		rule := func(format string, a ...any) { fmt.Fprintf(&b, "  "+format+"\n", a...) }
		rule("ether saddr != %s drop", p.MAC)
		rule("ether type arp arp saddr ether != %s drop", p.MAC)
		rule("icmpv6 type nd-router-advert drop")
		if len(p.Addresses) > 0 {
			four, six := []string{}, []string{"::", linkLocal(p.MAC).String()}
			for _, a := range p.Addresses {
				if a.Is4() {
					four = append(four, a.String())
				} else {
					six = append(six, a.String())
				}
			}
			// A tagged frame could carry anything.
			rule("ether type != { ip, arp, ip6 } drop")
			// 0.0.0.0 asks whether an address is free.
			rule("ether type arp arp saddr ip != { %s } drop", strings.Join(append([]string{"0.0.0.0"}, four...), ", "))
			if len(four) > 0 {
				rule("ether type ip ip saddr != { %s } drop", strings.Join(four, ", "))
			} else {
				rule("ether type ip drop")
			}
			rule("ether type ip6 ip6 saddr != { %s } drop", strings.Join(six, ", "))
			for _, a := range six[1:] {
				// The target of an advertisement is 8 bytes into it.
				rule("icmpv6 type nd-neighbor-advert @th,64,128 %s return", hexAddr(a))
			}
			rule("icmpv6 type nd-neighbor-advert drop")
		}
		b.WriteString(" }\n")
	}
	b.WriteString("}\n")
	return b.String()
}

func hexAddr(a string) string {
	b := netip.MustParseAddr(a).As16()
	return fmt.Sprintf("0x%x", b)
}

// linkLocal is the IPv6 address that a MAC address makes (RFC 4291, EUI-64).
func linkLocal(m net.HardwareAddr) netip.Addr {
	return netip.AddrFrom16([16]byte{0xfe, 0x80, 8: m[0] ^ 2, m[1], m[2], 0xff, 0xfe, m[3], m[4], m[5]})
}
