package lab

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"
	"golang.org/x/sys/unix"

	"savepoint/configs"
	"savepoint/testbed/guest"
)

// onBastion opens a shell command in a guest, by way of the lab's jump host.
func onBastion(ctx context.Context, t *testing.T, cfg configs.Config, address string, host ssh.PublicKey) (run func(command string) (string, error)) {
	t.Helper()
	raw, err := os.ReadFile(cfg.SSH.IdentityFile)
	if err != nil {
		t.Fatal(err)
	}
	key, err := ssh.ParsePrivateKey(raw)
	if err != nil {
		t.Fatal(err)
	}
	pin, _, _, _, err := ssh.ParseAuthorizedKey([]byte(cfg.SSH.Jump.HostKey))
	if err != nil {
		t.Fatal(err)
	}
	as := func(user string, host ssh.PublicKey) *ssh.ClientConfig {
		return &ssh.ClientConfig{User: user, Auth: []ssh.AuthMethod{ssh.PublicKeys(key)}, HostKeyCallback: ssh.FixedHostKey(host)}
	}
	bastion, err := ssh.Dial("tcp", cfg.SSH.Jump.Address, as("jump", pin))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { bastion.Close() })
	poll := time.NewTicker(500 * time.Millisecond)
	defer poll.Stop()
	for {
		conn, err := bastion.DialContext(ctx, "tcp", address+":22")
		if err == nil {
			inner, chans, reqs, err := ssh.NewClientConn(conn, address, as("root", host))
			if err != nil {
				t.Fatal(err)
			}
			c := ssh.NewClient(inner, chans, reqs)
			return func(command string) (string, error) {
				s, err := c.NewSession()
				if err != nil {
					return "", err
				}
				defer s.Close()
				out, err := s.CombinedOutput(command)
				return strings.TrimSpace(string(out)), err
			}
		}
		select {
		case <-poll.C:
		case <-ctx.Done():
			t.Fatalf("guest %s by way of the bastion: %v", address, err)
		}
	}
}

// connect is a command that ends well when the guest reaches an address.
func connect(address string, port, seconds int) string {
	return fmt.Sprintf(`python3 -c 'import socket; socket.create_connection(("%s", %d), %d)'`, address, port, seconds)
}

// TestLabCluster: three nodes with two tenants' zones. Guests on different nodes
// are reached through the bastion and reach one another, and nothing else; a lab
// that is killed leaves them running, the next one gives them their network back,
// and after one more kill lab down leaves nothing. F98, F101
func TestLabCluster(t *testing.T) {
	if os.Getenv("SAVEPOINT_LAB") != "1" {
		t.Skip("starts real guests under QEMU on several nodes: set SAVEPOINT_LAB=1")
	}
	if os.Geteuid() != 0 {
		t.Skip("makes network namespaces: run it as root")
	}
	cache, err := guest.CacheDir()
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("SAVEPOINT_CACHE", cache)
	image, err := guest.Build(t.Context(), guest.Options{CacheDir: cache, Progress: func(s string) { t.Log(s) }})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 8*time.Minute)
	defer cancel()
	dir := filepath.Join(t.TempDir(), "lab")
	var networks []string // ids of the fabrics there were
	start := func() (Status, configs.Config) {
		t.Helper()
		st, _, err := up(t, ctx, modeCluster, dir, nil)
		if err != nil {
			t.Fatal(err)
		}
		networks = append(networks, networkOf(t, dir))
		cfg, err := configs.Load(configs.LoadOptions{File: st.Config})
		if err != nil {
			t.Fatalf("the lab's own configuration: %v", err)
		}
		return st, cfg
	}
	t.Cleanup(func() {
		if _, err := Down(context.WithoutCancel(ctx), dir); err != nil {
			t.Error(err)
		}
		nothingLeft(t, dir, networks)
	})
	st, cfg := start()
	if len(st.Nodes) != 3 || !st.Isolation || st.Network != NetworkEVPN {
		t.Fatalf("%+v", st)
	}
	c := newClient(ctx, t, st)
	c.networks(st)
	id, err := identity(dir)
	if err != nil {
		t.Fatal(err)
	}
	for i, g := range []struct{ node, bridge, address string }{{"pve1", "reda", "10.99.0.11"}, {"pve2", "reda", "10.99.0.12"}} {
		vmid := fmt.Sprint(101 + i)
		c.start(g.node, "/qemu", url.Values{
			"vmid": {vmid}, "memory": {"384"}, "agent": {"1"}, "scsihw": {"virtio-scsi-pci"}, "boot": {"order=scsi0"},
			"scsi0": {"local:0,import-from=" + image.Path}, "scsi2": {"local:cloudinit"}, "net0": {"virtio,bridge=" + g.bridge},
			"ciuser": {"root"}, "sshkeys": {strings.ReplaceAll(url.QueryEscape(id.AuthorizedKey()), "+", "%20")},
			"ipconfig0": {"ip=" + g.address + "/24,gw=10.99.0.1"},
		})()
		c.start(g.node, "/qemu/"+vmid+"/status/start", nil)()
	}
	host := c.hostKey("pve1", "101")
	one, two := onBastion(ctx, t, cfg, "10.99.0.11", host), onBastion(ctx, t, cfg, "10.99.0.12", c.hostKey("pve2", "102"))
	for name, run := range map[string]func(string) (string, error){"10.99.0.12": one, "10.99.0.11": two} {
		if out, err := run(connect(name, 22, 60)); err != nil {
			t.Errorf("the guest on the other node, %s: %v: %s", name, err, out)
		}
	}
	for what, command := range map[string]string{
		"a node": connect(st.Nodes[0].Address, 22, 3), "the outside": connect("203.0.113.80", 80, 3), "the other tenant's gateway": connect("10.99.1.1", 22, 3),
	} {
		if out, err := one(command); err == nil || strings.Contains(out, "refused") {
			t.Errorf("%s was reached: %v %s", what, err, out)
		}
	}
	// An exit node opens the zone for the guests on it, and for no longer.
	web := connect("203.0.113.80", 80, 3)
	for _, exit := range []url.Values{{"exitnodes": {"pve1"}}, {"delete": {"exitnodes"}}} {
		c.do("PUT", "/cluster/sdn/zones/red", exit, nil)
		c.apply(st)
		out, err := one(web)
		open := err == nil || strings.Contains(out, "refused")
		if open != exit.Has("exitnodes") {
			t.Errorf("with %v the outside is reached: %t: %v %s", exit, open, err, out)
		}
		if out, err := two(web); err == nil || strings.Contains(out, "refused") {
			t.Errorf("with %v the outside is reached from the other node: %v %s", exit, err, out)
		}
	}
	booted, err := one("cat /proc/sys/kernel/random/boot_id")
	if err != nil {
		t.Fatal(err)
	}

	kill(ctx, t, dir, st.PID)
	st, cfg = start()
	again := onBastion(ctx, t, cfg, "10.99.0.11", host)
	if out, err := again("cat /proc/sys/kernel/random/boot_id"); err != nil || out != booted {
		t.Errorf("after the lab was killed the guest says %q, %v; want that it ran on", out, err)
	}
	if out, err := again(connect("10.99.0.12", 22, 60)); err != nil {
		t.Errorf("the guests' network after the lab was killed: %v: %s", err, out)
	}

	kill(ctx, t, dir, st.PID)
	if _, err := Down(ctx, dir); err != nil {
		t.Error(err)
	}
	nothingLeft(t, dir, networks)
}

// networkOf is the id of the lab's fabric.
func networkOf(t *testing.T, dir string) string {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(fabricDir(dir), "fabric.json"))
	if err != nil {
		t.Fatal(err)
	}
	var record struct{ Instance string }
	if err := json.Unmarshal(raw, &record); err != nil || record.Instance == "" {
		t.Fatalf("%q, %v", record.Instance, err)
	}
	return record.Instance
}

func kill(ctx context.Context, t *testing.T, dir string, pid int) {
	t.Helper()
	if err := unix.Kill(pid, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if err := waitReleased(ctx, dir, nil, 10*time.Second); err != nil {
		t.Fatal(err)
	}
}

// nothingLeft fails when a process of the lab in dir, or anything of its network,
// is there.
func nothingLeft(t *testing.T, dir string, networks []string) {
	t.Helper()
	if _, err := os.Stat(filepath.Join(fabricDir(dir), "fabric.json")); err == nil {
		t.Error("the network's record is left")
	}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		line, err := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline"))
		if err == nil && strings.Contains(string(line), dir) {
			t.Errorf("process %s is left: %s", e.Name(), strings.ReplaceAll(string(line), "\x00", " "))
		}
	}
	for _, instance := range networks {
		for _, path := range []string{"/run/netns/sp-" + instance + "-*", "/run/savepoint-fabric-" + instance} {
			if left, err := filepath.Glob(path); err != nil || len(left) > 0 {
				t.Errorf("left: %v, %v", left, err)
			}
		}
	}
}
