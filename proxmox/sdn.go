package proxmox

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"

	pve "github.com/luthermonson/go-proxmox"

	"savepoint/network"
	"savepoint/orchestrator"
)

// SDN is the cluster's software-defined network. It implements the port Fabric
// of orchestrator/networks.
type SDN struct {
	c     *Cluster
	major atomic.Int32 // of the release; 0 = not asked yet
}

// SDN returns the adapter for the cluster's networks.
func (c *Cluster) SDN() *SDN { return &SDN{c: c} }

const (
	sdnPath  = "/cluster/sdn"
	networks = "the cluster's networks"
)

// Observe reads the networks in both states, the nodes with what they say of
// their zones, and, where zones are named, the network cards of all guests and
// who is on those zones' bridges.
func (s *SDN) Observe(ctx context.Context, zones []string) (network.Observed, error) {
	var o network.Observed
	if err := s.seesAll(ctx); err != nil {
		return o, err
	}
	for _, k := range []struct {
		kind network.Kind
		list *[]network.Object
	}{{network.KindController, &o.Controllers}, {network.KindZone, &o.Zones}, {network.KindVNet, &o.VNets}} {
		objects, err := s.objects(ctx, k.kind, sdnPath+"/"+string(k.kind)+"s")
		if err != nil {
			return o, err
		}
		*k.list = objects
	}
	for _, v := range o.VNets {
		if v.Pending == nil {
			continue // it is deleted, and its subnets were before
		}
		objects, err := s.objects(ctx, network.KindSubnet, sdnPath+"/vnets/"+url.PathEscape(v.ID)+"/subnets")
		if err != nil && !errors.Is(err, orchestrator.ErrNotFound) { // deleted since the list
			return o, err
		}
		o.Subnets = append(o.Subnets, objects...)
	}
	var err error
	if o.Others, err = s.fabrics(ctx); err != nil {
		return o, err
	}
	if err := s.nodes(ctx, &o); err != nil {
		return o, err
	}
	if len(zones) > 0 {
		if o.Hidden, err = s.hidden(ctx); err != nil {
			return o, err
		}
		o.Attachments, err = s.attachments(ctx, o, zones)
	}
	return o, err
}

// hidden says why the list of guests may leave some out. Those that run show as
// ports on Proxmox VE 9; those that are off show nowhere.
func (s *SDN) hidden(ctx context.Context) (string, error) {
	granted, err := s.c.permissions(ctx, "/vms")
	if err != nil || granted["VM.Audit"] != 0 { // with everything below
		return "", err
	}
	return "privilege VM.Audit is missing on /vms, or does not hold below it; grant it (see savepoint doctor --setup), or look for guests on the vnet and remove it in the cluster's SDN view", nil
}

// seesAll refuses to look without the right to see everything: the lists leave
// out what the token may not see, and an apply commits that too. What a role
// further down takes away again nobody is told; Proxmox VE 9 finds edits of that
// when it gives its lock, 8 does not.
func (s *SDN) seesAll(ctx context.Context) error {
	granted, err := s.c.permissions(ctx, "/sdn")
	if err != nil {
		return err
	}
	for _, p := range []string{"SDN.Audit", "SDN.Allocate"} {
		if granted[p] != 0 { // with everything below
			return nil
		}
	}
	return refuse("look at", networks, orchestrator.ErrDenied, "privilege SDN.Audit is missing on /sdn, or does not hold below it", mendRole)
}

// objects reads one list.
func (s *SDN) objects(ctx context.Context, kind network.Kind, path string) ([]network.Object, error) {
	var items []map[string]any
	if err := s.c.get(ctx, path, url.Values{"pending": {"1"}}, &items); err != nil {
		return nil, explainSDN("list "+string(kind)+"s of", networks, err, false)
	}
	out := make([]network.Object, 0, len(items))
	for _, item := range items {
		id := string(kind)
		out = append(out, sdnObject(kind, flat(item[id]), item, id))
	}
	return out, nil
}

// subnetParts are what a subnet's item says besides its options.
var subnetParts = []string{"id", "zone", "cidr", "network", "mask"}

// sdnObject makes an object of an item: options as they run, and the edits on
// top of them.
func sdnObject(kind network.Kind, id string, item map[string]any, idKey string) network.Object {
	fields := func(m map[string]any) network.Fields {
		out := network.Fields{}
		for key, v := range m {
			switch {
			case v == nil, slices.Contains([]string{idKey, "state", "pending", "digest"}, key):
			case kind == network.KindSubnet && slices.Contains(subnetParts, key):
			default:
				out[key] = flat(v)
			}
		}
		return out
	}
	edits, _ := item["pending"].(map[string]any)
	return network.NewObject(kind, id, network.State(flat(item["state"])), fields(item), fields(edits))
}

// flat is an option as text; lists are joined by commas.
func flat(v any) string {
	switch x := v.(type) {
	case []any:
		parts := make([]string, len(x))
		for i, e := range x {
			parts[i] = flat(e)
		}
		return strings.Join(parts, ",")
	case map[string]any:
		var parts []string
		for _, key := range slices.Sorted(maps.Keys(x)) {
			parts = append(parts, key+"="+flat(x[key]))
		}
		return strings.Join(parts, ",")
	}
	return vmConfig{"": v}.text("")
}

// fabrics reads what is not planned and has pending edits too. Only PVE 9 has it.
func (s *SDN) fabrics(ctx context.Context) ([]network.Object, error) {
	if has, err := s.modern(ctx); err != nil || !has {
		return nil, err
	}
	var all map[string][]map[string]any
	err := s.c.get(ctx, sdnPath+"/fabrics/all", url.Values{"pending": {"1"}}, &all)
	var api *pve.APIError
	if errors.As(err, &api) && (api.StatusCode == http.StatusNotImplemented || api.StatusCode == http.StatusNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, explainSDN("list fabrics of", networks, err, false)
	}
	var out []network.Object
	for _, item := range all["fabrics"] {
		out = append(out, sdnObject("fabric", flat(item["id"]), item, "id"))
	}
	for _, item := range all["nodes"] {
		out = append(out, sdnObject("node of a fabric", flat(item["fabric_id"])+"/"+flat(item["node_id"]), item, "id"))
	}
	return out, nil
}

// modern says whether the cluster has the lock and what else came with PVE 9.
func (s *SDN) modern(ctx context.Context) (bool, error) {
	if s.major.Load() == 0 {
		v, err := s.c.Version(ctx)
		if err != nil {
			return false, err
		}
		s.major.Store(int32(v.Major))
	}
	return s.major.Load() >= 9, nil
}

// nodes reads which nodes there are and what they say of their zones. A node
// that does not answer although the cluster calls it online has no zones.
func (s *SDN) nodes(ctx context.Context, o *network.Observed) error {
	list, err := s.c.Nodes(ctx)
	if err != nil {
		return err
	}
	for _, n := range list {
		node := network.Node{Name: n.Name, Online: n.Online}
		if n.Online {
			var zones []struct{ Zone, Status string }
			err := s.c.get(ctx, nodePath(n.Name)+"/sdn/zones", nil, &zones)
			if err != nil && ctx.Err() != nil {
				return explainSDN("ask the zones of", "node "+n.Name, err, false)
			}
			if err != nil {
				s.c.log.Warn().Err(err).Str("node", n.Name).Msg("the node does not tell its zones")
			}
			node.Zones = map[string]string{}
			for _, z := range zones {
				node.Zones[z.Zone] = z.Status
			}
			names, err := s.interfaces(ctx, n.Name)
			if err != nil {
				return err
			}
			o.Interfaces = append(o.Interfaces, names...)
		}
		o.Nodes = append(o.Nodes, node)
	}
	slices.Sort(o.Interfaces)
	o.Interfaces = slices.Compact(o.Interfaces)
	return nil
}

// interfaces are the names that a node's network uses, as far as it tells.
func (s *SDN) interfaces(ctx context.Context, node string) ([]string, error) {
	var list []struct{ Iface string }
	if err := s.c.get(ctx, nodePath(node)+"/network", nil, &list); err != nil {
		if ctx.Err() != nil {
			return nil, explainSDN("list interfaces of", "node "+node, err, false)
		}
		s.c.log.Warn().Err(err).Str("node", node).Msg("the node does not tell its interfaces")
	}
	var out []string
	for _, i := range list {
		out = append(out, i.Iface)
	}
	return out, nil
}

// Peers are the nodes' addresses as the cluster has them.
func (c *Cluster) Peers(ctx context.Context) ([]netip.Addr, error) {
	const op, mend = "ask the addresses of", "list them in network.peers"
	var list []struct{ Type, Name, IP string }
	if err := c.get(ctx, "/cluster/status", nil, &list); err != nil {
		err = explain(op, "the nodes", err, false)
		if errors.Is(err, orchestrator.ErrDenied) {
			err = fmt.Errorf("%w, or %s", err, mend)
		}
		return nil, err
	}
	var out []netip.Addr
	for _, n := range list {
		if n.Type != "node" {
			continue
		}
		a, err := netip.ParseAddr(n.IP)
		if err != nil || a.IsLoopback() { // a node that is alone may have itself in its hosts file
			return nil, refuse(op, "node "+n.Name, orchestrator.ErrNotFound, fmt.Sprintf("the cluster says %q, where no other node reaches it", n.IP), mend)
		}
		out = append(out, a)
	}
	slices.SortFunc(out, netip.Addr.Compare)
	return out, nil
}
