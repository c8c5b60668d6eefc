package template_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"savepoint/orchestrator"
	"savepoint/orchestrator/sshexec"
	"savepoint/orchestrator/template"
	"savepoint/policy"
	"savepoint/proxmox"
	"savepoint/testbed/guest"
	"savepoint/testbed/pve"
	"savepoint/testbed/pve/access"
	"savepoint/testbed/qemu"
)

// site is a cluster of real guests under QEMU, with a stock image on its
// storage, as the product sees it.
type site struct {
	t        *testing.T
	machines *qemu.Machines
	cluster  *proxmox.Cluster
	ssh      *sshexec.Client
	key      string
	judge    *policy.Engine
	own      guest.Image
	cache    string
	images   string // where the storage keeps images to be imported
}

const (
	node      = "pve1"
	workspace = 256 << 20
	patience  = 8 * time.Minute // emulated, on a busy machine
)

func newSite(t *testing.T) *site {
	t.Helper()
	if os.Getenv("SAVEPOINT_LAB") != "1" {
		t.Skip("starts real guests under QEMU: set SAVEPOINT_LAB=1")
	}
	s := &site{t: t}
	cache, err := guest.CacheDir()
	s.must(err)
	say := func(text string) { t.Log(text) }
	s.own, err = guest.Build(t.Context(), guest.Options{CacheDir: cache, Progress: say})
	s.must(err)
	accel, err := qemu.Accel(t.Context(), qemu.Probe{Kernel: s.own.Kernel, Initrd: s.own.Initrd, CacheDir: cache})
	s.must(err)
	images, err := qemu.NewImages("")
	s.must(err)
	dir := t.TempDir()
	s.machines, err = qemu.New(t.Context(), qemu.Config{Dir: filepath.Join(dir, "run"), Images: images, Accel: accel, Notice: say})
	s.must(err)
	t.Cleanup(func() { s.must(s.machines.Close()) })
	server, err := pve.New(pve.Config{
		Dir: filepath.Join(dir, "pve"), Machines: s.machines, Disks: images, Pools: []string{"savepoint"},
		Users: []access.User{{ID: "root@pam", Tokens: []access.Token{{ID: "sp", Secret: "secret", Shared: true}}}},
	})
	s.must(err)
	listen, err := pve.Listen("127.0.0.1:0")
	s.must(err)
	served := make(chan struct{})
	go func() { defer close(served); _ = server.Serve(listen) }()
	t.Cleanup(func() { server.Close(); <-served })
	s.cache, s.images = cache, filepath.Join(dir, "pve", "storage", "local", "import")
	s.must(os.MkdirAll(s.images, 0o700))
	s.cluster, err = proxmox.Open(proxmox.Config{
		URL: "https://" + listen.Addr().String(), CAFile: server.CAFile(), TokenID: "root@pam!sp", TokenSecret: "secret",
		Pool: "savepoint", Instance: "lab", Bridge: "vmbr0", AgentTimeout: patience,
	})
	s.must(err)
	t.Cleanup(s.cluster.Close)
	id, err := sshexec.CreateIdentity(filepath.Join(dir, "id_ed25519"), "test")
	s.must(err)
	s.key = id.AuthorizedKey()
	s.ssh, err = sshexec.New(sshexec.Config{Identities: []sshexec.Identity{id}, Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
		at, ok := server.SSHEndpoint(netip.MustParseAddrPort(address).Addr())
		if !ok {
			return nil, fmt.Errorf("nothing runs at %s", address)
		}
		return (&net.Dialer{}).DialContext(ctx, network, at.String())
	}})
	s.must(err)
	t.Cleanup(func() { s.must(s.ssh.Close()) })
	s.judge, err = policy.New(policy.Options{})
	s.must(err)
	return s
}

func (s *site) must(errs ...error) {
	s.t.Helper()
	if err := errors.Join(errs...); err != nil {
		s.t.Fatal(err)
	}
}

func (s *site) spec() proxmox.TemplateSpec {
	address := netip.MustParsePrefix("10.99.0.254/24")
	began := time.Now()
	say := func(text string) { s.t.Logf("%4.0f s  %s", time.Since(began).Seconds(), text) }
	return proxmox.TemplateSpec{
		Name: "stock", ImageVolume: "local:import/stock.qcow2", Storage: "local", Node: node, VMID: 9000, MemoryMiB: 512, Cores: 1,
		Workspace: &proxmox.TemplateVolume{Storage: "local", Size: workspace},
		Progress: func(stage string, _, total int64) {
			if total == 0 {
				say(stage)
			}
		},
		Prepare: &proxmox.Preparation{
			Recipe: sshexec.TemplateRecipe(), Address: address, SSHKeys: []string{s.key},
			Run: template.Preparer{
				Guest: s.ssh, Identity: s.cluster, Address: address.Addr(), Workspace: workspace, Boot: patience, Step: patience, Say: say,
			}.Run,
		},
	}
}

// sandbox makes one of the template and waits for it.
func (s *site) sandbox(tpl orchestrator.VMRef, id orchestrator.VMID, address string) orchestrator.Sandbox {
	s.t.Helper()
	sb := orchestrator.Sandbox{
		ID: orchestrator.SandboxID(fmt.Sprintf("01jsandbox%d", id)), Name: fmt.Sprintf("box-%d", id), VM: orchestrator.VMRef{Node: node, ID: id},
		Template: tpl, Address: netip.MustParseAddr(address),
	}
	r := orchestrator.VMRequest{Sandbox: sb.ID, VM: sb.VM}
	s.must(s.cluster.VMs().Clone(s.t.Context(), orchestrator.CloneRequest{
		VMRequest: r, Template: tpl, Name: sb.Name, SSHKeys: []string{s.key}, Address: netip.PrefixFrom(sb.Address, 24),
	}))
	s.must(s.cluster.VMs().Start(s.t.Context(), r))
	var err error
	sb.HostKey, err = s.cluster.HostKey(s.t.Context(), sb.VM)
	s.must(err)
	ctx, cancel := context.WithTimeout(s.t.Context(), patience)
	defer cancel()
	_, err = s.ssh.Inspect(ctx, sb)
	s.must(err, s.ssh.Prepare(ctx, sb, nil))
	return sb
}

// run runs a command that the policy lets through, and wants it to succeed.
func (s *site) run(sb orchestrator.Sandbox, user policy.User, command string) string {
	s.t.Helper()
	permit, ok := s.judge.Decide(policy.Request{Command: command, User: user}).Permit()
	if !ok {
		s.t.Fatalf("the policy denies %s", command)
	}
	res, err := s.ssh.Run(s.t.Context(), sb, permit, orchestrator.ExecRequest{Timeout: patience})
	if err != nil || res.ExitCode != 0 {
		s.t.Fatalf("%s: %v, exit %d: %s%s", command, err, res.ExitCode, res.Stdout, res.Stderr)
	}
	return strings.TrimSpace(string(res.Stdout))
}

// A stock cloud image, with systemd and cloud-init and without a guest agent,
// becomes a template, and a sandbox made from it lives its whole life: two
// machines are two (F88), what agent writes is on the workspace volume, and a
// rollback brings back what was (F95: with the clock of the host).
// Without KVM it takes ten minutes: SAVEPOINT_DEEP=1 asks for it.
func TestLabStockImage(t *testing.T) {
	if os.Getenv("SAVEPOINT_DEEP") != "1" {
		t.Skip("builds and boots a stock Debian, which takes minutes: set SAVEPOINT_DEEP=1 beside SAVEPOINT_LAB=1")
	}
	s := newSite(t)
	stock, err := guest.BuildStock(t.Context(), guest.Options{CacheDir: s.cache, Progress: func(text string) { t.Log(text) }})
	s.must(err, os.Symlink(stock.Path, filepath.Join(s.images, "stock.qcow2")))
	began := time.Now()
	tpl, err := s.cluster.BuildTemplate(t.Context(), s.spec())
	if err != nil {
		t.Fatalf("%v\nconsole:\n%s", err, s.machines.Console(9000))
	}
	t.Logf("built in %s", time.Since(began).Round(time.Second))
	began = time.Now()
	if again, err := s.cluster.BuildTemplate(t.Context(), s.spec()); err != nil || again != tpl {
		t.Errorf("again: %+v, %v", again, err)
	}
	t.Logf("found in %s", time.Since(began).Round(time.Millisecond))

	began = time.Now()
	one := s.sandbox(tpl.VM, 9001, "10.99.0.11")
	t.Logf("first sandbox in %s", time.Since(began).Round(time.Second))
	two := s.sandbox(tpl.VM, 9002, "10.99.0.12")
	id := s.run(one, policy.Root, "cat /etc/machine-id")
	if other := s.run(two, policy.Root, "cat /etc/machine-id"); id == other || !regexp.MustCompile(`^[0-9a-f]{32}$`).MatchString(id) {
		t.Errorf("machine ids %q and %q", id, other)
	}
	if one.HostKey == two.HostKey {
		t.Error("both have the same host key")
	}
	s.must(s.cluster.VMs().Stop(t.Context(), orchestrator.VMRequest{Sandbox: two.ID, VM: two.VM}))
	s.must(s.cluster.VMs().Destroy(t.Context(), orchestrator.VMRequest{Sandbox: two.ID, VM: two.VM}))

	if host := s.run(one, policy.Root, "cat /etc/hostname"); host != "box-9001" {
		t.Errorf("host name %q", host)
	}
	s.mounted(one)
	if hold, err := s.ssh.Hold(t.Context(), one); err != nil || hold != "cgroup" {
		t.Errorf("hold %q, %v", hold, err)
	}

	s.run(one, policy.Agent, "echo before > /workspace/f")
	snap := orchestrator.SnapshotRequest{Sandbox: one.ID, VM: one.VM, Name: "sp-one", Memory: true}
	_, err = s.ssh.Mark(t.Context(), one, "sp-one")
	s.must(err, s.cluster.Snapshots().Create(t.Context(), snap))
	s.run(one, policy.Agent, "echo after > /workspace/f")
	s.ssh.Disconnect(one.ID)
	s.must(s.cluster.Snapshots().Rollback(t.Context(), snap))
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	facts, err := s.ssh.Inspect(ctx, one)
	s.must(err)
	if got := s.run(one, policy.Agent, "cat /workspace/f"); got != "before" || facts.Generation != "sp-one" {
		t.Errorf("after the rollback: %q, generation %q", got, facts.Generation)
	}
	s.must(s.ssh.SetClock(ctx, one, time.Now()))
	if clock := s.run(one, policy.Agent, "date +%s"); !near(clock, time.Now()) {
		t.Errorf("the guest's clock says %s", clock)
	}
	s.ssh.Disconnect(one.ID)
	r := orchestrator.VMRequest{Sandbox: one.ID, VM: one.VM}
	s.must(s.cluster.VMs().Stop(t.Context(), r), s.cluster.VMs().Destroy(t.Context(), r))
	s.must(s.cluster.RemoveTemplate(t.Context(), tpl, nil))
}

// mounted checks that what agent writes to is on the workspace volume.
func (s *site) mounted(sb orchestrator.Sandbox) {
	s.t.Helper()
	mounts := s.run(sb, policy.Root, "cat /proc/mounts")
	for _, point := range []string{"/srv/savepoint", "/workspace", "/home/agent", "/tmp", "/var/tmp"} {
		if !strings.Contains(mounts, " "+point+" ext4 ") {
			s.t.Errorf("%s is not on the workspace volume:\n%s", point, mounts)
		}
	}
}

// savepoint's own image is complete: its template is made without starting it,
// the workspace volume included, which comes as an image of its own.
func TestLabOwnImage(t *testing.T) {
	s := newSite(t)
	volume, err := guest.Volume(t.Context(), s.cache, workspace)
	s.must(err)
	spec := s.spec()
	spec.ImageVolume, spec.ImagePath, spec.Prepare = "", s.own.Path, nil
	spec.Workspace.ImagePath = volume
	began := time.Now()
	tpl, err := s.cluster.BuildTemplate(t.Context(), spec)
	s.must(err)
	t.Logf("built in %s", time.Since(began).Round(10*time.Millisecond))
	began = time.Now()
	again, err := s.cluster.BuildTemplate(t.Context(), spec)
	if err != nil || again != tpl {
		t.Errorf("again: %+v, %v", again, err)
	}
	t.Logf("found in %s", time.Since(began).Round(time.Millisecond))
	sb := s.sandbox(tpl.VM, 9001, "10.99.0.11")
	s.mounted(sb)
	s.run(sb, policy.Agent, "echo mine > /workspace/f && cat /workspace/f")
}

// near reports whether a clock in seconds is within a few of the time.
func near(text string, now time.Time) bool {
	var sec int64
	_, err := fmt.Fscan(bytes.NewReader([]byte(text)), &sec)
	d := now.Unix() - sec
	return err == nil && d > -5 && d < 5
}
