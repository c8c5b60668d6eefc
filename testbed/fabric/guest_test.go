package fabric

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"savepoint/testbed/notes"
)

// lab is a fabric of two nodes for a test.
type lab struct {
	t   *testing.T
	ctx context.Context
	f   *Fabric
	dir string
	wg  sync.WaitGroup // of the servers
}

func newLab(t *testing.T) *lab {
	t.Helper()
	if os.Getenv("SAVEPOINT_LAB") != "1" {
		t.Skip("makes network namespaces and starts routing daemons: set SAVEPOINT_LAB=1")
	}
	if os.Geteuid() != 0 {
		t.Skip("makes network namespaces: run it as root")
	}
	ctx, cancel := context.WithTimeout(context.Background(), 4*time.Minute)
	l := &lab{t: t, ctx: ctx, dir: t.TempDir()}
	begin := time.Now()
	f, err := New(ctx, Config{Dir: l.dir, Nodes: []string{"pve1", "pve2"}, Instance: "test"})
	if err != nil {
		cancel()
		t.Fatal(err)
	}
	t.Logf("two nodes after %v, underlay %s", time.Since(begin).Round(time.Millisecond), f.Underlay())
	l.f = f
	t.Cleanup(func() {
		if t.Failed() {
			for _, n := range f.nodes {
				t.Logf("%s: zebra %s; bgpd %s", n.name, n.zebra.log(), n.bgpd.log())
			}
		}
		if err := f.Close(ctx); err != nil {
			t.Error(err)
		}
		cancel()
		l.wg.Wait()
		l.nothingLeft()
	})
	return l
}

// nothingLeft fails if a namespace, process, link or directory of the fabric is
// there.
func (l *lab) nothingLeft() {
	l.t.Helper()
	entries, err := os.ReadDir(netnsDir)
	if err != nil {
		l.t.Error(err)
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), nsPrefix(l.f.instance)) {
			l.t.Errorf("namespace %s is left", e.Name())
		}
	}
	for _, n := range l.f.nodes {
		for _, d := range []string{"zebra", "bgpd"} {
			pids, err := notes.System.Find(process{Token: n.run + "/" + d + ".conf"})
			if err != nil || len(pids) > 0 {
				l.t.Errorf("%s of %s is left: %v, %v", d, n.name, pids, err)
			}
		}
	}
	for _, path := range []string{runDir(l.f.instance), recordFile(l.dir)} {
		if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
			l.t.Errorf("%s is left: %v", path, err)
		}
	}
}

// guest is a namespace that stands in for a virtual machine.
type guest struct {
	l                 *lab
	ns, node, vnet    string
	name              string // of its port
	address, v6       netip.Addr
	mac               net.HardwareAddr
	hits              chan string // datagrams that its server got
	gateway, gateway6 netip.Addr
}

// guest plugs a guest in, as Tap does for QEMU, and starts its servers.
func (l *lab) guest(node, vnet string, number int) *guest {
	l.t.Helper()
	_, v := l.node(node).vnet(vnet)
	g := &guest{
		l: l, node: node, vnet: vnet, name: fmt.Sprintf("tap%di0", number), ns: fmt.Sprintf("%sguest-%d", nsPrefix(l.f.instance), number),
		mac: net.HardwareAddr{0xbc, 0x24, 0x11, 0xff, 0, byte(number)},
	}
	bits, bits6 := 0, 0
	for _, gw := range v.Gateways {
		a := gw.Masked().Addr()
		for range number {
			a = a.Next()
		}
		if gw.Addr().Is4() {
			g.address, bits, g.gateway = a, gw.Bits(), gw.Addr()
		} else {
			g.v6, bits6, g.gateway6 = a, gw.Bits(), gw.Addr()
		}
	}
	if !g.address.IsValid() { // a vnet without a router
		g.address, bits = netip.AddrFrom4([4]byte{10, 77, 0, byte(number)}), 24
	}
	if err := l.f.ledger.makeNamespace(l.ctx, g.ns); err != nil {
		l.t.Fatal(err)
	}
	p := Port{Name: g.name, MAC: g.mac, Addresses: []netip.Addr{g.address}}
	if g.v6.IsValid() {
		p.Addresses = append(p.Addresses, g.v6)
	}
	err := l.f.attach(l.ctx, node, vnet, p, func(s *zoneState) error {
		return ip(l.ctx, s.ns, "link add %s type veth peer name eth0 address %s mtu 1450 netns %s", g.name, g.mac, g.ns)
	})
	if err == nil {
		err = sysctl(g.ns, map[string]string{"ipv6/conf/eth0/accept_dad": "0"})
	}
	if err == nil {
		err = steps(l.ctx, g.ns, fmt.Sprintf("addr add %s/%d dev eth0", g.address, bits), "link set eth0 up")
	}
	if err == nil && g.gateway.IsValid() {
		err = ip(l.ctx, g.ns, "route add default via %s", g.gateway)
	}
	if err == nil && g.v6.IsValid() {
		err = steps(l.ctx, g.ns, fmt.Sprintf("addr add %s/%d dev eth0 nodad", g.v6, bits6), fmt.Sprintf("route add default via %s", g.gateway6))
	}
	if err != nil {
		l.t.Fatal(err)
	}
	g.hits = l.serve(g.ns)
	return g
}

func (l *lab) node(name string) *node {
	l.t.Helper()
	n, err := l.f.node(name)
	if err != nil {
		l.t.Fatal(err)
	}
	return n
}

const testPort = "4242"

// serve answers TCP and UDP in a namespace until the test ends. What arrives by
// UDP is told too.
func (l *lab) serve(ns string, addresses ...netip.Addr) chan string {
	l.t.Helper()
	hits := make(chan string, 100)
	tcp, err := listenIn(l.ctx, ns, "tcp", "[::]:"+testPort)
	if err != nil {
		l.t.Fatal(err)
	}
	context.AfterFunc(l.ctx, func() { tcp.Close() })
	l.wg.Go(func() {
		for {
			c, err := tcp.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(c, "here\n")
			c.Close()
		}
	})
	if len(addresses) == 0 {
		addresses = []netip.Addr{netip.IPv6Unspecified()}
	}
	for _, a := range addresses { // an answer has to come from the address that was asked
		udp, err := listenPacketIn(l.ctx, ns, "udp", net.JoinHostPort(a.String(), testPort))
		if err != nil {
			l.t.Fatal(err)
		}
		context.AfterFunc(l.ctx, func() { udp.Close() })
		l.wg.Go(func() { echo(udp, hits) })
	}
	return hits
}

func echo(udp net.PacketConn, hits chan string) {
	buf := make([]byte, 2000)
	for {
		n, from, err := udp.ReadFrom(buf)
		if err != nil {
			return
		}
		select {
		case hits <- from.String() + " " + string(buf[:n]):
		default:
		}
		_, _ = udp.WriteTo(buf[:n], from)
	}
}

// reach reports whether an address answers within the time; a refusal is an
// answer.
func (l *lab) reach(ns, protocol, address string, wait time.Duration) bool {
	ctx, cancel := context.WithTimeout(l.ctx, wait)
	defer cancel()
	target := net.JoinHostPort(address, testPort)
	switch protocol {
	case "tcp", "udp":
		c, err := dialIn(ctx, ns, protocol, target)
		if err != nil {
			return errors.Is(err, syscall.ECONNREFUSED)
		}
		defer c.Close()
		return exchange(ctx, c, []byte("hello"), func([]byte) bool { return true })
	case "icmp":
		network, echo, answer := "ip4:icmp", byte(8), byte(0)
		if strings.Contains(address, ":") {
			network, echo, answer = "ip6:ipv6-icmp", 128, 129
		}
		c, err := dialIn(ctx, ns, network, address)
		if err != nil {
			return false
		}
		defer c.Close()
		m := []byte{echo, 0, 0, 0, 0x5a, 0x17, 0, 1, 'p', 'i', 'n', 'g'}
		binary.BigEndian.PutUint16(m[2:], checksum(m)) // the kernel overwrites it for IPv6
		return exchange(ctx, c, m, func(b []byte) bool {
			if network == "ip4:icmp" { // read with its IP header
				b = b[min(len(b), int(b[0]&15)*4):]
			}
			return len(b) > 0 && b[0] == answer
		})
	}
	l.t.Errorf("protocol %q", protocol)
	return false
}

func exchange(ctx context.Context, c net.Conn, send []byte, good func([]byte) bool) bool {
	deadline, _ := ctx.Deadline()
	_ = c.SetDeadline(deadline)
	if _, err := c.Write(send); err != nil {
		return errors.Is(err, syscall.ECONNREFUSED)
	}
	buf := make([]byte, 2000)
	for {
		n, err := c.Read(buf)
		if err != nil {
			return errors.Is(err, syscall.ECONNREFUSED)
		}
		if good(buf[:n]) {
			return true
		}
	}
}

func checksum(b []byte) uint16 {
	var sum uint32
	for pair := range slices.Chunk(b, 2) {
		sum += uint32(pair[0])<<8 | uint32(pair[1])
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return ^uint16(sum)
}

// reaches polls until a guest gets an answer, and says how long that took.
func (l *lab) reaches(g *guest, protocol string, to netip.Addr) time.Duration {
	l.t.Helper()
	begin := time.Now()
	ctx, cancel := context.WithTimeout(l.ctx, 20*time.Second)
	defer cancel()
	err := await(ctx, fmt.Sprintf("%s on %s of %s to reach %s over %s", g.name, g.vnet, g.node, to, protocol), func(context.Context) (bool, error) {
		return l.reach(g.ns, protocol, to.String(), 500*time.Millisecond), nil
	})
	if err != nil {
		l.explain(g)
		l.t.Fatal(err)
	}
	return time.Since(begin)
}

// explain logs what is known around a guest.
func (l *lab) explain(g *guest) {
	for _, n := range l.f.nodes {
		for _, s := range n.zones {
			for _, args := range [][]string{{"ip", "neigh"}, {"ip", "route"}, {"bridge", "fdb"}, {"ip", "-br", "addr"}} {
				out, err := run(l.ctx, s.ns, nil, args...)
				l.t.Logf("%s %v: %v\n%s", s.ns, args, err, out)
			}
		}
	}
	out, err := run(l.ctx, g.ns, nil, "ip", "neigh")
	l.t.Logf("%s: %v\n%s", g.ns, err, out)
}

// sealed checks that none of the addresses answers, over any protocol.
func (l *lab) sealed(g *guest, what string, addresses ...string) {
	l.t.Helper()
	var wg sync.WaitGroup
	for _, a := range addresses {
		for _, protocol := range []string{"tcp", "udp", "icmp"} {
			wg.Go(func() {
				if l.reach(g.ns, protocol, a, 1500*time.Millisecond) {
					l.t.Errorf("%s on %s of %s reaches %s at %s over %s", g.name, g.vnet, g.node, what, a, protocol)
				}
			})
		}
	}
	wg.Wait()
}

// linkLocalOf is the IPv6 link-local address of an interface.
func (l *lab) linkLocalOf(ns, dev string) string {
	l.t.Helper()
	out, err := run(l.ctx, ns, nil, "ip", "-6", "-o", "addr", "show", "dev", dev, "scope", "link")
	if f := strings.Fields(string(out)); err == nil && len(f) > 3 {
		return strings.Split(f[3], "/")[0]
	}
	l.t.Fatalf("no link-local address on %s in %s: %v: %s", dev, ns, err, out)
	return ""
}
