package zfs_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"savepoint/orchestrator"
	"savepoint/proxmox/zfs"
)

const (
	instance = "lab"
	volume   = "tank/sandboxes/vm-104-disk-1"
	owner    = instance + "/" + string(boxID)

	boxID orchestrator.SandboxID = "01jx0000000000000000000001"
)

var (
	box    = orchestrator.Sandbox{ID: boxID, Name: "dev", VM: orchestrator.VMRef{Node: "pve1", ID: 104}, Workspace: volume}
	absent = orchestrator.VMRef{Node: "pve1", ID: 77777}
)

// what went wrong on the way to somebody.
var (
	errRefused = fmt.Errorf("connection refused: %w", orchestrator.ErrUnavailable)
	errLost    = fmt.Errorf("connection reset: %w", orchestrator.ErrUnknownOutcome)
)

// mode is how one call goes wrong.
type mode string

const (
	refused    mode = "refused"     // it never got there
	lostBefore mode = "lost before" // nobody knows; it was not done
	lostAfter  mode = "lost after"  // nobody knows; it was done
)

// world is a node with a fake zfs and a guest, with the driver before them.
type world struct {
	t      *testing.T
	dir    string // of the program and its zfs; "" when the node is simulated
	node   *pool  // the simulated one
	snaps  *zfs.Snapshots
	client *zfs.Client
	calls  []string
	faults map[int]mode // by the number of the call
	always map[string]mode
	before func(call string)

	guest guest
}

// guest keeps what it has of the volume in memory until it is told to write it.
type guest struct {
	memory    string
	dirty     bool
	frozen    time.Time // until when
	processes int       // of the agent
}

// newWorld has a simulated node.
func newWorld(t *testing.T) *world {
	t.Helper()
	return fill(&world{t: t, node: &pool{}})
}

// newNode has the real program, and processes that play zfs.
func newNode(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, dir: t.TempDir()}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(exe, filepath.Join(w.dir, "zfs")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(w.dir, "savepoint-zfs"), zfs.Program, 0o600); err != nil {
		t.Fatal(err)
	}
	return fill(w)
}

func fill(w *world) *world {
	w.t.Helper()
	w.faults, w.always = map[int]mode{}, map[string]mode{}
	w.pool(func(p *pool) {
		p.Seq, p.Free, p.Mounted = 1, 1<<30, true
		p.Datasets = map[string]*dataset{volume: {Props: map[string]string{"savepoint:owner": owner}, Content: "fresh", Txg: 1, Made: time.Now().Unix()}}
	})
	w.guest.memory = "fresh"
	w.client = zfs.NewClient(w.exchange)
	var err error
	w.snaps, err = zfs.New(zfs.Config{Instance: instance, Sandbox: w.sandbox, Node: w.client, Guest: w, Reserve: 1 << 20, Settle: 200 * time.Millisecond})
	if err != nil {
		w.t.Fatal(err)
	}
	return w
}

func (w *world) sandbox(_ context.Context, vm orchestrator.VMRef) (orchestrator.Sandbox, error) {
	if vm != box.VM {
		return orchestrator.Sandbox{}, fmt.Errorf("%s: %w", vm, orchestrator.ErrNotFound)
	}
	return box, nil
}

// pool reads and changes what is on the node.
func (w *world) pool(change func(*pool)) *pool {
	w.t.Helper()
	if w.node != nil {
		if change != nil {
			change(w.node)
		}
		return w.node
	}
	p, err := loadPool(w.dir)
	if err != nil {
		w.t.Fatal(err)
	}
	if change != nil {
		change(p)
		if err := p.save(w.dir); err != nil {
			w.t.Fatal(err)
		}
	}
	return p
}

// run is the forced command on the node.
func (w *world) run(ctx context.Context, request string) (string, error) {
	if w.node != nil {
		return w.node.answer(request), nil
	}
	cmd := exec.CommandContext(ctx, "/bin/sh", filepath.Join(w.dir, "savepoint-zfs"), "-z", filepath.Join(w.dir, "zfs"), "tank/sandboxes", "other")
	cmd.Stdin = strings.NewReader(request)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, os.Stderr
	err := cmd.Run()
	return out.String(), err
}

// call is one crossing to the node or the guest.
func (w *world) call(ctx context.Context, name string, do func() error) error {
	n := len(w.calls)
	w.calls = append(w.calls, name)
	if w.before != nil {
		w.before(name)
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%w: %w", orchestrator.ErrUnavailable, err)
	}
	m := w.faults[n]
	if m == "" {
		m = w.always[name]
	}
	switch m {
	case refused:
		return errRefused
	case lostBefore:
		return errLost
	case lostAfter:
		return errors.Join(errLost, do())
	}
	return do()
}

func (w *world) exchange(ctx context.Context, node string, request []byte) (answer []byte, err error) {
	if node != "pve1" {
		w.t.Errorf("asked node %q", node)
	}
	_, name, _ := strings.Cut(string(request), "\ndo ")
	name, _, _ = strings.Cut(name, "\n")
	err = w.call(ctx, "node "+name, func() error {
		out, err := w.run(context.WithoutCancel(ctx), string(request))
		answer = []byte(out)
		return err
	})
	return answer, err
}

// Freeze implements zfs.Guest.
func (w *world) Freeze(ctx context.Context, _ orchestrator.Sandbox, atMost time.Duration) error {
	return w.call(ctx, "freeze", func() error {
		w.flush()
		w.guest.frozen = time.Now().Add(atMost)
		return nil
	})
}

// Thaw implements zfs.Guest.
func (w *world) Thaw(ctx context.Context, _ orchestrator.Sandbox) error {
	return w.call(ctx, "thaw", func() error { w.guest.frozen = time.Time{}; return nil })
}

// Unmount implements zfs.Guest.
func (w *world) Unmount(ctx context.Context, _ orchestrator.Sandbox) error {
	return w.call(ctx, "unmount", func() error {
		w.guest.processes, w.guest.frozen = 0, time.Time{}
		w.flush()
		w.pool(func(p *pool) { p.Mounted = false })
		return nil
	})
}

// Mount implements zfs.Guest.
func (w *world) Mount(ctx context.Context, _ orchestrator.Sandbox) error {
	return w.call(ctx, "mount", func() error {
		w.pool(func(p *pool) {
			if !p.Mounted {
				w.guest.memory, p.Mounted = p.Datasets[volume].Content, true
			}
		})
		return nil
	})
}

func (w *world) flush() {
	if w.guest.dirty {
		w.pool(func(p *pool) { p.Datasets[volume].Content = w.guest.memory })
		w.guest.dirty = false
	}
}

func (w *world) frozen() bool { return time.Now().Before(w.guest.frozen) }

// write is the agent's.
func (w *world) write(text string) {
	w.t.Helper()
	switch {
	case w.frozen():
		w.t.Fatal("the guest is frozen")
	case !w.pool(nil).Mounted:
		w.t.Fatal("the workspace is not mounted")
	}
	w.guest.memory, w.guest.dirty = text, true
	w.guest.processes++
}

func request(name orchestrator.SnapshotName) orchestrator.SnapshotRequest {
	return orchestrator.SnapshotRequest{Sandbox: boxID, VM: box.VM, Name: name, Description: "words for people"}
}

func (w *world) names() (names []string) {
	w.t.Helper()
	for _, t := range w.pool(nil).Datasets[volume].Taken {
		names = append(names, strings.TrimPrefix(t.Name, "@"))
	}
	return names
}

// innocent fails when something was done that never may be.
func (w *world) innocent() {
	w.t.Helper()
	p := w.pool(nil)
	for _, c := range p.Crimes {
		w.t.Error(c)
	}
	for _, l := range p.Log {
		if verb, rest, _ := strings.Cut(l, " "); (verb == "rollback" || verb == "destroy") && (strings.HasPrefix(rest, "-") || !strings.Contains(rest, "@")) {
			w.t.Errorf("zfs %s, F72", l)
		}
	}
}
