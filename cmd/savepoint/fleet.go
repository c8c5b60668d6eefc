package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"savepoint/configs"
	"savepoint/orchestrator"
	"savepoint/orchestrator/provision"
	"savepoint/proxmox"
)

// fleet shows the provisioner the nodes of the cluster.
type fleet struct{ c *proxmox.Cluster }

var _ provision.Fleet = fleet{}

func (f fleet) Nodes(ctx context.Context, template string) ([]provision.Node, error) {
	sites, err := f.c.Sites(ctx, template)
	if err != nil {
		return nil, err
	}
	return placesOf(sites), nil
}

func placesOf(sites []proxmox.Site) []provision.Node {
	out := make([]provision.Node, len(sites))
	for i, s := range sites {
		n := provision.Node{
			Name: s.Name, Online: s.Online, Maintenance: s.Maintenance, Shared: s.Shared,
			Memory: s.MemoryTotal, Free: s.MemoryTotal - s.MemoryUsed,
		}
		if s.Unseen != nil {
			n.Unseen = s.Unseen.Error()
		}
		for _, t := range s.Templates {
			n.Templates = append(n.Templates, provision.Template{VM: t.VM, Memory: t.Memory, Storages: t.Storages})
		}
		out[i] = n
	}
	return out
}

// limits are those of the configuration.
func limits(c configs.Cluster) provision.Limits {
	return provision.Limits{Nodes: c.Nodes, Drained: c.DrainedNodes, PerNode: c.MaxPerNode, Reserve: int64(c.MemoryReserve)}
}

// node is where a template is built: the first node, in the order of the
// configuration, that is open for sandboxes.
func (s *session) node(ctx context.Context) (string, error) {
	nodes, err := s.cluster.Nodes(ctx)
	if err != nil {
		return "", err
	}
	l := limits(s.cfg.Cluster)
	slices.SortStableFunc(nodes, func(a, b proxmox.Node) int { return slices.Index(l.Nodes, a.Name) - slices.Index(l.Nodes, b.Name) })
	var closed []string
	for _, n := range nodes {
		why := l.Closed(provision.Node{Name: n.Name, Online: n.Online})
		if why == "" {
			return n.Name, nil
		}
		closed = append(closed, "node "+n.Name+" "+why)
	}
	return "", fmt.Errorf("find a node: none can be used: %s: %w", strings.Join(closed, "; "), orchestrator.ErrUnavailable)
}

// askCluster bounds the question of lists that can do without its answer.
const askCluster = 5 * time.Second

// reachability notes for each sandbox whether its node is out of reach. A cluster
// that does not answer is said, and the rest is shown as the journal has it.
func (a *app) reachability(ctx context.Context, views []sandboxView) {
	living := func(v sandboxView) bool { return v.State != orchestrator.SandboxDestroyed }
	if !slices.ContainsFunc(views, living) {
		return
	}
	cfg, err := a.config(a.configFile, false)
	if err != nil || cfg.Cluster.URL == "" {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, askCluster)
	defer cancel()
	online, err := a.nodesOnline(ctx, cfg)
	if err != nil {
		fmt.Fprintf(a.err, "savepoint: whether the nodes are there is not known: %s\n", printable(err.Error()))
		return
	}
	for i, v := range views {
		up, known := online[v.VM.Node]
		switch {
		case !living(v) || up:
		case known:
			views[i].Unavailable = "node " + v.VM.Node + " is offline"
		default:
			views[i].Unavailable = "node " + v.VM.Node + " is not in the cluster any more"
		}
	}
}

func (a *app) nodesOnline(ctx context.Context, cfg configs.Config) (map[string]bool, error) {
	c, err := proxmox.Open(clusterConfig(cfg, "list"))
	if err != nil {
		return nil, err
	}
	defer c.Close()
	nodes, err := c.Nodes(ctx)
	if err != nil {
		return nil, err
	}
	out := map[string]bool{}
	for _, n := range nodes {
		out[n.Name] = n.Online
	}
	return out, nil
}
