package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"time"

	"savepoint/configs"
	"savepoint/network"
	"savepoint/orchestrator"
	"savepoint/orchestrator/proof"
	"savepoint/orchestrator/sshexec"
	"savepoint/proxmox"
	"savepoint/proxmox/evpn"
)

// proof is what measures whether networks are sealed, and what ends its
// connections. p may be nil.
func (s *session) proof(ctx context.Context, p *progress) (*proof.Proof, func(), error) {
	w, err := s.wanted(ctx)
	if err != nil {
		return nil, nil, err
	}
	r := &router{s: s}
	return proof.New(proof.Config{
		Answer: 20 * time.Second, Wanted: w, Prober: s.ssh, Router: r, Surroundings: surroundings{s, w.Peers}, Records: s.journal,
		Observe: func(text string) { p.say("%s", text) },
	}), r.close, nil
}

// prove is proof for one sandbox.
func (s *session) prove(ctx context.Context, sb orchestrator.Sandbox) error {
	if sb.Tenant == "" {
		return nil
	}
	p, end, err := s.proof(ctx, nil)
	if err != nil {
		return err
	}
	defer end()
	res, err := p.Measure(ctx, sb)
	if err != nil {
		return err
	}
	s.note(res.Notes) // what was not tried is for people to know, sealed or not
	return res.Verdict(sb.Name)
}

// note shows what a proof does not cover. It may quote a guest.
func (s *session) note(notes []string) {
	show := s.onNote
	if show == nil {
		show = func(text string) { fmt.Fprintln(s.app.err, text) }
	}
	for _, n := range notes {
		show("savepoint: " + printable(cleaner(s.secrets)(n)))
	}
}

// router reads routing tables: through the API where it shows them, else
// through a forced command on the nodes.
type router struct {
	s     *session
	mu    sync.Mutex
	nodes *sshexec.Nodes // made when it is needed
}

// Routes implements proof.Router.
func (r *router) Routes(ctx context.Context, node, zone string) ([]orchestrator.ZoneRoute, error) {
	routes, err := r.s.cluster.Routes(ctx, node, zone)
	var unsupported *orchestrator.UnsupportedError
	if !errors.As(err, &unsupported) || len(r.s.cfg.Workspace.Nodes) == 0 {
		return routes, err
	}
	nodes, err := r.ways()
	if err != nil {
		return nil, err
	}
	return evpn.NewClient(nodes.Exchange).Routes(ctx, node, zone)
}

// ways are the connections to the nodes' sshd.
func (r *router) ways() (*sshexec.Nodes, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.nodes != nil {
		return r.nodes, nil
	}
	c := r.s.cfg.Workspace
	id, err := sshexec.LoadIdentity(cmp.Or(c.IdentityFile, r.s.cfg.SSH.IdentityFile))
	if err != nil {
		return nil, usageError{err}
	}
	nodes := map[string]sshexec.NodeSSH{}
	for _, n := range c.Nodes {
		nodes[n.Name] = sshexec.NodeSSH{Address: n.Address, HostKey: n.HostKey}
	}
	if r.nodes, err = sshexec.NewNodes(sshexec.NodesConfig{User: evpn.User, Identity: id, Nodes: nodes}); err != nil {
		return nil, usageError{err}
	}
	return r.nodes, nil
}

func (r *router) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.nodes != nil {
		_ = r.nodes.Close() // what was read is read
	}
}

// surroundings are the places that no sandbox may reach.
type surroundings struct {
	s     *session
	peers []netip.Addr // of the nodes, between them
}

// Places implements proof.Surroundings. The cluster is asked for the nodes'
// addresses only if the configuration does not say them all.
func (x surroundings) Places(ctx context.Context) ([]network.Place, []string, error) {
	nodes, err := x.s.cluster.Nodes(ctx)
	if err != nil {
		return nil, nil, err
	}
	var away []string
	known := true
	for _, n := range nodes {
		if !n.Online {
			away = append(away, n.Name)
		}
		known = known && slices.ContainsFunc(x.s.cfg.Network.Places, func(p configs.Place) bool {
			return p.Role == string(network.RoleNode) && p.Name == n.Name
		})
	}
	var members []proxmox.Member
	if !known {
		if members, err = x.s.cluster.Members(ctx); err != nil {
			return nil, nil, err
		}
	}
	return places(x.s.cfg, members, x.peers, addressesOf(ctx, x.s.cfg.Cluster.URL), ownAddresses(ctx, x.s.cfg)), away, nil
}

// ports are what is tried of places whose ports are not configured.
var ports = map[network.Role][2][]uint16{
	network.RoleOrchestrator: {{22}, {53}},
	network.RoleAPI:          {{8006}, {53}},
	network.RoleNode:         {{22, 8006}, {33434}}, // where nothing listens the kernel answers
	network.RoleMetadata:     {{80}, {53}},
	network.RoleOutside:      {{80, 443}, {53}},
	network.RoleUnderlay:     {{22, 8006}, {33434}},
}

const metadataAddress = "169.254.169.254"

// places are the configured ones and those that are known without: the nodes, with
// all addresses that the zones' tunnels end at, the API, this machine and the
// metadata address. A loopback address is a guest's own there, and no place.
func places(cfg configs.Config, members []proxmox.Member, peers, api, own []netip.Addr) []network.Place {
	var out []network.Place
	add := func(role network.Role, name string, addresses []netip.Addr, tcp, udp []uint16) {
		addresses = slices.DeleteFunc(slices.Clone(addresses), func(a netip.Addr) bool { return !a.IsValid() || a.IsLoopback() || a.IsUnspecified() })
		if len(addresses) == 0 {
			return
		}
		if len(tcp) == 0 {
			tcp = ports[role][0]
		}
		if len(udp) == 0 {
			udp = ports[role][1]
		}
		p := network.Place{Role: role, Name: name, Addresses: addresses, TCP: tcp, UDP: udp}
		if role == network.RoleJump {
			p.SSH = jumpPort(cfg.SSH.Jump)
		}
		out = append(out, p)
	}
	for _, p := range cfg.Network.Places {
		var addresses []netip.Addr
		for _, text := range p.Addresses {
			a, _ := netip.ParseAddr(text) // it was checked when it was read
			addresses = append(addresses, a)
		}
		add(network.Role(p.Role), cmp.Or(p.Name, p.Role), addresses, narrow(p.TCP), narrow(p.UDP))
	}
	has := func(role network.Role) bool {
		return slices.ContainsFunc(out, func(p network.Place) bool { return p.Role == role })
	}
	for _, m := range members {
		add(network.RoleNode, m.Name, []netip.Addr{m.Address}, nil, nil)
	}
	add(network.RoleUnderlay, "peers", slices.DeleteFunc(slices.Clone(peers), func(a netip.Addr) bool {
		return slices.ContainsFunc(out, func(p network.Place) bool { return p.Role == network.RoleNode && slices.Contains(p.Addresses, a) })
	}), nil, nil)
	add(network.RoleAPI, "cluster", api, nil, nil)
	if !has(network.RoleAPI) { // every node serves it
		var nodes []netip.Addr
		for _, p := range out {
			if p.Role == network.RoleNode {
				nodes = append(nodes, p.Addresses...)
			}
		}
		add(network.RoleAPI, "cluster", nodes, nil, nil)
	}
	add(network.RoleOrchestrator, "this machine", own, nil, nil)
	if !has(network.RoleMetadata) {
		add(network.RoleMetadata, "cloud", []netip.Addr{netip.MustParseAddr(metadataAddress)}, nil, nil)
	}
	return out
}

// jumpPort is the port of the jump host's SSH server, which listens at its legs as
// where it is dialled; 0 = it is not configured.
func jumpPort(j configs.Jump) uint16 {
	_, text, err := net.SplitHostPort(j.Address)
	if err != nil {
		return 0
	}
	port, _ := strconv.ParseUint(text, 10, 16) // it was checked when it was read
	return uint16(port)
}

func narrow(ports []int) []uint16 {
	var out []uint16
	for _, p := range ports {
		out = append(out, uint16(p)) // its range was checked when it was read
	}
	return out
}

// addressesOf are those of the host in a URL, as far as they can be found.
func addressesOf(ctx context.Context, text string) []netip.Addr {
	u, err := url.Parse(text)
	if err != nil {
		return nil
	}
	if a, err := netip.ParseAddr(u.Hostname()); err == nil {
		return []netip.Addr{a}
	}
	found, _ := net.DefaultResolver.LookupNetIP(ctx, "ip", u.Hostname()) // then another place has to stand for it
	for i := range found {
		found[i] = found[i].Unmap()
	}
	return found
}

// ownAddresses are this machine's, as the cluster and the jump host see it. No
// packet is sent to find out.
func ownAddresses(ctx context.Context, cfg configs.Config) []netip.Addr {
	var out []netip.Addr
	u, err := url.Parse(cfg.Cluster.URL)
	if err != nil {
		return nil
	}
	for _, to := range []string{net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), "8006")), cfg.SSH.Jump.Address} {
		if to == "" {
			continue
		}
		c, err := (&net.Dialer{}).DialContext(ctx, "udp", to)
		if err != nil {
			continue
		}
		if a, ok := c.LocalAddr().(*net.UDPAddr); ok {
			if ip := a.AddrPort().Addr().Unmap().WithZone(""); !slices.Contains(out, ip) {
				out = append(out, ip)
			}
		}
		_ = c.Close()
	}
	return out
}
