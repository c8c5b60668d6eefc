package pve

import (
	"maps"
	"slices"
	"strings"
)

// sdnView is one way to look at the configuration.
type sdnView int

const (
	viewWritten sdnView = iota // as it would be applied
	viewPending                // as it runs, and what an apply would change
	viewRunning                // as it was applied last
)

// view is which one the call asks for.
func (c *call) view() sdnView {
	switch {
	case c.p.Bool("pending"):
		return viewPending
	case c.p.Bool("running"):
		return viewRunning
	}
	return viewWritten
}

// items are the objects of a kind as an answer shows them, by id.
func (c *call) items(k sdnKind) map[string]map[string]any {
	state := c.s.sdnNow()
	out := map[string]map[string]any{}
	switch c.view() {
	case viewPending:
		out = pendingItems(k, state.Running[k.key], state.Config[k.key])
	case viewRunning:
		for id, o := range state.Running[k.key] {
			out[id] = plainItem(o)
		}
	default:
		digest := state.Config.digest(k.key)
		for id, o := range state.Config[k.key] {
			out[id] = plainItem(o)
			out[id]["digest"] = digest
		}
	}
	for id, item := range out {
		item[k.id] = id
		if _, ok := item["digest"]; !ok {
			item["digest"] = nil
		}
		if k.key == sdnSubnets {
			addSubnetParts(item, id)
		}
	}
	return out
}

func plainItem(o options) map[string]any {
	out := map[string]any{}
	for name, text := range o {
		out[name] = sdnValue(name, text)
	}
	return out
}

// pendingItems shows every object as it runs with a state and what will
// change; an option that will go is the text "deleted".
func pendingItems(k sdnKind, running, config map[string]options) map[string]map[string]any {
	out := map[string]map[string]any{}
	all := maps.Clone(running)
	if all == nil {
		all = map[string]options{}
	}
	maps.Copy(all, config)
	for id := range all {
		run, isRunning := running[id]
		conf, isWritten := config[id]
		item, changes := plainItem(run), map[string]any{}
		state := ""
		switch {
		case !isWritten:
			state = "deleted"
		case !isRunning:
			state = "new"
		case !maps.Equal(run, conf):
			state = "changed"
		}
		for name, text := range conf {
			switch old, had := run[name]; {
			case name == "type", k.key == sdnSubnets && name == "vnet":
				item[name] = text
			case !had || old != text:
				changes[name] = sdnValue(name, text)
			}
		}
		for name := range run {
			if _, kept := conf[name]; isWritten && !kept {
				changes[name] = "deleted"
			}
		}
		if state != "" {
			item["state"], item["pending"] = state, changes
		}
		out[id] = item
	}
	return out
}

// addSubnetParts adds what a subnet's id says.
func addSubnetParts(item map[string]any, id string) {
	zone, _, _ := strings.Cut(id, "-")
	cidr := cidrOf(id)
	network, mask, _ := strings.Cut(cidr, "/")
	item["id"], item["zone"], item["cidr"], item["network"], item["mask"] = id, zone, cidr, network, mask
	if _, ok := item["dhcp-range"]; !ok {
		item["dhcp-range"] = []map[string]string{}
	}
}

// listSDN answers the objects of a kind that the caller may see.
func (c *call) listSDN(kind string, want func(id string, item map[string]any) bool) []map[string]any {
	all := c.items(c.s.sdnKinds[kind])
	out := []map[string]any{}
	for _, id := range slices.Sorted(maps.Keys(all)) {
		if want(id, all[id]) {
			out = append(out, all[id])
		}
	}
	return out
}

// readSDN answers one object.
func (c *call) readSDN(kind string) (map[string]any, error) {
	k := c.s.sdnKinds[kind]
	id := c.p.Str(k.id)
	item, ok := c.items(k)[id]
	if !ok {
		return nil, k.missing(id)
	}
	return item, nil
}

// effective is an option of an item as it will be.
func effective(item map[string]any, name string) string {
	if changes, ok := item["pending"].(map[string]any); ok {
		if s, ok := changes[name].(string); ok {
			return s
		}
	}
	s, _ := item[name].(string)
	return s
}
