package pve_test

import (
	"context"
	"errors"
	"net/netip"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"savepoint/orchestrator"
	"savepoint/testbed/pve"
	"savepoint/testbed/pve/access"
	"savepoint/testbed/pve/memory"
	"savepoint/testbed/pve/task"
)

// fabric remembers what it was asked to build; err refuses it.
type fabric struct {
	mu   sync.Mutex
	err  error
	got  []pve.SDN
	node []string
}

func (f *fabric) Apply(_ context.Context, node string, sdn pve.SDN) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.got, f.node = append(f.got, sdn), append(f.node, node)
	return f.err
}

func (f *fabric) fail(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.err = err
}

func (f *fabric) calls() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.got)
}

func (f *fabric) last() pve.SDN {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.got[len(f.got)-1]
}

// ok makes a call that must succeed.
func (n *node) ok(method, path, form string) {
	n.t.Helper()
	if status, reason, body := n.do(method, path, form); status != 200 {
		n.t.Fatalf("%s %s: %d %s: %s", method, path, status, reason, body)
	}
}

// column maps one key of a list's objects to another.
func (n *node) column(path, key, value string) map[string]any {
	n.t.Helper()
	out := map[string]any{}
	for _, e := range n.data(path).([]any) {
		o := e.(map[string]any)
		out[o[key].(string)] = o[value]
	}
	return out
}

// simpleNet makes zone z1 with vnet v1, which is not applied yet.
func (n *node) simpleNet() {
	n.t.Helper()
	n.ok("POST", "/cluster/sdn/zones", "zone=z1&type=simple")
	n.ok("POST", "/cluster/sdn/vnets", "vnet=v1&zone=z1")
}

const nodeZones = "/nodes/pve1/sdn/zones"

// F101: a vnet is nothing until it is applied; then VMs start on it, and the
// lists of networks and resources show it.
func TestVNetBecomesABridge(t *testing.T) {
	for _, version := range []string{"8.4", "9.2"} {
		t.Run(version, func(t *testing.T) {
			n := newNode(t, func(c *pve.Config) { c.Version = version })
			n.simpleNet()
			n.makeVM("100", "&net1=virtio,bridge%3Dv1")
			if st := n.run("POST", "/nodes/pve1/qemu/100/status/start", ""); st == "OK" {
				t.Fatal("started on a vnet that does not exist yet")
			}
			if got := n.column("/nodes/pve1/network?type=any_bridge", "iface", "type"); got["v1"] != nil {
				t.Errorf("networks before the apply: %v", got)
			}
			if st := n.run("PUT", "/cluster/sdn", ""); st != "OK" {
				t.Fatal(st)
			}
			if st := n.run("POST", "/nodes/pve1/qemu/100/status/start", ""); st != "OK" {
				t.Fatal(st)
			}
			if m, ok := n.mem.Machine(100); !ok || len(m.NICs) != 2 || m.NICs[1].Bridge != "v1" {
				t.Errorf("machine %+v", m)
			}
			for kind, want := range map[string]map[string]any{
				"any_bridge": {"vmbr0": "bridge", "v1": "vnet"}, "vnet": {"v1": "vnet"},
				"any_local_bridge": {"vmbr0": "bridge"}, "bridge": {"vmbr0": "bridge"}, "bond": {},
			} {
				if diff := cmp.Diff(want, n.column("/nodes/pve1/network?type="+kind, "iface", "type")); diff != "" {
					t.Errorf("%s: %s", kind, diff)
				}
			}
			id := "network/pve1/zone/z1"
			if version == "8.4" {
				id = "sdn/pve1/z1"
			}
			if got := n.column("/cluster/resources", "id", "status"); got[id] != "available" {
				t.Errorf("resources %v", got)
			}
			n.ok("DELETE", "/cluster/sdn/vnets/v1", "")
			n.run("PUT", "/cluster/sdn", "")
			n.run("POST", "/nodes/pve1/qemu/100/status/stop", "")
			if st := n.run("POST", "/nodes/pve1/qemu/100/status/start", ""); st == "OK" {
				t.Error("started on a vnet that is gone")
			}
		})
	}
}

// A vnet's bridge needs SDN.Use on the vnet in its zone, applied or not.
func TestVNetPermission(t *testing.T) {
	n := newNode(t, func(c *pve.Config) {
		c.Roles = map[string][]string{"Net": {"VM.Audit", "VM.Config.Network"}, "Use": {"SDN.Use"}}
		c.Users = append(c.Users, access.User{ID: "u@pve", Tokens: []access.Token{{ID: "t", Shared: true}}})
		c.ACL = append(c.ACL, access.Entry{Path: "/vms", Subject: "u@pve", Role: "Net"}, access.Entry{Path: "/sdn/zones/z1/v1", Subject: "u@pve", Role: "Use"})
	})
	n.simpleNet()
	n.ok("POST", "/cluster/sdn/vnets", "vnet=v2&zone=z1")
	n.makeVM("100", "")
	for bridge, want := range map[string]string{
		"v1": "OK", "v2": "Permission check failed (/sdn/zones/z1/v2, SDN.Use)",
		"vmbr0": "Permission check failed (/sdn/zones/localnetwork/vmbr0, SDN.Use)",
		"none":  "Permission check failed (/sdn/zones/localnetwork/none, SDN.Use)",
	} {
		if _, reason, _ := n.as("u@pve!t", "PUT", "/nodes/pve1/qemu/100/config", "net1=virtio,bridge%3D"+bridge); reason != want {
			t.Errorf("%s: %q, want %q", bridge, reason, want)
		}
	}
}

// F101: the apply's task ends well although the node could not build the
// network; only the node's view tells, until a reload succeeds.
func TestApplyOKProvesNothing(t *testing.T) {
	f := &fabric{err: errors.New("no tunnel")}
	n := newNode(t, func(c *pve.Config) { c.Fabric = f })
	n.simpleNet()
	n.makeVM("100", "&net1=virtio,bridge%3Dv1")
	if st := n.run("PUT", "/cluster/sdn", ""); st != "OK" {
		t.Errorf("apply: %s", st)
	}
	if st := n.reloads()[0]; st != "command 'ifreload -a' failed: exit code 1" {
		t.Errorf("reload: %s", st)
	}
	if got := n.column(nodeZones, "zone", "status"); got["z1"] != "error" {
		t.Errorf("zones %v", got)
	}
	if got := n.column(nodeZones+"/z1/content", "vnet", "statusmsg"); got["v1"] != "missing v1" {
		t.Errorf("content %v", got)
	}
	if st := n.run("POST", "/nodes/pve1/qemu/100/status/start", ""); st == "OK" {
		t.Error("started on a bridge that was not built")
	}
	f.fail(nil)
	if st := n.run("PUT", "/nodes/pve1/network", ""); st != "OK" {
		t.Errorf("reload of the node: %s", st)
	}
	if got := n.column(nodeZones, "zone", "status"); got["z1"] != "available" {
		t.Errorf("zones %v", got)
	}
	// a vnet that exists stays usable when a later reload fails
	f.fail(errors.New("no tunnel"))
	n.run("PUT", "/cluster/sdn", "")
	if got := n.column(nodeZones+"/z1/content", "vnet", "statusmsg"); got["v1"] != "error v1" {
		t.Errorf("content %v", got)
	}
	if st := n.run("POST", "/nodes/pve1/qemu/100/status/start", ""); st != "OK" {
		t.Error(st)
	}
}

// reloads lists how the node's reloads ended, the newest first.
func (n *node) reloads() []string {
	n.t.Helper()
	var out []string
	for _, e := range n.data("/nodes/pve1/tasks?typefilter=srvreload&source=all").([]any) {
		out = append(out, e.(map[string]any)["status"].(string))
	}
	return out
}

// F101 F106: faults of a node's reload. One that has not begun leaves the
// zones pending, one that stops after its files were written leaves an error,
// and the next apply waits for one that hangs.
func TestReloadFaults(t *testing.T) {
	f := &fabric{}
	n := newNode(t, func(c *pve.Config) { c.Fabric, c.ReloadWait = f, -1 })
	n.simpleNet()
	status := func() any { return n.column(nodeZones, "zone", "status")["z1"] }
	hang := func(step string) (string, func()) {
		struck := make(chan task.UPID, 1)
		remove := n.srv.Faults.AddTask(pve.TaskFault{Type: "srvreload", Step: step, Nth: 1, Action: task.Action{Hang: true}, Struck: func(u task.UPID) { struck <- u }})
		if st := n.run("PUT", "/cluster/sdn", ""); st != "OK" {
			t.Fatal(st)
		}
		return (<-struck).String(), remove
	}
	upid, remove := hang("begin")
	remove()
	if got := status(); got != "pending" || f.calls() != 0 {
		t.Errorf("before the reload begins: %v, %d calls", got, f.calls())
	}
	msg := n.column(nodeZones+"/z1/content", "vnet", "statusmsg")["v1"]
	if s, _ := msg.(string); !strings.Contains(s, "not yet generated, please reload") {
		t.Errorf("message %v", msg)
	}
	n.ok("DELETE", "/nodes/pve1/tasks/"+url.PathEscape(upid), "")
	if got := status(); got != "pending" {
		t.Errorf("after it was stopped: %v", got)
	}

	upid, remove = hang("written")
	remove()
	if got := status(); got != "error" {
		t.Errorf("in the middle: %v", got)
	}
	if st := n.run("PUT", "/cluster/sdn", ""); st != "OK" || f.calls() != 0 {
		t.Errorf("second apply: %s, %d calls", st, f.calls())
	}
	n.srv.KillTask(upid)
	n.reaches("the next reload", func() bool { return status() == "available" })
	if f.calls() != 1 || f.last().Version != 3 {
		t.Errorf("%d calls, version %d", f.calls(), f.last().Version)
	}
	n.ok("PUT", "/cluster/sdn/zones/z1", "mtu=1400")
	defer n.srv.Faults.AddTask(pve.TaskFault{Type: "srvreload", Action: task.Action{Fail: "no"}})()
	n.run("PUT", "/cluster/sdn", "")
	n.reaches("the failed reload", func() bool { return slices.Contains(n.reloads(), "no") })
	msg = n.column(nodeZones+"/z1/content", "vnet", "statusmsg")["v1"]
	if msg != "local sdn network configuration is too old, please reload" || status() != "pending" {
		t.Errorf("after a reload that never began: %v %v", status(), msg)
	}
}

// The fabric gets the whole running configuration, typed.
func TestFabricSnapshot(t *testing.T) {
	f := &fabric{}
	n := newNode(t, func(c *pve.Config) { c.Fabric = f })
	n.ok("POST", "/cluster/sdn/controllers", "controller=c1&type=evpn&asn=65000&peers=10.0.0.1,10.0.0.2")
	n.ok("POST", "/cluster/sdn/zones", "zone=e1&type=evpn&controller=c1&vrf-vxlan=100&mtu=1400&exitnodes=pve1&rt-import=65000:1,65000:2&advertise-subnets=1&mac=02:00:00:00:00:01")
	n.ok("POST", "/cluster/sdn/zones", "zone=x1&type=vxlan&peers=10.0.0.1&vxlan-port=4790&nodes=pve9")
	n.ok("POST", "/cluster/sdn/vnets", "vnet=a1&zone=e1&tag=101&isolate-ports=1&alias=one")
	n.ok("POST", "/cluster/sdn/vnets", "vnet=b1&zone=x1&tag=102&vlanaware=1")
	n.ok("POST", "/cluster/sdn/vnets/a1/subnets", "subnet=10.1.0.5/24&type=subnet&gateway=10.1.0.1&snat=1&dhcp-range="+url.QueryEscape("start-address=10.1.0.10,end-address=10.1.0.20"))
	n.run("PUT", "/cluster/sdn", "")
	addr := netip.MustParseAddr
	want := pve.SDN{
		Version:     1,
		Controllers: []pve.SDNController{{ID: "c1", Type: "evpn", ASN: 65000, Peers: []netip.Addr{addr("10.0.0.1"), addr("10.0.0.2")}}},
		Zones: []pve.SDNZone{
			{ID: "e1", Type: "evpn", Controller: "c1", VRFVXLAN: 100, MTU: 1400, ExitNodes: []string{"pve1"}, RTImport: []string{"65000:1", "65000:2"}, AdvertiseSubnets: true, MAC: "02:00:00:00:00:01"},
			{ID: "x1", Type: "vxlan", Peers: []netip.Addr{addr("10.0.0.1")}, VXLANPort: 4790, Nodes: []string{"pve9"}},
		},
		VNets: []pve.SDNVNet{
			{ID: "a1", Zone: "e1", Alias: "one", Tag: 101, IsolatePorts: true},
			{ID: "b1", Zone: "x1", Tag: 102, VLANAware: true},
		},
		Subnets: []pve.SDNSubnet{{
			ID: "e1-10.1.0.5-24", VNet: "a1", CIDR: netip.MustParsePrefix("10.1.0.5/24"), Gateway: addr("10.1.0.1"), SNAT: true,
			DHCPRanges: [][2]netip.Addr{{addr("10.1.0.10"), addr("10.1.0.20")}},
		}},
	}
	equal := []cmp.Option{cmpopts.EquateEmpty(), cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{})}
	if diff := cmp.Diff(want, f.last(), equal...); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(want, n.srv.RunningSDN(), equal...); diff != "" {
		t.Error(diff)
	}
	if want.Zones[1].On("pve1") || !want.Zones[0].On("pve1") {
		t.Error("zones on nodes")
	}
	// a zone that is not on the node is not in its views
	if got := n.column(nodeZones, "zone", "status"); len(got) != 1 || got["e1"] != "available" {
		t.Errorf("zones %v", got)
	}
	if got := n.column("/nodes/pve1/network?type=vnet", "iface", "type"); len(got) != 1 {
		t.Errorf("vnets %v", got)
	}
	n.makeVM("100", "&net1=virtio%3D02:00:00:00:00:0A,bridge%3Da1&ipconfig1=ip%3D10.1.0.7/24")
	n.run("POST", "/nodes/pve1/qemu/100/status/start", "")
	for path, want := range map[string]any{
		nodeZones + "/e1/bridges":           []any{map[string]any{"name": "a1", "vlan_filtering": "0", "ports": []any{map[string]any{"name": "tap100i1", "vmid": 100.0, "index": "net1"}}}},
		nodeZones + "/e1/ip-vrf":            []any{map[string]any{"ip": "10.1.0.0/24", "metric": 0.0, "protocol": "kernel", "nexthops": []any{"a1"}}},
		"/nodes/pve1/sdn/vnets/a1/mac-vrf":  []any{map[string]any{"ip": "10.1.0.7", "mac": "02:00:00:00:00:0A", "nexthop": "10.0.0.1"}},
		nodeZones + "/localnetwork/bridges": []any{map[string]any{"name": "vmbr0", "vlan_filtering": "0", "ports": []any{map[string]any{"name": "tap100i0", "vmid": 100.0, "index": "net0"}}}},
	} {
		if diff := cmp.Diff(want, n.data(path)); diff != "" {
			t.Errorf("%s: %s", path, diff)
		}
	}
}

// knowing is a fabric whose nodes' daemons know routes and guests.
type knowing struct{ fabric }

func (f *knowing) ZoneRoutes(_ context.Context, node, zone string) ([]orchestrator.ZoneRoute, error) {
	if f.err != nil {
		return nil, f.err
	}
	return []orchestrator.ZoneRoute{
		{Prefix: netip.MustParsePrefix("10.1.0.9/32"), Protocol: "bgp", Metric: 20, NextHops: []string{"10.0.0.2"}},
		{Prefix: netip.MustParsePrefix("0.0.0.0/0"), Protocol: "kernel"},
	}, nil
}

func (f *knowing) VNetMACs(_ context.Context, node, vnet string) ([][3]string, error) {
	return [][3]string{{"10.1.0.9", "02:00:00:00:00:0b", "10.0.0.2"}}, f.err
}

// F101: the node's views of an evpn zone are what its daemons know, and an error
// when they cannot tell.
func TestZoneViewsOfAFabric(t *testing.T) {
	f := &knowing{}
	n := newNode(t, func(c *pve.Config) { c.Fabric = f })
	n.ok("POST", "/cluster/sdn/controllers", "controller=c1&type=evpn&asn=65000&peers=10.0.0.1,10.0.0.2")
	n.ok("POST", "/cluster/sdn/zones", "zone=e1&type=evpn&controller=c1&vrf-vxlan=100")
	n.ok("POST", "/cluster/sdn/vnets", "vnet=a1&zone=e1&tag=101")
	n.run("PUT", "/cluster/sdn", "")
	views := map[string]any{
		nodeZones + "/e1/ip-vrf": []any{
			map[string]any{"ip": "10.1.0.9/32", "metric": 20.0, "protocol": "bgp", "nexthops": []any{"10.0.0.2"}},
			map[string]any{"ip": "0.0.0.0/0", "metric": 0.0, "protocol": "kernel", "nexthops": []any{}},
		},
		"/nodes/pve1/sdn/vnets/a1/mac-vrf": []any{map[string]any{"ip": "10.1.0.9", "mac": "02:00:00:00:00:0b", "nexthop": "10.0.0.2"}},
	}
	for path, want := range views {
		if diff := cmp.Diff(want, n.data(path)); diff != "" {
			t.Errorf("%s: %s", path, diff)
		}
	}
	f.fail(errors.New("no zebra"))
	for path := range views {
		if status, reason, _ := n.do("GET", path, ""); status != 500 || !strings.Contains(reason, "no zebra") {
			t.Errorf("%s: %d %s", path, status, reason)
		}
	}
}

// F102: what is written, what runs, who holds the lock and what the node built
// outlive the server.
func TestSDNSurvivesARestart(t *testing.T) {
	mem := memory.New()
	cfg := config(filepath.Join(t.TempDir(), "state"), mem)
	first := startNode(t, cfg, mem)
	first.simpleNet()
	first.run("PUT", "/cluster/sdn", "")
	first.ok("PUT", "/cluster/sdn/zones/z1", "mtu=1400")
	token := first.begin("POST", "/cluster/sdn/lock", "allow-pending=1")
	before := first.srv.RunningSDN()
	first.srv.Close()

	n := startNode(t, cfg, mem)
	if diff := cmp.Diff(before, n.srv.RunningSDN()); diff != "" {
		t.Error(diff)
	}
	if got := n.column("/cluster/sdn/zones?pending=1", "zone", "state"); got["z1"] != "changed" {
		t.Errorf("pending %v", got)
	}
	if got := n.column(nodeZones, "zone", "status"); got["z1"] != "available" {
		t.Errorf("zones %v", got)
	}
	if status, _, _ := n.do("POST", "/cluster/sdn/rollback", ""); status != 500 {
		t.Errorf("rollback without the token: %d", status)
	}
	n.ok("POST", "/cluster/sdn/rollback", "release-lock=1&lock-token="+token)
	if got := n.column("/cluster/sdn/zones?pending=1", "zone", "state"); got["z1"] != nil {
		t.Errorf("pending %v", got)
	}
	n.ok("PUT", "/cluster/sdn/zones/z1", "mtu=1300")
}

// Checks of objects that the recordings do not have.
func TestSDNRefuses(t *testing.T) {
	n := newNode(t, nil)
	n.simpleNet()
	n.ok("POST", "/cluster/sdn/vnets/v1/subnets", "subnet=10.1.0.0/24&type=subnet")
	n.ok("POST", "/cluster/sdn/zones", "zone=z2&type=simple")
	n.ok("POST", "/cluster/sdn/vnets", "vnet=v2&zone=z2")
	for _, tt := range []struct{ name, method, path, form, text string }{
		{"zone of a type that is not served", "POST", "/cluster/sdn/zones", "zone=q1&type=vlan&bridge=vmbr0", "sdn zone object of type 'vlan' is not supported by this server"},
		{"peers and fabric", "POST", "/cluster/sdn/zones", "zone=q1&type=vxlan&peers=10.0.0.1&fabric=f", "must have exactly one of peers / fabric defined"},
		{"a fabric that is not there", "POST", "/cluster/sdn/zones", "zone=q1&type=vxlan&fabric=f", "fabric 'f' does not exist"},
		{"dns without a server", "POST", "/cluster/sdn/zones", "zone=q1&type=simple&dnszone=a.b", "dnszone: missing dns server"},
		{"deleting what no zone of the type has", "PUT", "/cluster/sdn/zones/z1", "delete=tag", "no such option 'tag'"},
		{"setting and deleting", "PUT", "/cluster/sdn/zones/z1", "delete=mtu&mtu=1400", "cannot set and delete property 'mtu' at the same time!"},
		{"deleting what it needs", "PUT", "/cluster/sdn/vnets/v1", "delete=zone", "unable to delete required option 'zone'"},
		{"moving a vnet with subnets", "PUT", "/cluster/sdn/vnets/v1", "zone=z2", "zone: can't change zone if subnets exists"},
		{"range outside", "POST", "/cluster/sdn/vnets/v1/subnets", "subnet=10.2.0.0/24&type=subnet&dhcp-range=start-address%3D10.9.0.1,end-address%3D10.9.0.2", "dhcp-range: 10.9.0.1 is not in subnet 10.2.0.0/24"},
		{"a subnet of another vnet", "DELETE", "/cluster/sdn/vnets/v2/subnets/z1-10.1.0.0-24", "", "vnet: wrong vnet"},
		{"routes of a simple zone", "GET", nodeZones + "/z1/ip-vrf", "", "zone z1 is not an EVPN zone"},
	} {
		status, _, body := n.do(tt.method, tt.path, tt.form)
		if status != 500 || !strings.Contains(body, tt.text) {
			t.Errorf("%s: %d %s", tt.name, status, body)
		}
	}
	if got := n.column("/cluster/sdn/vnets/v1/subnets", "id", "cidr"); len(got) != 1 {
		t.Errorf("subnets %v", got)
	}
}
