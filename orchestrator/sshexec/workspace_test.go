package sshexec_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"savepoint/orchestrator"
	"savepoint/orchestrator/sshexec"
	"savepoint/policy"
	"savepoint/proxmox/zfs"
	"savepoint/testbed/sim"
)

// The client is what the workspace snapshots need of a guest, and of a node.
var (
	_ zfs.Guest    = (*sshexec.Client)(nil)
	_ zfs.Exchange = (*sshexec.Nodes)(nil).Exchange
)

// volumeParts are the places of the volume's parts.
const volumeParts = "/home/agent /workspace /tmp /var/tmp /dev/shm"

// What cannot be done says so, at once.
func TestWorkspaceRefusals(t *testing.T) {
	w := newWorld(t, sim.Behaviour{}, nil)
	_, sb := w.sandbox(t, 101)
	ctx := within(t, 20*time.Second)
	for name, do := range map[string]func(orchestrator.Sandbox) error{
		"freeze":  func(sb orchestrator.Sandbox) error { return w.Client.Freeze(ctx, sb, time.Second) },
		"thaw":    func(sb orchestrator.Sandbox) error { return w.Thaw(ctx, sb) },
		"unmount": func(sb orchestrator.Sandbox) error { return w.Unmount(ctx, sb) },
		"mount":   func(sb orchestrator.Sandbox) error { return w.Mount(ctx, sb) },
	} {
		var never *orchestrator.UnsupportedError
		if err := do(sb); !errors.As(err, &never) || !strings.Contains(err.Error(), name+" workspace of sandbox sandbox-101") {
			t.Errorf("%s of a sandbox without a volume: %v", name, err)
		}
		with := sb
		with.Workspace = "tank/vm-101-disk-1"
		err := do(with) // a simulated guest has none
		wantClass(t, err, orchestrator.ErrUnavailable)
		if !strings.Contains(err.Error(), name+" workspace of sandbox sandbox-101") {
			t.Error(err)
		}
	}
	sb.Workspace = "tank/vm-101-disk-1"
	wantClass(t, w.Client.Freeze(ctx, sb, 0), orchestrator.ErrDenied)
	// Commands and questions go on.
	w.run(t, sb, "true")
}

// newVolume makes a file with an empty workspace volume.
func newVolume(t *testing.T) string {
	t.Helper()
	lab(t)
	path := t.TempDir() + "/workspace.raw"
	if out, err := exec.Command("/usr/sbin/mkfs.ext4", "-q", "-L", sshexec.WorkspaceLabel, "-E", "lazy_itable_init=0,lazy_journal_init=0", path, "64M").CombinedOutput(); err != nil {
		t.Fatalf("mkfs.ext4: %v: %s", err, out)
	}
	return path
}

// as runs a command and returns what it said, both streams.
func (r *real) as(t *testing.T, user policy.User, command string) (string, int) {
	t.Helper()
	res, err := r.Run(within(t, 3*time.Minute), r.sb, permit(command, user), orchestrator.ExecRequest{})
	if err != nil {
		t.Fatalf("%q: %v", command, err)
	}
	return strings.TrimSpace(string(res.Stdout) + string(res.Stderr)), res.ExitCode
}

func (r *real) must(t *testing.T, user policy.User, command string) string {
	t.Helper()
	out, code := r.as(t, user, command)
	if code != 0 {
		t.Fatalf("%q: exit %d: %s", command, code, out)
	}
	return out
}

// background starts a command and returns how to wait for its end.
func (r *real) background(t *testing.T, user policy.User, command string) func() (orchestrator.ExecResult, error) {
	t.Helper()
	var res orchestrator.ExecResult
	var err error
	var wg sync.WaitGroup
	ctx := within(t, 5*time.Minute)
	wg.Go(func() { res, err = r.Run(ctx, r.sb, permit(command, user), orchestrator.ExecRequest{}) })
	return func() (orchestrator.ExecResult, error) { wg.Wait(); return res, err }
}

// until waits until a command of root succeeds.
func (r *real) until(t *testing.T, command string) {
	t.Helper()
	r.must(t, policy.Root, "for i in $(seq 600); do if "+command+"; then exit 0; fi; sleep 0.1; done; exit 1")
}

func ok(t *testing.T, what string, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

// workspaceTest is a test on a guest that others are made on too.
type workspaceTest struct {
	name string
	test func(*testing.T, *real)
}

func (r *real) tests(t *testing.T, volume string, more ...workspaceTest) {
	for _, tt := range append([]workspaceTest{
		{"the agent works on the volume", partsWork},
		{"the marker is on the volume", markerOnVolume},
		{"a freeze holds writes, F80 F81", freezeHolds},
		{"a freeze ends by itself, F80", freezeEnds},
		{"unmount ends all of the agent", unmountEnds},
		{"what root holds stays mounted", rootHolds},
		{"other mount namespaces let go", namespacesLetGo},
		{"the system's sockets are hidden", socketsHidden},
		{"mounts are made ahead", fencesMadeAhead},
		{"mounts made ahead let go", fencesLetGo},
		{"mounts made ahead fail", fencesFail},
		{"snapshots hold and bring back, F20 F24 F30 F31", func(t *testing.T, r *real) { snapshotsHold(t, r, volume) }},
	}, more...) {
		if !t.Run(tt.name, func(t *testing.T) { tt.test(t, r) }) {
			return // the next ones would start from its remains
		}
	}
}

// TestQEMUWorkspace shows the guest's half of the boundary workspace on a real
// guest: its volume, the holds of it, and that the agent can write nowhere else.
func TestQEMUWorkspace(t *testing.T) {
	t.Parallel() // guests wait more than they compute
	volume := newVolume(t)
	newRealWith(t, volume).tests(t, volume,
		workspaceTest{"the agent writes nowhere else", writesNowhereElse},
		workspaceTest{"the agent does not become another", becomesNobody},
		workspaceTest{"the next boot mounts it", bootMounts})
}

// TestOpenSSHWorkspace shows the holds on the kernel of this host, at its speed.
func TestOpenSSHWorkspace(t *testing.T) {
	volume := newVolume(t)
	r, id := hostReal(t, volume)
	ctx := within(t, time.Minute)
	if _, err := r.Inspect(ctx, r.sb); !errors.Is(err, orchestrator.ErrUnavailable) {
		t.Fatalf("before the volume was mounted: %v", err)
	}
	for range 2 {
		if err := r.Prepare(ctx, r.sb, []string{id.AuthorizedKey()}); err != nil {
			t.Fatal(err)
		}
	}
	r.tests(t, volume, workspaceTest{"a full volume can be marked", fullVolume})
}

// hostReal is a guest that is this host: an OpenSSH in mounts of its own, with the
// volume as a disk.
func hostReal(t *testing.T, volume string) (*real, sshexec.Identity) {
	t.Helper()
	loop, err := exec.Command("losetup", "--find", "--show", volume).Output()
	if err != nil {
		t.Skipf("no loop device for the volume: %v", err)
	}
	disk := strings.TrimSpace(string(loop))
	t.Cleanup(func() {
		if out, err := exec.Command("losetup", "--detach", disk).CombinedOutput(); err != nil {
			t.Errorf("losetup: %v: %s", err, out)
		}
	})
	id := identity(t)
	addr, key := opensshd(t, id, `for d in /srv /run /opt; do mount -t tmpfs -o mode=0755 tmpfs $d; done
mkdir -p /run/sshd /run/lock /var/crash
umount /dev/mqueue 2>/dev/null || :
mount -t tmpfs -o mode=1777 tmpfs /dev/shm
rm -rf /var/lib/savepoint`)
	r := &real{cfg: sshexec.Config{Identities: []sshexec.Identity{id}, Port: int(addr.Port())}, disk: disk[len("/dev/"):]}
	r.Client = client(t, r.cfg)
	r.sb = orchestrator.Sandbox{ID: "01ws", Name: "real", Address: addr.Addr(), HostKey: key, Workspace: volume}
	return r, id
}

// ground is where the volume's parts are on it.
func (r *real) ground() string {
	if r.sb.Workspace == sshexec.BtrfsWorkspace {
		return "/srv/savepoint/live"
	}
	return "/srv/savepoint"
}

func partsWork(t *testing.T, r *real) {
	r.must(t, policy.Agent, "for d in "+volumeParts+"; do echo text > $d/file && grep -q text $d/file || exit 1; done")
	if got := r.must(t, policy.Root, "cat /workspace/file "+r.ground()+"/home/file; stat -c %a:%U /home/agent /workspace /tmp /var/tmp /dev/shm"); got != "text\ntext\n700:agent\n755:agent\n1777:root\n1777:root\n1777:root" {
		t.Errorf("root sees %q", got)
	}
	r.must(t, policy.Agent, `python3 -c 'import multiprocessing; multiprocessing.Lock().acquire()'`) // a semaphore in /dev/shm
	r.must(t, policy.Agent, "f=$(mktemp) && [ -s /etc/passwd ] && script -qc true /dev/null < /dev/null && rm $f")
	ok(t, "mount again", r.Mount(t.Context(), r.sb))
	if n := r.must(t, policy.Root, "grep -c ' /dev/"+r.disk+" ' /proc/self/mountinfo"); n != "6" {
		t.Errorf("%s mounts after mounting twice", n)
	}
}

func markerOnVolume(t *testing.T, r *real) {
	ctx := within(t, 2*time.Minute)
	for _, want := range []string{"a rather long generation that is followed by a", "short one"} {
		facts, err := r.Mark(ctx, r.sb, want)
		if err != nil || facts.Generation != want {
			t.Fatalf("got %+v, %v", facts, err)
		}
	}
	for _, attack := range []string{
		"cat GROUND/generation", "echo x > GROUND/generation", "mv GROUND/generation GROUND/g",
		"rm -f GROUND/generation", "mv GROUND/home GROUND/h", "mkdir GROUND/x", "umount /tmp",
		"mount -o remount,rw /srv/savepoint", "ln GROUND/generation /tmp/g",
	} {
		attack = strings.ReplaceAll(attack, "GROUND", r.ground())
		if out, code := r.as(t, policy.Agent, attack); code == 0 {
			t.Errorf("%q worked: %s", attack, out)
		}
	}
	before, err := r.Inspect(ctx, r.sb)
	if err != nil || before.Generation != "short one" {
		t.Fatalf("got %+v, %v", before, err)
	}
	ok(t, "unmount", r.Unmount(ctx, r.sb))
	ok(t, "unmount again", r.Unmount(ctx, r.sb))
	_, err = r.Inspect(ctx, r.sb)
	wantClass(t, err, orchestrator.ErrUnavailable)
	if !errors.Is(err, orchestrator.ErrUnmounted) || !strings.Contains(err.Error(), "the workspace volume is not mounted") {
		t.Error(err)
	}
	_, err = r.Mark(ctx, r.sb, "lost")
	wantClass(t, err, orchestrator.ErrUnavailable)
	wantClass(t, r.Freeze(ctx, r.sb, time.Second), orchestrator.ErrUnavailable)
	ok(t, "thaw", r.Thaw(ctx, r.sb))
	// The directories below the parts are not the volume.
	_, err = r.Run(ctx, r.sb, permit("touch /workspace/below", policy.Agent), orchestrator.ExecRequest{})
	wantClass(t, err, orchestrator.ErrUnavailable)
	r.must(t, policy.Root, "test ! -e /workspace/below && test ! -e /var/lib/savepoint/generation")
	if err := r.SetClock(ctx, r.sb, time.Now()); err != nil {
		t.Error(err)
	}
	ok(t, "mount", r.Mount(ctx, r.sb))
	after, err := r.Inspect(ctx, r.sb)
	if err != nil || after.Generation != "short one" || after.BootID != before.BootID {
		t.Errorf("got %+v, %v", after, err)
	}
}

// frozenWrites starts a write to each part, and reports how many are done.
func (r *real) frozenWrites(t *testing.T) (done func() string, wait func() (orchestrator.ExecResult, error)) {
	t.Helper()
	r.must(t, policy.Root, "rm -f /run/wrote.*; mkfifo -m 600 /run/began 2>/dev/null; true")
	// Of root, so that the count is kept where nothing is frozen.
	wait = r.background(t, policy.Root, "for d in "+volumeParts+"; do (echo text > $d/frozen; echo > /run/wrote.$(echo $d | tr / .)) & done; echo > /run/began; wait")
	r.must(t, policy.Root, "cat /run/began")
	return func() string { return r.must(t, policy.Root, "ls /run | grep -c '^wrote'; true") }, wait
}

func freezeHolds(t *testing.T, r *real) {
	ctx := within(t, 3*time.Minute)
	began := time.Now()
	for range 2 { // the second starts the time anew
		ok(t, "freeze", r.Freeze(ctx, r.sb, 60*time.Second))
	}
	done, wait := r.frozenWrites(t)
	if got := r.must(t, policy.Root, "sleep 1; ls /run | grep -c ^wrote; ls /run/savepoint; pgrep -fc 'perl' ; true"); !strings.HasPrefix(got, "0\nfreeze") {
		t.Errorf("while it is frozen: %q", got)
	}
	r.must(t, policy.Agent, "cat /workspace/file") // reading goes on
	r.Disconnect("somebody else's")
	ok(t, "thaw", r.Thaw(ctx, r.sb))
	if res, err := wait(); err != nil || res.ExitCode != 0 {
		t.Fatal(res, err)
	}
	if n := done(); n != "5" || time.Since(began) > 55*time.Second {
		t.Errorf("%s of 5 writes were done %s after the freeze", n, time.Since(began))
	}
	ok(t, "thaw again", r.Thaw(ctx, r.sb))
	r.must(t, policy.Root, "test ! -e /run/savepoint/freeze")
}

// The watchdog needs neither the connection nor the helper.
func freezeEnds(t *testing.T, r *real) {
	ctx := within(t, 3*time.Minute)
	ok(t, "freeze", r.Freeze(ctx, r.sb, 500*time.Millisecond)) // another one replaces it
	ok(t, "freeze", r.Freeze(ctx, r.sb, 6*time.Second))
	frozen := time.Now()
	r.Disconnect(r.sb.ID)
	done, wait := r.frozenWrites(t)
	if n := done(); n != "0" && time.Since(frozen) < 5*time.Second {
		t.Errorf("%s writes were done after %s", n, time.Since(frozen))
	}
	if res, err := wait(); err != nil || res.ExitCode != 0 {
		t.Fatal(res, err)
	}
	t.Logf("it was frozen for %s", time.Since(frozen))
	if d := time.Since(frozen); d < 5*time.Second {
		t.Errorf("writes went on after %s of 6 s", d)
	}
	r.until(t, "test ! -e /run/savepoint/freeze")
	r.must(t, policy.Agent, "echo text > /workspace/file")
}

// Nothing of the agent outlives an unmount: not what took itself out of its
// session, not what ignores signals, not what forks all the time, not what is
// blocked by a freeze, not its shared memory, and not its own mounts.
func unmountEnds(t *testing.T, r *real) {
	ctx := within(t, 3*time.Minute)
	var ends []func() (orchestrator.ExecResult, error)
	for i, command := range []string{
		"nohup sh -c 'trap \"\" TERM HUP INT; cd /tmp; exec 3> /workspace/held; while :; do sleep 1; done' > ~/out 2>&1 & setsid -f sleep 1000; : > /tmp/began.0; sleep 1000",
		"ipcmk -M 1024 > /dev/null; ipcmk -Q > /dev/null; ipcmk -S 1 > /dev/null; : > /tmp/began.1; f() { sleep 0.2; f & }; f; sleep 1000",
		"unshare --user --map-root-user --mount --pid --fork sh -c 'mount --bind /workspace /mnt; : > /tmp/began.2; cd /mnt; sleep 1000'",
	} {
		ends = append(ends, r.background(t, policy.Agent, command))
		r.until(t, fmt.Sprintf("test -e /tmp/began.%d", i))
	}
	ok(t, "freeze", r.Freeze(ctx, r.sb, 60*time.Second))
	began := time.Now()
	ok(t, "unmount", r.Unmount(ctx, r.sb))
	t.Logf("unmounted in %s", time.Since(began))
	for _, end := range ends {
		if res, err := end(); err != nil || res.Signal != "KILL" && res.ExitCode != 137 {
			t.Errorf("got exit %d, signal %q, %s, %v", res.ExitCode, res.Signal, res.Stderr, err)
		}
	}
	got := r.must(t, policy.Root, "pgrep -c -u agent; ls /sys/fs/ext4 | grep -cx "+r.disk+"; ipcs | grep -c agent; ls -A /dev/shm | wc -l; true")
	if got != "0\n0\n0\n0" {
		t.Errorf("after it: %q", got)
	}
	ok(t, "mount", r.Mount(ctx, r.sb))
	r.must(t, policy.Agent, "test -e /workspace/held && rm /tmp/began.*")
}

func rootHolds(t *testing.T, r *real) {
	ctx := within(t, 3*time.Minute)
	r.must(t, policy.Root, "mkfifo /run/go")
	for _, hold := range []string{"cd /tmp", "exec 9< /workspace/file", "cp /bin/sleep /var/tmp/held; /var/tmp/held 1000 & cd /"} {
		end := r.background(t, policy.Root, hold+"; : > /run/holds; read x < /run/go")
		r.until(t, "test -e /run/holds")
		began := time.Now()
		err := r.Unmount(ctx, r.sb)
		t.Logf("%s: %v", time.Since(began), err)
		wantClass(t, err, orchestrator.ErrBusy)
		if !strings.Contains(err.Error(), "(bash)") && !strings.Contains(err.Error(), "(held)") {
			t.Errorf("%q: the holder is not named: %v", hold, err)
		}
		if _, err := r.Inspect(ctx, r.sb); err != nil {
			t.Errorf("%q: %v", hold, err)
		}
		r.must(t, policy.Agent, "for d in "+volumeParts+"; do test -e $d/file || exit 1; done")
		r.must(t, policy.Root, "rm /run/holds; echo > /run/go")
		if res, err := end(); err != nil || res.ExitCode != 0 {
			t.Errorf("%q: root's command was ended: %+v, %v", hold, res, err)
		}
	}
}

func namespacesLetGo(t *testing.T, r *real) {
	ctx := within(t, 3*time.Minute)
	end := r.background(t, policy.Root, "unshare --mount --propagation private sh -c ': > /run/apart; read x < /run/go; grep -c "+r.disk+" /proc/self/mountinfo'")
	r.until(t, "test -e /run/apart")
	ok(t, "unmount", r.Unmount(ctx, r.sb))
	r.must(t, policy.Root, "test ! -e /sys/fs/ext4/"+r.disk+"; echo > /run/go")
	if res, err := end(); err != nil || string(res.Stdout) != "0\n" {
		t.Errorf("got %q, %v", res.Stdout, err)
	}
	ok(t, "mount", r.Mount(ctx, r.sb))
}

// systemSockets has root listen where a system's bus and journal do, and returns
// how to end that.
func (r *real) systemSockets(t *testing.T) (end func()) {
	t.Helper()
	r.must(t, policy.Root, "mkdir -p /run/dbus /run/systemd/journal; rm -f /run/go; mkfifo /run/go")
	wait := r.background(t, policy.Root, `python3 -c 'import os, socket
s = [socket.socket(socket.AF_UNIX, k) for k in (socket.SOCK_STREAM, socket.SOCK_DGRAM)]
for k, p in zip(s, ("/run/dbus/system_bus_socket", "/run/systemd/journal/dev-log")):
  k.bind(p)
  os.chmod(p, 0o777)
s[0].listen(99)
open("/run/go").read()'`)
	r.until(t, "test -S /run/systemd/journal/dev-log")
	return func() {
		r.must(t, policy.Root, "echo > /run/go; rm -r /run/dbus /run/systemd")
		if res, err := wait(); err != nil || res.ExitCode != 0 {
			t.Error(res, err)
		}
	}
}

// Through these sockets the system would do what the agent asks, or note it.
func socketsHidden(t *testing.T, r *real) {
	defer r.systemSockets(t)()
	connect := `python3 -c 'import socket; socket.socket(socket.AF_UNIX).connect("/run/dbus/system_bus_socket")'`
	r.must(t, policy.Root, connect)
	if out, code := r.as(t, policy.Agent, connect+" || ls -A /run/dbus /run/systemd/journal | grep -q socket"); code == 0 {
		t.Errorf("the agent sees the system's sockets: %s", out)
	}
}

// writesNowhereElse tries every file, directory, device, socket and setting that
// is not on the volume. What the kernel keeps for processes (System V memory, the
// keyring) is memory.
func writesNowhereElse(t *testing.T, r *real) {
	// What anybody may write is what a guest may have anywhere.
	r.must(t, policy.Root, "mkdir -m 1777 -p /var/crash /opt/open /run/open && install -m 666 /dev/null /etc/open && chown agent /opt/open && mkdir -p /run/user/1000 && chown agent /run/user/1000 && mkfifo -m 600 /root/fifo")
	defer r.systemSockets(t)()
	text, err := os.ReadFile("testdata/writable.py")
	ok(t, "read", err)
	run := func(user policy.User, command string) (orchestrator.ExecResult, error) {
		return r.Run(within(t, 5*time.Minute), r.sb, permit(command, user), orchestrator.ExecRequest{Stdin: bytes.NewReader(text)})
	}
	res, err := run(policy.Agent, "python3 - "+volumeParts)
	t.Logf("%s", res.Stderr)
	if err != nil || res.ExitCode != 0 || !strings.HasPrefix(string(res.Stderr), "tried ") {
		t.Errorf("exit %d, %v: agent can write\n%s%s", res.ExitCode, err, res.Stdout, res.Stderr)
	}
	// The test finds what it is looking for: without the volume's mounts there is something.
	res, err = run(policy.Root, "TOPS='/etc /run /opt /var/crash' setpriv --reuid agent --regid agent --clear-groups python3 - "+volumeParts)
	if err != nil || res.ExitCode != 1 {
		t.Errorf("exit %d, %v", res.ExitCode, err)
	}
	for _, want := range []string{"file /etc/open", "a file in /run/open", "a directory in /opt/open", "a file in /var/crash", "the mode of /opt/open", "socket /run/dbus/system_bus_socket", "socket /run/systemd/journal/dev-log"} {
		if !strings.Contains(string(res.Stdout), want+"\n") {
			t.Errorf("%q is not found without the volume's mounts: %s", want, res.Stdout)
		}
	}
}

// becomesNobody tries the ways to have something done outside of the command's
// mounts. Each of them has to fail, and to leave nothing.
func becomesNobody(t *testing.T, r *real) {
	r.must(t, policy.Root, "touch /run/stamp; sleep 1.1")
	for _, attack := range []string{
		"mount -t tmpfs none /mnt", "mount --bind /workspace /etc", "mount -o remount,rw /", "mount -o remount,bind,rw /", "umount /home/agent",
		"unshare --user --map-root-user --mount sh -c 'mount -o remount,bind,rw / || mount -o remount,rw / || touch /etc/x'",
		"unshare --user --map-root-user --mount sh -c 'umount -l /etc || umount -l / && touch /etc/x'",
		"nsenter -t 1 -m touch /etc/x", "touch /proc/1/root/etc/x", "touch /proc/1/cwd/x",
		"grep -q 'NoNewPrivs:[[:space:]]*0' /proc/self/status", "echo x | su -c id", "su -c id agent", "chsh -s /bin/sh", "passwd -d agent", "newgrp root", "chfn -f x",
		"echo 'touch /etc/x' | at now", "echo '* * * * * touch /etc/x' | crontab -",
		"mkdir -p -m 700 ~/.ssh && ssh-keygen -q -t ed25519 -N '' -f ~/.ssh/own && cp ~/.ssh/own.pub ~/.ssh/authorized_keys && ssh -o BatchMode=yes -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -i ~/.ssh/own agent@127.0.0.1 true",
		"dbus-send --system --print-reply --dest=org.freedesktop.systemd1 /org/freedesktop/systemd1 org.freedesktop.systemd1.Manager.StartUnit string:rescue.service string:replace",
		"systemd-run true", "systemd-run --user true", "loginctl enable-linger",
		"mknod /tmp/sda b 8 0", "mknod /tmp/kmsg c 1 11 && echo x > /tmp/kmsg", "dd if=/dev/zero of=/dev/sdb count=1", "echo b > /proc/sysrq-trigger",
		"sysctl -w kernel.hostname=x", "hostname x", "date -s 2020-01-01", "ip link add d type dummy", "ip addr add 10.1.1.1/32 dev lo",
		"cp /bin/bash /tmp/sh && chmod 4755 /tmp/sh && chown root /tmp/sh", "fsfreeze -f /workspace", "swapon /tmp/file", "losetup -f /tmp/file", "modprobe dummy",
		"echo 0 > /sys/fs/cgroup/cgroup.procs", "mkdir /sys/fs/cgroup/x", "ln /etc/hostname /workspace/hostname && echo x > /workspace/hostname",
		"echo core > /proc/sys/kernel/core_pattern", "kill -9 -1 2>/dev/null; sleep 0.2; kill -0 1",
	} {
		if out, code := r.as(t, policy.Agent, attack); code == 0 {
			t.Errorf("%q worked: %s", attack, out)
		}
	}
	// Links to what is elsewhere lead root's programs there, not the agent's.
	r.must(t, policy.Agent, "ln -s /etc /tmp/etc; ! touch /tmp/etc/x; rm /tmp/etc; rm -rf ~/.ssh")
	// Some of its attacks reached for a device node of its own; the volume has none.
	r.must(t, policy.Root, "! find /srv/savepoint -type b -o -type c | grep .")
	changed := r.must(t, policy.Root, `for m in / /run /dev; do find $m -xdev \( -path /run/savepoint -o -path /dev/pts -o -path /dev/shm -o -path /tmp -o -path /var/tmp -o -path /workspace -o -path /home/agent \) -prune -o -newercm /run/stamp \( -type f -o -type d \) -print; done`)
	if changed != "" {
		t.Errorf("changed meanwhile: %s", changed)
	}
}

// A volume without a free block or inode can still be marked: a rollback has to
// prove itself then too.
func fullVolume(t *testing.T, r *real) {
	ctx := within(t, 5*time.Minute)
	_, err := r.Mark(ctx, r.sb, "while there is room") // as a sandbox is before it is handed out
	ok(t, "mark", err)
	r.as(t, policy.Agent, "mkdir -p /workspace/many && cd /workspace/many && python3 -c 'for i in range(1 << 20): open(str(i), \"x\")'; dd if=/dev/zero of=/workspace/file bs=1M status=none")
	if got := r.must(t, policy.Root, "df --output=ipcent /workspace | tail -1"); got != "100%" {
		t.Errorf("inodes in use: %s", got)
	}
	for _, more := range []string{": > /workspace/another", "dd if=/dev/zero bs=1M count=1 status=none >> /workspace/file"} {
		if _, code := r.as(t, policy.Agent, more); code == 0 {
			t.Errorf("%q: the volume is not full", more)
		}
	}
	facts, err := r.Mark(ctx, r.sb, "on a full volume")
	if err != nil || facts.Generation != "on a full volume" {
		t.Errorf("got %+v, %v", facts, err)
	}
	r.must(t, policy.Agent, "rm -rf /workspace/file /workspace/many; echo text > /workspace/file")
}

// bootMounts: a machine that lost its power has its volume at the next boot,
// with what was synced, and without its shared memory.
func bootMounts(t *testing.T, r *real) {
	ctx := within(t, 5*time.Minute)
	_, err := r.Mark(ctx, r.sb, "before the boot")
	ok(t, "mark", err)
	r.must(t, policy.Agent, "echo kept > /workspace/kept; echo gone > /dev/shm/gone")
	before, err := r.Inspect(ctx, r.sb)
	ok(t, "inspect", err)
	ok(t, "stop", r.machines.Stop(ctx, 101, false))
	r.Disconnect(r.sb.ID)
	ok(t, "start", r.machines.Start(ctx, r.machine))
	after, err := r.Inspect(ctx, r.sb)
	if err != nil || after.Generation != "before the boot" || after.BootID == before.BootID {
		t.Fatalf("got %+v, %v", after, err)
	}
	if got := r.must(t, policy.Agent, "cat /workspace/kept; ls /dev/shm"); got != "kept" {
		t.Errorf("agent sees %q", got)
	}
}
