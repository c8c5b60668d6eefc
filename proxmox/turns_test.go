package proxmox_test

import (
	"context"
	"slices"
	"sync"
	"testing"

	"savepoint/orchestrator"
	"savepoint/proxmox"
	"savepoint/testbed/pve"
	"savepoint/testbed/pve/task"
)

// told collects what waiting calls say, and lets a test wait for a text.
type told struct {
	mu   sync.Mutex
	list []string
	more chan struct{}
}

func newTold() *told { return &told{more: make(chan struct{}, 100)} }

func (w *told) hear(s proxmox.Wait) {
	w.mu.Lock()
	w.list = append(w.list, s.String())
	w.mu.Unlock()
	w.more <- struct{}{}
}

func (w *told) await(ctx context.Context, text string) bool {
	for {
		w.mu.Lock()
		found := slices.Contains(w.list, text)
		w.mu.Unlock()
		if found {
			return true
		}
		select {
		case <-w.more:
		case <-ctx.Done():
			return false
		}
	}
}

// hold lets the next task of a kind hang at a step until release is called.
func (l *lab) hold(kind, step string, call func(context.Context, orchestrator.Started) error) (release func()) {
	l.t.Helper()
	struck := make(chan struct{})
	disarm := l.server.Faults.AddTask(pve.TaskFault{
		Type: kind, Step: step, Nth: 1, Action: task.Action{Hang: true}, Struck: func(task.UPID) { close(struck) },
	})
	ctx, cancel := context.WithCancel(l.t.Context())
	begun, done := make(chan orchestrator.UPID, 1), make(chan struct{})
	go func() {
		defer close(done)
		_ = call(ctx, func(id orchestrator.UPID) error { begun <- id; return nil })
	}()
	id := <-begun
	<-struck // the next hold of the kind must not take this task for its own
	return func() {
		disarm()
		cancel()
		<-done
		l.server.KillTask(string(id))
	}
}

// F34 F35 F84: a clone that has to wait says so, gives up when it is told to
// without having asked the cluster for anything, and another template's clone
// goes ahead meanwhile.
func TestWaitingClone(t *testing.T) {
	l := startLab(t).withTemplate()
	l.call("POST", "/nodes/pve1/qemu", map[string]any{"vmid": 9001, "pool": labPool, "memory": "64", "scsi0": "local:1"})
	l.call("POST", "/nodes/pve1/qemu/9001/template", nil)
	w := newTold()
	c := l.open(func(cfg *proxmox.Config) {
		cfg.Waiting, cfg.TokenID, cfg.TokenSecret = w.hear, "root@pam!admin", "admin-secret"
	})
	full := func() orchestrator.CloneRequest { r := l.cloneRequest(); r.Full = true; return r }
	first := full()
	release := l.hold("qmclone", "created", func(ctx context.Context, s orchestrator.Started) error {
		first.Started = s
		return c.VMs().Clone(ctx, first)
	})
	before := l.vmCount()
	ctx, cancel := context.WithCancel(t.Context())
	second, failed := full(), make(chan error, 1)
	go func() { failed <- c.VMs().Clone(ctx, second) }()
	if !w.await(t.Context(), "waiting for a full clone of vm 9000 on pve1, 1 ahead") {
		t.Fatalf("told %q", w.list)
	}
	other := full()
	other.Template = orchestrator.VMRef{Node: labNode, ID: 9001}
	must(t, c.VMs().Clone(t.Context(), other))
	cancel()
	wantClass(t, <-failed, orchestrator.ErrUnavailable)
	if got := l.vmCount(); got != before+1 {
		t.Errorf("%d vms were made, want one", got-before)
	}
	release()
}

// A rollback of one sandbox goes ahead although its node is full of work, and a
// new snapshot waits its turn (F41).
func TestRollbackOnFullNode(t *testing.T) {
	l := startLab(t).withTemplate()
	a, b := l.sandbox(), l.sandbox()
	w := newTold()
	c := l.open(func(cfg *proxmox.Config) { cfg.Waiting, cfg.PerNode = w.hear, 1 })
	snap := func(r orchestrator.VMRequest, name orchestrator.SnapshotName) orchestrator.SnapshotRequest {
		return orchestrator.SnapshotRequest{Sandbox: r.Sandbox, VM: r.VM, Name: name}
	}
	must(t, c.Snapshots().Create(t.Context(), snap(b, "sp-one")))
	release := l.hold("qmsnapshot", "prepared", func(ctx context.Context, s orchestrator.Started) error {
		r := snap(a, "sp-slow")
		r.Started = s
		return c.Snapshots().Create(ctx, r)
	})
	must(t, c.Snapshots().Rollback(t.Context(), snap(b, "sp-one")))
	must(t, c.VMs().Start(t.Context(), b))
	created := make(chan error, 1)
	go func() { created <- c.Snapshots().Create(t.Context(), snap(b, "sp-two")) }()
	if !w.await(t.Context(), "waiting for work on node pve1, 1 ahead") {
		t.Fatalf("told %q", w.list)
	}
	release()
	must(t, <-created)
	if !w.await(t.Context(), "goes on: work on node pve1") {
		t.Errorf("told %q", w.list)
	}
}
