package provision

import (
	"context"
	"errors"
	"fmt"
	"time"

	"savepoint/orchestrator"
)

// settling is how long a new guest's memory may be missing from what its node
// says of itself: nodes report every few seconds, and a guest takes its memory
// when it uses it.
const settling = time.Minute

// Loads counts the sandboxes of each node.
func Loads(all []orchestrator.Sandbox, now time.Time) map[string]Load {
	out := map[string]Load{}
	for _, sb := range all {
		if sb.State == orchestrator.SandboxDestroyed {
			continue
		}
		l := out[sb.VM.Node]
		l.Sandboxes++
		if sb.State == orchestrator.SandboxCreating || now.Sub(sb.Created) < settling {
			l.Starting++
		}
		out[sb.VM.Node] = l
	}
	return out
}

// unused is ErrExists if a sandbox has the name.
func (p *Provisioner) unused(ctx context.Context, name string) error {
	old, err := p.Lookup(ctx, name)
	switch {
	case errors.Is(err, orchestrator.ErrNotFound):
		return nil
	case err != nil:
		return err
	}
	return fmt.Errorf("create sandbox %s: %w (%s, %s); choose another name or destroy it first",
		name, orchestrator.ErrExists, old.VM, old.State)
}

// admit chooses a place and records the sandbox there, before anything is
// reserved for it, so that recovery gives back what a crash leaves. One at a
// time: the next one counts this one.
func (p *Provisioner) admit(ctx context.Context, name string, nodes []Node, w Wish) (orchestrator.Sandbox, error) {
	p.placing.Lock()
	defer p.placing.Unlock()
	if err := p.unused(ctx, name); err != nil {
		return orchestrator.Sandbox{}, err
	}
	all, err := p.c.Registry.Sandboxes(ctx)
	if err != nil {
		return orchestrator.Sandbox{}, err
	}
	storage := ""
	if p.c.FullClone { // a linked clone stays where the template is
		storage = p.c.Storage
	}
	place, err := Choose(Query{
		Name: p.c.Template, Nodes: nodes, Load: Loads(all, p.c.Now()), Limits: p.c.Limits, Wish: w, Storage: storage,
	})
	if err != nil {
		return orchestrator.Sandbox{}, fmt.Errorf("create sandbox %s: %w", name, err)
	}
	sb := orchestrator.Sandbox{
		ID: orchestrator.SandboxID(p.c.NewID()), Name: name, Template: place.Template, Created: p.c.Now(),
		VM: orchestrator.VMRef{Node: place.Node}, Tenant: w.Tenant,
	}
	if err := p.put(ctx, &sb, orchestrator.SandboxCreating, ""); err != nil {
		return sb, fmt.Errorf("create sandbox %s: %w", name, err)
	}
	return sb, nil
}
