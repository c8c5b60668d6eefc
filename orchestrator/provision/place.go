package provision

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"savepoint/orchestrator"
)

// Fleet shows the nodes that sandboxes can be placed on.
type Fleet interface {
	// Nodes returns every node of the cluster once, with the templates of that
	// name on it. A node that does not answer is returned as such and is no
	// error. ErrUnavailable: the cluster does not answer at all.
	Nodes(ctx context.Context, template string) ([]Node, error)
}

// Node is one node of the cluster as a place for sandboxes.
type Node struct {
	Name        string
	Online      bool
	Maintenance bool     // the cluster itself keeps new work off it
	Unseen      string   // why an online node's templates are not known; "" = they are
	Memory      int64    // bytes; 0 = its memory cannot be seen
	Free        int64    // bytes of it
	Shared      []string // storages that it shares with other nodes, and that work there
	Templates   []Template
}

// Template is a finished template on a node.
type Template struct {
	VM       orchestrator.VMRef
	Memory   int64    // what a clone of it takes, in bytes
	Storages []string // of all its volumes
}

// Load is what a node has of ours already.
type Load struct {
	Sandboxes int // all that are not destroyed
	// Starting are those among them whose memory the node may not count yet.
	Starting int
}

// Limits say which nodes may be used, and how far. The zero value limits nothing.
type Limits struct {
	Nodes   []string // empty = all
	Drained []string // get no new sandboxes
	PerNode int      // the most sandboxes of a node; 0 = any number
	Reserve int64    // bytes of memory that stay free on a node; 0 = memory only ranks the nodes
}

// Wish narrows the choice of a place. The zero value leaves it open.
type Wish struct {
	Node     string             // this node or none
	Template orchestrator.VMRef // this template or none
	Tenant   string             // whose network it is on; "" = the configured bridge
	Zone     []string           // the nodes that have that network; empty = all
	Warm     bool               // one of the pool will do
	// Avoid are nodes that have as many pooled ones as they may.
	Avoid []string
}

// Place is where a sandbox is made, and from what.
type Place struct {
	Node     string
	Template orchestrator.VMRef
}

// Query is everything that the choice of a place depends on.
type Query struct {
	Name    string // of the template, for messages
	Nodes   []Node
	Load    map[string]Load // by node
	Limits  Limits
	Wish    Wish
	Storage string // where the disks are written; "" = where the template's are
}

// PlaceError says why no node takes a sandbox, for each node. It counts as
// ErrUnavailable, and as ErrNotFound when a node was asked for that there is not.
type PlaceError struct {
	Wish     Wish
	Unknown  bool // there is no node of the name that was asked for
	Refusals []Refusal
}

// Refusal is why one node was not chosen.
type Refusal struct{ Node, Why string }

func (e *PlaceError) Error() string {
	if e.Unknown {
		names := make([]string, len(e.Refusals))
		for i, r := range e.Refusals {
			names[i] = r.Node
		}
		return fmt.Sprintf("place it on node %s: the cluster has no such node, it has %s", e.Wish.Node, strings.Join(names, ", "))
	}
	whys := make([]string, len(e.Refusals))
	for i, r := range e.Refusals {
		whys[i] = "node " + r.Node + " " + r.Why
	}
	return "choose a node: none takes it: " + strings.Join(whys, "; ")
}

// Is gives the class.
func (e *PlaceError) Is(target error) bool {
	if e.Unknown {
		return target == orchestrator.ErrNotFound
	}
	return target == orchestrator.ErrUnavailable
}

// candidate is a node that takes the sandbox.
type candidate struct {
	place  Place
	seen   bool  // its memory is known
	fits   int64 // how many more of such guests its free memory holds
	load   int
	remote bool // the template is on another node
}

// Choose returns the node with the most room: the one whose free memory holds
// the most further guests, among equals the one with the fewest sandboxes, then
// one that has the template itself, then the first by name. A template on local
// storage serves its own node alone; one on shared storage serves every node
// that has the storage. *PlaceError: no node takes it. *UnsupportedError: all
// nodes were seen, and the template is on none.
func Choose(q Query) (Place, error) {
	nodes := slices.SortedFunc(slices.Values(q.Nodes), func(a, b Node) int { return cmp.Compare(a.Name, b.Name) })
	q.Nodes = nodes
	fail := &PlaceError{Wish: q.Wish}
	var best *candidate
	known, hidden := false, false
	for _, n := range nodes {
		known = known || q.Wish.Node == "" || n.Name == q.Wish.Node
		hidden = hidden || !n.Online || n.Unseen != ""
		c, why := q.consider(n)
		if why != "" {
			fail.Refusals = append(fail.Refusals, Refusal{n.Name, why})
			continue
		}
		if best == nil || compare(c, *best) < 0 {
			best = &c
		}
	}
	switch {
	case best != nil:
		return best.place, nil
	case !known:
		fail.Unknown = true
		fail.Refusals = nil
		for _, n := range nodes {
			fail.Refusals = append(fail.Refusals, Refusal{Node: n.Name})
		}
	case !hidden && !slices.ContainsFunc(nodes, func(n Node) bool { return len(n.Templates) > 0 }):
		return Place{}, NoTemplate(q.Name)
	}
	return Place{}, fail
}

// NoTemplate says that no node has a template of that name.
func NoTemplate(name string) error {
	return &orchestrator.UnsupportedError{
		What: fmt.Sprintf("find template %q on the cluster: there is none of that name", name),
		Mend: "build it with savepoint template build, or name another one in sandbox.template",
	}
}

// compare orders candidates, the best first.
func compare(a, b candidate) int {
	return cmp.Or(
		-cmp.Compare(rank(a.seen), rank(b.seen)),
		-cmp.Compare(a.fits, b.fits),
		cmp.Compare(a.load, b.load),
		cmp.Compare(rank(a.remote), rank(b.remote)),
		cmp.Compare(a.place.Node, b.place.Node),
	)
}

func rank(b bool) int {
	if b {
		return 1
	}
	return 0
}

// consider says why the node is no place for the sandbox, or what it is as one.
func (q Query) consider(n Node) (c candidate, why string) {
	if q.Wish.Node != "" && n.Name != q.Wish.Node {
		return c, "is not the one asked for"
	}
	if len(q.Wish.Zone) > 0 && !slices.Contains(q.Wish.Zone, n.Name) {
		return c, "has no network of tenant " + q.Wish.Tenant
	}
	if slices.Contains(q.Wish.Avoid, n.Name) {
		return c, "has as many warm sandboxes as pool.max_per_node allows"
	}
	if why := q.Limits.Closed(n); why != "" {
		return c, why
	}
	t, why := q.source(n)
	if why != "" {
		return c, why
	}
	load := q.Load[n.Name]
	if why := q.Limits.Full(n, load, t.Memory); why != "" {
		return c, why
	}
	c = candidate{place: Place{n.Name, t.VM}, load: load.Sandboxes, remote: t.VM.Node != n.Name, seen: n.Memory > 0}
	if c.seen {
		c.fits = room(n, load, t.Memory) / max(t.Memory, 1)
	}
	return c, ""
}

// Closed says why nothing is placed on the node, however much room it has; ""
// when it is open.
func (l Limits) Closed(n Node) string {
	switch {
	case len(l.Nodes) > 0 && !slices.Contains(l.Nodes, n.Name):
		return "is not among cluster.nodes"
	case slices.Contains(l.Drained, n.Name):
		return "is drained (cluster.drained_nodes)"
	case !n.Online:
		return "is offline"
	case n.Maintenance:
		return "is in maintenance"
	case n.Unseen != "":
		return "does not answer (" + n.Unseen + ")"
	}
	return ""
}

// Full says why a further guest of so much memory has no room on the node; ""
// when it has.
func (l Limits) Full(n Node, has Load, need int64) string {
	if l.PerNode > 0 && has.Sandboxes >= l.PerNode {
		return fmt.Sprintf("has %d sandboxes, and cluster.max_per_node is %d", has.Sandboxes, l.PerNode)
	}
	if l.Reserve <= 0 {
		return ""
	}
	if n.Memory <= 0 {
		return fmt.Sprintf("keeps its memory to itself, so cluster.memory_reserve cannot be kept: give the token Sys.Audit on /nodes/%s", n.Name)
	}
	if left := room(n, has, need); left < l.Reserve {
		return fmt.Sprintf("would have %d MiB of memory left, and cluster.memory_reserve is %d MiB", left>>20, l.Reserve>>20)
	}
	return ""
}

// room is what is left of the node's free memory with one more guest on it, and
// with those that it does not count yet.
func room(n Node, has Load, need int64) int64 {
	return n.Free - int64(has.Starting+1)*need
}

// source finds what the node's sandbox can be cloned from: a template on the
// node, else one on storage that the node shares.
func (q Query) source(n Node) (Template, string) {
	for _, t := range n.Templates {
		if q.wished(t) {
			return t, ""
		}
	}
	var local []string
	for _, other := range q.Nodes {
		for _, t := range other.Templates {
			if other.Name == n.Name || !q.wished(t) {
				continue
			}
			missing := slices.DeleteFunc(q.needs(t), func(s string) bool { return slices.Contains(n.Shared, s) })
			if len(missing) == 0 {
				return t, ""
			}
			local = append(local, fmt.Sprintf("that of %s needs storage %s, which the two do not share", other.Name, strings.Join(missing, ", ")))
		}
	}
	what := "has no template " + q.Name
	if q.Wish.Template.ID != 0 {
		what = "has not the template that was asked for, " + q.Wish.Template.String()
	}
	return Template{}, strings.Join(append([]string{what}, local...), ", and ")
}

func (q Query) wished(t Template) bool {
	return q.Wish.Template.ID == 0 || q.Wish.Template == t.VM
}

// needs are the storages that a node has to share for a clone from elsewhere.
func (q Query) needs(t Template) []string {
	out := slices.Clone(t.Storages)
	if q.Storage != "" && !slices.Contains(out, q.Storage) {
		out = append(out, q.Storage)
	}
	return out
}
