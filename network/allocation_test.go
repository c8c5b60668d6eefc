package network

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
)

var addrZero netip.Addr

// F107: ids fit the cluster's rules, and only exactly they are in our space.
func TestIDs(t *testing.T) {
	for _, n := range []uint32{0, 1, 31, 32, idCount - 1} {
		for kind := range idKinds {
			id := newID(instance, kind, n)
			if !shortID.MatchString(id) || len(id) != 8 || !inIDSpace(instance, kind, id) {
				t.Errorf("%s %d: %q", kind, n, id)
			}
			if inIDSpace("another", kind, id) {
				t.Errorf("%q is also one of another instance", id)
			}
		}
	}
	zone := newID(instance, KindZone, 5)
	for _, tt := range []struct {
		kind Kind
		id   string
		want bool
	}{
		{KindZone, zone, true},
		{KindVNet, zone, false},
		{KindZone, strings.ToUpper(zone), false},
		{KindZone, zone[:7], false},
		{KindZone, zone + "0", false},
		{KindZone, "x" + zone[1:], false},
		{KindZone, zone[:7] + "i", false},
		{KindZone, "", false},
		{KindSubnet, zone + "-10.0.0.0-24", true},
		{KindSubnet, "dmz-10.0.0.0-24", false},
		{"fabric", zone, false},
	} {
		if got := inIDSpace(instance, tt.kind, tt.id); got != tt.want {
			t.Errorf("%s %q: got %v", tt.kind, tt.id, got)
		}
	}
}

// A damaged record is refused, not worked with.
func TestDamagedRecord(t *testing.T) {
	_, good := applied(t, two())
	blue := good.Zones["blue"]
	for name, damage := range map[string]func(a *Allocation){
		"no instance":           func(a *Allocation) { a.Instance = "" },
		"instance for no alias": func(a *Allocation) { a.Instance = "a,b" },
		"foreign controller":    func(a *Allocation) { a.Controller = "core" },
		"foreign zone":          func(a *Allocation) { a.Zones["blue"] = ZoneRecord{ID: "dmz", Type: EVPN, VRF: 9} },
		"zone twice":            func(a *Allocation) { a.Zones["green"] = blue },
		"VRF twice": func(a *Allocation) {
			a.Zones["red"] = ZoneRecord{ID: a.Zones["red"].ID, Type: EVPN, VRF: blue.VRF}
		},
		"no VRF":          func(a *Allocation) { a.Zones["blue"] = ZoneRecord{ID: blue.ID, Type: EVPN} },
		"foreign vnet":    func(a *Allocation) { a.VNets["blue/work"] = VNetRecord{ID: "vmbr0", VNI: 9} },
		"VNI too large":   func(a *Allocation) { a.VNets["blue/work"] = VNetRecord{ID: a.VNets["blue/work"].ID, VNI: 1 << 24} },
		"vnet of no zone": func(a *Allocation) { delete(a.Zones, "blue") },
	} {
		a := good.clone()
		damage(&a)
		if _, err := Destroy(Observed{}, a); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	if _, err := Destroy(Observed{}, good); err != nil {
		t.Error(err)
	}
}

// What was given back is chosen last: a node that was away may still have it.
func TestAllocationGoesRound(t *testing.T) {
	w := two()
	w.VNIs = VNIRange{100000, 100005}
	c, a := applied(t, w)
	old := a.Zones["blue"]
	w.Tenants = w.Tenants[1:]
	p := mustDiff(t, w, c, a)
	c.carryOut(t, p, len(p.Changes))
	w.Tenants = append(w.Tenants, Tenant{"green", Zone{Type: EVPN}, []VNet{{Name: "work", Subnets: []Subnet{{Prefix: prefix("10.60.0.0/24")}}}}})
	p = mustDiff(t, w, c, p.Settled)
	green := p.Allocation.Zones["green"]
	if green.ID == old.ID || green.VRF != 100005 || p.Allocation.VNets["green/work"].VNI != 100000 {
		t.Errorf("got %+v and %+v after %+v", green, p.Allocation.VNets["green/work"], old)
	}
}

// Numbers that are configured are not given to somebody else before.
func TestConfiguredNumbersAreLeftOut(t *testing.T) {
	w := two()
	w.Tenants[1].Zone.VRF, w.Tenants[1].VNets[0].VNI = 100000, 100002
	_, a := applied(t, w)
	got := []VNI{a.Zones["blue"].VRF, a.VNets["blue/work"].VNI, a.VNets["blue/aside"].VNI, a.Zones["red"].VRF, a.VNets["red/work"].VNI}
	if want := []VNI{100001, 100003, 100004, 100000, 100002}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// FuzzAllocation: whatever the cluster has and whoever asks, ids and VNIs are
// valid, unique, nobody else's, and the same when asked again.
func FuzzAllocation(f *testing.F) {
	f.Add(instance, uint8(3), uint8(2), uint32(100000), uint16(40), uint32(0), []byte{1, 2, 3})
	f.Add("x", uint8(1), uint8(1), uint32(1), uint16(0), uint32(idCount-1), []byte{})
	f.Add("A-b_9", uint8(9), uint8(9), uint32(maxVNI-100), uint16(100), uint32(idCount-2), []byte{0, 255, 1})
	f.Fuzz(func(t *testing.T, instance string, tenants, vnets uint8, first uint32, size uint16, last uint32, taken []byte) {
		w := Wanted{VNIs: VNIRange{VNI(first), VNI(first) + VNI(size)}, Controller: Controller{ASN: 1}, Peers: []netip.Addr{addr("192.168.0.1")}}
		for i := range tenants % 10 {
			tenant := Tenant{Name: fmt.Sprintf("t%d", i), Zone: Zone{Type: []ZoneType{EVPN, VXLAN, Simple}[i%3]}}
			for j := range 1 + vnets%10 {
				s := Subnet{Prefix: netip.PrefixFrom(netip.AddrFrom4([4]byte{10, i, j, 0}), 24)}
				tenant.VNets = append(tenant.VNets, VNet{Name: fmt.Sprintf("n%d", j), Subnets: []Subnet{s}})
			}
			w.Tenants = append(w.Tenants, tenant)
		}
		// Somebody else's VNIs, and interfaces with names that we might choose.
		o := Observed{Zones: []Object{{Kind: KindZone, ID: "dmz", Running: Fields{"type": "vxlan"}, Pending: Fields{"type": "vxlan"}}}}
		foreign, names := map[VNI]bool{}, map[string]bool{}
		for i, b := range taken {
			vni := VNI(first) + VNI(b)
			vnet := Fields{"zone": "dmz", "tag": fmt.Sprint(uint32(vni))}
			o.VNets = append(o.VNets, Object{Kind: KindVNet, ID: fmt.Sprintf("w%d", i), Running: vnet, Pending: vnet})
			foreign[vni] = true
			name := newID(instance, KindVNet, (last%idCount+uint32(b))%idCount)
			o.Interfaces = append(o.Interfaces, name)
			names[name] = true
		}
		start := Allocation{Instance: instance, LastID: last % idCount, LastVNI: VNI(last) % maxVNI}
		p, err := Diff(w, o, start)
		if err != nil {
			if len(p.Changes) > 0 {
				t.Fatal("an error and a plan")
			}
			return
		}
		a := p.Allocation
		if err := a.check(); err != nil {
			t.Fatalf("a record that is refused: %v", err)
		}
		check := func(id string, vni VNI, overlay bool) {
			if !shortID.MatchString(id) || names[id] {
				t.Fatalf("id %q", id)
			}
			if overlay && (vni < w.VNIs.First || vni > w.VNIs.Last || foreign[vni]) {
				t.Fatalf("VNI %d of %v", vni, w.VNIs)
			}
			names[id], foreign[vni] = true, overlay || foreign[vni]
		}
		for _, z := range a.Zones {
			check(z.ID, z.VRF, z.Type == EVPN)
		}
		for key, v := range a.VNets {
			check(v.ID, v.VNI, a.Zones[tenantOf(key)].Type.overlay())
			if alias := mark(instance, key); !aliasText.MatchString(alias) {
				t.Fatalf("alias %q", alias)
			}
		}
		again, err := Diff(w, o, start)
		if err != nil || !maps.Equal(again.Allocation.Zones, a.Zones) || fmt.Sprint(again.Allocation.VNets) != fmt.Sprint(a.VNets) {
			t.Fatalf("asked again: %+v, %v; was %+v", again.Allocation, err, a)
		}
		if more, err := Diff(w, o, a); err != nil || !maps.Equal(more.Allocation.Zones, a.Zones) || more.Allocation.LastVNI != a.LastVNI {
			t.Fatalf("recorded, and asked again: %+v, %v; was %+v", more.Allocation, err, a)
		}
	})
}
