package conformance

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"savepoint/orchestrator"
)

// Cell is one place in a guest's state that a test can write and read.
type Cell struct {
	Write func(ctx context.Context, content string) error
	Read  func(ctx context.Context) (string, error)
}

// SnapshotSubject is one VM, running, without snapshots, and the Snapshotter
// to be tested on it.
type SnapshotSubject struct {
	Snapshotter orchestrator.Snapshotter
	VM          orchestrator.VMRef
	Sandbox     orchestrator.SandboxID // owner of VM
	Absent      orchestrator.VMRef     // a VM that does not exist
	Disk        Cell
	Memory      Cell // only with SnapshotCaps.Memory; read while the VM runs
	Marker      Cell // only with SnapshotCaps.Marker: the guest's generation; used while the VM runs
	Running     func(ctx context.Context) (bool, error)
	Start, Stop func(ctx context.Context) error
}

// SnapshotCaps is what an implementation can do.
type SnapshotCaps struct {
	Memory       bool          // snapshots can hold the memory
	LatestOnly   bool          // only the newest snapshot can be restored
	KeepsRunning bool          // a rollback leaves the VM running (workspace snapshots)
	Tasks        bool          // Started is called with the name of a task
	Descriptions bool          // List returns the description
	Marker       bool          // there is a guest that can be marked
	Rounds       int           // of the endurance test; 0 = 8
	Timeout      time.Duration // of one test; 0 = 1 min
	// Guest makes the subjects of the tests that look into a running guest, where
	// most tests need none and one takes long to boot. Nil: the factory makes
	// all. Memory and Marker are used in these tests only.
	Guest SnapshotFactory
}

// SnapshotFactory makes a fresh subject and registers its clean-up.
type SnapshotFactory func(t *testing.T) SnapshotSubject

// stranger owns nothing.
const stranger orchestrator.SandboxID = "00000000000000000000000000"

// Snapshotter runs the suite.
func Snapshotter(t *testing.T, factory SnapshotFactory, caps SnapshotCaps) {
	t.Helper()
	if caps.Rounds == 0 {
		caps.Rounds = 8
	}
	if caps.Timeout == 0 {
		caps.Timeout = time.Minute
	}
	if caps.Guest == nil {
		caps.Guest = factory
	}
	runSnapshot(t, factory, caps, []snapshotCase{
		{"create is listed complete and current", (*snapshotTest).createListed, true},
		{"rollback restores exactly, F20 F21", (*snapshotTest).restoresExactly, true},
		{"snapshot of a restored state, F28", (*snapshotTest).chainAfterRollback, true},
		{"a name that is taken is ErrExists, F61", (*snapshotTest).nameTaken, true},
		{"bad names are refused, F60", (*snapshotTest).badNames, true},
		{"longest name works, F60", (*snapshotTest).longestName, true},
		{"rollback to a missing one is ErrNotFound", (*snapshotTest).rollbackMissing, true},
		{"delete of a missing one is no error", (*snapshotTest).deleteMissing, true},
		{"delete keeps the present state", (*snapshotTest).deleteKeepsState, true},
		{"delete in the middle joins the chain", (*snapshotTest).deleteMiddle, true},
		{"list is the chain, oldest first", (*snapshotTest).listOrder, true},
		{"another owner is ErrDenied, F22 F121", (*snapshotTest).otherOwner, true},
		{"a missing vm is ErrNotFound", (*snapshotTest).missingVM, true},
		{"an older one is *NotLatestError and changes nothing, F70 F71", (*snapshotTest).notLatest, caps.LatestOnly},
		{"an older one can be restored", (*snapshotTest).olderRestored, !caps.LatestOnly},
		{"disk rollback leaves the vm stopped", (*snapshotTest).diskStops, !caps.KeepsRunning},
		{"rollback keeps the vm running", (*snapshotTest).keepsRunning, caps.KeepsRunning},
		{"machine snapshot of a stopped vm is refused", (*snapshotTest).machineStopped, caps.Memory},
		{"started is told before the wait, F54", (*snapshotTest).startedTold, caps.Tasks},
		{"an error of started is returned", (*snapshotTest).startedError, caps.Tasks},
		{"an ended context does nothing", (*snapshotTest).endedContext, true},
		{"many rollbacks in a row, F33", (*snapshotTest).endurance, true},
	})
	runSnapshot(t, caps.Guest, caps, []snapshotCase{
		{"rollback brings the generation marker back, F21 F27", (*snapshotTest).restoresMarker, caps.Marker},
		{"machine rollback resumes with its memory, F20 F27", (*snapshotTest).machineResumes, caps.Memory},
	})
}

// snapshotCase is one test of the suite.
type snapshotCase struct {
	name string
	run  func(s *snapshotTest)
	when bool
}

func runSnapshot(t *testing.T, factory SnapshotFactory, caps SnapshotCaps, tests []snapshotCase) {
	t.Helper()
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			if !tc.when {
				t.Skip("not a capability of this implementation")
			}
			ctx, cancel := context.WithTimeout(t.Context(), caps.Timeout)
			defer cancel()
			tc.run(&snapshotTest{T: t, ctx: ctx, caps: caps, s: factory(t)})
		})
	}
}

type snapshotTest struct {
	*testing.T
	ctx  context.Context
	caps SnapshotCaps
	s    SnapshotSubject
}

func (t *snapshotTest) request(name string) orchestrator.SnapshotRequest {
	return orchestrator.SnapshotRequest{Sandbox: t.s.Sandbox, VM: t.s.VM, Name: orchestrator.SnapshotName(name)}
}

func (t *snapshotTest) ok(what string, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

func (t *snapshotTest) create(name string) {
	t.Helper()
	t.ok("create "+name, t.s.Snapshotter.Create(t.ctx, t.request(name)))
}

func (t *snapshotTest) rollback(name string) {
	t.Helper()
	t.ok("rollback "+name, t.s.Snapshotter.Rollback(t.ctx, t.request(name)))
}

func (t *snapshotTest) delete(name string) {
	t.Helper()
	t.ok("delete "+name, t.s.Snapshotter.Delete(t.ctx, t.request(name)))
}

func (t *snapshotTest) write(content string) {
	t.Helper()
	t.ok("write disk", t.s.Disk.Write(t.ctx, content))
}

func (t *snapshotTest) wantDisk(want string) {
	t.Helper()
	got, err := t.s.Disk.Read(t.ctx)
	t.ok("read disk", err)
	if got != want {
		t.Fatalf("disk holds %q, want %q", got, want)
	}
}

func (t *snapshotTest) wantRunning(want bool) {
	t.Helper()
	got, err := t.s.Running(t.ctx)
	t.ok("running", err)
	if got != want {
		t.Fatalf("running = %v, want %v", got, want)
	}
}

func (t *snapshotTest) list() []orchestrator.Snapshot {
	t.Helper()
	l, err := t.s.Snapshotter.List(t.ctx, t.s.VM)
	t.ok("list", err)
	return l
}

func (t *snapshotTest) wantNames(want ...string) {
	t.Helper()
	var got []string
	for _, s := range t.list() {
		got = append(got, string(s.Name))
	}
	if !slices.Equal(got, want) {
		t.Fatalf("listed %q, want %q", got, want)
	}
}

func (t *snapshotTest) wantClass(what string, err, class error) {
	t.Helper()
	wantClass(t.T, what, err, class)
}

func (t *snapshotTest) createListed() {
	r := t.request("sp-one")
	r.Description = "first words"
	t.ok("create", t.s.Snapshotter.Create(t.ctx, r))
	l := t.list()
	if len(l) != 1 || l[0].Name != "sp-one" || l[0].Parent != "" || l[0].Incomplete != "" || !l[0].Current || l[0].Memory {
		t.Fatalf("listed %+v", l)
	}
	if t.caps.Descriptions && l[0].Description != "first words" {
		t.Errorf("description = %q", l[0].Description)
	}
	if age := time.Since(l[0].Taken); age.Abs() > time.Hour {
		t.Errorf("taken %v ago", age)
	}
	t.wantRunning(true)
}

func (t *snapshotTest) restoresExactly() {
	t.write("before")
	t.create("sp-one")
	t.write("after, and more than before")
	t.rollback("sp-one")
	t.wantDisk("before")
	t.wantNames("sp-one")
	if l := t.list(); !l[0].Current {
		t.Errorf("the restored snapshot is not the current one: %+v", l)
	}
}

// restoresMarker is what the engine's proof of a rollback rests on: what the
// guest was marked with after the snapshot is taken away, by every kind.
func (t *snapshotTest) restoresMarker() {
	t.mark("sp-one")
	t.create("sp-one")
	t.mark("sp-one-undo")
	t.rollback("sp-one")
	if running, err := t.s.Running(t.ctx); err == nil && !running {
		t.ok("start", t.s.Start(t.ctx))
	}
	t.wantMark("sp-one")
}

func (t *snapshotTest) chainAfterRollback() {
	t.write("one")
	t.create("sp-one")
	t.write("damage")
	t.rollback("sp-one")
	t.write("two")
	t.create("sp-two")
	t.wantNames("sp-one", "sp-two")
	t.write("damage again")
	t.rollback("sp-two")
	t.wantDisk("two")
	t.delete("sp-two")
	t.rollback("sp-one")
	t.wantDisk("one")
}

func (t *snapshotTest) nameTaken() {
	t.write("one")
	t.create("sp-one")
	t.write("two")
	t.wantClass("create", t.s.Snapshotter.Create(t.ctx, t.request("sp-one")), orchestrator.ErrExists)
	t.rollback("sp-one")
	t.wantDisk("one")
}

func (t *snapshotTest) badNames() {
	for _, name := range []string{"", "a", "1a", "-a", "a.b", "a b", "a/b", "current", "pending", "ä1", strings.Repeat("l", 41)} {
		if err := t.s.Snapshotter.Create(t.ctx, t.request(name)); err == nil {
			t.Errorf("create accepted the name %q", name)
		}
	}
	t.wantNames()
}

func (t *snapshotTest) longestName() {
	name := "n" + strings.Repeat("x", 37) + "_1"
	t.write("one")
	t.create(name)
	t.write("two")
	t.rollback(name)
	t.wantDisk("one")
	t.delete(name)
	t.wantNames()
}

func (t *snapshotTest) rollbackMissing() {
	t.write("here")
	t.wantClass("rollback", t.s.Snapshotter.Rollback(t.ctx, t.request("sp-none")), orchestrator.ErrNotFound)
	t.wantDisk("here")
	t.wantRunning(true)
}

func (t *snapshotTest) deleteMissing() {
	t.delete("sp-none")
	t.create("sp-one")
	t.delete("sp-one")
	t.delete("sp-one")
	t.wantNames()
}

func (t *snapshotTest) deleteKeepsState() {
	t.write("one")
	t.create("sp-one")
	t.write("two")
	t.delete("sp-one")
	t.wantDisk("two")
	t.wantNames()
	t.wantRunning(true)
}

func (t *snapshotTest) deleteMiddle() {
	for _, n := range []string{"sp-one", "sp-two", "sp-three"} {
		t.write(n)
		t.create(n)
	}
	t.delete("sp-two")
	l := t.list()
	if len(l) != 2 || l[1].Name != "sp-three" || l[1].Parent != "sp-one" || !l[1].Current {
		t.Fatalf("listed %+v", l)
	}
	t.write("damage")
	t.rollback("sp-three")
	t.wantDisk("sp-three")
}

func (t *snapshotTest) listOrder() {
	// The names sort against the order of time.
	names := []string{"sp-z", "sp-m", "sp-a"}
	parent := orchestrator.SnapshotName("")
	for _, n := range names {
		t.create(n)
	}
	t.wantNames(names...)
	for i, s := range t.list() {
		if s.Parent != parent || s.Current != (i == len(names)-1) {
			t.Errorf("%d: %+v, want parent %q", i, s, parent)
		}
		parent = s.Name
	}
}

func (t *snapshotTest) otherOwner() {
	t.write("one")
	t.create("sp-one")
	t.write("two")
	for _, owner := range []orchestrator.SandboxID{stranger, ""} {
		r := t.request("sp-two")
		r.Sandbox = owner
		t.wantClass("create", t.s.Snapshotter.Create(t.ctx, r), orchestrator.ErrDenied)
		r.Name = "sp-one"
		t.wantClass("rollback", t.s.Snapshotter.Rollback(t.ctx, r), orchestrator.ErrDenied)
		t.wantClass("delete", t.s.Snapshotter.Delete(t.ctx, r), orchestrator.ErrDenied)
	}
	t.wantDisk("two")
	t.wantNames("sp-one")
	t.wantRunning(true)
}

func (t *snapshotTest) missingVM() {
	r := t.request("sp-one")
	r.VM = t.s.Absent
	t.wantClass("create", t.s.Snapshotter.Create(t.ctx, r), orchestrator.ErrNotFound)
	t.wantClass("rollback", t.s.Snapshotter.Rollback(t.ctx, r), orchestrator.ErrNotFound)
	_, err := t.s.Snapshotter.List(t.ctx, t.s.Absent)
	t.wantClass("list", err, orchestrator.ErrNotFound)
}

func (t *snapshotTest) notLatest() {
	for _, n := range []string{"sp-one", "sp-two", "sp-three"} {
		t.write(n)
		t.create(n)
	}
	t.write("present")
	err := t.s.Snapshotter.Rollback(t.ctx, t.request("sp-one"))
	var notLatest *orchestrator.NotLatestError
	if !errors.As(err, &notLatest) {
		t.Fatalf("rollback: %v, want *NotLatestError", err)
	}
	if notLatest.Name != "sp-one" {
		t.Errorf("error names %q", notLatest.Name)
	}
	if n := notLatest.Newer; len(n) > 0 && !slices.Equal(n, []orchestrator.SnapshotName{"sp-two", "sp-three"}) {
		t.Errorf("newer = %q", n)
	}
	t.wantDisk("present")
	t.wantRunning(true)
	t.delete("sp-three")
	t.delete("sp-two")
	t.rollback("sp-one")
	t.wantDisk("sp-one")
}

func (t *snapshotTest) olderRestored() {
	for _, n := range []string{"sp-one", "sp-two"} {
		t.write(n)
		t.create(n)
	}
	t.write("present")
	t.rollback("sp-one")
	t.wantDisk("sp-one")
	t.rollback("sp-two")
	t.wantDisk("sp-two")
	t.wantNames("sp-one", "sp-two")
}

func (t *snapshotTest) diskStops() {
	t.create("sp-one")
	t.rollback("sp-one")
	t.wantRunning(false)
	t.ok("start", t.s.Start(t.ctx))
	t.wantRunning(true)
	t.rollback("sp-one")
	t.wantRunning(false)
}

func (t *snapshotTest) keepsRunning() {
	t.create("sp-one")
	t.rollback("sp-one")
	t.wantRunning(true)
}

// mark writes the guest's generation where there is a guest to be marked.
func (t *snapshotTest) mark(generation string) {
	t.Helper()
	if t.caps.Marker {
		t.ok("mark", t.s.Marker.Write(t.ctx, generation))
	}
}

func (t *snapshotTest) wantMark(want string) {
	t.Helper()
	if !t.caps.Marker {
		return
	}
	got, err := t.s.Marker.Read(t.ctx)
	t.ok("read the marker", err)
	if got != want {
		t.Fatalf("the guest carries %q, want %q", got, want)
	}
}

// machineResumes: disk, memory and marker are those of one instant, of the
// snapshot, whether the VM ran at the rollback or not.
func (t *snapshotTest) machineResumes() {
	t.write("disk one")
	t.ok("write memory", t.s.Memory.Write(t.ctx, "memory one"))
	t.mark("sp-ram")
	r := t.request("sp-ram")
	r.Memory = true
	t.ok("create", t.s.Snapshotter.Create(t.ctx, r))
	if l := t.list(); len(l) != 1 || !l[0].Memory {
		t.Fatalf("listed %+v", l)
	}
	t.wantRunning(true)
	for _, stop := range []bool{false, true} {
		t.write("disk two")
		t.ok("write memory", t.s.Memory.Write(t.ctx, "memory two"))
		t.mark("sp-ram-undo")
		if stop {
			t.ok("stop", t.s.Stop(t.ctx))
		}
		t.rollback("sp-ram")
		t.wantRunning(true)
		t.wantDisk("disk one")
		got, err := t.s.Memory.Read(t.ctx)
		t.ok("read memory", err)
		if got != "memory one" {
			t.Fatalf("memory holds %q", got)
		}
		t.wantMark("sp-ram")
	}
}

func (t *snapshotTest) machineStopped() {
	t.ok("stop", t.s.Stop(t.ctx))
	r := t.request("sp-ram")
	r.Memory = true
	if err := t.s.Snapshotter.Create(t.ctx, r); err == nil {
		t.Error("a snapshot with memory was taken of a stopped vm: it holds none")
	}
	t.wantNames()
}

func (t *snapshotTest) startedTold() {
	var ids []orchestrator.UPID
	note := func(id orchestrator.UPID) error { ids = append(ids, id); return nil }
	for _, call := range []func(context.Context, orchestrator.SnapshotRequest) error{t.s.Snapshotter.Create, t.s.Snapshotter.Rollback, t.s.Snapshotter.Delete} {
		r := t.request("sp-one")
		r.Started = note
		t.ok("call", call(t.ctx, r))
	}
	if len(ids) != 3 || slices.Contains(ids, "") || ids[0] == ids[1] || ids[1] == ids[2] {
		t.Errorf("started was told %q", ids)
	}
}

func (t *snapshotTest) startedError() {
	stop := errors.New("the journal is full")
	r := t.request("sp-one")
	r.Started = func(orchestrator.UPID) error { return stop }
	err := t.s.Snapshotter.Create(t.ctx, r)
	t.wantClass("create", err, orchestrator.ErrUnknownOutcome)
	// The task goes on; wait until it has ended, for the clean-up's sake.
	for {
		if l := t.list(); len(l) == 1 && l[0].Incomplete == "" {
			return
		}
		select {
		case <-t.ctx.Done():
			t.Fatal("the task did not go on")
		case <-time.After(5 * time.Millisecond):
		}
	}
}

func (t *snapshotTest) endedContext() {
	t.create("sp-one")
	ctx, cancel := context.WithCancel(t.ctx)
	cancel()
	if err := t.s.Snapshotter.Create(ctx, t.request("sp-two")); err == nil {
		t.Error("create with an ended context returned nil")
	}
	if err := t.s.Snapshotter.Rollback(ctx, t.request("sp-one")); err == nil {
		t.Error("rollback with an ended context returned nil")
	}
	t.wantNames("sp-one")
	t.wantRunning(true)
}

func (t *snapshotTest) endurance() {
	t.write("start")
	t.create("sp-base")
	for i := range t.caps.Rounds {
		name := fmt.Sprintf("sp-%d", i)
		before := fmt.Sprintf("round %d", i)
		t.write(before)
		t.create(name)
		t.write("damage")
		t.rollback(name)
		t.wantDisk(before)
		t.delete(name)
		if !t.caps.KeepsRunning {
			t.ok("start", t.s.Start(t.ctx))
		}
	}
	t.wantNames("sp-base")
	t.rollback("sp-base")
	t.wantDisk("start")
}

// wantClass fails unless err is of exactly the class.
func wantClass(t *testing.T, what string, err, class error) {
	t.Helper()
	if err == nil {
		t.Fatalf("%s: no error, want %v", what, class)
	}
	if !errors.Is(err, class) {
		t.Fatalf("%s: %v, want class %q", what, err, class)
	}
	for _, other := range []error{
		orchestrator.ErrNotFound, orchestrator.ErrExists, orchestrator.ErrBusy,
		orchestrator.ErrUnavailable, orchestrator.ErrUnknownOutcome, orchestrator.ErrDenied,
	} {
		if !errors.Is(class, other) && errors.Is(err, other) {
			t.Errorf("%s: %v is of two classes, %q and %q", what, err, class, other)
		}
	}
}
