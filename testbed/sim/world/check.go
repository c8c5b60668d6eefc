package world

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"savepoint/orchestrator"
	"savepoint/policy"
)

// Finding is one invariant that does not hold.
type Finding struct{ Invariant, Detail string }

func (f Finding) String() string { return f.Invariant + ": " + f.Detail }

// The invariants.
const (
	Exact   = "every sandbox is exactly what its committed transactions made of it"
	Once    = "no command ran twice"
	Told    = "what was told is what the journal says"
	Clean   = "nothing of ours is left behind"
	Foreign = "nothing is touched that is not ours"
	Fenced  = "no connection outlives a restore"
	Ended   = "every transaction comes to its end"
	Needed  = "a stuck transaction needs an operator"
	Mended  = "a stuck transaction goes on when it is mended"
	Usable  = "the sandbox can be used"
)

// Checker compares a cluster with its journal. It keeps beside what every
// sandbox was before the first transaction that the journal still tells of.
type Checker struct {
	C     *Cluster
	Boxes []orchestrator.Sandbox
	base  map[orchestrator.SandboxID]Tree
	after map[orchestrator.SandboxID]orchestrator.TxID // base holds these and older ones
}

// NewChecker returns one for sandboxes as New made them.
func NewChecker(c *Cluster, boxes []orchestrator.Sandbox) *Checker {
	k := &Checker{C: c, Boxes: boxes, base: map[orchestrator.SandboxID]Tree{}, after: map[orchestrator.SandboxID]orchestrator.TxID{}}
	for _, sb := range boxes {
		k.base[sb.ID] = Initial()
	}
	return k
}

// Anew says that the sandbox was made anew after that transaction.
func (k *Checker) Anew(sb orchestrator.SandboxID, after orchestrator.TxID) {
	k.base[sb], k.after[sb] = Initial(), after
}

// Check reads the journal and returns what does not hold. clean asks for the
// state after a collection.
func (k *Checker) Check(ctx context.Context, j orchestrator.Journal, clean bool) (bad []Finding) {
	add := func(invariant, format string, args ...any) {
		bad = append(bad, Finding{invariant, fmt.Sprintf(format, args...)})
	}
	views, err := orchestrator.List(ctx, j, orchestrator.Filter{})
	if err != nil {
		add(Ended, "the journal cannot be read: %v", err)
		return bad
	}
	slices.SortFunc(views, func(a, b orchestrator.Transaction) int { return strings.Compare(string(a.ID), string(b.ID)) })
	for _, sb := range k.Boxes {
		k.box(sb, views, clean, add)
	}
	return append(bad, k.C.Crimes()...)
}

func (k *Checker) box(sb orchestrator.Sandbox, views []orchestrator.Transaction, clean bool, add func(string, string, ...any)) {
	want := maps.Clone(k.base[sb.ID])
	stuck, open := false, false
	tail := "" // the story since the last check, for the reader of a failure
	var last orchestrator.TxID
	for _, t := range views {
		if t.Sandbox.ID != sb.ID || t.ID <= k.after[sb.ID] {
			continue
		}
		tail, last = tail+"\n"+story(t), t.ID
		switch {
		case t.State == orchestrator.StateStuck:
			if stuck = true; len(k.C.NeedsOperator(t)) == 0 {
				add(Needed, "sandbox %s, transaction %s: %s", sb.Name, t.ID, t.Reason)
			}
		case t.State == orchestrator.StateOpen && !t.Bound:
			open = true
			want = Replay(t, want)
		case !t.State.Final():
			add(Ended, "sandbox %s: transaction %s is still %s", sb.Name, t.ID, t.State)
			stuck = true // what it holds is not known
		default:
			want = Replay(t, want)
		}
	}
	if clean && !stuck && !open && last != "" {
		defer func() { k.base[sb.ID], k.after[sb.ID] = want, last }()
	}
	for command, n := range k.C.Runs(sb) {
		if n > 1 && strings.Contains(command, ">") {
			add(Once, "sandbox %s: %q was started %d times", sb.Name, command, n)
		}
	}
	if got := k.C.Files(sb); !stuck && !maps.Equal(got, want) {
		add(Exact, "sandbox %s:%s\n got %s\nwant %s", sb.Name, tail, sortedTree(got), sortedTree(want))
	}
	if left := k.C.Owned(sb); clean && !stuck && !open && len(left) > 0 {
		add(Clean, "sandbox %s: snapshots %v", sb.Name, left)
	}
	if lock := k.C.Lock(sb); clean && !stuck && lock != "" {
		add(Clean, "sandbox %s: lock %q", sb.Name, lock)
	}
}

// story is a transaction in one line.
func story(t orchestrator.Transaction) string {
	text := fmt.Sprintf("  %s %s %s %q %v (%s)", t.ID, t.State, t.Boundary, t.Command, t.As, t.Reason)
	for _, c := range t.Commands {
		text += fmt.Sprintf(" %q", c.Command)
	}
	return text
}

// Lock is the VM's config lock.
func (c *Cluster) Lock(sb orchestrator.Sandbox) (lock string) {
	_ = c.at(sb.VM, func(v *vm) error { lock = v.lock; return nil })
	return lock
}

// Replay is what the journal's story makes of the files: nothing, unless the
// transaction was committed or is still open.
func Replay(t orchestrator.Transaction, before Tree) Tree {
	if t.State != orchestrator.StateCommitted && t.State != orchestrator.StateOpen {
		return before
	}
	tree := maps.Clone(before)
	if !t.Several {
		if t.Boundary != orchestrator.BoundaryNone {
			Apply(tree, t.Command, t.As == policy.Root)
		}
		return tree
	}
	type point struct {
		name string
		tree Tree
	}
	points := []point{{orchestrator.PointBegin, maps.Clone(tree)}}
	next, saving := 0, ""
	for _, s := range t.Steps {
		switch s.Event {
		case "deny":
			next++
		case "run":
			next++
		case "ran":
			c := t.Commands[next-1]
			Apply(tree, c.Command, c.As == policy.Root)
		case "save":
			saving = s.Detail
		case "saved":
			points = append(points, point{saving, maps.Clone(tree)})
		case "returned":
			for i := len(points) - 1; i >= 0; i-- {
				if points[i].name == s.Detail {
					points, tree = points[:i+1], maps.Clone(points[i].tree)
					break
				}
			}
		}
	}
	return tree
}
