package fabric

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"
)

// Fabric is a running fabric. Close it. Its methods are safe for concurrent
// use; changes of one node wait for one another.
type Fabric struct {
	cfg      Config
	instance string
	ledger   *ledger
	underlay string // its namespace
	outside  string
	edge     netip.Addr // the outside's address on the underlay
	nodes    []*node
	wg       sync.WaitGroup
}

type node struct {
	name    string
	ns      string
	address netip.Addr
	run     string
	mounts  *mounts
	zebra   *daemon
	bgpd    *daemon

	mu    sync.Mutex
	zones map[string]*zoneState
}

// New removes what an earlier fabric left in cfg.Dir, but for the taps that
// machines still hold: see Adopt. It makes the underlay, the nodes and the
// outside, and returns once every node's routing daemons answer. On error nothing
// but those taps is left. A crash leaves what the record names; Sweep or the
// next New removes it. The error wraps ErrUnavailable where a fabric is not
// possible at all.
func New(ctx context.Context, cfg Config) (*Fabric, error) {
	if err := Check(); err != nil {
		return nil, fmt.Errorf("start a fabric: %w", err)
	}
	if err := cfg.complete(); err != nil {
		return nil, fmt.Errorf("start a fabric: %w", err)
	}
	parked, err := park(ctx, cfg.Dir)
	if err != nil {
		return nil, fmt.Errorf("start a fabric: %w", err)
	}
	f := &Fabric{cfg: cfg, instance: newInstance(cfg.Instance)}
	f.ledger = &ledger{dir: cfg.Dir, r: record{Instance: f.instance, Run: runDir(f.instance), Parked: parked}}
	if err := f.build(ctx); err != nil {
		return nil, fmt.Errorf("start a fabric: %w", errors.Join(err, f.end(ctx, parked)))
	}
	return f, nil
}

func (f *Fabric) build(ctx context.Context) error {
	f.underlay, f.outside = nsPrefix(f.instance)+"underlay", nsPrefix(f.instance)+"out"
	var err error
	if f.edge, err = hostOf(f.cfg.Underlay, len(f.cfg.Nodes)+1); err != nil {
		return err
	}
	for i, name := range f.cfg.Nodes {
		n := &node{name: name, ns: nsPrefix(f.instance) + "node-" + name, run: runDir(f.instance) + "/" + name, zones: map[string]*zoneState{}}
		if n.address, err = hostOf(f.cfg.Underlay, i+1); err != nil {
			return err
		}
		f.nodes = append(f.nodes, n)
	}
	if err := f.ledger.change(func(*record) {}); err != nil {
		return err
	}
	if err := os.Mkdir(runDir(f.instance), 0o711); err != nil {
		return err
	}
	if err := f.ledger.makeNamespace(ctx, f.underlay); err != nil {
		return err
	}
	if err := sysctl(f.underlay, map[string]string{"ipv6/conf/all/disable_ipv6": "1", "ipv6/conf/default/disable_ipv6": "1"}); err != nil {
		return err
	}
	err = steps(ctx, f.underlay, fmt.Sprintf("link add underlay mtu %d type bridge forward_delay 0", f.cfg.MTU), "link set underlay up")
	if err != nil {
		return err
	}
	if err := f.plug(ctx, f.outside, "edge", f.edge); err != nil {
		return err
	}
	if err := steps(ctx, f.outside, "addr add "+Web.String()+"/32 dev lo", "addr add "+Metadata.String()+"/32 dev lo"); err != nil {
		return err
	}
	for i, n := range f.nodes {
		if err := f.plug(ctx, n.ns, fmt.Sprintf("node%d", i+1), n.address); err != nil {
			return err
		}
		if err := ip(ctx, n.ns, "route add default via %s", f.edge); err != nil {
			return err
		}
	}
	for _, n := range f.nodes {
		if err := f.startRouting(ctx, n); err != nil {
			return err
		}
	}
	return nil
}

// plug makes a namespace with one interface, eth0, on the underlay.
func (f *Fabric) plug(ctx context.Context, ns, port string, address netip.Addr) error {
	if err := f.ledger.makeNamespace(ctx, ns); err != nil {
		return err
	}
	// Both ends are made where they belong and never exist on the host.
	err := steps(ctx, f.underlay,
		fmt.Sprintf("link add %s mtu %d type veth peer name eth0 mtu %d netns %s", port, f.cfg.MTU, f.cfg.MTU, ns),
		fmt.Sprintf("link set %s master underlay up", port))
	if err != nil {
		return err
	}
	return steps(ctx, ns, fmt.Sprintf("addr add %s dev eth0", netip.PrefixFrom(address, f.cfg.Underlay.Bits())), "link set eth0 up")
}

// Close ends the daemons and removes every namespace with what is in it, also
// when ctx has ended. Taps that QEMU still holds stop working. On error the
// record stays, and Sweep can be tried again.
func (f *Fabric) Close(ctx context.Context) error { return f.end(ctx, "") }

// end is Close but for one namespace.
func (f *Fabric) end(ctx context.Context, keep string) error {
	err := sweep(ctx, f.cfg.Dir, keep)
	f.wg.Wait()
	for _, n := range f.nodes {
		err = errors.Join(err, n.mounts.close())
		n.mounts = nil
	}
	return err
}

func (f *Fabric) node(name string) (*node, error) {
	i := slices.IndexFunc(f.nodes, func(n *node) bool { return n.name == name })
	if i < 0 {
		return nil, fmt.Errorf("the fabric has no node %q", name)
	}
	return f.nodes[i], nil
}

// place is the namespace of a node or of the outside.
func (f *Fabric) place(name string) (string, error) {
	if name == Outside {
		return f.outside, nil
	}
	n, err := f.node(name)
	if err != nil {
		return "", err
	}
	return n.ns, nil
}

// Underlay is the network between the nodes.
func (f *Fabric) Underlay() netip.Prefix { return f.cfg.Underlay }

// Address is the underlay address of a node or of Outside; not valid for
// another name.
func (f *Fabric) Address(place string) netip.Addr {
	if place == Outside {
		return f.edge
	}
	if n, err := f.node(place); err == nil {
		return n.address
	}
	return netip.Addr{}
}

// Dial dials from a node or from Outside. The address must be a literal. The
// connection stays usable as any other, from every goroutine.
func (f *Fabric) Dial(ctx context.Context, place, network, address string) (net.Conn, error) {
	ns, err := f.place(place)
	if err != nil {
		return nil, err
	}
	return dialIn(ctx, ns, network, address)
}

// DialZone dials a guest from its zone's router on a node: the way of the lab
// into a sealed zone, as "ip vrf exec" is on a node of PVE. The guest sees its
// gateway's address. It has to run on that node, because its answer goes to
// the gateway there.
func (f *Fabric) DialZone(ctx context.Context, name, zone, network, address string) (net.Conn, error) {
	ns, err := f.zoneNamespace(name, zone)
	if err != nil {
		return nil, err
	}
	return dialIn(ctx, ns, network, address)
}

func (f *Fabric) zoneNamespace(name, zone string) (string, error) {
	n, err := f.node(name)
	if err != nil {
		return "", err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	s := n.zones[zone]
	if s == nil {
		return "", fmt.Errorf("node %s has no zone %q", name, zone)
	}
	return s.ns, nil
}

// Listen listens on a node or on Outside, at a literal address.
func (f *Fabric) Listen(ctx context.Context, place, network, address string) (net.Listener, error) {
	ns, err := f.place(place)
	if err != nil {
		return nil, err
	}
	return listenIn(ctx, ns, network, address)
}

// ListenPacket is Listen for datagrams.
func (f *Fabric) ListenPacket(ctx context.Context, place, network, address string) (net.PacketConn, error) {
	ns, err := f.place(place)
	if err != nil {
		return nil, err
	}
	return listenPacketIn(ctx, ns, network, address)
}

// Exec runs a program of the host in the network namespace of a node or of
// Outside and returns what it printed. It is killed when ctx ends.
func (f *Fabric) Exec(ctx context.Context, place string, args ...string) ([]byte, error) {
	ns, err := f.place(place)
	if err != nil {
		return nil, err
	}
	if len(args) == 0 {
		return nil, errors.New("run a program: none is given")
	}
	return run(ctx, ns, nil, args...)
}
