package jump_test

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/crypto/ssh"

	"savepoint/testbed/jump"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func signer(t *testing.T) ssh.Signer {
	t.Helper()
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	s, err := ssh.NewSignerFromKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func line(s ssh.Signer) string { return string(ssh.MarshalAuthorizedKey(s.PublicKey())) }

// guest is a TCP server that upper-cases all it gets until the client's end of
// output, then answers with everything.
func guest(t *testing.T) netip.AddrPort {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				text, err := io.ReadAll(c)
				if err == nil {
					c.Write(bytes.ToUpper(text))
				}
			}()
		}
	}()
	t.Cleanup(func() { l.Close(); <-done })
	return l.Addr().(*net.TCPAddr).AddrPort()
}

var guestAddress = netip.MustParseAddr("10.9.0.2")

func start(t *testing.T, dir string, key ssh.Signer, resolve func(netip.Addr, uint16) (netip.AddrPort, bool)) *jump.Server {
	t.Helper()
	s, err := jump.Listen(jump.Config{Dir: dir, Authorized: []string{line(key)}, Resolve: resolve})
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

func dial(t *testing.T, s *jump.Server, key ssh.Signer) (*ssh.Client, error) {
	t.Helper()
	pin, _, _, _, err := ssh.ParseAuthorizedKey([]byte(s.HostKey()))
	if err != nil {
		t.Fatal(err)
	}
	c, err := ssh.Dial("tcp", s.Addr().String(), &ssh.ClientConfig{User: "any", Auth: []ssh.AuthMethod{ssh.PublicKeys(key)}, HostKeyCallback: ssh.FixedHostKey(pin)})
	if err == nil {
		t.Cleanup(func() { c.Close() })
	}
	return c, err
}

func TestForward(t *testing.T) {
	at, key := guest(t), signer(t)
	s := start(t, t.TempDir(), key, func(a netip.Addr, port uint16) (netip.AddrPort, bool) { return at, a == guestAddress && port == 22 })
	c, err := dial(t, s, key)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := c.Dial("tcp", "10.9.0.2:22")
	if err != nil {
		t.Fatal(err)
	}
	text := bytes.Repeat([]byte("binary\x00\xff"), 100_000)
	if _, err := conn.Write(text); err != nil {
		t.Fatal(err)
	}
	if err := conn.(interface{ CloseWrite() error }).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(conn); err != nil || !bytes.Equal(got, bytes.ToUpper(text)) {
		t.Errorf("got %d bytes, %v", len(got), err)
	}
}

// TestRefused: one way through, everything else is closed.
func TestRefused(t *testing.T) {
	at, key := guest(t), signer(t)
	outside := netip.MustParseAddrPort("192.0.2.1:22") // a documentation address; nothing may be sent there
	s := start(t, t.TempDir(), key, func(a netip.Addr, port uint16) (netip.AddrPort, bool) {
		switch {
		case a == guestAddress && port == 22:
			return at, true
		case a == netip.MustParseAddr("10.9.0.3"):
			return outside, true
		case a == netip.MustParseAddr("10.9.0.4"):
			return netip.MustParseAddrPort("127.0.0.1:1"), true
		}
		return netip.AddrPort{}, false
	})
	if _, err := dial(t, s, signer(t)); err == nil {
		t.Error("a key that is not authorised got in")
	}
	c, err := dial(t, s, key)
	if err != nil {
		t.Fatal(err)
	}
	for address, want := range map[string]ssh.RejectionReason{
		"10.9.0.2:23":     ssh.Prohibited,       // another port
		"10.9.0.9:22":     ssh.Prohibited,       // an unknown guest
		"10.9.0.3:22":     ssh.Prohibited,       // resolved to something that is not loopback
		"127.0.0.1:22":    ssh.Prohibited,       // the host itself
		"localhost:22":    ssh.Prohibited,       // a name
		"10.9.0.4:22":     ssh.ConnectionFailed, // a guest that is down
		"[fd00::1]:22":    ssh.Prohibited,
		"10.9.0.2:70000x": 0, // not sent at all
	} {
		conn, err := c.Dial("tcp", address)
		if err == nil {
			conn.Close()
			t.Errorf("%s: was forwarded", address)
			continue
		}
		var refused *ssh.OpenChannelError
		if want != 0 && (!errors.As(err, &refused) || refused.Reason != want) {
			t.Errorf("%s: got %v, want %v", address, err, want)
		}
	}
	if _, err := c.NewSession(); err == nil {
		t.Error("a session was opened")
	}
	refusesForwards(t, c)
	// The connection has survived all that.
	if conn, err := c.Dial("tcp", "10.9.0.2:22"); err != nil {
		t.Errorf("after the refusals: %v", err)
	} else {
		conn.Close()
	}
}

func TestConfigRefused(t *testing.T) {
	ok := func(netip.Addr, uint16) (netip.AddrPort, bool) { return netip.AddrPort{}, false }
	open := t.TempDir()
	if err := os.WriteFile(filepath.Join(open, "jump_host_key"), []byte("x"), 0o644); err != nil {
		t.Fatal(err)
	}
	for name, cfg := range map[string]jump.Config{
		"all interfaces":        {Dir: t.TempDir(), Resolve: ok, Address: netip.MustParseAddrPort("0.0.0.0:0")},
		"no resolver":           {Dir: t.TempDir()},
		"key that is none":      {Dir: t.TempDir(), Resolve: ok, Authorized: []string{"nonsense"}},
		"directory is missing":  {Dir: filepath.Join(t.TempDir(), "missing"), Resolve: ok},
		"host key of everybody": {Dir: open, Resolve: ok},
	} {
		if s, err := jump.Listen(cfg); err == nil {
			s.Close()
			t.Errorf("%s: was accepted", name)
		}
	}
}

func TestHostKeyStays(t *testing.T) {
	dir, key := t.TempDir(), signer(t)
	no := func(netip.Addr, uint16) (netip.AddrPort, bool) { return netip.AddrPort{}, false }
	first := start(t, dir, key, no)
	second := start(t, dir, key, no)
	if first.HostKey() != second.HostKey() || !strings.HasPrefix(first.HostKey(), "ssh-ed25519 ") {
		t.Errorf("got %q, then %q", first.HostKey(), second.HostKey())
	}
	info, err := os.Stat(filepath.Join(dir, "jump_host_key"))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("host key: %v, %v", info, err)
	}
}

// TestClose: nothing outlives the server, neither a stream that is idle nor a
// client that never speaks. F98
func TestClose(t *testing.T) {
	at, key := guest(t), signer(t)
	s := start(t, t.TempDir(), key, func(netip.Addr, uint16) (netip.AddrPort, bool) { return at, true })
	c, err := dial(t, s, key)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := c.Dial("tcp", "10.9.0.2:22")
	if err != nil {
		t.Fatal(err)
	}
	mute, err := net.Dial("tcp", s.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer mute.Close()
	ended := make(chan error, 1)
	go func() { _, err := io.ReadAll(conn); ended <- err }()
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	select {
	case <-ended:
	case <-time.After(20 * time.Second):
		t.Error("the stream is still open")
	}
	if _, err := net.Dial("tcp", s.Addr().String()); err == nil {
		t.Error("it still listens")
	}
}

// TestGuestCut: a guest that is cut off ends the stream at once.
func TestGuestCut(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	key := signer(t)
	s := start(t, t.TempDir(), key, func(netip.Addr, uint16) (netip.AddrPort, bool) { return l.Addr().(*net.TCPAddr).AddrPort(), true })
	c, err := dial(t, s, key)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := c.Dial("tcp", "10.9.0.2:22")
	if err != nil {
		t.Fatal(err)
	}
	end, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	end.(*net.TCPConn).SetLinger(0) // a reset, as of a machine that is gone
	end.Close()
	ended := make(chan struct{})
	go func() { io.ReadAll(conn); close(ended) }()
	select {
	case <-ended:
	case <-time.After(20 * time.Second):
		t.Error("the client was not told")
	}
}

// refusesForwards: a client gets no listener, of TCP or a Unix socket, and no
// connection to a Unix socket, neither as sshd's protocol extension asks for it
// nor by playing the server.
func refusesForwards(t *testing.T, c *ssh.Client) {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for what, listen := range map[string]func() (net.Listener, error){
		"any port":      func() (net.Listener, error) { return c.Listen("tcp", "127.0.0.1:0") },
		"a port":        func() (net.Listener, error) { return c.Listen("tcp", "127.0.0.1:18022") },
		"all addresses": func() (net.Listener, error) { return c.Listen("tcp", "0.0.0.0:0") },
		"a Unix socket": func() (net.Listener, error) { return c.ListenUnix(socket + ".new") },
	} {
		if l, err := listen(); err == nil {
			l.Close()
			t.Errorf("it listens at %s", what)
		}
	}
	if _, err := os.Stat(socket + ".new"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("it made a Unix socket: %v", err)
	}
	if conn, err := c.Dial("unix", socket); err == nil {
		conn.Close()
		t.Error("it connects to a Unix socket")
	}
	for _, kind := range []string{"forwarded-tcpip", "forwarded-streamlocal@openssh.com", "tun@openssh.com", "x11", "auth-agent@openssh.com"} {
		if ch, _, err := c.OpenChannel(kind, nil); err == nil {
			ch.Close()
			t.Errorf("a channel of type %s was opened", kind)
		}
	}
}
