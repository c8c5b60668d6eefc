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
// time: the next one counts this one. Without a name it is for the pool.
func (p *Provisioner) admit(ctx context.Context, name string, nodes []Node, w Wish) (orchestrator.Sandbox, error) {
	p.placing.Lock()
	defer p.placing.Unlock()
	id := orchestrator.SandboxID(p.c.NewID())
	if name == "" {
		name = neutralName(id)
	}
	if err := p.unused(ctx, name); err != nil {
		return orchestrator.Sandbox{}, err
	}
	all, err := p.c.Registry.Sandboxes(ctx)
	if err != nil {
		return orchestrator.Sandbox{}, err
	}
	q := p.query(nodes, w)
	q.Load = Loads(all, p.c.Now())
	place, err := Choose(q)
	if err != nil {
		return orchestrator.Sandbox{}, fmt.Errorf("create sandbox %s: %w", name, err)
	}
	sb := orchestrator.Sandbox{
		ID: id, Name: name, Template: place.Template, Created: p.c.Now(),
		VM: orchestrator.VMRef{Node: place.Node}, Tenant: w.Tenant, Recipe: p.recipe(w.Tenant),
	}
	if err := p.put(ctx, &sb, orchestrator.SandboxCreating, ""); err != nil {
		return sb, fmt.Errorf("create sandbox %s: %w", name, err)
	}
	return sb, nil
}

// query is what places are chosen by, without the load.
func (p *Provisioner) query(nodes []Node, w Wish) Query {
	q := Query{Name: p.c.Template, Nodes: nodes, Limits: p.c.Limits, Wish: w}
	if p.c.FullClone { // a linked clone stays where the template is
		q.Storage = p.c.Storage
	}
	return q
}
