package jump_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"savepoint/testbed/jump"
)

// node is a server with two accounts that have a command each, beside who may
// forward.
func node(t *testing.T, forward, upper, stuck ssh.Signer, ended chan<- error) *jump.Server {
	t.Helper()
	at := guest(t)
	s, err := jump.Listen(jump.Config{
		Dir: t.TempDir(), Authorized: []string{line(forward)},
		Resolve: func(netip.Addr, uint16) (netip.AddrPort, bool) { return at, true },
		Commands: map[string]jump.Command{
			"upper": {Authorized: []string{line(upper)}, Run: func(_ context.Context, in io.Reader, out, diag io.Writer) int {
				text, err := io.ReadAll(in)
				fmt.Fprintf(diag, "%d bytes, %v", len(text), err)
				_, _ = out.Write(bytes.ToUpper(text))
				return 7
			}},
			"stuck": {Authorized: []string{line(stuck)}, Run: func(ctx context.Context, in io.Reader, _, _ io.Writer) int {
				_, err := io.ReadAll(in)
				<-ctx.Done()
				ended <- errors.Join(err, context.Cause(ctx))
				return 0
			}},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func login(t *testing.T, s *jump.Server, user string, key ssh.Signer) (*ssh.Client, error) {
	t.Helper()
	pin, _, _, _, err := ssh.ParseAuthorizedKey([]byte(s.HostKey()))
	if err != nil {
		t.Fatal(err)
	}
	c, err := ssh.Dial("tcp", s.Addr().String(), &ssh.ClientConfig{User: user, Auth: []ssh.AuthMethod{ssh.PublicKeys(key)}, HostKeyCallback: ssh.FixedHostKey(pin)})
	if err == nil {
		t.Cleanup(func() { c.Close() })
	}
	return c, err
}

// TestForcedCommand: whatever is asked for, the account's command runs, again
// and again over one connection.
func TestForcedCommand(t *testing.T) {
	forward, upper, stuck := signer(t), signer(t), signer(t)
	s := node(t, forward, upper, stuck, nil)
	c, err := login(t, s, "upper", upper)
	if err != nil {
		t.Fatal(err)
	}
	long := strings.Repeat("binary\x00\xff ", 50_000)
	for _, asked := range []string{"savepoint-zfs", "rm -rf /", "", "sh"} {
		session, err := c.NewSession()
		if err != nil {
			t.Fatal(err)
		}
		var out, diag bytes.Buffer
		session.Stdin, session.Stdout, session.Stderr = strings.NewReader(long), &out, &diag
		if asked == "sh" {
			err = errors.Join(session.Shell(), session.Wait())
		} else {
			err = session.Run(asked)
		}
		var exit *ssh.ExitError
		if !errors.As(err, &exit) || exit.ExitStatus() != 7 {
			t.Errorf("%q: %v; want exit code 7", asked, err)
		}
		if out.String() != strings.ToUpper(long) || diag.String() != fmt.Sprintf("%d bytes, <nil>", len(long)) {
			t.Errorf("%q: %d bytes of output, stderr %q", asked, out.Len(), diag.String())
		}
	}
}

// TestForcedCommandAlone: the account has nothing else, and its key opens no
// other account.
func TestForcedCommandAlone(t *testing.T) {
	forward, upper, stuck := signer(t), signer(t), signer(t)
	s := node(t, forward, upper, stuck, nil)
	for user, keys := range map[string][]ssh.Signer{"upper": {forward, stuck, signer(t)}, "stuck": {forward, upper}, "jump": {upper, stuck}, "": {upper}} {
		for i, key := range keys {
			if _, err := login(t, s, user, key); err == nil {
				t.Errorf("user %q got in with key %d, which is another account's", user, i)
			}
		}
	}
	c, err := login(t, s, "upper", upper)
	if err != nil {
		t.Fatal(err)
	}
	if conn, err := c.Dial("tcp", "10.9.0.2:22"); err == nil {
		conn.Close()
		t.Error("it forwards")
	}
	refusesForwards(t, c)
	session, err := c.NewSession()
	if err != nil {
		t.Fatal(err)
	}
	for what, err := range map[string]error{
		"a terminal":    session.RequestPty("xterm", 20, 80, nil),
		"a variable":    session.Setenv("LD_PRELOAD", "/tmp/x.so"),
		"a subsystem":   session.RequestSubsystem("sftp"),
		"another agent": requestAgent(session),
	} {
		if err == nil {
			t.Errorf("%s was granted", what)
		}
	}
	if err := session.Start("one"); err != nil {
		t.Fatal(err)
	}
	if ok, err := session.SendRequest("exec", true, ssh.Marshal(struct{ C string }{"two"})); ok || err != nil {
		t.Errorf("a second command in one session: %t, %v", ok, err)
	}
	// Who may forward gets no session on a server that has commands either.
	other, err := login(t, s, "jump", forward)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := other.NewSession(); err == nil {
		t.Error("a session was opened for a user without a command")
	}
}

func requestAgent(s *ssh.Session) error {
	ok, err := s.SendRequest("auth-agent-req@openssh.com", true, nil)
	if err == nil && !ok {
		err = errors.New("refused")
	}
	return err
}

// TestForcedCommandEnds: a command is told when its client is gone, and when the
// server ends. F98
func TestForcedCommandEnds(t *testing.T) {
	forward, upper, stuck := signer(t), signer(t), signer(t)
	ended := make(chan error, 2)
	s := node(t, forward, upper, stuck, ended)
	for what, end := range map[string]func(*ssh.Client, *ssh.Session){
		"the session is closed": func(_ *ssh.Client, session *ssh.Session) { session.Close() },
		"the client is gone":    func(c *ssh.Client, _ *ssh.Session) { c.Close() },
		"the server ends": func(*ssh.Client, *ssh.Session) {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		},
	} {
		if what == "the server ends" {
			defer func() { endsCommand(t, s, stuck, ended, what, end) }()
			continue
		}
		endsCommand(t, s, stuck, ended, what, end)
	}
}

func endsCommand(t *testing.T, s *jump.Server, key ssh.Signer, ended <-chan error, what string, end func(*ssh.Client, *ssh.Session)) {
	t.Helper()
	c, err := login(t, s, "stuck", key)
	if err != nil {
		t.Fatal(err)
	}
	session, err := c.NewSession()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := session.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := session.Start("anything"); err != nil {
		t.Fatal(err)
	}
	end(c, session)
	select {
	case err := <-ended:
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", what, err)
		}
	case <-time.After(20 * time.Second):
		t.Errorf("%s: the command was not told", what)
	}
}

func TestCommandRefused(t *testing.T) {
	run := func(context.Context, io.Reader, io.Writer, io.Writer) int { return 0 }
	for name, commands := range map[string]map[string]jump.Command{
		"nothing to run":    {"u": {Authorized: []string{line(signer(t))}}},
		"no name":           {"": {Run: run}},
		"key that is none":  {"u": {Run: run, Authorized: []string{"nonsense"}}},
		"nothing to do":     {},
		"forward, no guest": nil,
	} {
		cfg := jump.Config{Dir: t.TempDir(), Commands: commands}
		if name == "forward, no guest" {
			cfg.Authorized = []string{line(signer(t))}
		}
		if s, err := jump.Listen(cfg); err == nil {
			s.Close()
			t.Errorf("%s: was accepted", name)
		}
	}
}

// TestDial: a guest in a network of its own is reached by Dial; what is no guest
// there is asked of Resolve, and a guest that does not answer is not.
func TestDial(t *testing.T) {
	at, other, key := guest(t), guest(t), signer(t)
	down := errors.New("no route")
	s, err := jump.Listen(jump.Config{
		Dir: t.TempDir(), Authorized: []string{line(key)},
		Resolve: func(a netip.Addr, _ uint16) (netip.AddrPort, bool) { return other, a != guestAddress },
		Dial: func(ctx context.Context, a netip.Addr, port uint16) (net.Conn, error) {
			switch {
			case a == guestAddress && port == 22:
				return (&net.Dialer{}).DialContext(ctx, "tcp", at.String())
			case a == netip.MustParseAddr("10.9.0.4"):
				return nil, down
			case a == netip.MustParseAddr("10.9.0.5"):
				one, two := net.Pipe() // has no end of its own for each direction
				t.Cleanup(func() { two.Close() })
				return one, nil
			}
			return nil, fmt.Errorf("%s: %w", a, jump.ErrNoGuest)
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	c, err := dial(t, s, key)
	if err != nil {
		t.Fatal(err)
	}
	for address, want := range map[string]ssh.RejectionReason{
		"10.9.0.2:22": 0, "10.9.0.3:22": 0,
		"10.9.0.2:23": ssh.Prohibited,
		"10.9.0.4:22": ssh.ConnectionFailed, "10.9.0.5:22": ssh.ConnectionFailed,
	} {
		conn, err := c.Dial("tcp", address)
		var refused *ssh.OpenChannelError
		switch {
		case err == nil && want == 0:
			conn.Close()
		case err == nil:
			t.Errorf("%s: was forwarded", address)
		case !errors.As(err, &refused) || refused.Reason != want:
			t.Errorf("%s: %v, want %v", address, err, want)
		}
	}
}
