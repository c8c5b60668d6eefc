package pve_test

import (
	"encoding/json"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"savepoint/testbed/pve"
	"savepoint/testbed/pve/memory"
	"savepoint/testbed/pve/task"
)

// data fetches a path and returns the answer's data.
func (n *node) data(path string) any {
	n.t.Helper()
	status, reason, body := n.do("GET", path, "")
	if status != 200 {
		n.t.Fatalf("GET %s: %d %s", path, status, reason)
	}
	var out struct {
		Data any `json:"data"`
	}
	if err := json.Unmarshal([]byte(body), &out); err != nil {
		n.t.Fatal(err)
	}
	return out.Data
}

// object is data for an object.
func (n *node) object(path string) map[string]any {
	n.t.Helper()
	return n.data(path).(map[string]any)
}

// snapshotStates maps the VM's snapshots to their snapstate.
func (n *node) snapshotStates(vmid string) map[string]string {
	n.t.Helper()
	out := map[string]string{}
	for _, e := range n.data("/nodes/pve1/qemu/" + vmid + "/snapshot").([]any) {
		o := e.(map[string]any)
		state, _ := o["snapstate"].(string)
		if o["name"] != "current" {
			out[o["name"].(string)] = state
		}
	}
	return out
}

// begin starts a task without waiting and returns its UPID.
func (n *node) begin(method, path, form string) string {
	n.t.Helper()
	status, reason, body := n.do(method, path, form)
	if status != 200 {
		n.t.Fatalf("%s %s: %d %s", method, path, status, reason)
	}
	var out struct {
		Data string `json:"data"`
	}
	if err := json.Unmarshal([]byte(body), &out); err != nil {
		n.t.Fatal(err)
	}
	return out.Data
}

// exit waits for a task and returns its exit status.
func (n *node) exit(upid string) string {
	n.t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for {
		st := n.object("/nodes/" + strings.Split(upid, ":")[1] + "/tasks/" + url.PathEscape(upid) + "/status")
		if st["status"] == "stopped" {
			return st["exitstatus"].(string)
		}
		if time.Now().After(deadline) {
			n.t.Fatalf("%s does not end", upid)
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// reaches waits until a condition holds.
func (n *node) reaches(what string, cond func() bool) {
	n.t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for !cond() {
		if time.Now().After(deadline) {
			n.t.Fatalf("never: %s", what)
		}
		time.Sleep(2 * time.Millisecond)
	}
}

func (n *node) makeVM(vmid string, extra string) {
	n.t.Helper()
	upid := n.begin("POST", "/nodes/pve1/qemu", "vmid="+vmid+"&memory=64&scsi0=local:1&net0=virtio,bridge%3Dvmbr0"+extra)
	if st := n.exit(upid); st != "OK" {
		n.t.Fatalf("create %s: %s", vmid, st)
	}
}

func (n *node) run(method, path, form string) string {
	n.t.Helper()
	return n.exit(n.begin(method, path, form))
}

// A server that dies in the middle leaves what a killed worker leaves: F63
// F64: lock and snapstate, and a task with an unexpected status.
func TestCrashResidue(t *testing.T) {
	for _, tt := range []struct {
		name, kind, step string
		before           bool // take snapshot "s1" first
		method, path     string
		form             string
		lock, snapstate  string // of "s1"
		running          bool   // afterwards
	}{
		{"create", "qmsnapshot", "prepared", false, "POST", "/snapshot", "snapname=s1&vmstate=1", "snapshot", "prepare", true},
		{"create after disks", "qmsnapshot", "commit", false, "POST", "/snapshot", "snapname=s1", "snapshot", "prepare", true},
		{"delete", "qmdelsnapshot", "marked", true, "DELETE", "/snapshot/s1", "", "snapshot-delete", "delete", true},
		{"rollback", "qmrollback", "disk", true, "POST", "/snapshot/s1/rollback", "", "rollback", "", false},
		{"rollback, restored", "qmrollback", "restored", true, "POST", "/snapshot/s1/rollback", "", "", "", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			mem := memory.New()
			cfg := config(filepath.Join(t.TempDir(), "state"), mem)
			n := startNode(t, cfg, mem)
			n.makeVM("100", "")
			if st := n.run("POST", "/nodes/pve1/qemu/100/status/start", ""); st != "OK" {
				t.Fatal(st)
			}
			if tt.before {
				if st := n.run("POST", "/nodes/pve1/qemu/100/snapshot", "snapname=s1"); st != "OK" {
					t.Fatal(st)
				}
			}
			n.srv.Faults.AddTask(pve.TaskFault{Type: tt.kind, Step: tt.step, Action: task.Action{Hang: true}})
			upid := n.begin(tt.method, "/nodes/pve1/qemu/100"+tt.path, tt.form)
			n.reaches("the task reaches the step", func() bool {
				conf := n.object("/nodes/pve1/qemu/100/config")
				lock, _ := conf["lock"].(string)
				_, restored := conf["parent"]
				return lock == tt.lock && (tt.lock != "" || restored && !mem.Machines().Status(100).Running)
			})
			n.srv.Close()

			n = startNode(t, cfg, mem)
			if got := n.object("/nodes/pve1/tasks/" + url.PathEscape(upid) + "/status")["exitstatus"]; got != "unexpected status" && got != "unable to read tail (got 0 bytes)" {
				t.Errorf("task: %v", got)
			}
			conf := n.object("/nodes/pve1/qemu/100/config")
			if lock, _ := conf["lock"].(string); lock != tt.lock {
				t.Errorf("lock %q, want %q", lock, tt.lock)
			}
			if states := n.snapshotStates("100"); states["s1"] != tt.snapstate {
				t.Errorf("snapstate %q, want %q", states["s1"], tt.snapstate)
			}
			if got := mem.Machines().Status(100).Running; got != tt.running {
				t.Errorf("running %v, want %v", got, tt.running)
			}
			if tt.lock == "" {
				return
			}
			if st := n.run("POST", "/nodes/pve1/qemu/100/snapshot", "snapname=s2"); st != "VM is locked ("+tt.lock+")" {
				t.Errorf("another snapshot: %q", st)
			}
			n.must(n.srv.SetLock(100, "")) // what an operator does on the node
			if tt.snapstate != "" {
				if st := n.run("DELETE", "/nodes/pve1/qemu/100/snapshot/s1?force=1", ""); st != "OK" {
					t.Errorf("delete with force: %q", st)
				}
				if states := n.snapshotStates("100"); len(states) != 0 {
					t.Errorf("left: %v", states)
				}
				for _, p := range mem.Paths() { // F69: no orphan of the memory's volume
					if strings.Contains(filepath.Base(p), "-state-") {
						t.Errorf("left: %s", p)
					}
				}
			} else if st := n.run("POST", "/nodes/pve1/qemu/100/snapshot/s1/rollback", ""); st != "OK" {
				t.Errorf("roll back again: %q", st)
			}
		})
	}
}

// A failed or interrupted create or clone leaves neither disks nor
// configuration: F37 F121 F124.
func TestFailedCloneLeavesNothing(t *testing.T) {
	n := newNode(t, nil)
	n.makeVM("100", "&scsi1=local:1")
	before := len(n.mem.Paths())
	n.mem.FailNext("Copy", &pve.AgentError{Desc: "no space left"})
	upid := n.begin("POST", "/nodes/pve1/qemu/100/clone", "newid=101")
	if st := n.exit(upid); !strings.HasPrefix(st, "clone failed: ") || !strings.Contains(st, "no space left") {
		t.Errorf("exit status %q", st)
	}
	hang := n.srv.Faults.AddTask(pve.TaskFault{Type: "qmclone", Step: "disk", Nth: 2, Action: task.Action{Hang: true}})
	upid = n.begin("POST", "/nodes/pve1/qemu/100/clone", "newid=101")
	n.reaches("the second disk", func() bool { return len(n.mem.Paths()) > before })
	if status, reason, _ := n.do("DELETE", "/nodes/pve1/tasks/"+url.PathEscape(upid), ""); status != 200 {
		t.Fatalf("stop: %s", reason)
	}
	hang()
	if st := n.exit(upid); st != "clone failed: unable to create image: interrupted by signal" {
		t.Errorf("exit status %q", st)
	}
	if _, reason, _ := n.do("GET", "/nodes/pve1/qemu/101/config", ""); !strings.Contains(reason, "does not exist") {
		t.Errorf("configuration left: %s", reason)
	}
	if got := len(n.mem.Paths()); got != before {
		t.Errorf("%d disks, want %d", got, before)
	}
	n.mem.FailNext("Create", &pve.AgentError{Desc: "no space left"})
	if st := n.run("POST", "/nodes/pve1/qemu", "vmid=102&scsi0=local:1"); !strings.HasPrefix(st, "unable to create VM 102 - ") {
		t.Errorf("create: %q", st)
	}
	if st := n.run("POST", "/nodes/pve1/qemu/100/clone", "newid=101"); st != "OK" {
		t.Errorf("clone after that: %q", st)
	}
}

// A snapshot that fails cleans up after itself; one that is stopped too (F56).
func TestFailedSnapshotCleansUp(t *testing.T) {
	n := newNode(t, nil)
	n.makeVM("100", "")
	n.run("POST", "/nodes/pve1/qemu/100/status/start", "")
	clean := func(what string) {
		t.Helper()
		if conf := n.object("/nodes/pve1/qemu/100/config"); conf["lock"] != nil || conf["parent"] != nil {
			t.Errorf("%s: configuration %v", what, conf)
		}
		if states := n.snapshotStates("100"); len(states) != 0 {
			t.Errorf("%s: snapshots %v", what, states)
		}
		if got := len(n.mem.Paths()); got != 1 {
			t.Errorf("%s: disks %v", what, n.mem.Paths())
		}
	}
	n.mem.FailNext("Snapshot", &pve.AgentError{Desc: "timeout after 51 retries"})
	if st := n.run("POST", "/nodes/pve1/qemu/100/snapshot", "snapname=s1&vmstate=1"); !strings.Contains(st, "51 retries") {
		t.Errorf("exit status %q", st)
	}
	clean("failed")
	remove := n.srv.Faults.AddTask(pve.TaskFault{Type: "qmsnapshot", Step: "disks", Action: task.Action{Hang: true}})
	upid := n.begin("POST", "/nodes/pve1/qemu/100/snapshot", "snapname=s1&vmstate=1")
	n.reaches("the lock", func() bool { return n.object("/nodes/pve1/qemu/100/config")["lock"] == "snapshot" })
	n.do("DELETE", "/nodes/pve1/tasks/"+url.PathEscape(upid), "")
	if st := n.exit(upid); st != "received interrupt" {
		t.Errorf("exit status %q", st)
	}
	remove()
	clean("stopped")
}
