package world

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"savepoint/orchestrator"
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
	Kept    = "a session is what its committed commands left"
	Guarded = "no committed command changed what it was not to change"
)

// Checker compares a cluster with its journal. It keeps beside what every
// sandbox was before the first transaction that the journal still tells of.
type Checker struct {
	C     *Cluster
	Boxes []orchestrator.Sandbox
	// Views are the transactions as the last Check found them, oldest first.
	Views []orchestrator.Transaction
	base  map[orchestrator.SandboxID]Left
	wrote map[orchestrator.SandboxID]Tree              // by somebody else, to stay whatever transactions do
	left  map[orchestrator.SandboxID]Left              // as the last Check expected it, open transactions included
	after map[orchestrator.SandboxID]orchestrator.TxID // base holds these and older ones
}

// NewChecker returns one for sandboxes as New made them.
func NewChecker(c *Cluster, boxes []orchestrator.Sandbox) *Checker {
	k := &Checker{C: c, Boxes: boxes, base: map[orchestrator.SandboxID]Left{}, wrote: map[orchestrator.SandboxID]Tree{}, left: map[orchestrator.SandboxID]Left{}, after: map[orchestrator.SandboxID]orchestrator.TxID{}}
	for _, sb := range boxes {
		k.base[sb.ID] = Left{Files: Initial()}
	}
	return k
}

// Wrote says that somebody wrote a file between two transactions, which none of
// them writes: it stays.
func (k *Checker) Wrote(sb orchestrator.SandboxID, path, text string) {
	if k.wrote[sb] == nil {
		k.wrote[sb] = Tree{}
	}
	k.wrote[sb][path] = text
}

// Anew says that the sandbox was made anew after that transaction.
func (k *Checker) Anew(sb orchestrator.SandboxID, after orchestrator.TxID) {
	k.base[sb], k.after[sb] = Left{Files: Initial()}, after
	delete(k.wrote, sb)
}

// Left is what the sandbox holds by the last Check's reading of the journal: what
// a command sees that runs now, in the open transaction if there is one.
func (k *Checker) Left(sb orchestrator.SandboxID) Left { return k.left[sb] }

// Check reads the journal and returns what does not hold. clean asks for the
// state after a collection.
func (k *Checker) Check(ctx context.Context, j orchestrator.Journal, clean bool) (bad []Finding) {
	add := func(invariant, format string, args ...any) {
		bad = append(bad, Finding{invariant, fmt.Sprintf(format, args...)})
	}
	views, err := orchestrator.List(ctx, j, orchestrator.Filter{})
	k.Views = views
	if err != nil {
		add(Ended, "the journal cannot be read: %v", err)
		return bad
	}
	slices.SortFunc(views, func(a, b orchestrator.Transaction) int { return cmp.Compare(order(a), order(b)) })
	for _, sb := range k.Boxes {
		k.box(ctx, j, sb, views, clean, add)
	}
	return append(bad, k.C.Crimes()...)
}

func (k *Checker) box(ctx context.Context, j orchestrator.Journal, sb orchestrator.Sandbox, views []orchestrator.Transaction, clean bool, add func(string, string, ...any)) {
	want := k.base[sb.ID]
	kept := want.Shells // an open transaction has not changed them yet
	stuck, open := false, false
	tail := "" // the story since the last check, for the reader of a failure
	var last orchestrator.TxID
	for _, t := range views {
		if t.Sandbox.ID != sb.ID || t.ID <= k.after[sb.ID] {
			continue
		}
		tail, last = tail+"\n"+story(t), max(last, t.ID)
		switch {
		case t.State == orchestrator.StatePrepared && !clean: // no command has come
		case t.State == orchestrator.StateStuck:
			if stuck = true; len(k.C.NeedsOperator(t)) == 0 {
				add(Needed, "sandbox %s, transaction %s: %s", sb.Name, t.ID, t.Reason)
			}
		case t.State == orchestrator.StateOpen && !t.Bound:
			open = true
			want = Replay(t, want, add)
		case !t.State.Final():
			add(Ended, "sandbox %s: transaction %s is still %s", sb.Name, t.ID, t.State)
			stuck = true // what it holds is not known
		default:
			want = Replay(t, want, add)
			kept = want.Shells
		}
	}
	k.left[sb.ID] = want
	if clean && !stuck && !open && last != "" {
		defer func() { k.base[sb.ID], k.after[sb.ID] = want, last }()
	}
	for command, n := range k.C.Runs(sb) {
		if n > 1 && strings.Contains(command, ">") {
			add(Once, "sandbox %s: %q was started %d times", sb.Name, command, n)
		}
	}
	files := maps.Clone(want.Files)
	maps.Copy(files, k.wrote[sb.ID])
	if got := k.C.Files(sb); !stuck && !maps.Equal(got, files) {
		add(Exact, "sandbox %s:%s\n got %s\nwant %s", sb.Name, tail, sortedTree(got), sortedTree(files))
	}
	if got := k.session(ctx, j, sb); !stuck && got != kept.String() {
		add(Kept, "sandbox %s:%s\n got %s\nwant %s", sb.Name, tail, got, kept)
	}
	if left := k.C.Owned(sb); clean && !stuck && !open && len(left) > 0 {
		add(Clean, "sandbox %s: snapshots %v", sb.Name, left)
	}
	if lock := k.C.Lock(sb); clean && !stuck && lock != "" {
		add(Clean, "sandbox %s: lock %q", sb.Name, lock)
	}
}

// order is when the transaction's command began, among all records: one whose
// snapshot was taken ahead may be older than one that ran before it.
func order(t orchestrator.Transaction) (seq int64) {
	for _, s := range t.Steps {
		if seq == 0 || s.Event == "adopt" {
			seq = s.Seq
		}
	}
	return seq
}

// session is what the journal keeps of the sandbox's sessions.
func (k *Checker) session(ctx context.Context, j orchestrator.Journal, sb orchestrator.Sandbox) string {
	keeper, ok := j.(orchestrator.SessionKeeper)
	if !ok {
		return "no sessions"
	}
	data, err := keeper.Session(ctx, sb.ID)
	var kept Shells
	if err == nil && len(data) > 0 {
		err = json.Unmarshal(data, &kept)
	}
	if err != nil {
		return err.Error()
	}
	return kept.String()
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
