package pve_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"savepoint/testbed/pve"
	"savepoint/testbed/pve/task"
)

// paths are the images that there are, by node and name.
func (n *node) paths() []string {
	var out []string
	for _, p := range n.mem.Paths() {
		at, name := "pve1", p[strings.LastIndexByte(p, '/')+1:]
		if _, rest, ok := strings.Cut(p, "/nodes/"); ok {
			at, _, _ = strings.Cut(rest, "/")
		}
		if strings.Contains(p, "/storage/nfs/") {
			at = "nfs"
		}
		out = append(out, at+" "+name)
	}
	slices.Sort(out)
	return out
}

// A stopped VM goes to another node: with its disks where they are local, as
// it is where they are shared.
func TestMigrate(t *testing.T) {
	n := newNode(t, three)
	n.makeOn("pve1", "100", "local:1")
	n.makeOn("pve1", "101", "nfs:1")
	n.run("POST", "/nodes/pve1/qemu/101/snapshot", "snapname=s1")
	n.must(n.mem.Write(slices.DeleteFunc(n.mem.Paths(), func(p string) bool { return strings.Contains(p, "nfs") })[0], "content"))
	n.exchange("sp@pve!t1", []wire{
		{"precondition", "GET", "/nodes/pve1/qemu/100/migrate", "", 200, "OK", `"allowed_nodes":["pve2","pve3"],"local_disks":[{"cdrom":0,"is_unused":0,"size":1073741824,"volid":"local:100/vm-100-disk-0.qcow2"}]`},
		{"precondition", "GET", "/nodes/pve1/qemu/101/migrate?target=pve2", "", 200, "OK", `"allowed_nodes":["pve2"],"local_disks":[]`},
	})
	for _, vmid := range []string{"100", "101"} {
		upid := n.begin("POST", "/nodes/pve1/qemu/"+vmid+"/migrate", "target=pve2")
		if st := n.exit(upid); st != "OK" || !strings.Contains(upid, ":qmigrate:"+vmid+":") {
			t.Fatalf("%s: %s", upid, st)
		}
		if conf := n.object("/nodes/pve2/qemu/" + vmid + "/config"); conf["lock"] != nil || conf["name"] != "vm"+vmid {
			t.Error(conf)
		}
	}
	same(t, "images", []string{"nfs vm-101-disk-0.qcow2", "pve2 vm-100-disk-0.qcow2"}, n.paths())
	if got, err := n.mem.Read(slices.DeleteFunc(n.mem.Paths(), func(p string) bool { return strings.Contains(p, "nfs") })[0]); err != nil || got != "content" {
		t.Errorf("%q %v", got, err)
	}
	if len(n.data("/nodes/pve2/qemu/101/snapshot").([]any)) != 2 {
		t.Error("the snapshot of the shared disk is gone")
	}
	if st := n.run("POST", "/nodes/pve2/qemu/100/status/start", ""); st != "OK" {
		t.Error(st)
	}
	if st := n.run("POST", "/nodes/pve2/qemu/101/snapshot/s1/rollback", ""); st != "OK" {
		t.Error(st)
	}
	// to another storage, under another name
	n.makeOn("pve2", "102", "two:1")
	if st := n.run("POST", "/nodes/pve2/qemu/102/migrate", "target=pve3&targetstorage=two:local"); st != "OK" {
		t.Error(st)
	}
	if conf := n.object("/nodes/pve3/qemu/102/config"); conf["scsi0"] != "local:102/vm-102-disk-0.qcow2,size=1G" {
		t.Error(conf["scsi0"])
	}
}

func TestMigrateRefused(t *testing.T) {
	n := newNode(t, three)
	n.makeOn("pve1", "100", "local:1")
	n.makeOn("pve1", "101", "two:1")
	n.makeOn("pve1", "102", "local:1")
	n.run("POST", "/nodes/pve1/qemu/100/template", "")
	n.run("POST", "/nodes/pve1/qemu/100/clone", "newid=103&full=0")
	n.makeOn("pve1", "104", "local:1")
	n.run("POST", "/nodes/pve1/qemu/104/snapshot", "snapname=s1")
	n.run("POST", "/nodes/pve1/qemu/102/status/start", "")
	n.makeOn("pve1", "105", "local:1")
	n.must(n.srv.SetLock(105, "backup"))
	before := n.paths()
	n.exchange("sp@pve!t1", []wire{
		{"itself", "POST", "/nodes/pve1/qemu/101/migrate", "target=pve1", 400, "", `"target":"target is local node."`},
		{"nowhere", "POST", "/nodes/pve1/qemu/101/migrate", "target=pve9", 500, "no such cluster node 'pve9'", ""},
		{"storage missing", "POST", "/nodes/pve1/qemu/101/migrate", "target=pve3", 500, "storage 'two' is not available on node 'pve3'", ""},
		{"precondition", "GET", "/nodes/pve1/qemu/101/migrate", "", 200, "OK", `"not_allowed_nodes":{"pve3":{"unavailable_storages":["two"]}}`},
		{"running", "POST", "/nodes/pve1/qemu/102/migrate", "target=pve2", 500, "can't migrate running VM without --online", ""},
		{"locked", "POST", "/nodes/pve1/qemu/105/migrate", "target=pve2", 500, "VM is locked (backup)", ""},
		{"root's", "POST", "/nodes/pve1/qemu/101/migrate", "target=pve2&force=1", 400, "", `"force":"Only root may use this option."`},
		{"missing", "POST", "/nodes/pve2/qemu/101/migrate", "target=pve3", 500, "Configuration file 'nodes/pve2/qemu-server/101.conf' does not exist", ""},
	})
	for vmid, line := range map[string]string{
		"100": "still in use by linked clones", "103": "can't migrate 'local:100/base-100-disk-0.qcow2/103/vm-103-disk-0.qcow2' as it's a clone of 'base-100-disk-0.qcow2'",
		"104": "snapshots of local disks are not copied here",
	} {
		upid := n.begin("POST", "/nodes/pve1/qemu/"+vmid+"/migrate", "target=pve2")
		log := ""
		if st := n.exit(upid); st != "migration aborted" {
			t.Errorf("%s: %s", vmid, st)
		}
		for _, l := range n.data("/nodes/pve1/tasks/" + upid + "/log").([]any) {
			log += l.(map[string]any)["t"].(string) + "\n"
		}
		if !strings.Contains(log, line) || !strings.Contains(log, "ERROR: migration aborted (duration 00:00:0") {
			t.Errorf("%s: %s", vmid, log)
		}
		if conf := n.object("/nodes/pve1/qemu/" + vmid + "/config"); conf["lock"] != nil {
			t.Errorf("%s stays locked", vmid)
		}
	}
	same(t, "images", before, n.paths())
}

// A migration that fails leaves the VM as it was; one whose worker dies leaves
// its lock, and the VM on exactly one node.
func TestMigrateInterrupted(t *testing.T) {
	for _, step := range []string{"disk", "move"} {
		for _, action := range []task.Action{{Fail: "broken"}, {Kill: true}} {
			t.Run(fmt.Sprint(step, action), func(t *testing.T) {
				n := newNode(t, three)
				n.makeOn("pve1", "100", "local:1")
				remove := n.srv.Faults.AddTask(pve.TaskFault{Type: "qmigrate", Step: step, Action: action})
				st := n.run("POST", "/nodes/pve1/qemu/100/migrate", "target=pve2")
				remove()
				conf := n.object("/nodes/pve1/qemu/100/config")
				if !action.Kill {
					same(t, "images", []string{"pve1 vm-100-disk-0.qcow2"}, n.paths())
					if st != "migration aborted" || conf["lock"] != nil {
						t.Errorf("%s, lock %v", st, conf["lock"])
					}
					return
				}
				if st != "unexpected status" || conf["lock"] != "migrate" {
					t.Errorf("%s, lock %v", st, conf["lock"])
				}
				n.must(n.srv.SetLock(100, ""))
				if st := n.run("POST", "/nodes/pve1/qemu/100/migrate", "target=pve2"); st != "OK" {
					t.Error(st)
				}
				n.object("/nodes/pve2/qemu/100/config")
			})
		}
	}
	// the target goes while the disk is on its way
	n := newNode(t, three)
	n.makeOn("pve1", "100", "local:1")
	n.srv.Faults.AddTask(pve.TaskFault{Type: "qmigrate", Step: "disk", Struck: func(task.UPID) { n.must(n.srv.SetNode("pve2", false)) }})
	if st := n.run("POST", "/nodes/pve1/qemu/100/migrate", "target=pve2"); st != "migration aborted" {
		t.Error(st)
	}
	if st := n.run("POST", "/nodes/pve1/qemu/100/migrate", "target=pve2"); st != "migration aborted" {
		t.Error(st)
	}
	if conf := n.object("/nodes/pve1/qemu/100/config"); conf["lock"] != nil {
		t.Error(conf)
	}
}

// A clone goes to another node at once only where all its disks are shared.
func TestCloneTarget(t *testing.T) {
	n := newNode(t, three)
	n.makeOn("pve1", "100", "nfs:1")
	n.makeOn("pve1", "101", "local:1")
	n.run("POST", "/nodes/pve1/qemu/100/template", "")
	n.exchange("sp@pve!t1", []wire{
		{"nowhere", "POST", "/nodes/pve1/qemu/100/clone", "newid=900&target=pve9", 500, "no such cluster node 'pve9'", ""},
		{"local", "POST", "/nodes/pve1/qemu/101/clone", "newid=900&target=pve2", 500, "can't clone VM to node 'pve2' (VM uses local storage)", ""},
		{"to local", "POST", "/nodes/pve1/qemu/100/clone", "newid=900&full=1&storage=local&target=pve2", 500, "can't clone to non-shared storage 'local'", ""},
		{"not there", "POST", "/nodes/pve1/qemu/100/clone", "newid=900&full=1&storage=two&target=pve3", 500, "storage 'two' is not available on node 'pve3'", ""},
	})
	for _, form := range []string{"newid=900&full=0&target=pve2", "newid=901&full=1&target=pve3"} {
		if st := n.run("POST", "/nodes/pve1/qemu/100/clone", form); st != "OK" {
			t.Errorf("%s: %s", form, st)
		}
	}
	for _, vm := range []string{"/nodes/pve2/qemu/900", "/nodes/pve3/qemu/901"} {
		if st := n.run("POST", vm+"/status/start", ""); st != "OK" {
			t.Error(st)
		}
	}
	n.exchange("sp@pve!t1", []wire{{"taken everywhere", "POST", "/nodes/pve1/qemu/100/clone", "newid=900&full=0", 500, "unable to create VM 900: config file already exists", ""}})
	if st := n.run("DELETE", "/nodes/pve1/qemu/100", ""); !strings.Contains(st, "still in use") {
		t.Errorf("the template of another node's linked clone: %s", st)
	}
}
