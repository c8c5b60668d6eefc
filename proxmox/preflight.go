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
	var out struct {
		Version string `json:"version"`
	}
	if err := c.get(ctx, "/version", nil, &out); err != nil {
		return Version{}, explain("ask version of", c.cfg.URL, err, false)
	}
	v := Version{Text: out.Version}
	parts := strings.SplitN(out.Version, ".", 3)
	var err error
	if v.Major, err = strconv.Atoi(parts[0]); err == nil && len(parts) > 1 {
		v.Minor, err = strconv.Atoi(parts[1])
	}
	if err != nil {
		return Version{}, refuse("ask version of", c.cfg.URL, orchestrator.ErrUnavailable, fmt.Sprintf("%q is no version", out.Version), "check that the url is a Proxmox VE API")
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

// Use is what savepoint shall be able to do, so that the privileges for it can
// be asked for.
type Use struct {
	Templates      []orchestrator.VMRef // to clone from
	Storages       []string             // for disks and saved memory
	ImportStorages []string             // for uploading template images; empty = templates are not built
	Bridges        []string             // plain bridges of sandboxes
	VNets          []string             // "zone/vnet"
	ManageSDN      bool                 // make zones and vnets
}

// Privilege is one right on one path. Any of AnyOf is enough.
type Privilege struct {
	Path  string
	AnyOf []string
	For   string // what it is needed for
}

func (p Privilege) String() string {
	return fmt.Sprintf("%s on %s (for %s)", strings.Join(p.AnyOf, " or "), p.Path, p.For)
}

// Privileges is the minimal role for a use on a release: nothing beyond what
// this program's calls need. PVE 9 has no VM.Monitor, PVE 8 no VM.GuestAgent.
func (c *Cluster) Privileges(v Version, use Use) []Privilege {
	var out []Privilege
	need := func(path, why string, names ...string) {
		for _, n := range names {
			out = append(out, Privilege{Path: path, AnyOf: strings.Split(n, "|"), For: why})
		}
	}
	pool := "/pool/" + c.cfg.Pool
	need(pool, "reading sandboxes", "VM.Audit")
	need(pool, "making and removing sandboxes", "VM.Allocate")
	need(pool, "configuring sandboxes", "VM.Config.Options", "VM.Config.Cloudinit|VM.Config.Network", "VM.Config.Network")
	need(pool, "starting and stopping sandboxes", "VM.PowerMgmt")
	need(pool, "snapshots and rollback", "VM.Snapshot")
	if v.Major >= 9 {
		need(pool, "reading ssh host keys", "VM.GuestAgent.FileRead|VM.GuestAgent.Unrestricted")
	} else {
		need(pool, "reading ssh host keys", "VM.Monitor")
	}
	if len(use.ImportStorages) > 0 {
		need(pool, "building templates", "VM.Config.Disk", "VM.Config.CPU", "VM.Config.Memory", "VM.Config.HWType", "VM.Config.CDROM")
	}
	for _, t := range use.Templates {
		need(fmt.Sprintf("/vms/%d", t.ID), "cloning the template", "VM.Clone", "VM.Audit")
	}
	for _, s := range use.Storages {
		need("/storage/"+s, "disks and saved memory", "Datastore.AllocateSpace", "Datastore.Audit")
	}
	for _, s := range use.ImportStorages {
		need("/storage/"+s, "uploading template images", "Datastore.AllocateTemplate", "Datastore.AllocateSpace", "Datastore.Audit")
	}
	for _, b := range use.Bridges {
		need("/sdn/zones/localnetwork/"+b, "attaching sandboxes to the bridge", "SDN.Use")
	}
	for _, n := range use.VNets {
		need("/sdn/zones/"+n, "attaching sandboxes to the vnet", "SDN.Use")
	}
	if use.ManageSDN {
		need("/sdn", "applying network changes", "SDN.Allocate", "SDN.Audit")
		need("/sdn/zones", "making zones", "SDN.Allocate", "SDN.Audit")
		need("/sdn/controllers", "making controllers", "SDN.Allocate", "SDN.Audit")
	}
	return out
}

// MissingPrivileges asks the cluster for our own permissions on each path that
// the use needs and returns what is missing, in the order of Privileges. A
// token with separated privileges and no rules of its own misses everything.
func (c *Cluster) MissingPrivileges(ctx context.Context, v Version, use Use) ([]Privilege, error) {
	have := map[string]map[string]flexInt{}
	var missing []Privilege
	for _, p := range c.Privileges(v, use) {
		granted, asked := have[p.Path]
		if !asked {
			var err error
			if granted, err = c.permissions(ctx, p.Path); err != nil {
				return nil, err
			}
			have[p.Path] = granted
		}
		if !slices.ContainsFunc(p.AnyOf, func(n string) bool { _, ok := granted[n]; return ok }) {
			missing = append(missing, p)
		}
	}
	return missing, nil
}

// permissions asks for our own rights on a path. The value says whether a right
// is inherited below the path; that the name is there says that it is granted.
func (c *Cluster) permissions(ctx context.Context, path string) (map[string]flexInt, error) {
	var out map[string]map[string]flexInt
	if err := c.get(ctx, "/access/permissions", url.Values{"path": {path}}, &out); err != nil {
		return nil, explain("ask own permissions on", path, err, false)
	}
	return out[path], nil
}
