package proof

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"savepoint/network"
	"savepoint/orchestrator"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func addr(s string) netip.Addr { return netip.MustParseAddr(s) }

// fakeWorld is guests and nodes that do what a sealed network makes them do, and
// what a test disturbs.
type fakeWorld struct {
	t  *testing.T
	mu sync.Mutex

	wanted    network.Wanted
	record    network.Record
	sandboxes []orchestrator.Sandbox
	places    []network.Place
	away      []string
	stored    map[orchestrator.SandboxID]Result
	storeErr  error

	round map[string]*fakeRound // by nonce
	// rounds counts those in which guests listened, and those in which not.
	rounds, listened int
	asked            map[string]int // guests, how often
	routesRead       int

	dead   map[string]error // guests that do not answer
	answer func(from, to orchestrator.Sandbox, p orchestrator.Probe) orchestrator.ProbeAnswer
	hears  func(at, from orchestrator.Sandbox, p orchestrator.Probe) bool
	lies   func(at orchestrator.Sandbox, report *orchestrator.ProbeReport) // of a guest that is given to somebody else
	routes func(node, zone string, table []orchestrator.ZoneRoute) ([]orchestrator.ZoneRoute, error)
}

// fakeRound is what all guests were told for one nonce.
type fakeRound struct {
	orders map[string]orchestrator.ProbeOrder
}

// newWorld has two tenants with guests on two nodes.
func newWorld(t *testing.T) *fakeWorld {
	w := &fakeWorld{t: t, stored: map[orchestrator.SandboxID]Result{}, round: map[string]*fakeRound{}, asked: map[string]int{}, dead: map[string]error{}}
	w.record.Applied.Zones, w.record.Applied.VNets = map[string]network.ZoneRecord{}, map[string]network.VNetRecord{}
	for i, tenant := range []string{"blue", "red"} {
		tn := network.Tenant{Name: tenant, Zone: network.Zone{Type: network.EVPN}}
		w.record.Applied.Zones[tenant] = network.ZoneRecord{ID: "z" + tenant, Type: network.EVPN}
		for j, vnet := range []string{"work", "aside"} {
			p := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(20 + i), byte(j), 0}), 24)
			tn.VNets = append(tn.VNets, network.VNet{Name: vnet, Subnets: []network.Subnet{{Prefix: p, Gateway: p.Addr().Next()}}})
			w.record.Applied.VNets[tenant+"/"+vnet] = network.VNetRecord{ID: "v" + tenant + vnet, Subnets: []netip.Prefix{p}}
		}
		w.wanted.Tenants = append(w.wanted.Tenants, tn)
	}
	w.add("b1", "blue", "work", "pve1", "10.20.0.11")
	w.add("b2", "blue", "work", "pve2", "10.20.0.12")
	w.add("b3", "blue", "aside", "pve1", "10.20.1.13")
	w.add("r1", "red", "work", "pve1", "10.21.0.11")
	w.add("r2", "red", "work", "pve2", "10.21.0.12")
	for _, p := range []struct {
		role    network.Role
		name, a string
	}{
		{network.RoleOrchestrator, "self", "192.168.60.1"}, {network.RoleAPI, "api", "192.168.50.9"}, {network.RoleNode, "pve1", "192.168.50.1"},
		{network.RoleNode, "pve2", "192.168.50.2"}, {network.RoleMetadata, "cloud", "169.254.169.254"}, {network.RoleOutside, "web", "198.51.100.9"},
	} {
		w.places = append(w.places, network.Place{Role: p.role, Name: p.name, Addresses: []netip.Addr{addr(p.a)}, TCP: []uint16{22}, UDP: []uint16{53}})
	}
	return w
}

func (w *fakeWorld) add(name, tenant, vnet, node, a string) orchestrator.Sandbox {
	sb := orchestrator.Sandbox{
		ID: orchestrator.SandboxID("id-" + name), Name: name, State: orchestrator.SandboxReady, VM: orchestrator.VMRef{Node: node},
		Tenant: tenant, VNet: vnet, Address: addr(a),
	}
	w.sandboxes = append(w.sandboxes, sb)
	return sb
}

func (w *fakeWorld) named(name string) orchestrator.Sandbox {
	for _, sb := range w.sandboxes {
		if sb.Name == name {
			return sb
		}
	}
	w.t.Errorf("no sandbox %q", name)
	return orchestrator.Sandbox{}
}

func (w *fakeWorld) at(a netip.Addr) orchestrator.Sandbox {
	for _, sb := range w.sandboxes {
		if sb.Address == a || macOf(sb.Name) != nil && eui(macOf(sb.Name)) == a {
			return sb
		}
	}
	return orchestrator.Sandbox{}
}

func macOf(name string) net.HardwareAddr {
	return net.HardwareAddr{0xbc, 0x24, 0x11, 0, name[0], name[len(name)-1]}
}

func eui(m net.HardwareAddr) netip.Addr {
	return netip.AddrFrom16([16]byte{0xfe, 0x80, 8: m[0] ^ 2, m[1], m[2], 0xff, 0xfe, m[3], m[4], m[5]})
}

func (w *fakeWorld) proof(change func(*Config)) *Proof {
	c := Config{Wanted: w.wanted, Prober: w, Router: w, Surroundings: w, Records: w}
	if change != nil {
		change(&c)
	}
	return New(c)
}

// sealed is the answer that a guest gets where nothing is wrong.
func (w *fakeWorld) sealed(from, to orchestrator.Sandbox, p orchestrator.Probe) orchestrator.ProbeAnswer {
	gateway := (p.Kind == orchestrator.ProbeTCP || p.Kind == orchestrator.ProbeEcho) && p.Address.Is4() && p.Address.As4()[3] == 1 && p.Address.As4()[0] == 10
	switch {
	case p.Kind == orchestrator.ProbeLink, gateway:
		return orchestrator.ProbeAnswered // a router that refuses
	case p.Kind == orchestrator.ProbeClaim, p.Kind == orchestrator.ProbeForge:
		return orchestrator.ProbeSilent
	case to.Name != "" && to.Tenant == from.Tenant && w.dead[to.Name] == nil:
		return orchestrator.ProbeAnswered
	}
	return orchestrator.ProbeSilent
}

// Probe implements Prober.
func (w *fakeWorld) Probe(ctx context.Context, sb orchestrator.Sandbox, order orchestrator.ProbeOrder, meet func(context.Context) error) (orchestrator.ProbeReport, error) {
	w.mu.Lock()
	w.asked[sb.Name]++
	dead := w.dead[sb.Name]
	r := w.round[order.Nonce]
	if r == nil {
		r = &fakeRound{orders: map[string]orchestrator.ProbeOrder{}}
		w.round[order.Nonce] = r
		w.rounds++
		if order.Listen {
			w.listened++
		}
	}
	if dead == nil {
		r.orders[sb.Name] = order
	}
	w.mu.Unlock()
	if dead != nil {
		return orchestrator.ProbeReport{}, dead
	}
	if err := meet(ctx); err != nil {
		return orchestrator.ProbeReport{}, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	report := orchestrator.ProbeReport{MAC: macOf(sb.Name), LinkLocal: eui(macOf(sb.Name)), Results: map[uint64]orchestrator.ProbeResult{}, Heard: map[uint64]bool{}}
	if len(order.Probes) > orchestrator.MaxProbes {
		return report, fmt.Errorf("%d probes at once", len(order.Probes)) // as the real one
	}
	for _, p := range order.Probes {
		answer := w.sealed(sb, w.at(p.Address), p)
		if w.answer != nil {
			if a := w.answer(sb, w.at(p.Address), p); a != "" {
				answer = a
			}
		}
		report.Results[p.ID] = orchestrator.ProbeResult{Answer: answer, Detail: "as the test says"}
	}
	if !order.Listen {
		return report, nil
	}
	for name, o := range r.orders { // every guest that measures now has begun to listen
		from := w.named(name)
		for _, p := range o.Probes {
			if w.hears != nil && w.hears(sb, from, p) {
				report.Heard[p.ID] = true
			}
		}
	}
	if w.lies != nil {
		w.lies(sb, &report)
	}
	return report, nil
}

// Routes implements Router.
func (w *fakeWorld) Routes(_ context.Context, node, zone string) ([]orchestrator.ZoneRoute, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.routesRead++
	table := []orchestrator.ZoneRoute{
		{Prefix: netip.MustParsePrefix("0.0.0.0/0"), Protocol: "kernel"}, // unreachable, as the cluster has it
	}
	for _, sb := range w.sandboxes {
		if "z"+sb.Tenant != zone {
			continue
		}
		p, _ := sb.Address.Prefix(24)
		table = append(table, orchestrator.ZoneRoute{Prefix: p, Protocol: "connected", NextHops: []string{"v" + sb.Tenant + sb.VNet}})
		if sb.VM.Node != node {
			table = append(table, orchestrator.ZoneRoute{Prefix: netip.PrefixFrom(sb.Address, 32), Protocol: "bgp", NextHops: []string{"192.168.50.2"}})
		}
	}
	if w.routes != nil {
		return w.routes(node, zone, table)
	}
	return table, nil
}

// Places implements Surroundings.
func (w *fakeWorld) Places(context.Context) ([]network.Place, []string, error) {
	return w.places, w.away, nil
}

// Sandboxes implements Records.
func (w *fakeWorld) Sandboxes(context.Context) ([]orchestrator.Sandbox, error) {
	return slices.Clone(w.sandboxes), nil
}

// Networks implements Records.
func (w *fakeWorld) Networks(context.Context) (network.Record, error) { return w.record, nil }

// PutProof implements Records.
func (w *fakeWorld) PutProof(_ context.Context, id orchestrator.SandboxID, data json.RawMessage, at time.Time) error {
	if w.storeErr != nil {
		return w.storeErr
	}
	var r Result
	if err := json.Unmarshal(data, &r); err != nil || at.IsZero() {
		return fmt.Errorf("not a proof: %s, %v, %v", data, at, err)
	}
	w.stored[id] = r
	return nil
}
