package fabric

import (
	"context"
	"errors"
	"fmt"
)

// Leak opens a zone on one node on purpose, so that a proof of isolation can be
// shown to fail: the zone's default route leads through the node to the
// underlay, with the sender's address translated, as a PVE zone's exit node
// does. Seal undoes it.
func (f *Fabric) Leak(ctx context.Context, name, zone string) error {
	n, ns, err := f.leakPlace(name, zone)
	if err != nil {
		return fmt.Errorf("leak zone %s on node %s: %w", zone, name, err)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	err = f.leak(ctx, n, n.zones[zone], ns)
	if err != nil {
		return fmt.Errorf("leak zone %s on node %s: %w", zone, name, errors.Join(err, f.seal(context.WithoutCancel(ctx), n, zone)))
	}
	return nil
}

func (f *Fabric) leakPlace(name, zone string) (*node, string, error) {
	n, err := f.node(name)
	if err != nil {
		return nil, "", err
	}
	ns, err := f.zoneNamespace(name, zone)
	return n, ns, err
}

func (f *Fabric) leak(ctx context.Context, n *node, s *zoneState, ns string) error {
	outer := "leak_" + s.zone.ID
	// The pair has no addresses: both ends answer for what is behind them.
	if err := ip(ctx, ns, "link add leak type veth peer name %s netns %s", outer, n.ns); err != nil {
		return err
	}
	if err := sysctl(ns, map[string]string{"ipv4/conf/leak/proxy_arp": "1"}); err != nil {
		return err
	}
	if err := sysctl(n.ns, map[string]string{"ipv4/conf/" + outer + "/proxy_arp": "1", "ipv4/ip_forward": "1"}); err != nil {
		return err
	}
	if err := steps(ctx, ns, "link set leak up"); err != nil {
		return err
	}
	if err := ip(ctx, n.ns, "link set %s up", outer); err != nil {
		return err
	}
	for _, v := range s.zone.VNets {
		for _, g := range v.Gateways {
			if g.Addr().Is4() {
				if err := ip(ctx, n.ns, "route add %s dev %s", g.Masked(), outer); err != nil {
					return err
				}
			}
		}
	}
	if err := ip(ctx, ns, "route add default dev leak"); err != nil {
		return err
	}
	rules := "table ip savepoint\ndelete table ip savepoint\ntable ip savepoint {\n" +
		" chain leak {\n  type nat hook postrouting priority 100;\n  oifname \"eth0\" masquerade\n }\n}\n"
	_, err := run(ctx, n.ns, []byte(rules), "nft", "-f", "-")
	return err
}

// Seal undoes Leak. It is no error if the zone was not leaked.
func (f *Fabric) Seal(ctx context.Context, name, zone string) error {
	n, err := f.node(name)
	if err != nil {
		return err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if err := f.seal(ctx, n, zone); err != nil {
		return fmt.Errorf("seal zone %s on node %s: %w", zone, name, err)
	}
	return nil
}

func (f *Fabric) seal(ctx context.Context, n *node, zone string) error {
	links, err := observe(ctx, n.ns)
	if err != nil {
		return err
	}
	leaks := 0
	for name := range links {
		if name == "leak_"+zone {
			// Its routes go with it.
			if err := ip(ctx, n.ns, "link del %s", name); err != nil {
				return err
			}
		} else if len(name) > 5 && name[:5] == "leak_" {
			leaks++
		}
	}
	if leaks > 0 {
		return nil
	}
	return sysctl(n.ns, map[string]string{"ipv4/ip_forward": "0"})
}
