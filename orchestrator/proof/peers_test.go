package proof

import (
	"errors"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"savepoint/network"
	"savepoint/orchestrator"
)

// mustMeasure proves one sandbox in a bubble and returns the result.
func mustMeasure(t *testing.T, w *fakeWorld, name string) Result {
	t.Helper()
	var res Result
	synctest.Test(t, func(t *testing.T) {
		var err error
		if res, err = w.proof(nil).Measure(t.Context(), w.named(name)); err != nil {
			t.Error(err)
		}
	})
	return res
}

// F108: a guest that is given to somebody else may say anything of what it sends
// and of what is sent to it. What others send to each other it cannot spoil,
// whatever it claims to have heard: ids of probes are told to their sender alone.
func TestLiesOfAPeer(t *testing.T) {
	w := newWorld(t)
	w.lies = func(at orchestrator.Sandbox, report *orchestrator.ProbeReport) {
		if at.Name != "r2" {
			return
		}
		ids := []uint64{math.MaxInt64}
		for _, o := range w.round {
			for _, p := range o.orders["r2"].Probes { // all that it was told
				ids = append(ids, p.ID, p.ID+1, p.ID-1)
			}
		}
		for id := range uint64(5000) {
			ids = append(ids, id)
		}
		for _, id := range ids {
			report.Heard[id] = true
			report.Results[id] = orchestrator.ProbeResult{Answer: orchestrator.ProbeAccepted}
		}
	}
	res := mustVerify(t, w, nil)
	if res.Sealed {
		t.Error("the liar's own lines are as expected")
	}
	for _, c := range res.Failed() {
		if c.From != "guest r2" {
			t.Errorf("spoiled: %s", Line(c))
		}
	}
	for _, name := range []string{"b3", "r1"} {
		for _, c := range w.stored[orchestrator.SandboxID("id-"+name)].Failed() {
			if !strings.Contains(c.From+" "+c.To, "guest r2") {
				t.Errorf("%s: a line that does not name the peer: %s", name, Line(c))
			}
		}
	}
}

// What a third guest heard is told with its name.
func TestWitness(t *testing.T) {
	w := newWorld(t)
	w.hears = func(at, from orchestrator.Sandbox, p orchestrator.Probe) bool {
		return at.Name == "r2" && from.Name == "b1" && p.Kind == orchestrator.ProbeUDP && p.Address == addr("10.21.0.11")
	}
	want := "guest b1 to guest r1 10.21.0.11 over udp: sandbox r2 heard it"
	if res := mustMeasure(t, w, "b1"); res.Sealed || !slices.Contains(res.Notes, want) {
		t.Errorf("notes %q", res.Notes)
	}
}

// No guest's own address and no guest's MAC address is claimed, and no MAC address
// twice: what a node learned from that must not be of use or harm to anybody.
func TestClaimsAreOfNobody(t *testing.T) {
	w := newWorld(t)
	if res := mustVerify(t, w, nil); !res.Sealed {
		t.Fatalf("failed %q", failed(res))
	}
	macs, claims := map[string]bool{}, 0
	for _, r := range w.round {
		for _, o := range r.orders {
			for _, p := range o.Probes {
				switch p.Kind {
				case orchestrator.ProbeClaim:
					claims++
					if w.at(p.Address).Name != "" {
						t.Errorf("%v is claimed, which a guest has", p.Address)
					}
				case orchestrator.ProbeForge:
					if m := p.MAC.String(); macs[m] || p.MAC[0]&3 != 2 {
						t.Errorf("%v is forged: it is used already, or is no locally administered one", p.MAC)
					}
					macs[p.MAC.String()] = true
				}
			}
		}
	}
	if claims == 0 || len(macs) == 0 {
		t.Errorf("%d claims, %d MAC addresses", claims, len(macs))
	}
}

// F108: a guest without a route shows nothing by its silence but where its network
// is meant to have no way out.
func TestNoRoute(t *testing.T) {
	lost := func(w *fakeWorld) {
		w.answer = func(from, to orchestrator.Sandbox, p orchestrator.Probe) orchestrator.ProbeAnswer {
			if from.Name == "b1" && to.Tenant != "blue" && !p.Address.Is6() && p.Address.IsValid() && p.Address.As4()[3] > 1 && p.Kind != orchestrator.ProbeClaim && p.Kind != orchestrator.ProbeForge {
				return orchestrator.ProbeNoRoute
			}
			return ""
		}
	}
	w := newWorld(t)
	lost(w)
	res := mustMeasure(t, w, "b1")
	if want := "guest b1 to outside web 198.51.100.9 over icmp is no route, expected unreachable"; res.Sealed || !slices.Contains(failed(res), want) {
		t.Errorf("sealed %v, failed %q", res.Sealed, failed(res))
	}
	w = newWorld(t)
	lost(w)
	for i := range w.wanted.Tenants[0].VNets {
		w.wanted.Tenants[0].VNets[i].Subnets[0].Gateway = netip.Addr{}
	}
	w.sandboxes = slices.DeleteFunc(w.sandboxes, func(sb orchestrator.Sandbox) bool { return sb.Name == "b3" }) // on another network, not to be reached now
	w.routes = func(node, zone string, table []orchestrator.ZoneRoute) ([]orchestrator.ZoneRoute, error) {
		return table, nil
	}
	res = mustMeasure(t, w, "b1")
	if !res.Sealed {
		t.Errorf("without a gateway: failed %q", failed(res))
	}
	if !slices.ContainsFunc(res.Checks, func(c network.Result) bool { return c.Observed == network.NoRoute && c.OK }) {
		t.Error("the table does not show it")
	}
}

// A jump host is told to those on its link, and its exemption is a line.
func TestJumpHost(t *testing.T) {
	w := newWorld(t)
	w.places = append(w.places, network.Place{Role: network.RoleJump, Name: "bastion", SSH: 2222, TCP: []uint16{22}, UDP: []uint16{53}, Addresses: []netip.Addr{addr("10.20.0.8"), addr("10.21.0.8")}})
	w.answer = func(from, _ orchestrator.Sandbox, p orchestrator.Probe) orchestrator.ProbeAnswer {
		if p.Kind == orchestrator.ProbeTCP && p.Port == 2222 && from.Tenant == map[netip.Addr]string{addr("10.20.0.8"): "blue", addr("10.21.0.8"): "red"}[p.Address] {
			return orchestrator.ProbeAccepted
		}
		return ""
	}
	res := mustVerify(t, w, nil)
	if !res.Sealed {
		t.Errorf("failed %q", failed(res))
	}
	want := network.Result{From: "guest b1", To: "jump bastion 10.20.0.8:2222", Protocol: network.TCP, Expected: network.Exempt, Observed: network.Reachable, OK: true}
	if !slices.Contains(res.Checks, want) {
		t.Errorf("no line %+v", want)
	}
	for _, r := range w.round {
		for name, o := range r.orders {
			jumps := map[string][]netip.Addr{"b1": {addr("10.20.0.8")}, "b2": {addr("10.20.0.8")}, "b3": nil, "r1": {addr("10.21.0.8")}, "r2": {addr("10.21.0.8")}}[name]
			if !slices.Equal(o.Jumps, jumps) || (o.JumpPort == 2222) != (len(jumps) > 0) {
				t.Errorf("%s was told %v, port %d", name, o.Jumps, o.JumpPort)
			}
		}
	}
}

// Any number of networks is proved, as many at a time as a guest accepts; a dead
// network is found in each part.
func TestManyNetworks(t *testing.T) {
	build := func(t *testing.T) *fakeWorld {
		w := newWorld(t)
		for i := range 90 {
			tenant := fmt.Sprintf("t%02d", i)
			p := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 100, byte(i), 0}), 24)
			w.wanted.Tenants = append(w.wanted.Tenants, network.Tenant{Name: tenant, Zone: network.Zone{Type: network.Simple}, VNets: []network.VNet{{Name: "n", Subnets: []network.Subnet{{Prefix: p}}}}})
			w.record.Applied.Zones[tenant] = network.ZoneRecord{ID: "z" + tenant, Type: network.Simple}
			w.record.Applied.VNets[tenant+"/n"] = network.VNetRecord{ID: "v" + tenant, Subnets: []netip.Prefix{p}}
			w.add("g"+tenant, tenant, "n", "pve1", fmt.Sprintf("10.100.%d.20", i))
		}
		return w
	}
	w := build(t)
	res := mustMeasure(t, w, "b1")
	if !res.Sealed || w.listened < 2 {
		t.Errorf("sealed %v after %d parts, %d failed, notes %q", res.Sealed, w.listened, len(res.Failed()), res.Notes)
	}
	n := 0
	for _, c := range res.Checks {
		if c.From == "guest b1" && c.Protocol == network.ARPSpoof {
			n++
		}
	}
	if n != 92 {
		t.Errorf("%d networks of others are tried", n)
	}
	w = build(t)
	w.answer = func(from, _ orchestrator.Sandbox, _ orchestrator.Probe) orchestrator.ProbeAnswer {
		if w.listened > 1 {
			return orchestrator.ProbeSilent
		}
		return ""
	}
	if err := mustFail(t, w, "b1"); !errors.Is(err, orchestrator.ErrDenied) {
		t.Errorf("got %v", err)
	}
}

// Networks whose sandboxes are off are named in the proof, which is stored so.
func TestUntriedNetworksAreNoted(t *testing.T) {
	w := newWorld(t)
	w.sandboxes[3].State = orchestrator.SandboxQuarantined // r1
	w.dead["r2"] = fmt.Errorf("no sshd: %w", orchestrator.ErrUnavailable)
	res := mustMeasure(t, w, "b1")
	want := []string{
		"network red/work on node pve1 was not tried: none of its sandboxes took part (r1 is quarantined)",
		"network red/work on node pve2 was not tried: none of its sandboxes took part (r2)",
	}
	for _, n := range want {
		if !slices.Contains(res.Notes, n) || !slices.Contains(w.stored["id-b1"].Notes, n) {
			t.Errorf("%q is missing in %q and %q", n, res.Notes, w.stored["id-b1"].Notes)
		}
	}
}
