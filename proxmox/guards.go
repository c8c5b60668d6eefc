package proxmox

import (
	"context"
	"net/url"
	"slices"

	"savepoint/orchestrator"
)

// Guard is what else has its hands on a VM. Both disturb transactions: the HA
// manager starts, stops and moves VMs on its own, and replication takes
// snapshots of its own and holds locks.
type Guard struct {
	VM          orchestrator.VMID
	HA          string   // the state that the HA manager keeps it in, "" = not managed
	Replication []string // where it is replicated to
}

// Guards lists the VMs that HA manages or that are replicated, by id, among
// those that the token may see. Both questions are about the whole cluster.
func (c *Cluster) Guards(ctx context.Context) ([]Guard, error) {
	const op = "look for HA and replication on"
	var resources []struct {
		VMID    flexInt `json:"vmid"`
		HAState string  `json:"hastate"`
	}
	if err := c.get(ctx, "/cluster/resources", url.Values{"type": {"vm"}}, &resources); err != nil {
		return nil, explain(op, c.cfg.URL, err, false)
	}
	var jobs []struct {
		Guest  flexInt `json:"guest"`
		Target string  `json:"target"`
	}
	if err := c.get(ctx, "/cluster/replication", nil, &jobs); err != nil {
		return nil, explain(op, c.cfg.URL, err, false)
	}
	byID := map[orchestrator.VMID]*Guard{}
	guard := func(n flexInt) *Guard {
		id := orchestrator.VMID(n)
		if byID[id] == nil {
			byID[id] = &Guard{VM: id}
		}
		return byID[id]
	}
	for _, r := range resources {
		if r.HAState != "" {
			guard(r.VMID).HA = r.HAState
		}
	}
	for _, j := range jobs {
		g := guard(j.Guest)
		g.Replication = append(g.Replication, j.Target)
	}
	out := make([]Guard, 0, len(byID))
	for _, g := range byID {
		slices.Sort(g.Replication)
		out = append(out, *g)
	}
	slices.SortFunc(out, func(a, b Guard) int { return int(a.VM - b.VM) })
	return out, nil
}
