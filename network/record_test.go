package network

import "testing"

// What runs is what was applied and is still wanted: while something is taken
// away no sandbox is plugged into it, and everything else stays usable.
func TestStill(t *testing.T) {
	_, a := applied(t, two())
	if !a.Still(a).Equal(a) {
		t.Errorf("all of it: %+v", a.Still(a))
	}
	b := a.clone()
	b.Controller = ""
	delete(b.Zones, "red")
	v := b.VNets["blue/work"]
	v.Subnets = nil
	b.VNets["blue/work"] = v
	other := b.VNets["blue/aside"]
	other.ID = "v0000zzz"
	b.VNets["blue/aside"] = other
	got := a.Still(b)
	if got.Controller != "" || len(got.Zones) != 1 || got.Zones["blue"] != a.Zones["blue"] ||
		len(got.VNets) != 1 || got.VNets["blue/work"].ID != a.VNets["blue/work"].ID || len(got.VNets["blue/work"].Subnets) != 0 {
		t.Errorf("%+v", got)
	}
	if len(a.VNets["blue/work"].Subnets) != 1 || len(a.Zones) != 2 {
		t.Errorf("it changed what it was given: %+v", a)
	}
}

// Every recorded object has its name in the configuration, and nothing else.
func TestAllocationName(t *testing.T) {
	_, a := applied(t, two())
	for _, tt := range []struct {
		kind Kind
		id   string
		want string
	}{
		{KindZone, a.Zones["red"].ID, "red"},
		{KindVNet, a.VNets["blue/aside"].ID, "blue/aside"},
		{KindSubnet, a.Zones["red"].ID + "-fd00:30::-64", "red/work fd00:30::/64"},
		{KindController, a.Controller, ""},
		{KindZone, "dmz", ""},
		{KindVNet, a.Zones["red"].ID, ""},
	} {
		if got := a.Name(tt.kind, tt.id); got != tt.want {
			t.Errorf("%s %s: %q, want %q", tt.kind, tt.id, got, tt.want)
		}
	}
}
