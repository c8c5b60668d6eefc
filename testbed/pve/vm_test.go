package pve_test

import (
	"encoding/base64"
	"errors"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	proxmox "github.com/luthermonson/go-proxmox"

	"savepoint/testbed/pve"
)

// What a running VM cannot take stays pending, until it is stopped; what it
// can take, it has at once.
func TestPendingChanges(t *testing.T) {
	n := newNode(t, nil)
	at := "/nodes/pve1/qemu/100"
	n.makeVM("100", "&cores=1")
	n.run("POST", at+"/status/start", "")
	n.do("PUT", at+"/config", "cores=4&scsi1=local:2&onboot=1&delete=net0")
	current, after := n.object(at+"/config?current=1"), n.object(at+"/config")
	if current["cores"] != 1.0 || current["scsi1"] != nil || current["onboot"] != 1.0 || current["net0"] == nil {
		t.Errorf("now %v", current)
	}
	if after["cores"] != 4.0 || after["scsi1"] == nil || after["net0"] != nil {
		t.Errorf("after a restart %v", after)
	}
	kinds := map[string]string{}
	for _, e := range n.data(at + "/pending").([]any) {
		o := e.(map[string]any)
		switch {
		case o["delete"] != nil:
			kinds[o["key"].(string)] = "delete"
		case o["pending"] != nil:
			kinds[o["key"].(string)] = "pending"
		}
	}
	if len(kinds) != 3 || kinds["cores"] != "pending" || kinds["scsi1"] != "pending" || kinds["net0"] != "delete" {
		t.Errorf("pending %v", kinds)
	}
	n.do("PUT", at+"/config", "revert=net0")
	if n.object(at + "/config")["net0"] == nil {
		t.Error("the removal was not reverted")
	}
	n.run("POST", at+"/status/stop", "")
	now := n.object(at + "/config?current=1")
	if now["cores"] != 4.0 || now["scsi1"] == nil || now["net0"] == nil {
		t.Errorf("after the stop %v", now)
	}
}

// Disks come and go: a detached one is unused, its removal frees it, one that
// a snapshot has cannot be removed, and a rollback brings it back.
func TestDisksComeAndGo(t *testing.T) {
	n := newNode(t, nil)
	at := "/nodes/pve1/qemu/100"
	n.makeVM("100", "&scsi1=local:1&ide2=local:cloudinit&boot=order%3Dscsi1%3Bscsi0")
	n.run("POST", at+"/snapshot", "snapname=s1")
	n.do("PUT", at+"/config", "delete=scsi1,ide2")
	conf := n.object(at + "/config")
	if conf["unused0"] != "local:100/vm-100-disk-1.qcow2" || conf["boot"] != "order=scsi0" || conf["ide2"] != nil {
		t.Errorf("after detaching %v", conf)
	}
	if _, reason, _ := n.do("PUT", at+"/config", "delete=unused0"); !strings.Contains(reason, "still in use (snapshot?)") {
		t.Errorf("removal of a snapshot's disk: %q", reason)
	}
	n.do("PUT", at+"/config", "scsi4=local:1")
	if st := n.run("POST", at+"/snapshot/s1/rollback", ""); st != "OK" {
		t.Fatal(st)
	}
	conf = n.object(at + "/config")
	if conf["scsi1"] == nil || conf["unused0"] != "local:100/vm-100-disk-2.qcow2" || conf["parent"] != "s1" {
		t.Errorf("after the rollback %v", conf)
	}
	n.run("DELETE", at+"/snapshot/s1", "")
	n.do("PUT", at+"/config", "delete=unused0")
	n.do("PUT", at+"/config", "scsi9="+url.QueryEscape("local:100/vm-100-disk-0.qcow2"))
	if st := n.run("DELETE", at+"?destroy-unreferenced-disks=1", ""); st != "OK" {
		t.Fatal(st)
	}
	if left := n.mem.Paths(); len(left) != 0 {
		t.Errorf("left %v", left)
	}
}

// A clone has an identity of its own and none of the source's history.
func TestCloneIdentity(t *testing.T) {
	n := newNode(t, nil)
	n.makeVM("100", "&name=src&protection=1&ide2=local:cloudinit&description=words")
	n.run("POST", "/nodes/pve1/qemu/100/snapshot", "snapname=s1")
	if st := n.run("POST", "/nodes/pve1/qemu/100/clone", "newid=101"); st != "OK" {
		t.Fatal(st)
	}
	src, dst := n.object("/nodes/pve1/qemu/100/config"), n.object("/nodes/pve1/qemu/101/config")
	for _, k := range []string{"net0", "smbios1", "vmgenid", "scsi0", "ide2", "digest"} {
		if src[k] == dst[k] || dst[k] == nil {
			t.Errorf("%s: %v and %v", k, src[k], dst[k])
		}
	}
	if dst["parent"] != nil || dst["protection"] != nil || dst["name"] != "Copy-of-VM-src" || dst["description"] != "words" {
		t.Errorf("clone %v", dst)
	}
	if dst["ide2"] != "local:101/vm-101-cloudinit.qcow2,media=cdrom" {
		t.Errorf("cloud-init drive %v", dst["ide2"])
	}
}

// A template's link is removed before the template; a link of a template that
// was itself a link works.
func TestTemplatesOfLinks(t *testing.T) {
	n := newNode(t, nil)
	n.makeVM("100", "")
	n.run("POST", "/nodes/pve1/qemu/100/template", "")
	n.run("POST", "/nodes/pve1/qemu/100/clone", "newid=101")
	n.run("POST", "/nodes/pve1/qemu/101/template", "")
	if st := n.run("POST", "/nodes/pve1/qemu/101/clone", "newid=102"); st != "OK" {
		t.Fatal(st)
	}
	if got := n.object("/nodes/pve1/qemu/102/config")["scsi0"]; got != "local:101/base-101-disk-0.qcow2/102/vm-102-disk-0.qcow2,size=1G" {
		t.Errorf("link %v", got)
	}
	for _, id := range []string{"100", "101"} {
		if st := n.run("DELETE", "/nodes/pve1/qemu/"+id, ""); !strings.Contains(st, "is still in use by linked cloned") {
			t.Errorf("destroy %s: %q", id, st)
		}
	}
	for _, id := range []string{"102", "101", "100"} {
		if st := n.run("DELETE", "/nodes/pve1/qemu/"+id, ""); st != "OK" {
			t.Errorf("destroy %s: %q", id, st)
		}
	}
	if left := n.mem.Paths(); len(left) != 0 {
		t.Errorf("left %v", left)
	}
}

// The guest's files through its agent, in parts, with a limit.
func TestAgentFiles(t *testing.T) {
	n := newNode(t, nil)
	n.makeVM("100", "&agent=1")
	n.run("POST", "/nodes/pve1/qemu/100/status/start", "")
	content := strings.Repeat("0123456789abcdef", 200_000) // more than one part
	at := 0
	n.mem.SetAgent(100, func(command string, args any) (any, error) {
		a, _ := args.(map[string]any)
		switch command {
		case "guest-ping":
			return map[string]any{}, nil
		case "guest-file-open":
			if a["path"] != "/etc/hosts" {
				return nil, &pve.AgentError{Class: "GenericError", Desc: "failed to open file '/nope' (mode: 'r')"}
			}
			at = 0
			return 7, nil
		case "guest-file-seek":
			at = a["offset"].(int)
			return map[string]any{}, nil
		case "guest-file-read":
			part := content[at:min(len(content), at+a["count"].(int))]
			at += len(part)
			return map[string]any{"count": len(part), "buf-b64": base64.StdEncoding.EncodeToString([]byte(part)), "eof": at == len(content)}, nil
		case "guest-file-close":
			return map[string]any{}, nil
		}
		return nil, errors.New("silent")
	})
	read := func(query string) map[string]any { return n.object("/nodes/pve1/qemu/100/agent/file-read?" + query) }
	if got := read("file=/etc/hosts"); got["content"] != content || got["truncated"] != nil {
		t.Errorf("whole file: %d bytes, truncated %v", len(got["content"].(string)), got["truncated"])
	}
	if got := read("file=/etc/hosts&offset=10&count=6"); got["content"] != "abcdef" || got["truncated"] != 1.0 {
		t.Errorf("part: %v", got)
	}
	if got := read("file=/etc/hosts&count=4&decode=0"); got["content"] != "MDEyMw==" {
		t.Errorf("undecoded: %v", got)
	}
	if _, reason, _ := n.do("GET", "/nodes/pve1/qemu/100/agent/file-read?file=/nope", ""); reason != "Agent error: failed to open file '/nope' (mode: 'r')" {
		t.Errorf("missing file: %q", reason)
	}
}

// F81: an agent that answers has the file systems frozen around the snapshot,
// and thawed also when the snapshot fails; freeze-fs=0 turns it off on 9.
func TestFreeze(t *testing.T) {
	n := newNode(t, nil)
	n.makeVM("100", "&agent=1")
	n.run("POST", "/nodes/pve1/qemu/100/status/start", "")
	calls := make(chan string, 100)
	n.mem.SetAgent(100, func(command string, _ any) (any, error) { calls <- command; return map[string]any{}, nil })
	taken := func(form string) string {
		n.run("POST", "/nodes/pve1/qemu/100/snapshot", form)
		var got []string
		for len(calls) > 0 {
			got = append(got, strings.TrimPrefix(<-calls, "guest-"))
		}
		return strings.Join(got, " ")
	}
	if got := taken("snapname=s1"); got != "ping fsfreeze-freeze fsfreeze-thaw" {
		t.Errorf("disks: %s", got)
	}
	if got := taken("snapname=s2&vmstate=1"); got != "" {
		t.Errorf("with memory: %s", got)
	}
	n.mem.FailNext("Snapshot", errors.New("no space"))
	if got := taken("snapname=s3"); !strings.HasSuffix(got, "fsfreeze-thaw") {
		t.Errorf("failed: %s", got)
	}
	n.do("PUT", "/nodes/pve1/qemu/100/config", "agent=1,freeze-fs%3D0")
	n.run("POST", "/nodes/pve1/qemu/100/status/stop", "")
	n.run("POST", "/nodes/pve1/qemu/100/status/start", "")
	if got := taken("snapname=s4"); got != "" {
		t.Errorf("turned off: %s", got)
	}
}

// F80: an agent that does not answer right after the snapshot is asked again
// until the guest is thawed.
func TestThawIsTriedAgain(t *testing.T) {
	n := newNode(t, func(c *pve.Config) { c.AgentTimeout = 200 * time.Millisecond })
	n.makeVM("100", "&agent=1")
	n.run("POST", "/nodes/pve1/qemu/100/status/start", "")
	thawed := make(chan bool, 10)
	answer := func(command string, _ any) (any, error) {
		if command == "guest-fsfreeze-thaw" {
			thawed <- true
		}
		return map[string]any{}, nil
	}
	var back *time.Timer
	n.mem.SetAgent(100, func(command string, args any) (any, error) {
		if command == "guest-fsfreeze-freeze" {
			n.mem.SetAgent(100, nil)
			back = time.AfterFunc(500*time.Millisecond, func() { n.mem.SetAgent(100, answer) })
		}
		return answer(command, args)
	})
	if st := n.run("POST", "/nodes/pve1/qemu/100/snapshot", "snapname=s1"); st != "OK" {
		t.Errorf("ended with %q", st)
	}
	back.Stop()
	if len(thawed) != 1 {
		t.Errorf("thawed %d times", len(thawed))
	}
}

// Figures may be old, as on a real node: F52.
func TestResourceLag(t *testing.T) {
	var now atomic.Int64
	now.Store(1_800_000_000)
	n := newNode(t, func(c *pve.Config) {
		c.ResourceLag = 10 * time.Second
		c.Now = func() time.Time { return time.Unix(now.Load(), 0) }
	})
	n.makeVM("100", "&name=one")
	status := func(id string) string {
		for _, e := range n.data("/cluster/resources?type=vm").([]any) {
			if o := e.(map[string]any); o["id"] == "qemu/"+id {
				return o["status"].(string)
			}
		}
		return "missing"
	}
	if got := status("100"); got != "stopped" {
		t.Errorf("first figures: %s", got)
	}
	n.makeVM("101", "")
	n.run("POST", "/nodes/pve1/qemu/100/status/start", "")
	if a, b := status("100"), status("101"); a != "stopped" || b != "unknown" {
		t.Errorf("old figures: %s %s", a, b)
	}
	now.Add(10)
	if a, b := status("100"), status("101"); a != "running" || b != "stopped" {
		t.Errorf("new figures: %s %s", a, b)
	}
}

// A suspended VM goes on where it was, with the disks it had.
func TestSuspendToDisk(t *testing.T) {
	n := newNode(t, nil)
	n.makeVM("100", "")
	n.run("POST", "/nodes/pve1/qemu/100/status/start", "")
	disk := n.mem.Paths()[0]
	n.must(n.mem.Write(disk, "then"))
	n.mem.SetMemory(100, "thoughts")
	if st := n.run("POST", "/nodes/pve1/qemu/100/status/suspend", "todisk=1"); st != "OK" {
		t.Fatal(st)
	}
	if n.mem.Machines().Status(100).Running {
		t.Error("it runs")
	}
	if st := n.run("POST", "/nodes/pve1/qemu/100/status/start", ""); st != "OK" {
		t.Fatal(st)
	}
	if got, _ := n.mem.Read(disk); got != "then" || n.mem.Memory(100) != "thoughts" {
		t.Errorf("disk %q memory %q", got, n.mem.Memory(100))
	}
	if left := n.mem.Paths(); len(left) != 1 || n.object("/nodes/pve1/qemu/100/config")["vmstate"] != nil {
		t.Errorf("left %v", left)
	}
}

// go-proxmox's own walk over the node.
func TestGoProxmoxReads(t *testing.T) {
	n := newNode(t, nil)
	n.makeVM("100", "&name=one&tags=a")
	ctx := t.Context()
	nodes, err := n.client.Nodes(ctx)
	n.must(err)
	if len(nodes) != 1 || nodes[0].Node != "pve1" {
		t.Fatalf("nodes %v", nodes)
	}
	node, err := n.client.Node(ctx, "pve1")
	n.must(err)
	vms, err := node.VirtualMachines(ctx)
	n.must(err)
	if len(vms) != 1 || vms[0].Name != "one" {
		t.Errorf("vms %v", vms)
	}
	stores, err := node.Storages(ctx)
	n.must(err)
	if len(stores) != 3 {
		t.Errorf("storages %v", stores)
	}
	cluster, err := n.client.Cluster(ctx)
	n.must(err)
	id, err := cluster.NextID(ctx)
	n.must(err)
	if id != 101 {
		t.Errorf("next id %d", id)
	}
	res, err := cluster.Resources(ctx)
	n.must(err)
	if len(res) < 5 {
		t.Errorf("resources %v", res)
	}
	tasks, err := cluster.Tasks(ctx)
	n.must(err)
	if len(tasks) != 1 || tasks[0].Type != "qmcreate" {
		t.Errorf("tasks %v", tasks)
	}
	vm, err := node.VirtualMachine(ctx, 100)
	n.must(err)
	if vm.VirtualMachineConfig.Name != "one" || !vm.IsStopped() {
		t.Errorf("vm %+v", vm)
	}
	_, err = node.VirtualMachine(ctx, 777)
	if !proxmox.IsNotFound(err) {
		t.Errorf("missing vm: %v", err)
	}
	n.must(n.client.NewPool(ctx, "p", "words"))
	pools, err := n.client.Pools(ctx)
	n.must(err)
	if len(pools) != 1 || pools[0].PoolID != "p" {
		t.Errorf("pools %v", pools)
	}
	perms, err := n.client.Permissions(ctx, nil)
	n.must(err)
	if !bool(perms["/"]["VM.Audit"]) {
		t.Errorf("permissions %v", perms["/"])
	}
}

// A pool's members show less of a VM than the list of resources does.
func TestPoolMembers(t *testing.T) {
	n := newNode(t, nil)
	n.ok("POST", "/pools", "poolid=p1")
	n.makeVM("100", "&tags=red&pool=p1")
	n.must(n.srv.SetLock(100, "backup"))
	member := n.object("/pools/p1")["members"].([]any)[0].(map[string]any)
	listed := n.data("/cluster/resources?type=vm").([]any)[0].(map[string]any)
	for name, want := range map[string]any{"pool": "p1", "tags": "red", "lock": "backup"} {
		if listed[name] != want || member[name] != nil {
			t.Errorf("%s: listed %v, member %v", name, listed[name], member[name])
		}
	}
	if member["name"] != listed["name"] || member["status"] != "stopped" {
		t.Errorf("member %v", member)
	}
}
