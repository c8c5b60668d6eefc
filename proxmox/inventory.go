package proxmox

import (
	"context"
	"errors"
	"net/url"
	"slices"
	"strings"

	"savepoint/orchestrator"
)

// Found is one VM that may be savepoint's, for whoever looks for what is left.
type Found struct {
	VM       orchestrator.VMRef
	Name     string
	Lock     string
	Running  bool
	Template bool
	// Ours: tags and description say that it belongs to this instance. A clone
	// whose call did not come to its end carries the description alone.
	Ours     bool
	HalfMade bool
	Building bool                   // a template of ours whose build did not come to its end
	Sandbox  orchestrator.SandboxID // of Ours; "" for a template
	// Instance is who made it, as its description says, ours or another.
	Instance string
	// Saved is the volume of memory that a suspended VM resumes from, "" else.
	Saved string
}

// Inventory reads every VM that may be ours: those with our tag, those in the
// range of ids, and those that a clone or create call has not finished. Nodes
// that could not be asked are returned as unseen: what is on them is not known.
func (c *Cluster) Inventory(ctx context.Context, first, last orchestrator.VMID) (found []Found, unseen []string, err error) {
	nodes, err := c.Nodes(ctx)
	if err != nil {
		return nil, nil, err
	}
	for _, n := range nodes {
		if !n.Online {
			unseen = append(unseen, n.Name)
			continue
		}
		on, err := c.inventoryOf(ctx, n.Name, first, last)
		if ctx.Err() != nil {
			return nil, nil, err
		}
		if err != nil {
			c.log.Warn().Err(err).Str("node", n.Name).Msg("the node's VMs cannot be listed")
			unseen = append(unseen, n.Name)
			continue
		}
		found = append(found, on...)
	}
	return found, unseen, nil
}

func (c *Cluster) inventoryOf(ctx context.Context, node string, first, last orchestrator.VMID) ([]Found, error) {
	const op = "list vms of"
	var list []struct {
		VMID flexInt `json:"vmid"`
		Tags string  `json:"tags"`
		Lock string  `json:"lock"`
	}
	if err := c.get(ctx, nodePath(node)+"/qemu", nil, &list); err != nil {
		return nil, explain(op, "node "+node, err, false)
	}
	var out []Found
	for _, e := range list {
		id := orchestrator.VMID(e.VMID)
		half := e.Lock == "clone" || e.Lock == "create"
		if !half && (id < first || id > last) && !slices.Contains(splitTags(e.Tags), ownerTag) {
			continue
		}
		f, err := c.found(ctx, op, orchestrator.VMRef{Node: node, ID: id})
		if errors.Is(err, orchestrator.ErrNotFound) {
			continue // gone since the list
		}
		if err != nil {
			return nil, err
		}
		out = append(out, f)
	}
	slices.SortFunc(out, func(a, b Found) int { return int(a.VM.ID - b.VM.ID) })
	return out, nil
}

func (c *Cluster) found(ctx context.Context, op string, vm orchestrator.VMRef) (Found, error) {
	h, conf, err := c.look(ctx, op, vm)
	if err != nil {
		return Found{}, err
	}
	f := Found{
		VM: vm, Name: conf.text("name"), Lock: conf.text("lock"), Running: h.running,
		Template: conf.isTemplate(), Saved: conf.text("vmstate"),
	}
	if m, ok := parseMark(conf.text("description")); ok {
		f.Instance = m.instance
	}
	if m, ok := c.ownerOf(conf); ok {
		f.Ours, f.Sandbox, f.HalfMade = true, m.sandbox, m.state == stateCloning
		f.Building = m.recipe != "" && !(f.Template && m.state == stateReady)
		f.Template = f.Template || m.recipe != ""
	}
	return f, nil
}

// Working lists the running tasks that can hold the lock of a VM: its own, and
// those that are listed elsewhere although they hold it: a clone under its
// template, a backup of several VMs under none. A token sees the tasks of
// others only with Sys.Audit on the node.
func (c *Cluster) Working(ctx context.Context, vm orchestrator.VMRef, lock string) ([]orchestrator.UPID, error) {
	const op = "look for running tasks of"
	if err := checkRef(op, vm); err != nil {
		return nil, err
	}
	var list []taskEntry
	if err := c.get(ctx, nodePath(vm.Node)+"/tasks", url.Values{"source": {"active"}, "limit": {"1000"}}, &list); err != nil {
		return nil, explain(op, vm.String(), err, false)
	}
	var out []orchestrator.UPID
	for _, e := range list {
		u, err := parseUPID(e.UPID)
		if err != nil || e.ended() || !concerns(u, vm, lock) {
			continue
		}
		runs, err := c.runs(ctx, u)
		if err != nil {
			return nil, explain(op, vm.String(), err, false)
		}
		if runs {
			out = append(out, u.text)
		}
	}
	return out, nil
}

func concerns(u upid, vm orchestrator.VMRef, lock string) bool {
	switch {
	case u.vm() == vm:
		return true
	case lock == "clone":
		return u.kind == "qmclone"
	case lock == "backup" || lock == "":
		return u.kind == "vzdump" && u.id == ""
	}
	return false
}

// runs asks the task itself: the list can go on calling one running.
func (c *Cluster) runs(ctx context.Context, u upid) (bool, error) {
	var st struct {
		Status string `json:"status"`
	}
	err := c.get(ctx, nodePath(u.node)+"/tasks/"+url.PathEscape(string(u.text))+"/status", nil, &st)
	if err != nil && strings.Contains(textOf(err), "no such task") {
		return false, nil
	}
	return st.Status == "running", err
}

// SeesAllTasks reports whether tasks that others started are visible on the
// node. Without it nobody can tell a stale lock from one at work by tasks alone.
func (c *Cluster) SeesAllTasks(ctx context.Context, node string) (bool, error) {
	granted, err := c.permissions(ctx, nodePath(node))
	_, ok := granted["Sys.Audit"]
	return ok, err
}
