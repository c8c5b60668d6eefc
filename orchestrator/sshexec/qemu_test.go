package sshexec_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/netip"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"savepoint/orchestrator"
	"savepoint/orchestrator/sshexec"
	"savepoint/policy"
	"savepoint/testbed/conformance"
	"savepoint/testbed/guest"
	"savepoint/testbed/jump"
	"savepoint/testbed/pve"
	"savepoint/testbed/qemu"
)

// real is one guest under QEMU behind a jump host.
type real struct {
	*sshexec.Client
	cfg      sshexec.Config
	machines *qemu.Machines
	images   *qemu.Images
	machine  pve.Machine
	sb       orchestrator.Sandbox
	disk     string // the kernel's name of the workspace volume's
}

// newReal boots a clone of the lab's guest image, reads its host key through
// the guest agent, and prepares it, as provisioning does.
func newReal(t testing.TB) *real { return newRealWith(t, "") }

// newRealWith does it for a machine with a second disk: a file with the workspace
// volume.
func newRealWith(t testing.TB, workspace string) *real {
	lab(t)
	ctx := within(t, 10*time.Minute)
	cache, err := guest.CacheDir()
	if err != nil {
		t.Fatal(err)
	}
	img, err := guest.Build(ctx, guest.Options{CacheDir: cache, Progress: func(s string) { t.Log(s) }})
	if err != nil {
		t.Fatal(err)
	}
	accel, err := qemu.Accel(ctx, qemu.Probe{Kernel: img.Kernel, Initrd: img.Initrd, CacheDir: cache})
	if err != nil {
		t.Fatal(err)
	}
	images, err := qemu.NewImages("")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	machines, err := qemu.New(ctx, qemu.Config{Dir: filepath.Join(dir, "run"), Accel: accel, Images: images, Notice: func(s string) { t.Log(s) }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := machines.Close(); err != nil {
			t.Error(err)
		}
	})
	id := identity(t)
	r := &real{machines: machines, images: images}
	r.machine = pve.Machine{
		VMID: 101, Name: "sb101", MemoryMiB: 512, Cores: 1, BootSlot: "scsi0", Agent: true, Address: netip.MustParsePrefix("10.9.0.2/24"),
		NICs: []pve.NIC{{Slot: "net0", MAC: "bc:24:11:00:01:65", Bridge: "vmbr0"}},
		Disks: []pve.Disk{
			{Slot: "scsi0", Path: filepath.Join(dir, "disk.qcow2"), Format: "qcow2"},
			{Slot: "scsi1", Path: filepath.Join(dir, "cloudinit.iso"), Format: "raw", CDROM: true},
		},
	}
	if workspace != "" {
		r.machine.Disks = append(r.machine.Disks, pve.Disk{Slot: "scsi2", Path: workspace, Format: "raw"})
	}
	if err := images.Link(ctx, pve.Disk{Slot: "scsi0", Path: img.Path, Format: "qcow2"}, r.machine.Disks[0]); err != nil {
		t.Fatal(err)
	}
	err = images.ISO(ctx, r.machine.Disks[1], "cidata", map[string][]byte{
		"user-data":      fmt.Appendf(nil, "#cloud-config\nhostname: sb101\nuser: root\nssh_authorized_keys:\n  - %s\n", id.AuthorizedKey()),
		"meta-data":      []byte("instance-id: real-101\n"),
		"network-config": []byte("version: 1\nconfig:\n    - type: physical\n      name: eth0\n      mac_address: 'bc:24:11:00:01:65'\n      subnets:\n      - type: static\n        address: '10.9.0.2'\n        netmask: '255.255.255.0'\n        gateway: '10.9.0.1'\n"),
	})
	if err != nil {
		t.Fatal(err)
	}
	j, err := jump.Listen(jump.Config{Dir: dir, Authorized: []string{id.AuthorizedKey()}, Resolve: func(a netip.Addr, port uint16) (netip.AddrPort, bool) {
		s := machines.Status(101)
		return s.SSH, s.Running && port == 22 && a == r.machine.Address.Addr()
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { j.Close() })
	r.cfg = sshexec.Config{Identities: []sshexec.Identity{id}, Jump: &sshexec.Jump{Address: j.Addr().String(), User: "lab", HostKey: j.HostKey(), Identity: id}}
	r.Client = client(t, r.cfg)
	if err := machines.Start(ctx, r.machine); err != nil {
		t.Fatal(err)
	}
	r.sb = orchestrator.Sandbox{ID: "01real", Name: "sb101", Address: r.machine.Address.Addr(), HostKey: r.hostKey(t, ctx), Workspace: workspace}
	r.disk = "sdb"
	began := time.Now()
	// Of a guest with a volume the answer says that it was mounted at boot.
	if _, err := r.Inspect(ctx, r.sb); err != nil {
		t.Fatalf("%v; console: %s", err, r.machines.Console(101))
	}
	if err := r.Prepare(ctx, r.sb, nil); err != nil {
		t.Fatal(err)
	}
	t.Logf("prepared in %s", time.Since(began))
	return r
}

func (r *real) hostKey(t testing.TB, ctx context.Context) string {
	t.Helper()
	ask := func(command string, args any, into any) error {
		ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		raw, err := r.machines.Agent(ctx, 101, command, args)
		if err == nil {
			err = json.Unmarshal(raw, into)
		}
		return err
	}
	for {
		var handle int
		var part struct {
			Buf string `json:"buf-b64"`
		}
		err := ask("guest-file-open", map[string]any{"path": "/etc/ssh/ssh_host_ed25519_key.pub"}, &handle)
		if err == nil {
			err = ask("guest-file-read", map[string]any{"handle": handle}, &part)
		}
		if err == nil {
			raw, err := base64.StdEncoding.DecodeString(part.Buf)
			if err != nil {
				t.Fatal(err)
			}
			return strings.TrimSpace(string(raw))
		}
		if ctx.Err() != nil {
			t.Fatalf("host key: %v", err)
		}
	}
}

// TestQEMU shows the conformance with a real guest and kernel.
func TestQEMU(t *testing.T) {
	t.Parallel() // guests wait more than they compute
	conformance.Executor(t, func(t *testing.T) conformance.ExecutorUnderTest {
		r := newReal(t)
		hold, err := r.Hold(within(t, time.Minute), r.sb)
		if err != nil || hold != "cgroup" {
			t.Fatalf("commands are held together by %q, %v", hold, err)
		}
		return conformance.ExecutorUnderTest{Executor: r, Guest: r, Sandbox: r.sb, Permit: permit,
			Other: netip.MustParseAddr("10.9.0.77"), OtherKey: otherKey(t)}
	}, conformance.ExecutorCaps{Signals: true, Clock: true, Agent: true, Parallel: 2, Slack: time.Second})
}

// TestQEMURollback: a machine that returns to its saved memory holds the old
// connection and helper; neither is in the way, and both end by themselves.
// F23 F94 F98
func TestQEMURollback(t *testing.T) {
	t.Parallel() // guests wait more than they compute
	r := newReal(t)
	ctx := within(t, 5*time.Minute)
	before, err := r.Mark(ctx, r.sb, "at the snapshot")
	if err != nil {
		t.Fatal(err)
	}
	run := func(command string) string {
		t.Helper()
		res, err := r.Run(ctx, r.sb, permit(command, policy.Root), orchestrator.ExecRequest{})
		if err != nil || res.ExitCode != 0 {
			t.Fatalf("%q: exit %d, %s, %v", command, res.ExitCode, res.Stderr, err)
		}
		return string(res.Stdout)
	}
	run("echo precious > /workspace/file")
	state := filepath.Join(filepath.Dir(r.machine.Disks[0].Path), "state")
	if err := r.machines.Snapshot(ctx, 101, "sp1", state); err != nil {
		t.Fatal(err)
	}
	taken := time.Now()
	run("rm -rf /workspace/file /etc/apt")
	if _, err := r.Mark(ctx, r.sb, "later"); err != nil {
		t.Fatal(err)
	}

	// The machine is torn down under a running command.
	var wg sync.WaitGroup
	wg.Go(func() {
		_, err = r.Run(ctx, r.sb, permit("touch /tmp/began; sleep 1000", policy.Agent), orchestrator.ExecRequest{})
	})
	run("until test -e /tmp/began; do sleep 0.1; done")
	if err := r.machines.Stop(ctx, 101, false); err != nil {
		t.Fatal(err)
	}
	wg.Wait()
	wantClass(t, err, orchestrator.ErrUnknownOutcome)
	r.Disconnect(r.sb.ID)
	if err := r.images.Revert(ctx, r.machine.Disks[0], "sp1"); err != nil {
		t.Fatal(err)
	}
	m := r.machine
	m.Resume, m.ResumeTag = state, "sp1"
	if err := r.machines.Start(ctx, m); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	after, err := r.Inspect(ctx, r.sb)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("answered %s after the resume, round trip %s", time.Since(began), after.RoundTrip)
	if after.BootID != before.BootID || after.Generation != "at the snapshot" {
		t.Errorf("got %+v, want boot %s", after, before.BootID)
	}
	if behind := time.Since(after.Clock); behind > time.Since(taken)+2*time.Second {
		t.Errorf("the clock is behind by %s, the snapshot is only %s old", behind, time.Since(taken))
	}
	if err := r.SetClock(ctx, r.sb, time.Now()); err != nil {
		t.Fatal(err)
	}
	if after, err = r.Inspect(ctx, r.sb); err != nil || time.Since(after.Clock).Abs() > time.Second {
		t.Errorf("clock after it was set: off by %s, %v", time.Since(after.Clock), err)
	}
	if got := run("cat /workspace/file; test -d /etc/apt && echo back"); got != "precious\nback\n" {
		t.Errorf("after the resume: %q", got)
	}
	// Ours, with its child that waits for the next command, and nobody else's.
	helpers := "grep -l ^perl$ /proc/[0-9]*/comm 2>/dev/null | wc -l"
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(time.Second) {
		n := strings.TrimSpace(run(helpers))
		if n == "1" || n == "2" {
			t.Logf("the old helper was gone %s after the resume", time.Since(began))
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s helpers are in the guest", n)
		}
	}
}
