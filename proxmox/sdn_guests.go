package proxmox

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"

	pve "github.com/luthermonson/go-proxmox"
	"golang.org/x/sync/errgroup"

	"savepoint/network"
	"savepoint/orchestrator"
)

// guest is a VM or a container of the cluster.
type guest struct {
	Type string  `json:"type"` // "qemu" or "lxc"
	VMID flexInt `json:"vmid"`
	Node string  `json:"node"`
}

func (g guest) path() string {
	return fmt.Sprintf("%s/%s/%d", nodePath(g.Node), url.PathEscape(g.Type), g.VMID)
}

func (g guest) String() string {
	what := "vm"
	if g.Type == "lxc" {
		what = "container"
	}
	return fmt.Sprintf("%s %d on %s", what, g.VMID, g.Node)
}

// guestsAtOnce bounds the questions that are under way together.
const guestsAtOnce = 8

// attachments reads the network cards of every guest that the token may see:
// as they are, as they will be after the next start, and as they are in every
// snapshot. A guest that cannot be asked counts as one that uses every vnet.
func (s *SDN) attachments(ctx context.Context, o network.Observed, zones []string) ([]network.Attachment, error) {
	const op = "look at the network cards of"
	var list []guest
	if err := s.c.get(ctx, "/cluster/resources", url.Values{"type": {"vm"}}, &list); err != nil {
		return nil, explain(op, "all guests", err, false)
	}
	var mu sync.Mutex
	var out []network.Attachment
	add := func(who string, vnets []string) {
		mu.Lock()
		defer mu.Unlock()
		for _, v := range vnets {
			out = append(out, network.Attachment{VM: who, VNet: v})
		}
	}
	all := make([]string, len(o.VNets))
	for i, v := range o.VNets {
		all[i] = v.ID
	}
	names := map[flexInt]string{}
	online := map[string]bool{}
	for _, n := range o.Nodes {
		online[n.Name] = n.Online
	}
	work, gctx := errgroup.WithContext(ctx)
	work.SetLimit(guestsAtOnce)
	for _, g := range list {
		names[g.VMID] = g.String()
		if !online[g.Node] {
			add(g.String()+", which cannot be asked now,", all)
			continue
		}
		work.Go(func() error {
			vnets, err := s.cards(gctx, g)
			switch {
			case errors.Is(err, orchestrator.ErrNotFound): // gone since the list
			case err != nil && errors.As(err, new(*orchestrator.NodeError)) && gctx.Err() == nil:
				add(g.String()+", which cannot be asked now,", all)
			case err != nil:
				return err
			}
			add(g.String(), vnets)
			return nil
		})
	}
	if err := work.Wait(); err != nil {
		return nil, err
	}
	ports, err := s.ports(ctx, o, zones, names)
	if err != nil {
		return nil, err
	}
	// A guest that was read tells more than its port does.
	for _, p := range ports {
		if !slices.ContainsFunc(out, func(a network.Attachment) bool { return a == p }) {
			out = append(out, p)
		}
	}
	return out, nil
}

// cards are the bridges of a guest in every form of its configuration.
func (s *SDN) cards(ctx context.Context, g guest) ([]string, error) {
	const op = "look at the network cards of"
	var now []struct {
		Key            string
		Value, Pending any
	}
	if err := s.c.get(ctx, g.path()+"/pending", nil, &now); err != nil {
		return nil, explain(op, g.String(), err, false)
	}
	var out []string
	for _, e := range now {
		out = append(out, bridgeOf(e.Key, flat(e.Value)), bridgeOf(e.Key, flat(e.Pending)))
	}
	var snaps []struct{ Name string }
	if err := s.c.get(ctx, g.path()+"/snapshot", nil, &snaps); err != nil {
		return nil, explain(op, g.String(), err, false)
	}
	for _, sn := range snaps {
		if sn.Name == "current" {
			continue
		}
		var then vmConfig
		err := s.c.get(ctx, g.path()+"/config", url.Values{"snapshot": {sn.Name}}, &then)
		if err != nil {
			err = explain(op, g.String()+", snapshot "+sn.Name, err, false)
			if errors.Is(err, orchestrator.ErrNotFound) {
				continue // deleted since the list
			}
			return nil, err
		}
		for key := range then {
			out = append(out, bridgeOf(key, then.text(key)))
		}
	}
	slices.Sort(out)
	return slices.DeleteFunc(slices.Compact(out), func(b string) bool { return b == "" }), nil
}

// bridgeOf is the bridge of an option that is a network card, "" for others.
func bridgeOf(key, value string) string {
	if !strings.HasPrefix(key, "net") || strings.Trim(key[3:], "0123456789") != "" {
		return ""
	}
	for part := range strings.SplitSeq(value, ",") {
		if b, ok := strings.CutPrefix(part, "bridge="); ok {
			return b
		}
	}
	return ""
}

// ports are the running guests on the bridges of the zones' vnets, which also
// shows those that the token may not see: names has the others. PVE 8 does not
// tell.
func (s *SDN) ports(ctx context.Context, o network.Observed, zones []string, names map[flexInt]string) ([]network.Attachment, error) {
	if has, err := s.modern(ctx); err != nil || !has {
		return nil, err
	}
	var out []network.Attachment
	for _, n := range o.Nodes {
		for zone := range n.Zones {
			if !slices.Contains(zones, zone) {
				continue // somebody else's, which may not be shown to us
			}
			var bridges []struct {
				Name  string
				Ports []struct{ VMID flexInt }
			}
			err := s.c.get(ctx, nodePath(n.Name)+"/sdn/zones/"+url.PathEscape(zone)+"/bridges", nil, &bridges)
			var api *pve.APIError
			if errors.As(err, &api) && api.StatusCode == http.StatusNotImplemented {
				return nil, nil
			}
			if err != nil {
				return nil, explain("look at the bridges of", "zone "+zone+" on node "+n.Name, err, false)
			}
			for _, b := range bridges {
				for _, p := range b.Ports {
					if p.VMID == 0 {
						continue
					}
					name := guest{Type: "qemu", VMID: p.VMID, Node: n.Name}.String()
					if known := names[p.VMID]; known != "" {
						name = known
					}
					out = append(out, network.Attachment{VM: name, VNet: b.Name})
				}
			}
		}
	}
	return out, nil
}
