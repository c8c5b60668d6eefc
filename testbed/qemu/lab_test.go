package qemu

import (
	"bufio"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"savepoint/orchestrator"
	"savepoint/testbed/guest"
	"savepoint/testbed/pve"
)

// lab is one real node: an image, a state directory, a key.
type lab struct {
	t        *testing.T
	ctx      context.Context
	dir      string
	base     pve.Disk
	images   *Images
	machines *Machines
	cfg      Config
	signer   ssh.Signer
	hostKeys map[int]string // as shown at the last login
}

func cacheDir(t *testing.T) string {
	t.Helper()
	dir, err := guest.CacheDir()
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func newLab(t *testing.T) *lab {
	t.Helper()
	if os.Getenv("SAVEPOINT_LAB") != "1" {
		t.Skip("starts real guests under QEMU: set SAVEPOINT_LAB=1")
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	t.Cleanup(cancel)
	cache := cacheDir(t)
	img, err := guest.Build(ctx, guest.Options{CacheDir: cache, Progress: func(s string) { t.Log(s) }})
	if err != nil {
		t.Fatal(err)
	}
	accel, err := Accel(ctx, Probe{Kernel: img.Kernel, Initrd: img.Initrd, CacheDir: cache})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("accelerator %s: %s (cached: %v)", accel.Name, accel.Reason, accel.Cached)
	images, err := NewImages("")
	if err != nil {
		t.Fatal(err)
	}
	_, priv, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	signer, err := ssh.NewSignerFromKey(priv)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	l := &lab{t: t, ctx: ctx, dir: dir, images: images, signer: signer, hostKeys: map[int]string{},
		base: pve.Disk{Slot: "scsi0", Path: img.Path, Format: "qcow2"},
		cfg:  Config{Dir: filepath.Join(dir, "run"), Accel: accel, Images: images, Notice: func(s string) { t.Log(s) }}}
	l.open()
	t.Cleanup(func() {
		if err := l.machines.Close(); err != nil {
			t.Error(err)
		}
	})
	return l
}

func (l *lab) open() {
	l.t.Helper()
	m, err := New(l.ctx, l.cfg)
	if err != nil {
		l.t.Fatal(err)
	}
	l.machines = m
}

// clone makes a VM: a child of the image and a cloud-init drive as PVE writes it.
func (l *lab) clone(vmid int, user string) pve.Machine {
	l.t.Helper()
	mac := fmt.Sprintf("bc:24:11:00:01:%02x", vmid%256)
	m := pve.Machine{
		VMID: vmid, Name: fmt.Sprintf("sb%d", vmid), MemoryMiB: 512, Cores: 1, BootSlot: "scsi0", Agent: true,
		Address: netip.MustParsePrefix("10.9.0.2/24"),
		NICs:    []pve.NIC{{Slot: "net0", MAC: mac, Bridge: "vmbr0"}},
		Disks: []pve.Disk{
			{Slot: "scsi0", Path: filepath.Join(l.dir, fmt.Sprintf("vm-%d-disk-0.qcow2", vmid)), Format: "qcow2"},
			{Slot: "scsi1", Path: filepath.Join(l.dir, fmt.Sprintf("vm-%d-cloudinit.iso", vmid)), Format: "raw", CDROM: true},
		},
	}
	if err := l.images.Link(l.ctx, l.base, m.Disks[0]); err != nil {
		l.t.Fatal(err)
	}
	key := strings.TrimSpace(string(ssh.MarshalAuthorizedKey(l.signer.PublicKey())))
	err := l.images.ISO(l.ctx, m.Disks[1], "cidata", map[string][]byte{
		"user-data":      fmt.Appendf(nil, "#cloud-config\nhostname: sb%d\nmanage_etc_hosts: true\nfqdn: sb%d.lab\nuser: %s\nssh_authorized_keys:\n  - %s\nchpasswd:\n  expire: False\nusers:\n  - default\npackage_upgrade: true\n", vmid, vmid, user, key),
		"meta-data":      fmt.Appendf(nil, "instance-id: lab-%d\n", vmid),
		"network-config": fmt.Appendf(nil, "version: 1\nconfig:\n    - type: physical\n      name: eth0\n      mac_address: '%s'\n      subnets:\n      - type: static\n        address: '10.9.0.2'\n        netmask: '255.255.255.0'\n        gateway: '10.9.0.1'\n    - type: nameserver\n      address:\n      - '10.9.0.1'\n      search:\n      - 'lab'\n", mac),
	})
	if err != nil {
		l.t.Fatal(err)
	}
	return m
}

// start starts the VM and waits for its agent, then logs in; it returns how
// long the first command took from power-on.
func (l *lab) start(m pve.Machine, user string) (*ssh.Client, time.Duration) {
	l.t.Helper()
	begin := time.Now()
	if err := l.machines.Start(l.ctx, m); err != nil {
		l.t.Fatal(err)
	}
	running := time.Since(begin)
	for {
		_, err := l.machines.Agent(l.ctx, m.VMID, "guest-ping", nil)
		if err == nil {
			break
		}
		if l.ctx.Err() != nil || time.Since(begin) > 3*time.Minute {
			l.t.Fatalf("no agent: %v\nconsole: %s", err, l.machines.Console(m.VMID))
		}
	}
	agent := time.Since(begin)
	banner := l.banner(m.VMID)
	c := l.login(m.VMID, user)
	if got := l.sh(c, "echo ready"); got != "ready" {
		l.t.Fatalf("first command: %q", got)
	}
	l.t.Logf("vm %d: started after %v, agent after %v, ssh banner %v later, first ssh command after %v", m.VMID, running, agent, banner, time.Since(begin))
	return c, time.Since(begin)
}

// banner measures how long sshd takes to say hello.
func (l *lab) banner(vmid int) time.Duration {
	l.t.Helper()
	begin := time.Now()
	conn, err := net.DialTimeout("tcp", l.machines.Status(vmid).SSH.String(), 5*time.Second)
	if err != nil {
		l.t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(begin.Add(time.Minute)); err != nil {
		l.t.Fatal(err)
	}
	if line, err := bufio.NewReader(conn).ReadString('\n'); err != nil || !strings.HasPrefix(line, "SSH-2.0-") {
		l.t.Fatalf("banner: %q, %v", line, err)
	}
	return time.Since(begin)
}

func (l *lab) login(vmid int, user string) *ssh.Client {
	l.t.Helper()
	addr := l.machines.Status(vmid).SSH
	if !addr.IsValid() {
		l.t.Fatalf("vm %d has no forwarded port", vmid)
	}
	c, err := ssh.Dial("tcp", addr.String(), &ssh.ClientConfig{
		User: user, Auth: []ssh.AuthMethod{ssh.PublicKeys(l.signer)}, Timeout: 30 * time.Second,
		HostKeyCallback: func(_ string, _ net.Addr, key ssh.PublicKey) error {
			l.hostKeys[vmid] = ssh.FingerprintSHA256(key) // a fresh guest's key is what the test is to learn
			return nil
		},
	})
	if err != nil {
		l.t.Fatalf("log in to vm %d as %s: %v\nconsole: %s", vmid, user, err, l.machines.Console(vmid))
	}
	l.t.Cleanup(func() { _ = c.Close() })
	return c
}

// sh runs a command and returns its trimmed output; a failing one ends the test.
func (l *lab) sh(c *ssh.Client, command string) string {
	l.t.Helper()
	out, err := l.try(c, command)
	if err != nil {
		l.t.Fatalf("%s: %v: %s", command, err, out)
	}
	return out
}

func (l *lab) try(c *ssh.Client, command string) (string, error) {
	s, err := c.NewSession()
	if err != nil {
		return "", err
	}
	defer s.Close()
	out, err := s.CombinedOutput(command)
	return strings.TrimSpace(string(out)), err
}

// F28: snapshot, restore, snapshot, restore works as a chain, memory included.
func TestLabMemorySnapshot(t *testing.T) {
	l := newLab(t)
	m := l.clone(101, "root")
	c, _ := l.start(m, "root")

	l.sh(c, "echo before > /root/file; sync")
	l.sh(c, "nohup sh -c 'i=0; while :; do i=$((i+1)); echo $i > /run/counter; sleep 0.05; done' > /dev/null 2>&1 & echo $! > /run/counter.pid")
	hash := l.sh(c, "find /etc -type f -print0 | sort -z | xargs -0 sha256sum | sha256sum")
	boot := l.sh(c, "cat /proc/sys/kernel/random/boot_id")
	pid := l.sh(c, "cat /run/counter.pid")

	// An owner that was killed while it saved left its node, its job and its file.
	v, err := l.machines.find(101)
	if err != nil {
		t.Fatal(err)
	}
	part := filepath.Join(l.dir, "vm-101-state-dead"+partSuffix)
	if _, err := l.images.run(l.ctx, "create", "-q", "-f", "qcow2", part, "1M"); err != nil {
		t.Fatal(err)
	}
	if err := v.addState(l.ctx, part, false); err != nil {
		t.Fatal(err)
	}
	save := map[string]any{"job-id": "save-one", "tag": "dead", "vmstate": stateNode, "devices": []string{stateNode}}
	if err := v.qmp.execute(l.ctx, "snapshot-save", save, nil); err != nil {
		t.Fatal(err)
	}

	state := filepath.Join(l.dir, "vm-101-state-one")
	begin := time.Now()
	if err := l.machines.Snapshot(l.ctx, 101, "one", state); err != nil {
		t.Fatal(err)
	}
	t.Logf("memory snapshot: %v", time.Since(begin))
	if _, err := os.Stat(part); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the file of the interrupted save: %v", err)
	}
	count := l.sh(c, "cat /run/counter")

	for round, name := range []string{"one", "one", "two"} {
		l.sh(c, "echo after > /root/file; rm -rf /etc 2>/dev/null; kill $(cat /run/counter.pid); sync; test ! -e /etc/passwd")
		_ = c.Close()
		if err := l.machines.Stop(l.ctx, 101, false); err != nil {
			t.Fatal(err)
		}
		if l.machines.Status(101).Running {
			t.Fatal("it still runs after Stop")
		}
		if err := l.images.Revert(l.ctx, m.Disks[0], name); err != nil {
			t.Fatal(err)
		}
		back := m
		back.Resume, back.ResumeTag = filepath.Join(l.dir, "vm-101-state-"+name), name
		var took time.Duration
		c, took = l.start(back, "root")
		t.Logf("round %d: resumed from %s, first ssh command after %v", round, name, took)
		if got := l.sh(c, "find /etc -type f -print0 | sort -z | xargs -0 sha256sum | sha256sum"); got != hash {
			t.Errorf("/etc after resume: got %s, want %s", got, hash)
		}
		if got := l.sh(c, "cat /root/file"); got != "before" {
			t.Errorf("file after resume: got %q", got)
		}
		if got := l.sh(c, "cat /proc/sys/kernel/random/boot_id"); got != boot {
			t.Errorf("boot id: got %s, want %s: it booted instead of resuming", got, boot)
		}
		if got := l.sh(c, "cat /run/counter.pid; kill -0 "+pid+" && echo lives"); got != pid+"\nlives" {
			t.Errorf("background process after resume: %q", got)
		}
		a := l.sh(c, "cat /run/counter")
		if got := l.sh(c, "sleep 0.4; cat /run/counter"); got == a {
			t.Errorf("the counter stands at %s after resume (%s at the snapshot)", got, count)
		}
		if round == 0 {
			if err := l.machines.Snapshot(l.ctx, 101, "two", filepath.Join(l.dir, "vm-101-state-two")); err != nil {
				t.Fatal(err)
			}
		}
	}
	// Deleting in any order, online; the other one still works.
	if err := l.machines.DeleteSnapshot(l.ctx, 101, "scsi0", "one"); err != nil {
		t.Error(err)
	}
	if err := l.machines.DeleteSnapshot(l.ctx, 101, "scsi0", "one"); err == nil {
		t.Error("deleting a snapshot twice: no error")
	}
	if err := l.machines.DeleteSnapshot(l.ctx, 101, "scsi0", "two"); err != nil {
		t.Error(err)
	}
	var refused *pve.AgentError
	if _, err := l.machines.Agent(l.ctx, 101, "no-such-command", nil); !errors.As(err, &refused) {
		t.Errorf("unknown agent command: %v", err)
	}
}

// agentRun runs a program in the guest by its agent and returns its output.
func (l *lab) agentRun(vmid int, path string, args ...string) string {
	l.t.Helper()
	raw, err := l.machines.Agent(l.ctx, vmid, "guest-exec", map[string]any{"path": path, "arg": append([]string{}, args...), "capture-output": true})
	if err != nil {
		l.t.Fatal(err)
	}
	var started struct{ PID int }
	if err := json.Unmarshal(raw, &started); err != nil {
		l.t.Fatal(err)
	}
	for {
		raw, err := l.machines.Agent(l.ctx, vmid, "guest-exec-status", map[string]int{"pid": started.PID})
		if err != nil {
			l.t.Fatal(err)
		}
		var st struct {
			Exited bool
			Out    []byte `json:"out-data"`
		}
		if err := json.Unmarshal(raw, &st); err != nil {
			l.t.Fatal(err)
		}
		if st.Exited {
			return strings.TrimSpace(string(st.Out))
		}
	}
}

// F88: clones of one image share no identity, and keep theirs over a reboot.
// Also: the owner may die and the next one takes over.
func TestLabClonesAndAdoption(t *testing.T) {
	l := newLab(t)
	one, two := l.clone(111, "root"), l.clone(112, "agent")
	c1, _ := l.start(one, "root")
	c2, _ := l.start(two, "agent")

	identity := "cat /etc/machine-id /etc/ssh/ssh_host_ed25519_key.pub; hostname; ls /etc/ssh/ssh_host_*"
	id1, id2 := l.sh(c1, identity), l.sh(c2, identity)
	lines1, lines2 := strings.Split(id1, "\n"), strings.Split(id2, "\n")
	if len(lines1) != 5 || len(lines2) != 5 {
		t.Fatalf("identities: %q, %q", lines1, lines2)
	}
	for i, what := range []string{"machine id", "host key", "host name"} {
		if lines1[i] == lines2[i] {
			t.Errorf("two clones have the same %s: %s", what, lines1[i])
		}
	}
	if len(lines1[0]) != 32 || lines1[2] != "sb111" {
		t.Errorf("machine id %q, host name %q", lines1[0], lines1[2])
	}
	if got := l.sh(c2, "id -un; id -u; echo $HOME; test -w /workspace && echo writable; test -w /etc || echo no"); got != "agent\n1000\n/home/agent\nwritable\nno" {
		t.Errorf("agent user: %q", got)
	}
	if got := l.sh(c2, "git --version && python3 -c 'import json; print(json.dumps(1))' && stat -fc %T /sys/fs/cgroup && ps -o comm= -p 1"); !strings.HasSuffix(got, "1\ncgroup2fs\ninit") {
		t.Errorf("programs: %q", got)
	}
	if out, err := l.try(c2, "cat /etc/shadow"); err == nil {
		t.Errorf("agent can read the shadow file: %q", out)
	}
	if got := l.sh(c1, "cat /etc/hosts; cat /etc/resolv.conf; grep -c . /etc/shadow; grep -E '^(root|agent):[^*]' /etc/shadow | wc -l"); !strings.Contains(got, "sb111.lab sb111") || !strings.Contains(got, "nameserver 10.9.0.1") || !strings.HasSuffix(got, "\n0") {
		t.Errorf("names and accounts: %q", got)
	}
	// An orphan is reaped, a killed sshd comes back.
	l.sh(c1, "sh -c '(sleep 0.1 &) ; exit 0'; sleep 0.6; ! ps -eo stat= | grep -q Z")
	l.sh(c1, "kill $(cat /run/sshd.pid)")
	_ = c1.Close()
	deadline := time.Now().Add(time.Minute)
	for l.agentRun(111, "/bin/sh", "-c", "ps -eo args= | grep -c '^sshd: /usr/sbin/sshd -D'") != "1" {
		if time.Now().After(deadline) {
			t.Fatal("sshd did not come back")
		}
	}
	c1 = l.login(111, "root")

	// A disk snapshot of a running VM.
	l.sh(c1, "echo kept > /root/file; sync")
	begin := time.Now()
	if err := l.machines.Snapshot(l.ctx, 111, "disk", ""); err != nil {
		t.Fatal(err)
	}
	t.Logf("disk snapshot: %v", time.Since(begin))
	if err := l.machines.Snapshot(l.ctx, 111, "disk", ""); !errors.Is(err, orchestrator.ErrExists) {
		t.Errorf("the same snapshot twice: %v", err)
	}
	l.sh(c1, "echo lost > /root/file; sync")

	// The owner dies: nobody closes anything.
	before := l.machines.Status(111)
	if _, err := New(l.ctx, l.cfg); !errors.Is(err, orchestrator.ErrBusy) {
		t.Errorf("a second owner: %v", err)
	}
	l.machines.abandon()
	l.open()
	if got := l.machines.Status(111); got != before {
		t.Errorf("adopted: got %+v, want %+v", got, before)
	}
	if got := l.agentRun(111, "/bin/hostname"); got != "sb111" {
		t.Errorf("agent of the adopted VM: %q", got)
	}
	if got := l.sh(l.login(111, "root"), "cat /root/file"); got != "lost" {
		t.Errorf("adopted VM: %q", got)
	}

	// A clean shutdown, a revert, a boot: the identity stays.
	ctx, cancel := context.WithTimeout(l.ctx, time.Minute)
	defer cancel()
	begin = time.Now()
	if err := l.machines.Stop(ctx, 111, true); err != nil {
		t.Fatalf("%v\nconsole: %s", err, l.machines.Console(111))
	}
	t.Logf("clean shutdown: %v", time.Since(begin))
	if got := l.machines.Status(111); got != (pve.MachineStatus{}) {
		t.Errorf("after the shutdown: %+v", got)
	}
	if err := l.images.Revert(l.ctx, one.Disks[0], "disk"); err != nil {
		t.Fatal(err)
	}
	c1, _ = l.start(one, "root")
	if got := l.sh(c1, "cat /root/file"); got != "kept" {
		t.Errorf("after revert: %q", got)
	}
	if got := l.sh(c1, identity); got != id1 {
		t.Errorf("identity after a reboot: got %q, want %q", got, id1)
	}

	// The guest powers itself off: noticed at once.
	if err := l.machines.Start(l.ctx, one); !errors.Is(err, orchestrator.ErrExists) {
		t.Errorf("start of a running VM: %v", err)
	}
	v, err := l.machines.find(112)
	if err != nil {
		t.Fatal(err)
	}
	if err := v.process.kill(); err != nil {
		t.Fatal(err)
	}
	<-v.watched
	if got := l.machines.Status(112); got.Running {
		t.Errorf("killed VM: %+v", got)
	}
	if _, err := os.Stat(filepath.Join(machineDir(l.cfg.Dir, 112), recordName)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("its record: %v", err)
	}
}

// The accelerator probe decides within its limit, by starting a kernel, and
// emulation passes the same test that KVM has to.
func TestLabProbe(t *testing.T) {
	l := newLab(t)
	img, err := guest.Build(l.ctx, guest.Options{CacheDir: cacheDir(t)})
	if err != nil {
		t.Fatal(err)
	}
	p := Probe{QEMU: "qemu-system-x86_64", Kernel: img.Kernel, Initrd: img.Initrd, Limit: time.Minute}
	begin := time.Now()
	if err := p.try(l.ctx, Accelerator{Name: "tcg"}); err != nil {
		t.Errorf("emulation: %v", err)
	}
	t.Logf("probe of emulation: %v", time.Since(begin))
}
