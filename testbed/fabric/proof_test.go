package fabric

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"savepoint/network"
	"savepoint/orchestrator"
	"savepoint/orchestrator/proof"
	"savepoint/orchestrator/sshexec"
	"savepoint/proxmox/evpn"
)

// proving measures with the program that real guests run, in the namespaces that
// stand in for them.
type proving struct {
	l       *lab
	guests  map[string]*guest
	six     bool // sandboxes have their IPv6 address
	extra   []orchestrator.Sandbox
	records map[orchestrator.SandboxID]json.RawMessage
	mu      sync.Mutex
}

type duplex struct {
	io.Reader
	io.Writer
}

func (p *proving) Probe(ctx context.Context, sb orchestrator.Sandbox, order orchestrator.ProbeOrder, meet func(context.Context) error) (orchestrator.ProbeReport, error) {
	g := p.guests[sb.Name]
	if g == nil {
		return orchestrator.ProbeReport{}, fmt.Errorf("no such guest: %w", orchestrator.ErrUnavailable)
	}
	cmd := exec.CommandContext(ctx, "sh", "-c", sshexec.ProbeCommand())
	cmd.WaitDelay = time.Second
	var complaint strings.Builder
	cmd.Stderr = &complaint
	in, err := cmd.StdinPipe()
	if err != nil {
		return orchestrator.ProbeReport{}, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return orchestrator.ProbeReport{}, err
	}
	if err := within(g.ns, cmd.Start); err != nil {
		return orchestrator.ProbeReport{}, err
	}
	report, err := sshexec.ProbeOver(ctx, duplex{out, in}, order, meet)
	in.Close()
	if werr := cmd.Wait(); err == nil {
		err = werr
	}
	if err != nil {
		err = fmt.Errorf("%w: %s", err, complaint.String())
	}
	return report, err
}

func (p *proving) Routes(ctx context.Context, node, zone string) ([]orchestrator.ZoneRoute, error) {
	return p.l.f.ZoneRoutes(ctx, node, zone)
}

func (p *proving) Places(context.Context) ([]network.Place, []string, error) {
	at := func(r network.Role, name string, a netip.Addr) network.Place {
		return network.Place{Role: r, Name: name, Addresses: []netip.Addr{a}, TCP: []uint16{22, 4242}, UDP: []uint16{53, 4242}}
	}
	f := p.l.f
	return []network.Place{
		at(network.RoleOrchestrator, "self", f.Address(Outside)), at(network.RoleAPI, "api", f.Address("pve1")),
		at(network.RoleNode, "pve1", f.Address("pve1")), at(network.RoleNode, "pve2", f.Address("pve2")),
		at(network.RoleMetadata, "cloud", Metadata), at(network.RoleOutside, "web", Web),
	}, nil, nil
}

func (p *proving) Sandboxes(context.Context) ([]orchestrator.Sandbox, error) {
	out := slices.Clone(p.extra)
	for name := range p.guests {
		out = append(out, p.sandbox(name))
	}
	return out, nil
}

func (p *proving) sandbox(name string) orchestrator.Sandbox {
	g := p.guests[name]
	sb := orchestrator.Sandbox{
		ID: orchestrator.SandboxID(name), Name: name, State: orchestrator.SandboxReady, VM: orchestrator.VMRef{Node: g.node},
		Address: g.address, Tenant: strings.TrimRight(g.vnet, "ab"), VNet: g.vnet,
	}
	if p.six {
		sb.Address = g.v6
	}
	return sb
}

func (p *proving) Networks(context.Context) (network.Record, error) {
	a := network.Allocation{Zones: map[string]network.ZoneRecord{}, VNets: map[string]network.VNetRecord{}}
	for _, t := range proved().Tenants {
		a.Zones[t.Name] = network.ZoneRecord{ID: t.Name, Type: network.EVPN}
		for _, v := range t.VNets {
			a.VNets[t.Name+"/"+v.Name] = network.VNetRecord{ID: v.Name}
		}
	}
	return network.Record{Allocation: a, Applied: a}, nil
}

func (p *proving) PutProof(_ context.Context, id orchestrator.SandboxID, data json.RawMessage, _ time.Time) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.records[id] = data
	return nil
}

// proved is the configuration that tenants() carries out.
func proved() network.Wanted {
	var w network.Wanted
	for _, z := range tenants() {
		t := network.Tenant{Name: z.ID, Zone: network.Zone{Type: network.EVPN}}
		for _, v := range z.VNets {
			n := network.VNet{Name: v.ID}
			for _, g := range v.Gateways {
				n.Subnets = append(n.Subnets, network.Subnet{Prefix: g.Masked(), Gateway: g.Addr()})
			}
			t.VNets = append(t.VNets, n)
		}
		w.Tenants = append(w.Tenants, t)
	}
	return w
}

// F101 F108: the proof of two tenants on two nodes is made from inside the
// guests; a leak, a lost filter and a joined network show in it.
func TestLabProof(t *testing.T) {
	l := newLab(t)
	l.apply(tenants())
	p := &proving{l: l, records: map[orchestrator.SandboxID]json.RawMessage{}, guests: map[string]*guest{
		"a1": l.guest("pve1", "bluea", 11), "a2": l.guest("pve2", "bluea", 12), "b1": l.guest("pve1", "blueb", 21),
		"r1": l.guest("pve1", "reda", 31), "r2": l.guest("pve2", "reda", 32),
	}}
	l.serve(l.f.outside, Web, Metadata, l.f.Address(Outside))
	for _, n := range l.f.nodes {
		l.serve(n.ns)
	}
	// Guests that nobody has heard of yet, as after their first boot.
	for _, g := range p.guests {
		l.reach(g.ns, "icmp", g.gateway.String(), time.Second)
		l.reach(g.ns, "icmp", g.gateway6.String(), time.Second)
	}
	pr := proof.New(proof.Config{Wanted: proved(), Prober: p, Router: p, Surroundings: p, Records: p})
	verify := func(t *testing.T) proof.Result {
		t.Helper()
		begin := time.Now()
		res, err := pr.Verify(l.ctx)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%d checks in %v, sealed %v", len(res.Checks), time.Since(begin).Round(time.Millisecond), res.Sealed)
		for i, c := range res.Failed() {
			if i < 30 {
				t.Log(proof.Line(c))
			}
		}
		for _, n := range res.Notes {
			t.Log(n)
		}
		return res
	}
	sealed := func(t *testing.T) {
		t.Helper()
		if res := verify(t); !res.Sealed {
			t.Fatal("not sealed")
		}
	}
	t.Run("IPv4", sealed)
	if len(p.records) != len(p.guests) {
		t.Errorf("%d proofs are stored for %d sandboxes", len(p.records), len(p.guests))
	}
	p.six = true
	t.Run("IPv6", sealed)
	p.six = false
	t.Run("one", func(t *testing.T) {
		begin := time.Now()
		if err := pr.Prove(l.ctx, p.sandbox("r2")); err != nil {
			t.Error(err)
		}
		t.Logf("one sandbox in %v", time.Since(begin).Round(time.Millisecond))
	})
	t.Run("program", func(t *testing.T) { p.checkProgram(t) })
	t.Run("leak", func(t *testing.T) {
		if err := l.f.Leak(l.ctx, "pve1", "blue"); err != nil {
			t.Fatal(err)
		}
		res := verify(t)
		got := map[string]bool{}
		for _, c := range res.Failed() {
			if c.Observed == network.Reachable && c.From == "guest a1" {
				got[string(c.Protocol)+" "+strings.Fields(c.To)[0]] = true
			}
		}
		for _, want := range []string{"tcp outside", "udp outside", "icmp outside", "tcp metadata", "icmp node", "tcp orchestrator", "tcp api"} {
			if !got[want] {
				t.Errorf("%s is not reported: %v", want, got)
			}
		}
		var unsealed *orchestrator.UnsealedError
		if err := pr.Prove(l.ctx, p.sandbox("a1")); !errors.As(err, &unsealed) {
			t.Errorf("handed out with a leak: %v", err)
		}
		if err := pr.Prove(l.ctx, p.sandbox("r2")); err != nil {
			t.Errorf("the other tenant: %v", err)
		}
		if err := l.f.Seal(l.ctx, "pve1", "blue"); err != nil {
			t.Fatal(err)
		}
		if err := pr.Prove(l.ctx, p.sandbox("a1")); err != nil {
			t.Errorf("after it was sealed: %v", err)
		}
	})
	t.Run("unfiltered", func(t *testing.T) {
		// The zones alone contain what guests forge, where ports have no filter.
		for _, n := range l.f.nodes {
			for _, z := range n.zones {
				if _, err := run(l.ctx, z.ns, nil, "nft", "flush", "chain", "bridge", "savepoint", "from_guests"); err != nil {
					t.Fatal(err)
				}
			}
		}
		sealed(t)
		for _, n := range l.f.nodes {
			for _, z := range n.zones {
				if err := z.filter(l.ctx); err != nil {
					t.Fatal(err)
				}
			}
		}
		sealed(t)
	})
	t.Run("joined", func(t *testing.T) {
		// A cable between the tenants' bridges of one node, as two zones with one
		// VNI would be: frames pass, though no route does.
		n := l.node("pve1")
		blue, red := n.zones["blue"].ns, n.zones["red"].ns
		err := steps(l.ctx, blue, "link add join type veth peer name join netns "+red, "link set join master bluea up")
		if err == nil {
			err = steps(l.ctx, red, "link set join master reda up")
		}
		if err != nil {
			t.Fatal(err)
		}
		res := verify(t)
		for _, c := range res.Checks {
			if c.From == "guest a1" && strings.HasPrefix(c.To, "guest r1") && c.Protocol == network.LinkLocal && c.OK {
				t.Errorf("not reported: %s", proof.Line(c))
			}
		}
		// Without the filters of the ports the guests can also lie across it.
		for _, ns := range []string{blue, red} {
			if _, err := run(l.ctx, ns, nil, "nft", "flush", "chain", "bridge", "savepoint", "from_guests"); err != nil {
				t.Fatal(err)
			}
		}
		lies := 0
		for _, c := range verify(t).Checks {
			if c.From == "guest a1" && strings.HasPrefix(c.To, "guest r1") && (c.Protocol == network.ARPSpoof || c.Protocol == network.MACSpoof) {
				lies++
				if c.Observed != network.Reachable {
					t.Errorf("not reported: %s", proof.Line(c))
				}
			}
		}
		if lies != 2 {
			t.Errorf("%d spoofing checks", lies)
		}
		if err := ip(l.ctx, blue, "link del join"); err != nil {
			t.Fatal(err)
		}
		for _, z := range []string{"blue", "red"} {
			if err := n.zones[z].filter(l.ctx); err != nil {
				t.Fatal(err)
			}
		}
		sealed(t)
	})
	t.Run("service", func(t *testing.T) {
		// Something that listens in a zone's router is the node's, and in reach.
		tcp, err := listenIn(l.ctx, l.node("pve1").zones["blue"].ns, "tcp", "[::]:22")
		if err != nil {
			t.Fatal(err)
		}
		defer tcp.Close()
		res := verify(t)
		for _, want := range []string{"gateway 10.1.1.1:22 tcp", "node pve1 port 22 ipv6-link-local"} {
			if !slices.ContainsFunc(res.Failed(), func(c network.Result) bool {
				return c.From == "guest a1" && c.To+" "+string(c.Protocol) == want && c.Observed == network.Reachable
			}) {
				t.Errorf("%s is not reported", want)
			}
		}
	})
}

// checkProgram: what the forced command of a node says is what its zebra says.
func (p *proving) checkProgram(t *testing.T) {
	program := filepath.Join(t.TempDir(), "savepoint-evpn")
	if err := os.WriteFile(program, evpn.Program, 0o700); err != nil {
		t.Fatal(err)
	}
	client := evpn.NewClient(func(ctx context.Context, node string, request []byte) ([]byte, error) {
		dir, err := p.l.f.Sockets(node)
		if err != nil {
			return nil, err
		}
		cmd := exec.CommandContext(ctx, program, "-d", dir)
		cmd.Stdin = bytes.NewReader(request)
		return cmd.Output()
	})
	for _, node := range []string{"pve1", "pve2"} {
		got, err := client.Routes(p.l.ctx, node, "blue")
		if err != nil {
			t.Fatal(err)
		}
		want, err := p.l.f.ZoneRoutes(p.l.ctx, node, "blue")
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %+v, want %+v", node, got, want)
		}
		for _, r := range want {
			t.Logf("%s: %+v", node, r)
		}
		if i := slices.IndexFunc(want, func(r orchestrator.ZoneRoute) bool {
			return r.Protocol == "bgp" && r.Prefix.IsSingleIP() && len(r.NextHops) == 1 && r.NextHops[0] == p.l.f.Address(map[string]string{"pve1": "pve2", "pve2": "pve1"}[node]).String()
		}); i < 0 {
			t.Errorf("%s has no route to a guest of the other node", node)
		}
	}
	if _, err := client.Routes(p.l.ctx, "pve1", "none"); err != nil {
		t.Logf("a zone that is not there: %v", err)
	}
	macs, err := p.l.f.VNetMACs(p.l.ctx, "pve1", "bluea")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a1", "a2"} {
		g := p.guests[name]
		if want := [3]string{g.address.String(), g.mac.String(), p.l.f.Address(g.node).String()}; !slices.Contains(macs, want) {
			t.Errorf("%v is not among %v", want, macs)
		}
	}
}
