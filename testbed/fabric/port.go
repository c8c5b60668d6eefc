package fabric

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"os"
	"regexp"
	"slices"

	"golang.org/x/sys/unix"
)

// Port is a guest's place on a vnet.
type Port struct {
	// Name of the interface, as PVE's "tap100i0".
	Name string
	// MAC is the only address that the guest may send from.
	MAC net.HardwareAddr
	// Addresses are the only IP addresses that the guest may use, besides its
	// IPv6 link-local one. None means that they are not checked, as with PVE's
	// ipfilter off.
	Addresses []netip.Addr
}

type port struct {
	Port
	vnet string
}

var portName = regexp.MustCompile(`^[a-zA-Z][a-zA-Z0-9]{1,14}$`)

func (p Port) check(z Zone) error {
	if !portName.MatchString(p.Name) {
		return fmt.Errorf("interface name %q: want 2 to 15 letters and digits, a letter first", p.Name)
	}
	if len(p.MAC) != 6 || p.MAC[0]&1 != 0 {
		return fmt.Errorf("%s: MAC address %q: want six bytes, not of a group", p.Name, p.MAC)
	}
	if slices.Equal(p.MAC, GatewayMAC(z.ID)) {
		return fmt.Errorf("%s: MAC address %s is the gateway's", p.Name, p.MAC)
	}
	for _, a := range p.Addresses {
		if !a.IsValid() || a.Zone() != "" || a.Is4In6() || a.IsUnspecified() || a.IsMulticast() {
			return fmt.Errorf("%s: address %s cannot be a guest's", p.Name, a)
		}
		for _, v := range z.VNets {
			for _, g := range v.Gateways {
				if g.Addr() == a {
					return fmt.Errorf("%s: address %s is the gateway's", p.Name, a)
				}
			}
		}
	}
	return nil
}

// Tap makes a tap device on a vnet of a node and returns its open descriptor,
// which QEMU inherits ("-netdev tap,fd=N"); QEMU itself runs where it likes.
// The device goes when the last descriptor is closed: close this one after
// QEMU has started. A port with that name that is left is replaced. Frames with
// another sender than the port's are dropped from the first one on.
func (f *Fabric) Tap(ctx context.Context, node, vnet string, p Port) (*os.File, error) {
	var tap *os.File
	err := f.attach(ctx, node, vnet, p, func(s *zoneState) error {
		return within(s.ns, func() (err error) {
			tap, err = openTap(p.Name)
			return err
		})
	})
	if err != nil {
		if tap != nil {
			_ = tap.Close()
		}
		return nil, fmt.Errorf("tap %s for vnet %s on node %s: %w", p.Name, vnet, node, err)
	}
	return tap, nil
}

// openTap makes a tap device in the namespace of the calling thread.
func openTap(name string) (*os.File, error) {
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("open /dev/net/tun: %w", err)
	}
	req, err := unix.NewIfreq(name)
	if err == nil {
		// With the header of virtio, packets are handed over whole.
		req.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI | unix.IFF_VNET_HDR)
		err = unix.IoctlIfreq(fd, unix.TUNSETIFF, req)
	}
	if err != nil {
		_ = unix.Close(fd)
		return nil, err
	}
	return os.NewFile(uintptr(fd), name), nil
}

// attach makes an interface with create, in the zone's namespace, and puts it
// on the vnet's bridge once its filter is there.
func (f *Fabric) attach(ctx context.Context, name, vnet string, p Port, create func(*zoneState) error) error {
	n, err := f.node(name)
	if err != nil {
		return err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	s, v := n.vnet(vnet)
	if s == nil {
		return errors.New("there is no such vnet; apply its zone first")
	}
	if err := p.check(s.zone); err != nil {
		return err
	}
	for _, l := range f.wantedLinks(n, s.zone) {
		if l.Name == p.Name {
			return errors.New("the name is taken by a bridge or tunnel of the zone")
		}
	}
	if err := n.detach(ctx, p.Name); err != nil {
		return err
	}
	if err := s.dropGone(ctx); err != nil {
		return err
	}
	s.ports[p.Name] = port{Port: p, vnet: vnet}
	if err := s.filter(ctx); err != nil {
		return err
	}
	if err := create(s); err != nil {
		return err
	}
	// The port's own address must not be the guest's: the bridge would keep
	// the guest's frames for itself.
	own := hardware([]byte{0xfe}, f.instance, n.name, p.Name)
	return steps(ctx, s.ns,
		fmt.Sprintf("link set %s address %s addrgenmode none mtu %d master %s", p.Name, own, s.zone.mtu(v, f.cfg.MTU), vnet),
		fmt.Sprintf("link set %s up", p.Name))
}

// Untap removes a port and its filter. It is no error if there is none.
func (f *Fabric) Untap(ctx context.Context, name, tap string) error {
	n, err := f.node(name)
	if err != nil {
		return err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if err := n.detach(ctx, tap); err != nil {
		return fmt.Errorf("remove tap %s from node %s: %w", tap, name, err)
	}
	return nil
}

func (n *node) detach(ctx context.Context, name string) error {
	for _, s := range n.zones {
		if _, ok := s.ports[name]; !ok {
			continue
		}
		have, err := observe(ctx, s.ns)
		if err != nil {
			return err
		}
		if _, there := have[name]; there {
			if err := ip(ctx, s.ns, "link del %s", name); err != nil {
				return err
			}
		}
		delete(s.ports, name)
		if err := s.filter(ctx); err != nil {
			return err
		}
	}
	return nil
}

// dropGone forgets the ports whose interface went with the guest that held it.
func (s *zoneState) dropGone(ctx context.Context) error {
	have, err := observe(ctx, s.ns)
	if err != nil {
		return err
	}
	maps.DeleteFunc(s.ports, func(name string, _ port) bool { _, there := have[name]; return !there })
	return nil
}

func (n *node) vnet(id string) (*zoneState, VNet) {
	for _, s := range n.zones {
		for _, v := range s.zone.VNets {
			if v.ID == id {
				return s, v
			}
		}
	}
	return nil, VNet{}
}
