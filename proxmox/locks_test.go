package proxmox_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"savepoint/orchestrator"
	"savepoint/proxmox"
	"savepoint/testbed/pve"
	"savepoint/testbed/pve/task"
)

// busyTexts are what the cluster says when its own wait for a lock has ended,
// however long the client would have waited.
var busyTexts = map[string]string{
	"F34 file of the vm":  "can't lock file '/var/lock/qemu-server/lock-101.conf' - got timeout",
	"F35 file of storage": "clone failed: can't lock file '/var/lock/pve-manager/pve-storage-data-zfs' - got timeout",
	"F36 cluster's":       "cfs-lock 'storage-ceph' error: got lock request timeout",
	"F41 of a backup":     "VM is locked (backup)",
}

// lockCase is one change of a VM, with the task that makes it.
type lockCase struct {
	kind  string
	ready func(context.Context, *lab, orchestrator.SnapshotRequest) error // what has to be there before
	call  func(context.Context, *proxmox.Cluster, orchestrator.SnapshotRequest) error
	steps []string // of the task, at which a storage may be asked for its lock
}

func lockCases() []lockCase {
	vm := func(r orchestrator.SnapshotRequest) orchestrator.VMRequest {
		return orchestrator.VMRequest{Sandbox: r.Sandbox, VM: r.VM, Started: r.Started}
	}
	none := func(context.Context, *lab, orchestrator.SnapshotRequest) error { return nil }
	taken := func(ctx context.Context, l *lab, r orchestrator.SnapshotRequest) error {
		return l.cluster.Snapshots().Create(ctx, r)
	}
	stopped := func(ctx context.Context, l *lab, r orchestrator.SnapshotRequest) error {
		return l.cluster.VMs().Stop(ctx, vm(r))
	}
	return []lockCase{
		{"qmsnapshot", none, func(ctx context.Context, c *proxmox.Cluster, r orchestrator.SnapshotRequest) error {
			return c.Snapshots().Create(ctx, r)
		}, []string{"prepared", "disks", "commit"}},
		{"qmrollback", taken, func(ctx context.Context, c *proxmox.Cluster, r orchestrator.SnapshotRequest) error {
			return c.Snapshots().Rollback(ctx, r)
		}, []string{"locked", "disk", "restored"}},
		{"qmdelsnapshot", taken, func(ctx context.Context, c *proxmox.Cluster, r orchestrator.SnapshotRequest) error {
			return c.Snapshots().Delete(ctx, r)
		}, []string{"marked", "disk"}},
		{"qmstart", stopped, func(ctx context.Context, c *proxmox.Cluster, r orchestrator.SnapshotRequest) error {
			return c.VMs().Start(ctx, vm(r))
		}, nil},
		{"qmstop", none, func(ctx context.Context, c *proxmox.Cluster, r orchestrator.SnapshotRequest) error {
			return c.VMs().Stop(ctx, vm(r))
		}, nil},
		{"qmdestroy", stopped, func(ctx context.Context, c *proxmox.Cluster, r orchestrator.SnapshotRequest) error {
			return c.VMs().Destroy(ctx, vm(r))
		}, nil},
	}
}

func (l *lab) snapshotRequest() orchestrator.SnapshotRequest {
	l.t.Helper()
	r := l.sandbox()
	return orchestrator.SnapshotRequest{Sandbox: r.Sandbox, VM: r.VM, Name: "sp-one"}
}

// F34 F35 F36 F41: a task that ends because the cluster did not get one of its
// own locks has done nothing. Whoever does not wait is told that somebody is in
// the way; whoever waits has exactly one more task, which does it.
func TestLockTimeoutsAreWaitedOut(t *testing.T) {
	l := startLab(t).withTemplate()
	patient := l.open(func(c *proxmox.Config) { c.LockWait = 10 * time.Second })
	for name, text := range busyTexts {
		for _, tc := range lockCases() {
			t.Run(name+"/"+tc.kind, func(t *testing.T) {
				l.server.Faults.Clear()
				r := l.snapshotRequest()
				must(t, tc.ready(t.Context(), l, r))
				began := time.Now()
				fault := pve.TaskFault{Type: tc.kind, Nth: 1, Action: task.Action{Fail: text}}
				l.server.Faults.AddTask(fault)
				err := tc.call(t.Context(), l.cluster, r)
				wantClass(t, err, orchestrator.ErrBusy)
				wantText(t, err, text)
				l.server.Faults.AddTask(fault)
				var told []orchestrator.UPID
				r.Started = func(id orchestrator.UPID) error { told = append(told, id); return nil }
				must(t, tc.call(t.Context(), patient, r))
				if len(told) != 2 {
					t.Errorf("the tasks of the one that waits: %q", told)
				}
				if tc.kind == "qmdestroy" {
					return // nobody may list the tasks of a VM that is gone
				}
				found, err := l.admin.Tasks().Find(t.Context(), r.VM, tc.kind, began)
				if err != nil || len(found) < 3 {
					t.Errorf("%d tasks, %v", len(found), err)
				}
			})
		}
	}
}

// F35 F36 F63: a storage's lock can also fail a task on its way. What that leaves
// behind is told as unknown with the way out, never as "nothing was done", and
// nobody waits for it: only an operator can take the lock away.
func TestLockTimeoutsHalfway(t *testing.T) {
	l := startLab(t).withTemplate()
	patient := l.open(func(c *proxmox.Config) { c.LockWait = 10 * time.Second })
	for _, name := range []string{"F35 file of storage", "F36 cluster's"} {
		for _, tc := range lockCases() {
			for _, step := range tc.steps {
				t.Run(name+"/"+tc.kind+" "+step, func(t *testing.T) {
					l.server.Faults.Clear()
					r := l.snapshotRequest()
					must(t, tc.ready(t.Context(), l, r))
					l.server.Faults.AddTask(pve.TaskFault{Type: tc.kind, Step: step, Nth: 1, Action: task.Action{Fail: busyTexts[name]}})
					began := time.Now()
					err := tc.call(t.Context(), patient, r)
					if took := time.Since(began); took > 8*time.Second {
						t.Errorf("it took %s", took)
					}
					st := l.status(r.VM)
					list, lerr := l.cluster.Snapshots().List(t.Context(), r.VM)
					must(t, lerr)
					switch {
					case err == nil: // it left nothing, so it was tried again
						if st.Lock != "" {
							t.Errorf("success with the lock %q", st.Lock)
						}
					case st.Lock == "":
						t.Errorf("nothing is left, and it was not tried again: %v, listed %+v", err, list)
					default:
						if !errors.Is(err, orchestrator.ErrUnknownOutcome) || errors.Is(err, orchestrator.ErrBusy) {
							t.Errorf("it left the lock %q: got %v, want that the outcome is unknown", st.Lock, err)
						}
						wantText(t, err, "qm unlock "+itoa(r.VM.ID))
						must(t, l.server.SetLock(int(r.VM.ID), ""))
						must(t, tc.call(t.Context(), patient, r))
					}
				})
			}
		}
	}
}

// F35 F63: what a task left that met a lock cannot be looked at. Then nobody knows
// whether anything was done, and it is not done again.
func TestLockTimeoutUnseen(t *testing.T) {
	l := startLab(t).withTemplate()
	patient := l.open(func(c *proxmox.Config) { c.LockWait = 10 * time.Second })
	for _, tc := range lockCases()[:3] {
		t.Run(tc.kind, func(t *testing.T) {
			l.server.Faults.Clear()
			r := l.snapshotRequest()
			must(t, tc.ready(t.Context(), l, r))
			l.server.Faults.AddTask(pve.TaskFault{Type: tc.kind, Nth: 1, Action: task.Action{Fail: busyTexts["F35 file of storage"]}})
			tasks := 0
			r.Started = func(orchestrator.UPID) error {
				tasks++
				l.server.Faults.Add(pve.Fault{Method: "GET", Path: "/nodes/*/qemu/*/snapshot", Status: 403, Message: "Permission check failed (/vms/1, VM.Audit)"})
				return nil
			}
			wantClass(t, tc.call(t.Context(), patient, r), orchestrator.ErrUnknownOutcome)
			if tasks != 1 {
				t.Errorf("%d tasks were begun", tasks)
			}
		})
	}
}

// F35 F36: never more clones at once on one storage than allowed, whatever
// templates they are of; all succeed, though the storage would refuse one more.
func TestClonesOfOneStorage(t *testing.T) {
	l := startLab(t).withTemplate()
	templates := []orchestrator.VMRef{templateVM}
	for id := orchestrator.VMID(9001); id < 9005; id++ {
		l.call("POST", "/nodes/pve1/qemu", map[string]any{"vmid": int(id), "pool": labPool, "memory": "64", "scsi0": "local:1"})
		l.call("POST", fmt.Sprintf("/nodes/pve1/qemu/%d/template", id), nil)
		templates = append(templates, orchestrator.VMRef{Node: labNode, ID: id})
	}
	w := newTold()
	c := l.open(func(cfg *proxmox.Config) {
		cfg.TokenID, cfg.TokenSecret, cfg.ClonesPerStorage, cfg.Waiting = "root@pam!admin", "admin-secret", 2, w.hear
	})
	// The first two hold the storage's turns; the third, of another template, waits.
	var first []func()
	for _, tpl := range templates[:2] {
		r := l.cloneRequest()
		r.Template, r.Full = tpl, true
		first = append(first, l.hold("qmclone", "created", func(ctx context.Context, s orchestrator.Started) error {
			r.Started = s
			return c.VMs().Clone(ctx, r)
		}))
	}
	var wg sync.WaitGroup
	errs := make([]error, 3)
	for i, tpl := range templates[2:] {
		r := l.cloneRequest()
		r.Template, r.Full = tpl, i%2 == 0
		wg.Go(func() { errs[i] = c.VMs().Clone(t.Context(), r) })
	}
	if !w.await(t.Context(), "waiting for a clone on storage local, 3 ahead") {
		t.Errorf("told %q", w.list)
	}
	for _, release := range first {
		release()
	}
	wg.Wait()
	must(t, errors.Join(errs...))
}

// F66: the cluster lists a snapshot that the storage does not have any more. The
// deletion fails and leaves lock and state; that is said with the way out, and
// once an operator unlocked the VM the rest goes by force.
func TestSnapshotGoneFromTheStorage(t *testing.T) {
	l := startLab(t).withTemplate()
	r := l.snapshotRequest()
	snaps := l.cluster.Snapshots()
	must(t, snaps.Create(t.Context(), r))
	const text = "zfs error: could not find any snapshots to destroy; check snapshot names."
	l.server.Faults.AddTask(pve.TaskFault{Type: "qmdelsnapshot", Step: "marked", Nth: 1, Action: task.Action{Fail: text}})
	err := snaps.Delete(t.Context(), r)
	wantClass(t, err, orchestrator.ErrUnknownOutcome)
	wantText(t, err, text, "snapshot-delete", "qm unlock "+itoa(r.VM.ID), `snapstate = "delete"`)
	wantClass(t, snaps.Delete(t.Context(), r), orchestrator.ErrBusy)
	must(t, l.server.SetLock(int(r.VM.ID), ""))
	before := len(l.requests.sent(0))
	must(t, l.open().Snapshots().Delete(t.Context(), r))
	forced := false
	for _, s := range l.requests.sent(before) {
		forced = forced || s.Method == "DELETE" && strings.Contains(fmt.Sprint(s.Params), "force")
	}
	if list, err := snaps.List(t.Context(), r.VM); err != nil || len(list) != 0 || !forced {
		t.Errorf("left %+v, %v; by force: %t", list, err, forced)
	}
}
