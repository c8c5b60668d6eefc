package proxmox

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	pve "github.com/luthermonson/go-proxmox"

	"savepoint/orchestrator"
)

// Routes returns the routing table of an EVPN zone on a node, without those to
// the node's own guests, as the API of Proxmox VE 9 shows it. An older one does
// not: *orchestrator.UnsupportedError.
func (c *Cluster) Routes(ctx context.Context, node, zone string) ([]orchestrator.ZoneRoute, error) {
	const op = "read routes of"
	subject := fmt.Sprintf("zone %s on node %s", zone, node)
	if !nodeRE.MatchString(node) || zone == "" {
		return nil, refuse(op, subject, orchestrator.ErrDenied, "that is no node or no zone", "")
	}
	var list []struct {
		IP       string   `json:"ip"`
		Metric   flexInt  `json:"metric"`
		Protocol string   `json:"protocol"`
		NextHops []string `json:"nexthops"`
	}
	if err := c.get(ctx, nodePath(node)+"/sdn/zones/"+url.PathEscape(zone)+"/ip-vrf", nil, &list); err != nil {
		if notImplemented(err) {
			return nil, &orchestrator.UnsupportedError{
				What: op + " " + subject + ": this release of Proxmox VE does not show them",
				Mend: "set up savepoint-evpn on the nodes (see savepoint doctor --setup), or use Proxmox VE 9",
			}
		}
		return nil, explain(op, subject, err, false)
	}
	out := make([]orchestrator.ZoneRoute, 0, len(list))
	for _, r := range list {
		p, err := netip.ParsePrefix(r.IP)
		if err != nil {
			return nil, refuse(op, subject, orchestrator.ErrUnavailable, fmt.Sprintf("%q is no network", r.IP), "")
		}
		hops := slices.DeleteFunc(r.NextHops, func(h string) bool { return h == "" || h == "unreachable" || h == "blackhole" })
		out = append(out, orchestrator.ZoneRoute{Prefix: p, Protocol: strings.ToLower(r.Protocol), Metric: int(r.Metric), NextHops: hops})
	}
	return out, nil
}

// Member is a node as the cluster knows it.
type Member struct {
	Name    string
	Online  bool
	Address netip.Addr // the zero value: the cluster does not say
}

// Members lists the nodes with the addresses by which they know each other.
func (c *Cluster) Members(ctx context.Context) ([]Member, error) {
	var list []struct {
		Type   string  `json:"type"`
		Name   string  `json:"name"`
		IP     string  `json:"ip"`
		Online flexInt `json:"online"`
	}
	if err := c.get(ctx, "/cluster/status", nil, &list); err != nil {
		err = explain("list members of", c.cfg.URL, err, false)
		if errors.Is(err, orchestrator.ErrDenied) {
			err = fmt.Errorf("%w, or list the nodes in network.places", err)
		}
		return nil, err
	}
	var out []Member
	for _, e := range list {
		if e.Type == "node" {
			a, _ := netip.ParseAddr(e.IP)
			out = append(out, Member{Name: e.Name, Online: e.Online != 0, Address: a})
		}
	}
	slices.SortFunc(out, func(a, b Member) int { return strings.Compare(a.Name, b.Name) })
	return out, nil
}

// notImplemented says that the release has no such call.
func notImplemented(err error) bool {
	var api *pve.APIError
	return errors.As(err, &api) && api.StatusCode == http.StatusNotImplemented
}
