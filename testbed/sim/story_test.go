package sim_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"savepoint/orchestrator"
	"savepoint/policy"
	"savepoint/testbed/sim"
)

func (w *hosted) as(t testing.TB, sb orchestrator.Sandbox, user policy.User, command, stdin string) (string, int) {
	t.Helper()
	res, err := w.client.Run(t.Context(), sb, permit(command, user), orchestrator.ExecRequest{Stdin: strings.NewReader(stdin), Timeout: 20 * time.Second})
	if err != nil || res.TimedOut {
		t.Fatalf("%q: timed out %t, %v", command, res.TimedOut, err)
	}
	return string(res.Stdout) + string(res.Stderr), res.ExitCode
}

// TestPrograms checks what stories rely on, against what a Debian guest prints.
func TestPrograms(t *testing.T) {
	w := newWorld(t, sim.Behaviour{}, nil)
	_, sb := w.sandbox(t, 101)
	const hello = "5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03"
	for _, c := range []struct{ command, stdin, want string }{
		{"mkdir -p a/b && echo hello > a/b/f && cat a/b/f", "", "hello\n"},
		{"find a -type f -exec sha256sum {} + | sort", "", hello + "  a/b/f\n"},
		{"find . -name f", "", "./a/b/f\n"},
		{"find a -type d | sort", "", "a\na/b\n"},
		{"sha256sum < a/b/f", "", hello + "  -\n"},
		{"sha256sum a/b/f | cut -c1-4 || echo no cut", "", "bash: "},
		{"cp -r a c && ls c && ls -1 c/b", "", "b\nf\n"},
		{"mv c/b/f c/g && find c | sort", "", "c\nc/b\nc/g\n"},
		{"rm c/g && rmdir c/b && ls -A c", "", ""},
		{"rm -rf c a && ls", "", ""},
		{"seq 3", "", "1\n2\n3\n"},
		{"seq 100 | head -n 2; seq 5 | tail -n 1; seq 10 | wc -l", "", "1\n2\n5\n10\n"},
		{"yes | head -n 3", "", "y\ny\ny\n"},
		{"head -c 4", "binary", "bina"},
		{"sort -rn; echo $?", "2\n10\n1\n", "10\n2\n1\n0\n"},
		{"sort -u | uniq -c", "b\na\nb\n", "      1 a\n      1 b\n"},
		{"grep -c o; grep -q x /etc/hostname || echo absent", "one\ntwo\nsix\n", "2\nabsent\n"},
		{`printf '%s-%d-%x\n' a 7 255 b 8 16`, "", "a-7-ff\nb-8-10\n"},
		{`printf 'a\tb%%\x41\101\n'`, "", "a\tb%AA\n"},
		{"tee t1 t2 > /dev/null; cat t1 t2; rm t1 t2", "x", "xx"},
		{"echo aGk= | base64 -d", "", "hi"},
		{"touch e && stat -c '%s %a %U' e && rm e", "", "0 644 agent\n"},
		{"ln -s /etc/hostname link && cat link && readlink link && rm link && cat /etc/hostname", "", "sim-101\n/etc/hostname\nsim-101\n"},
		{"basename /a/b.go .go; dirname /a/b", "", "b\n/a\n"},
		{"hostname; whoami; id -u", "", "sim-101\nagent\n1000\n"},
		{"env -i A=1 env; env B=2 printenv B; env | grep ^USER", "", "A=1\n2\nUSER=agent\n"},
		{"timeout 0.05 sleep 10; echo $?", "", "124\n"},
		{"printf 'a b' | xargs -n 1 echo got", "", "got a\ngot b\n"},
		{"printf 'echo script $1\n' > s && chmod +x s && ./s arg && sh s two && rm s", "", "script arg\nscript two\n"},
		{"sh -c 'exit 4'; echo $?; sh -e -c 'false; echo no'; echo $?", "", "4\n1\n"},
		{"dd if=/dev/zero of=z bs=1K count=4 && wc -c < z && rm z", "", "4096\n"},
		{"x=$(cat); echo \"[$x]\"", "in", "[in]\n"},
		{"for i in 1 2; do echo $i; done > out; cat out; rm out", "", "1\n2\n"},
		{"test -f /etc/passwd && test -d /tmp && test ! -e /nope && [ -w . ] && echo ok", "", "ok\n"},
		{"cd /tmp && pwd && cd - > /dev/null && pwd", "", "/tmp\n/home/agent\n"},
		{"echo one > o; echo two >> o; cat < o; rm o", "", "one\ntwo\n"},
		{"cat <<END\n$HOME\nEND", "", "/home/agent\n"},
		{"f() { echo in f $1; }; f x; set -- p q; echo $# $2", "", "in f x\n2 q\n"},
		{"date -u +%Y | wc -c; du -s /etc/hostname; df -P / | wc -l", "", "5\n1\t/etc/hostname\n2\n"},
		{"echo a > x; truncate -s 3 x; wc -c < x; rm x", "", "3\n"},
	} {
		got, _ := w.as(t, sb, policy.Agent, c.command, c.stdin)
		if strings.HasPrefix(c.want, "bash: ") {
			continue
		}
		if got != c.want {
			t.Errorf("%q: got %q, want %q", c.command, got, c.want)
		}
	}
}

// TestPermissions: the agent's reach is what a guest's permissions make it,
// and root's is everything. F06
func TestPermissions(t *testing.T) {
	w := newWorld(t, sim.Behaviour{}, nil)
	_, sb := w.sandbox(t, 101)
	w.as(t, sb, policy.Root, "echo secret > /root/s; echo r > /tmp/of-root; mkdir /opt/d; echo k > /opt/d/keep", "")
	for _, command := range []string{
		"echo x > /etc/x", "echo x >> /etc/passwd", "rm /etc/hostname", "rm -rf /etc", "cat /etc/shadow", "cat /root/s", "ls /root", "mkdir /srv/x",
		"mv /etc/hostname /tmp/", "chmod 777 /etc", "chown agent /tmp/of-root", "rm /tmp/of-root", "touch /opt/d/new", "cp /etc/shadow /tmp", "ln -s x /etc/l",
		"echo x > /var/lib/savepoint/generation", "date -s @0", "cat /etc/ssh/ssh_host_ed25519_key", "ln -sfn /etc /workspace/e; echo x > /workspace/e/y", "dd if=/dev/zero of=/etc/z count=1",
		"find /opt -name keep -delete", "truncate -s 0 /etc/passwd", "no-such-program", "sudo true", "cat < <(echo x)",
	} {
		if out, code := w.as(t, sb, policy.Agent, command, ""); code == 0 {
			t.Errorf("the agent could %q: %s", command, out)
		}
	}
	for _, command := range []string{"echo x > /workspace/x", "echo x > ~/x", "echo x > /tmp/x", "echo x > /var/tmp/x", "cat /etc/passwd", "rm /workspace/x ~/x /tmp/x"} {
		if out, code := w.as(t, sb, policy.Agent, command, ""); code != 0 {
			t.Errorf("the agent could not %q: %s", command, out)
		}
	}
	if out, code := w.as(t, sb, policy.Root, "cat /etc/shadow /root/s /opt/d/keep > /dev/null && rm -rf /opt/d && chown agent /srv", ""); code != 0 {
		t.Errorf("root: %s", out)
	}
}

// TestDamage: what an agent's mistake destroys is really gone, and back after
// a revert, with nothing added. F01 F02 F08 F20
func TestDamage(t *testing.T) {
	w := newWorld(t, sim.Behaviour{}, nil)
	m, sb := w.sandbox(t, 101)
	const fingerprint = "find / -type f -exec sha256sum {} + | sort | sha256sum; find / | sort | sha256sum"
	w.as(t, sb, policy.Agent, "mkdir -p /workspace/src; for i in $(seq 20); do echo $i > /workspace/src/$i; done", "")
	before, _ := w.as(t, sb, policy.Root, fingerprint, "")
	if err := w.Machines().Snapshot(t.Context(), 101, "sp1", ""); err != nil {
		t.Fatal(err)
	}
	w.as(t, sb, policy.Root, "rm -rf --no-preserve-root /", "")
	_, err := w.client.Run(t.Context(), sb, permit("ls /etc", policy.Root), orchestrator.ExecRequest{})
	if !errors.Is(err, orchestrator.ErrUnavailable) || !strings.Contains(err.Error(), "exec") {
		t.Errorf("after rm -rf /: got %v, want no shell to be left", err)
	}
	w.client.Disconnect(sb.ID)
	if err := w.Machines().Stop(t.Context(), 101, false); err != nil {
		t.Fatal(err)
	}
	if err := w.Disks().Revert(t.Context(), m.Disks[0], "sp1"); err != nil {
		t.Fatal(err)
	}
	if err := w.Machines().Start(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	if _, err := w.client.Inspect(t.Context(), sb); err != nil {
		t.Fatal(err)
	}
	if after, _ := w.as(t, sb, policy.Root, fingerprint, ""); after != before {
		t.Errorf("the restored tree differs:\n%s%s", before, after)
	}
}
