package lab

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/rs/zerolog"

	"savepoint/testbed/fabric"
	"savepoint/testbed/jump"
	"savepoint/testbed/pve"
	"savepoint/testbed/qemu"
)

func fabricDir(dir string) string { return filepath.Join(dir, "fabric") }

// network joins the parts: it makes the API's SDN on the fabric, the guests'
// network cards on its vnets, and ways for the bastion to them.
type network struct {
	*fabric.Fabric
	runs func(node string, vmid int) bool
	log  zerolog.Logger

	mu    sync.Mutex
	zones map[string][]fabric.Zone // by node, as they were applied last
	ports map[string][]guestPort   // by node; also of guests that have ended since
}

// guestPort is one network card on a vnet.
type guestPort struct {
	vmid int
	vnet string
	fabric.Port
}

var (
	_ pve.Fabric      = (*network)(nil)
	_ pve.RouteTables = (*network)(nil) // by the fabric
)

func openNetwork(ctx context.Context, o Options) (*network, error) {
	if err := os.MkdirAll(fabricDir(o.Dir), 0o700); err != nil {
		return nil, fmt.Errorf("make the lab's network: %w", err)
	}
	f, err := fabric.New(ctx, fabric.Config{Dir: fabricDir(o.Dir), Nodes: o.nodes(), Instance: "lab"})
	if err != nil {
		return nil, fmt.Errorf("make the lab's network: %w", err)
	}
	return &network{Fabric: f, log: o.Log, zones: map[string][]fabric.Zone{}, ports: map[string][]guestPort{}}, nil
}

// Apply implements pve.Fabric.
func (n *network) Apply(ctx context.Context, node string, sdn pve.SDN) error {
	zones, err := zonesOf(sdn, node)
	if err != nil {
		return err
	}
	if err := n.Fabric.Apply(ctx, node, zones); err != nil {
		return err
	}
	n.mu.Lock()
	n.zones[node] = zones
	n.mu.Unlock()
	return n.exits(ctx, node, sdn)
}

// exits opens the zones that have the node as an exit, and no others.
func (n *network) exits(ctx context.Context, node string, sdn pve.SDN) error {
	for _, z := range sdn.Zones {
		if !z.On(node) {
			continue
		}
		// Anew each time: the zone may have other networks now.
		if err := n.Seal(ctx, node, z.ID); err != nil {
			return err
		}
		if slices.Contains(z.ExitNodes, node) {
			n.log.Warn().Str("node", node).Str("zone", z.ID).Msg("the zone has an exit on this node: its guests here reach the outside")
			if err := n.Leak(ctx, node, z.ID); err != nil {
				return err
			}
		}
	}
	return nil
}

// zonesOf is what a node has of the cluster's networks, in the fabric's words.
// What the fabric cannot do is an error: a network that is not what it is said
// to be proves nothing.
func zonesOf(sdn pve.SDN, node string) ([]fabric.Zone, error) {
	var out []fabric.Zone
	for _, z := range sdn.Zones {
		if !z.On(node) {
			continue
		}
		for what, asked := range map[string]bool{
			"imported route targets": len(z.RTImport) > 0, "a port for VXLAN other than 4789": z.VXLANPort != 0 && z.VXLANPort != 4789,
		} {
			if asked {
				return nil, fmt.Errorf("zone %s: the lab's network has no %s", z.ID, what)
			}
		}
		zone := fabric.Zone{ID: z.ID, Kind: fabric.Kind(z.Type), VRF: uint32(z.VRFVXLAN)}
		for _, v := range sdn.VNets {
			if v.Zone != z.ID {
				continue
			}
			if v.IsolatePorts || v.VLANAware {
				return nil, fmt.Errorf("vnet %s: the lab's network has no isolated ports and no VLANs", v.ID)
			}
			vnet := fabric.VNet{ID: v.ID, VNI: uint32(v.Tag), MTU: z.MTU}
			if zone.Kind == fabric.Simple {
				vnet.VNI = 0
			}
			for _, s := range sdn.Subnets {
				// The bridges of a vxlan zone get no address, whatever is written.
				if s.VNet == v.ID && s.Gateway.IsValid() && zone.Kind != fabric.VXLAN {
					vnet.Gateways = append(vnet.Gateways, netip.PrefixFrom(s.Gateway, s.CIDR.Bits()))
				}
			}
			zone.VNets = append(zone.VNets, vnet)
		}
		out = append(out, zone)
	}
	return out, nil
}

// restore builds what ran when the last lab ended. A network that cannot be
// built does not keep the lab from starting, as on a node that boots.
func (n *network) restore(ctx context.Context, nodes []string, sdn pve.SDN) error {
	var all sync.WaitGroup
	for _, node := range nodes {
		all.Go(func() {
			if err := n.Apply(ctx, node, sdn); err != nil {
				n.log.Error().Err(err).Str("node", node).Msg("the node's network is not what it was")
			}
		})
	}
	all.Wait()
	return context.Cause(ctx)
}

// adopt gives the guests that a killed lab left their places back. One that has
// none any more runs on without a network, until it is stopped and started.
func (n *network) adopt(ctx context.Context, machines map[string]*qemu.Machines) error {
	for node, all := range machines {
		for _, m := range all.OnTaps() {
			for _, nic := range m.NICs {
				p, err := portOf(m.VMID, nic)
				if err == nil {
					err = n.Adopt(ctx, node, nic.Bridge, p)
				}
				if ctx.Err() != nil {
					return context.Cause(ctx)
				}
				if err != nil {
					n.log.Error().Err(err).Int("vm", m.VMID).Msg("the guest has no network any more; stop and start it")
					continue
				}
				n.note(node, guestPort{m.VMID, nic.Bridge, p})
			}
		}
	}
	return n.Settle(ctx)
}

// zoneOf is the zone of a vnet on a node, "" when it has no such vnet.
func (n *network) zoneOf(node, vnet string) string {
	for _, z := range n.zones[node] {
		if slices.ContainsFunc(z.VNets, func(v fabric.VNet) bool { return v.ID == vnet }) {
			return z.ID
		}
	}
	return ""
}

// portOf is the place of a network card, as PVE names it.
func portOf(vmid int, nic pve.NIC) (fabric.Port, error) {
	mac, err := net.ParseMAC(nic.MAC)
	if err != nil {
		return fabric.Port{}, err
	}
	p := fabric.Port{Name: "tap" + strconv.Itoa(vmid) + "i" + strings.TrimPrefix(nic.Slot, "net"), MAC: mac}
	for _, a := range nic.Addresses {
		p.Addresses = append(p.Addresses, a.Addr())
	}
	return p, nil
}

// tapsOf is tap for the guests of one node.
func (n *network) tapsOf(node string) func(context.Context, pve.Machine, pve.NIC) (*os.File, error) {
	return func(ctx context.Context, m pve.Machine, nic pve.NIC) (*os.File, error) {
		return n.tap(ctx, node, m, nic)
	}
}

// tap gives a guest's network card a place on its vnet. Cards on the node's own
// bridge, or on none, have none: they are on user-mode networks.
func (n *network) tap(ctx context.Context, node string, m pve.Machine, nic pve.NIC) (*os.File, error) {
	if nic.Bridge == bridge || nic.Bridge == "" {
		return nil, nil
	}
	p, err := portOf(m.VMID, nic)
	if err != nil {
		return nil, err
	}
	f, err := n.Tap(ctx, node, nic.Bridge, p)
	if err == nil {
		n.note(node, guestPort{m.VMID, nic.Bridge, p})
	}
	return f, err
}

func (n *network) note(node string, p guestPort) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.ports[node] = append(slices.DeleteFunc(n.ports[node], func(q guestPort) bool { return q.Name == p.Name }), p)
}

// errTwoGuests refuses an address that leads to more than one place.
var errTwoGuests = errors.New("two running guests have it")

// dial is the bastion's way to a guest: from the zone's router on its own node.
func (n *network) dial(ctx context.Context, guest netip.Addr, port uint16) (net.Conn, error) {
	if port != 22 {
		return nil, jump.ErrNoGuest
	}
	node, zone, err := n.find(guest)
	if err != nil {
		return nil, err
	}
	conn, err := n.DialZone(ctx, node, zone, "tcp", netip.AddrPortFrom(guest, port).String())
	if err != nil {
		n.log.Info().Err(err).Str("node", node).Str("zone", zone).Msg("bastion: a guest does not answer")
	}
	return conn, err
}

// find is where the running guest with an address is.
func (n *network) find(guest netip.Addr) (node, zone string, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	err = jump.ErrNoGuest
	for at, ports := range n.ports {
		for _, p := range ports {
			z := n.zoneOf(at, p.vnet)
			if z == "" || !slices.Contains(p.Addresses, guest) || !n.runs(at, p.vmid) {
				continue
			}
			if err == nil {
				return "", "", fmt.Errorf("guest %s: %w", guest, errTwoGuests)
			}
			node, zone, err = at, z, nil
		}
	}
	return node, zone, err
}
