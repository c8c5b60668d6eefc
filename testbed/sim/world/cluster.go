package world

import (
	"container/heap"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"savepoint/orchestrator"
)

// Tree is files: path to content.
type Tree map[string]string

// Marker is where a guest keeps its generation marker: on the workspace volume,
// and there where the agent cannot write.
const Marker = "/var/lib/savepoint/generation"

// workspace is where the agent finds the workspace volume.
const workspace = "/workspace/"

// pristine is the snapshot of a sandbox's first moment. No transaction took it.
const pristine = "sp-pristine"

// part returns the files of the workspace volume, or those outside.
func (t Tree) part(inWorkspace bool) Tree {
	p := Tree{}
	for path, text := range t {
		if (path == Marker || strings.HasPrefix(path, workspace)) == inWorkspace {
			p[path] = text
		}
	}
	return p
}

// without returns a copy without the generation marker.
func (t Tree) without() Tree {
	c := maps.Clone(t)
	delete(c, Marker)
	return c
}

// Options say what a cluster is like. The zero value answers at once: that is
// for benchmarks, which run on the real clock.
type Options struct {
	Sandboxes  int           // how many there are at the start
	NewestOnly bool          // only the newest snapshot can be restored, as with ZFS
	Call       time.Duration // how long every call takes
	Task       time.Duration // how long every task runs
	Step       time.Duration // how long every step of a command takes
}

// Usual is a cluster like a small real one.
func Usual(sandboxes int) Options {
	return Options{
		Sandboxes: sandboxes, NewestOnly: true,
		Call: 10 * time.Millisecond, Task: 1500 * time.Millisecond, Step: 200 * time.Millisecond,
	}
}

// Cluster is simulated VMs with their guests, disks, snapshots and tasks: what
// is left when an orchestrator dies. It has no goroutines: what is due by now
// happens when somebody looks, in the order of its time.
type Cluster struct {
	Options
	mu     sync.Mutex
	vms    map[orchestrator.VMID]*vm
	due    events
	clock  time.Time // of the event that happens; zero: the present
	seq    int       // of events, tasks, boots and processes
	crimes []Finding
	marks  map[string]string // what is not ours, as it was at the start
}

// vm is one virtual machine.
type vm struct {
	ref      orchestrator.VMRef
	name     string
	owner    orchestrator.SandboxID
	template bool
	running  bool
	lock     string
	holder   *task // who holds the lock; dead or none when it is stale
	parent   orchestrator.SnapshotName
	work     orchestrator.SnapshotName // the parent of what is in the workspace, which has its own chain
	snaps    []*snap                   // in the order they were taken, of all kinds
	files    Tree
	writes   int // what the guest has written to its disks, or a restore for it
	guest    guest
	tasks    []*task
	runs     map[string]int // how often a command was started, by its text
	needs    []string       // why an operator is needed, as far as no state shows it
}

// guest is what runs in a VM.
type guest struct {
	boot  int
	skew  time.Duration
	key   string
	dead  bool      // until it boots or memory from before comes back
	mute  time.Time // does not answer before
	procs []*process
}

// snap is one snapshot.
type snap struct {
	orchestrator.Snapshot
	kind    orchestrator.Boundary
	files   Tree
	owner   orchestrator.SandboxID
	work    orchestrator.SnapshotName // the workspace's parent at that time
	boot    int
	clock   time.Time
	procs   []*process
	foreign bool
}

// New makes a cluster with sandboxes, a template, a VM that is nobody's and
// one of another instance.
func New(o Options) *Cluster {
	c := &Cluster{Options: o, vms: map[orchestrator.VMID]*vm{}, marks: map[string]string{}}
	for i := range o.Sandboxes {
		c.make(Box(i))
	}
	template := c.add(Template(), "template", "")
	template.template = true
	stranger := c.add(orchestrator.VMRef{Node: "pve1", ID: 500}, "mail", "")
	stranger.running, stranger.files = true, Tree{"/etc/motd": "mail server"}
	other := c.add(orchestrator.VMRef{Node: "pve1", ID: 501}, "theirs", "01jx00000000000000000other")
	other.snaps = []*snap{{
		Snapshot: orchestrator.Snapshot{Name: "sp-01jx0000000000000000000abc"},
		kind:     orchestrator.BoundaryDisk, files: Tree{}, foreign: true,
	}}
	other.parent = "sp-01jx0000000000000000000abc"
	c.add(orchestrator.VMRef{Node: "pve1", ID: 502}, "attic", "")
	for id := range c.vms {
		c.remember(id)
	}
	return c
}

// make adds a sandbox's VM as it is at first.
func (c *Cluster) make(sb orchestrator.Sandbox) *vm {
	v := c.add(sb.VM, sb.Name, sb.ID)
	v.running, v.guest.key, v.guest.boot = true, sb.HostKey, c.next()
	v.files = Initial()
	v.files[Marker] = pristine
	v.snaps = []*snap{{
		Snapshot: orchestrator.Snapshot{Name: pristine, Taken: time.Now().Truncate(time.Second), Memory: true},
		kind:     orchestrator.BoundaryMachine, files: maps.Clone(v.files), owner: sb.ID, boot: v.guest.boot, clock: time.Now(), foreign: true,
	}}
	v.parent = pristine
	return v
}

// Box is the i-th sandbox.
func Box(i int) orchestrator.Sandbox {
	return orchestrator.Sandbox{
		ID: orchestrator.SandboxID(fmt.Sprintf("01jx%022d", i)), Name: fmt.Sprintf("dev%d", i),
		State: orchestrator.SandboxReady, VM: orchestrator.VMRef{Node: "pve1", ID: orchestrator.VMID(9000 + i)},
		HostKey: fmt.Sprintf("ssh-ed25519 AAAA%04d", i), Workspace: fmt.Sprintf("tank/dev%d", i),
	}
}

// Template is what sandboxes are cloned from.
func Template() orchestrator.VMRef { return orchestrator.VMRef{Node: "pve1", ID: 400} }

// Initial is what every sandbox holds at the start.
func Initial() Tree {
	return Tree{"/workspace/a": "old", "/workspace/keep": "untracked", "/etc/conf": "shipped"}
}

func (c *Cluster) add(ref orchestrator.VMRef, name string, owner orchestrator.SandboxID) *vm {
	v := &vm{ref: ref, name: name, owner: owner, files: Tree{}, runs: map[string]int{}}
	c.vms[ref.ID] = v
	return v
}

// next numbers events, tasks, boots and processes.
func (c *Cluster) next() int { c.seq++; return c.seq }

// foreign tells what a VM consists of that is not ours: all of a VM that is
// not owned, the strange snapshots of one that is.
func (c *Cluster) foreign(v *vm) string {
	ours := v.owner != "" && slices.ContainsFunc(v.snaps, func(s *snap) bool { return s.Name == pristine })
	text := ""
	if !ours {
		text = fmt.Sprint(v.owner, v.running, v.lock, v.parent, v.template, v.name, sortedTree(v.files))
	}
	for _, s := range v.snaps {
		if s.foreign {
			text += fmt.Sprint(" ", s.Name, s.Incomplete, sortedTree(s.files))
		}
	}
	return text
}

// remember takes the present state for the one that nobody may change. The
// operator calls it after he changed something.
func (c *Cluster) remember(id orchestrator.VMID) {
	if v := c.vms[id]; v != nil {
		c.marks[fmt.Sprint(id)] = c.foreign(v)
	}
}

// crime notes what no orchestrator may do.
func (c *Cluster) crime(invariant, format string, args ...any) {
	c.crimes = append(c.crimes, Finding{invariant, fmt.Sprintf(format, args...)})
}

// Crimes are what was done that no state of a sandbox shows.
func (c *Cluster) Crimes() []Finding {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.advance()
	all := slices.Clone(c.crimes)
	for _, id := range slices.Sorted(maps.Keys(c.vms)) {
		if was, now := c.marks[fmt.Sprint(id)], c.foreign(c.vms[id]); was != now {
			all = append(all, Finding{Foreign, fmt.Sprintf("vm %d: what is not ours was %q and is %q", id, was, now)})
		}
	}
	return all
}

// The events to come.

type event struct {
	at  time.Time
	seq int
	do  func()
}

type events []event

func (e events) Len() int { return len(e) }
func (e events) Less(i, j int) bool {
	if e[i].at.Equal(e[j].at) {
		return e[i].seq < e[j].seq
	}
	return e[i].at.Before(e[j].at)
}
func (e events) Swap(i, j int) { e[i], e[j] = e[j], e[i] }
func (e *events) Push(x any)   { *e = append(*e, x.(event)) }
func (e *events) Pop() any {
	last := (*e)[len(*e)-1]
	*e = (*e)[:len(*e)-1]
	return last
}

// later puts something off. The caller holds mu.
func (c *Cluster) later(at time.Time, do func()) {
	heap.Push(&c.due, event{at: at, seq: c.next(), do: do})
}

// advance lets everything happen that is due. The caller holds mu.
func (c *Cluster) advance() {
	now := time.Now()
	for len(c.due) > 0 && !c.due[0].at.After(now) {
		e := heap.Pop(&c.due).(event)
		c.clock = e.at
		e.do()
	}
	c.clock = time.Time{}
}

// now is the time of what happens. The caller holds mu.
func (c *Cluster) now() time.Time {
	if c.clock.IsZero() {
		return time.Now()
	}
	return c.clock
}

// at runs f on a VM at the present instant; ErrNotFound when there is none.
func (c *Cluster) at(ref orchestrator.VMRef, f func(v *vm) error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.due) > 0 {
		c.advance()
	}
	v := c.vms[ref.ID]
	if v == nil || v.ref.Node != ref.Node {
		return fmt.Errorf("%s: %w", ref, orchestrator.ErrNotFound)
	}
	return f(v)
}

// owned is at for a VM that has to belong to the sandbox.
func (c *Cluster) owned(ref orchestrator.VMRef, sb orchestrator.SandboxID, f func(v *vm) error) error {
	return c.at(ref, func(v *vm) error {
		if v.owner != sb || sb == "" || v.template {
			return fmt.Errorf("%s belongs to %q, not to %q: %w", ref, v.owner, sb, orchestrator.ErrDenied)
		}
		return f(v)
	})
}

// find returns a snapshot of the VM.
func (v *vm) find(name orchestrator.SnapshotName) *snap {
	for _, s := range v.snaps {
		if s.Name == name {
			return s
		}
	}
	return nil
}

// newer are the snapshots in the way of restoring this one.
func (v *vm) newer(s *snap) (names []orchestrator.SnapshotName) {
	for _, o := range v.snaps[slices.Index(v.snaps, s)+1:] {
		names = append(names, o.Name)
	}
	return names
}

// remove takes a snapshot out of its chain.
func (v *vm) remove(s *snap) {
	i := slices.Index(v.snaps, s)
	if i < 0 {
		return
	}
	v.snaps = slices.Delete(v.snaps, i, i+1)
	inWorkspace := s.kind == orchestrator.BoundaryWorkspace
	switch {
	case inWorkspace && v.work == s.Name:
		v.work = s.Parent
	case !inWorkspace && v.parent == s.Name:
		v.parent = s.Parent
	}
	for _, o := range v.snaps {
		if inWorkspace && o.work == s.Name {
			o.work = s.Parent
		}
		if (o.kind == orchestrator.BoundaryWorkspace) == inWorkspace && o.Parent == s.Name {
			o.Parent = s.Parent
		}
	}
}

func sortedTree(t Tree) string {
	text := ""
	for _, path := range slices.Sorted(maps.Keys(t)) {
		text += fmt.Sprintf("%s=%q ", path, t[path])
	}
	return strings.TrimSpace(text)
}
