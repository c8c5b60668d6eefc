package fabric

import (
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func golden(t *testing.T, name, got string) {
	t.Helper()
	want, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", name, diff)
	}
}

func TestRoutingConfiguration(t *testing.T) {
	own, peers := netip.MustParseAddr("100.127.0.1"), []netip.Addr{netip.MustParseAddr("100.127.0.2"), netip.MustParseAddr("100.127.0.3")}
	golden(t, "zebra.conf", zebraConf("pve1", "/run/savepoint-fabric-x/pve1"))
	golden(t, "bgpd.conf", bgpdConf(65000, "pve1", "/run/savepoint-fabric-x/pve1", own, peers))
	golden(t, "bgpd-alone.conf", bgpdConf(65000, "pve1", "/run/savepoint-fabric-x/pve1", own, nil))
}

func TestFilterRules(t *testing.T) {
	golden(t, "filter.nft", filterRules(map[string]port{
		"tap100i0": {vnet: "a", Port: Port{Name: "tap100i0", MAC: net.HardwareAddr{0xbc, 0x24, 0x11, 0, 0, 1}, Addresses: []netip.Addr{netip.MustParseAddr("10.1.1.11"), netip.MustParseAddr("fd00::b")}}},
		"tap101i0": {vnet: "a", Port: Port{Name: "tap101i0", MAC: net.HardwareAddr{0xbc, 0x24, 0x11, 0, 0, 2}}},
		"tap102i0": {vnet: "a", Port: Port{Name: "tap102i0", MAC: net.HardwareAddr{0xbc, 0x24, 0x11, 0, 0, 3}, Addresses: []netip.Addr{netip.MustParseAddr("fd00::c")}}},
	}))
}

func TestUnderlay(t *testing.T) {
	got, err := freeUnderlay(prefixes("100.127.0.0/17", "10.0.0.0/8"))
	if err != nil || got.String() != "100.126.0.0/24" {
		t.Errorf("beside 100.127.0.0/17: %v, %v", got, err)
	}
	if got, err := freeUnderlay(prefixes("0.0.0.0/0")); err == nil {
		t.Errorf("with everything in use: %v", got)
	}
	for _, tt := range []struct {
		p  string
		ok bool
	}{
		{"10.99.0.0/24", true}, {"10.99.0.1/24", false}, {"192.168.0.0/25", false},
		{"fd00::/64", false}, {"10.0.0.0/29", false}, {"203.0.113.0/24", false}, {"169.254.0.0/16", false},
	} {
		if err := checkUnderlay(netip.MustParsePrefix(tt.p), prefixes("192.168.0.7/16")); (err == nil) != tt.ok {
			t.Errorf("%s: %v", tt.p, err)
		}
	}
	small := netip.MustParsePrefix("10.0.0.0/28")
	if a, err := hostOf(small, 14); err != nil || a.String() != "10.0.0.14" {
		t.Errorf("14th: %v, %v", a, err)
	}
	if a, err := hostOf(small, 15); err == nil {
		t.Errorf("the broadcast address was given: %v", a)
	}
}

func TestConfigRefused(t *testing.T) {
	good := func() Config { return Config{Dir: t.TempDir(), Nodes: []string{"pve1", "pve2"}} }
	c := good()
	if err := c.complete(); err != nil || c.MTU != 1500 || c.ASN != 65000 || !c.Underlay.IsValid() {
		t.Errorf("defaults: %+v, %v", c, err)
	}
	for name, change := range map[string]func(*Config){
		"no directory": func(c *Config) { c.Dir = filepath.Join(c.Dir, "missing") },
		"no nodes":     func(c *Config) { c.Nodes = nil },
		"twice":        func(c *Config) { c.Nodes = []string{"a", "a"} },
		"outside":      func(c *Config) { c.Nodes = []string{Outside} },
		"path":         func(c *Config) { c.Nodes = []string{"../a"} },
		"space":        func(c *Config) { c.Nodes = []string{"a b"} },
		"instance":     func(c *Config) { c.Instance = "a/b" },
		"mtu":          func(c *Config) { c.MTU = 1000 },
		"underlay":     func(c *Config) { c.Underlay = netip.MustParsePrefix("127.0.0.0/24") },
	} {
		c := good()
		change(&c)
		if err := c.complete(); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

func TestZonesRefused(t *testing.T) {
	underlay := netip.MustParsePrefix("100.127.0.0/24")
	if err := checkZones(tenants(), underlay, 1500); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func([]Zone) []Zone{
		"id":               func(z []Zone) []Zone { z[0].ID = "a-b"; return z },
		"long id":          func(z []Zone) []Zone { z[0].ID = "abcdefghi"; return z },
		"zone twice":       func(z []Zone) []Zone { return append(z, z[0]) },
		"kind":             func(z []Zone) []Zone { z[0].Kind = "qinq"; return z },
		"no VRF":           func(z []Zone) []Zone { z[0].VRF = 0; return z },
		"VRF twice":        func(z []Zone) []Zone { z[1].VRF = z[0].VRF; return z },
		"VRF of a vnet":    func(z []Zone) []Zone { z[1].VRF = 10001; return z },
		"VNI twice":        func(z []Zone) []Zone { z[1].VNets[0].VNI = 10001; return z },
		"VNI too large":    func(z []Zone) []Zone { z[1].VNets[0].VNI = 1 << 24; return z },
		"vnet twice":       func(z []Zone) []Zone { z[1].VNets[0].ID = "bluea"; return z },
		"MTU":              func(z []Zone) []Zone { z[0].VNets[0].MTU = 1500; return z },
		"underlay":         func(z []Zone) []Zone { z[0].VNets[0].Gateways = prefixes("100.127.0.1/25"); return z },
		"metadata":         func(z []Zone) []Zone { z[0].VNets[0].Gateways = prefixes("169.254.1.1/16"); return z },
		"subnet's address": func(z []Zone) []Zone { z[0].VNets[0].Gateways = prefixes("10.0.0.0/24"); return z },
		"vxlan gateway":    func(z []Zone) []Zone { z[0].Kind, z[0].VRF = VXLAN, 0; return z },
		"simple VNI":       func(z []Zone) []Zone { z[0].Kind, z[0].VRF = Simple, 0; return z },
		"vxlan VRF":        func(z []Zone) []Zone { return append(z, Zone{ID: "vx", Kind: VXLAN, VRF: 5}) },
	} {
		if err := checkZones(change(tenants()), underlay, 1500); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

func TestStrangers(t *testing.T) {
	const info = `26 1 254:0 / / rw - ext4 /dev/vda rw
21 26 0:20 / /proc rw - proc proc rw
40 26 0:30 / /run rw shared:3 - tmpfs tmpfs rw
41 40 0:30 /netns /run/netns rw shared:3 - tmpfs tmpfs rw
42 41 0:4 net:[1] /run/netns/other rw shared:4 - nsfs nsfs rw
43 26 0:40 / /mnt/pool\040one rw - fuse zfs rw
44 40 0:41 / /run/savepoint-fabric-x rw - tmpfs t rw
`
	want := []string{"/run/netns/other", "/mnt/pool one"}
	if got := strangers(info, append(keep, "/run/savepoint-fabric-x/pve1")); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestAddresses(t *testing.T) {
	mac, err := net.ParseMAC("bc:24:11:ff:00:0b")
	if err != nil {
		t.Fatal(err)
	}
	if got := linkLocal(mac).String(); got != "fe80::be24:11ff:feff:b" {
		t.Errorf("link-local address %s", got)
	}
	if a, b := GatewayMAC("blue"), GatewayMAC("red"); a.String() == b.String() || !strings.HasPrefix(a.String(), "bc:24:11:") {
		t.Errorf("gateways %s and %s", a, b)
	}
	if a, b := routerMAC("i", "pve1", "blue"), routerMAC("i", "pve2", "blue"); a.String() == b.String() {
		t.Errorf("two nodes have the address %s", a)
	}
}
