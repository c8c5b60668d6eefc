package network

import (
	"net/netip"
	"testing"
)

// The capacity is the number of addresses that can really be had, and the
// gateway is none of them.
func TestCapacity(t *testing.T) {
	for _, p := range []string{"10.0.0.0/24", "10.0.0.0/27", "10.0.0.0/28", "10.0.0.0/29", "10.0.0.0/30", "10.0.0.0/31", "10.0.0.0/32", "255.255.255.0/24", "fd00::/120", "fd00::/127", "fd00::/128"} {
		used := map[netip.Addr]bool{}
		for a := NextAddress(prefix(p), netip.Addr{}, used); a.IsValid(); a = NextAddress(prefix(p), a, used) {
			used[a] = true
			if isReserved(prefix(p), a) {
				t.Errorf("%s: %s is given to a guest and may be a gateway", p, a)
			}
		}
		if got := Capacity(prefix(p)); got != uint64(len(used)) {
			t.Errorf("%s: got %d, but %d can be had", p, got, len(used))
		}
	}
	if got := Capacity(prefix("fd00::/8")); got < 1<<31 {
		t.Errorf("a large one: %d", got)
	}
}

// F106: the pools are there before the sandboxes.
func TestPools(t *testing.T) {
	w := two()
	_, a := applied(t, w)
	pools, err := Pools(w, a, "red")
	if err != nil {
		t.Fatal(err)
	}
	z, v := a.Zones["red"].ID, a.VNets["red/work"].ID
	want := []Pool{
		{"red", "work", z, v, prefix("10.30.0.0/24"), addr("10.30.0.1"), 1400},
		{"red", "work", z, v, prefix("fd00:30::/64"), netip.Addr{}, 1400},
	}
	if len(pools) != 2 || pools[0] != want[0] || pools[1] != want[1] {
		t.Errorf("got %+v, want %+v", pools, want)
	}
	if got := pools[0].Next(netip.Addr{}, map[netip.Addr]bool{addr("10.30.0.10"): true}); got != addr("10.30.0.11") {
		t.Errorf("next: %s", got)
	}
	if pools, err := Pools(w, a, "blue"); err != nil || pools[0].MTU != 1450 {
		t.Errorf("blue: %+v, %v", pools, err)
	}
	if _, err := Pools(w, a, "green"); err == nil {
		t.Error("a tenant that is not configured has pools")
	}
	if _, err := Pools(w, Allocation{Instance: instance}, "red"); err == nil {
		t.Error("a network that is not there has pools")
	}
	w.Tenants[1].VNets[0].Subnets[0].Prefix = prefix("10.31.0.0/24")
	if _, err := Pools(w, a, "red"); err == nil {
		t.Error("a subnet that is not there has a pool")
	}
}
