package proxmox_test

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"

	"savepoint/network"
	"savepoint/orchestrator"
	"savepoint/orchestrator/networks"
	"savepoint/proxmox"
	"savepoint/testbed/pve"
	"savepoint/testbed/pve/task"
)

var _ networks.Fabric = (*proxmox.SDN)(nil)

// store is a journal of text, as durable as a process is not.
type store struct {
	mu   sync.Mutex
	text []byte
}

func newStore(t *testing.T) *store {
	s := &store{}
	a := network.Allocation{Instance: "lab"}
	if err := s.PutNetworks(t.Context(), network.Record{Allocation: a, Applied: a}); err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *store) Networks(context.Context) (r network.Record, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return r, json.Unmarshal(s.text, &r)
}

func (s *store) PutNetworks(_ context.Context, r network.Record) (err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.text, err = json.Marshal(r)
	return err
}

func (s *store) now() network.Record {
	r, err := s.Networks(context.Background())
	if err != nil {
		panic(err)
	}
	return r
}

// fabric is a lab whose token may manage networks, and the manager of them.
type fabric struct {
	*lab
	store *store
}

func sdnUse() proxmox.Use { return proxmox.Use{ManageSDN: true} }

// startFabric makes a cluster of that many nodes. The token has what the
// doctor asks for and nothing else, F118.
func startFabric(t *testing.T, release string, nodes int, change ...func(*pve.Config)) *fabric {
	t.Helper()
	f := &fabric{startLab(t, append([]func(*pve.Config){version(release), func(c *pve.Config) {
		for i := range nodes {
			c.Nodes = append(c.Nodes, fmt.Sprintf("pve%d", i+1))
		}
	}}, change...)...), newStore(t)}
	roles, acl := grants(t, release, "sp@pve", "t1", sdnUse())
	for role, privs := range roles {
		if !strings.Contains(role, "-sdn") && !strings.HasSuffix(role, "-vms") {
			continue // it has that already
		}
		f.call("POST", "/access/roles", map[string]any{"roleid": "N" + role, "privs": strings.Join(privs, ",")})
		for _, e := range acl {
			if e.Role != role {
				continue
			}
			what := "users"
			if strings.Contains(e.Subject, "!") {
				what = "tokens"
			}
			f.call("PUT", "/access/acl", map[string]any{"path": e.Path, what: e.Subject, "roles": "N" + role})
		}
	}
	return f
}

func (f *fabric) manager(c *proxmox.Cluster) *networks.Manager {
	return networks.New(networks.Config{Fabric: c.SDN(), Store: f.store})
}

// tenants are one on evpn with two vnets, one on vxlan.
func tenants() network.Wanted {
	subnet := func(p, gw string) network.Subnet {
		s := network.Subnet{Prefix: netip.MustParsePrefix(p)}
		if gw != "" {
			s.Gateway = netip.MustParseAddr(gw)
		}
		return s
	}
	return network.Wanted{
		Peers: []netip.Addr{netip.MustParseAddr("192.0.2.2"), netip.MustParseAddr("192.0.2.1")},
		VNIs:  network.VNIRange{First: 900, Last: 999}, Controller: network.Controller{ASN: 65000},
		Tenants: []network.Tenant{
			{Name: "alpha", Zone: network.Zone{Type: network.EVPN}, VNets: []network.VNet{
				{Name: "main", Subnets: []network.Subnet{subnet("10.1.0.0/24", "10.1.0.1"), subnet("fd00:1::/64", "fd00:1::1")}},
				{Name: "side", Subnets: []network.Subnet{subnet("10.1.1.0/24", "")}},
			}},
			{Name: "beta", Zone: network.Zone{Type: network.VXLAN}, VNets: []network.VNet{{Name: "main", Subnets: []network.Subnet{subnet("10.2.0.0/24", "")}}}},
		},
	}
}

// exerciseNetworks makes every kind of call about networks.
func exerciseNetworks(t *testing.T, c *proxmox.Cluster) {
	t.Helper()
	m := networks.New(networks.Config{Fabric: c.SDN(), Store: newStore(t)})
	less := tenants()
	less.Tenants[0].Zone.MTU = 1400
	for _, w := range []network.Wanted{tenants(), less, {}} {
		_, err := m.Apply(t.Context(), w)
		must(t, err)
	}
}

// releases are those that everything is tried on.
var releases = []string{"8.4", "9"}

// The whole life of networks on both releases, with the doctor's privileges:
// made, changed in both directions, removed. Nothing is left to do in between,
// nothing is locked, and what is somebody else's stays.
func TestNetworks(t *testing.T) {
	for _, release := range releases {
		t.Run(release, func(t *testing.T) {
			f := startFabric(t, release, 3)
			f.call("POST", "/cluster/sdn/zones", map[string]any{"zone": "dmz", "type": "simple"})
			f.call("POST", "/cluster/sdn/vnets", map[string]any{"vnet": "web", "zone": "dmz"})
			f.call("PUT", "/cluster/sdn", nil)
			m := f.manager(f.cluster)
			res, err := m.Apply(t.Context(), tenants())
			if err != nil || !res.Applied || len(res.Changes) != 10 {
				t.Fatalf("%+v, %v", res, err)
			}
			f.quiet(tenants())
			run := f.server.RunningSDN()
			if len(run.Controllers) != 1 || len(run.Zones) != 3 || len(run.VNets) != 4 || len(run.Subnets) != 4 {
				t.Errorf("%+v", run)
			}
			for _, z := range run.Zones {
				if z.Type == "evpn" && (z.MTU != 1450 || z.VRFVXLAN < 900 || z.Controller == "" || len(z.ExitNodes) != 0) {
					t.Errorf("%+v", z)
				}
			}
			// Somebody opens a zone: the next apply closes it. One vnet goes.
			zone := f.store.now().Allocation.Zones["alpha"].ID
			f.call("PUT", "/cluster/sdn/zones/"+zone, map[string]any{"exitnodes": "pve1", "rt-import": "65000:1"})
			f.call("PUT", "/cluster/sdn", nil)
			less := tenants()
			less.Tenants[0].VNets, less.Tenants[0].Zone.MTU = less.Tenants[0].VNets[:1], 1400
			if res, err = m.Apply(t.Context(), less); err != nil || len(res.Changes) != 3 {
				t.Fatalf("%+v, %v", res, err)
			}
			f.quiet(less)
			for _, z := range f.server.RunningSDN().Zones {
				if z.ID == zone && (z.MTU != 1400 || len(z.ExitNodes)+len(z.RTImport) != 0) {
					t.Errorf("%+v", z)
				}
			}
			if _, err := m.Destroy(t.Context()); err != nil {
				t.Fatal(err)
			}
			f.quiet(network.Wanted{})
			if run := f.server.RunningSDN(); len(run.Controllers)+len(run.Subnets) != 0 || len(run.Zones) != 1 || len(run.VNets) != 1 {
				t.Errorf("left: %+v", run)
			}
		})
	}
}

// quiet fails the test unless nothing is left to do and nothing is locked.
func (f *fabric) quiet(w network.Wanted) {
	f.t.Helper()
	p, err := f.manager(f.admin).Plan(f.t.Context(), w)
	if err != nil || !p.Empty() || len(p.Changes) > 0 {
		f.t.Errorf("left to do: %+v, %+v, %v", p.Changes, p.Lagging, err)
	}
	if r := f.store.now(); r.Lock != (network.Lock{}) || !r.Allocation.Equal(p.Settled) || !r.Applied.Equal(p.Settled) {
		f.t.Errorf("recorded %+v, want %+v", r, p.Settled)
	}
	if f.locked() {
		f.t.Error("the networks are locked")
	}
}

// locked asks for the lock, and gives it back.
func (f *fabric) locked() bool {
	token, err := f.admin.SDN().Lock(f.t.Context(), true)
	if errors.Is(err, orchestrator.ErrBusy) {
		return true
	}
	if err == nil && token != "" {
		err = f.admin.SDN().Unlock(f.t.Context(), token)
	}
	if err != nil {
		f.t.Fatal(err)
	}
	return false
}

// F103: edits are read whatever the type of what they take away, and each
// object is seen in both states.
func TestObserveStates(t *testing.T) {
	f := startFabric(t, "9", 1)
	f.call("POST", "/cluster/sdn/controllers", map[string]any{"controller": "core", "type": "evpn", "asn": 65000, "peers": "192.0.2.1,192.0.2.2"})
	f.call("POST", "/cluster/sdn/zones", map[string]any{"zone": "ze", "type": "evpn", "controller": "core", "vrf-vxlan": 5, "mtu": 1400, "advertise-subnets": 1})
	f.call("POST", "/cluster/sdn/vnets", map[string]any{"vnet": "ve", "zone": "ze", "tag": 6, "alias": "words"})
	f.call("POST", "/cluster/sdn/vnets/ve/subnets", map[string]any{"subnet": "10.9.0.0/24", "type": "subnet", "gateway": "10.9.0.1"})
	f.call("POST", "/cluster/sdn/zones", map[string]any{"zone": "zs", "type": "simple"})
	f.call("POST", "/cluster/sdn/vnets", map[string]any{"vnet": "vs", "zone": "zs"})
	f.call("PUT", "/cluster/sdn", nil)
	f.call("PUT", "/cluster/sdn/zones/ze", map[string]any{"delete": "mtu,advertise-subnets", "exitnodes": "pve1"})
	f.call("DELETE", "/cluster/sdn/vnets/vs", nil)
	f.call("DELETE", "/cluster/sdn/zones/zs", nil)
	f.call("POST", "/cluster/sdn/vnets", map[string]any{"vnet": "vnew", "zone": "ze", "tag": 7})
	o, err := f.cluster.SDN().Observe(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	find := func(list []network.Object, id string) network.Object {
		i := slices.IndexFunc(list, func(o network.Object) bool { return o.ID == id })
		if i < 0 {
			t.Fatalf("there is no %s in %+v", id, list)
		}
		return list[i]
	}
	ze := find(o.Zones, "ze")
	if ze.State != network.Changed || ze.Running["mtu"] != "1400" || ze.Running["advertise-subnets"] != "1" || ze.Running["type"] != "evpn" ||
		ze.Pending["mtu"]+ze.Pending["advertise-subnets"] != "" || ze.Pending["exitnodes"] != "pve1" || ze.Pending["vrf-vxlan"] != "5" {
		t.Errorf("%+v", ze)
	}
	if vs := find(o.VNets, "vs"); vs.State != network.Deleted || vs.Pending != nil || vs.Running["zone"] != "zs" {
		t.Errorf("%+v", vs)
	}
	if v := find(o.VNets, "vnew"); v.State != network.New || v.Running != nil || v.Pending["tag"] != "7" {
		t.Errorf("%+v", v)
	}
	want := network.Fields{"vnet": "ve", "gateway": "10.9.0.1", "type": "subnet", "dhcp-range": ""}
	if s := find(o.Subnets, "ze-10.9.0.0-24"); s.State != network.Settled || !maps.Equal(s.Running, want) {
		t.Errorf("%+v", s)
	}
	if c := find(o.Controllers, "core"); c.Running["peers"] != "192.0.2.1,192.0.2.2" || c.Running["asn"] != "65000" {
		t.Errorf("%+v", c)
	}
	if n := o.Nodes[0]; n.Name != "pve1" || !n.Online || n.Zones["ze"] != network.Available {
		t.Errorf("%+v", n)
	}
	if !slices.Contains(o.Interfaces, "vmbr0") {
		t.Errorf("interfaces %q", o.Interfaces)
	}
}

// A vnet is used by every guest that has it in its configuration, its pending
// changes or one of its snapshots, running or not, and on a node that is off.
func TestWhoUsesAVNet(t *testing.T) {
	for _, release := range releases {
		t.Run(release, func(t *testing.T) {
			f := startFabric(t, release, 2)
			f.withTemplate()
			f.call("PUT", "/access/acl", map[string]any{"path": "/sdn", "tokens": "root@pam!admin", "roles": "Administrator"})
			m := f.manager(f.cluster)
			if _, err := m.Apply(t.Context(), tenants()); err != nil {
				t.Fatal(err)
			}
			a := f.store.now().Allocation
			main, side, beta := a.VNets["alpha/main"].ID, a.VNets["alpha/side"].ID, a.VNets["beta/main"].ID
			vm := func(id int, bridge string) {
				f.call("POST", "/nodes/pve1/qemu", map[string]any{"vmid": id, "pool": labPool, "memory": "64", "net0": "virtio,bridge=" + bridge})
			}
			vm(201, main)
			vm(202, side)
			f.call("POST", "/nodes/pve1/qemu/202/snapshot", map[string]any{"snapname": "before"})
			f.call("POST", "/nodes/pve1/qemu/202/config", map[string]any{"net0": "virtio,bridge=vmbr0"})
			vm(203, "vmbr0")
			f.call("POST", "/nodes/pve1/qemu/203/status/start", nil)
			f.call("POST", "/nodes/pve1/qemu/203/config", map[string]any{"net1": "e1000,bridge=" + beta + ",firewall=1"})
			r, err := m.Destroy(t.Context())
			if err != nil || len(r.Changes) != 0 {
				t.Fatalf("%+v, %v", r.Changes, err)
			}
			for vnet, want := range map[string]string{main: "vm 201 on pve1", side: "vm 202 on pve1", beta: "vm 203 on pve1"} {
				i := slices.IndexFunc(r.Kept, func(k network.Kept) bool { return k.ID == vnet })
				if i < 0 || !slices.Equal(r.Kept[i].VMs, []string{want}) {
					t.Errorf("%s is not kept for %s: %+v", vnet, want, r.Kept)
				}
			}
			f.quiet(network.Wanted{})
			for _, id := range []string{"201", "202"} {
				f.call("DELETE", "/nodes/pve1/qemu/"+id, nil)
			}
			f.call("POST", "/nodes/pve1/qemu/203/config", map[string]any{"delete": "net1"})
			f.call("POST", "/nodes/pve1/qemu/203/status/stop", nil)
			f.call("POST", "/nodes/pve1/qemu/203/migrate", map[string]any{"target": "pve2"})
			if err := f.server.SetNode("pve2", false); err != nil {
				t.Fatal(err)
			}
			r, err = m.Destroy(t.Context())
			if err != nil || len(r.Changes) != 0 || !strings.Contains(fmt.Sprint(r.Kept), "vm 203 on pve2, which cannot be asked now") {
				t.Errorf("with a node away: %+v, %v", r, err)
			}
		})
	}
}

// A guest that the token may not see is seen by its port on the bridge.
func TestPortsOfOthers(t *testing.T) {
	f := startFabric(t, "9", 1)
	m := f.manager(f.cluster)
	if _, err := m.Apply(t.Context(), tenants()); err != nil {
		t.Fatal(err)
	}
	main := f.store.now().Allocation.VNets["alpha/main"].ID
	f.call("POST", "/nodes/pve1/qemu", map[string]any{"vmid": 301, "memory": "64", "net0": "virtio,bridge=" + main})
	f.call("POST", "/nodes/pve1/qemu/301/status/start", nil)
	r, err := m.Destroy(t.Context())
	if err != nil || !strings.Contains(fmt.Sprint(r.Kept), "is used by vm 301 on pve1") {
		t.Errorf("%+v, %v", r.Kept, err)
	}
}

// A token that does not see every guest does not take a vnet for unused: a guest
// that is off shows nowhere. Of zones of others it asks nothing.
func TestHiddenGuests(t *testing.T) {
	for _, release := range releases {
		t.Run(release, func(t *testing.T) {
			f := startFabric(t, release, 1)
			f.call("POST", "/cluster/sdn/zones", map[string]any{"zone": "dmz", "type": "simple"})
			f.call("POST", "/cluster/sdn/vnets", map[string]any{"vnet": "web", "zone": "dmz"})
			f.call("PUT", "/cluster/sdn", nil)
			m := f.manager(f.cluster)
			if _, err := m.Apply(t.Context(), tenants()); err != nil {
				t.Fatal(err)
			}
			f.call("POST", "/nodes/pve1/qemu", map[string]any{"vmid": 301, "memory": "64", "net0": "virtio,bridge=" + f.store.now().Allocation.VNets["alpha/main"].ID})
			for _, what := range []string{"sp@pve", "sp@pve!t1"} {
				key := map[bool]string{true: "tokens", false: "users"}[strings.Contains(what, "!")]
				f.call("PUT", "/access/acl", map[string]any{"path": "/vms", key: what, "roles": "NSP-vms", "delete": 1})
			}
			r, err := m.Destroy(t.Context())
			if err != nil || len(r.Changes) != 0 || r.Applied {
				t.Fatalf("%+v, %v", r.Changes, err)
			}
			wantText(t, errors.New(fmt.Sprint(r.Kept)), "may be used by guests that cannot be seen", "VM.Audit is missing on /vms")
			f.call("DELETE", "/nodes/pve1/qemu/301", nil)
			f.quiet(tenants())
			f.server.Faults.Add(pve.Fault{Method: "GET", Path: "/nodes/pve1/sdn/zones/dmz/bridges", Nth: 1, Status: http.StatusForbidden})
			if r, err = f.manager(f.admin).Destroy(t.Context()); err != nil || !r.Applied {
				t.Errorf("%+v, %v", r, err)
			}
		})
	}
}

// F102: while somebody else has the lock nothing is written; edits of somebody
// else's are refused, also those that are made while ours are.
func TestForeignWork(t *testing.T) {
	for _, release := range releases {
		t.Run(release, func(t *testing.T) {
			f := startFabric(t, release, 1)
			if release == "9" {
				token, err := f.admin.SDN().Lock(t.Context(), false)
				must(t, err)
				_, err = f.manager(f.cluster).Apply(t.Context(), tenants())
				wantClass(t, err, orchestrator.ErrBusy)
				wantText(t, err, "somebody else has the lock", "pvesh delete /cluster/sdn/lock --force 1")
				must(t, f.admin.SDN().Unlock(t.Context(), token))
			}
			var foreign *network.ForeignError
			for i, when := range []string{"", "create subnet"} {
				token := func() map[string]any {
					if l := f.store.now().Lock; l.Token != "" {
						return map[string]any{"lock-token": l.Token}
					}
					return map[string]any{}
				}
				edit := func() {
					params := token()
					params["zone"], params["type"] = fmt.Sprintf("dmz%d", i), "simple"
					f.call("POST", "/cluster/sdn/zones", params)
				}
				if when == "" {
					edit()
				}
				m := networks.New(networks.Config{Fabric: f.cluster.SDN(), Store: f.store, Observe: func(s networks.Step) {
					if s.Name == when {
						when = "done"
						edit()
					}
				}})
				if _, err := m.Apply(t.Context(), tenants()); !errors.As(err, &foreign) || foreign.Refusals[0].ID != fmt.Sprintf("dmz%d", i) {
					t.Fatalf("got %v", err)
				}
				if n := len(f.server.RunningSDN().Zones); n != 0 {
					t.Errorf("%d zones were applied", n)
				}
				f.call("DELETE", fmt.Sprintf("/cluster/sdn/zones/dmz%d", i), nil)
			}
			if _, err := f.manager(f.cluster).Apply(t.Context(), tenants()); err != nil {
				t.Fatal(err)
			}
			f.quiet(tenants())
		})
	}
}

// A token that does not see everything cannot know what an apply would commit.
func TestNetworksWithoutPrivilege(t *testing.T) {
	l := startLab(t)
	_, err := l.cluster.SDN().Observe(t.Context(), nil)
	wantClass(t, err, orchestrator.ErrDenied)
	wantText(t, err, "SDN.Audit is missing on /sdn")
	_, err = l.cluster.Peers(t.Context())
	wantClass(t, err, orchestrator.ErrDenied)
	wantText(t, err, "Sys.Audit", "network.peers")
	_, err = l.admin.Peers(t.Context()) // the lab's node is at 127.0.0.1
	wantClass(t, err, orchestrator.ErrNotFound)
	wantText(t, err, "127.0.0.1", "network.peers")
}

// The nodes' addresses are those of the cluster's own network.
func TestPeers(t *testing.T) {
	s := newScriptedStatus(t, `[{"type":"cluster","name":"c"},{"type":"node","name":"b","ip":"192.0.2.2"},{"type":"node","name":"a","ip":"2001:db8::1"}]`)
	got, err := s.Peers(t.Context())
	if err != nil || fmt.Sprint(got) != "[192.0.2.2 2001:db8::1]" {
		t.Errorf("%v, %v", got, err)
	}
	_, err = newScriptedStatus(t, `[{"type":"node","name":"b"}]`).Peers(t.Context())
	wantText(t, err, "node b", "network.peers")
}

// newScriptedStatus connects to a cluster that says no more than its status.
func newScriptedStatus(t *testing.T, status string) *proxmox.Cluster {
	t.Helper()
	front := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json;charset=UTF-8")
		_, _ = fmt.Fprintf(w, `{"data":%s}`, status)
	}))
	t.Cleanup(front.Close)
	pool := x509.NewCertPool()
	pool.AddCert(front.Certificate())
	c, err := proxmox.Open(proxmox.Config{URL: front.URL, CAs: pool, TokenID: "sp@pve!t1", TokenSecret: "x", Pool: labPool, Instance: "lab"})
	must(t, err)
	t.Cleanup(c.Close)
	return c
}

// F104: a reload that fails is told with its cause, and the next apply makes
// the node go on; a node that is off is a warning, and is told when it is back.
func TestReloads(t *testing.T) {
	for _, release := range releases {
		t.Run(release, func(t *testing.T) {
			f := startFabric(t, release, 3)
			f.server.Faults.AddTask(pve.TaskFault{Type: "srvreload", Step: "written", Nth: 2, Action: task.Action{Fail: "command 'ifreload -a' failed: exit code 1"}})
			// With the right to see tasks of others the cause is known.
			f.call("PUT", "/access/acl", map[string]any{"path": "/nodes", "users": "sp@pve", "roles": "PVEAuditor"})
			f.call("PUT", "/access/acl", map[string]any{"path": "/nodes", "tokens": "sp@pve!t1", "roles": "PVEAuditor"})
			var lag *networks.LagError
			_, err := f.manager(f.cluster).Apply(t.Context(), tenants())
			if !errors.As(err, &lag) {
				t.Fatalf("got %v", err)
			}
			wantText(t, err, "is error on node "+lag.Lags[0].Node, "ifreload -a' failed")
			if _, err := f.manager(f.cluster).Apply(t.Context(), tenants()); err != nil {
				t.Fatal(err)
			}
			f.quiet(tenants())
			must(t, f.server.SetNode("pve2", false))
			more := tenants()
			more.Tenants[1].Zone.MTU = 1300
			r, err := f.manager(f.cluster).Apply(t.Context(), more)
			if err != nil || len(r.Offline) != 2 || r.Offline[0].Node != "pve2" {
				t.Fatalf("%+v, %v", r, err)
			}
			must(t, f.server.SetNode("pve2", true))
			if r, err := f.manager(f.cluster).Apply(t.Context(), more); err != nil || !r.Applied {
				t.Errorf("%+v, %v", r, err)
			}
			f.quiet(more)
		})
	}
}

// What the cluster says about networks has the class of what it means.
func TestNetworkErrors(t *testing.T) {
	f := startFabric(t, "9", 1)
	sdn := f.cluster.SDN()
	write := func(op network.Op, kind network.Kind, id string, fields network.Fields) error {
		return sdn.Write(t.Context(), "", network.Change{Op: op, Kind: kind, ID: id, Parent: fields["vnet"], Fields: fields})
	}
	must(t, write(network.OpCreate, network.KindController, "c1", network.Fields{"type": "evpn", "asn": "1", "peers": "192.0.2.1"}))
	must(t, write(network.OpCreate, network.KindZone, "z1", network.Fields{"type": "evpn", "controller": "c1", "vrf-vxlan": "5"}))
	must(t, write(network.OpCreate, network.KindVNet, "v1", network.Fields{"zone": "z1", "tag": "6"}))
	must(t, write(network.OpCreate, network.KindSubnet, "z1-fd00::-64", network.Fields{"vnet": "v1"}))
	var unsupported *orchestrator.UnsupportedError
	for _, tt := range []struct {
		err   error
		class error
	}{
		{write(network.OpCreate, network.KindZone, "z1", network.Fields{"type": "simple"}), orchestrator.ErrExists},
		{write(network.OpCreate, network.KindZone, "z2", network.Fields{"type": "evpn", "controller": "c1", "vrf-vxlan": "5"}), orchestrator.ErrExists},
		{write(network.OpCreate, network.KindVNet, "v2", network.Fields{"zone": "z1", "tag": "6"}), orchestrator.ErrExists},
		{write(network.OpCreate, network.KindVNet, "v2", network.Fields{"zone": "none", "tag": "7"}), orchestrator.ErrNotFound},
		{write(network.OpDelete, network.KindZone, "z1", nil), orchestrator.ErrBusy},
		{write(network.OpDelete, network.KindVNet, "v1", nil), orchestrator.ErrBusy},
		{write(network.OpDelete, network.KindController, "c1", nil), orchestrator.ErrBusy},
		{write(network.OpUpdate, network.KindZone, "none", network.Fields{"mtu": "1400"}), orchestrator.ErrNotFound},
	} {
		wantClass(t, tt.err, tt.class)
	}
	if err := write(network.OpCreate, network.KindController, "c2", network.Fields{"type": "evpn", "asn": "1", "peers": "192.0.2.1"}); !errors.As(err, &unsupported) {
		t.Errorf("a second controller: %v", err)
	}
	if _, err := sdn.Lock(t.Context(), false); !errors.Is(err, orchestrator.ErrBusy) || !strings.Contains(err.Error(), "cannot see") {
		t.Errorf("pending edits: %v", err)
	}
	if strings.Contains(write(network.OpDelete, network.KindController, "c1", nil).Error(), " line ") {
		t.Error("the text says where in the cluster's program it comes from")
	}
	token, err := sdn.Lock(t.Context(), true)
	must(t, err)
	must(t, sdn.Unlock(t.Context(), "another")) // nothing of ours, and nothing happens to it
	if !f.locked() {
		t.Error("another token freed the lock")
	}
	must(t, sdn.Unlock(t.Context(), token))
	must(t, sdn.Unlock(t.Context(), token))
}
