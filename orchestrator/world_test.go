package orchestrator_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"savepoint/orchestrator"
)

// world is one VM with its guest, its cluster and the journal's disk: what is
// left when an orchestrator dies. It is driven by one process at a time.
type world struct {
	box     orchestrator.Sandbox
	records []orchestrator.Record // what is on disk
	grants  []orchestrator.Grant  // as well
	session []byte                // as well
	planted map[string]string     // variables that a command's shell reports besides its own

	running bool
	lock    string
	parent  orchestrator.SnapshotName
	owner   orchestrator.SandboxID
	snaps   []*snap
	tasks   []*task

	files      map[string]string
	generation string
	boots      int           // the guest's boot id
	skew       time.Duration // of the guest's clock
	untold     bool          // the guest does not tell what is written in it
	dead       bool          // the guest does not answer
	key        string        // what it would show as its host key

	ghosts []string // steps of a command whose orchestrator died, still to come
	ran    map[string]int
	counts map[string]int // effects by name
	trace  []string

	sluggish bool // tasks end only when somebody waits for them

	// hooks let a test interfere at a call, by its name.
	hooks map[string]func(context.Context) error
}

type snap struct {
	orchestrator.Snapshot
	kind       orchestrator.Boundary
	files      map[string]string
	generation string
	boots      int
	clock      time.Time
}

type task struct {
	orchestrator.Task
	finish func() error
	ticks  int
	err    error
}

func newWorld() *world {
	w := &world{
		box: orchestrator.Sandbox{
			ID: "01jx0000000000000000000box", Name: "dev", State: orchestrator.SandboxReady,
			VM: orchestrator.VMRef{Node: "pve1", ID: 9001}, HostKey: "ssh-ed25519 AAAA", Workspace: "tank/dev",
		},
		running: true, boots: 1, key: "ssh-ed25519 AAAA",
		files: map[string]string{"/workspace/a": "old"},
		ran:   map[string]int{}, counts: map[string]int{}, hooks: map[string]func(context.Context) error{},
	}
	w.owner = w.box.ID
	w.snaps = []*snap{{Snapshot: orchestrator.Snapshot{Name: "sp-pristine", Taken: time.Now()}, kind: orchestrator.BoundaryDisk}}
	w.parent = "sp-pristine"
	return w
}

// tick lets the world go on by itself: tasks that nobody waits for end after a
// while, and so do commands whose connection is gone.
func (w *world) tick() {
	for _, k := range w.tasks {
		if k.Running && !w.sluggish {
			if k.ticks++; k.ticks > 3 {
				w.end(k)
			}
		}
	}
	if len(w.ghosts) > 0 && w.running && !w.dead {
		w.step(w.ghosts[0])
		w.ghosts = w.ghosts[1:]
	}
}

func (w *world) begin(kind, lock string, finish func() error) *task {
	k := &task{finish: finish}
	k.Task = orchestrator.Task{
		UPID: orchestrator.UPID(fmt.Sprintf("UPID:%s:%d", kind, len(w.tasks)+1)), Type: kind, VM: w.box.VM,
		Started: time.Now().Truncate(time.Second), Running: true,
	}
	w.lock = lock
	w.tasks = append(w.tasks, k)
	return k
}

func (w *world) end(k *task) {
	if !k.Running {
		return
	}
	w.lock = ""
	k.Running = false
	if k.err = k.finish(); k.err != nil {
		k.Failure = k.err.Error()
	}
}

// shell is what one command's shell has of its own.
type shell struct {
	dir string
	env map[string]string
}

// step executes one step of a command in the guest: a tiny shell.
func (w *world) step(s string) (exit int, out string) { return w.stepIn(&shell{}, s) }

func (w *world) stepIn(sh *shell, s string) (exit int, out string) {
	f := strings.Fields(s)
	switch f[0] {
	case "cd":
		sh.dir = f[1]
		return 0, ""
	case "export":
		name, value, _ := strings.Cut(f[1], "=")
		sh.env[name] = value
		return 0, ""
	case "unset":
		delete(sh.env, f[1])
		return 0, ""
	case "printenv":
		return 0, sh.env[f[1]] + "\n"
	case "pwd":
		return 0, sh.dir + "\n"
	case "echo":
		if len(f) >= 4 && f[2] == ">" {
			w.files[f[3]] = f[1]
			return 0, ""
		}
		return 0, strings.Join(f[1:], " ") + "\n"
	case "rm":
		if _, ok := w.files[f[len(f)-1]]; !ok {
			return 1, ""
		}
		delete(w.files, f[len(f)-1])
		return 0, ""
	case "cat":
		text, ok := w.files[f[1]]
		if !ok {
			return 1, ""
		}
		return 0, text
	case "mkdir": // "mkdir /panic" stands for whatever ends a guest
		if f[1] == "/panic" {
			w.dead = true
		}
		return 0, ""
	default: // false
		return 1, ""
	}
}

// stops ends everything that runs in the guest.
func (w *world) stops() { w.ghosts = nil }

func (w *world) find(name orchestrator.SnapshotName) *snap {
	for _, s := range w.snaps {
		if s.Name == name {
			return s
		}
	}
	return nil
}

// created is the call at which a boundary's snapshot is there.
func created(b orchestrator.Boundary) string {
	if b == orchestrator.BoundaryWorkspace { // it has no tasks
		return "create"
	}
	return "create wait"
}

// watchClock wants every command, a validation too, to find the right time.
func (w *world) watchClock(t testing.TB) {
	w.hooks["command"] = func(context.Context) error {
		if w.skew.Abs() > time.Second {
			t.Errorf("a command runs with a clock %s off", w.skew)
		}
		return nil
	}
}

// proc is one process: an engine's ports on the world. It can die at any call
// and can be made to fail at any; a dead one changes nothing any more.
type proc struct {
	w    *world
	n    int // calls so far; every call has a point before and one after its effect
	plan func(point int, name string, after bool) error
	gone bool
	// torn: the journal refuses everything after an unknown outcome.
	torn bool
	// tells is how the guest is at a command's end; nil: the executor cannot say.
	tells func() *orchestrator.GuestHealth
	log   []string // the points passed, for the reader of a failure
}

var errCrash = errors.New("the process died")

// call passes the point before an effect, makes it, and passes the one after.
// An error of the plan at the first keeps the effect away; at the second it
// hides it.
func (p *proc) call(ctx context.Context, name string, effect func() error) error {
	if err := p.point(name, false); err != nil {
		return err
	}
	if h := p.w.hooks[name]; h != nil {
		if err := h(ctx); err != nil {
			return err
		}
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%s: %w: %w", name, orchestrator.ErrUnavailable, err)
	}
	err := effect()
	if perr := p.point(name, true); perr != nil {
		return perr
	}
	return err
}

func (p *proc) point(name string, after bool) error {
	if p.gone {
		return errCrash
	}
	p.w.tick()
	p.n++
	p.log = append(p.log, name)
	if p.plan == nil {
		return nil
	}
	err := p.plan(p.n, name, after)
	if errors.Is(err, errCrash) {
		p.gone = true
	}
	return err
}

func (p *proc) note(format string, args ...any) {
	p.w.trace = append(p.w.trace, fmt.Sprintf(format, args...))
}

// The journal.

func (p *proc) AppendAll(ctx context.Context, rs []orchestrator.Record) error {
	if p.torn {
		return fmt.Errorf("the journal was lost: %w", orchestrator.ErrUnavailable)
	}
	err := p.call(ctx, "journal", func() error {
		for i, r := range rs {
			same := func(o orchestrator.Record) bool { return r.Key != "" && o.Sandbox == r.Sandbox && o.Key == r.Key }
			if slices.ContainsFunc(p.w.records, same) || slices.ContainsFunc(rs[:i], same) {
				return fmt.Errorf("key %q: %w", r.Key, orchestrator.ErrExists)
			}
		}
		if err := p.w.spend(rs); err != nil {
			return err
		}
		line := "journal"
		for _, r := range rs {
			r.Seq, r.Owner, r.Fence = int64(len(p.w.records)+1), "test", 1
			switch {
			case string(r.Session) == "null":
				p.w.session = nil
			case r.Session != nil:
				p.w.session = r.Session
			}
			r.Session = nil
			p.w.records = append(p.w.records, r)
			line += fmt.Sprintf("  %s → %s", r.Event, r.State)
			if r.Event == "task" {
				var d struct{ Action string }
				_ = json.Unmarshal(r.Data, &d)
				line += " (" + d.Action + ")"
			}
			if r.Settled {
				line += " settled"
			}
			if r.Key != "" {
				line += " key " + r.Key
			}
			if len(r.Spends) > 0 {
				line += fmt.Sprintf(" spends %v", r.Spends)
			}
		}
		p.note("%s", line)
		return nil
	})
	p.torn = p.torn || errors.Is(err, orchestrator.ErrUnknownOutcome)
	return err
}

// spend uses grants up with the records, all of them or none.
func (w *world) spend(rs []orchestrator.Record) error {
	spent := slices.Clone(w.grants)
	for _, r := range rs {
		for _, id := range r.Spends {
			i := slices.IndexFunc(spent, func(g orchestrator.Grant) bool { return g.ID == id && g.Sandbox == r.Sandbox })
			if i < 0 {
				return &orchestrator.GrantError{ID: id, State: "unknown"}
			}
			if s := spent[i].State(r.At); s != orchestrator.GrantOpen {
				return &orchestrator.GrantError{ID: id, State: s, Used: spent[i].Used}
			}
			spent[i].Used = r.Tx
		}
	}
	w.grants = spent
	return nil
}

func (p *proc) OpenGrants(ctx context.Context, sb orchestrator.SandboxID, now time.Time) (open []orchestrator.Grant, err error) {
	err = p.call(ctx, "grants", func() error {
		for _, g := range p.w.grants {
			if g.Sandbox == sb && g.State(now) == orchestrator.GrantOpen {
				open = append(open, g)
			}
		}
		return nil
	})
	return open, err
}

func (p *proc) Append(ctx context.Context, r orchestrator.Record) error {
	return p.AppendAll(ctx, []orchestrator.Record{r})
}

func (p *proc) Records(_ context.Context, tx orchestrator.TxID) iter.Seq2[orchestrator.Record, error] {
	return func(yield func(orchestrator.Record, error) bool) {
		if p.gone {
			yield(orchestrator.Record{}, errCrash)
			return
		}
		for _, r := range slices.Clone(p.w.records) {
			if (tx == "" || r.Tx == tx) && !yield(r, nil) {
				return
			}
		}
	}
}

func (p *proc) Close() error { return nil }

func (p *proc) ByKey(_ context.Context, sb orchestrator.SandboxID, key string) (orchestrator.TxID, bool, error) {
	if p.gone {
		return "", false, errCrash
	}
	for _, r := range p.w.records {
		if r.Sandbox == sb && r.Key == key {
			return r.Tx, true, nil
		}
	}
	return "", false, nil
}

func (p *proc) Session(context.Context, orchestrator.SandboxID) ([]byte, error) {
	if p.gone {
		return nil, errCrash
	}
	return p.w.session, nil
}

// simple is the journal without batches: every record is a write of its own.
type simple struct{ p *proc }

func (s simple) Append(ctx context.Context, r orchestrator.Record) error { return s.p.Append(ctx, r) }
func (s simple) Records(ctx context.Context, tx orchestrator.TxID) iter.Seq2[orchestrator.Record, error] {
	return s.p.Records(ctx, tx)
}
func (s simple) Close() error { return nil }
func (s simple) Session(ctx context.Context, sb orchestrator.SandboxID) ([]byte, error) {
	return s.p.Session(ctx, sb)
}
func (s simple) OpenGrants(ctx context.Context, sb orchestrator.SandboxID, now time.Time) ([]orchestrator.Grant, error) {
	return s.p.OpenGrants(ctx, sb, now)
}

// copyFiles is what a snapshot holds.
func copyFiles(m map[string]string) map[string]string { return maps.Clone(m) }
