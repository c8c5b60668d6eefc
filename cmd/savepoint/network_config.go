package main

import (
	"context"
	"net/netip"

	"savepoint/configs"
	"savepoint/network"
)

// wanted is the configured state of the networks. Without configured peers the
// cluster is asked for its nodes' addresses.
func (s *session) wanted(ctx context.Context) (network.Wanted, error) {
	w := wantedNetworks(s.cfg.Network)
	needs := false
	for _, t := range w.Tenants {
		needs = needs || t.Zone.Type != network.Simple
	}
	if len(w.Peers) > 0 || !needs {
		return w, nil
	}
	var err error
	w.Peers, err = s.cluster.Peers(ctx)
	return w, err
}

// wantedNetworks gives the configuration the form that is planned with.
func wantedNetworks(n configs.Network) network.Wanted {
	w := network.Wanted{
		UnderlayMTU: n.UnderlayMTU,
		VNIs:        network.VNIRange{First: network.VNI(n.VNIFirst), Last: network.VNI(n.VNILast)},
		Controller:  network.Controller{ID: n.Controller},
	}
	if n.Controller == "" { // that of the cluster has its own
		w.Controller.ASN = uint32(n.ASN)
	}
	for _, p := range n.Peers {
		a, _ := netip.ParseAddr(p) // it was checked when it was read
		w.Peers = append(w.Peers, a)
	}
	for _, t := range n.Tenants {
		tenant := network.Tenant{Name: t.Name, Zone: network.Zone{
			Type: network.ZoneType(t.Zone), VRF: network.VNI(t.VRF), MTU: t.MTU, Nodes: t.Nodes,
		}}
		if t.Zone == "" {
			tenant.Zone.Type = network.EVPN
		}
		for _, v := range t.VNets {
			vnet := network.VNet{Name: v.Name, VNI: network.VNI(v.VNI), Guests: v.Guests}
			for _, s := range v.Subnets {
				vnet.Subnets = append(vnet.Subnets, network.Subnet{Prefix: s.Prefix, Gateway: s.Gateway})
			}
			tenant.VNets = append(tenant.VNets, vnet)
		}
		w.Tenants = append(w.Tenants, tenant)
	}
	return w
}
