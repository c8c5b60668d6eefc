package network

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// cluster is a strict stand-in for the cluster's SDN: what the real one refuses
// it refuses, with the reason.
type cluster struct {
	running, pending map[Kind]map[string]Fields
	nodes            []Node
	attachments      []Attachment
	interfaces       []string
	others           []Object
	macs             int // that zones were given: each new one gets another
}

func newCluster(nodes ...string) *cluster {
	c := &cluster{running: map[Kind]map[string]Fields{}, pending: map[Kind]map[string]Fields{}}
	for _, k := range []Kind{KindController, KindZone, KindVNet, KindSubnet} {
		c.running[k], c.pending[k] = map[string]Fields{}, map[string]Fields{}
	}
	for _, n := range nodes {
		c.nodes = append(c.nodes, Node{Name: n, Online: true})
	}
	return c
}

// foreign puts an object of somebody else there, running.
func (c *cluster) foreign(k Kind, id string, f Fields) {
	c.running[k][id], c.pending[k][id] = maps.Clone(f), maps.Clone(f)
}

// observe is what Fabric.Observe would return.
func (c *cluster) observe() Observed {
	list := func(k Kind) []Object {
		var out []Object
		for id := range merged2(c.running[k], c.pending[k]) {
			r, p := c.running[k][id], c.pending[k][id]
			o := Object{Kind: k, ID: id, Running: maps.Clone(r), Pending: maps.Clone(p)}
			switch {
			case r == nil:
				o.State = New
			case p == nil:
				o.State = Deleted
			case !maps.Equal(r, p):
				o.State = Changed
			}
			out = append(out, o)
		}
		return out // in the order of a map, as the cluster does
	}
	return Observed{
		Controllers: list(KindController), Zones: list(KindZone), VNets: list(KindVNet), Subnets: list(KindSubnet),
		Others: c.others, Nodes: c.nodes, Attachments: c.attachments, Interfaces: c.interfaces,
	}
}

func merged2(a, b map[string]Fields) map[string]Fields {
	out := maps.Clone(a)
	maps.Copy(out, b)
	return out
}

var shortID = regexp.MustCompile(`^[a-zA-Z][a-zA-Z0-9]{0,6}[a-zA-Z0-9]$`)
var aliasText = regexp.MustCompile(`(?i)^[\(\)-_.\w\d\s]{0,256}$`)

// do makes one change to the pending configuration.
func (c *cluster) do(ch Change) error {
	have, exists := c.pending[ch.Kind][ch.ID]
	switch ch.Op {
	case OpApply:
		if len(ch.Fields)+len(ch.Unset) > 0 {
			return fmt.Errorf("%s %s: an apply with fields", ch.Kind, ch.ID)
		}
		return nil
	case OpDelete:
		if !exists {
			return fmt.Errorf("delete %s %s: does not exist", ch.Kind, ch.ID)
		}
		if user := c.userOf(ch.Kind, ch.ID); user != "" {
			return fmt.Errorf("delete %s %s: is used by %s", ch.Kind, ch.ID, user)
		}
		delete(c.pending[ch.Kind], ch.ID)
		return nil
	case OpCreate:
		if exists {
			return fmt.Errorf("create %s %s: already defined", ch.Kind, ch.ID)
		}
		have = Fields{}
		if ch.Kind == KindZone && ch.Fields["type"] == "evpn" {
			c.macs++
			have["mac"] = fmt.Sprintf("BC:24:11:00:00:%02X", c.macs)
		}
	case OpUpdate:
		if !exists {
			return fmt.Errorf("update %s %s: does not exist", ch.Kind, ch.ID)
		}
		if _, typed := ch.Fields["type"]; typed || len(ch.Fields)+len(ch.Unset) == 0 {
			return fmt.Errorf("update %s %s: a type, or nothing", ch.Kind, ch.ID)
		}
	default:
		return fmt.Errorf("operation %q", ch.Op)
	}
	next := maps.Clone(have)
	maps.Copy(next, ch.Fields)
	for _, key := range ch.Unset {
		delete(next, key)
	}
	if why := c.invalid(ch.Kind, ch.ID, next); why != "" {
		return fmt.Errorf("%s %s %s: %s", ch.Op, ch.Kind, ch.ID, why)
	}
	if ch.Kind == KindSubnet && ch.Parent != next["vnet"] {
		return fmt.Errorf("subnet %s: parent %q, vnet %q", ch.ID, ch.Parent, next["vnet"])
	}
	c.pending[ch.Kind][ch.ID] = next
	return nil
}

// userOf is an object that needs the given one.
func (c *cluster) userOf(k Kind, id string) string {
	users := map[Kind]struct {
		kind Kind
		key  string
	}{KindController: {KindZone, "controller"}, KindZone: {KindVNet, "zone"}, KindVNet: {KindSubnet, "vnet"}}[k]
	for user, f := range c.pending[users.kind] {
		if f[users.key] == id {
			return user
		}
	}
	return ""
}

func (c *cluster) invalid(k Kind, id string, f Fields) string {
	switch k {
	case KindController:
		for other, o := range c.pending[k] {
			if other != id && o["type"] == "evpn" && f["type"] == "evpn" {
				return "only 1 global evpn controller can be defined"
			}
		}
		if f["asn"] == "" || f["peers"] == "" {
			return "missing value for required option"
		}
	case KindZone:
		if !shortID.MatchString(id) {
			return "illegal id"
		}
		if f["type"] == "evpn" && (c.pending[KindController][f["controller"]] == nil || f["vrf-vxlan"] == "") {
			return "controller don't exist, or no vrf-vxlan"
		}
		for other, o := range c.pending[k] {
			if other != id && f["vrf-vxlan"] != "" && o["vrf-vxlan"] == f["vrf-vxlan"] {
				return "vrf-vxlan is already declared in " + other
			}
		}
		if f["type"] == "vxlan" && f["peers"] == "" {
			return "missing peers"
		}
	case KindVNet:
		zone := c.pending[KindZone][f["zone"]]
		if !shortID.MatchString(id) || !aliasText.MatchString(f["alias"]) {
			return "illegal id or alias"
		}
		if zone == nil {
			return "cannot lookup undefined type!"
		}
		if overlay := ZoneType(zone["type"]).overlay(); overlay != (f["tag"] != "") {
			return "missing tag, or not allowed"
		}
		for other, o := range c.pending[k] {
			if other != id && f["tag"] != "" && o["tag"] == f["tag"] {
				return "tag already exists in " + other
			}
		}
	case KindSubnet:
		if c.pending[KindVNet][f["vnet"]] == nil {
			return "vnet does not exist"
		}
	}
	return ""
}

// apply commits everyone's edits, and the nodes that are online follow.
func (c *cluster) apply() {
	for k := range c.running {
		c.running[k] = map[string]Fields{}
		for id, f := range c.pending[k] {
			c.running[k][id] = maps.Clone(f)
		}
	}
	for i := range c.nodes {
		if c.nodes[i].Online {
			c.nodes[i].Zones = map[string]string{}
			for id, z := range c.running[KindZone] {
				if z["nodes"] == "" || slices.Contains(strings.Split(z["nodes"], ","), c.nodes[i].Name) {
					c.nodes[i].Zones[id] = Available
				}
			}
		}
	}
}

// carryOut makes the first n changes, and applies when they are all made.
func (c *cluster) carryOut(t *testing.T, p Plan, n int) {
	t.Helper()
	for i, ch := range p.Changes {
		if i == n {
			return
		}
		if err := c.do(ch); err != nil {
			t.Fatalf("change %d of %d, %s %s %s: %v", i, len(p.Changes), ch.Op, ch.Kind, ch.ID, err)
		}
	}
	c.apply()
}

// dump is everything but what is ours, for comparing.
func (c *cluster) dump(skip func(Kind, string) bool) string {
	var out []string
	for name, side := range map[string]map[Kind]map[string]Fields{"running": c.running, "pending": c.pending} {
		for k, objects := range side {
			for id, f := range objects {
				if !skip(k, id) {
					out = append(out, fmt.Sprint(name, k, id, f))
				}
			}
		}
	}
	slices.Sort(out)
	return strings.Join(out, "\n")
}
