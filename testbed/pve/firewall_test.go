package pve_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"savepoint/testbed/pve/memory"
)

// rules lists the ports of the rules in their order.
func (n *node) rules(at string) []string {
	n.t.Helper()
	var out []string
	for _, e := range n.data(at + "/rules").([]any) {
		port, _ := e.(map[string]any)["dport"].(string)
		out = append(out, port)
	}
	return out
}

// A new rule is the first and off; rules move, change and go by their place,
// and a stale digest changes nothing.
func TestFirewallRules(t *testing.T) {
	n := newNode(t, nil)
	n.makeVM("100", "")
	at := "/nodes/pve1/qemu/100/firewall"
	for _, port := range []string{"3", "2", "1"} {
		n.ok("POST", at+"/rules", "type=in&action=ACCEPT&proto=tcp&dport="+port)
	}
	if diff := cmp.Diff([]string{"1", "2", "3"}, n.rules(at)); diff != "" {
		t.Fatal(diff)
	}
	if r := n.object(at + "/rules/1"); r["enable"] != 0.0 || r["pos"] != 1.0 || r["dport"] != "2" {
		t.Errorf("rule %v", r)
	}
	for _, tt := range []struct {
		pos, to string
		want    []string
	}{
		{"0", "2", []string{"2", "1", "3"}},
		{"2", "0", []string{"3", "2", "1"}},
		{"0", "9", []string{"2", "1", "3"}},
		{"1", "1", []string{"2", "1", "3"}},
	} {
		n.ok("PUT", at+"/rules/"+tt.pos, "moveto="+tt.to)
		if diff := cmp.Diff(tt.want, n.rules(at)); diff != "" {
			t.Errorf("%s to %s: %s", tt.pos, tt.to, diff)
		}
	}
	n.ok("PUT", at+"/rules/0", "enable=1&comment=x&action=DROP")
	n.ok("PUT", at+"/rules/0", "delete=comment")
	if r := n.object(at + "/rules/0"); r["enable"] != 1.0 || r["action"] != "DROP" || r["comment"] != nil {
		t.Errorf("rule %v", r)
	}
	for _, tt := range []struct{ name, method, path, form, text string }{
		{"port without protocol", "POST", "/rules", "type=in&action=ACCEPT&dport=1", "missing property - 'dport' requires this property"},
		{"a group that is not there", "POST", "/rules", "type=group&action=web", "security group 'web' does not exist"},
		{"of a vnet's kind", "POST", "/rules", "type=forward&action=DROP", "do not belong here"},
		{"no such place", "PUT", "/rules/9", "enable=1", "no rule at position 9"},
		{"stale", "DELETE", "/rules/0?digest=" + strings.Repeat("0", 40), "", "detected modified configuration"},
	} {
		if status, _, body := n.do(tt.method, at+tt.path, tt.form); status < 400 || !strings.Contains(body, tt.text) {
			t.Errorf("%s: %d %s", tt.name, status, body)
		}
	}
	n.ok("DELETE", at+"/rules/0?digest="+n.object(at + "/rules/0")["digest"].(string), "")
	if diff := cmp.Diff([]string{"1", "3"}, n.rules(at)); diff != "" {
		t.Error(diff)
	}
}

// The firewall is no part of a snapshot: a rollback leaves it, a clone has a
// copy of its own, a restart keeps it and the VM's end ends it. A failed clone
// leaves none.
func TestFirewallIsNotRolledBack(t *testing.T) {
	mem := memory.New()
	cfg := config(filepath.Join(t.TempDir(), "state"), mem)
	n := startNode(t, cfg, mem)
	n.makeVM("100", "")
	vm := "/nodes/pve1/qemu/100"
	n.ok("PUT", vm+"/firewall/options", "enable=1&policy_in=DROP")
	n.ok("POST", vm+"/firewall/rules", "type=in&action=ACCEPT&proto=tcp&dport=22")
	n.run("POST", vm+"/snapshot", "snapname=s1")
	n.ok("PUT", vm+"/firewall/options", "policy_in=REJECT")
	n.ok("POST", vm+"/firewall/rules", "type=out&action=DROP")
	n.run("POST", vm+"/snapshot/s1/rollback", "")
	if o := n.object(vm + "/firewall/options"); o["policy_in"] != "REJECT" || len(n.rules(vm+"/firewall")) != 2 {
		t.Errorf("after the rollback: %v %v", o, n.rules(vm+"/firewall"))
	}
	if st := n.run("POST", vm+"/clone", "newid=101&full=1"); st != "OK" {
		t.Fatal(st)
	}
	copied := "/nodes/pve1/qemu/101/firewall"
	n.ok("PUT", copied+"/options", "delete=policy_in,enable")
	n.ok("PUT", copied+"/rules/0", "enable=1")
	if o := n.object(vm + "/firewall/options"); o["policy_in"] != "REJECT" || n.object(vm + "/firewall/rules/0")["enable"] != 0.0 {
		t.Errorf("the source changed with its clone: %v", o)
	}
	n.srv.Close()

	n = startNode(t, cfg, mem)
	if o := n.object(vm + "/firewall/options"); o["enable"] != 1.0 || len(n.rules(copied)) != 2 {
		t.Errorf("after a restart: %v %v", o, n.rules(copied))
	}
	n.run("DELETE", "/nodes/pve1/qemu/101", "")
	if len(n.rules(copied)) != 0 || len(n.rules(vm+"/firewall")) != 2 {
		t.Errorf("after the destroy: %v %v", n.rules(copied), n.rules(vm+"/firewall"))
	}
}

// A vnet has a firewall of its own, which asks for rights in its zone.
func TestVNetFirewall(t *testing.T) {
	n := newNode(t, nil)
	n.simpleNet()
	at := "/cluster/sdn/vnets/v1/firewall"
	n.ok("PUT", at+"/options", "enable=1&policy_forward=DROP")
	n.ok("POST", at+"/rules", "type=forward&action=DROP&dest=10.0.0.0/8")
	if o := n.object(at + "/options"); o["policy_forward"] != "DROP" || o["enable"] != 1.0 {
		t.Errorf("options %v", o)
	}
	if _, _, body := n.do("POST", at+"/rules", "type=in&action=DROP"); !strings.Contains(body, "do not belong here") {
		t.Errorf("a VM's rule: %s", body)
	}
	if _, reason, _ := n.do("GET", "/cluster/sdn/vnets/nope/firewall/rules", ""); reason != "sdn vnet 'nope' does not exist" {
		t.Errorf("missing vnet: %s", reason)
	}
}
