package proxmox_test

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"savepoint/orchestrator"
	"savepoint/proxmox"
	"savepoint/testbed/pve"
	"savepoint/testbed/pve/task"
)

func wantClass(t *testing.T, err, class error) {
	t.Helper()
	if !errors.Is(err, class) {
		t.Fatalf("got %v, want class %q", err, class)
	}
}

func wantText(t *testing.T, err error, parts ...string) {
	t.Helper()
	for _, p := range parts {
		if !strings.Contains(err.Error(), p) {
			t.Errorf("error %q does not say %q", err, p)
		}
	}
}

// The answer is lost after the cluster has begun the task: the effect happens
// exactly once, the call succeeds and the task's name reaches the journal, F39.
func TestLostAnswers(t *testing.T) {
	const vm = "/nodes/*/qemu/*"
	l := startLab(t).withTemplate()
	for _, fault := range []pve.Fault{{Drop: true}, {Status: 596, Message: "Connection timed out"}, {Status: 597, Message: "Broken pipe"}} {
		t.Run(map[bool]string{true: "connection lost", false: fault.Message}[fault.Drop], func(t *testing.T) {
			fault.AfterEffect, fault.Nth = true, 1
			arm := func(method, path string) {
				f := fault
				f.Method, f.Path = method, path
				l.server.Faults.Add(f)
			}
			var told []orchestrator.UPID
			note := func(id orchestrator.UPID) error { told = append(told, id); return nil }
			vms, snaps := l.cluster.VMs(), l.cluster.Snapshots()
			clone := l.cloneRequest()
			clone.Started = note
			r := clone.VMRequest
			snap := orchestrator.SnapshotRequest{Sandbox: r.Sandbox, VM: r.VM, Name: "sp-one", Started: note}
			before := l.vmCount()
			for _, step := range []struct {
				what, method, path string
				call               func(ctx context.Context) error
			}{
				{"clone", "POST", vm + "/clone", func(ctx context.Context) error { return vms.Clone(ctx, clone) }},
				{"start", "POST", vm + "/status/start", func(ctx context.Context) error { return vms.Start(ctx, r) }},
				{"create", "POST", vm + "/snapshot", func(ctx context.Context) error { return snaps.Create(ctx, snap) }},
				{"rollback", "POST", vm + "/snapshot/*/rollback", func(ctx context.Context) error { return snaps.Rollback(ctx, snap) }},
				{"start again", "POST", vm + "/status/start", func(ctx context.Context) error { return vms.Start(ctx, r) }},
				{"delete", "DELETE", vm + "/snapshot/*", func(ctx context.Context) error { return snaps.Delete(ctx, snap) }},
				{"stop", "POST", vm + "/status/stop", func(ctx context.Context) error { return vms.Stop(ctx, r) }},
				{"destroy", "DELETE", vm, func(ctx context.Context) error { return vms.Destroy(ctx, r) }},
			} {
				l.server.Faults.Clear()
				arm(step.method, step.path)
				n := len(told)
				if err := step.call(t.Context()); err != nil {
					t.Fatalf("%s: %v", step.what, err)
				}
				if len(told) != n+1 {
					t.Errorf("%s: started was told %q", step.what, told[n:])
				}
				if step.what == "clone" {
					if got := l.vmCount(); got != before+1 {
						t.Fatalf("%d vms were made", got-before)
					}
				}
			}
			if got := l.vmCount(); got != before {
				t.Errorf("%d vms, want %d", got, before)
			}
		})
	}
}

// The request is lost before anything was done: unknown at first, and still so
// after looking, because it could be on its way. Nothing is sent twice.
func TestLostRequests(t *testing.T) {
	l := startLab(t).withTemplate()
	l.cluster = l.open(func(c *proxmox.Config) { c.ReconcileTimeout = 200 * time.Millisecond })
	r := l.sandbox()
	before := l.vmCount()
	l.server.Faults.Add(pve.Fault{Method: "POST", Path: "/nodes/*/qemu/*/clone", Nth: 1, Status: 596, Message: "Connection timed out"})
	wantClass(t, l.cluster.VMs().Clone(t.Context(), l.cloneRequest()), orchestrator.ErrUnknownOutcome)
	if got := l.vmCount(); got != before {
		t.Errorf("%d vms were made", got-before)
	}
	l.server.Faults.Add(pve.Fault{Method: "POST", Path: "/nodes/*/qemu/*/snapshot", Nth: 1, Drop: true})
	snap := orchestrator.SnapshotRequest{Sandbox: r.Sandbox, VM: r.VM, Name: "sp-one"}
	wantClass(t, l.cluster.Snapshots().Create(t.Context(), snap), orchestrator.ErrUnknownOutcome)
	if list, err := l.cluster.Snapshots().List(t.Context(), r.VM); err != nil || len(list) != 0 {
		t.Errorf("listed %+v, %v", list, err)
	}
	// 595 says that it never arrived, so it may be tried again.
	l.server.Faults.Add(pve.Fault{Method: "POST", Path: "/nodes/*/qemu/*/snapshot", Nth: 1, Status: 595, Message: "Connection refused"})
	wantClass(t, l.cluster.Snapshots().Create(t.Context(), snap), orchestrator.ErrUnavailable)
	if err := l.cluster.Snapshots().Create(t.Context(), snap); err != nil {
		t.Error(err)
	}
}

// A process that has just begun cannot tell its own lost clone from one that
// the process before it made a moment ago. It must not take that one's success
// for its own.
func TestLostRequestAfterARestart(t *testing.T) {
	l := startLab(t).withTemplate()
	l.sandbox()
	before := l.vmCount()
	fresh := l.open(func(c *proxmox.Config) { c.ReconcileTimeout, c.VerifyTimeout = 2*time.Second, 300*time.Millisecond })
	l.server.Faults.Add(pve.Fault{Method: "POST", Path: "/nodes/*/qemu/*/clone", Nth: 1, Drop: true})
	wantClass(t, fresh.VMs().Clone(t.Context(), l.cloneRequest()), orchestrator.ErrUnknownOutcome)
	if got := l.vmCount(); got != before {
		t.Errorf("%d vms were made", got-before)
	}
}

// F55: every second poll fails, and so does every second read.
func TestFailingPolls(t *testing.T) {
	l := startLab(t).withTemplate()
	for _, nth := range []int{1, 3, 4, 7} {
		l.server.Faults.Add(pve.Fault{Method: "GET", Path: "/nodes/*/tasks/*/status", Nth: nth, Status: 596, Message: "Connection timed out"})
		l.server.Faults.Add(pve.Fault{Method: "GET", Path: "/nodes/*/qemu/*/snapshot", Nth: nth, Drop: true})
	}
	r := l.sandbox()
	snap := orchestrator.SnapshotRequest{Sandbox: r.Sandbox, VM: r.VM, Name: "sp-one"}
	if err := l.cluster.Snapshots().Create(t.Context(), snap); err != nil {
		t.Fatal(err)
	}
}

// F56: a task that hangs is left alone and reported with its name; what it did
// can be learned from it later.
func TestHangingTask(t *testing.T) {
	l := startLab(t).withTemplate()
	r := l.sandbox()
	l.server.Faults.AddTask(pve.TaskFault{Type: "qmsnapshot", Nth: 1, Action: task.Action{Hang: true}})
	slow := l.open(func(c *proxmox.Config) { c.TaskTimeout = 50 * time.Millisecond })
	var id orchestrator.UPID
	snap := orchestrator.SnapshotRequest{Sandbox: r.Sandbox, VM: r.VM, Name: "sp-one", Started: func(u orchestrator.UPID) error { id = u; return nil }}
	begun := time.Now()
	err := slow.Snapshots().Create(t.Context(), snap)
	wantClass(t, err, orchestrator.ErrUnknownOutcome)
	wantText(t, err, string(id), "did not end within 50ms")
	found, err := slow.Tasks().Find(t.Context(), r.VM, "qmsnapshot", begun)
	if err != nil || len(found) != 1 || found[0].UPID != id || !found[0].Running {
		t.Fatalf("found %+v, %v", found, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
	defer cancel()
	wantClass(t, slow.Tasks().Await(ctx, id), orchestrator.ErrUnknownOutcome)
	l.server.KillTask(string(id))
	wantClass(t, slow.Tasks().Await(t.Context(), id), orchestrator.ErrUnknownOutcome) // a killed worker
}

// F63 F64: what a killed worker leaves is reported with its lock and the way
// out, never forced; once an operator unlocked, the residue is removed.
func TestResidue(t *testing.T) {
	l := startLab(t).withTemplate()
	r := l.sandbox()
	snaps := l.cluster.Snapshots()
	snap := orchestrator.SnapshotRequest{Sandbox: r.Sandbox, VM: r.VM, Name: "sp-one"}
	if err := snaps.Create(t.Context(), snap); err != nil {
		t.Fatal(err)
	}
	broken := snap
	broken.Name = "sp-two"
	l.call("PUT", "/nodes/pve1/qemu/"+itoa(r.VM.ID)+"/snapshot/sp-one/config", map[string]any{"description": "x"})
	if err := snaps.Create(t.Context(), broken); err != nil {
		t.Fatal(err)
	}
	must(t, l.server.SetSnapState(int(r.VM.ID), "sp-two", "prepare"))
	must(t, l.server.SetLock(int(r.VM.ID), "snapshot"))

	for what, err := range map[string]error{
		"create": snaps.Create(t.Context(), orchestrator.SnapshotRequest{Sandbox: r.Sandbox, VM: r.VM, Name: "sp-three"}), "rollback": snaps.Rollback(t.Context(), snap),
		"delete": snaps.Delete(t.Context(), broken), "destroy": l.cluster.VMs().Destroy(t.Context(), r),
	} {
		if !errors.Is(err, orchestrator.ErrBusy) {
			t.Errorf("%s: %v", what, err)
			continue
		}
		wantText(t, err, "locked (snapshot)", "qm unlock "+itoa(r.VM.ID))
	}
	if st := l.status(r.VM); st.Lock != "snapshot" || !st.Running {
		t.Errorf("status = %+v", st)
	}
	list, err := snaps.List(t.Context(), r.VM)
	if err != nil || len(list) != 2 || list[1].Incomplete != "prepare" {
		t.Fatalf("listed %+v, %v", list, err)
	}
	must(t, l.server.SetLock(int(r.VM.ID), "")) // the operator
	var u *orchestrator.UnsupportedError
	if err := snaps.Rollback(t.Context(), broken); !errors.As(err, &u) {
		t.Errorf("rollback to an incomplete snapshot: %v", err)
	}
	wantClass(t, snaps.Create(t.Context(), broken), orchestrator.ErrExists)
	must(t, snaps.Delete(t.Context(), broken))
	if list, err = snaps.List(t.Context(), r.VM); err != nil || len(list) != 1 {
		t.Errorf("listed %+v, %v", list, err)
	}
}

func itoa(id orchestrator.VMID) string { return strconv.Itoa(int(id)) }

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// F41: a lock that goes away is waited for; one that stays is reported.
func TestLockOfABackup(t *testing.T) {
	l := startLab(t).withTemplate()
	r := l.sandbox()
	patient := l.open(func(c *proxmox.Config) { c.LockWait = 10 * time.Second })
	must(t, l.server.SetLock(int(r.VM.ID), "backup"))
	snap := orchestrator.SnapshotRequest{Sandbox: r.Sandbox, VM: r.VM, Name: "sp-one"}
	wantClass(t, l.cluster.Snapshots().Create(t.Context(), snap), orchestrator.ErrBusy)
	done := make(chan error, 1)
	go func() { done <- patient.Snapshots().Create(t.Context(), snap) }()
	select {
	case err := <-done:
		t.Fatalf("did not wait: %v", err)
	case <-time.After(150 * time.Millisecond):
	}
	must(t, l.server.SetLock(int(r.VM.ID), ""))
	must(t, <-done)
}

// F34: the file lock's text comes out of the task; it is tried again.
func TestFileLock(t *testing.T) {
	l := startLab(t).withTemplate()
	r := l.sandbox()
	snap := orchestrator.SnapshotRequest{Sandbox: r.Sandbox, VM: r.VM, Name: "sp-one"}
	release, err := l.server.HoldFile(int(r.VM.ID))
	must(t, err)
	err = l.cluster.Snapshots().Create(t.Context(), snap)
	wantClass(t, err, orchestrator.ErrBusy)
	wantText(t, err, "got timeout")
	patient := l.open(func(c *proxmox.Config) { c.LockWait = 10 * time.Second })
	done := make(chan error, 1)
	go func() { done <- patient.Snapshots().Create(t.Context(), snap) }()
	select {
	case err := <-done:
		t.Fatalf("did not wait: %v", err)
	case <-time.After(200 * time.Millisecond):
	}
	release()
	must(t, <-done)
}

// F37: a clone that fails leaves nothing, whoever has to clear it away.
func TestFailedClone(t *testing.T) {
	l := startLab(t).withTemplate()
	before := l.vmCount()

	l.backend.FailNext("Link", errors.New("no space left on device"))
	err := l.cluster.VMs().Clone(t.Context(), l.cloneRequest())
	wantClass(t, err, orchestrator.ErrUnavailable)
	wantText(t, err, "no space left", "nothing was left behind")

	// The VM was made, its configuration is refused: it is removed again.
	l.server.Faults.Add(pve.Fault{Method: "PUT", Path: "/nodes/*/qemu/*/config", Nth: 1, Status: 403, Message: "Permission check failed (/vms/101, VM.Config.Options)"})
	err = l.cluster.VMs().Clone(t.Context(), l.cloneRequest())
	wantClass(t, err, orchestrator.ErrDenied)
	wantText(t, err, "VM.Config.Options")

	// A locked file on the way is no failure at all.
	patient := l.open(func(c *proxmox.Config) { c.LockWait = 10 * time.Second })
	l.server.Faults.AddTask(pve.TaskFault{Type: "qmclone", Nth: 1, Action: task.Action{Fail: "clone failed: can't lock file '/var/lock/pve-manager/pve-storage-local' - got timeout"}})
	r := l.cloneRequest()
	must(t, patient.VMs().Clone(t.Context(), r))
	must(t, l.cluster.VMs().Destroy(t.Context(), r.VMRequest))
	if got := l.vmCount(); got != before {
		t.Errorf("%d vms are left", got-before)
	}
}

// The process ends between the clone and its configuration: the VM is
// recognised, can be destroyed, and nothing else can be done with it, F124.
func TestHalfMadeClone(t *testing.T) {
	l := startLab(t).withTemplate()
	undo := []func(){
		l.server.Faults.Add(pve.Fault{Method: "PUT", Path: "/nodes/*/qemu/*/config", Status: 403, Message: "Permission check failed (/vms/1, VM.Config.Options)"}),
		l.server.Faults.Add(pve.Fault{Method: "DELETE", Path: "/nodes/*/qemu/*", Status: 403, Message: "Permission check failed (/vms/1, VM.Allocate)"}),
	}
	r := l.cloneRequest()
	err := l.cluster.VMs().Clone(t.Context(), r)
	wantText(t, err, "VM.Config.Options", "VM.Allocate")
	for _, f := range undo {
		f()
	}
	if st := l.status(r.VM); st.Owner != r.Sandbox {
		t.Errorf("status = %+v", st)
	}
	other := r.VMRequest
	other.Sandbox = l.newSandbox()
	wantClass(t, l.cluster.VMs().Destroy(t.Context(), other), orchestrator.ErrDenied)
	wantClass(t, l.cluster.VMs().Start(t.Context(), r.VMRequest), orchestrator.ErrDenied)
	wantClass(t, l.cluster.Snapshots().Create(t.Context(), orchestrator.SnapshotRequest{Sandbox: r.Sandbox, VM: r.VM, Name: "sp"}), orchestrator.ErrDenied)
	wantClass(t, l.cluster.VMs().Clone(t.Context(), r), orchestrator.ErrExists)
	must(t, l.cluster.VMs().Destroy(t.Context(), r.VMRequest))
}

// F78: a disk that cannot be snapshotted is named before anything is done.
func TestRawDisk(t *testing.T) {
	l := startLab(t, localStorage(pve.Storage{Format: "raw"})).withTemplate()
	r := l.cloneRequest()
	r.Full = true // raw cannot be linked
	must(t, l.cluster.VMs().Clone(t.Context(), r))
	begun := time.Now()
	err := l.cluster.Snapshots().Create(t.Context(), orchestrator.SnapshotRequest{Sandbox: r.Sandbox, VM: r.VM, Name: "sp"})
	var u *orchestrator.UnsupportedError
	if !errors.As(err, &u) || !strings.Contains(u.What, `scsi0 on storage "local"`) || u.Mend == "" {
		t.Errorf("got %v", err)
	}
	if found, err := l.cluster.Tasks().Find(t.Context(), r.VM, "qmsnapshot", begun); err != nil || len(found) != 0 {
		t.Errorf("tasks %+v, %v", found, err)
	}
}

// The start fails for a cause of the guest's: the VM is as it was.
func TestFailedStart(t *testing.T) {
	l := startLab(t).withTemplate()
	r := l.cloneRequest()
	must(t, l.cluster.VMs().Clone(t.Context(), r))
	l.backend.FailNext("Start", errors.New("QEMU exited with code 1"))
	err := l.cluster.VMs().Start(t.Context(), r.VMRequest)
	wantClass(t, err, orchestrator.ErrUnavailable)
	wantText(t, err, "QEMU exited with code 1")
	must(t, l.cluster.VMs().Start(t.Context(), r.VMRequest))
	// Destroy stops it first, F47.
	must(t, l.cluster.VMs().Destroy(t.Context(), r.VMRequest))
	if n := len(l.backend.Running()); n != 0 {
		t.Errorf("%d vms run", n)
	}
}
