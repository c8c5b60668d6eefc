package proxmox_test

import (
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"savepoint/orchestrator"
	"savepoint/proxmox"
	"savepoint/testbed/pve"
	"savepoint/testbed/pve/task"
)

// F30: a branch is made from a template only, whose disks nothing writes to:
// never from a VM that runs or may run, ours or not. Nothing is asked of the
// cluster for it.
func TestOnlyTemplatesAreBranched(t *testing.T) {
	l := startLab(t).withTemplate()
	running := l.sandbox()
	stopped := l.sandbox()
	must(t, l.cluster.VMs().Stop(t.Context(), stopped))
	for name, from := range map[string]orchestrator.VMRef{
		"a running sandbox": running.VM, "a stopped one": stopped.VM, "somebody's vm": {Node: labNode, ID: foreignID},
	} {
		for _, full := range []bool{false, true} {
			before, began := l.vmCount(), time.Now()
			r := l.cloneRequest()
			r.Template, r.Full = from, full
			err := l.admin.VMs().Clone(t.Context(), r)
			var u *orchestrator.UnsupportedError
			if !errors.As(err, &u) || u.Mend == "" {
				t.Errorf("%s, full %t: %v; want *UnsupportedError", name, full, err)
			}
			found, err := l.admin.Tasks().Find(t.Context(), from, "qmclone", began)
			if err != nil || len(found) != 0 || l.vmCount() != before {
				t.Errorf("%s, full %t: tasks %+v, %v, %d vms more", name, full, found, err, l.vmCount()-before)
			}
		}
	}
}

// F72 F73: a rollback is to the snapshot that was named, also when another tool
// has taken one since. Where the storage refuses that, the refusal names what is
// in the way; nothing is deleted for it and the VM runs on as it was.
func TestRollbackIsToTheNamedOne(t *testing.T) {
	for name, tc := range map[string]struct {
		storage pve.Storage
		refused bool
	}{
		"qcow2":        {pve.Storage{}, false},
		"zfs":          {pve.Storage{Type: "zfspool"}, true},
		"volume chain": {pve.Storage{VolumeChain: true}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := startLab(t, localStorage(tc.storage)).withTemplate()
			r := l.snapshotRequest()
			snaps, disk := l.cluster.Snapshots(), l.disk(r.VM.ID)
			must(t, disk.Write(t.Context(), "at the snapshot"))
			must(t, snaps.Create(t.Context(), r))
			must(t, disk.Write(t.Context(), "damaged"))
			l.call("POST", "/nodes/pve1/qemu/"+itoa(r.VM.ID)+"/snapshot", map[string]any{"snapname": "autodaily"})
			must(t, disk.Write(t.Context(), "damaged more"))
			err := snaps.Rollback(t.Context(), r)
			list, lerr := snaps.List(t.Context(), r.VM)
			must(t, lerr)
			var names []orchestrator.SnapshotName
			for _, s := range list {
				names = append(names, s.Name)
			}
			slices.Sort(names)
			if !slices.Equal(names, []orchestrator.SnapshotName{"autodaily", "sp-one"}) {
				t.Errorf("listed %q", names)
			}
			want, running := "at the snapshot", false
			if tc.refused {
				var newer *orchestrator.NotLatestError
				if !errors.As(err, &newer) || !slices.Equal(newer.Newer, []orchestrator.SnapshotName{"autodaily"}) {
					t.Errorf("got %v, want *NotLatestError with the newer one", err)
				}
				want, running = "damaged more", true
			} else {
				must(t, err)
			}
			if got, err := disk.Read(t.Context()); err != nil || got != want {
				t.Errorf("the disk holds %q, %v; want %q", got, err, want)
			}
			if st := l.status(r.VM); st.Running != running || st.Lock != "" {
				t.Errorf("status %+v", st)
			}
		})
	}
}

// F74: the cluster lists a snapshot that the storage lost. Found out before
// anything is done, it is told as missing and the VM runs on; found out on the
// way, the outcome is unknown and the way out is told. It is never a success.
func TestRollbackToALostSnapshot(t *testing.T) {
	l := startLab(t, localStorage(pve.Storage{Type: "zfspool"})).withTemplate()
	snaps := l.cluster.Snapshots()
	r := l.snapshotRequest()
	must(t, snaps.Create(t.Context(), r))
	const text = "can't rollback, snapshot 'sp-one' does not exist on 'tank:vm-101-disk-0'"
	l.server.Faults.AddTask(pve.TaskFault{Type: "qmrollback", Nth: 1, Action: task.Action{Fail: text}})
	err := snaps.Rollback(t.Context(), r)
	wantClass(t, err, orchestrator.ErrNotFound)
	wantText(t, err, text)
	if st := l.status(r.VM); !st.Running || st.Lock != "" {
		t.Errorf("status %+v", st)
	}

	lost := pve.Disk{Path: l.diskPath(r.VM.ID)}
	must(t, l.backend.Disks().DeleteSnapshot(t.Context(), lost, "sp-one"))
	err = snaps.Rollback(t.Context(), r)
	wantClass(t, err, orchestrator.ErrUnknownOutcome)
	if st := l.status(r.VM); st.Lock == "" {
		t.Fatalf("the task left nothing: %+v", st)
	}
	wantText(t, err, "disks may be mixed", "qm unlock "+itoa(r.VM.ID))
}

// F80: a guest agent that does not come back from freezing holds the snapshot's
// task up. Whoever waits for it is let go at the deadline with the task's name,
// and what became of it can be learned later.
func TestFreezeHangs(t *testing.T) {
	l := startLab(t, func(c *pve.Config) { c.AgentTimeout = 5 * time.Second }).withTemplate()
	r := l.snapshotRequest()
	back := make(chan struct{})
	l.backend.SetAgent(int(r.VM.ID), func(command string, _ any) (any, error) {
		if command == "guest-fsfreeze-freeze" {
			<-back
		}
		return map[string]any{}, nil
	})
	var id orchestrator.UPID
	r.Started = func(u orchestrator.UPID) error { id = u; return nil }
	hasty := l.open(func(c *proxmox.Config) { c.TaskTimeout = 100 * time.Millisecond })
	began := time.Now()
	err := hasty.Snapshots().Create(t.Context(), r)
	took := time.Since(began)
	close(back)
	wantClass(t, err, orchestrator.ErrUnknownOutcome)
	wantText(t, err, string(id))
	if took > 4*time.Second {
		t.Errorf("it took %s", took)
	}
	must(t, l.cluster.Tasks().Await(t.Context(), id))
	if list, err := l.cluster.Snapshots().List(t.Context(), r.VM); err != nil || len(list) != 1 || list[0].Incomplete != "" {
		t.Errorf("listed %+v, %v", list, err)
	}
	r.Started = nil
	must(t, l.cluster.Snapshots().Delete(t.Context(), r))
}

// F81 F82: a guest whose agent is silent or refuses to freeze, and one that is
// paused and cannot answer, get their snapshot all the same: of the disks as a
// power cut would leave them. An agent that was asked to freeze is always asked
// to thaw.
func TestSnapshotWithoutFreeze(t *testing.T) {
	for name, tc := range map[string]struct {
		agent  func(command string) error // nil: it does not answer
		paused bool
		want   string // what the agent was asked
	}{
		"it answers":       {agent: func(string) error { return nil }, want: "ping fsfreeze-freeze fsfreeze-thaw"},
		"F81 it is silent": {},
		"F82 paused":       {paused: true},
		"F81 it will not": {agent: func(command string) error {
			if command == "guest-fsfreeze-freeze" {
				return &pve.AgentError{Class: "GenericError", Desc: "failed to freeze /workspace: Resource busy"}
			}
			return nil
		}, want: "ping fsfreeze-freeze fsfreeze-thaw"},
	} {
		t.Run(name, func(t *testing.T) {
			l := startLab(t).withTemplate()
			r := l.snapshotRequest()
			var mu sync.Mutex
			var asked []string
			if tc.agent != nil {
				l.backend.SetAgent(int(r.VM.ID), func(command string, _ any) (any, error) {
					mu.Lock()
					defer mu.Unlock()
					asked = append(asked, strings.TrimPrefix(command, "guest-"))
					return map[string]any{}, tc.agent(command)
				})
			}
			must(t, l.disk(r.VM.ID).Write(t.Context(), "before"))
			if tc.paused {
				l.call("POST", "/nodes/pve1/qemu/"+itoa(r.VM.ID)+"/status/suspend", nil)
			}
			must(t, l.cluster.Snapshots().Create(t.Context(), r))
			mu.Lock()
			if got := strings.Join(asked, " "); got != tc.want {
				t.Errorf("the agent was asked %q, want %q", got, tc.want)
			}
			mu.Unlock()
			must(t, l.disk(r.VM.ID).Write(t.Context(), "after"))
			must(t, l.cluster.Snapshots().Rollback(t.Context(), r))
			if got, err := l.disk(r.VM.ID).Read(t.Context()); err != nil || got != "before" {
				t.Errorf("the disk holds %q, %v", got, err)
			}
		})
	}
}

// F85: where no storage takes images it is said which one could, with the command.
func TestImportStorage(t *testing.T) {
	store := func(id, kind string, active bool, content ...string) proxmox.Storage {
		return proxmox.Storage{ID: id, Type: kind, Active: active, Content: content}
	}
	zfs, iso := store("zfs", "zfspool", true, "images"), store("local", "dir", true, "iso", "backup")
	good, down := store("nfs", "nfs", true, "images", "import"), store("down", "nfs", false, "import")
	for name, tt := range map[string]struct {
		id         string
		list       []proxmox.Storage
		want       string
		what, mend string
	}{
		"one takes them":      {"", []proxmox.Storage{zfs, iso, good}, "nfs", "", ""},
		"it is named":         {"nfs", []proxmox.Storage{iso, good}, "nfs", "", ""},
		"one could":           {"", []proxmox.Storage{zfs, iso, down}, "", `none of them has the content type "import"`, "pvesm set local --content iso,backup,import"},
		"the named one could": {"local", []proxmox.Storage{iso, good}, "", `storage local of node pve1 has not the content type "import"`, "pvesm set local --content iso,backup,import"},
		"the named one never": {"zfs", []proxmox.Storage{zfs, good}, "", "storage zfs of node pve1 takes no images", "an active storage of files"},
		"none could":          {"", []proxmox.Storage{zfs, down}, "", "no storage of node pve1 takes images", "pvesm add dir images"},
	} {
		got, missing := proxmox.ImportStorage("pve1", tt.id, tt.list)
		switch {
		case got != tt.want || (missing == nil) != (tt.want != ""):
			t.Errorf("%s: %q, %v; want %q", name, got, missing, tt.want)
		case missing != nil && (!strings.Contains(missing.What, tt.what) || !strings.Contains(missing.Mend, tt.mend)):
			t.Errorf("%s: %v", name, missing)
		}
	}
}
