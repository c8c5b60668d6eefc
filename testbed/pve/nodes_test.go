package pve_test

import (
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"savepoint/testbed/pve"
	"savepoint/testbed/pve/memory"
	"savepoint/testbed/pve/task"
)

// three is a cluster of three nodes with a storage of each and one they share.
func three(c *pve.Config) {
	c.Nodes = []string{"pve1", "pve2", "pve3"}
	c.Storages = []pve.Storage{{ID: "local"}, {ID: "nfs", Shared: true, Content: []string{"images", "iso"}}, {ID: "two", Nodes: []string{"pve1", "pve2"}}}
}

// makeOn makes a VM on a node.
func (n *node) makeOn(node, vmid, disk string) {
	n.t.Helper()
	if st := n.run("POST", "/nodes/"+node+"/qemu", "vmid="+vmid+"&memory=64&name=vm"+vmid+"&scsi0="+disk); st != "OK" {
		n.t.Fatalf("create %s on %s: %s", vmid, node, st)
	}
}

// statuses are the states in a list by a key.
func (n *node) statuses(path, key string) map[string]string {
	n.t.Helper()
	out := map[string]string{}
	for _, i := range n.data(path).([]any) {
		item := i.(map[string]any)
		out[fmt.Sprint(item[key])], _ = item["status"].(string)
	}
	return out
}

func same(t *testing.T, what string, want, got any) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s: %s", what, diff)
	}
}

// One API serves the VMs, tasks and storages of all nodes, and each belongs to
// one of them.
func TestNodes(t *testing.T) {
	n := newNode(t, three)
	n.makeOn("pve1", "100", "local:1")
	upid := n.begin("POST", "/nodes/pve2/qemu", "vmid=200&memory=64&scsi0=local:1")
	if st := n.exit(upid); st != "OK" || !strings.HasPrefix(upid, "UPID:pve2:") {
		t.Fatalf("%s: %s", upid, st)
	}
	n.exchange("sp@pve!t1", []wire{
		{"on its node", "GET", "/nodes/pve2/qemu/200/config", "", 200, "OK", "local:200/vm-200-disk-0.qcow2"},
		{"on another", "GET", "/nodes/pve1/qemu/200/config", "", 500, "Configuration file 'nodes/pve1/qemu-server/200.conf' does not exist", ""},
		{"taken by another", "POST", "/nodes/pve1/qemu", "vmid=200", 500, "unable to create VM 200 - VM 200 already exists on node 'pve2'", ""},
		{"taken", "GET", "/cluster/nextid?vmid=200", "", 400, "", "VM 200 already exists"},
		{"list", "GET", "/nodes/pve3/qemu", "", 200, "OK", `{"data":[]}`},
		{"no such node", "GET", "/nodes/pve9/qemu", "", 500, "hostname lookup 'pve9' failed - failed to get address info for: pve9: Temporary failure in name resolution", ""},
		{"localhost", "GET", "/nodes/localhost/qemu/100/config", "", 200, "OK", "scsi0"},
		{"another node's task", "GET", "/nodes/pve1/tasks/" + url.PathEscape(upid) + "/status", "", 400, "", "no such task"},
		{"no storage there", "GET", "/nodes/pve3/storage/two/content", "", 500, "storage 'two' is not available on node 'pve3'", ""},
		{"cluster", "GET", "/cluster/status", "", 200, "OK", `{"id":"cluster","name":"lab","nodes":3,"quorate":1,"type":"cluster","version":3}`},
		{"node", "GET", "/cluster/status", "", 200, "OK", `{"id":"node/pve2","ip":"127.0.0.2","level":"","local":0,"name":"pve2","nodeid":2,"online":1,"type":"node"}`},
		{"storages", "GET", "/storage/nfs", "", 200, "OK", `"shared":1`},
	})
	same(t, "nodes", map[string]string{"pve1": "online", "pve2": "online", "pve3": "online"}, n.statuses("/nodes", "node"))
	same(t, "resources", map[string]string{"qemu/100": "stopped", "qemu/200": "stopped"}, n.statuses("/cluster/resources?type=vm", "id"))
	var storages []string
	for _, i := range n.data("/cluster/resources?type=storage").([]any) {
		storages = append(storages, i.(map[string]any)["id"].(string))
	}
	slices.Sort(storages)
	same(t, "storages", []string{
		"storage/pve1/local", "storage/pve1/nfs", "storage/pve1/two", "storage/pve2/local", "storage/pve2/nfs", "storage/pve2/two", "storage/pve3/local", "storage/pve3/nfs",
	}, storages)
	nodes := map[string]bool{}
	for _, i := range n.data("/cluster/tasks").([]any) {
		nodes[i.(map[string]any)["node"].(string)] = true
	}
	same(t, "tasks", map[string]bool{"pve1": true, "pve2": true}, nodes)
	if len(n.data("/nodes/pve2/tasks").([]any)) != 1 || len(n.data("/nodes/pve3/tasks").([]any)) != 0 {
		t.Error("tasks are not their node's")
	}
	n.makeOn("pve3", "300", "nfs:1")
	if len(n.data("/nodes/pve1/storage/nfs/content").([]any)) != 1 || len(n.data("/nodes/pve3/storage/local/content").([]any)) != 0 {
		t.Error("content")
	}
	n.must(n.srv.SetLock(200, "backup"))
	if n.object("/nodes/pve2/qemu/200/config")["lock"] != "backup" {
		t.Error("lock")
	}
}

// A node alone is no cluster, and has quorum.
func TestOneNode(t *testing.T) {
	n := newNode(t, nil)
	if got := n.data("/cluster/status").([]any); len(got) != 1 {
		t.Error(got)
	}
	for _, name := range []string{"pve1", "pve2", "localhost"} {
		if err := n.srv.SetNode(name, false); err == nil {
			t.Errorf("%s went down", name)
		}
	}
}

// A node that loses its power takes its VMs and tasks with it; what it has
// stays, unreachable, and is as it was left when the node returns.
func TestNodeDown(t *testing.T) {
	n := newNode(t, three)
	n.makeOn("pve2", "200", "local:1")
	n.makeOn("pve2", "201", "local:1")
	n.makeOn("pve1", "100", "local:1")
	n.run("POST", "/nodes/pve2/qemu/200/status/start", "")
	remove := n.srv.Faults.AddTask(pve.TaskFault{Type: "qmsnapshot", Step: "prepared", Action: task.Action{Hang: true}})
	snap := n.begin("POST", "/nodes/pve2/qemu/201/snapshot", "snapname=s1")
	n.reaches("the snapshot has its lock", func() bool { return n.object("/nodes/pve2/qemu/201/config")["lock"] == "snapshot" })
	n.must(n.srv.SetNode("pve2", false))
	n.must(n.srv.SetNode("pve2", false)) // again is nothing
	remove()

	at := "/nodes/pve2/qemu/200"
	n.exchange("sp@pve!t1", []wire{
		{"read", "GET", at + "/config", "", 595, "No route to host", ""},
		{"write", "POST", at + "/status/start", "", 595, "No route to host", ""},
		{"parameters are looked at there", "PUT", at + "/config", "nope=1", 595, "No route to host", ""},
		{"permission is looked at here", "GET", "/nodes/pve2/status", "", 595, "No route to host", ""},
		{"task", "GET", "/nodes/pve2/tasks/" + url.PathEscape(snap) + "/status", "", 595, "No route to host", ""},
		{"upload", "POST", "/nodes/pve2/storage/local/upload", "content=iso&filename=x.iso", 595, "No route to host", ""},
		{"node", "GET", "/nodes/pve2", "", 200, "OK", "qemu"},
		{"the others", "PUT", "/nodes/pve1/qemu/100/config", "cores=2", 200, "OK", ""},
		{"status", "GET", "/cluster/status", "", 200, "OK", `"quorate":1`},
		{"status", "GET", "/cluster/status", "", 200, "OK", `"name":"pve2","nodeid":2,"online":0`},
		{"id is taken", "GET", "/cluster/nextid?vmid=200", "", 400, "", "VM 200 already exists"},
	})
	if status, _, body := n.do("GET", at+"/config", ""); status != 595 || body != "" {
		t.Errorf("a proxy's error has a body: %q", body)
	}
	same(t, "nodes", map[string]string{"pve1": "online", "pve2": "offline", "pve3": "online"}, n.statuses("/nodes", "node"))
	same(t, "vms", map[string]string{"qemu/100": "stopped", "qemu/200": "unknown", "qemu/201": "unknown"}, n.statuses("/cluster/resources?type=vm", "id"))
	storages := n.statuses("/cluster/resources?type=storage", "id")
	if storages["storage/pve2/local"] != "unknown" || storages["storage/pve1/local"] != "available" {
		t.Error(storages)
	}

	n.must(n.srv.SetNode("pve2", true))
	same(t, "vms", map[string]string{"200": "stopped", "201": "stopped"}, n.statuses("/nodes/pve2/qemu", "vmid"))
	if conf := n.object("/nodes/pve2/qemu/201/config"); conf["lock"] != "snapshot" { // F63
		t.Error(conf)
	}
	if st := n.exit(snap); st == "OK" {
		t.Error(st)
	}
	if st := n.run("POST", at+"/status/start", ""); st != "OK" {
		t.Error(st)
	}
}

// A call that the node was at when it died has no answer: whether it was
// done is not known.
func TestNodeDiesMeanwhile(t *testing.T) {
	n := newNode(t, three)
	n.makeOn("pve2", "200", "local:1")
	n.run("POST", "/nodes/pve2/qemu/200/config", "agent=1")
	n.run("POST", "/nodes/pve2/qemu/200/status/start", "")
	entered, release := make(chan struct{}), make(chan struct{})
	n.mem.SetAgent(200, func(string, any) (any, error) { close(entered); <-release; return map[string]any{}, nil })
	done := make(chan string, 1)
	go func() {
		status, reason, body := n.do("POST", "/nodes/pve2/qemu/200/agent/ping", "")
		done <- fmt.Sprint(status, " ", reason, body)
	}()
	<-entered
	n.must(n.srv.SetNode("pve2", false))
	close(release)
	if got := <-done; got != "596 Connection timed out" {
		t.Error(got)
	}
}

// Without most of the nodes nothing is written; what runs can still be read,
// asked and stopped.
func TestNoQuorum(t *testing.T) {
	n := newNode(t, three)
	n.makeOn("pve1", "100", "local:1")
	n.run("POST", "/nodes/pve1/qemu/100/status/start", "")
	hold := n.mem.Hold("Start")
	n.makeOn("pve1", "101", "local:1")
	clone := n.srv.Faults.AddTask(pve.TaskFault{Type: "qmclone", Step: "created", Struck: func(task.UPID) {
		n.must(errors.Join(n.srv.SetNode("pve2", false), n.srv.SetNode("pve3", false)))
	}})
	defer clone()
	if st := n.run("POST", "/nodes/pve1/qemu/101/clone", "newid=102"); !strings.HasPrefix(st, "clone failed: ") || !strings.Contains(st, "unable to open file '/etc/pve/nodes/pve1/qemu-server/102.conf.tmp.") || !strings.Contains(st, "Permission denied") {
		t.Errorf("clone: %s", st)
	}
	hold()
	const refused = "cluster not ready - no quorum?"
	n.exchange("sp@pve!t1", []wire{
		{"status", "GET", "/cluster/status", "", 200, "OK", `"quorate":0`},
		{"create", "POST", "/nodes/pve1/qemu", "vmid=103", 500, refused, `"message":"cluster not ready - no quorum?\n"`},
		{"bad parameters come first", "POST", "/nodes/pve1/qemu", "nope=1", 400, "", ""},
		{"start", "POST", "/nodes/pve1/qemu/101/status/start", "", 500, refused, ""},
		{"config", "PUT", "/nodes/pve1/qemu/101/config", "cores=2", 500, refused, ""},
		{"snapshot", "POST", "/nodes/pve1/qemu/101/snapshot", "snapname=s1", 500, refused, ""},
		{"clone", "POST", "/nodes/pve1/qemu/101/clone", "newid=104", 500, refused, ""},
		{"destroy", "DELETE", "/nodes/pve1/qemu/101", "", 500, refused, ""},
		{"pool", "POST", "/pools", "poolid=x", 500, refused, ""},
		{"user", "POST", "/access/users", "userid=x@pve", 500, refused, ""},
		{"network", "PUT", "/cluster/sdn", "", 500, refused, ""},
		{"read", "GET", "/nodes/pve1/qemu/101/config", "", 200, "OK", "scsi0"},
		{"ask", "POST", "/nodes/pve1/qemu/101/agent/ping", "", 500, "No QEMU guest agent configured", ""},
	})
	if st := n.run("POST", "/nodes/pve1/qemu/100/status/stop", ""); st != "OK" {
		t.Error(st)
	}
	n.must(n.srv.SetNode("pve3", true))
	n.exchange("sp@pve!t1", []wire{{"two of three are enough", "PUT", "/nodes/pve1/qemu/101/config", "cores=2", 200, "OK", ""}})
}

// What the nodes have is theirs after a restart too.
func TestNodesRestart(t *testing.T) {
	mem := memory.New()
	cfg := config(filepath.Join(t.TempDir(), "state"), mem)
	three(&cfg)
	n := startNode(t, cfg, mem)
	n.makeOn("pve2", "200", "local:1")
	n.makeOn("pve3", "300", "nfs:1")
	n.srv.Close()
	n = startNode(t, cfg, mem)
	n.exchange("sp@pve!t1", []wire{
		{"own", "GET", "/nodes/pve2/qemu/200/config", "", 200, "OK", "local:200"},
		{"shared", "GET", "/nodes/pve3/qemu/300/config", "", 200, "OK", "nfs:300"},
		{"shared", "GET", "/nodes/pve1/storage/nfs/content", "", 200, "OK", "vm-300-disk-0"},
		{"own", "GET", "/nodes/pve1/storage/local/content", "", 200, "OK", `{"data":[]}`},
	})
	if len(n.data("/nodes/pve2/tasks").([]any)) != 1 {
		t.Error("tasks")
	}
	for _, vm := range []string{"/nodes/pve2/qemu/200", "/nodes/pve3/qemu/300"} {
		if st := n.run("DELETE", vm, ""); st != "OK" {
			t.Error(st)
		}
	}
	if left := mem.Paths(); len(left) != 0 {
		t.Error(left)
	}
}

func TestNodesConfig(t *testing.T) {
	mem := memory.New()
	for name, change := range map[string]func(*pve.Config){
		"twice":          func(c *pve.Config) { c.Nodes = []string{"a", "a"} },
		"name":           func(c *pve.Config) { c.Nodes = []string{"a", "b c"} },
		"own path":       func(c *pve.Config) { c.Storages = []pve.Storage{{ID: "x", Path: "/x"}} },
		"shared path":    func(c *pve.Config) { c.Storages = []pve.Storage{{ID: "x", Shared: true, Path: "/x/{node}"}} },
		"storage's node": func(c *pve.Config) { c.Storages = []pve.Storage{{ID: "x", Nodes: []string{"no"}}} },
		"node, no backend": func(c *pve.Config) {
			c.Machines, c.Disks = nil, nil
			c.Backends = map[string]pve.Backend{"pve1": {Machines: mem.Machines(), Disks: mem.Disks()}}
		},
	} {
		cfg := config(t.TempDir(), mem)
		three(&cfg)
		change(&cfg)
		if s, err := pve.New(cfg); err == nil {
			s.Close()
			t.Errorf("%s: accepted", name)
		}
	}
}

// An apply reloads every node that is there, as tasks of their own; one that
// is not has the old network when it returns.
func TestNodesReload(t *testing.T) {
	n := newNode(t, three)
	n.ok("POST", "/cluster/sdn/zones", "zone=z1&type=simple")
	n.ok("POST", "/cluster/sdn/vnets", "vnet=vn1&zone=z1")
	n.must(n.srv.SetNode("pve3", false))
	if st := n.run("PUT", "/cluster/sdn", ""); st != "OK" {
		t.Fatal(st)
	}
	zone := func(node string) string { return n.statuses("/nodes/"+node+"/sdn/zones", "zone")["z1"] }
	n.reaches("the nodes reload", func() bool { return zone("pve1") == "available" && zone("pve2") == "available" })
	if got := n.statuses("/nodes/pve2/tasks", "type"); len(got) != 1 || got["srvreload"] != "OK" {
		t.Error(got)
	}
	n.must(n.srv.SetNode("pve3", true))
	if got := zone("pve3"); got != "pending" {
		t.Error(got)
	}
	n.makeOn("pve3", "300", "nfs:1")
	n.ok("PUT", "/nodes/pve3/qemu/300/config", "net0=virtio,bridge%3Dvn1")
	if st := n.run("POST", "/nodes/pve3/qemu/300/status/start", ""); !strings.Contains(st, "bridge 'vn1' does not exist") {
		t.Error(st)
	}
	if st := n.run("PUT", "/nodes/pve3/network", ""); st != "OK" || zone("pve3") != "available" {
		t.Error(st, zone("pve3"))
	}
	if st := n.run("POST", "/nodes/pve3/qemu/300/status/start", ""); st != "OK" {
		t.Error(st)
	}
}
