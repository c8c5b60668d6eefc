package network

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
)

// places are one of every role, and two nodes.
func places() []Place {
	at := func(r Role, name string, addrs ...string) Place {
		p := Place{Role: r, Name: name, TCP: []uint16{22}, UDP: []uint16{53}}
		for _, a := range addrs {
			p.Addresses = append(p.Addresses, addr(a))
		}
		return p
	}
	return []Place{
		at(RoleOrchestrator, "self", "192.168.60.1"), at(RoleAPI, "pve1", "192.168.50.1", "fd50::1"),
		at(RoleNode, "pve1", "192.168.50.1"), at(RoleNode, "pve2", "192.168.50.2"),
		at(RoleMetadata, "cloud", "169.254.169.254"), at(RoleOutside, "web", "198.51.100.9"),
	}
}

func guest(name, tenant, vnet, node string, addrs ...string) Guest {
	g := Guest{Name: name, Tenant: tenant, VNet: vnet, Node: node}
	for _, a := range addrs {
		g.Addresses = append(g.Addresses, addr(a))
	}
	return g
}

// scene has two tenants with guests on both nodes.
func scene() Scene {
	return Scene{Places: places(), Guests: []Guest{
		guest("b1", "blue", "work", "pve1", "10.20.0.10"), guest("b2", "blue", "work", "pve2", "10.20.0.11"),
		guest("b3", "blue", "aside", "pve1", "10.20.1.10"),
		guest("r1", "red", "work", "pve1", "10.30.0.10", "fd00:30::10"), guest("r2", "red", "work", "pve2", "10.30.0.11", "fd00:30::11"),
	}}
}

// table is the checks as lines.
func table(checks []Check, from string) []string {
	var out []string
	for _, c := range checks {
		if c.From == from {
			line := fmt.Sprintf("%s %s %s", c.Protocol, c.To, c.Expected)
			if c.Gateless {
				line += " gateless"
			}
			out = append(out, line)
		}
	}
	return out
}

func mustChecks(t *testing.T, w Wanted, a Allocation, s Scene) []Check {
	t.Helper()
	checks, err := Checks(w, a, s)
	if err != nil {
		t.Fatal(err)
	}
	return checks
}

// F108: the whole table of one guest: its own vnet, the vnet beside it, the
// other tenant, and every place outside.
func TestChecksOfOneGuest(t *testing.T) {
	_, a := applied(t, two())
	checks := mustChecks(t, two(), a, scene())
	var want []string
	add := func(expected, to string, protocols ...string) {
		for _, p := range protocols {
			want = append(want, p+" "+to+" "+expected)
		}
	}
	add("unreachable", "gateway 10.20.0.1:22", "tcp")
	add("reachable", "guest b2 10.20.0.11", "tcp", "udp", "icmp", "mtu")
	add("reachable", "guest b3 10.20.1.10", "tcp", "udp", "icmp")
	for guest, addrs := range map[string][2]string{"r1": {"10.30.0.10", "fd00:30::10"}, "r2": {"10.30.0.11", "fd00:30::11"}} {
		add("unreachable", "guest "+guest+" "+addrs[0], "tcp", "udp", "icmp", "mac-spoof")
		add("unreachable", "guest "+guest+" as 10.30.0.0", "arp-spoof")
		add("unreachable gateless", "guest "+guest+" "+addrs[1], "ipv6") // b1 has no IPv6 address
		add("unreachable", "guest "+guest, "ipv6-link-local")
	}
	for _, p := range places() {
		to := string(p.Role) + " " + p.Name
		for _, ip := range p.Addresses {
			expected := "unreachable"
			if ip.Is6() {
				expected = "unreachable gateless"
			}
			add(expected, fmt.Sprintf("%s %s", to, netip.AddrPortFrom(ip, 22)), "tcp")
			add(expected, fmt.Sprintf("%s %s", to, netip.AddrPortFrom(ip, 53)), "udp")
			if ip.Is6() {
				add(expected, to+" "+ip.String(), "ipv6")
			} else {
				add("unreachable", to+" "+ip.String(), "icmp")
			}
		}
	}
	add("unreachable", "node pve1 port 22", "ipv6-link-local")
	got := table(checks, "guest b1")
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	for _, c := range checks {
		if c.Protocol == MTU && strings.HasPrefix(c.From, "guest b") && c.MTU != 1450 || c.Protocol == MTU && strings.HasPrefix(c.From, "guest r") && c.MTU != 1400 {
			t.Errorf("%+v carries the wrong size", c)
		}
	}
}

// EVPN routes are in the guest's own zone on the other nodes, and in no other
// zone on any: a leaked route is seen also when nobody uses it.
func TestChecksOfRoutes(t *testing.T) {
	_, a := applied(t, two())
	blue, red := a.Zones["blue"].ID, a.Zones["red"].ID
	var got []string
	for _, c := range mustChecks(t, two(), a, scene()) {
		if c.Protocol == Route && c.Target == "b1" {
			got = append(got, fmt.Sprintf("%s: %s %s", c.From, c.To, c.Expected))
			if c.From != "node "+c.Node+" zone "+c.Zone || c.Address != addr("10.20.0.10") {
				t.Errorf("%+v", c)
			}
		}
	}
	want := []string{
		"node pve2 zone " + blue + ": guest b1 10.20.0.10 reachable",
		"node pve1 zone " + red + ": guest b1 10.20.0.10 unreachable",
		"node pve2 zone " + red + ": guest b1 10.20.0.10 unreachable",
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// What guests of one tenant are to each other depends on the type of the zone.
func TestChecksByZoneType(t *testing.T) {
	for _, tt := range []struct {
		zone               ZoneType
		gateways           bool
		same, other, aside Reach // same node, other node, another vnet
	}{
		{EVPN, true, Reachable, Reachable, Reachable},
		{EVPN, false, Reachable, Reachable, Unreachable},
		{VXLAN, false, Reachable, Reachable, Unreachable},
		{Simple, false, Reachable, Unreachable, Unreachable},
	} {
		w := two()
		w.Tenants[0].Zone.Type = tt.zone
		if !tt.gateways {
			w.Tenants[0].VNets[0].Subnets[0].Gateway, w.Tenants[0].VNets[1].Subnets[0].Gateway = addrZero, addrZero
		}
		_, a := applied(t, w)
		s := scene()
		s.Guests = append(s.Guests, guest("a0", "blue", "work", "pve1", "10.20.0.12"))
		got := map[string]Reach{}
		for _, c := range mustChecks(t, w, a, s) {
			if c.From == "guest b1" && c.Protocol == TCP {
				got[c.Target] = c.Expected
				if away := c.Target != "a0" && c.Target != "b2"; c.Address.Is4() && c.To != "gateway 10.20.0.1:22" && c.Gateless != (away && !tt.gateways) {
					t.Errorf("%s, gateways %v: %+v", tt.zone, tt.gateways, c)
				}
			}
		}
		if got["a0"] != tt.same || got["b2"] != tt.other || got["b3"] != tt.aside || got["r1"] != Unreachable {
			t.Errorf("%s, gateways %v: %v", tt.zone, tt.gateways, got)
		}
	}
}

// Before hand-out only the new guest is proved, in both directions.
func TestChecksFocus(t *testing.T) {
	_, a := applied(t, two())
	s := scene()
	s.Guests = append(s.Guests, guest("zz", "red", "work", "pve1", "10.30.0.20"))
	all := mustChecks(t, two(), a, s)
	s.Focus = "zz" // not the first of its vnet and node
	checks := mustChecks(t, two(), a, s)
	both := map[string]bool{}
	for _, c := range checks {
		if c.Source != "zz" && c.Target != "zz" {
			t.Errorf("%+v has nothing to do with the guest", c)
		}
		both[c.Source+">"+c.Target] = true
	}
	for _, pair := range []string{"zz>b1", "b1>zz", "zz>b2", "b2>zz", "zz>b3", "zz>r1", "r1>zz", "r2>zz", "zz>", ">zz"} {
		if !both[pair] {
			t.Errorf("%s is not checked", pair)
		}
	}
	if len(checks) >= len(all) {
		t.Errorf("%d checks for one, %d for all", len(checks), len(all))
	}
}

// The table grows with the guests, not with their square.
func TestChecksAreBounded(t *testing.T) {
	_, a := applied(t, two())
	count := func(n int) int {
		s := scene()
		for i := range n {
			s.Guests = append(s.Guests, guest(fmt.Sprintf("x%03d", i), "blue", "work", "pve1", fmt.Sprintf("10.20.0.%d", 20+i)))
		}
		checks := mustChecks(t, two(), a, s)
		seen := map[[3]string]bool{}
		for _, c := range checks {
			if seen[c.key()] {
				t.Fatalf("%+v is there twice", c)
			}
			seen[c.key()] = true
		}
		return len(checks)
	}
	if one, two, ten := count(1)-count(0), count(2)-count(0), count(10)-count(0); two != 2*one || ten != 10*one {
		t.Errorf("1, 2 and 10 guests more add %d, %d and %d checks", one, two, ten)
	}
}

// A scene from which no proof can come is refused.
func TestChecksRefuse(t *testing.T) {
	_, a := applied(t, two())
	for _, tt := range []struct {
		name, want string
		change     func(s *Scene)
	}{
		{"nobody", "there is no guest to measure from", func(s *Scene) { s.Guests = nil }},
		{"unknown focus", `guest "zz" is not among the guests`, func(s *Scene) { s.Focus = "zz" }},
		{"no metadata", "no place of role metadata", func(s *Scene) { s.Places = slices.Delete(s.Places, 4, 5) }},
		{"no address of the API", `place "pve1" of role "api" needs`, func(s *Scene) { s.Places[1].Addresses = nil }},
		{"no UDP ports", `place "web" of role "outside" needs`, func(s *Scene) { s.Places[5].UDP = nil }},
		{"unknown role", `place "x" of role "friend" needs`, func(s *Scene) {
			s.Places = append(s.Places, Place{Role: "friend", Name: "x", Addresses: s.Places[0].Addresses, TCP: []uint16{1}, UDP: []uint16{1}})
		}},
		{"an unknown node", "node pve3 has guests", func(s *Scene) { s.Guests[0].Node = "pve3" }},
		{"no node at all", "node pve2 has guests or a zone", func(s *Scene) { s.Places = slices.Delete(s.Places, 3, 4) }},
		{"guest twice", `guest "b1" on node "pve1" has no name or node, or is there twice`, func(s *Scene) { s.Guests[1] = s.Guests[0] }},
		{"unknown vnet", "guest b1 is on vnet blue/else", func(s *Scene) { s.Guests[0].VNet = "else" }},
		{"no address", "guest b1 has no address", func(s *Scene) { s.Guests[0].Addresses = nil }},
		{"foreign address", "guest b1 has address 10.30.0.99", func(s *Scene) { s.Guests[0].Addresses[0] = addr("10.30.0.99") }},
	} {
		s := scene()
		tt.change(&s)
		if checks, err := Checks(two(), a, s); err == nil || !strings.Contains(err.Error(), tt.want) || len(checks) > 0 {
			t.Errorf("%s: got %d checks and %v, want %q", tt.name, len(checks), err, tt.want)
		}
	}
	if _, err := Checks(two(), Allocation{Instance: instance}, scene()); err == nil {
		t.Error("networks that are not there are proved")
	}
}

// answer is what a sealed network shows.
func answer(checks []Check) []Observation {
	var out []Observation
	for _, c := range checks {
		out = append(out, Observation{c.From, c.To, c.Protocol, c.Expected})
	}
	return out
}

// F108, F112: a proof fails closed. Every single line can break the seal, by
// the opposite, by silence, and by two answers.
func TestJudgeFailsClosed(t *testing.T) {
	_, a := applied(t, two())
	checks := mustChecks(t, two(), a, scene())
	if r := Judge(checks, answer(checks)); !r.Sealed || len(r.Failed()) != 0 || len(r.Checks) != len(checks) {
		t.Fatalf("as expected, and not sealed: %v", r.Failed())
	}
	opposite := map[Reach]Reach{Reachable: Unreachable, Unreachable: Reachable}
	for i, c := range checks {
		for what, change := range map[Reach]func([]Observation) []Observation{
			opposite[c.Expected]: func(o []Observation) []Observation { o[i].Observed = opposite[c.Expected]; return o },
			NotMeasured:          func(o []Observation) []Observation { return slices.Delete(o, i, i+1) },
			"maybe":              func(o []Observation) []Observation { o[i].Observed = "maybe"; return o },
			Contradictory: func(o []Observation) []Observation {
				return append(o, Observation{c.From, c.To, c.Protocol, opposite[c.Expected]}, o[i])
			},
		} {
			r := Judge(checks, change(answer(checks)))
			if failed := r.Failed(); r.Sealed || len(failed) != 1 || failed[0] != (Result{c.From, c.To, c.Protocol, c.Expected, what, false}) {
				t.Fatalf("%+v answered %q: sealed %v, failed %v", c, what, r.Sealed, failed)
			}
		}
	}
}

// Silence everywhere is a dead network, answers alone prove no isolation, and
// no checks at all prove nothing.
func TestJudgeNeedsBothExpectations(t *testing.T) {
	up, down := Check{From: "a", To: "b", Protocol: TCP, Expected: Reachable}, Check{From: "a", To: "c", Protocol: TCP, Expected: Unreachable}
	for _, tt := range []struct {
		checks []Check
		want   bool
	}{{nil, false}, {[]Check{up}, false}, {[]Check{down}, false}, {[]Check{up, down}, true}, {[]Check{up, down, {From: "a", To: "d", Protocol: TCP}}, false}, {[]Check{up, down, {From: "a", To: "d", Protocol: TCP, Expected: "maybe"}}, false}} {
		if r := Judge(tt.checks, answer(tt.checks)); r.Sealed != tt.want {
			t.Errorf("%v: sealed %v", tt.checks, r.Sealed)
		}
	}
}

// F108: a guest's own lack of a route proves something only where the network is
// meant to have no way out; what is exempt may be either, and is measured.
func TestJudgeNoRouteAndExempt(t *testing.T) {
	up, down := Check{From: "a", To: "b", Protocol: TCP, Expected: Reachable}, Check{From: "a", To: "d", Protocol: TCP, Expected: Unreachable}
	gateless := func(c Check) Check { c.Gateless = true; return c }
	for _, tt := range []struct {
		expected, got Reach
		gateless      bool
		want          bool
	}{
		{Unreachable, NoRoute, false, false}, {Unreachable, NoRoute, true, true}, {Unreachable, Unreachable, true, true}, {Unreachable, Reachable, true, false},
		{Unreachable, "", true, false}, {Reachable, NoRoute, true, false}, {NoRoute, NoRoute, true, false},
		{Exempt, Reachable, false, true}, {Exempt, Unreachable, false, true}, {Exempt, NoRoute, false, true}, {Exempt, Exempt, false, false}, {Exempt, "", false, false},
	} {
		c := Check{From: "a", To: "c", Protocol: TCP, Expected: tt.expected}
		if tt.gateless {
			c = gateless(c)
		}
		r := Judge([]Check{up, c, down}, []Observation{{"a", "b", TCP, Reachable}, {"a", "c", TCP, tt.got}, {"a", "d", TCP, Unreachable}})
		if r.Checks[1].OK != tt.want || r.Sealed != tt.want {
			t.Errorf("expected %q, observed %q, gateless %v: ok %v, sealed %v", tt.expected, tt.got, tt.gateless, r.Checks[1].OK, r.Sealed)
		}
	}
	exempt := Check{From: "a", To: "c", Protocol: TCP, Expected: Exempt}
	if r := Judge([]Check{up, exempt}, []Observation{{"a", "b", TCP, Reachable}, {"a", "c", TCP, Unreachable}}); r.Sealed {
		t.Error("sealed without anything that must not be reached")
	}
}

// F106: a jump host is exempt at its SSH port, in the networks of the tenant that
// it has a leg in, and nowhere else; every exemption is a line of the table.
func TestChecksOfJumpHost(t *testing.T) {
	_, a := applied(t, two())
	s := scene()
	s.Places = append(s.Places, Place{Role: RoleJump, Name: "bastion", SSH: 2222, TCP: []uint16{22, 2222}, UDP: []uint16{53},
		Addresses: []netip.Addr{addr("10.20.0.8"), addr("10.20.0.1"), addr("10.30.0.8"), addr("192.168.60.9")}})
	checks := mustChecks(t, two(), a, s)
	for from, want := range map[string][]string{
		"guest b1": {
			"tcp jump bastion 10.20.0.8:2222 exempt", "tcp jump bastion 10.20.0.8:22 unreachable",
			"tcp jump bastion 10.20.0.1:2222 exempt", "tcp gateway 10.20.0.1:22 unreachable",
			"icmp jump bastion 10.30.0.8 unreachable", "tcp jump bastion 10.30.0.8:2222 unreachable",
			"tcp jump bastion 192.168.60.9:2222 unreachable", "udp jump bastion 192.168.60.9:53 unreachable",
		},
		"guest r1": {"tcp jump bastion 10.30.0.8:2222 exempt", "tcp jump bastion 10.20.0.8:2222 unreachable"},
	} {
		got := table(checks, from)
		for _, line := range want {
			if !slices.Contains(got, line) {
				t.Errorf("%s: %q is missing in\n%s", from, line, strings.Join(got, "\n"))
			}
		}
	}
	for _, c := range checks {
		if c.Expected == Exempt && (c.Protocol != TCP || c.Port != 2222) || c.Expected == Unreachable && c.Address == addr("10.20.0.8") && c.Source == "b1" && !c.Open {
			t.Errorf("%+v", c)
		}
	}
	s.Places[len(s.Places)-1].SSH = 0
	if got := table(mustChecks(t, two(), a, s), "guest b1"); slices.Contains(got, "tcp gateway 10.20.0.1:22 unreachable") || !slices.Contains(got, "tcp jump bastion 10.20.0.1:22 exempt") {
		t.Errorf("a gateway that is the jump host: %s", strings.Join(got, "\n"))
	}
}

// A claim is made for an address that is nobody's: one that was believed must not
// leave the guest's own in tables that later proofs read.
func TestSpoofedAddressIsNobodys(t *testing.T) {
	_, a := applied(t, two())
	n := 0
	for _, c := range mustChecks(t, two(), a, scene()) {
		if c.Protocol == ARPSpoof {
			if n++; slices.ContainsFunc(scene().Guests, func(g Guest) bool { return slices.Contains(g.Addresses, c.Address) }) || !c.Address.IsValid() {
				t.Errorf("%+v", c)
			}
		}
	}
	if n == 0 {
		t.Error("nothing is claimed")
	}
}

// The JSON is a contract.
func TestReportJSON(t *testing.T) {
	for want, checks := range map[string][]Check{
		`{"sealed":false,"checks":[]}`: nil,
		`{"sealed":false,"checks":[{"from":"guest a","to":"api x 10.0.0.1:8006","protocol":"tcp","expected":"unreachable","observed":"reachable","ok":false}]}`: {
			{From: "guest a", To: "api x 10.0.0.1:8006", Protocol: TCP, Expected: Unreachable, Source: "a", Port: 8006, Address: addr("10.0.0.1"), Node: "n", Zone: "z", Target: "t", MTU: 5},
		},
	} {
		got, err := json.Marshal(Judge(checks, []Observation{{"guest a", "api x 10.0.0.1:8006", TCP, Reachable}}))
		if err != nil || string(got) != want {
			t.Errorf("got %s, %v, want %s", got, err, want)
		}
	}
}
