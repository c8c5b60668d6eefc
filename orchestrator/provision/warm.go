package provision

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"time"

	"savepoint/network"
	"savepoint/orchestrator"
)

// Warm is the pool: sandboxes that are made before anybody asks for one. Each is
// all that a sandbox has to be when it is handed out, but has no user's name yet.
type Warm struct {
	Size     int           // how many wait for each wish
	Wishes   []Wish        // what they are made for, by tenant
	PerNode  int           // the most that wait on one node; 0 = any number
	ProofAge time.Duration // an older proof of isolation is repeated. Default 1 h
	Answer   time.Duration // in which a guest has to answer. Default 15 s
	Proofs   Proofs        // nil: every hand-out proves anew

	Interval time.Duration // between two looks of Pool.Run. Default 1 min
	// After is time.After, for Pool.Run.
	After func(time.Duration) <-chan time.Time
}

func (w Warm) withDefaults() Warm {
	for _, d := range []struct {
		p    *time.Duration
		deft time.Duration
	}{{&w.ProofAge, time.Hour}, {&w.Answer, 15 * time.Second}, {&w.Interval, time.Minute}} {
		if *d.p <= 0 {
			*d.p = d.deft
		}
	}
	if w.After == nil {
		w.After = time.After
	}
	return w
}

// Proofs knows when isolation was proved, and what came between.
type Proofs interface {
	// Proved is when the sandbox was last proved to be sealed; zero if its last
	// proof did not say so, or there is none.
	Proved(ctx context.Context, sb orchestrator.SandboxID) (time.Time, error)
	// NetworksChanged is when we last changed the cluster's networks.
	NetworksChanged(ctx context.Context) (time.Time, error)
}

// neutral begins the names of sandboxes that have no user's.
const neutral = "sp-"

func neutralName(id orchestrator.SandboxID) string { return neutral + string(id) }

// usable is the state of a sandbox that is all right: with its neutral name it
// is nobody's.
func usable(sb orchestrator.Sandbox) orchestrator.SandboxState {
	if sb.Name == neutralName(sb.ID) {
		return orchestrator.SandboxPooled
	}
	return orchestrator.SandboxReady
}

// recipe names what a sandbox of the tenant is made with, besides its template.
// What is not part of it can change without the sandbox being made anew.
func (p *Provisioner) recipe(tenant string) string {
	with := fmt.Sprintf("%q %t %q %q", p.c.Template, p.c.FullClone, p.c.SSHKeys, p.c.Recipe)
	if p.c.FullClone {
		with += " " + p.c.Storage
	}
	if tenant == "" { // a tenant's networks are looked at one by one
		with += fmt.Sprint(" ", p.c.Subnet, " ", p.c.Gateway)
	}
	sum := sha256.Sum256([]byte(with))
	return hex.EncodeToString(sum[:8])
}

// verdict says what is to become of a pooled sandbox that is not handed out.
type verdict int

const (
	fits   verdict = iota
	waits          // it may fit again
	spoilt         // it never will: it is removed
)

// judge says whether a pooled sandbox is what a new one would be now, and if not,
// why. Its own health is not looked at. pools are the networks of its tenant.
func (p *Provisioner) judge(sb orchestrator.Sandbox, nodes []Node, w Wish, pools []network.Pool) (verdict, string) {
	q := p.query(nodes, Wish{Tenant: w.Tenant, Zone: w.Zone})
	i := slices.IndexFunc(nodes, func(n Node) bool { return n.Name == sb.VM.Node })
	switch {
	case sb.Recipe != p.recipe(sb.Tenant):
		return spoilt, "the settings that sandboxes are made with have changed"
	case i < 0:
		return waits, "node " + sb.VM.Node + " is not in the cluster"
	case slices.Contains(q.Limits.Drained, sb.VM.Node), len(q.Limits.Nodes) > 0 && !slices.Contains(q.Limits.Nodes, sb.VM.Node):
		return spoilt, "node " + sb.VM.Node + " gets no new sandboxes"
	case len(w.Zone) > 0 && !slices.Contains(w.Zone, sb.VM.Node):
		return spoilt, "tenant " + w.Tenant + " has no network on node " + sb.VM.Node
	case !slices.ContainsFunc(pools, func(n network.Pool) bool { return n.VNet == sb.VNet && n.Subnet.Contains(sb.Address) }):
		return spoilt, "its address is not in a network that new sandboxes are on"
	}
	if why := q.Limits.Closed(nodes[i]); why != "" {
		return waits, "node " + sb.VM.Node + " " + why
	}
	t, why := q.source(nodes[i])
	switch {
	case why != "":
		return waits, "node " + sb.VM.Node + " " + why
	case t.VM != sb.Template:
		return spoilt, fmt.Sprintf("it was made from %s, and the template is %s now", sb.Template, t.VM)
	}
	return fits, ""
}

// unfitError says that a pooled sandbox is not what it has to be: it is removed.
type unfitError struct {
	what  string
	cause error
}

func (e *unfitError) Error() string {
	if e.cause == nil {
		return e.what
	}
	return strings.TrimPrefix(e.what+": "+e.cause.Error(), ": ")
}
func (e *unfitError) Unwrap() error { return e.cause }
