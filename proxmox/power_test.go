package proxmox

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"savepoint/orchestrator"
)

// sandboxConfig is what the cluster says of a VM of testSandbox.
func sandboxConfig() answer {
	return answer{data: map[string]any{
		"name": "sb", "tags": "savepoint;savepoint-lab", "description": mark{instance: "lab", sandbox: testSandbox, state: stateReady}.String(),
		"scsi0": "local-zfs:vm-100-disk-0,size=8G",
	}}
}

// F57: under HA the task ends at once and the VM starts later; Start returns
// when it runs, although that takes longer than results usually may.
func TestStartUnderHA(t *testing.T) {
	s := newScripted(t)
	s.always("GET /nodes/pve1/qemu/100/config", sandboxConfig())
	begun := make(chan time.Time, 1)
	ha := strings.Replace(testUPID, "qmsnapshot", "hastart", 1)
	s.on("POST /nodes/pve1/qemu/100/status/start", func(*http.Request, []byte) answer { begun <- time.Now(); return answer{data: ha} })
	s.always("GET /nodes/pve1/tasks/"+ha+"/status", stopped("OK"))
	var at time.Time
	s.on("GET /nodes/pve1/qemu/100/snapshot", func(*http.Request, []byte) answer {
		select {
		case at = <-begun:
		default:
		}
		running := 0
		if !at.IsZero() && time.Since(at) > 150*time.Millisecond {
			running = 1
		}
		return answer{data: []map[string]any{{"name": "current", "running": running}}}
	})
	c := s.open(t, func(c *Config) { c.VerifyTimeout = 20 * time.Millisecond })
	var told orchestrator.UPID
	r := orchestrator.VMRequest{Sandbox: testSandbox, VM: testVM, Started: func(u orchestrator.UPID) error { told = u; return nil }}
	if err := c.VMs().Start(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	if string(told) != ha {
		t.Errorf("told %q", told)
	}
}

// Without HA a VM that does not run after a task that ended well is reported.
func TestStartWithoutEffect(t *testing.T) {
	s := newScripted(t)
	s.always("GET /nodes/pve1/qemu/100/config", sandboxConfig())
	s.always("GET /nodes/pve1/qemu/100/snapshot", answer{data: []map[string]any{{"name": "current", "running": 0}}})
	s.always("POST /nodes/pve1/qemu/100/status/start", answer{data: testUPID})
	s.always(statusKey, stopped("OK"))
	c := s.open(t, func(c *Config) { c.VerifyTimeout = 500 * time.Millisecond })
	err := c.VMs().Start(t.Context(), orchestrator.VMRequest{Sandbox: testSandbox, VM: testVM})
	wantClass(t, err, orchestrator.ErrUnknownOutcome)
	wantText(t, err, "does not run")
}

// "already running" is what was wanted; other refusals are not, F46 F59.
func TestStartRaces(t *testing.T) {
	s := newScripted(t)
	s.always("GET /nodes/pve1/qemu/100/config", sandboxConfig())
	s.inTurn("GET /nodes/pve1/qemu/100/snapshot",
		answer{data: []map[string]any{{"name": "current", "running": 0}}}, answer{data: []map[string]any{{"name": "current", "running": 1}}})
	s.always("POST /nodes/pve1/qemu/100/status/start", answer{data: testUPID})
	s.always(statusKey, stopped("VM 100 already running"))
	if err := s.open(t).VMs().Start(t.Context(), orchestrator.VMRequest{Sandbox: testSandbox, VM: testVM}); err != nil {
		t.Error(err)
	}
}

// F58: a VM that is not on its node any more is not gone.
func TestDestroyOfAMovedVM(t *testing.T) {
	s := newScripted(t)
	s.always("GET /nodes/pve1/qemu/100/config", answer{status: 500, message: "Configuration file 'nodes/pve1/qemu-server/100.conf' does not exist"})
	s.always("GET /cluster/nextid", answer{status: 400, message: "Parameter verification failed.", errors: map[string]string{"vmid": "VM 100 already exists"}})
	err := s.open(t).VMs().Destroy(t.Context(), orchestrator.VMRequest{Sandbox: testSandbox, VM: testVM})
	wantClass(t, err, orchestrator.ErrDenied)
	wantText(t, err, "moved")
}

// F52: the result may be a moment late, and says what is missing when it stays away.
func TestCreateVerifies(t *testing.T) {
	entry := map[string]any{"name": "sp", "snaptime": 1, "vmstate": 0}
	current := func(parent string) map[string]any {
		return map[string]any{"name": "current", "parent": parent, "running": 1}
	}
	list := func(es ...map[string]any) answer { return answer{data: es} }
	prepare := map[string]any{"name": "sp", "snaptime": 1, "snapstate": "prepare"}
	for _, tc := range []struct {
		name string
		list []answer
		says string
	}{
		{"late", []answer{list(current("")), list(current("")), list(prepare, current("")), list(entry, current("")), list(entry, current("sp"))}, ""},
		{"never listed", []answer{list(current(""))}, "not listed"},
		{"incomplete", []answer{list(current("")), list(prepare, current("sp"))}, "snapstate = prepare"},
		{"not the parent", []answer{list(current("")), list(entry, current("other"))}, `descends from "other"`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := newScripted(t)
			s.always("GET /nodes/pve1/qemu/100/config", sandboxConfig())
			s.always("GET /nodes/pve1/qemu/100/feature", answer{data: map[string]any{"hasFeature": 1}})
			s.inTurn("GET /nodes/pve1/qemu/100/snapshot", tc.list...)
			s.always("POST /nodes/pve1/qemu/100/snapshot", answer{data: testUPID})
			s.always(statusKey, stopped("WARNINGS: 1"))
			c := s.open(t, func(c *Config) {
				if tc.says != "" {
					c.VerifyTimeout = 500 * time.Millisecond
				}
			})
			err := c.Snapshots().Create(t.Context(), orchestrator.SnapshotRequest{Sandbox: testSandbox, VM: testVM, Name: "sp"})
			if tc.says == "" {
				if err != nil {
					t.Fatal(err)
				}
				return
			}
			wantClass(t, err, orchestrator.ErrUnknownOutcome)
			wantText(t, err, tc.says)
		})
	}
}

// F65: a storage that is busy stops the task halfway, and the task leaves its
// lock. That is not "busy", which would say that nothing was done.
func TestStorageBusyHalfway(t *testing.T) {
	type call func(*Snapshots, orchestrator.SnapshotRequest) error
	remove := call(func(s *Snapshots, r orchestrator.SnapshotRequest) error { return s.Delete(t.Context(), r) })
	rollback := call(func(s *Snapshots, r orchestrator.SnapshotRequest) error { return s.Rollback(t.Context(), r) })
	for _, tc := range []struct {
		name            string
		call            call
		lock, snapstate string // after the task
		class           error
		says            string
	}{
		{"delete leaves its lock", remove, "snapshot-delete", "delete", orchestrator.ErrUnknownOutcome, "qm unlock 100"},
		{"delete leaves nothing", remove, "", "", orchestrator.ErrBusy, "dataset is busy"},
		{"rollback leaves its lock", rollback, "rollback", "", orchestrator.ErrUnknownOutcome, "disks may be mixed"},
		{"rollback leaves nothing", rollback, "", "", orchestrator.ErrBusy, "dataset is busy"},
		{"rollback, then a backup begins", rollback, "backup", "", orchestrator.ErrBusy, "dataset is busy"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := newScripted(t)
			list := func(state string) answer {
				e := map[string]any{"name": "sp", "snaptime": 1}
				if state != "" {
					e["snapstate"] = state
				}
				return answer{data: []map[string]any{e, {"name": "current", "parent": "sp"}}}
			}
			after := sandboxConfig()
			if tc.lock != "" {
				after.data.(map[string]any)["lock"] = tc.lock
			}
			s.inTurn("GET /nodes/pve1/qemu/100/config", sandboxConfig(), after)
			s.inTurn("GET /nodes/pve1/qemu/100/snapshot", list(""), list(tc.snapstate))
			s.always("DELETE /nodes/pve1/qemu/100/snapshot/sp", answer{data: testUPID})
			s.always("POST /nodes/pve1/qemu/100/snapshot/sp/rollback", answer{data: testUPID})
			s.always(statusKey, stopped("zfs error: cannot destroy snapshot tank/vm-100-disk-0@sp: dataset is busy"))
			err := tc.call(s.open(t).Snapshots(), orchestrator.SnapshotRequest{Sandbox: testSandbox, VM: testVM, Name: "sp"})
			wantClass(t, err, tc.class)
			wantText(t, err, tc.says)
			if tc.class == orchestrator.ErrUnknownOutcome && errors.Is(err, orchestrator.ErrBusy) {
				t.Errorf("it is also busy: %v", err)
			}
		})
	}
}

// While waiting for a lock the end of the context is respected, and the error
// still says that nothing was done and who is in the way, F38 F41 F64.
func TestLockWaitEndsWithTheContext(t *testing.T) {
	s := newScripted(t)
	locked := sandboxConfig()
	locked.data.(map[string]any)["lock"] = "backup"
	s.always("GET /nodes/pve1/qemu/100/config", locked)
	s.always("GET /nodes/pve1/qemu/100/snapshot", answer{data: []map[string]any{{"name": "sp"}, {"name": "current", "parent": "sp"}}})
	backup := "UPID:pve1:0000008C:00098F82:6B0EFD04:vzdump:100:root@pam:"
	asked := make(chan struct{}, 100)
	s.on("GET /nodes/pve1/tasks", func(*http.Request, []byte) answer {
		asked <- struct{}{}
		return answer{data: []map[string]any{{"upid": backup, "status": "RUNNING"}}}
	})
	r := orchestrator.SnapshotRequest{Sandbox: testSandbox, VM: testVM, Name: "sp"}
	err := s.open(t).Snapshots().Delete(t.Context(), r) // does not wait
	wantClass(t, err, orchestrator.ErrBusy)
	wantText(t, err, "vm is locked (backup)", backup)
	<-asked
	c := s.open(t, func(c *Config) { c.LockWait = time.Hour })
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- c.Snapshots().Delete(ctx, r)
	}()
	<-asked
	<-asked // so it tried again
	select {
	case err := <-done:
		t.Fatalf("did not wait: %v", err)
	default:
	}
	cancel()
	err = <-done
	if !errors.Is(err, orchestrator.ErrBusy) && !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if n := s.count("DELETE /nodes/pve1/qemu/100/snapshot/sp"); n != 0 {
		t.Error("it was asked to be deleted")
	}
}
