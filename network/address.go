package network

import "net/netip"

// Reserved is how many of a subnet's first hosts are left to gateways and
// jump hosts: nine, or one where the subnet has fewer than 32 addresses.
func Reserved(subnet netip.Prefix) int {
	if subnet.Addr().BitLen()-subnet.Bits() < 5 {
		return 1
	}
	return 9
}

// NextAddress returns the first free host of the subnet after the given
// address, going round, so that an address that was given back is chosen
// last. after may be the zero value or lie outside of the subnet: then the
// search starts at the first host. The zero value is returned when every host
// is used, or the subnet has none.
func NextAddress(subnet netip.Prefix, after netip.Addr, used map[netip.Addr]bool) netip.Addr {
	subnet = subnet.Masked()
	first := subnet.Addr()
	for range Reserved(subnet) + 1 {
		first = first.Next()
	}
	host := func(a netip.Addr) bool {
		broadcast := a.Is4() && !subnet.Contains(a.Next())
		return a.IsValid() && subnet.Contains(a) && !broadcast
	}
	if !host(first) {
		return netip.Addr{}
	}
	next := first
	if host(after) && !after.Less(first) {
		next = after.Next()
	}
	// One more than all that can be in the way, and the turn.
	for range len(used) + 2 {
		if !host(next) {
			next = first
		}
		if !used[next] {
			return next
		}
		next = next.Next()
	}
	return netip.Addr{}
}
