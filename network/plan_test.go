package network

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const instance = "01JX4Y9K2QF0M8T5B7N3C6D1EZ"

func prefix(s string) netip.Prefix { return netip.MustParsePrefix(s) }
func addr(s string) netip.Addr     { return netip.MustParseAddr(s) }

// two is a configuration of two tenants on EVPN zones.
func two() Wanted {
	return Wanted{
		UnderlayMTU: 1500,
		Peers:       []netip.Addr{addr("192.168.50.2"), addr("192.168.50.1")},
		VNIs:        VNIRange{100000, 100099},
		Controller:  Controller{ASN: 65000},
		Tenants: []Tenant{
			{"blue", Zone{Type: EVPN}, []VNet{
				{Name: "work", Subnets: []Subnet{{prefix("10.20.0.0/24"), addr("10.20.0.1")}}, Guests: 100},
				{Name: "aside", Subnets: []Subnet{{prefix("10.20.1.0/24"), addr("10.20.1.1")}}},
			}},
			{"red", Zone{Type: EVPN, MTU: 1400, Nodes: []string{"pve2", "pve1"}}, []VNet{
				{Name: "work", Subnets: []Subnet{{prefix("10.30.0.0/24"), addr("10.30.0.1")}, {prefix("fd00:30::/64"), netip.Addr{}}}},
			}},
		},
	}
}

// applied is a cluster with the wanted state, and the record of it.
func applied(t *testing.T, w Wanted) (*cluster, Allocation) {
	t.Helper()
	c := newCluster("pve1", "pve2")
	p := mustDiff(t, w, c, Allocation{Instance: instance})
	c.carryOut(t, p, len(p.Changes))
	return c, p.Settled
}

func mustDiff(t *testing.T, w Wanted, c *cluster, a Allocation) Plan {
	t.Helper()
	p, err := Diff(w, c.observe(), a)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func lines(p Plan) []string {
	var out []string
	for _, c := range p.Changes {
		out = append(out, fmt.Sprintf("%s %s %s", c.Op, c.Kind, c.ID))
	}
	return out
}

// The first plan creates everything in the order in which one thing needs
// another, with every option.
func TestDiffCreatesInOrder(t *testing.T) {
	c := newCluster("pve1", "pve2")
	p := mustDiff(t, two(), c, Allocation{Instance: instance})
	a := p.Allocation
	blue, red := a.Zones["blue"].ID, a.Zones["red"].ID
	want := []Change{
		{Kind: KindController, ID: a.Controller, Fields: Fields{"type": "evpn", "asn": "65000", "peers": "192.168.50.1,192.168.50.2"}},
		{Kind: KindZone, ID: blue, Fields: Fields{"type": "evpn", "controller": a.Controller, "vrf-vxlan": "100000", "mtu": "1450"}},
		{Kind: KindZone, ID: red, Fields: Fields{"type": "evpn", "controller": a.Controller, "vrf-vxlan": "100003", "mtu": "1400", "nodes": "pve1,pve2"}},
		{Kind: KindVNet, ID: a.VNets["blue/work"].ID, Fields: Fields{"zone": blue, "tag": "100001", "alias": "savepoint " + instance + " blue/work"}},
		{Kind: KindVNet, ID: a.VNets["blue/aside"].ID, Fields: Fields{"zone": blue, "tag": "100002", "alias": "savepoint " + instance + " blue/aside"}},
		{Kind: KindVNet, ID: a.VNets["red/work"].ID, Fields: Fields{"zone": red, "tag": "100004", "alias": "savepoint " + instance + " red/work"}},
		{Kind: KindSubnet, ID: blue + "-10.20.0.0-24", Parent: a.VNets["blue/work"].ID, Fields: Fields{"vnet": a.VNets["blue/work"].ID, "gateway": "10.20.0.1"}},
		{Kind: KindSubnet, ID: blue + "-10.20.1.0-24", Parent: a.VNets["blue/aside"].ID, Fields: Fields{"vnet": a.VNets["blue/aside"].ID, "gateway": "10.20.1.1"}},
		{Kind: KindSubnet, ID: red + "-10.30.0.0-24", Parent: a.VNets["red/work"].ID, Fields: Fields{"vnet": a.VNets["red/work"].ID, "gateway": "10.30.0.1"}},
		{Kind: KindSubnet, ID: red + "-fd00:30::-64", Parent: a.VNets["red/work"].ID, Fields: Fields{"vnet": a.VNets["red/work"].ID}},
	}
	for i := range want {
		want[i].Op, want[i].Reason = OpCreate, "does not exist"
	}
	if diff := cmp.Diff(want, p.Changes); diff != "" {
		t.Error(diff)
	}
	comparers := cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })
	if diff := cmp.Diff(p.Allocation, p.Settled, comparers); diff != "" {
		t.Errorf("nothing goes, so all stays recorded: %s", diff)
	}
	text, err := json.Marshal(p.Allocation)
	var back Allocation
	if err != nil || json.Unmarshal(text, &back) != nil || cmp.Diff(p.Allocation, back, comparers) != "" {
		t.Errorf("the record does not survive being written: %s, %v", text, err)
	}
}

// F101, F102: the plan looks at both states; one batch, one apply.
func TestDiffAgainstPendingAndRunning(t *testing.T) {
	work := func(a Allocation) string { return a.VNets["blue/work"].ID }
	zone := func(a Allocation) string { return a.Zones["blue"].ID }
	for _, tt := range []struct {
		name   string
		change func(c *cluster, a Allocation, w *Wanted)
		want   func(a Allocation) []string
	}{
		{"nothing", func(*cluster, Allocation, *Wanted) {}, func(Allocation) []string { return nil }},
		{"F105: the order of lists means nothing", func(c *cluster, a Allocation, w *Wanted) {
			c.foreign(KindController, a.Controller, Fields{"type": "evpn", "asn": "65000", "peers": "192.168.50.2, 192.168.50.1"})
		}, func(Allocation) []string { return nil }},
		{"another MTU", func(c *cluster, a Allocation, w *Wanted) { w.Tenants[0].Zone.MTU = 1300 },
			func(a Allocation) []string { return []string{"update zone " + zone(a)} }},
		{"an exit node that somebody added and applied", func(c *cluster, a Allocation, w *Wanted) {
			c.running[KindZone][zone(a)]["exitnodes"], c.pending[KindZone][zone(a)]["exitnodes"] = "pve1", "pve1"
		}, func(a Allocation) []string { return []string{"update zone " + zone(a)} }},
		{"an exit node that is pending", func(c *cluster, a Allocation, w *Wanted) {
			c.pending[KindZone][zone(a)]["exitnodes"] = "pve1"
		}, func(a Allocation) []string { return []string{"update zone " + zone(a)} }},
		{"a switch that is off", func(c *cluster, a Allocation, w *Wanted) {
			c.pending[KindVNet][work(a)]["vlanaware"] = "0"
		}, func(a Allocation) []string { return nil }},
		{"written and not applied", func(c *cluster, a Allocation, w *Wanted) {
			w.Tenants[0].Zone.MTU = 1300
			c.pending[KindZone][zone(a)]["mtu"] = "1300"
		}, func(a Allocation) []string { return []string{"apply zone " + zone(a)} }},
		{"created and not applied", func(c *cluster, a Allocation, w *Wanted) { delete(c.running[KindVNet], work(a)) },
			func(a Allocation) []string { return []string{"apply vnet " + work(a)} }},
		{"its removal is pending", func(c *cluster, a Allocation, w *Wanted) { delete(c.pending[KindVNet], work(a)) },
			func(a Allocation) []string { return []string{"create vnet " + work(a)} }},
		{"made anew after its removal, and not applied", func(c *cluster, a Allocation, w *Wanted) {
			c.pending[KindZone][zone(a)]["mac"] = "BC:24:11:FF:FF:FF"
			c.running[KindZone][zone(a)]["vxlan-port"] = "4790"
			c.running[KindZone][zone(a)]["mtu"] = "1300"
		}, func(a Allocation) []string { return []string{"apply zone " + zone(a)} }},
		{"gone", func(c *cluster, a Allocation, w *Wanted) {
			delete(c.pending[KindVNet], work(a))
			delete(c.running[KindVNet], work(a))
		}, func(a Allocation) []string { return []string{"create vnet " + work(a)} }},
		{"a tenant is not wanted any more", func(c *cluster, a Allocation, w *Wanted) { w.Tenants = w.Tenants[1:] },
			func(a Allocation) []string {
				return []string{
					"delete subnet " + zone(a) + "-10.20.1.0-24", "delete subnet " + zone(a) + "-10.20.0.0-24",
					"delete vnet " + a.VNets["blue/aside"].ID, "delete vnet " + work(a), "delete zone " + zone(a),
				}
			}},
		{"a removal is pending and wanted", func(c *cluster, a Allocation, w *Wanted) {
			w.Tenants[0].VNets[1].Subnets = append(w.Tenants[0].VNets[1].Subnets[:0], Subnet{Prefix: prefix("10.21.0.0/24")})
			delete(c.pending[KindSubnet], zone(a)+"-10.20.1.0-24")
		}, func(a Allocation) []string {
			return []string{"apply subnet " + zone(a) + "-10.20.1.0-24", "create subnet " + zone(a) + "-10.21.0.0-24"}
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := two()
			c, a := applied(t, w)
			tt.change(c, a, &w)
			p := mustDiff(t, w, c, a)
			if diff := cmp.Diff(tt.want(a), lines(p)); diff != "" {
				t.Errorf("%s\n%+v", diff, p.Changes)
			}
			for _, ch := range p.Changes {
				if want := map[string]string{
					"created and not applied": "is pending and not running", "written and not applied": `its change is pending: mtu is "1450", wanted "1300"`,
					"its removal is pending": "runs, and its removal is pending", "an exit node that is pending": `exitnodes is "pve1" and must not be set`,
				}[tt.name]; !strings.Contains(ch.Reason, want) || ch.Reason == "" {
					t.Errorf("reason %q, want %q", ch.Reason, want)
				}
			}
			if p.Empty() != (len(p.Changes) == 0) {
				t.Error("Empty and the changes disagree")
			}
			c.carryOut(t, p, len(p.Changes))
			if again := mustDiff(t, w, c, p.Settled); !again.Empty() {
				t.Errorf("not settled after it: %+v", again.Changes)
			}
			for id, z := range c.running[KindZone] {
				if z["exitnodes"] != "" {
					t.Errorf("zone %s has a way out", id)
				}
			}
		})
	}
}

// F102: what is not ours stops the plan, and every such thing is named.
func TestDiffRefusesForeign(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(c *cluster, a Allocation)
		want   string // in the only refusal; "" for none
	}{
		{"foreign objects elsewhere", func(c *cluster, a Allocation) {
			c.foreign(KindZone, "dmz", Fields{"type": "vlan"})
			c.foreign(KindVNet, "web", Fields{"zone": "dmz", "tag": "12"})
		}, ""},
		{"a foreign zone that uses our controller", func(c *cluster, a Allocation) {
			c.foreign(KindZone, "dmz", Fields{"type": "evpn", "controller": a.Controller, "vrf-vxlan": "7"})
		}, ""},
		{"a new foreign object", func(c *cluster, a Allocation) { c.pending[KindZone]["dmz"] = Fields{"type": "simple"} },
			"zone dmz is not ours and has a pending edit (new)"},
		{"a changed one", func(c *cluster, a Allocation) {
			c.foreign(KindZone, "dmz", Fields{"type": "simple"})
			c.pending[KindZone]["dmz"]["mtu"] = "1400"
		}, "zone dmz is not ours and has a pending edit (changed)"},
		{"a deleted one", func(c *cluster, a Allocation) { c.running[KindZone]["dmz"] = Fields{"type": "simple"} },
			"zone dmz is not ours and has a pending edit (deleted)"},
		{"a pending edit of another kind", func(c *cluster, a Allocation) {
			c.others = []Object{{Kind: "fabric", ID: "spine", State: Changed}}
		}, "fabric spine is not ours and has a pending edit (changed)"},
		{"an id of ours that is not recorded", func(c *cluster, a Allocation) {
			c.foreign(KindZone, newID(instance, KindZone, 31000), Fields{"type": "simple"})
		}, "has an id of ours and is not recorded"},
		{"a vnet without our mark", func(c *cluster, a Allocation) {
			id := a.VNets["red/work"].ID
			c.running[KindVNet][id]["alias"], c.pending[KindVNet][id]["alias"] = "mine now", "mine now"
		}, "is recorded as ours and does not look it: expected alias \"savepoint " + instance + " red/work\""},
		{"a vnet that is about to lose it", func(c *cluster, a Allocation) {
			delete(c.pending[KindVNet][a.VNets["red/work"].ID], "alias")
		}, "is recorded as ours and does not look it"},
		{"a zone with another routing table", func(c *cluster, a Allocation) {
			c.pending[KindZone][a.Zones["red"].ID]["vrf-vxlan"] = "9"
		}, "is recorded as ours and does not look it"},
		{"an edit of ours that is not by us", func(c *cluster, a Allocation) {
			c.pending[KindVNet][a.VNets["red/work"].ID]["isolate-ports"] = "1"
		}, `is ours and has a pending edit of "isolate-ports" that is not`},
		{"a foreign vnet in our zone", func(c *cluster, a Allocation) {
			c.foreign(KindVNet, "spy", Fields{"zone": a.Zones["red"].ID, "tag": "77"})
		}, "vnet spy is not ours and is in a zone of ours"},
		{"a foreign subnet in our vnet", func(c *cluster, a Allocation) {
			c.foreign(KindSubnet, a.Zones["red"].ID+"-10.99.0.0-24", Fields{"vnet": a.VNets["red/work"].ID, "gateway": "10.99.0.1"})
		}, "has an id of ours and is not recorded"},
		{"a foreign vnet with our VNI", func(c *cluster, a Allocation) {
			c.foreign(KindZone, "dmz", Fields{"type": "vxlan", "peers": "192.168.50.1"})
			c.foreign(KindVNet, "spy", Fields{"zone": "dmz", "tag": fmt.Sprint(a.Zones["red"].VRF)})
		}, "vnet spy has VNI 100003, which is recorded as ours"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c, a := applied(t, two())
			tt.change(c, a)
			before := c.dump(func(Kind, string) bool { return false })
			for what, plan := range map[string]func() (Plan, error){
				"plan":    func() (Plan, error) { return Diff(two(), c.observe(), a) },
				"destroy": func() (Plan, error) { return Destroy(c.observe(), a) },
			} {
				p, err := plan()
				var foreign *ForeignError
				switch {
				case tt.want == "" && err != nil:
					t.Errorf("%s: %v", what, err)
				case tt.want == "":
				case !errors.As(err, &foreign):
					t.Errorf("%s: got %v, want a refusal", what, err)
				case len(foreign.Refusals) != 1 || !strings.Contains(err.Error(), tt.want) || foreign.Refusals[0].Mend == "":
					t.Errorf("%s: got %v, want only %q with a way out", what, err, tt.want)
				case len(p.Changes) > 0:
					t.Errorf("%s: a plan beside the refusal", what)
				}
			}
			if after := c.dump(func(Kind, string) bool { return false }); after != before {
				t.Error("planning changed what it looked at")
			}
		})
	}
}

func TestDiffRefusesSecondController(t *testing.T) {
	c := newCluster("pve1", "pve2")
	c.foreign(KindController, "core", Fields{"type": "evpn", "asn": "65001", "peers": "192.168.50.9"})
	_, err := Diff(two(), c.observe(), Allocation{Instance: instance})
	var foreign *ForeignError
	if !errors.As(err, &foreign) || !strings.Contains(err.Error(), `set network.controller to "core"`) {
		t.Errorf("got %v", err)
	}
	w := two()
	w.Controller = Controller{ID: "core"}
	p := mustDiff(t, w, c, Allocation{Instance: instance})
	c.carryOut(t, p, len(p.Changes))
	p, err = Destroy(c.observe(), p.Settled)
	if err != nil {
		t.Fatal(err)
	}
	c.carryOut(t, p, len(p.Changes))
	if len(c.running[KindController]) != 1 || len(c.running[KindZone]) != 0 {
		t.Errorf("after destroy: %v", c.running)
	}
}

// Nothing that guests use is removed, nor what it rests on; the guests are named.
func TestDestroyKeepsWhatIsUsed(t *testing.T) {
	c, a := applied(t, two())
	used := a.VNets["blue/work"].ID
	c.attachments = []Attachment{{"vm 105 on pve2", used}, {"vm 104 on pve1", used}, {"vm 104 on pve1", used}, {"vm 7 on pve1", "vmbr0"}}
	// An earlier destroy got as far as this before it died, and then the guests came.
	delete(c.pending[KindSubnet], a.Zones["blue"].ID+"-10.20.0.0-24")
	delete(c.pending[KindVNet], used)
	p, err := Destroy(c.observe(), a)
	if err != nil {
		t.Fatal(err)
	}
	want := []Kept{
		{KindVNet, used, "is used by vm 104 on pve1, vm 105 on pve2", []string{"vm 104 on pve1", "vm 105 on pve2"}},
		{KindSubnet, a.Zones["blue"].ID + "-10.20.0.0-24", "is in vnet " + used + ", which is used by vm 104 on pve1, vm 105 on pve2", []string{"vm 104 on pve1", "vm 105 on pve2"}},
		{KindZone, a.Zones["blue"].ID, "has vnet " + used + ", which is used", nil},
		{KindController, a.Controller, "has zone " + a.Zones["blue"].ID, nil},
	}
	if diff := cmp.Diff(want, p.Kept); diff != "" {
		t.Error(diff)
	}
	c.carryOut(t, p, len(p.Changes))
	for k, n := range map[Kind]int{KindController: 1, KindZone: 1, KindVNet: 1, KindSubnet: 1} {
		if len(c.running[k]) != n {
			t.Errorf("%s: %v", k, c.running[k])
		}
	}
	if len(p.Settled.Zones) != 1 || len(p.Settled.VNets) != 1 || p.Settled.Controller == "" || len(p.Settled.VNets["blue/work"].Subnets) != 1 {
		t.Errorf("recorded: %+v", p.Settled)
	}
	c.attachments = nil
	p, err = Destroy(c.observe(), p.Settled)
	if err != nil {
		t.Fatal(err)
	}
	c.carryOut(t, p, len(p.Changes))
	if left := c.dump(func(Kind, string) bool { return false }); left != "" {
		t.Errorf("left: %s", left)
	}
	if len(p.Settled.Zones)+len(p.Settled.VNets) != 0 || p.Settled.Controller != "" {
		t.Errorf("still recorded: %+v", p.Settled)
	}
}

// Where guests cannot be seen nobody says that a vnet is unused.
func TestDestroyWithoutSeeingGuests(t *testing.T) {
	c, a := applied(t, two())
	o := c.observe()
	o.Hidden = "no privilege"
	p, err := Destroy(o, a)
	if err != nil || len(p.Changes) != 0 || !p.Settled.Equal(a) {
		t.Fatalf("%+v, %v", p.Changes, err)
	}
	for _, v := range a.VNets {
		if !slices.ContainsFunc(p.Kept, func(k Kept) bool {
			return k.ID == v.ID && k.Reason == "may be used by guests that cannot be seen: no privilege" && len(k.VMs) == 0
		}) {
			t.Errorf("%s is not kept with its reason: %+v", v.ID, p.Kept)
		}
	}
}

// A controller of ours that somebody else's zone came to use stays.
func TestDestroyKeepsSharedController(t *testing.T) {
	c, a := applied(t, two())
	c.foreign(KindZone, "dmz", Fields{"type": "evpn", "controller": a.Controller, "vrf-vxlan": "7"})
	p, err := Destroy(c.observe(), a)
	if err != nil {
		t.Fatal(err)
	}
	c.carryOut(t, p, len(p.Changes))
	if len(c.running[KindController]) != 1 || len(c.running[KindZone]) != 1 || p.Settled.Controller != a.Controller {
		t.Errorf("left %v, recorded %+v", c.running, p.Settled)
	}
}

// A subnet cannot take addresses that guests of an older one still have.
func TestDiffKeepsAddressesOfGuests(t *testing.T) {
	w := two()
	c, a := applied(t, w)
	c.attachments = []Attachment{{"vm 104 on pve1", a.VNets["blue/work"].ID}}
	w.Tenants[0].VNets[0].Subnets = []Subnet{{Prefix: prefix("10.20.0.0/25")}}
	_, err := Diff(w, c.observe(), a)
	var config *ConfigError
	if !errors.As(err, &config) || !strings.Contains(err.Error(), "overlaps 10.20.0.0/24, which guests on vnet") {
		t.Errorf("got %v", err)
	}
	w.Tenants[0].VNets[0].Subnets = []Subnet{{Prefix: prefix("10.40.0.0/24")}}
	p := mustDiff(t, w, c, a)
	if want := []string{"create subnet " + a.Zones["blue"].ID + "-10.40.0.0-24"}; !slices.Equal(lines(p), want) || len(p.Kept) != 1 {
		t.Errorf("got %v, kept %v", lines(p), p.Kept)
	}
}

// F101: the apply's success is not the nodes'.
func TestLagging(t *testing.T) {
	c, a := applied(t, two())
	red := a.Zones["red"].ID
	c.nodes[0].Zones[red] = "pending"
	c.nodes[1].Online = false
	c.nodes = append(c.nodes, Node{Name: "pve3", Online: true, Zones: map[string]string{a.Zones["blue"].ID: Available}})
	p := mustDiff(t, two(), c, a)
	want := []Lag{{"pve1", red, true, "pending"}, {"pve2", a.Zones["blue"].ID, false, Available}, {"pve2", red, false, Available}}
	slices.SortFunc(want, func(a, b Lag) int { return strings.Compare(a.Node+a.Zone, b.Node+b.Zone) })
	if diff := cmp.Diff(want, p.Lagging); diff != "" {
		t.Error(diff)
	}
	if len(p.Changes) != 0 || p.Empty() {
		t.Errorf("a node that lags needs an apply: %v", p.Changes)
	}
	c.nodes[0].Zones[red] = Available
	if p := mustDiff(t, two(), c, a); !p.Empty() || len(p.Lagging) != 2 {
		t.Errorf("an apply does not reach a node that is offline: %+v", p.Lagging)
	}
}

// randomWanted is a valid configuration.
func randomWanted(r *rand.Rand) Wanted {
	w := Wanted{Peers: []netip.Addr{addr("192.168.50.1"), addr("192.168.50.2")}, VNIs: VNIRange{5000, 5063}, Controller: Controller{ASN: 65000}}
	for _, name := range []string{"ant", "bee", "cat", "dog"} {
		if r.IntN(3) == 0 {
			continue
		}
		// A tenant's type never changes: it follows from the name.
		t := Tenant{Name: name, Zone: Zone{Type: map[string]ZoneType{"ant": EVPN, "bee": VXLAN, "cat": Simple, "dog": EVPN}[name]}}
		if t.Zone.Type.overlay() {
			t.Zone.MTU = []int{0, 1400, 1450}[r.IntN(3)]
		}
		if r.IntN(2) == 0 {
			t.Zone.Nodes = []string{"pve1"}
		}
		for i := range 1 + r.IntN(3) {
			net := fmt.Sprintf("10.%d.%d.", name[0], 10*i+r.IntN(3))
			s := Subnet{Prefix: prefix(net + "0/24")}
			if t.Zone.Type == EVPN && r.IntN(2) == 0 {
				s.Gateway = addr(net + fmt.Sprint(1+r.IntN(2)))
			}
			t.VNets = append(t.VNets, VNet{Name: fmt.Sprintf("net%d", i), Subnets: []Subnet{s}})
		}
		w.Tenants = append(w.Tenants, t)
	}
	return w
}

// Whatever is wanted one after the other, and wherever an apply dies: the next
// plan goes on, the one after it has nothing to do, ids and VNIs are unique,
// and what is foreign stays as it was. Destroy leaves nothing of ours.
func TestPlansConverge(t *testing.T) {
	for seed := range uint64(120) {
		r := rand.New(rand.NewPCG(seed, 1))
		c := newCluster("pve1", "pve2")
		c.foreign(KindZone, "dmz", Fields{"type": "vxlan", "peers": "192.168.50.1"})
		c.foreign(KindVNet, "web", Fields{"zone": "dmz", "tag": "5002"})
		c.foreign(KindSubnet, "dmz-10.97.0.0-24", Fields{"vnet": "web"})
		c.interfaces = []string{newID(instance, KindVNet, 3)}
		foreign := c.dump(func(Kind, string) bool { return false })
		a := Allocation{Instance: instance}
		ours := func(k Kind, id string) bool { return inIDSpace(instance, k, id) }
		for step := range 6 {
			for range r.IntN(4) {
				w := randomWanted(r)
				p := mustDiff(t, w, c, a)
				c.carryOut(t, p, r.IntN(len(p.Changes)+1))
				a = p.Allocation
			}
			w := randomWanted(r)
			if step == 5 {
				w = Wanted{}
			}
			p := mustDiff(t, w, c, a)
			if q := mustDiff(t, w, c, a); !slices.Equal(lines(p), lines(q)) {
				t.Fatalf("seed %d: the same input gave\n%v\n%v", seed, lines(p), lines(q))
			}
			c.carryOut(t, p, len(p.Changes))
			a = p.Settled
			if p := mustDiff(t, w, c, a); !p.Empty() || len(p.Kept) != 0 {
				t.Fatalf("seed %d: the plan does not settle: %+v", seed, p.Changes)
			}
			if got := c.dump(ours); got != foreign {
				t.Fatalf("seed %d: foreign objects changed:\n%s\nwere\n%s", seed, got, foreign)
			}
			if c.running[KindVNet][newID(instance, KindVNet, 3)] != nil {
				t.Fatalf("seed %d: a vnet has the name of an interface", seed)
			}
			if n := len(w.Tenants); len(a.Zones) != n {
				t.Fatalf("seed %d: %d zones recorded for %d tenants", seed, len(a.Zones), n)
			}
		}
		if left := c.dump(func(k Kind, id string) bool { return !ours(k, id) }); left != "" {
			t.Fatalf("seed %d: destroy left %s", seed, left)
		}
	}
}
