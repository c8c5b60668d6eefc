package proxmox

import (
	"cmp"
	"context"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"savepoint/orchestrator"
)

// Site is one node as a place for sandboxes.
type Site struct {
	Node
	// Maintenance: the HA manager keeps guests off the node. It is false also
	// where the token may not ask.
	Maintenance bool
	Unseen      error    // why the templates of a node that is online are not known
	Shared      []string // storages that are shared and active on it
	Templates   []Source
}

// Source is a finished template with what a clone of it takes.
type Source struct {
	Template
	Memory   int64    // bytes
	Storages []string // of all its volumes: drives for cloud-init and others included
}

// askNode bounds what one node is asked for: one that hangs keeps no other.
const askNode = 15 * time.Second

// Sites lists all nodes by name, with the finished templates of that name on
// each, the newest first. A node that is offline or does not answer is listed all
// the same.
func (c *Cluster) Sites(ctx context.Context, template string) ([]Site, error) {
	nodes, err := c.Nodes(ctx)
	if err != nil {
		return nil, err
	}
	out := make([]Site, len(nodes))
	var wg sync.WaitGroup
	for i, n := range nodes {
		out[i].Node = n
		if !n.Online {
			continue
		}
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, askNode)
			defer cancel()
			out[i].Templates, out[i].Unseen = c.sourcesOn(ctx, n.Name, template)
		})
	}
	maintained := c.maintained(ctx)
	shared := map[string][]string{}
	if len(nodes) > 1 {
		shared = c.sharedStorages(ctx)
	}
	wg.Wait()
	if err := ctx.Err(); err != nil {
		return nil, explain("list nodes of", c.cfg.URL, err, false)
	}
	for i := range out {
		out[i].Maintenance = slices.Contains(maintained, out[i].Name)
		out[i].Shared = shared[out[i].Name]
	}
	return out, nil
}

// sourcesOn reads the templates of that name on a node.
func (c *Cluster) sourcesOn(ctx context.Context, node, name string) ([]Source, error) {
	const op = "list templates of"
	var list []struct {
		VMID flexInt `json:"vmid"`
		Name string  `json:"name"`
	}
	if err := c.get(ctx, nodePath(node)+"/qemu", nil, &list); err != nil {
		return nil, explain(op, "node "+node, err, false)
	}
	var out []Source
	for _, vm := range list {
		if vm.Name != name {
			continue
		}
		ref := orchestrator.VMRef{Node: node, ID: orchestrator.VMID(vm.VMID)}
		conf, err := c.config(ctx, op, ref)
		if vmMissing(err) {
			continue // gone since the list
		}
		if err != nil {
			return nil, err
		}
		if t, ok := c.asTemplate(ref, conf); ok && t.Ready {
			out = append(out, Source{Template: t, Memory: conf.memory(), Storages: conf.storages()})
		}
	}
	// The newest first: one of an older recipe may still be there.
	slices.SortFunc(out, func(a, b Source) int {
		return cmp.Or(b.Created.Compare(a.Created), cmp.Compare(b.VM.ID, a.VM.ID))
	})
	return out, nil
}

// memory is what the VM has at most, in bytes: "512" or "current=512", in MiB.
func (v vmConfig) memory() int64 {
	for part := range strings.SplitSeq(v.text("memory"), ",") {
		if n, err := strconv.ParseInt(strings.TrimPrefix(part, "current="), 10, 64); err == nil {
			return n << 20
		}
	}
	return 512 << 20 // the cluster's default
}

// storages lists where the VM has volumes, also those that no snapshot covers:
// the cluster clones to another node only if all of them are shared.
func (v vmConfig) storages() []string {
	var out []string
	for name := range v {
		if !diskSlotRE.MatchString(name) {
			continue
		}
		volume, _, _ := strings.Cut(v.text(name), ",")
		if storage, _, ok := strings.Cut(strings.TrimPrefix(volume, "file="), ":"); ok {
			out = append(out, storage)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// sharedStorages lists the active shared storages of each node. Without an
// answer there are none: then a template serves its own node alone.
func (c *Cluster) sharedStorages(ctx context.Context) map[string][]string {
	var list []struct {
		Type    string  `json:"type"`
		Storage string  `json:"storage"`
		Node    string  `json:"node"`
		Shared  flexInt `json:"shared"`
		Status  string  `json:"status"`
	}
	out := map[string][]string{}
	if err := c.get(ctx, "/cluster/resources", url.Values{"type": {"storage"}}, &list); err != nil {
		c.log.Warn().Err(err).Msg("which storages are shared cannot be asked")
		return out
	}
	for _, s := range list {
		if s.Type == "storage" && s.Shared != 0 && s.Status == "available" {
			out[s.Node] = append(out[s.Node], s.Storage)
		}
	}
	for _, names := range out {
		slices.Sort(names)
	}
	return out
}

// The HA manager writes the state of a node's local manager for people:
// "pve2 (maintenance mode, Tue Mar  4 10:11:12 2025)".
var maintenanceRE = regexp.MustCompile(`\((?:maintenance mode|maintenance)\b`)

// maintained lists the nodes that the HA manager has in maintenance. Only who
// may audit the whole cluster can ask; for others no node is.
func (c *Cluster) maintained(ctx context.Context) []string {
	var list []struct {
		Type   string `json:"type"`
		Node   string `json:"node"`
		Status string `json:"status"`
	}
	if err := c.get(ctx, "/cluster/ha/status/current", nil, &list); err != nil {
		c.log.Debug().Err(err).Msg("whether nodes are in maintenance cannot be asked")
		return nil
	}
	var out []string
	for _, e := range list {
		if e.Type == "lrm" && maintenanceRE.MatchString(e.Status) {
			out = append(out, e.Node)
		}
	}
	return out
}
