package pve_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	proxmox "github.com/luthermonson/go-proxmox"
)

// tour is go-proxmox on its way through the API, by the library's own calls.
type tour struct {
	*node
	ctx     context.Context
	major   string
	cluster *proxmox.Cluster
}

// got fails the test on an error and returns the value.
func got[V any](value V, err error) func(*tour) V {
	return func(v *tour) V {
		v.t.Helper()
		v.must(err)
		return value
	}
}

// done waits for the task that a call answered with.
func (v *tour) done(task *proxmox.Task, err error) {
	v.t.Helper()
	v.must(err)
	v.must(task.Wait(v.ctx, 5*time.Millisecond, 20*time.Second))
}

// need fails the test unless what should be is.
func (v *tour) need(ok bool, what string, got ...any) {
	v.t.Helper()
	if !ok {
		v.t.Fatalf("%s: %+v", what, got)
	}
}

// go-proxmox's own calls, with a token and with a password, on both versions.
func TestGoProxmoxCalls(t *testing.T) {
	for _, version := range []string{"8.4", "9.2"} {
		for _, way := range []string{"token", "password"} {
			t.Run(version+" "+way, func(t *testing.T) {
				n := clientsLab(t, version)
				if way == "password" {
					n.login("root@pam", n.srv.Credentials().Passwords["root@pam"].Reveal())
				}
				v := &tour{node: n, ctx: t.Context(), major: version[:1]}
				v.cluster = got(n.client.Cluster(v.ctx))(v)
				for _, part := range []func(){v.overview, v.rights, v.network, v.life, v.made} {
					part()
				}
				if paths := n.mem.Paths(); len(paths) != 1 {
					t.Errorf("images left: %v", paths)
				}
			})
		}
	}
}

// overview reads what there is.
func (v *tour) overview() {
	version := got(v.client.Version(v.ctx))(v)
	v.need(strings.HasPrefix(version.Version, v.major), "version", version)
	v.need(v.cluster.Quorate == 1 && len(v.cluster.Nodes) == 3, "cluster", v.cluster)
	for _, n := range got(v.client.Nodes(v.ctx))(v) {
		node := got(v.client.Node(v.ctx, n.Node))(v)
		v.need(n.Status == "online" && node.Memory.Total > 0 && node.CPUInfo.CPUs > 0, n.Node, node)
		v.need(got(node.Version(v.ctx))(v).Version == version.Version, "version of "+n.Node)
		v.need(got(node.Time(v.ctx))(v).Time > 0, "time of "+n.Node)
		v.need(len(got(node.Networks(v.ctx, "bridge"))(v)) == 1, "bridges of "+n.Node)
		v.need(len(got(node.Storages(v.ctx))(v)) == 3, "storages of "+n.Node)
	}
	v.need(len(got(v.client.ClusterStorages(v.ctx))(v)) == 3, "storages")
	v.need(got(v.client.ClusterStorage(v.ctx, "nfs"))(v).Shared == 1, "shared storage")
	v.need(len(got(v.cluster.Resources(v.ctx, "node"))(v)) == 3, "nodes among the resources")
	v.need(got(v.cluster.NextID(v.ctx))(v) == 101, "next id")
	v.need(!got(v.cluster.CheckID(v.ctx, 100))(v) && got(v.cluster.CheckID(v.ctx, 101))(v), "ids")
	v.need(len(got(v.cluster.Tasks(v.ctx))(v)) > 0, "tasks")
	_, err := v.client.NodeRef("pve1").VirtualMachine(v.ctx, 999)
	v.need(proxmox.IsNotFound(err), "vm that is not there", err)

	storage := v.client.NodeRef("pve1").StorageRef("local")
	v.must(storage.Ping(v.ctx))
	file := filepath.Join(v.t.TempDir(), "medium.iso")
	v.must(os.WriteFile(file, []byte("no medium"), 0o600))
	v.done(storage.Upload("iso", file))
	iso := got(storage.ISO(v.ctx, "medium.iso"))(v)
	v.need(len(got(storage.GetContent(v.ctx))(v)) == 2, "content")
	v.done(iso.Delete(v.ctx))
}

// rights makes a pool, a role, a user with a token and a grant, and ends them.
func (v *tour) rights() {
	v.must(v.client.NewPool(v.ctx, "tour", "a tour"))
	pool := got(v.client.Pool(v.ctx, "tour"))(v)
	v.must(pool.Update(v.ctx, &proxmox.PoolUpdateOption{Comment: "another"}))
	v.need(got(v.client.Pool(v.ctx, "tour"))(v).Comment == "another", "pool")
	v.need(len(got(v.client.Pools(v.ctx))(v)) == 1, "pools")
	v.must(v.client.NewRole(v.ctx, "Tourist", "VM.Audit"))
	role := got(v.client.Role(v.ctx, "Tourist"))(v)
	v.need(bool(role["VM.Audit"]), "role", role)
	v.must(v.client.NewGroup(v.ctx, "tourists", "they look"))
	v.must(v.client.NewUser(v.ctx, &proxmox.NewUser{UserID: "tour@pve", Enable: true, Groups: proxmox.CSV{"tourists"}}))
	user := got(v.client.User(v.ctx, "tour@pve"))(v)
	user.UserID = "tour@pve"
	token := got(user.NewAPIToken(v.ctx, proxmox.Token{TokenID: "one", Privsep: false}))(v)
	v.must(v.client.UpdateACL(v.ctx, proxmox.ACLOptions{Path: "/pool/tour", Users: "tour@pve", Roles: "Tourist", Propagate: true}))

	other := proxmox.NewClient(v.url+"/api2/json", proxmox.WithHTTPClient(v.http), proxmox.WithAPIToken(token.FullTokenID, token.Value))
	may := got(other.Permissions(v.ctx, nil))(v)
	v.need(bool(may["/pool/tour"]["VM.Audit"]), "permissions", may)
	_, err := other.NodeRef("pve1").VirtualMachine(v.ctx, 100)
	v.need(errors.Is(err, proxmox.ErrNotAuthorized), "somebody else's vm", err)

	v.must(v.client.UpdateACL(v.ctx, proxmox.ACLOptions{Path: "/pool/tour", Users: "tour@pve", Roles: "Tourist", Delete: true}))
	v.must(user.DeleteAPIToken(v.ctx, "one"))
	_, err = other.Version(v.ctx)
	v.need(errors.Is(err, proxmox.ErrNotAuthorized), "a token that is gone", err)
	v.must(user.Delete(v.ctx))
	v.must(got(v.client.Group(v.ctx, "tourists"))(v).Delete(v.ctx))
	for _, r := range got(v.client.Roles(v.ctx))(v) {
		if r.RoleID == "Tourist" {
			v.must(r.Delete(v.ctx))
		}
	}
	v.must(pool.Delete(v.ctx))
}

// network makes an EVPN zone with a vnet, applies it and removes it. The calls
// of the library that cannot work on a real node do not work here either.
func (v *tour) network() {
	c := v.cluster
	v.must(c.NewSDNController(v.ctx, &proxmox.SDNControllerOptions{Controller: "tourctl", Type: "evpn", ASN: 65000, Peers: "10.0.0.1,10.0.0.2,10.0.0.3"}))
	zone := &proxmox.SDNZoneOptions{Name: "tour", Type: "evpn", Controller: "tourctl", VRFVXLAN: 10000, MTU: 1450}
	if v.major >= "9" {
		token := got(c.SDNLock(v.ctx, true))(v)
		err := c.NewSDNZone(v.ctx, zone) // it has no way to send the lock's token
		v.need(err != nil && strings.Contains(err.Error(), "invalid lock token"), "write without the lock's token", err)
		v.must(c.SDNReleaseLock(v.ctx, token, false))
	} else if _, err := c.SDNLock(v.ctx, true); err == nil {
		v.t.Fatal("8.4 has a lock")
	}
	v.must(c.NewSDNZone(v.ctx, zone))
	v.need(c.UpdateSDNZone(v.ctx, zone) != nil, "an update that sends the type")
	v.need(c.NewSDNZone(v.ctx, &proxmox.SDNZoneOptions{Name: "tour2", Type: "evpn", Controller: "tourctl", VRFVXLAN: 10002, ExitNodes: "pve1"}) != nil, "exit nodes under a name that is not theirs")
	v.must(c.NewSDNVNet(v.ctx, &proxmox.VNetOptions{Name: "tour0", Zone: "tour", Tag: 10001}))
	vnet := got(c.SDNVNet(v.ctx, "tour0"))(v)
	vnet.Name = "tour0"
	v.must(vnet.NewSubnet(v.ctx, &proxmox.SDNSubnetOptions{Subnet: "10.77.0.0/24", Gateway: "10.77.0.1"}))
	v.done(c.SDNApply(v.ctx))
	for _, name := range []string{"pve1", "pve2", "pve3"} {
		node := v.client.NodeRef(name)
		v.reaches("zone on "+name, func() bool {
			zones := got(node.SDNZones(v.ctx))(v)
			return slices.ContainsFunc(zones, func(z *proxmox.SDNZoneStatus) bool { return z.Zone == "tour" && z.Status == "available" })
		})
		v.need(len(got(node.SDNZoneContent(v.ctx, "tour"))(v)) == 1, "content of the zone on "+name)
	}
	v.need(len(got(c.SDNZones(v.ctx, "evpn"))(v)) == 1 && len(got(c.SDNVNets(v.ctx))(v)) == 1, "zones and vnets")
	v.need(len(got(c.SDNControllers(v.ctx, "evpn"))(v)) == 1, "controllers")
	for _, s := range got(vnet.Subnets(v.ctx))(v) {
		v.need(s.CIDR == "10.77.0.0/24" && s.Gateway == "10.77.0.1" && s.Zone == "tour", "subnet", s)
		s.ID, s.VNet = "tour-10.77.0.0-24", "tour0"
		v.must(vnet.Subnet(s.ID).Delete(v.ctx))
	}
	v.must(c.DeleteSDNVNet(v.ctx, "tour0"))
	v.must(c.DeleteSDNZone(v.ctx, "tour"))
	v.must(c.SDNController("tourctl").Delete(v.ctx))
	v.done(c.SDNApply(v.ctx))
}

// life is a VM from the template, with everything that happens to it.
func (v *tour) life() {
	node := v.client.NodeRef("pve1")
	id, task, err := node.VirtualMachineRef(100).Clone(v.ctx, &proxmox.VirtualMachineCloneOptions{NewID: 201, Name: "tour201"})
	v.done(task, err)
	vm := got(v.client.FindVirtualMachine(v.ctx, id))(v) // a name and no more
	v.must(vm.Ping(v.ctx))
	v.need(vm.Node == "pve1" && vm.IsStopped() && vm.VirtualMachineConfig.Name == "tour201", "clone", vm.Node, vm.Status, vm.QMPStatus, vm.VirtualMachineConfig.Name)
	v.done(vm.Config(v.ctx, proxmox.VirtualMachineOption{Name: "cores", Value: 2}, proxmox.VirtualMachineOption{Name: "description", Value: "words of mine"}))
	v.must(vm.ConfigSync(v.ctx, proxmox.VirtualMachineOption{Name: "memory", Value: 192}))
	v.done(vm.AddTag(v.ctx, "tour"))
	v.must(vm.Ping(v.ctx))
	v.need(*vm.VirtualMachineConfig.Cores == 2 && vm.HasTag("tour"), "config", vm.VirtualMachineConfig)
	_, err = vm.Feature(v.ctx, "snapshot", "") // the recorded answer is 1, where the library wants true
	v.need(err != nil && strings.Contains(err.Error(), "hasFeature of type bool"), "feature", err)
	_, err = vm.Pending(v.ctx)
	v.must(err)

	v.done(vm.Start(v.ctx))
	v.must(vm.Ping(v.ctx))
	v.need(vm.IsRunning(), "running", vm)
	v.must(vm.WaitForAgent(v.ctx, 10))
	v.need(got(vm.AgentOsInfo(v.ctx))(v).ID == "debian", "system")
	v.need(got(vm.AgentGetHostName(v.ctx))(v) == "guest", "name")
	pid := got(vm.AgentExec(v.ctx, []string{"/bin/echo", "some text"}, ""))(v)
	v.need(got(vm.AgentExecStatus(v.ctx, pid))(v).OutData == "some text\n", "exec")
	_, err = vm.AgentGetNetworkIFaces(v.ctx)
	v.must(err)

	v.done(vm.NewSnapshot(v.ctx, "one"))
	v.must(vm.Snapshot("one").UpdateConfig(v.ctx, &proxmox.VirtualMachineSnapshotUpdateOptions{Description: "words"}))
	v.need(got(vm.Snapshot("one").Config(v.ctx))(v)["description"] != nil, "description of the snapshot")
	v.need(len(got(vm.Snapshots(v.ctx))(v)) == 2, "snapshots")
	v.done(vm.Snapshot("one").Rollback(v.ctx)) // without memory: it is off
	v.must(vm.Ping(v.ctx))
	v.need(vm.IsStopped(), "off after the rollback", vm)
	v.done(vm.Start(v.ctx))
	v.done(vm.Pause(v.ctx))
	v.done(vm.Resume(v.ctx))
	v.done(vm.Reset(v.ctx))
	v.done(vm.Reboot(v.ctx))
	v.done(vm.Snapshot("one").Delete(v.ctx))
	v.done(vm.Shutdown(v.ctx))
	v.done(vm.Start(v.ctx))
	if _, err := vm.Delete(v.ctx, nil); err == nil {
		v.t.Fatal("a running vm was removed")
	}
	v.done(vm.Stop(v.ctx))
	tasks := got(node.Tasks(v.ctx, &proxmox.NodeTasksOptions{VMID: 201}))(v)
	v.need(len(tasks) > 8, "tasks of the vm", len(tasks))
	v.need(len(got(tasks[0].Log(v.ctx, 0, 10))(v)) > 0, "log of a task")
	v.done(vm.Delete(v.ctx, &proxmox.VirtualMachineDeleteOptions{Purge: true}))
}

// made is a VM from nothing that moves to another node and becomes a template.
func (v *tour) made() {
	v.done(v.client.NodeRef("pve1").NewVirtualMachine(v.ctx, 301,
		proxmox.VirtualMachineOption{Name: "name", Value: "made"}, proxmox.VirtualMachineOption{Name: "scsi0", Value: "local:1"},
		proxmox.VirtualMachineOption{Name: "net0", Value: "virtio,bridge=vmbr0"}, proxmox.VirtualMachineOption{Name: "ide2", Value: "local:cloudinit"}))
	vm := got(v.client.NodeRef("pve1").VirtualMachine(v.ctx, 301))(v)
	v.done(vm.ResizeDisk(v.ctx, "scsi0", "+1G"))
	v.must(vm.CloudInitRegenerate(v.ctx))
	v.need(got(vm.CloudInitDump(v.ctx, "user"))(v) != "", "cloud-init")
	_, err := vm.MigratePreconditions(v.ctx, "") // as with hasFeature
	v.need(err != nil && strings.Contains(err.Error(), "local_disks.cdrom of type bool"), "where it may go", err)
	v.done(vm.Migrate(v.ctx, &proxmox.VirtualMachineMigrateOptions{Target: "pve2"}))
	vm = got(v.client.FindVirtualMachine(v.ctx, 301))(v)
	v.need(vm.Node == "pve2", "it moved", vm)
	v.done(vm.ConvertToTemplate(v.ctx))
	v.need(len(got(v.client.NodeRef("pve2").VirtualMachines(v.ctx))(v)) == 1, "vms of pve2")
	v.done(vm.Delete(v.ctx, &proxmox.VirtualMachineDeleteOptions{}))
}
