package sshexec_test

import (
	"slices"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"savepoint/orchestrator"
	"savepoint/orchestrator/sshexec"
	"savepoint/policy"
)

// readers are commands that only read, as the policy proves.
var readers = []string{"true", "ls /etc", "cat /etc/passwd | wc -l"}

// readerPermit is the policy's own permit: one that needs a boundary syncs the guest too.
func readerPermit(t testing.TB, command string) policy.Permit {
	t.Helper()
	judge, err := policy.New(policy.Options{})
	if err != nil {
		t.Fatal(err)
	}
	p, ok := judge.Decide(policy.Request{Command: command}).Permit()
	if !ok || p.NeedsBoundary() || p.Command() != command {
		t.Fatalf("%q is not a reader", command)
	}
	return p
}

// bareExec is the exec of plain SSH on the client's own connection.
func bareExec(t testing.TB, conn *ssh.Client, command string) string {
	t.Helper()
	s, err := conn.NewSession()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	out, err := s.Output(command)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// A command that reads says the same as it does over bare SSH, and gets nothing
// that needs a boundary.
func TestOpenSSHReads(t *testing.T) {
	lab(t)
	c, sb := realGuest(t)
	conn, err := c.Transport(t.Context(), sb)
	if err != nil {
		t.Fatal(err)
	}
	for _, command := range readers {
		res, err := c.Run(within(t, time.Minute), sb, readerPermit(t, command), orchestrator.ExecRequest{})
		if want := bareExec(t, conn, command); err != nil || res.ExitCode != 0 || string(res.Stdout) != want {
			t.Errorf("%q: exit %d, %v, %q, want %q", command, res.ExitCode, err, res.Stdout, want)
		}
	}
	if _, err := c.Run(t.Context(), sb, policy.Permit{}, orchestrator.ExecRequest{}); err == nil {
		t.Error("a command without a permit was run")
	}
}

// BenchmarkReadOnly compares commands that read with the bare SSH exec of the same
// text on the same connection, in turns. "ours/bare" is the ratio of the tenth
// percentiles, since other work on the machine only ever adds; the figure to reach
// is 1.05. In an emulated guest the start of a process is what takes time. Both
// need SAVEPOINT_LAB=1.
func BenchmarkReadOnly(b *testing.B) {
	b.Run("openssh", func(b *testing.B) {
		c, sb := realGuest(b)
		readOnly(b, c, sb)
	})
	b.Run("qemu", func(b *testing.B) {
		r := newReal(b)
		readOnly(b, r.Client, r.sb)
	})
}

func readOnly(b *testing.B, c *sshexec.Client, sb orchestrator.Sandbox) {
	conn, err := c.Transport(b.Context(), sb)
	if err != nil {
		b.Fatal(err)
	}
	for _, command := range readers {
		b.Run(command, func(b *testing.B) {
			p := readerPermit(b, command)
			var ours, bare []time.Duration
			for b.Loop() {
				began := time.Now()
				bareExec(b, conn, command)
				bare = append(bare, time.Since(began))
				began = time.Now()
				if res, err := c.Run(b.Context(), sb, p, orchestrator.ExecRequest{}); err != nil || res.ExitCode != 0 {
					b.Fatal(res, err)
				}
				ours = append(ours, time.Since(began))
			}
			b.ReportMetric(tenth(ours).Seconds()/tenth(bare).Seconds(), "ours/bare")
		})
	}
}

func tenth(took []time.Duration) time.Duration {
	slices.Sort(took)
	return took[len(took)/10]
}

// BenchmarkCapture says what the report of a session adds to a command, as the ratio
// of the tenth percentiles. A bare exec before each gives the helper its time to fork
// ahead. It needs SAVEPOINT_LAB=1.
func BenchmarkCapture(b *testing.B) {
	c, sb := realGuest(b)
	conn, err := c.Transport(b.Context(), sb)
	if err != nil {
		b.Fatal(err)
	}
	var with, without []time.Duration
	for b.Loop() {
		for _, capture := range []bool{false, true} {
			bareExec(b, conn, "true")
			began := time.Now()
			res, err := c.Run(b.Context(), sb, permit("ls /etc", policy.Agent), orchestrator.ExecRequest{Capture: capture})
			took := time.Since(began)
			if err != nil || (res.Session != nil) != capture {
				b.Fatalf("got %+v, %v", res, err)
			}
			if capture {
				with = append(with, took)
			} else {
				without = append(without, took)
			}
		}
	}
	b.ReportMetric(tenth(with).Seconds()/tenth(without).Seconds(), "with/without")
}
