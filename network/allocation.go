package network

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
)

// Allocation records which ids and identifiers are ours, for whom. It is the
// first half of ownership and must be durable before the objects are made.
type Allocation struct {
	Instance string `json:"instance"` // id of the savepoint that owns them
	// Controller is the id of the EVPN controller that we made.
	Controller string                `json:"controller,omitempty"`
	Zones      map[string]ZoneRecord `json:"zones,omitempty"` // by tenant
	VNets      map[string]VNetRecord `json:"vnets,omitempty"` // by tenant/vnet
	// LastID and LastVNI are where the next search begins: what was given back
	// is chosen last, because a node that was offline may still carry it.
	LastID  uint32 `json:"last_id,omitempty"`
	LastVNI VNI    `json:"last_vni,omitempty"`
}

// ZoneRecord is the zone of a tenant.
type ZoneRecord struct {
	ID   string   `json:"id"`
	Type ZoneType `json:"type"`
	VRF  VNI      `json:"vrf,omitempty"`
}

// VNetRecord is a vnet with the subnets that we made in it.
type VNetRecord struct {
	ID      string         `json:"id"`
	VNI     VNI            `json:"vni,omitempty"`
	Subnets []netip.Prefix `json:"subnets,omitempty"`
}

// Ids are eight characters, which is all that the cluster takes: a letter for
// the kind, four for the instance, three that count. Only letters and digits
// are allowed, so that an id is also a usable name of a bridge.
const (
	alphabet = "0123456789abcdefghjkmnpqrstvwxyz"
	idCount  = 32 * 32 * 32
)

// idKinds are the first letters of ids.
var idKinds = map[Kind]string{KindController: "c", KindZone: "z", KindVNet: "v"}

func encode(n uint32, digits int) string {
	out := make([]byte, digits)
	for i := digits - 1; i >= 0; i-- {
		out[i] = alphabet[n%32]
		n /= 32
	}
	return string(out)
}

// newID is the n-th id of its kind for the instance.
func newID(instance string, kind Kind, n uint32) string {
	sum := sha256.Sum256([]byte(instance))
	return idKinds[kind] + encode(binary.BigEndian.Uint32(sum[:]), 4) + encode(n, 3)
}

// inIDSpace says whether the id is one that the instance could have made.
func inIDSpace(instance string, kind Kind, id string) bool {
	if kind == KindSubnet {
		zone, _, _ := strings.Cut(id, "-")
		return inIDSpace(instance, KindZone, zone)
	}
	if len(id) != 8 || idKinds[kind] == "" || id[:5] != newID(instance, kind, 0)[:5] {
		return false
	}
	return strings.Trim(id[5:], alphabet) == ""
}

// subnetID is the id that the cluster gives a subnet.
func subnetID(zone string, p netip.Prefix) string {
	return fmt.Sprintf("%s-%s-%d", zone, p.Addr(), p.Bits())
}

// mark is the alias of a vnet of ours: the second half of ownership. The
// cluster allows no quotes, commas or angle brackets in it.
func mark(instance, key string) string { return "savepoint " + instance + " " + key }

// vnetKey is the key of Allocation.VNets; names have no slash.
func vnetKey(tenant, vnet string) string { return tenant + "/" + vnet }

// tenantOf is the tenant of a vnet's key.
func tenantOf(key string) string {
	tenant, _, _ := strings.Cut(key, "/")
	return tenant
}

// sorted returns the keys of a map in order.
func sorted[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// ZoneIDs are the ids of our zones, sorted.
func (a Allocation) ZoneIDs() []string {
	var out []string
	for _, z := range a.Zones {
		out = append(out, z.ID)
	}
	slices.Sort(out)
	return out
}

// clone copies the allocation, so that plans do not share what they change.
func (a Allocation) clone() Allocation {
	zones, vnets := map[string]ZoneRecord{}, map[string]VNetRecord{}
	maps.Copy(zones, a.Zones)
	for key, v := range a.VNets {
		v.Subnets = slices.Clone(v.Subnets)
		vnets[key] = v
	}
	a.Zones, a.VNets = zones, vnets
	return a
}

// check finds what cannot have been recorded by this package.
func (a Allocation) check() error {
	if strings.Trim(a.Instance, letters+digits+"-_") != "" || a.Instance == "" || len(a.Instance) > 64 {
		return fmt.Errorf("plan networks: instance %q is not an id of letters and digits; give the journal's", a.Instance)
	}
	ids, vnis := map[string]bool{}, map[VNI]bool{}
	use := func(kind Kind, id string, vni VNI, overlay bool) error {
		if !inIDSpace(a.Instance, kind, id) || ids[id] {
			return fmt.Errorf("plan networks: the recorded %s %q is not an id of instance %s, or is there twice; the record is damaged, restore the journal", kind, id, a.Instance)
		}
		if overlay && (vni == 0 || vni > maxVNI || vnis[vni]) {
			return fmt.Errorf("plan networks: the recorded VNI %d of %s %s is not valid, or is there twice; the record is damaged, restore the journal", vni, kind, id)
		}
		ids[id], vnis[vni] = true, true
		return nil
	}
	if a.Controller != "" {
		if err := use(KindController, a.Controller, 0, false); err != nil {
			return err
		}
	}
	for _, tenant := range sorted(a.Zones) {
		z := a.Zones[tenant]
		if err := use(KindZone, z.ID, z.VRF, z.Type == EVPN); err != nil {
			return err
		}
	}
	for _, key := range sorted(a.VNets) {
		v, z := a.VNets[key], a.Zones[tenantOf(key)]
		if z.ID == "" {
			return fmt.Errorf("plan networks: the recorded vnet %q has no zone; the record is damaged, restore the journal", key)
		}
		if err := use(KindVNet, v.ID, v.VNI, z.Type.overlay()); err != nil {
			return err
		}
	}
	return nil
}

// allocator hands out ids and identifiers that nobody has.
type allocator struct {
	Allocation
	ids  map[string]bool
	vnis map[VNI]string // identifier → who has it
	all  VNIRange
}

// newAllocator knows everything that is recorded, seen on the cluster on
// either side, or configured by hand. Objects with ids of ours that are not
// recorded need no entry: they are refused.
func newAllocator(w Wanted, o Observed, a Allocation) *allocator {
	n := &allocator{Allocation: a.clone(), ids: map[string]bool{}, vnis: map[VNI]string{}, all: w.VNIs}
	for _, obj := range o.planned() {
		for _, vni := range vnisOf(o, obj) {
			n.vnis[vni] = fmt.Sprintf("%s %s", obj.Kind, obj.ID)
		}
	}
	for _, name := range o.Interfaces {
		n.ids[name] = true
	}
	n.ids[a.Controller] = true
	for tenant, z := range a.Zones {
		n.ids[z.ID], n.vnis[z.VRF] = true, "tenant "+tenant
	}
	for key, v := range a.VNets {
		n.ids[v.ID], n.vnis[v.VNI] = true, "vnet "+key
	}
	for _, t := range w.Tenants {
		n.vnis[t.Zone.VRF] = "the configuration"
		for _, v := range t.VNets {
			n.vnis[v.VNI] = "the configuration"
		}
	}
	return n
}

// id is a free id, or "" when all are used.
func (n *allocator) id(kind Kind) string {
	for range idCount {
		n.LastID = (n.LastID + 1) % idCount
		if id := newID(n.Instance, kind, n.LastID); !n.ids[id] {
			n.ids[id] = true
			return id
		}
	}
	return ""
}

// vni is the one that is configured or else a free one of the range, 0 when
// all are used.
func (n *allocator) vni(configured VNI, who string) VNI {
	if configured != 0 {
		return configured
	}
	next := n.LastVNI
	// One more than all that can be in the way, and the turn.
	for range len(n.vnis) + 2 {
		next++
		if next < n.all.First || next > n.all.Last {
			next = n.all.First
		}
		if n.vnis[next] == "" {
			n.vnis[next], n.LastVNI = who, next
			return next
		}
	}
	return 0
}

// allocate completes the record for everything that is wanted. What is
// recorded stays as it is.
func allocate(w Wanted, o Observed, a Allocation) (Allocation, []Problem) {
	n := newAllocator(w, o, a)
	var problems []Problem
	full := func(key, what, mend string) {
		problems = append(problems, Problem{key, "every " + what + " is in use", mend})
	}
	id := func(key string, kind Kind) string {
		id := n.id(kind)
		if id == "" {
			full(key, fmt.Sprintf("id of a %s", kind), "remove networks that are not needed")
		}
		return id
	}
	vni := func(key string, configured VNI, who string) VNI {
		v := n.vni(configured, who)
		if v == 0 {
			full(key, fmt.Sprintf("VNI from %d to %d", n.all.First, n.all.Last), "give a larger range in vni_first and vni_last")
		}
		return v
	}
	if w.ownController() && n.Controller == "" {
		n.Controller = id("controller", KindController)
	}
	for i, t := range w.Tenants {
		at := fmt.Sprintf("tenants[%d]", i)
		z, known := n.Zones[t.Name]
		if !known {
			z = ZoneRecord{ID: id(at, KindZone), Type: t.Zone.Type}
			if t.Zone.Type == EVPN {
				z.VRF = vni(at+".vrf", t.Zone.VRF, "tenant "+t.Name)
			}
			n.Zones[t.Name] = z
		}
		for j, v := range t.VNets {
			key := vnetKey(t.Name, v.Name)
			rec, known := n.VNets[key]
			if !known {
				at := fmt.Sprintf("%s.vnets[%d]", at, j)
				rec = VNetRecord{ID: id(at, KindVNet)}
				if z.Type.overlay() {
					rec.VNI = vni(at+".vni", v.VNI, "vnet "+key)
				}
			}
			for _, s := range v.Subnets {
				if !slices.Contains(rec.Subnets, s.Prefix) {
					rec.Subnets = append(rec.Subnets, s.Prefix)
				}
			}
			slices.SortFunc(rec.Subnets, netip.Prefix.Compare)
			n.VNets[key] = rec
		}
	}
	return n.Allocation, problems
}

// Name is what the object is called in the configuration: "alpha" for a
// tenant's zone, "alpha/main" for a vnet, with the network for a subnet. ""
// when it is not recorded, and for the controller.
func (a Allocation) Name(kind Kind, id string) string {
	for tenant, z := range a.Zones {
		if kind == KindZone && z.ID == id {
			return tenant
		}
	}
	for key, v := range a.VNets {
		if kind == KindVNet && v.ID == id {
			return key
		}
		for _, p := range v.Subnets {
			if kind == KindSubnet && subnetID(a.Zones[tenantOf(key)].ID, p) == id {
				return key + " " + p.String()
			}
		}
	}
	return ""
}

// Equal says whether two records say the same.
func (a Allocation) Equal(b Allocation) bool {
	return a.Instance == b.Instance && a.Controller == b.Controller && a.LastID == b.LastID && a.LastVNI == b.LastVNI &&
		maps.Equal(a.Zones, b.Zones) &&
		maps.EqualFunc(a.VNets, b.VNets, func(x, y VNetRecord) bool {
			return x.ID == y.ID && x.VNI == y.VNI && slices.Equal(x.Subnets, y.Subnets)
		})
}
