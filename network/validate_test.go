package network

import (
	"errors"
	"strings"
	"testing"
)

func TestDiffReportsProblems(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(w *Wanted)
		want   string // of the only problem; "" for none
	}{
		{"as it is", func(*Wanted) {}, ""},
		{"nothing", func(w *Wanted) { *w = Wanted{} }, ""},
		{"a large underlay", func(w *Wanted) { w.UnderlayMTU = 9000; w.Tenants[0].Zone.MTU = 8950 }, ""},
		{"MTU", func(w *Wanted) { w.Tenants[0].Zone.MTU = 1451 }, "tenants[0].mtu: 1451 is more than 1450, the underlay's 1500"},
		{"MTU on an IPv6 underlay", func(w *Wanted) {
			w.Peers[0], w.Peers[1], w.Tenants[0].Zone.MTU = addr("fd50::1"), addr("fd50::2"), 1450
		}, "tenants[0].mtu: 1450 is more than 1430"},
		{"MTU for IPv6", func(w *Wanted) { w.Tenants[1].Zone.MTU = 1279 }, "tenants[1].mtu: 1279 is less than the 1280"},
		{"underlay MTU", func(w *Wanted) { w.UnderlayMTU = 50 }, "underlay_mtu: 50"},
		{"VNI range", func(w *Wanted) { w.VNIs.Last = 1 << 24 }, "vni_first: 100000 to 16777216"},
		{"VNI zero", func(w *Wanted) { w.VNIs.First = 0 }, "vni_first: 0 to"},
		{"VNI range too small", func(w *Wanted) { w.VNIs.Last = 100003 }, "tenants[1].vnets[0].vni: every VNI from 100000 to 100003 is in use; give a larger range"},
		{"peer twice", func(w *Wanted) { w.Peers[1] = w.Peers[0] }, "peers[1]: 192.168.50.2 is there twice"},
		{"peer", func(w *Wanted) { w.Peers[1] = addr("127.0.0.1") }, "peers[1]: 127.0.0.1 is not the address of a node"},
		{"no peers", func(w *Wanted) { w.Peers = nil }, "peers: there are none"},
		{"a node among the guests", func(w *Wanted) { w.Peers[1] = addr("10.20.0.9") }, "tenants[0].vnets[0].subnets[0].prefix: 10.20.0.0/24 contains the node's address"},
		{"no controller", func(w *Wanted) { w.Controller = Controller{} }, "asn: an EVPN zone needs a controller"},
		{"two controllers", func(w *Wanted) { w.Controller.ID = "core" }, "controller: has an id"},
		{"missing controller", func(w *Wanted) { w.Controller = Controller{ID: "core"} }, `controller: the cluster has no EVPN controller "core"`},
		{"zone type", func(w *Wanted) { w.Tenants[0].Zone.Type = "vlan" }, `tenants[0].zone: "vlan" is not a type of zone`},
		{"no zone type", func(w *Wanted) { w.Tenants[0].Zone.Type = "" }, `tenants[0].zone: "" is not a type of zone`},
		{"name", func(w *Wanted) { w.Tenants[0].Name = "Blue" }, `tenants[0].name: "Blue" is not a name`},
		{"no name", func(w *Wanted) { w.Tenants[0].VNets[0].Name = "" }, `tenants[0].vnets[0].name: "" is not a name`},
		{"tenant twice", func(w *Wanted) { w.Tenants[1].VNets[0].Name, w.Tenants[1].Name = "other", "blue" }, `tenants[1].name: there is another tenant "blue"`},
		{"vnet twice", func(w *Wanted) { w.Tenants[0].VNets[1].Name = "work" }, `tenants[0].vnets[1].name: there is another vnet "work"`},
		{"node", func(w *Wanted) { w.Tenants[1].Zone.Nodes[0] = "pve9" }, `tenants[1].nodes[0]: the cluster has no node "pve9"`},
		{"node twice", func(w *Wanted) { w.Tenants[1].Zone.Nodes[0] = "pve1" }, `tenants[1].nodes[1]: node "pve1" is there twice`},
		{"VNI too large", func(w *Wanted) { w.Tenants[0].VNets[0].VNI = 1 << 24 }, "tenants[0].vnets[0].vni: 16777216 is not a VNI"},
		{"VNI twice", func(w *Wanted) { w.Tenants[0].Zone.VRF = 7; w.Tenants[0].VNets[0].VNI = 7 }, "tenants[0].vnets[0].vni: 7 is in use by tenant blue"},
		{"VNI of the cluster", func(w *Wanted) { w.Tenants[0].Zone.VRF = 4242 }, "tenants[0].vrf: 4242 is in use by vnet web of the cluster"},
		{"VRF of a VXLAN zone", func(w *Wanted) {
			w.Tenants[1].Zone.Type, w.Tenants[1].Zone.VRF = VXLAN, 7
			w.Tenants[1].VNets[0].Subnets[0].Gateway = addrZero
		}, "tenants[1].vrf: a vxlan zone has no routing table"},
		{"VNI of a simple zone", func(w *Wanted) {
			w.Tenants[1].Zone.Type, w.Tenants[1].VNets[0].VNI = Simple, 7
			w.Tenants[1].VNets[0].Subnets[0].Gateway = addrZero
		}, "tenants[1].vnets[0].vni: a vnet of a simple zone has no VNI"},
		{"gateway of a simple zone", func(w *Wanted) { w.Tenants[1].Zone.Type = Simple }, "tenants[1].vnets[0].subnets[0].gateway: a simple zone does not route"},
		{"no vnets", func(w *Wanted) { w.Tenants[0].VNets = nil }, "tenants[0].vnets: there are none"},
		{"no subnets", func(w *Wanted) { w.Tenants[0].VNets[1].Subnets = nil }, "tenants[0].vnets[1].subnets: there are none"},
		{"no network", func(w *Wanted) { w.Tenants[0].VNets[1].Subnets[0] = Subnet{} }, "tenants[0].vnets[1].subnets[0].prefix: is not a network"},
		{"host bits", func(w *Wanted) { w.Tenants[0].VNets[1].Subnets[0].Prefix = prefix("10.20.1.5/24") }, `has host bits set; write "10.20.1.0/24"`},
		{"metadata", func(w *Wanted) { w.Tenants[0].VNets[1].Subnets[0] = Subnet{Prefix: prefix("169.254.0.0/16")} }, "169.254.0.0/16 is not a network for guests"},
		{"mapped", func(w *Wanted) { w.Tenants[0].VNets[1].Subnets[0] = Subnet{Prefix: prefix("::ffff:10.1.0.0/120")} }, "is not a network for guests"},
		{"no room", func(w *Wanted) { w.Tenants[0].VNets[1].Subnets[0] = Subnet{Prefix: prefix("10.20.1.0/31")} }, "10.20.1.0/31 has no address for a guest"},
		{"overlap in a tenant", func(w *Wanted) { w.Tenants[0].VNets[1].Subnets[0] = Subnet{Prefix: prefix("10.20.0.128/25")} },
			"tenants[0].vnets[1].subnets[0].prefix: 10.20.0.128/25 overlaps 10.20.0.0/24 of tenants[0].vnets[0].subnets[0].prefix"},
		{"overlap of tenants", func(w *Wanted) { w.Tenants[1].VNets[0].Subnets[0] = Subnet{Prefix: prefix("10.0.0.0/12")} }, ""},
		{"overlap of tenants that do", func(w *Wanted) { w.Tenants[1].VNets[0].Subnets[0] = Subnet{Prefix: prefix("10.20.0.0/24")} },
			"tenants[1].vnets[0].subnets[0].prefix: 10.20.0.0/24 overlaps 10.20.0.0/24"},
		{"gateway outside", func(w *Wanted) { w.Tenants[0].VNets[1].Subnets[0].Gateway = addr("10.20.2.1") }, "tenants[0].vnets[1].subnets[0].gateway: 10.20.2.1 is outside of 10.20.1.0/24"},
		{"gateway that a guest gets", func(w *Wanted) { w.Tenants[0].VNets[1].Subnets[0].Gateway = addr("10.20.1.10") }, "10.20.1.10 is an address that a guest could get"},
		{"the last that none gets", func(w *Wanted) { w.Tenants[0].VNets[1].Subnets[0].Gateway = addr("10.20.1.9") }, ""},
		{"gateway is the network", func(w *Wanted) { w.Tenants[0].VNets[1].Subnets[0].Gateway = addr("10.20.1.0") }, "choose 10.20.1.1"},
		{"pool too small", func(w *Wanted) { w.Tenants[0].VNets[0].Guests = 246 }, "tenants[0].vnets[0].guests: 246 guests need more than the 245 addresses"},
		{"pool just large enough", func(w *Wanted) { w.Tenants[0].VNets[0].Guests = 245 }, ""},
		{"guests", func(w *Wanted) { w.Tenants[0].VNets[0].Guests = -1 }, "-1 is not a number of guests"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := newCluster("pve1", "pve2")
			c.foreign(KindZone, "dmz", Fields{"type": "vxlan", "peers": "192.168.50.1"})
			c.foreign(KindVNet, "web", Fields{"zone": "dmz", "tag": "4242"})
			w := two()
			tt.change(&w)
			_, err := Diff(w, c.observe(), Allocation{Instance: instance})
			var config *ConfigError
			switch {
			case tt.want == "" && err != nil:
				t.Errorf("got %v, want no problem", err)
			case tt.want == "":
			case !errors.As(err, &config) || len(config.Problems) != 1 || !strings.Contains(err.Error(), tt.want):
				t.Errorf("got %v, want only %q", err, tt.want)
			case config.Problems[0].Mend == "":
				t.Errorf("%v does not say what to do", err)
			}
		})
	}
}

// Every problem is reported at once, with the refusals.
func TestDiffReportsEverything(t *testing.T) {
	c := newCluster("pve1", "pve2")
	c.pending[KindZone]["dmz"] = Fields{"type": "simple"}
	c.pending[KindZone]["lab"] = Fields{"type": "simple"}
	w := two()
	w.Tenants[0].Zone.MTU = 9000
	w.Tenants[1].VNets[0].Subnets[0].Gateway = addr("10.9.9.9")
	w.VNIs = VNIRange{}
	_, err := Diff(w, c.observe(), Allocation{Instance: instance})
	var config *ConfigError
	var foreign *ForeignError
	if !errors.As(err, &config) || len(config.Problems) != 3 || !errors.As(err, &foreign) || len(foreign.Refusals) != 2 {
		t.Errorf("got %v", err)
	}
}

// What is recorded cannot be configured away.
func TestDiffAgainstRecord(t *testing.T) {
	c, a := applied(t, two())
	for want, change := range map[string]func(w *Wanted){
		"tenants[0].zone: the zone was made as evpn": func(w *Wanted) {
			w.Tenants[0].Zone.Type = VXLAN
			w.Tenants[0].VNets[0].Subnets[0].Gateway, w.Tenants[0].VNets[1].Subnets[0].Gateway = addrZero, addrZero
		},
		"controller: names the one that savepoint made":           func(w *Wanted) { w.Controller = Controller{ID: a.Controller} },
		"tenants[0].vrf: 7 is not 100000, with which it was made": func(w *Wanted) { w.Tenants[0].Zone.VRF = 7 },
		"tenants[0].vnets[0].vni: 7 is not 100001":                func(w *Wanted) { w.Tenants[0].VNets[0].VNI = 7 },
		"tenants[0].vnets[2].vni: 100003 is in use by tenant red": func(w *Wanted) {
			w.Tenants[0].VNets = append(w.Tenants[0].VNets, VNet{Name: "more", VNI: 100003, Subnets: []Subnet{{Prefix: prefix("10.50.0.0/24")}}})
		},
	} {
		w := two()
		change(&w)
		_, err := Diff(w, c.observe(), a)
		var config *ConfigError
		if !errors.As(err, &config) || len(config.Problems) != 1 || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want only %q", err, want)
		}
	}
	w := two()
	w.Tenants[0].Zone.VRF = 100000
	if p := mustDiff(t, w, c, a); !p.Empty() {
		t.Errorf("the recorded number, written down: %v", p.Changes)
	}
}
