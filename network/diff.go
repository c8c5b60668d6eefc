package network

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// object is a wanted object.
type object struct {
	kind   Kind
	id     string
	fields Fields
}

// forbidden are options that open a zone, or that work against the plan: they
// are taken away from objects of ours.
var forbidden = map[Kind][]string{
	KindController: {"fabric"},
	KindZone:       {"exitnodes", "exitnodes-local-routing", "exitnodes-primary", "rt-import", "dhcp", "fabric"},
	KindVNet:       {"vlanaware"},
	KindSubnet:     {"snat", "dhcp-range"},
}

// set are the options that plans set.
var set = map[Kind][]string{
	KindController: {"type", "asn", "peers"},
	KindZone:       {"type", "vrf-vxlan", "controller", "mtu", "nodes", "peers"},
	KindVNet:       {"zone", "tag", "alias"},
	KindSubnet:     {"vnet", "gateway"},
}

// manages says whether the option is one that plans set or take away.
func manages(k Kind, key string) bool {
	return slices.Contains(set[k], key) || slices.Contains(forbidden[k], key)
}

// wantedObjects are the objects of the wanted state, in no order.
func wantedObjects(w Wanted, a Allocation) []object {
	var out []object
	peers := make([]string, len(w.Peers))
	for i, p := range w.Peers {
		peers[i] = p.String()
	}
	list := Fields{"peers": strings.Join(peers, ",")}.value("peers")
	controller := cmp.Or(w.Controller.ID, a.Controller)
	if w.ownController() {
		out = append(out, object{KindController, a.Controller, Fields{
			"type": "evpn", "asn": strconv.FormatUint(uint64(w.Controller.ASN), 10), "peers": list,
		}})
	}
	for _, t := range w.Tenants {
		rec := a.Zones[t.Name]
		z := Fields{"type": string(rec.Type), "nodes": Fields{"nodes": strings.Join(t.Zone.Nodes, ",")}.value("nodes")}
		if mtu := w.mtu(t.Zone); mtu != 0 {
			z["mtu"] = strconv.Itoa(mtu)
		}
		switch rec.Type {
		case EVPN:
			z["controller"], z["vrf-vxlan"] = controller, number(rec.VRF)
		case VXLAN:
			z["peers"] = list
		case Simple:
		}
		out = append(out, object{KindZone, rec.ID, z})
		for _, v := range t.VNets {
			key := vnetKey(t.Name, v.Name)
			vrec := a.VNets[key]
			out = append(out, object{KindVNet, vrec.ID, Fields{
				"zone": rec.ID, "tag": number(vrec.VNI), "alias": mark(a.Instance, key),
			}})
			for _, s := range v.Subnets {
				f := Fields{"vnet": vrec.ID}
				if s.Gateway.IsValid() {
					f["gateway"] = s.Gateway.String()
				}
				out = append(out, object{KindSubnet, subnetID(rec.ID, s.Prefix), f})
			}
		}
	}
	return out
}

// write compares a wanted object with both states of the one that is there.
func write(w object, obj Object) (Change, bool) {
	c := Change{Kind: w.kind, ID: w.id}
	if w.kind == KindSubnet {
		c.Parent = w.fields["vnet"]
	}
	if obj.Pending == nil {
		c.Op, c.Fields, c.Reason = OpCreate, Fields{}, "does not exist"
		if obj.Running != nil {
			c.Reason = "runs, and its removal is pending"
		}
		for key, v := range w.fields {
			if v != "" {
				c.Fields[key] = v
			}
		}
		return c, true
	}
	fields, unset, why := difference(w, obj.Pending)
	if why != "" {
		c.Op, c.Fields, c.Unset, c.Reason = OpUpdate, fields, unset, why
		return c, true
	}
	if obj.Running == nil {
		c.Op, c.Reason = OpApply, "is pending and not running"
		return c, true
	}
	if _, _, why := difference(w, obj.Running); why != "" {
		c.Op, c.Reason = OpApply, "its change is pending: "+why
		return c, true
	}
	return c, false
}

// difference is what has to be written so that the options are as wanted, and
// the same for people; "" when they are.
func difference(w object, have Fields) (Fields, []string, string) {
	fields, unset, why := Fields{}, []string(nil), []string(nil)
	for _, key := range slices.Concat(set[w.kind], forbidden[w.kind]) {
		want, got := w.fields.value(key), have.value(key)
		switch {
		case want == got:
			continue
		case want == "":
			unset = append(unset, key)
			why = append(why, fmt.Sprintf("%s is %q and must not be set", key, got))
		default:
			fields[key] = want
			why = append(why, fmt.Sprintf("%s is %q, wanted %q", key, got, want))
		}
	}
	return fields, unset, strings.Join(why, ", ")
}

// settle is what stays recorded when the plan was applied.
func settle(a Allocation, stay []object) Allocation {
	out := a.clone()
	stays := func(k Kind, id string) bool {
		return slices.ContainsFunc(stay, func(o object) bool { return o.kind == k && o.id == id })
	}
	for key, v := range out.VNets {
		v.Subnets = slices.DeleteFunc(v.Subnets, func(p netip.Prefix) bool {
			return !stays(KindSubnet, subnetID(a.Zones[tenantOf(key)].ID, p))
		})
		out.VNets[key] = v
		if !stays(KindVNet, v.ID) {
			delete(out.VNets, key)
		}
	}
	for tenant, z := range out.Zones {
		if !stays(KindZone, z.ID) {
			delete(out.Zones, tenant)
		}
	}
	if !stays(KindController, out.Controller) {
		out.Controller = ""
	}
	return out
}
