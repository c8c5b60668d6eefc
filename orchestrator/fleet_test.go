package orchestrator_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"savepoint/orchestrator"
	"savepoint/orchestrator/journal"
	"savepoint/policy"
)

// fleet is many sandboxes that answer at once: for concurrency and speed. It
// keeps just enough state for a rollback to be provable.
type fleet struct {
	mu    sync.Mutex
	boxes map[orchestrator.VMID]*unit
	busy  map[orchestrator.SandboxID]*atomic.Int32 // commands at work
	mixed atomic.Int32                             // two at once in one sandbox
	tasks atomic.Int64
	gate  func(orchestrator.Sandbox) // called while a command runs
}

type unit struct {
	owner      orchestrator.SandboxID
	generation string
	snaps      []orchestrator.Snapshot
}

func newFleet(n int) (*fleet, []orchestrator.Sandbox) {
	f := &fleet{boxes: map[orchestrator.VMID]*unit{}, busy: map[orchestrator.SandboxID]*atomic.Int32{}}
	var all []orchestrator.Sandbox
	for i := range n {
		sb := orchestrator.Sandbox{
			ID: orchestrator.SandboxID(fmt.Sprintf("box%05d", i)), Name: fmt.Sprintf("b%d", i), State: orchestrator.SandboxReady,
			VM: orchestrator.VMRef{Node: "pve1", ID: orchestrator.VMID(9000 + i)},
		}
		f.boxes[sb.VM.ID] = &unit{owner: sb.ID}
		f.busy[sb.ID] = &atomic.Int32{}
		all = append(all, sb)
	}
	return f, all
}

func (f *fleet) at(vm orchestrator.VMRef, fn func(*unit)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	fn(f.boxes[vm.ID])
}

func (f *fleet) task(s orchestrator.Started) error {
	if s == nil {
		return nil
	}
	return s(orchestrator.UPID(fmt.Sprint("UPID:", f.tasks.Add(1))))
}

func (f *fleet) Create(_ context.Context, r orchestrator.SnapshotRequest) error {
	f.at(r.VM, func(u *unit) {
		for i := range u.snaps {
			u.snaps[i].Current = false
		}
		u.snaps = append(u.snaps, orchestrator.Snapshot{Name: r.Name, Taken: time.Now(), Current: true})
	})
	return f.task(r.Started)
}

func (f *fleet) Rollback(_ context.Context, r orchestrator.SnapshotRequest) error {
	f.at(r.VM, func(u *unit) { u.generation = string(r.Name) }) // marked just before
	return f.task(r.Started)
}

func (f *fleet) Delete(_ context.Context, r orchestrator.SnapshotRequest) error {
	f.at(r.VM, func(u *unit) {
		for i, s := range u.snaps {
			if s.Name == r.Name {
				u.snaps = append(u.snaps[:i], u.snaps[i+1:]...)
				return
			}
		}
	})
	return f.task(r.Started)
}

func (f *fleet) List(_ context.Context, vm orchestrator.VMRef) (all []orchestrator.Snapshot, err error) {
	f.at(vm, func(u *unit) { all = append(all, u.snaps...) })
	return all, nil
}

func (f *fleet) Status(_ context.Context, vm orchestrator.VMRef) (st orchestrator.VMStatus, err error) {
	f.at(vm, func(u *unit) { st = orchestrator.VMStatus{Running: true, Owner: u.owner} })
	return st, nil
}

func (f *fleet) Mark(_ context.Context, sb orchestrator.Sandbox, g string) (facts orchestrator.GuestFacts, err error) {
	f.at(sb.VM, func(u *unit) { u.generation = g })
	return f.Inspect(context.Background(), sb)
}

func (f *fleet) Inspect(_ context.Context, sb orchestrator.Sandbox) (facts orchestrator.GuestFacts, err error) {
	f.at(sb.VM, func(u *unit) {
		facts = orchestrator.GuestFacts{BootID: "b", Generation: u.generation, Clock: time.Now()}
	})
	return facts, nil
}

func (f *fleet) Run(_ context.Context, sb orchestrator.Sandbox, p policy.Permit, _ orchestrator.ExecRequest) (orchestrator.ExecResult, error) {
	if f.busy[sb.ID].Add(1) > 1 {
		f.mixed.Add(1)
	}
	defer f.busy[sb.ID].Add(-1)
	if f.gate != nil {
		f.gate(sb)
	}
	exit := 0
	if p.Command() == damage {
		exit = 1
	}
	return orchestrator.ExecResult{ExitCode: exit}, nil
}

func (f *fleet) Disconnect(orchestrator.SandboxID)                               {}
func (f *fleet) SetClock(context.Context, orchestrator.Sandbox, time.Time) error { return nil }
func (f *fleet) Start(context.Context, orchestrator.VMRequest) error             { return nil }
func (f *fleet) Stop(context.Context, orchestrator.VMRequest) error              { return nil }
func (f *fleet) Await(context.Context, orchestrator.UPID) error                  { return nil }
func (f *fleet) Clone(context.Context, orchestrator.CloneRequest) error          { return nil }
func (f *fleet) Destroy(context.Context, orchestrator.VMRequest) error           { return nil }
func (f *fleet) Find(context.Context, orchestrator.VMRef, string, time.Time) ([]orchestrator.Task, error) {
	return nil, nil
}

func (f *fleet) engine(t testing.TB, j orchestrator.Journal) *orchestrator.Engine {
	t.Helper()
	e, err := orchestrator.New(orchestrator.Config{
		Journal: j, Decider: newDecider(t), Hypervisor: f, Executor: f, Guest: f, Tasks: f,
		Snapshotters: map[orchestrator.Boundary]orchestrator.Snapshotter{orchestrator.BoundaryMachine: f},
	})
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func openJournal(t testing.TB, path string) *journal.Journal {
	t.Helper()
	j, err := journal.Open(path, journal.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := j.Close(); err != nil {
			t.Errorf("close the journal: %v", err)
		}
	})
	return j
}

// Many sandboxes side by side on the real journal, several callers for each:
// one transaction at a time in a sandbox, the others are told to wait, nothing
// is mixed up, and the journal tells the whole story afterwards.
func TestManySandboxes(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "journal.db")
	j := openJournal(t, path)
	f, boxes := newFleet(8)
	e := f.engine(t, j)
	f.gate = func(orchestrator.Sandbox) { runtime.Gosched() }
	ctx := context.Background()
	var committed, rolled, busy atomic.Int32
	var wg sync.WaitGroup
	for i := range 3 * len(boxes) {
		wg.Go(func() {
			for n := range 4 {
				command, want := overwrite, orchestrator.StateCommitted
				if n%2 == 1 {
					command, want = damage, orchestrator.StateRolledBack
				}
				o, err := e.Run(ctx, orchestrator.Spec{Sandbox: boxes[i%len(boxes)], Command: command})
				switch {
				case errors.Is(err, orchestrator.ErrBusy):
					busy.Add(1)
				case err != nil || o.State != want:
					t.Errorf("%s: %s (%s), %v", command, o.State, o.Reason, err)
				case want == orchestrator.StateCommitted:
					committed.Add(1)
				default:
					rolled.Add(1)
				}
			}
		})
	}
	wg.Wait()
	if f.mixed.Load() != 0 {
		t.Errorf("%d commands ran beside another one in a sandbox", f.mixed.Load())
	}
	if committed.Load() == 0 || rolled.Load() == 0 {
		t.Errorf("%d committed, %d rolled back, %d busy", committed.Load(), rolled.Load(), busy.Load())
	}
	if _, err := e.Collect(ctx); err != nil {
		t.Error(err)
	}
	for _, u := range f.boxes {
		if len(u.snaps) != 0 {
			t.Errorf("%d snapshots are left on the VM of %s", len(u.snaps), u.owner)
		}
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	// Another process reads it all again and finds nothing to do.
	j = openJournal(t, path)
	txs, err := orchestrator.List(ctx, j, orchestrator.Filter{})
	if err != nil || len(txs) != int(committed.Load()+rolled.Load()) {
		t.Errorf("%d transactions are in the journal, want %d; %v", len(txs), committed.Load()+rolled.Load(), err)
	}
	for _, tx := range txs {
		if !tx.Settled || tx.Owner != j.Instance() {
			t.Errorf("transaction %s is %s, settled %t, owner %q", tx.ID, tx.State, tx.Settled, tx.Owner)
		}
	}
	newest, err := orchestrator.List(ctx, j, orchestrator.Filter{Limit: 5, States: []orchestrator.State{orchestrator.StateCommitted}})
	if err != nil || len(newest) != 5 {
		t.Errorf("the newest five: %d, %v", len(newest), err)
	}
	for i, tx := range newest {
		if tx.State != orchestrator.StateCommitted || (i > 0 && tx.Steps[0].Seq >= newest[i-1].Steps[0].Seq) {
			t.Errorf("place %d: %s %s", i, tx.ID, tx.State)
		}
	}
	if outs, err := f.engine(t, j).Recover(ctx); len(outs) != 0 || err != nil {
		t.Errorf("recover: %v, %v", outs, err)
	}
}

// A second transaction in a sandbox at work is refused and says which one is.
func TestOneAtATime(t *testing.T) {
	t.Parallel()
	j := openJournal(t, filepath.Join(t.TempDir(), "journal.db"))
	f, boxes := newFleet(2)
	e := f.engine(t, j)
	ctx := context.Background()
	entered, leave := make(chan struct{}), make(chan struct{})
	f.gate = func(sb orchestrator.Sandbox) {
		if sb.ID == boxes[0].ID {
			close(entered)
			<-leave
		}
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		if o, err := e.Run(ctx, orchestrator.Spec{Sandbox: boxes[0], Command: overwrite}); err != nil || o.State != orchestrator.StateCommitted {
			t.Errorf("the first: %s, %v", o.State, err)
		}
	})
	<-entered
	if _, err := e.Run(ctx, orchestrator.Spec{Sandbox: boxes[0], Command: overwrite}); !errors.Is(err, orchestrator.ErrBusy) {
		t.Errorf("the second: %v", err)
	}
	if _, err := e.Hold(ctx, boxes[0], "reset"); !errors.Is(err, orchestrator.ErrBusy) {
		t.Errorf("hold: %v", err)
	}
	if err := e.Forget(ctx, boxes[0].ID); !errors.Is(err, orchestrator.ErrBusy) {
		t.Errorf("forget: %v", err)
	}
	if outs, err := e.Recover(ctx); len(outs) != 0 || err != nil {
		t.Errorf("recover touched a transaction at work: %v, %v", outs, err)
	}
	if o, err := e.Run(ctx, orchestrator.Spec{Sandbox: boxes[1], Command: overwrite}); err != nil || o.State != orchestrator.StateCommitted {
		t.Errorf("another sandbox: %s, %v", o.State, err)
	}
	close(leave)
	wg.Wait()
	release, err := e.Hold(ctx, boxes[0], "reset")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := e.Run(ctx, orchestrator.Spec{Sandbox: boxes[0], Command: overwrite}); !errors.Is(err, orchestrator.ErrBusy) {
		t.Errorf("run in a held sandbox: %v", err)
	}
	release()
	f.gate = nil
	if _, err := e.Run(ctx, orchestrator.Spec{Sandbox: boxes[0], Command: overwrite}); err != nil {
		t.Errorf("run after the hold: %v", err)
	}
}

// memory is a journal without a disk, to measure the engine alone.
type memory struct {
	proc
	mu sync.Mutex
	n  int
}

func (m *memory) AppendAll(_ context.Context, rs []orchestrator.Record) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.n += len(rs)
	return nil
}

func BenchmarkEngine(b *testing.B) {
	for _, kind := range []string{"memory", "disk"} {
		for _, command := range []string{"cat /workspace/a", overwrite, damage} {
			name := map[string]string{overwrite: "commit", damage: "rollback"}[command]
			if name == "" {
				name = "read-only"
			}
			b.Run(kind+"/"+name, func(b *testing.B) {
				const n = 1000
				f, boxes := newFleet(n)
				var j orchestrator.Journal = &memory{proc: proc{w: newWorld()}}
				if kind == "disk" {
					j = openJournal(b, filepath.Join(b.TempDir(), "journal.db"))
				}
				e := f.engine(b, j)
				var next atomic.Int64
				b.SetParallelism(64)
				b.ResetTimer()
				b.RunParallel(func(p *testing.PB) {
					for p.Next() {
						sb := boxes[next.Add(1)%n]
						if _, err := e.Run(context.Background(), orchestrator.Spec{Sandbox: sb, Command: command}); err != nil && !errors.Is(err, orchestrator.ErrBusy) {
							b.Error(err)
						}
					}
				})
				b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "tx/s")
			})
		}
	}
}
