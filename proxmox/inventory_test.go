package proxmox_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"savepoint/orchestrator"
	"savepoint/proxmox"
	"savepoint/testbed/pve"
	"savepoint/testbed/pve/task"
)

// leaveMemory lets a snapshot's worker die when the volume for the memory is
// there and nothing refers to it yet.
func (l *lab) leaveMemory(r orchestrator.VMRequest, name orchestrator.SnapshotName) {
	l.t.Helper()
	defer l.server.Faults.AddTask(pve.TaskFault{Type: "qmsnapshot", Step: "allocated", Nth: 1, Action: task.Action{Kill: true}})()
	err := l.cluster.Snapshots().Create(l.t.Context(), orchestrator.SnapshotRequest{Sandbox: r.Sandbox, VM: r.VM, Name: name, Memory: true})
	if err == nil {
		l.t.Fatal("the snapshot was taken although its worker died")
	}
}

// F122 F123: the inventory tells what is ours from what only looks like it,
// with the rights that the doctor asks for.
func TestInventory(t *testing.T) {
	l := startLab(t).withTemplate()
	r := l.sandbox()
	other := l.open(func(c *proxmox.Config) { c.Instance = "other" })
	theirs := l.cloneRequest()
	must(t, other.VMs().Clone(t.Context(), theirs))
	half := l.cloneRequest()
	l.call("POST", "/nodes/pve1/qemu", map[string]any{
		"vmid": int(half.VM.ID), "pool": labPool, "memory": "64",
		"description": fmt.Sprintf("savepoint/1 instance=lab sandbox=%s state=cloning", half.Sandbox),
	})
	unmarked := l.newVM()
	l.call("POST", "/nodes/pve1/qemu", map[string]any{"vmid": int(unmarked.ID), "pool": labPool, "memory": "64"})
	must(t, l.server.SetLock(int(unmarked.ID), "clone"))
	plain := l.newVM()
	l.call("POST", "/nodes/pve1/qemu", map[string]any{"vmid": int(plain.ID), "pool": labPool, "memory": "64"})

	list, unseen, err := l.cluster.Inventory(t.Context(), half.VM.ID, half.VM.ID)
	must(t, err)
	got := map[orchestrator.VMID]proxmox.Found{}
	for _, f := range list {
		got[f.VM.ID] = f
	}
	if len(unseen) > 0 || len(got) != 5 {
		t.Fatalf("found %+v, unseen %v", list, unseen)
	}
	if f := got[r.VM.ID]; !f.Ours || f.HalfMade || f.Sandbox != r.Sandbox || !f.Running || f.Lock != "" {
		t.Errorf("ours: %+v", f)
	}
	if f := got[theirs.VM.ID]; f.Ours || f.Instance != "other" || f.Sandbox != "" {
		t.Errorf("another instance's: %+v", f)
	}
	if f := got[half.VM.ID]; !f.Ours || !f.HalfMade || f.Sandbox != half.Sandbox {
		t.Errorf("half-made: %+v", f)
	}
	if f := got[unmarked.ID]; f.Ours || f.Lock != "clone" || f.Instance != "" {
		t.Errorf("unmarked: %+v", f)
	}
	if f := got[foreignID]; f.Ours || f.Instance != "" {
		t.Errorf("one with our tag and words of its own: %+v", f)
	}
	// A node that cannot be asked is said, not taken for empty.
	l.server.Faults.Add(pve.Fault{Method: "GET", Path: "/nodes/*/qemu", Status: 500, Message: "nobody knows this text"})
	if list, unseen, err = l.cluster.Inventory(t.Context(), 1, 2); err != nil || len(list) > 0 || !slices.Equal(unseen, []string{labNode}) {
		t.Errorf("%v, unseen %v, %v", list, unseen, err)
	}
}

// F64: a lock is held by the VM's own tasks, a clone's by one that is listed
// under its template, and by none that has ended.
func TestWorking(t *testing.T) {
	l := startLab(t).withTemplate()
	r := l.sandbox()
	working := func(vm orchestrator.VMRef, lock string) int {
		t.Helper()
		ids, err := l.cluster.Working(t.Context(), vm, lock)
		must(t, err)
		return len(ids)
	}
	if working(r.VM, "snapshot")+working(r.VM, "clone") != 0 {
		t.Error("tasks that have ended count")
	}
	release := l.hold("qmsnapshot", "prepared", func(ctx context.Context, s orchestrator.Started) error {
		return l.cluster.Snapshots().Create(ctx, orchestrator.SnapshotRequest{Sandbox: r.Sandbox, VM: r.VM, Name: "sp-x", Started: s})
	})
	if working(r.VM, "snapshot") != 1 || working(l.newVM(), "snapshot") != 0 {
		t.Error("the snapshot's task is not seen, or counts for others")
	}
	release()
	clone := l.cloneRequest()
	release = l.hold("qmclone", "created", func(ctx context.Context, s orchestrator.Started) error {
		clone.Started = s
		return l.cluster.VMs().Clone(ctx, clone)
	})
	if working(clone.VM, "clone") != 1 || working(clone.VM, "snapshot") != 0 {
		t.Error("the clone's task is not seen, or counts for other locks")
	}
	release()
	all, err := l.cluster.SeesAllTasks(t.Context(), labNode)
	must(t, err)
	if admin, err := l.admin.SeesAllTasks(t.Context(), labNode); err != nil || all || !admin {
		t.Errorf("the minimal role sees all tasks: %t, the administrator: %t, %v", all, admin, err)
	}
}

// F69: the memory lies where it was said, is found there, and goes with its snapshot.
// A token without the right to fill that storage makes no VM that cannot be
// snapshotted.
func TestStateStorage(t *testing.T) {
	l := startLab(t, func(c *pve.Config) { c.Storages = []pve.Storage{{ID: "local"}, {ID: "fast"}} }).withTemplate()
	elsewhere := func(c *proxmox.Config) { c.StateStorage = "fast" }
	if err := l.open(elsewhere).VMs().Clone(t.Context(), l.cloneRequest()); !errors.Is(err, orchestrator.ErrDenied) || !strings.Contains(err.Error(), "/storage/fast") {
		t.Errorf("without the right to the storage: %v", err)
	}
	c := l.open(elsewhere, func(c *proxmox.Config) { c.TokenID, c.TokenSecret = "root@pam!admin", "admin-secret" })
	r := l.cloneRequest()
	must(t, c.VMs().Clone(t.Context(), r))
	vm := orchestrator.VMRequest{Sandbox: r.Sandbox, VM: r.VM}
	must(t, c.VMs().Start(t.Context(), vm))
	must(t, c.Snapshots().Create(t.Context(), orchestrator.SnapshotRequest{Sandbox: r.Sandbox, VM: r.VM, Name: "sp-one", Memory: true}))
	saved, _, err := c.SavedMemories(t.Context())
	must(t, err)
	if len(saved) != 1 || saved[0].Storage != "fast" || saved[0].Snapshot != "sp-one" {
		t.Errorf("saved memory: %+v", saved)
	}
	must(t, c.Snapshots().Rollback(t.Context(), orchestrator.SnapshotRequest{Sandbox: r.Sandbox, VM: r.VM, Name: "sp-one", Memory: true}))
	must(t, c.Snapshots().Delete(t.Context(), orchestrator.SnapshotRequest{Sandbox: r.Sandbox, VM: r.VM, Name: "sp-one", Memory: true}))
	if saved, _, err = c.SavedMemories(t.Context()); err != nil || len(saved) != 0 {
		t.Errorf("after its snapshot is gone: %+v, %v", saved, err)
	}
}

// F69 F68: volumes of saved memory are found, and one is deleted only when
// nothing refers to it. The minimal role may not: that is a denial, not a loop.
func TestSavedMemory(t *testing.T) {
	l := startLab(t).withTemplate()
	r := l.sandbox()
	must(t, l.cluster.Snapshots().Create(t.Context(), orchestrator.SnapshotRequest{Sandbox: r.Sandbox, VM: r.VM, Name: "sp-used", Memory: true}))
	l.leaveMemory(r, "sp-lost")
	ids := func() map[orchestrator.SnapshotName]string {
		t.Helper()
		list, unseen, err := l.cluster.SavedMemories(t.Context())
		must(t, err)
		if len(unseen) > 0 {
			t.Errorf("unseen %v", unseen)
		}
		out := map[orchestrator.SnapshotName]string{}
		for _, v := range list {
			out[v.Snapshot] = v.ID
			if v.VM != r.VM.ID || v.Node != labNode || v.Storage != "local" || v.Size == 0 {
				t.Errorf("volume %+v", v)
			}
		}
		return out
	}
	before := ids()
	if len(before) != 2 {
		t.Fatalf("volumes %v", before)
	}
	ctx := t.Context()
	wantClass(t, l.admin.DeleteSavedMemory(ctx, r.VM, r.Sandbox, before["sp-used"], nil), orchestrator.ErrDenied)
	wantClass(t, l.admin.DeleteSavedMemory(ctx, r.VM, l.newSandbox(), before["sp-lost"], nil), orchestrator.ErrDenied)
	wantClass(t, l.admin.DeleteSavedMemory(ctx, r.VM, r.Sandbox, "local:100/vm-100-disk-0.qcow2", nil), orchestrator.ErrDenied)
	wantClass(t, l.cluster.DeleteSavedMemory(ctx, r.VM, r.Sandbox, before["sp-lost"], nil), orchestrator.ErrDenied)
	must(t, l.server.SetLock(int(r.VM.ID), "backup"))
	wantClass(t, l.admin.DeleteSavedMemory(ctx, r.VM, r.Sandbox, before["sp-lost"], nil), orchestrator.ErrBusy)
	must(t, l.server.SetLock(int(r.VM.ID), ""))
	if got := ids(); len(got) != 2 {
		t.Errorf("volumes %v", got)
	}
	// The answer is lost: the task is found by the volume's own id (F39).
	l.server.Faults.Add(pve.Fault{Method: "DELETE", Path: "/nodes/*/storage/*/content/*/*", Nth: 1, AfterEffect: true, Drop: true})
	var task orchestrator.UPID
	must(t, l.admin.DeleteSavedMemory(ctx, r.VM, r.Sandbox, before["sp-lost"], func(id orchestrator.UPID) error { task = id; return nil }))
	if task == "" {
		t.Error("the task's name was not told")
	}
	must(t, l.admin.DeleteSavedMemory(ctx, r.VM, r.Sandbox, before["sp-lost"], nil)) // gone is no error (F45)
	if got := ids(); len(got) != 1 || got["sp-used"] == "" {
		t.Errorf("volumes %v", got)
	}
	// F53: a storage that is too slow is said, the others are listed.
	l.server.Faults.Add(pve.Fault{Method: "GET", Path: "/nodes/*/storage/local/content", Status: 596, Message: "Connection timed out"})
	list, unseen, err := l.cluster.SavedMemories(ctx)
	if err != nil || len(list) != 0 || !slices.Equal(unseen, []string{"local on pve1"}) {
		t.Errorf("%v, unseen %v, %v", list, unseen, err)
	}
	ended, cancel := context.WithTimeout(ctx, time.Millisecond)
	defer cancel()
	<-ended.Done()
	if _, _, err := l.cluster.SavedMemories(ended); !errors.Is(err, orchestrator.ErrUnavailable) {
		t.Errorf("with no time left: %v", err)
	}
}

// F57 F65: HA and replication on a VM are seen with the minimal role.
func TestGuards(t *testing.T) {
	l := startLab(t).withTemplate()
	r, other := l.sandbox(), l.sandbox()
	l.server.SetHA(int(r.VM.ID), "started")
	l.server.SetReplication(int(r.VM.ID), "pve3", "pve2")
	l.server.SetReplication(int(other.VM.ID), "pve2")
	list, err := l.cluster.Guards(t.Context())
	must(t, err)
	want := []proxmox.Guard{
		{VM: r.VM.ID, HA: "started", Replication: []string{"pve2", "pve3"}},
		{VM: other.VM.ID, Replication: []string{"pve2"}},
	}
	slices.SortFunc(want, func(a, b proxmox.Guard) int { return int(a.VM - b.VM) })
	if diff := cmp.Diff(want, list); diff != "" {
		t.Errorf("guards (-want +got):\n%s", diff)
	}
	l.server.SetHA(int(r.VM.ID), "")
	l.server.SetReplication(int(r.VM.ID))
	if list, err = l.cluster.Guards(t.Context()); err != nil || len(list) != 1 {
		t.Errorf("%v, %v", list, err)
	}
}
