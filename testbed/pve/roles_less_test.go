package pve_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"savepoint/testbed/pve/memory"
)

// right is one privilege of the minimal role, a call that needs it, and the
// refusal that its lack brings.
type right struct {
	path, priv         string
	method, call, form string
	refusal            string
	undo               string // a call that undoes what the first did, "METHOD path"
	since, until       string
}

// rights are the privileges of a token for savepoint and for what comes with
// it, in an order in which each call can be made after those before. VM 900 is
// the sandbox and 100 the template.
func rights() []right {
	const pool, vm, storage = "/pool/sandboxes", "/nodes/pve1/qemu/900", "/storage/local"
	set := func(priv, form string) right {
		return right{path: pool, priv: priv, method: "PUT", call: vm + "/config", form: form, refusal: "/vms/900, " + priv}
	}
	agent := func(priv, method, call, form string) right {
		return right{path: pool, priv: priv, method: method, call: vm + "/agent/" + call, form: form, refusal: "/vms/900, " + priv + "|VM.GuestAgent.Unrestricted", since: "9"}
	}
	clone := "newid=901&full=0&pool=sandboxes&name=box"
	destroy := "DELETE /nodes/pve1/qemu/901"
	monitor := right{path: pool, priv: "VM.Monitor", method: "POST", call: vm + "/agent/ping", refusal: "/vms/900, VM.Monitor", until: "8"}
	exec := agent("VM.GuestAgent.Unrestricted", "POST", "exec", "command=true")
	exec.refusal = "/vms/900, VM.GuestAgent.Unrestricted"
	return []right{
		{path: "/vms/100", priv: "VM.Clone", method: "POST", call: "/nodes/pve1/qemu/100/clone", form: clone, refusal: "/vms/100, VM.Clone", undo: destroy},
		{path: "/vms/100", priv: "VM.Audit", method: "GET", call: "/nodes/pve1/qemu/100/config", refusal: "/vms/100, VM.Audit"},
		{path: storage, priv: "Datastore.AllocateSpace", method: "POST", call: "/nodes/pve1/qemu/100/clone", form: clone, refusal: "/storage/local, Datastore.AllocateSpace", undo: destroy},
		{path: storage, priv: "Datastore.AllocateSpace", method: "PUT", call: vm + "/config", form: "vmstatestorage=local", refusal: "/storage/local, Datastore.AllocateSpace"},
		{path: "/sdn/zones/localnetwork/vmbr0", priv: "SDN.Use", method: "PUT", call: vm + "/config", form: "net0=virtio%3DBC:24:11:00:00:01,bridge%3Dvmbr0", refusal: "/sdn/zones/localnetwork/vmbr0, SDN.Use"},
		{path: pool, priv: "VM.Allocate", method: "POST", call: "/nodes/pve1/qemu/100/clone", form: clone, undo: destroy}, // of two alternatives none is named
		{path: pool, priv: "VM.Audit", method: "GET", call: vm + "/config", refusal: "/vms/900, VM.Audit"},
		{path: pool, priv: "Pool.Audit", method: "GET", call: "/pools/sandboxes", refusal: "/pool/sandboxes, Pool.Audit"},
		set("VM.Config.Options", "description=x&tags=savepoint"),
		set("VM.Config.CPU", "cores=2"),
		set("VM.Config.Memory", "memory=512"),
		set("VM.Config.HWType", "scsihw=virtio-scsi-pci"),
		set("VM.Config.Network", "net0=virtio%3DBC:24:11:00:00:01,bridge%3Dvmbr0"),
		set("VM.Config.CDROM", "ide2=none,media%3Dcdrom"),
		{path: pool, priv: "VM.Config.Cloudinit", method: "PUT", call: vm + "/cloudinit", refusal: "/vms/900, VM.Config.Cloudinit"},
		{path: pool, priv: "VM.Config.Disk", method: "PUT", call: vm + "/resize", form: "disk=scsi0&size=%2B1M", refusal: "/vms/900, VM.Config.Disk"},
		{path: pool, priv: "VM.PowerMgmt", method: "POST", call: vm + "/status/start", refusal: "/vms/900, VM.PowerMgmt"},
		monitor,
		agent("VM.GuestAgent.Audit", "POST", "ping", ""),
		agent("VM.GuestAgent.FileRead", "GET", "file-read?file=/etc/hostname", ""),
		agent("VM.GuestAgent.FileWrite", "POST", "file-write", "file=/x&content=y"),
		agent("VM.GuestAgent.FileSystemMgmt", "POST", "fsfreeze-thaw", ""),
		exec,
		{path: pool, priv: "VM.Snapshot", method: "POST", call: vm + "/snapshot", form: "snapname=s1", refusal: "/vms/900, VM.Snapshot"},
		{path: pool, priv: "VM.Snapshot", method: "POST", call: vm + "/snapshot/s1/rollback", refusal: "/vms/900, VM.Snapshot|VM.Snapshot.Rollback"},
		{path: pool, priv: "VM.Snapshot", method: "DELETE", call: vm + "/snapshot/s1", refusal: "/vms/900, VM.Snapshot"},
		{path: pool, priv: "VM.Migrate", method: "GET", call: vm + "/migrate", refusal: "/vms/900, VM.Migrate"},
		{path: "/", priv: "Sys.Audit", method: "GET", call: "/cluster/status", refusal: "/, Sys.Audit"},
		{path: "/nodes/pve1", priv: "Sys.Modify", method: "PUT", call: "/nodes/pve1/network", refusal: "/nodes/pve1, Sys.Modify"},
		{path: "/sdn", priv: "SDN.Allocate", method: "PUT", call: "/cluster/sdn", refusal: "/sdn, SDN.Allocate"},
		{path: "/pool/more", priv: "Pool.Allocate", method: "POST", call: "/pools", form: "poolid=more", refusal: "/pool/more, Pool.Allocate", undo: "DELETE /pools/more"},
	}
}

// F117 F118 F120: what the minimal role has suffices, and without one of its
// privileges exactly the call that needs it is refused, with the text that
// names it.
func TestOnePrivilegeLess(t *testing.T) {
	for _, release := range []string{"8.4", "9.2"} {
		t.Run(release, func(t *testing.T) {
			n := newNode(t, version(release))
			n.makeVM("100", "")
			n.run("POST", "/nodes/pve1/qemu/100/template", "")
			n.exchange("sp@pve!t1", []wire{
				{"pool", "POST", "/pools", "poolid=sandboxes", 200, "OK", ""},
				{"user", "POST", "/access/users", "userid=op@pve", 200, "OK", ""},
			})
			n.newToken("op@pve", "cli", "")
			if st := n.run("POST", "/nodes/pve1/qemu/100/clone", "newid=900&full=1&pool=sandboxes"); st != "OK" {
				t.Fatal(st)
			}
			n.run("POST", "/nodes/pve1/qemu/900/config", "agent=1&ide2=local:cloudinit")
			n.mem.SetAgent(900, withFiles(standIn()))
			var all []right
			for _, r := range rights() {
				if r.since <= release[:1] && (r.until == "" || r.until >= release[:1]) {
					all = append(all, r)
				}
			}
			roles := n.makeRoles(all)
			for _, r := range all {
				n.without(r, roles)
			}
		})
	}
}

// makeRoles makes one role for each path and grants it to the user and its
// separated token. The agent's privilege that implies the others is left out.
func (n *node) makeRoles(all []right) map[string][]string {
	privs := map[string][]string{}
	for _, r := range all {
		if !slices.Contains(privs[r.path], r.priv) && r.priv != "VM.GuestAgent.Unrestricted" {
			privs[r.path] = append(privs[r.path], r.priv)
		}
	}
	for path, list := range privs {
		role := roleOf(path)
		n.exchange("sp@pve!t1", []wire{
			{"role " + role, "POST", "/access/roles", "roleid=" + role + "&privs=" + strings.Join(list, ","), 200, "OK", ""},
			{"grant " + role, "PUT", "/access/acl", "path=" + path + "&roles=" + role + "&users=op@pve&tokens=op@pve!cli", 200, "OK", ""},
		})
	}
	return privs
}

func roleOf(path string) string { return "Sp" + strings.ReplaceAll(path, "/", "-") }

// without makes a right's call without its privilege and then with it.
func (n *node) without(r right, roles map[string][]string) {
	n.t.Helper()
	name := fmt.Sprintf("%s %s without %s on %s", r.method, r.call, r.priv, r.path)
	set := func(list []string) {
		n.exchange("sp@pve!t1", []wire{{name, "PUT", "/access/roles/" + roleOf(r.path), "privs=" + strings.Join(list, ","), 200, "OK", ""}})
	}
	set(slices.DeleteFunc(slices.Clone(roles[r.path]), func(p string) bool { return p == r.priv }))
	want := "Permission check failed"
	if r.refusal != "" {
		want += " (" + r.refusal + ")"
	}
	n.exchange("op@pve!cli", []wire{{name, r.method, r.call, r.form, 403, want, `"data":null`}})

	with := slices.Clone(roles[r.path])
	if !slices.Contains(with, r.priv) {
		with = append(with, r.priv)
	}
	set(with)
	n.ends("op@pve!cli", r.method, r.call, r.form)
	set(roles[r.path])
	if r.undo != "" {
		method, call, _ := strings.Cut(r.undo, " ")
		n.ends("sp@pve!t1", method, call, "")
	}
}

// ends makes a call, and waits for its task if there is one; both must be well.
func (n *node) ends(token, method, path, form string) {
	n.t.Helper()
	status, reason, body := n.as(token, method, path, form)
	if status != 200 {
		n.t.Errorf("%s %s: %d %q %s", method, path, status, reason, body)
		return
	}
	if _, upid, ok := strings.Cut(body, `"UPID:`); ok {
		upid, _, _ = strings.Cut(upid, `"`)
		if end := n.exit("UPID:" + upid); end != "OK" {
			n.t.Errorf("%s %s: task %s", method, path, end)
		}
	}
}

// withFiles makes a guest agent take part in reading and writing files.
func withFiles(agent memory.AgentFunc) memory.AgentFunc {
	return func(command string, args any) (any, error) {
		switch command {
		case "guest-file-open":
			return 1000, nil
		case "guest-file-read":
			return map[string]any{"count": 0, "buf-b64": "", "eof": true}, nil
		case "guest-file-write":
			return map[string]any{"count": 1, "eof": false}, nil
		case "guest-file-close":
			return map[string]any{}, nil
		}
		return agent(command, args)
	}
}
