package pve_test

import (
	"testing"

	"savepoint/testbed/pve"
	"savepoint/testbed/pve/task"
)

// What other parts of a cluster do with a VM shows where a real one shows it
// (F57, F65).
func TestGuards(t *testing.T) {
	n := newNode(t, nil)
	n.makeVM("100", "")
	jobs := func() []any { return n.data("/cluster/replication").([]any) }
	hastate := func() any {
		for _, r := range n.data("/cluster/resources?type=vm").([]any) {
			return r.(map[string]any)["hastate"]
		}
		return nil
	}
	managed := func() any { return n.object("/nodes/pve1/qemu/100/status/current")["ha"].(map[string]any)["managed"] }
	if len(jobs()) != 0 || hastate() != nil || managed() != 0.0 {
		t.Errorf("jobs %v, hastate %v, managed %v", jobs(), hastate(), managed())
	}
	n.srv.SetHA(100, "started")
	n.srv.SetReplication(100, "pve2")
	if hastate() != "started" || managed() != 1.0 {
		t.Errorf("hastate %v, managed %v", hastate(), managed())
	}
	if j := jobs(); len(j) != 1 || j[0].(map[string]any)["id"] != "100-0" || j[0].(map[string]any)["target"] != "pve2" {
		t.Errorf("jobs %v", j)
	}
	n.srv.SetHA(100, "")
	n.srv.SetReplication(100)
	if len(jobs()) != 0 || hastate() != nil {
		t.Errorf("jobs %v, hastate %v", jobs(), hastate())
	}
}

// F69: a worker that dies between the volume for the memory and the snapshot's
// section leaves a volume that nothing refers to, and no lock.
func TestOrphanMemory(t *testing.T) {
	n := newNode(t, nil)
	n.makeVM("100", "")
	n.run("POST", "/nodes/pve1/qemu/100/status/start", "")
	n.srv.Faults.AddTask(pve.TaskFault{Type: "qmsnapshot", Step: "allocated", Action: task.Action{Kill: true}})
	n.run("POST", "/nodes/pve1/qemu/100/snapshot", "snapname=one&vmstate=1")
	if lock := n.object("/nodes/pve1/qemu/100/config")["lock"]; lock != nil || len(n.snapshotStates("100")) != 0 {
		t.Errorf("lock %v, snapshots %v", lock, n.snapshotStates("100"))
	}
	for _, v := range n.data("/nodes/pve1/storage/local/content?content=images&vmid=100").([]any) {
		if v.(map[string]any)["volid"] == "local:100/vm-100-state-one.raw" {
			return
		}
	}
	t.Error("the volume is not listed")
}
