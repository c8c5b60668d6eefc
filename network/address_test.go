package network

import (
	"net/netip"
	"testing"
)

func TestNextAddress(t *testing.T) {
	addr := func(s string) netip.Addr {
		if s == "" {
			return netip.Addr{}
		}
		return netip.MustParseAddr(s)
	}
	for _, tt := range []struct {
		name, subnet, after string
		used                []string
		want                string
	}{
		{"first host after those left to gateways", "10.0.0.0/24", "", nil, "10.0.0.10"},
		{"a small subnet leaves one", "10.0.0.0/29", "", nil, "10.0.0.2"},
		{"goes on after the last one", "10.0.0.0/24", "10.0.0.10", []string{"10.0.0.10"}, "10.0.0.11"},
		{"also when that was given back", "10.0.0.0/24", "10.0.0.10", nil, "10.0.0.11"},
		{"skips what is used", "10.0.0.0/24", "10.0.0.10", []string{"10.0.0.11", "10.0.0.12"}, "10.0.0.13"},
		{"goes round before the broadcast address", "10.0.0.0/24", "10.0.0.254", nil, "10.0.0.10"},
		{"all used", "10.0.0.0/30", "", []string{"10.0.0.2"}, ""},
		{"no hosts", "10.0.0.0/31", "", nil, ""},
		{"one host", "10.0.0.7/32", "", nil, ""},
		{"a start outside", "10.0.0.0/24", "192.168.0.1", nil, "10.0.0.10"},
		{"a start below the first host", "10.0.0.0/24", "10.0.0.3", nil, "10.0.0.10"},
		{"host bits in the subnet", "10.0.0.77/24", "", nil, "10.0.0.10"},
		{"IPv6 has no broadcast", "fd00::/124", "fd00::e", nil, "fd00::f"},
		{"the end of the address space", "255.255.255.0/24", "255.255.255.254", nil, "255.255.255.10"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			used := map[netip.Addr]bool{}
			for _, u := range tt.used {
				used[addr(u)] = true
			}
			if got := NextAddress(netip.MustParsePrefix(tt.subnet), addr(tt.after), used); got != addr(tt.want) {
				t.Errorf("got %v, want %q", got, tt.want)
			}
		})
	}
}
