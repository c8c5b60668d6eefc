package sshexec_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"go.uber.org/goleak"

	"savepoint/orchestrator"
	"savepoint/orchestrator/sshexec"
	"savepoint/policy"
	"savepoint/testbed/conformance"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// permit forges a permit: these tests are about running, not about judging,
// and some of their commands no policy would let through.
func permit(command string, user policy.User) policy.Permit {
	var p policy.Permit
	v := reflect.ValueOf(&p).Elem()
	for name, value := range map[string]any{"valid": true, "command": command, "user": user} {
		f := v.FieldByName(name)
		reflect.NewAt(f.Type(), unsafe.Pointer(f.UnsafeAddr())).Elem().Set(reflect.ValueOf(value))
	}
	return p
}

func lab(t testing.TB) {
	if os.Getenv("SAVEPOINT_LAB") != "1" {
		t.Skip("runs OpenSSH and perl as root in namespaces; set SAVEPOINT_LAB=1")
	}
}

// opensshd starts Debian's sshd on loopback. Its mounts are its own: what a
// command or Prepare changes in /etc, /home, /var and /workspace is gone with
// it, and so is its control group; an empty /workspace stays on this host. first is shell text that runs before sshd.
func opensshd(t testing.TB, id sshexec.Identity, first string) (netip.AddrPort, string) {
	lab(t)
	for _, tool := range []string{"ssh-keygen", "unshare", "perl"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("%v: install openssh-client, util-linux and perl", err)
		}
	}
	dir := t.TempDir()
	sshd := "/usr/sbin/sshd"
	if _, err := os.Stat(sshd); err != nil {
		// The one that testbed/setup/openssh.sh unpacks. It goes with the
		// configuration to where the server's mounts do not hide it.
		if err := os.CopyFS(dir, os.DirFS("../../bin/openssh")); err != nil {
			t.Skipf("no OpenSSH server: %v: run make setup-test, or install openssh-server", err)
		}
		sshd = "env LD_LIBRARY_PATH=/mnt/conf /mnt/conf/sshd"
	}
	run := func(name string, args ...string) {
		t.Helper()
		if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v: %s", name, err, out)
		}
	}
	key := filepath.Join(dir, "host_key")
	run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key)
	hostKey, err := os.ReadFile(key + ".pub")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "keys"), []byte(id.AuthorizedKey()+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().(*net.TCPAddr).AddrPort()
	l.Close()
	text := fmt.Sprintf("ListenAddress %s\nHostKey /mnt/conf/host_key\nAuthorizedKeysFile /mnt/conf/keys\nPermitRootLogin prohibit-password\nStrictModes no\nUsePAM no\nPidFile none\nMaxStartups 100\n", addr)
	for program, option := range map[string]string{"sshd-session": "SshdSessionPath", "sshd-auth": "SshdAuthPath"} {
		if _, err := os.Stat(filepath.Join(dir, program)); err == nil {
			text += option + " /mnt/conf/" + program + "\n"
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "sshd_config"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	// What is mounted by FUSE is let go of: a pool of another test would be busy
	// for as long as this copy of the mounts.
	script := `set -e
grep -- ' - fuse' /proc/self/mountinfo | cut -d ' ' -f 5 | while read -r at; do
	[ "$at" = / ] || umount -l "$at" || :
done
mkdir -p /run/sshd
mount -t tmpfs tmpfs /mnt
for d in etc home var; do
	mkdir -p /mnt/$d/up /mnt/$d/work
	mount -t overlay overlay -o lowerdir=/$d,upperdir=/mnt/$d/up,workdir=/mnt/$d/work /$d
done
grep -q '^sshd:' /etc/passwd || echo 'sshd:x:65533:65534::/run/sshd:/usr/sbin/nologin' >> /etc/passwd
mkdir /mnt/conf
cp -a "$1"/. /mnt/conf
mount -t tmpfs tmpfs /root -o mode=0700
mount -t tmpfs tmpfs /tmp -o mode=1777
mkdir -p /workspace
mount -t tmpfs tmpfs /workspace -o mode=0755
mount -t tmpfs tmpfs /sys/fs/cgroup
mount -t cgroup2 cgroup2 /sys/fs/cgroup
` + first + `
exec ` + sshd + ` -D -e -f /mnt/conf/sshd_config`
	cmd := exec.Command("sh", "-c", `echo 0 > "$1/cgroup.procs" && shift && exec unshare --cgroup --ipc --mount --pid --fork --kill-child --mount-proc sh -c "$@"`,
		"sh", cgroup(t), script, "sh", dir)
	var log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &log, &log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
		if t.Failed() {
			t.Logf("sshd: %s", log.String())
		}
	})
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		conn, err := net.Dial("tcp", addr.String())
		if err == nil {
			conn.Close()
			return addr, strings.TrimSpace(string(hostKey))
		}
		if time.Now().After(deadline) {
			t.Fatalf("sshd does not listen: %v: %s", err, log.String())
		}
	}
}

// cgroup makes the control group that is the guest's root, and removes it
// with everything the guest made in it.
func cgroup(t testing.TB) string {
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(mounts)) {
		f := strings.Fields(line)
		if len(f) < 3 || f[2] != "cgroup2" {
			continue
		}
		dir, err := os.MkdirTemp(f[1], "sshexec-test-")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			var dirs []string
			filepath.WalkDir(dir, func(p string, d os.DirEntry, err error) error {
				if err == nil && d.IsDir() {
					dirs = append(dirs, p)
				}
				return nil
			})
			os.WriteFile(filepath.Join(dir, "cgroup.kill"), []byte("1"), 0o200)
			for _, d := range slices.Backward(dirs) {
				err := os.Remove(d) // what dies meanwhile may take its own away
				for deadline := time.Now().Add(10 * time.Second); err != nil && !errors.Is(err, os.ErrNotExist) && time.Now().Before(deadline); err = os.Remove(d) {
					time.Sleep(5 * time.Millisecond)
				}
				if err != nil && !errors.Is(err, os.ErrNotExist) {
					t.Errorf("a process of the guest is left: %v", err)
				}
			}
		})
		return dir
	}
	t.Skip("no cgroup v2 on this host")
	return ""
}

func identity(t testing.TB) sshexec.Identity {
	t.Helper()
	id, err := sshexec.CreateIdentity(filepath.Join(t.TempDir(), "id"), "test")
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func client(t testing.TB, cfg sshexec.Config) *sshexec.Client {
	t.Helper()
	c, err := sshexec.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func realGuest(t testing.TB) (*sshexec.Client, orchestrator.Sandbox) {
	id := identity(t)
	addr, key := opensshd(t, id, "")
	c := client(t, sshexec.Config{Identities: []sshexec.Identity{id}, Port: int(addr.Port())})
	sb := orchestrator.Sandbox{ID: "01jx", Name: "real", Address: addr.Addr(), HostKey: key}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for range 2 { // the second time changes nothing
		if err := c.Prepare(ctx, sb, []string{id.AuthorizedKey()}); err != nil {
			t.Fatal(err)
		}
	}
	return c, sb
}

// TestOpenSSH shows the conformance of the client with Debian's own sshd,
// perl, bash and the kernel's control groups, and with the two ways of holding
// processes that older kernels need.
func TestOpenSSH(t *testing.T) {
	for hold, change := range map[string][2]string{
		"cgroup": {},
		"freeze": {"$probe/cgroup.kill", "$probe/cgroup.no-kill"},
		"tree":   {"$type eq 'cgroup2' &&", "0 &&"},
	} {
		t.Run(hold, func(t *testing.T) {
			lab(t)
			if change[0] != "" {
				sshexec.ChangeHelper(t, change[0], change[1])
			}
			conformance.Executor(t, func(t *testing.T) conformance.ExecutorUnderTest {
				c, sb := realGuest(t)
				if got, err := c.Hold(t.Context(), sb); err != nil || got != hold {
					t.Fatalf("commands are held together by %q, %v, want %s", got, err, hold)
				}
				return conformance.ExecutorUnderTest{Executor: c, Guest: c, Sandbox: sb, Permit: permit,
					Other: netip.MustParseAddr("127.77.77.77"), OtherKey: identity(t).AuthorizedKey()}
			}, conformance.ExecutorCaps{Signals: true, Parallel: 8, Slack: 100 * time.Millisecond})
		})
	}
}
