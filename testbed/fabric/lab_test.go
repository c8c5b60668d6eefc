package fabric

import (
	"context"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

func prefixes(list ...string) []netip.Prefix {
	var out []netip.Prefix
	for _, s := range list {
		out = append(out, netip.MustParsePrefix(s))
	}
	return out
}

// tenants are two zones with the same addresses, so that a mistake shows.
func tenants() []Zone {
	return []Zone{
		{ID: "blue", Kind: EVPN, VRF: 20000, VNets: []VNet{
			{ID: "bluea", VNI: 10001, Gateways: prefixes("10.1.1.1/24", "fd00:1:1::1/64")},
			{ID: "blueb", VNI: 10002, Gateways: prefixes("10.1.2.1/24", "fd00:1:2::1/64")},
		}},
		{ID: "red", Kind: EVPN, VRF: 20001, VNets: []VNet{
			{ID: "reda", VNI: 10003, Gateways: prefixes("10.2.1.1/24", "fd00:2:1::1/64")},
		}},
	}
}

func (l *lab) apply(zones []Zone) {
	l.t.Helper()
	for _, n := range l.f.cfg.Nodes {
		if err := l.f.Apply(l.ctx, n, zones); err != nil {
			l.t.Fatal(err)
		}
	}
}

// converge waits until every node has the others in each of the VNIs.
func (l *lab) converge(vnis ...uint32) time.Duration {
	l.t.Helper()
	begin := time.Now()
	err := await(l.ctx, "EVPN to converge", func(ctx context.Context) (bool, error) {
		for _, n := range l.f.cfg.Nodes {
			st, err := l.f.Status(ctx, n)
			if err != nil {
				return false, err
			}
			if !st.Established() {
				return false, nil
			}
			for _, vni := range vnis {
				if len(st.VNIs[vni]) != len(l.f.cfg.Nodes)-1 {
					return false, nil
				}
			}
		}
		return true, nil
	})
	if err != nil {
		l.t.Fatal(err)
	}
	return time.Since(begin)
}

// hostState is what of the host's network nobody may change.
func hostState(t *testing.T) string {
	t.Helper()
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	links, err := net.Interfaces()
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for _, l := range links {
		fmt.Fprintln(&b, l.Name, l.HardwareAddr, l.MTU)
	}
	fmt.Fprintln(&b, addrs)
	for _, path := range []string{"/proc/net/route", "/proc/sys/net/ipv4/ip_forward"} {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			b.WriteString(strings.Join(strings.Fields(line), " ") + "\n")
		}
	}
	return b.String()
}

// F101: isolation is measured. Two tenants on two nodes: what must be reachable is, what must not is not,
// and a leak shows.
func TestLabTenants(t *testing.T) {
	before := hostState(t)
	l := newLab(t)
	begin := time.Now()
	l.apply(tenants())
	t.Logf("zones applied to both nodes in %v", time.Since(begin).Round(time.Millisecond))
	t.Logf("EVPN converged after another %v", l.converge(10001, 10002, 10003).Round(time.Millisecond))
	a1, a2 := l.guest("pve1", "bluea", 11), l.guest("pve2", "bluea", 12)
	b1, b2 := l.guest("pve1", "blueb", 21), l.guest("pve2", "blueb", 22)
	r1, r2 := l.guest("pve1", "reda", 31), l.guest("pve2", "reda", 32)
	all := []*guest{a1, a2, b1, b2, r1, r2}
	outside := l.serve(l.f.outside, Web, Metadata, l.f.Address(Outside))
	for _, n := range l.f.nodes {
		l.serve(n.ns)
	}

	for _, g := range all { // as a guest does that boots
		l.reaches(g, "icmp", g.gateway)
		l.reaches(g, "icmp", g.gateway6)
	}
	for _, pair := range [][2]*guest{{a1, a2}, {a2, a1}, {b1, b2}, {r2, r1}, {a1, b1}, {a1, b2}, {b2, a1}, {a2, b1}, {b1, a2}} {
		what := "same vnet"
		if pair[0].vnet != pair[1].vnet {
			what = "other vnet of the zone"
		}
		for _, protocol := range []string{"icmp", "tcp", "udp"} {
			t.Logf("%s %s→%s %s: %v, IPv6 %v", what, pair[0].node, pair[1].node, protocol,
				l.reaches(pair[0], protocol, pair[1].address).Round(time.Millisecond), l.reaches(pair[0], protocol, pair[1].v6).Round(time.Millisecond))
		}
	}

	t.Run("routes", func(t *testing.T) { l.checkRoutes(t, a1, a2) })
	t.Run("host", func(t *testing.T) {
		if after := hostState(t); after != before {
			t.Errorf("the host's network changed:\n%s\nwas\n%s", after, before)
		}
	})
	t.Run("dial", func(t *testing.T) {
		c, err := l.f.DialZone(l.ctx, "pve2", "blue", "tcp", net.JoinHostPort(a2.address.String(), testPort))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if got := c.LocalAddr().(*net.TCPAddr).AddrPort().Addr(); got != a2.gateway {
			t.Errorf("the guest sees %v, want its gateway", got)
		}
		if !exchange(l.ctx, c, nil, func(b []byte) bool { return string(b) == "here\n" }) {
			t.Error("no answer on the connection, outside of its namespace")
		}
		if c, err := l.f.Dial(l.ctx, "pve1", "tcp", l.f.Address("pve2").String()+":"+testPort); err != nil {
			t.Errorf("node to node: %v", err)
		} else {
			c.Close()
		}
		if _, err := l.f.Dial(l.ctx, "pve1", "tcp", "localhost:"+testPort); err == nil {
			t.Error("a name was looked up")
		}
		if out, err := l.f.Exec(l.ctx, Outside, "ip", "-br", "addr"); err != nil || !strings.Contains(string(out), Metadata.String()) {
			t.Errorf("exec: %q, %v", out, err)
		}
	})
	t.Run("sealed", func(t *testing.T) { l.checkSealed(all, r1, a1) })
	t.Run("spoofing", func(t *testing.T) { l.checkSpoofing(t, a1, a2) })
	t.Run("frames", func(t *testing.T) { l.checkFrames(t, a1, a2) })
	t.Run("leak", func(t *testing.T) { l.checkLeak(t, a1, r1, outside) })
}

// checkRoutes: both nodes have type 2 and type 3 routes of both.
func (l *lab) checkRoutes(t *testing.T, a1, a2 *guest) {
	for _, node := range l.f.cfg.Nodes {
		routes, err := l.f.Routes(l.ctx, node)
		if err != nil {
			t.Fatal(err)
		}
		has := func(what string, f func(Route) bool) {
			if !slices.ContainsFunc(routes, f) {
				t.Errorf("%s has no %s: %+v", node, what, routes)
			}
		}
		for _, g := range []*guest{a1, a2} {
			next := l.f.Address(g.node).String()
			local := g.node == node
			has("type 3 route to "+g.node, func(r Route) bool {
				return r.Type == MulticastRoute && r.NextHop == next && slices.Contains(r.VNIs, 10001) && r.Local == local
			})
			has("type 2 route with an address to "+g.node, func(r Route) bool {
				return r.Type == MACRoute && r.MAC == g.mac.String() && r.IP == g.address.String() && r.NextHop == next &&
					slices.Contains(r.VNIs, 10001) && slices.Contains(r.VNIs, 20000) && r.Local == local
			})
		}
	}
}

// checkSealed: no guest reaches the nodes, the outside or the other tenant.
func (l *lab) checkSealed(all []*guest, red, blue *guest) {
	edge := []string{l.f.Address(Outside).String(), Web.String(), Metadata.String()}
	nodes := []string{l.f.Address("pve1").String(), l.f.Address("pve2").String()}
	others := map[*guest]*guest{}
	locals := map[*guest][]string{}
	for _, g := range all {
		others[g] = red
		if g.vnet == red.vnet {
			others[g] = blue
		}
		for _, ns := range []string{l.f.outside, l.node("pve1").ns, l.node("pve2").ns, others[g].ns} {
			locals[g] = append(locals[g], l.linkLocalOf(ns, "eth0")+"%eth0")
		}
	}
	var wg sync.WaitGroup
	for _, g := range all {
		wg.Go(func() {
			other := others[g]
			l.sealed(g, "the outside", edge...)
			l.sealed(g, "a node", nodes...)
			l.sealed(g, "the other tenant", other.address.String(), other.v6.String(), other.gateway.String(), other.gateway6.String())
			l.sealed(g, "a link-local address elsewhere", locals[g]...)
			// The router has no server: nothing but ICMP answers there.
			for _, port := range []string{"22", "179", "2601", "2605"} {
				ctx, cancel := context.WithTimeout(l.ctx, time.Second)
				c, err := dialIn(ctx, g.ns, "tcp", net.JoinHostPort(g.gateway.String(), port))
				if err == nil {
					c.Close()
					l.t.Errorf("%s: something listens at the gateway's port %s", g.name, port)
				}
				cancel()
			}
		})
	}
	wg.Wait()
	// Neighbours are on the same link and do answer there.
	for _, protocol := range []string{"icmp", "tcp", "udp"} {
		if !l.reach(all[0].ns, protocol, l.linkLocalOf(all[1].ns, "eth0")+"%eth0", 5*time.Second) {
			l.t.Errorf("guests of one vnet do not see one another by link-local addresses over %s: the check above shows nothing", protocol)
		}
	}
}

// checkSpoofing: what a guest sends with addresses that are not its own does
// not arrive, and would without the filter.
func (l *lab) checkSpoofing(t *testing.T, bad, victim *guest) {
	drain := func() {
		for len(victim.hits) > 0 {
			<-victim.hits
		}
	}
	send := func(from string) {
		t.Helper()
		// Sent once more with the guest's own address afterwards: when that has
		// arrived, the forged one would have.
		drain()
		for _, source := range []string{from, bad.address.String()} {
			err := within(bad.ns, func() error {
				a := &net.UDPAddr{IP: net.ParseIP(source)}
				c, err := (&net.Dialer{LocalAddr: a}).DialContext(l.ctx, "udp", net.JoinHostPort(victim.address.String(), testPort))
				if err != nil {
					return err
				}
				defer c.Close()
				_, err = c.Write([]byte("x"))
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		select {
		case hit := <-victim.hits:
			if !strings.Contains(hit, bad.address.String()) {
				t.Errorf("from %s arrived %q", from, hit)
			}
		case <-time.After(5 * time.Second):
			t.Error("not even the honest datagram arrived")
		}
	}
	forged := "10.1.1.99"
	if err := ip(l.ctx, bad.ns, "addr add %s/32 dev eth0", forged); err != nil {
		t.Fatal(err)
	}
	send(forged)
	// Without the filter it would arrive: the check can fail.
	s, _ := l.node(bad.node).vnet(bad.vnet)
	if _, err := run(l.ctx, s.ns, nil, "nft", "flush", "chain", "bridge", "savepoint", "from_guests"); err != nil {
		t.Fatal(err)
	}
	drain()
	if err := await(l.ctx, "the forged datagram without a filter", func(context.Context) (bool, error) {
		_ = within(bad.ns, func() error {
			c, err := (&net.Dialer{LocalAddr: &net.UDPAddr{IP: net.ParseIP(forged)}}).DialContext(l.ctx, "udp", net.JoinHostPort(victim.address.String(), testPort))
			if err == nil {
				_, _ = c.Write([]byte("x"))
				c.Close()
			}
			return err
		})
		select {
		case hit := <-victim.hits:
			return strings.Contains(hit, forged), nil
		case <-time.After(100 * time.Millisecond):
			return false, nil
		}
	}); err != nil {
		t.Error(err)
	}
	if err := s.filter(l.ctx); err != nil {
		t.Fatal(err)
	}
	if err := ip(l.ctx, bad.ns, "addr del %s/32 dev eth0", forged); err != nil {
		t.Fatal(err)
	}
	// Another MAC address, the gateway's too, silences the guest.
	for _, mac := range []string{"bc:24:11:ff:00:77", GatewayMAC("blue").String()} {
		if err := ip(l.ctx, bad.ns, "link set eth0 address %s", mac); err != nil {
			t.Fatal(err)
		}
		if l.reach(bad.ns, "icmp", victim.address.String(), time.Second) || l.reach(bad.ns, "icmp", bad.gateway.String(), time.Second) {
			t.Errorf("a guest with the MAC address %s is heard", mac)
		}
	}
	if err := ip(l.ctx, bad.ns, "link set eth0 address %s", bad.mac); err != nil {
		t.Fatal(err)
	}
	l.reaches(bad, "icmp", victim.address)
}

// checkFrames: a frame of the full MTU goes through the tunnel whole.
func (l *lab) checkFrames(t *testing.T, from, to *guest) {
	c, err := dialIn(l.ctx, from.ns, "udp", net.JoinHostPort(to.address.String(), testPort))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(l.ctx, 5*time.Second)
	defer cancel()
	full := make([]byte, 1450-28) // Go forbids fragments: the kernel discovers paths
	if !exchange(ctx, c, full, func(b []byte) bool { return len(b) == len(full) }) {
		t.Error("a full frame does not get through")
	}
}

// checkLeak: a route that leads out shows in the same probes.
func (l *lab) checkLeak(t *testing.T, leaked, other *guest, outside chan string) {
	if err := l.f.Leak(l.ctx, leaked.node, "blue"); err != nil {
		t.Fatal(err)
	}
	for _, protocol := range []string{"icmp", "tcp", "udp"} {
		for _, a := range []netip.Addr{Web, Metadata, l.f.Address(leaked.node), l.f.Address("pve2")} {
			if !l.reach(leaked.ns, protocol, a.String(), 5*time.Second) {
				t.Errorf("after the leak %s over %s does not answer", a, protocol)
			}
		}
	}
	select {
	case <-outside:
	default:
		t.Error("the outside saw nothing")
	}
	l.sealed(other, "the outside, by another zone's leak", Web.String(), l.f.Address("pve1").String())
	if err := l.f.Seal(l.ctx, leaked.node, "blue"); err != nil {
		t.Fatal(err)
	}
	l.sealed(leaked, "the outside, after the leak was sealed", Web.String(), Metadata.String(), l.f.Address("pve1").String(), l.f.Address("pve2").String())
}

// Apply changes and removes what is there, and leaves the guests of what stays.
func TestLabApply(t *testing.T) {
	l := newLab(t)
	zones := append(tenants(),
		Zone{ID: "flat", Kind: VXLAN, VNets: []VNet{{ID: "flata", VNI: 10010}}},
		Zone{ID: "own", Kind: Simple, VNets: []VNet{{ID: "owna", Gateways: prefixes("10.3.1.1/24")}, {ID: "ownb", Gateways: prefixes("10.3.2.1/24")}}})
	l.apply(zones)
	l.converge(10001, 10003)
	a1, a2 := l.guest("pve1", "bluea", 11), l.guest("pve2", "bluea", 12)
	f1, f2 := l.guest("pve1", "flata", 41), l.guest("pve2", "flata", 42)
	o1, o2, o3 := l.guest("pve1", "owna", 51), l.guest("pve1", "ownb", 52), l.guest("pve2", "owna", 53)
	l.reaches(a1, "icmp", a2.address)
	l.reaches(f1, "tcp", f2.address)
	l.reaches(o1, "tcp", o2.address)
	l.sealed(o1, "another node's simple zone", o3.address.String())
	l.sealed(f1, "a node", l.f.Address("pve1").String())
	for vni, nodes := range l.status("pve1").VNIs {
		if vni == 10010 {
			t.Errorf("FRR knows the vxlan zone's VNI: %v", nodes)
		}
	}

	state := l.links("pve1", "blue")
	begin := time.Now()
	l.apply(zones)
	t.Logf("the same zones again on both nodes: %v", time.Since(begin).Round(time.Millisecond))
	if again := l.links("pve1", "blue"); again != state {
		t.Errorf("a second apply changed\n%s\nto\n%s", state, again)
	}

	// A vnet goes, one gets another gateway, VNI and MTU, the zone another VRF;
	// a second zone goes and comes back.
	changed := tenants()[:1]
	changed[0].VRF = 20005
	changed[0].VNets = []VNet{{ID: "bluea", VNI: 10005, MTU: 1400, Gateways: prefixes("10.1.1.254/24")}}
	l.apply(changed)
	l.converge(10005)
	if got := l.links("pve1", "blue"); strings.Contains(got, "blueb") || !strings.Contains(got, "10.1.1.254/24") || strings.Contains(got, "10.1.1.1/24") || !strings.Contains(got, a1.name) {
		t.Errorf("after the change:\n%s", got)
	}
	l.reaches(a1, "tcp", a2.address)
	for _, node := range l.f.cfg.Nodes {
		if got := l.status(node).Zones; !slices.Equal(got, []string{"blue"}) {
			t.Errorf("%s has the zones %v", node, got)
		}
		for _, vni := range []uint32{10001, 10002, 10003, 20000, 20001} {
			if _, there := l.status(node).VNIs[vni]; there {
				t.Errorf("%s still has VNI %d", node, vni)
			}
		}
	}
	l.apply(tenants())
	l.converge(10001, 10002, 10003)
	l.reaches(a1, "tcp", a2.address)
	r1, r2 := l.guest("pve1", "reda", 31), l.guest("pve2", "reda", 32)
	l.reaches(r1, "tcp", r2.address)
	l.apply(nil)
	if got := l.status("pve1"); len(got.Zones) > 0 || len(got.VNIs) > 0 || !got.Established() {
		t.Errorf("without zones: %+v", got)
	}
}

func (l *lab) status(node string) Status {
	l.t.Helper()
	st, err := l.f.Status(l.ctx, node)
	if err != nil {
		l.t.Fatal(err)
	}
	return st
}

// links is what a zone has on a node, without counters.
func (l *lab) links(node, zone string) string {
	l.t.Helper()
	links, err := observe(l.ctx, l.node(node).zones[zone].ns)
	if err != nil {
		l.t.Fatal(err)
	}
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(links)) {
		fmt.Fprintf(&b, "%+v\n", links[name])
	}
	return b.String()
}

// A tap carries frames for as long as its descriptor is open, and is filtered.
func TestLabTap(t *testing.T) {
	l := newLab(t)
	l.apply(tenants())
	mac := net.HardwareAddr{0xbc, 0x24, 0x11, 0xff, 1, 1}
	p := Port{Name: "tap101i0", MAC: mac, Addresses: []netip.Addr{netip.MustParseAddr("10.1.1.101")}}
	tap, err := l.f.Tap(l.ctx, "pve1", "bluea", p)
	if err != nil {
		t.Fatal(err)
	}
	// Who has the gateway's address? Ten bytes of virtio's header come first.
	ask := func(mac net.HardwareAddr) []byte {
		b := make([]byte, 10, 60)
		b = append(b, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff)
		b = append(b, mac...)
		b = append(b, 8, 6, 0, 1, 8, 0, 6, 4, 0, 1)
		b = append(b, mac...)
		b = append(b, 10, 1, 1, 101, 0, 0, 0, 0, 0, 0, 10, 1, 1, 1)
		return append(b, make([]byte, 18)...)
	}
	answered := func(mac net.HardwareAddr, wait time.Duration) bool {
		if _, err := tap.Write(ask(mac)); err != nil {
			t.Fatal(err)
		}
		if err := tap.SetReadDeadline(time.Now().Add(wait)); err != nil {
			t.Fatal(err)
		}
		buf := make([]byte, 2000)
		for {
			n, err := tap.Read(buf)
			if err != nil {
				return false
			}
			f := buf[10:n]
			if len(f) >= 42 && f[12] == 8 && f[13] == 6 && f[21] == 2 && net.HardwareAddr(f[6:12]).String() == GatewayMAC("blue").String() {
				return true
			}
		}
	}
	if err := await(l.ctx, "the gateway's answer on the tap", func(context.Context) (bool, error) { return answered(mac, 300*time.Millisecond), nil }); err != nil {
		t.Error(err)
	}
	if answered(net.HardwareAddr{0xbc, 0x24, 0x11, 0xff, 1, 2}, 500*time.Millisecond) {
		t.Error("another MAC address is answered")
	}
	if err := tap.Close(); err != nil {
		t.Fatal(err)
	}
	if got := l.links("pve1", "blue"); strings.Contains(got, p.Name) {
		t.Errorf("the tap outlives its descriptor:\n%s", got)
	}
	// Again under the same name, also while the old one is there.
	var taps []*os.File
	for range 2 {
		tap, err := l.f.Tap(l.ctx, "pve1", "bluea", p)
		if err != nil {
			t.Fatal(err)
		}
		taps = append(taps, tap)
	}
	if err := l.f.Untap(l.ctx, "pve1", p.Name); err != nil {
		t.Fatal(err)
	}
	if err := l.f.Untap(l.ctx, "pve1", p.Name); err != nil {
		t.Errorf("once more: %v", err)
	}
	if got := l.links("pve1", "blue"); strings.Contains(got, p.Name) {
		t.Errorf("after Untap:\n%s", got)
	}
	for _, tap := range taps {
		tap.Close()
	}
	for _, bad := range []Port{{Name: "x y", MAC: mac}, {Name: "tap1i0", MAC: GatewayMAC("blue")}, {Name: "bluea", MAC: mac}, {Name: "tap1i0", MAC: mac, Addresses: []netip.Addr{netip.MustParseAddr("10.1.1.1")}}} {
		if _, err := l.f.Tap(l.ctx, "pve1", "bluea", bad); err == nil {
			t.Errorf("%+v was accepted", bad)
		}
	}
	if _, err := l.f.Tap(l.ctx, "pve1", "nowhere", p); err == nil {
		t.Error("a vnet that is not there was accepted")
	}
}

// An owner that was killed leaves what Sweep removes: all of it and nothing
// else.
func TestLabSweep(t *testing.T) {
	l, other := newLab(t), newLab(t)
	l.apply(tenants())
	l.guest("pve1", "bluea", 11)
	tap, err := l.f.Tap(l.ctx, "pve2", "reda", Port{Name: "tap9i0", MAC: net.HardwareAddr{0xbc, 0x24, 0x11, 0xff, 9, 9}})
	if err != nil {
		t.Fatal(err)
	}
	defer tap.Close() // as a machine that still runs
	// Killed between starting a daemon and noting its id.
	if err := l.f.ledger.setProcess(process{Token: l.node("pve1").run + "/bgpd.conf"}); err != nil {
		t.Fatal(err)
	}
	// And after noting a namespace that it did not come to make.
	if err := l.f.ledger.addNamespace(nsPrefix(l.f.instance) + "never"); err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	if err := Sweep(l.ctx, l.dir); err != nil {
		t.Fatal(err)
	}
	t.Logf("swept in %v", time.Since(begin).Round(time.Millisecond))
	l.nothingLeft()
	if err := Sweep(l.ctx, l.dir); err != nil {
		t.Errorf("with nothing left: %v", err)
	}
	other.converge()
}
