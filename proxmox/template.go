package proxmox

import (
	"context"
	"errors"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"savepoint/orchestrator"
)

// Template is one template VM of the cluster.
type Template struct {
	VM          orchestrator.VMRef
	Name        string
	Description string    // without our mark
	Recipe      string    // what BuildTemplate made it from; "" for a template that is not ours
	Storage     string    // of its first disk
	Ready       bool      // false for one of ours whose build did not come to its end
	Created     time.Time // zero where the cluster does not say
}

// Templates lists the templates of the configured nodes, or of all online
// ones, by node and id. One of ours that is half-built is listed as not Ready.
func (c *Cluster) Templates(ctx context.Context) ([]Template, error) {
	const op = "list templates of"
	nodes, err := c.usableNodes(ctx)
	if err != nil {
		return nil, err
	}
	var out []Template
	for _, node := range nodes {
		found, err := c.templatesOn(ctx, op, node)
		if err != nil {
			return nil, err
		}
		out = append(out, found...)
	}
	return out, nil
}

func (c *Cluster) templatesOn(ctx context.Context, op, node string) ([]Template, error) {
	var list []struct {
		VMID     flexInt `json:"vmid"`
		Template flexInt `json:"template"`
		Tags     string  `json:"tags"`
		Status   string  `json:"status"`
	}
	if err := c.get(ctx, nodePath(node)+"/qemu", nil, &list); err != nil {
		return nil, explain(op, "node "+node, err, false)
	}
	var out []Template
	for _, vm := range list {
		// The list's template flag can be a moment behind; the tag and then the
		// configuration are not.
		if vm.Template == 0 && vm.Status != "unknown" && !slices.Contains(splitTags(vm.Tags), templateTag) {
			continue
		}
		ref := orchestrator.VMRef{Node: node, ID: orchestrator.VMID(vm.VMID)}
		conf, err := c.config(ctx, op, ref)
		if errors.Is(err, orchestrator.ErrNotFound) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if t, ok := c.asTemplate(ref, conf); ok {
			out = append(out, t)
		}
	}
	slices.SortFunc(out, func(a, b Template) int { return int(a.VM.ID - b.VM.ID) })
	return out, nil
}

// asTemplate reads a configuration; ok is false for a VM that is neither a
// template nor one of ours in the making.
func (c *Cluster) asTemplate(ref orchestrator.VMRef, conf vmConfig) (Template, bool) {
	t := Template{VM: ref, Name: conf.text("name"), Description: conf.text("description"), Ready: conf.isTemplate(), Created: conf.created()}
	if disks := conf.disks(); len(disks) > 0 {
		t.Storage = disks[0].storage
	}
	if m, ok := c.ownerOf(conf); ok && m.recipe != "" {
		t.Recipe = m.recipe
		t.Ready = t.Ready && m.state == stateReady
		_, t.Description, _ = strings.Cut(t.Description, "\n")
		t.Description = strings.TrimSpace(t.Description)
		return t, true
	}
	return t, conf.isTemplate()
}

var createdRE = regexp.MustCompile(`(?:\A|,)ctime=(\d+)(?:,|\z)`)

// created is when the VM was made, as the cluster noted it.
func (v vmConfig) created() time.Time {
	m := createdRE.FindStringSubmatch(v.text("meta"))
	if m == nil {
		return time.Time{}
	}
	n, err := strconv.ParseInt(m[1], 10, 64)
	if err != nil {
		return time.Time{}
	}
	return time.Unix(n, 0)
}

// RemoveTemplate removes a finished template of ours with its disks; a missing
// one is no error. ErrDenied: the VM is not, or not any more, the template that
// was given. ErrBusy: a VM is linked to its disks.
func (c *Cluster) RemoveTemplate(ctx context.Context, t Template, started orchestrator.Started) error {
	return c.removeTemplate(ctx, "remove template", t.VM, started, func(found Template) bool {
		return found.Ready && found.Recipe == t.Recipe
	})
}

// RemoveBuilding removes what an interrupted build of a template left; a
// missing VM is no error. ErrDenied: the VM is not one of ours in the making.
func (c *Cluster) RemoveBuilding(ctx context.Context, vm orchestrator.VMRef, started orchestrator.Started) error {
	return c.removeTemplate(ctx, "remove half-built template", vm, started, func(found Template) bool { return !found.Ready })
}

// removeTemplate removes a VM that is marked as a template of ours and is what
// the caller expects.
func (c *Cluster) removeTemplate(ctx context.Context, op string, vm orchestrator.VMRef, started orchestrator.Started, expected func(Template) bool) error {
	release, err := c.exclusive(ctx, op, vm)
	if err != nil {
		return err
	}
	defer release()
	return c.again(ctx, func() error {
		conf, err := c.config(ctx, op, vm)
		if vmMissing(err) {
			return nil
		}
		if err != nil {
			return err
		}
		if t, ok := c.asTemplate(vm, conf); !ok || t.Recipe == "" || !expected(t) {
			return refuse(op, vm.String(), orchestrator.ErrDenied, "the vm does not say that it is that template of ours", "nothing was changed")
		}
		return c.VMs().remove(ctx, op, orchestrator.VMRequest{VM: vm, Started: started}, conf)
	})
}
