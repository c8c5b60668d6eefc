package pve_test

import (
	"strings"
	"testing"

	"savepoint/testbed/pve"
	"savepoint/testbed/pve/task"
)

// F102: while somebody holds the lock every write, apply and rollback without
// its token is refused and changes nothing; 8.4 has no lock.
func TestSDNLock(t *testing.T) {
	n := newNode(t, nil)
	n.simpleNet()
	n.ok("POST", "/cluster/sdn/vnets/v1/subnets", "subnet=10.1.0.0/24&type=subnet")
	if _, reason, _ := n.do("POST", "/cluster/sdn/lock", ""); !strings.Contains(reason, "configuration has pending changes") {
		t.Errorf("lock with pending changes: %s", reason)
	}
	token := n.begin("POST", "/cluster/sdn/lock", "allow-pending=1")
	if len(token) != 36 || token[14] != '7' {
		t.Errorf("token %q", token)
	}
	before := n.column("/cluster/sdn/zones", "zone", "digest")
	writes := []struct{ method, path, form string }{
		{"POST", "/cluster/sdn/lock", "allow-pending=1"},
		{"POST", "/cluster/sdn/controllers", "controller=c1&type=evpn&asn=1&peers=10.0.0.1"},
		{"POST", "/cluster/sdn/zones", "zone=z2&type=simple"},
		{"PUT", "/cluster/sdn/zones/z1", "mtu=1400"},
		{"POST", "/cluster/sdn/vnets", "vnet=v2&zone=z1"},
		{"PUT", "/cluster/sdn/vnets/v1", "alias=x"},
		{"POST", "/cluster/sdn/vnets/v1/subnets", "subnet=10.2.0.0/24&type=subnet"},
		{"PUT", "/cluster/sdn/vnets/v1/subnets/z1-10.1.0.0-24", "gateway=10.1.0.1"},
		{"DELETE", "/cluster/sdn/vnets/v1/subnets/z1-10.1.0.0-24", ""},
		{"DELETE", "/cluster/sdn/vnets/v1", ""},
		{"DELETE", "/cluster/sdn/zones/z1", ""},
		{"DELETE", "/cluster/sdn/lock", ""},
		{"POST", "/cluster/sdn/rollback", ""},
		{"PUT", "/cluster/sdn", ""},
	}
	for _, w := range writes {
		for _, with := range []string{"", "wrong"} {
			path, form := w.path, w.form
			switch {
			case with == "" || w.path == "/cluster/sdn/lock" && w.method == "POST":
			case w.method == "DELETE":
				path += "?lock-token=" + with
			default:
				form = strings.TrimPrefix(form+"&lock-token="+with, "&")
			}
			status, reason, _ := n.do(w.method, path, form)
			if status != 500 || !strings.Contains(reason, "invalid lock token provided!") {
				t.Errorf("%s %s: %d %s", w.method, path, status, reason)
			}
		}
	}
	if after := n.column("/cluster/sdn/zones", "zone", "digest"); len(after) != 1 || after["z1"] != before["z1"] {
		t.Errorf("zones %v, before %v", after, before)
	}
	n.ok("PUT", "/cluster/sdn/vnets/v1", "alias=x&lock-token="+token)
	if st := n.run("PUT", "/cluster/sdn", "lock-token="+token); st != "OK" {
		t.Error(st)
	}
	if status, _, _ := n.do("PUT", "/cluster/sdn", ""); status != 500 {
		t.Error("the apply gave the lock back without being asked")
	}
	n.run("PUT", "/cluster/sdn", "release-lock=1&lock-token="+token)
	n.ok("PUT", "/cluster/sdn/vnets/v1", "alias=y")
	n.begin("POST", "/cluster/sdn/lock", "allow-pending=1")
	n.ok("DELETE", "/cluster/sdn/lock?force=1", "")
	n.ok("POST", "/cluster/sdn/rollback", "")
	if got := n.object("/cluster/sdn/vnets/v1"); got["alias"] != "x" {
		t.Errorf("after the rollback %v", got)
	}

	old := newNode(t, func(c *pve.Config) { c.Version = "8.4" })
	if status, _, _ := old.do("POST", "/cluster/sdn/lock", ""); status != 501 {
		t.Errorf("8.4 locks: %d", status)
	}
}

// A dry run tells what an apply would change and changes nothing.
func TestDryRun(t *testing.T) {
	n := newNode(t, nil)
	n.simpleNet()
	diff := func() string { return n.object("/cluster/sdn/dry-run?node=pve1")["interfaces-diff"].(string) }
	if d := diff(); !strings.Contains(d, "+auto v1\n") || strings.Contains(d, "\n-") {
		t.Errorf("new vnet:\n%s", d)
	}
	n.run("PUT", "/cluster/sdn", "")
	if d := diff(); d != "" {
		t.Errorf("nothing pending:\n%s", d)
	}
	n.ok("POST", "/cluster/sdn/vnets/v1/subnets", "subnet=10.1.0.0/24&type=subnet&gateway=10.1.0.1")
	if d := diff(); !strings.Contains(d, "-auto v1\n") || !strings.Contains(d, "+\taddress 10.1.0.1/24\n") {
		t.Errorf("new gateway:\n%s", d)
	}
	if got := len(n.srv.RunningSDN().Subnets); got != 0 {
		t.Errorf("%d subnets run", got)
	}
}

// F106: a reload that is late keeps the apply's task waiting on its own node,
// or not, as configured; until it is done the zones wait.
func TestReloadLags(t *testing.T) {
	for _, wait := range []bool{true, false} {
		n := newNode(t, func(c *pve.Config) {
			if !wait {
				c.ReloadWait = -1
			}
		})
		n.simpleNet()
		reached, release := make(chan task.UPID, 1), make(chan struct{})
		n.srv.Faults.AddTask(pve.TaskFault{Type: "srvreload", Struck: func(u task.UPID) { reached <- u; <-release }})
		upid := n.begin("PUT", "/cluster/sdn", "")
		<-reached
		if !wait {
			if st := n.exit(upid); st != "OK" {
				t.Error(st)
			}
		} else if list := n.data("/nodes/pve1/tasks?source=active&typefilter=reloadnetworkall").([]any); len(list) != 1 {
			t.Errorf("active applies: %v", list)
		}
		if got := n.column(nodeZones, "zone", "status"); got["z1"] != "pending" {
			t.Errorf("while it lags: %v", got)
		}
		close(release)
		if st := n.exit(upid); st != "OK" {
			t.Error(st)
		}
		n.reaches("the reload", func() bool { return n.column(nodeZones, "zone", "status")["z1"] == "available" })
	}
}
