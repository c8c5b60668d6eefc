package proxmox_test

import (
	"context"
	"errors"
	"testing"

	"savepoint/orchestrator"
	"savepoint/testbed/pve"
	"savepoint/testbed/pve/task"
)

// F63 F69: a worker dies at any of its steps. The call never reports success
// and never that nothing was done while something is left; what is left is
// listed; and once an operator took the lock away, the same call, or a delete
// before it, brings the VM to where it should be.
func TestKilledWorkers(t *testing.T) {
	type scene struct {
		l    *lab
		r    orchestrator.VMRequest
		snap orchestrator.SnapshotRequest
	}
	create := func(ctx context.Context, s scene) error { return s.l.cluster.Snapshots().Create(ctx, s.snap) }
	remove := func(ctx context.Context, s scene) error { return s.l.cluster.Snapshots().Delete(ctx, s.snap) }
	rollback := func(ctx context.Context, s scene) error { return s.l.cluster.Snapshots().Rollback(ctx, s.snap) }
	destroy := func(ctx context.Context, s scene) error { return s.l.cluster.VMs().Destroy(ctx, s.r) }
	none := func(context.Context, scene) error { return nil }
	l := startLab(t).withTemplate()
	for _, tc := range []struct {
		kind   string
		steps  []string
		before func(context.Context, scene) error
		call   func(context.Context, scene) error
		repair func(context.Context, scene) error // after the lock is gone and before the call is made again
	}{
		{"qmsnapshot", []string{"begin", "prepared", "disks", "commit"}, none, create, remove},
		{"qmrollback", []string{"begin", "locked", "disk", "restored", "stop"}, create, rollback, none},
		{"qmdelsnapshot", []string{"begin", "marked", "disk"}, create, remove, none},
		{"qmstop", []string{"begin", "stop"}, none, destroy, none},
		{"qmdestroy", []string{"begin", "destroy"}, none, destroy, none},
	} {
		for _, step := range tc.steps {
			for _, action := range []task.Action{{Kill: true}, {Fail: "nobody knows this text"}} {
				name := tc.kind + " " + step + map[bool]string{true: " killed", false: " fails"}[action.Kill]
				t.Run(name, func(t *testing.T) {
					l.server.Faults.Clear()
					r := l.sandbox()
					s := scene{l: l, r: r, snap: orchestrator.SnapshotRequest{Sandbox: r.Sandbox, VM: r.VM, Name: "sp-one"}}
					must(t, l.disk(r.VM.ID).Write(t.Context(), "before"))
					must(t, tc.before(t.Context(), s))
					l.server.Faults.AddTask(pve.TaskFault{Type: tc.kind, Step: step, Nth: 1, Action: action})
					err := tc.call(t.Context(), s)
					if err == nil {
						t.Fatal("the call succeeded although its task did not")
					}
					if !errors.Is(err, orchestrator.ErrUnknownOutcome) && !errors.Is(err, orchestrator.ErrUnavailable) {
						t.Fatalf("got %v", err)
					}
					st := l.status(r.VM)
					list, lerr := l.cluster.Snapshots().List(t.Context(), r.VM)
					must(t, lerr)
					if errors.Is(err, orchestrator.ErrUnavailable) && st.Lock != "" {
						t.Fatalf("the error says that nothing was done, the lock is %q: %v", st.Lock, err)
					}
					if errors.Is(err, orchestrator.ErrUnavailable) && tc.kind == "qmsnapshot" && len(list) != 0 {
						t.Fatalf("the error says that nothing was done, listed is %+v: %v", list, err)
					}
					if st.Lock != "" {
						wantText(t, err, "qm unlock")
						again := tc.call
						if tc.kind == "qmsnapshot" {
							wantClass(t, tc.call(t.Context(), s), orchestrator.ErrExists)
							again = remove
						}
						wantClass(t, again(t.Context(), s), orchestrator.ErrBusy)
						must(t, l.server.SetLock(int(r.VM.ID), ""))
					}
					must(t, tc.repair(t.Context(), s))
					must(t, tc.call(t.Context(), s))
					if tc.kind == "qmrollback" || tc.kind == "qmsnapshot" {
						list, lerr = l.cluster.Snapshots().List(t.Context(), r.VM)
						if lerr != nil || len(list) != 1 || list[0].Incomplete != "" || !list[0].Current {
							t.Errorf("listed %+v, %v", list, lerr)
						}
						if got, err := l.disk(r.VM.ID).Read(t.Context()); err != nil || got != "before" {
							t.Errorf("the disk holds %q, %v", got, err)
						}
					}
				})
			}
		}
	}
}

// F37 F121: the same for clones. What is left is ours by its mark and is
// removed as soon as the cluster lets it.
func TestKilledClones(t *testing.T) {
	l := startLab(t).withTemplate()
	for _, step := range []string{"begin", "created", "disk", "finish"} {
		for _, action := range []task.Action{{Kill: true}, {Fail: "nobody knows this text"}} {
			t.Run(step+map[bool]string{true: " killed", false: " fails"}[action.Kill], func(t *testing.T) {
				l.server.Faults.Clear()
				before := l.vmCount()
				r := l.cloneRequest()
				l.server.Faults.AddTask(pve.TaskFault{Type: "qmclone", Step: step, Nth: 1, Action: action})
				err := l.cluster.VMs().Clone(t.Context(), r)
				if !errors.Is(err, orchestrator.ErrUnknownOutcome) && !errors.Is(err, orchestrator.ErrUnavailable) {
					t.Fatalf("got %v", err)
				}
				st, serr := l.cluster.VMs().Status(t.Context(), r.VM)
				if serr == nil {
					t.Logf("left: %+v after %v", st, err)
					wantText(t, err, "half-made")
					if st.Owner != "" && st.Owner != r.Sandbox {
						t.Errorf("status = %+v", st)
					}
					must(t, l.server.SetLock(int(r.VM.ID), ""))
					if st.Owner == r.Sandbox {
						must(t, l.cluster.VMs().Destroy(t.Context(), r.VMRequest))
					}
				}
				if got := l.vmCount(); got != before && st.Owner == r.Sandbox {
					t.Errorf("%d vms are left", got-before)
				}
			})
		}
	}
}
