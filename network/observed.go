package network

import (
	"maps"
	"slices"
	"strings"
)

// Kind is the kind of an SDN object.
type Kind string

// The kinds that are planned, in the order in which they are created.
const (
	KindController Kind = "controller"
	KindZone       Kind = "zone"
	KindVNet       Kind = "vnet"
	KindSubnet     Kind = "subnet"
)

// rank orders kinds for creation.
func (k Kind) rank() int {
	return slices.Index([]Kind{KindController, KindZone, KindVNet, KindSubnet}, k)
}

// State is what the cluster says about an object's pending edits.
type State string

// The states. Settled is that of an object without pending edits.
const (
	Settled State = ""
	New     State = "new"
	Changed State = "changed"
	Deleted State = "deleted"
)

// Fields are an object's options by their names in the cluster's API, as text:
// numbers in decimal, booleans as 0 and 1, lists joined by commas. The keys
// "digest", "state" and "pending" do not belong here.
type Fields map[string]string

// lists are options whose order has no meaning (F105).
var lists = []string{"peers", "nodes", "exitnodes"}

// value is an option in the one form in which two of them compare. An option
// that is not set, one that is empty and a switch that is off are the same.
func (f Fields) value(key string) string {
	v := f[key]
	if slices.Contains(lists, key) {
		parts := strings.FieldsFunc(v, func(r rune) bool { return r == ',' || r == ' ' || r == ';' })
		slices.Sort(parts)
		return strings.Join(slices.Compact(parts), ",")
	}
	if v == "0" {
		return ""
	}
	return v
}

// Object is one SDN object in its two states. Running is what the nodes were
// told last, nil when they do not know it. Pending is what they will be told by
// the next apply, nil when that removes it. Both hold the type of zones and
// controllers, the zone of vnets, and the vnet of subnets.
type Object struct {
	Kind    Kind
	ID      string
	State   State
	Running Fields
	Pending Fields
}

// NewObject puts an object together from what the cluster reports: the running
// options, and the edits on top of them. An edit with the text "deleted" takes
// its option away, whatever the option's type (F103). A new object has no
// running options: those given belong to its edits.
func NewObject(kind Kind, id string, state State, running, edits Fields) Object {
	o := Object{Kind: kind, ID: id, State: state}
	if state != New {
		o.Running = maps.Clone(running)
		if o.Running == nil {
			o.Running = Fields{}
		}
	}
	if state == Deleted {
		return o
	}
	o.Pending = Fields{}
	maps.Copy(o.Pending, running)
	for key, v := range edits {
		if v == "deleted" {
			delete(o.Pending, key)
		} else {
			o.Pending[key] = v
		}
	}
	return o
}

// sides are the states in which the object exists.
func (o Object) sides() []Fields {
	var out []Fields
	for _, s := range []Fields{o.Running, o.Pending} {
		if s != nil {
			out = append(out, s)
		}
	}
	return out
}

// has says whether an option has the value on any side.
func (o Object) has(key, value string) bool {
	return slices.ContainsFunc(o.sides(), func(f Fields) bool { return f.value(key) == value })
}

// Available is the status of a zone on a node that carries it.
const Available = "available"

// Node is one node of the cluster.
type Node struct {
	Name   string
	Online bool
	Zones  map[string]string // zone id → status: "available", "pending", "error"
}

// Attachment is a guest's network card on a vnet. The configuration of a
// stopped guest, of a template and of a snapshot counts too: it becomes the
// running one by a start or a rollback.
type Attachment struct {
	VM   string // as people know it: "vm 104 on pve1"
	VNet string // id
}

// Observed is what the cluster has.
type Observed struct {
	Controllers, Zones, VNets, Subnets []Object
	// Others are objects of kinds that are not planned (fabrics, IPAM, DNS):
	// an apply commits their pending edits too.
	Others      []Object
	Nodes       []Node
	Attachments []Attachment
	// Hidden says why there may be guests that Attachments does not have, and what
	// to do; "" when it has all of them.
	Hidden string
	// Interfaces are the names of the nodes' network interfaces. A vnet is a
	// bridge, and the cluster does not mind a name that is in use.
	Interfaces []string
}

// planned returns the objects of the planned kinds.
func (o Observed) planned() []Object {
	return slices.Concat(o.Controllers, o.Zones, o.VNets, o.Subnets)
}

// users are the guests on a vnet, sorted.
func (o Observed) users(vnet string) []string {
	var out []string
	for _, a := range o.Attachments {
		if a.VNet == vnet {
			out = append(out, a.VM)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// zoneType is the type of a zone that exists on any side.
func (o Observed) zoneType(id string) ZoneType {
	for _, z := range o.Zones {
		for _, s := range z.sides() {
			if z.ID == id {
				return ZoneType(s["type"])
			}
		}
	}
	return ""
}

// Lag is a node that does not carry a zone as it should.
type Lag struct {
	Node, Zone string
	Online     bool
	Status     string // what the node says; "" when it does not know the zone
}

// Lagging returns where a running zone of ours is not available: after an
// apply, wait until there is none. A node that is offline stays in it.
func Lagging(o Observed, a Allocation) []Lag {
	var out []Lag
	for _, rec := range a.Zones {
		for _, z := range o.Zones {
			if z.ID != rec.ID || z.Running == nil || z.Pending == nil {
				continue
			}
			nodes := z.Running.value("nodes")
			for _, n := range o.Nodes {
				here := nodes == "" || slices.Contains(strings.Split(nodes, ","), n.Name)
				if status := n.Zones[z.ID]; here && (!n.Online || status != Available) {
					out = append(out, Lag{n.Name, z.ID, n.Online, status})
				}
			}
		}
	}
	slices.SortFunc(out, func(a, b Lag) int { return strings.Compare(a.Node+" "+a.Zone, b.Node+" "+b.Zone) })
	return out
}
