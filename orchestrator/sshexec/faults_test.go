package sshexec_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"errors"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"savepoint/orchestrator"
	"savepoint/orchestrator/sshexec"
	"savepoint/policy"
	"savepoint/testbed/sim"
)

// TestBoot: what waits for a guest does so until it answers; a command does
// not, and is known not to have started. F90
func TestBoot(t *testing.T) {
	w := newWorld(t, sim.Behaviour{BootDelay: 150 * time.Millisecond}, nil)
	m, sb := w.boot(t, 101)
	sb.HostKey = otherKey(t)
	_, err := w.Run(t.Context(), sb, permit("true", policy.Agent), orchestrator.ExecRequest{})
	wantClass(t, err, orchestrator.ErrUnavailable)
	// The key a guest shows in the end is the one that counts.
	_, err = w.Inspect(within(t, 20*time.Second), sb)
	wantClass(t, err, orchestrator.ErrDenied)
	if sb.HostKey, err = w.HostKey(t.Context(), 101); err != nil {
		t.Fatal(err)
	}
	if err := w.Machines().Stop(t.Context(), 101, false); err != nil {
		t.Fatal(err)
	}
	if err := w.Machines().Start(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	facts, err := w.Mark(within(t, 20*time.Second), sb, "first")
	if err != nil || facts.Generation != "first" {
		t.Fatalf("mark a booting guest: %+v, %v", facts, err)
	}
}

func TestNeverBoots(t *testing.T) {
	w := newWorld(t, sim.Behaviour{NeverBoots: true}, nil)
	_, sb := w.boot(t, 101)
	sb.HostKey = otherKey(t)
	_, err := w.Inspect(within(t, 100*time.Millisecond), sb)
	wantClass(t, err, orchestrator.ErrUnavailable)
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, want the context's end in it", err)
	}
	// Disconnect and Close must not leave a waiting call behind. F98
	var wg sync.WaitGroup
	wg.Go(func() { _, err = w.Inspect(within(t, time.Minute), sb) })
	began := time.Now()
	eventually(t, "a dial", func() bool { return w.dials.Load() > 0 })
	w.Client.Close()
	wg.Wait()
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("Inspect ended %s after Close", took)
	}
	wantClass(t, err, orchestrator.ErrUnavailable)
}

// TestFrozen: a guest that stops answering in the middle of a command is
// noticed in bounded time, and the outcome is unknown. F98 F99
func TestFrozen(t *testing.T) {
	for name, c := range map[string]struct {
		edit    func(*sshexec.Config)
		timeout time.Duration
	}{
		"no sign of life":       {func(c *sshexec.Config) { c.KeepAlive, c.KeepAliveTimeout = 20*time.Millisecond, 100*time.Millisecond }, 0},
		"kill is not confirmed": {func(c *sshexec.Config) { c.KillTimeout = 100 * time.Millisecond }, 150 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, sim.Behaviour{}, c.edit)
			_, sb := w.sandbox(t, 101)
			w.run(t, sb, "true")
			var wg sync.WaitGroup
			var err error
			wg.Go(func() {
				_, err = w.Run(within(t, time.Minute), sb, permit("touch /tmp/began; sleep 1000", policy.Agent), orchestrator.ExecRequest{Timeout: c.timeout})
			})
			eventually(t, "the command's start", func() bool { _, err := w.ReadFile("/sim/101/disk", "/tmp/began"); return err == nil })
			if err := w.Backend.Freeze(101, true); err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			wg.Wait()
			wantClass(t, err, orchestrator.ErrUnknownOutcome)
			if took := time.Since(began); took > 10*time.Second {
				t.Errorf("noticed after %s", took)
			}
			if err := w.Backend.Freeze(101, false); err != nil {
				t.Fatal(err)
			}
			if got := w.run(t, sb, "printf again"); got != "again" {
				t.Errorf("after the thaw: got %q", got)
			}
		})
	}
}

// TestCut: a lost connection makes the outcome of a running command unknown;
// one that was idle is dialled anew without a word. F98
func TestCut(t *testing.T) {
	w := newWorld(t, sim.Behaviour{}, nil)
	_, sb := w.sandbox(t, 101)
	var wg sync.WaitGroup
	var err error
	wg.Go(func() {
		_, err = w.Run(within(t, time.Minute), sb, permit("touch /tmp/began; sleep 1000; touch /tmp/late", policy.Agent), orchestrator.ExecRequest{})
	})
	eventually(t, "the command's start", func() bool { _, err := w.ReadFile("/sim/101/disk", "/tmp/began"); return err == nil })
	if err := w.Cut(101); err != nil {
		t.Fatal(err)
	}
	wg.Wait()
	wantClass(t, err, orchestrator.ErrUnknownOutcome)
	if strings.Contains(err.Error(), "late") {
		t.Errorf("the error shows the command: %v", err)
	}
	for range 3 {
		w.run(t, sb, "true")
		if err := w.Cut(101); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the loss being noticed", func() bool {
			_, err := w.Run(t.Context(), sb, permit("true", policy.Agent), orchestrator.ExecRequest{})
			return err == nil
		})
	}
}

// TestHostKeyChanged: a guest that comes back with another key is not the
// sandbox, at the first look and without a second one.
func TestHostKeyChanged(t *testing.T) {
	w := newWorld(t, sim.Behaviour{}, nil)
	_, sb := w.sandbox(t, 101)
	w.run(t, sb, "true")
	if err := w.ChangeHostKey(101); err != nil {
		t.Fatal(err)
	}
	w.Disconnect(sb.ID)
	for range 2 {
		began := time.Now()
		_, err := w.Inspect(within(t, time.Minute), sb)
		var key *orchestrator.HostKeyError
		if !errors.As(err, &key) || !strings.HasPrefix(key.Want, "SHA256:") || !strings.HasPrefix(key.Got, "SHA256:") || key.Want == key.Got {
			t.Fatalf("got %v, want *HostKeyError", err)
		}
		wantClass(t, err, orchestrator.ErrDenied)
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("it was retried for %s", took)
		}
	}
	// A pin of another type: the server has nothing that is even offered.
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	public, err := ssh.NewPublicKey(private.Public())
	if err != nil {
		t.Fatal(err)
	}
	sb.HostKey = string(ssh.MarshalAuthorizedKey(public))
	_, err = w.Inspect(within(t, time.Minute), sb)
	var key *orchestrator.HostKeyError
	if !errors.As(err, &key) {
		t.Errorf("with a pin of another type: got %v, want *HostKeyError", err)
	}
}

// TestAuthentication: during a first boot sshd answers before the keys are
// there, so a refusal is waited out, and named when the wait ends.
func TestAuthentication(t *testing.T) {
	w := newWorld(t, sim.Behaviour{}, nil)
	_, sb := w.sandbox(t, 101)
	const file = "/root/.ssh/authorized_keys"
	keys, err := w.ReadFile("/sim/101/disk", file)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.WriteFile("/sim/101/disk", file, ""); err != nil {
		t.Fatal(err)
	}
	_, err = w.Run(t.Context(), sb, permit("true", policy.Agent), orchestrator.ExecRequest{})
	wantClass(t, err, orchestrator.ErrDenied)
	_, err = w.Inspect(within(t, 100*time.Millisecond), sb)
	wantClass(t, err, orchestrator.ErrDenied)
	if !strings.Contains(err.Error(), "authentication refused") {
		t.Errorf("got %q, want the cause named", err)
	}
	var wg sync.WaitGroup
	wg.Go(func() { _, err = w.Inspect(within(t, 20*time.Second), sb) })
	if err := w.WriteFile("/sim/101/disk", file, keys); err != nil {
		t.Fatal(err)
	}
	wg.Wait()
	if err != nil {
		t.Errorf("after the keys were installed: %v", err)
	}
}

func TestJumpHost(t *testing.T) {
	w := newWorld(t, sim.Behaviour{}, nil)
	_, sb := w.sandbox(t, 101)
	w.run(t, sb, "true")
	w.run(t, sb, "true")
	if got := w.dials.Load(); got != 1 {
		t.Errorf("two commands dialled %d times", got)
	}
	_, other := w.sandbox(t, 102)
	w.run(t, other, "true")
	if got := w.dials.Load(); got != 1 {
		t.Errorf("a second sandbox dialled the jump host again: %d", got)
	}
	unknown := sb
	unknown.ID, unknown.Address = "sb-x", sb.Address.Next().Next()
	_, err := w.Run(t.Context(), unknown, permit("true", policy.Agent), orchestrator.ExecRequest{})
	wantClass(t, err, orchestrator.ErrUnavailable)
	w.run(t, sb, "true") // a refused forward is no reason to drop the jump host

	at := w.jump.Addr()
	if err := w.jump.Close(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the jump host's loss", func() bool {
		_, err := w.Run(t.Context(), sb, permit("true", policy.Agent), orchestrator.ExecRequest{})
		return errors.Is(err, orchestrator.ErrUnavailable)
	})
	w.startJump(t, at)
	w.run(t, sb, "true")

	t.Run("another host key", func(t *testing.T) {
		cfg := w.cfg
		j := *cfg.Jump
		j.HostKey = otherKey(t)
		cfg.Jump = &j
		_, err := client(t, cfg).Inspect(within(t, time.Minute), sb)
		var key *orchestrator.HostKeyError
		if !errors.As(err, &key) || key.Host != j.Address {
			t.Errorf("got %v, want *HostKeyError of %s", err, j.Address)
		}
	})
	t.Run("identity is not authorised", func(t *testing.T) {
		cfg := w.cfg
		j := *cfg.Jump
		j.Identity = identity(t)
		cfg.Jump = &j
		_, err := client(t, cfg).Inspect(within(t, time.Minute), sb)
		wantClass(t, err, orchestrator.ErrDenied)
		if !strings.Contains(err.Error(), "jump host") {
			t.Errorf("got %q, want the jump host named", err)
		}
	})
	t.Run("nobody listens", func(t *testing.T) {
		cfg := w.cfg
		cfg.Dial = func(context.Context, string, string) (net.Conn, error) { return nil, errors.New("connection refused") }
		_, err := client(t, cfg).Run(t.Context(), sb, permit("true", policy.Agent), orchestrator.ExecRequest{})
		wantClass(t, err, orchestrator.ErrUnavailable)
	})
}

// TestSilentServer: something accepts the connection and says nothing.
func TestSilentServer(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	w := newWorld(t, sim.Behaviour{}, func(c *sshexec.Config) {
		c.Jump, c.DialTimeout = nil, 50*time.Millisecond
		c.Dial = func(ctx context.Context, network, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, network, l.Addr().String())
		}
	})
	_, sb := w.sandbox(t, 101)
	_, err = w.Run(t.Context(), sb, permit("true", policy.Agent), orchestrator.ExecRequest{})
	wantClass(t, err, orchestrator.ErrUnavailable)
}

// TestDisconnect: it unblocks whoever waits for a turn, a dial or an answer.
func TestDisconnect(t *testing.T) {
	w := newWorld(t, sim.Behaviour{}, func(c *sshexec.Config) { c.MaxSessions = 1 })
	_, sb := w.sandbox(t, 101)
	w.run(t, sb, "true")
	var wg sync.WaitGroup
	errs := make([]error, 2)
	for i := range errs {
		wg.Go(func() {
			_, errs[i] = w.Run(within(t, time.Minute), sb, permit("echo x >> /tmp/began; sleep 1000", policy.Agent), orchestrator.ExecRequest{})
		})
	}
	eventually(t, "a command's start", func() bool { _, err := w.ReadFile("/sim/101/disk", "/tmp/began"); return err == nil })
	w.Disconnect(sb.ID)
	wg.Wait()
	unknown, unavailable := 0, 0
	for _, err := range errs {
		switch {
		case errors.Is(err, orchestrator.ErrUnknownOutcome):
			unknown++
		case errors.Is(err, orchestrator.ErrUnavailable):
			unavailable++
		}
	}
	if unknown != 1 || unavailable != 1 {
		t.Errorf("got %v; want the one that ran unknown and the one that waited unavailable", errs)
	}
	if got := w.run(t, sb, "cat /tmp/began"); got != "x\n" {
		t.Errorf("the command that waited ran: %q", got)
	}
}

// TestTurns: more commands than sessions take turns.
func TestTurns(t *testing.T) {
	w := newWorld(t, sim.Behaviour{}, func(c *sshexec.Config) { c.MaxSessions = 2 })
	_, sb := w.sandbox(t, 101)
	var wg sync.WaitGroup
	for range 12 {
		wg.Go(func() { w.run(t, sb, "echo x >> /tmp/count") })
	}
	wg.Wait()
	if got := w.run(t, sb, "wc -l < /tmp/count"); got != "12\n" {
		t.Errorf("got %q", got)
	}
}
