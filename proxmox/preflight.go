package proxmox

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"savepoint/orchestrator"
)

// Version is the release of Proxmox VE that the entry node runs.
type Version struct {
	Major, Minor int
	Text         string // "9.1.2"
}

// Supported reports whether this release is one savepoint knows: 8.4 or 9.
func (v Version) Supported() bool { return v.Major == 9 || v.Major == 8 && v.Minor >= 4 }

// Version asks for the release. It is the cheapest authenticated call, so its
// error tells whether the URL, the CA and the credentials are right.
func (c *Cluster) Version(ctx context.Context) (Version, error) {
	return c.versionAt(ctx, "/version", c.cfg.URL)
}

func (c *Cluster) versionAt(ctx context.Context, path, who string) (Version, error) {
	const op = "ask version of"
	var out struct {
		Version string `json:"version"`
	}
	if err := c.get(ctx, path, nil, &out); err != nil {
		return Version{}, explain(op, who, err, false)
	}
	v := Version{Text: out.Version}
	parts := strings.SplitN(out.Version, ".", 3)
	var err error
	if v.Major, err = strconv.Atoi(parts[0]); err == nil && len(parts) > 1 {
		v.Minor, err = strconv.Atoi(parts[1])
	}
	if err != nil {
		return Version{}, refuse(op, who, orchestrator.ErrUnavailable, fmt.Sprintf("%q is no version", out.Version), "check that the url is a Proxmox VE API")
	}
	return v, nil
}

// Node is one host of the cluster.
type Node struct {
	Name        string
	Online      bool
	Cores       int
	MemoryTotal int64 // bytes
	MemoryUsed  int64 // bytes
}

// Nodes lists the cluster's nodes by name.
func (c *Cluster) Nodes(ctx context.Context) ([]Node, error) {
	var list []struct {
		Node   string  `json:"node"`
		Status string  `json:"status"`
		MaxCPU flexInt `json:"maxcpu"`
		MaxMem flexInt `json:"maxmem"`
		Mem    flexInt `json:"mem"`
	}
	if err := c.get(ctx, "/nodes", nil, &list); err != nil {
		return nil, explain("list nodes of", c.cfg.URL, err, false)
	}
	out := make([]Node, 0, len(list))
	for _, n := range list {
		out = append(out, Node{Name: n.Node, Online: n.Status == "online", Cores: int(n.MaxCPU), MemoryTotal: int64(n.MaxMem), MemoryUsed: int64(n.Mem)})
	}
	slices.SortFunc(out, func(a, b Node) int { return cmp.Compare(a.Name, b.Name) })
	return out, nil
}

// Bridges lists the bridges and vnets of a node that the token may see.
func (c *Cluster) Bridges(ctx context.Context, node string) ([]string, error) {
	const op = "list bridges of"
	if !nodeRE.MatchString(node) {
		return nil, refuse(op, "node "+node, orchestrator.ErrDenied, "that is no node name", "")
	}
	var list []struct {
		Iface string `json:"iface"`
	}
	if err := c.get(ctx, nodePath(node)+"/network", url.Values{"type": {"any_bridge"}}, &list); err != nil {
		return nil, explain(op, "node "+node, err, false)
	}
	out := make([]string, 0, len(list))
	for _, n := range list {
		out = append(out, n.Iface)
	}
	slices.Sort(out)
	return out, nil
}

// usableNodes returns the nodes that are online and, if nodes are configured,
// among those.
func (c *Cluster) usableNodes(ctx context.Context) ([]string, error) {
	list, err := c.Nodes(ctx)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, n := range list {
		if n.Online && (len(c.cfg.Nodes) == 0 || slices.Contains(c.cfg.Nodes, n.Name)) {
			out = append(out, n.Name)
		}
	}
	return out, nil
}
