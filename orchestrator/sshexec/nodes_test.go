package sshexec_test

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"errors"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"savepoint/orchestrator"
	"savepoint/orchestrator/sshexec"
	"savepoint/proxmox/zfs"
	"savepoint/testbed/jump"
)

// program is a forced command. It returns its exit status, or -1 to break the
// connection instead.
type program func(ctx context.Context, command string, in io.Reader, out, errs io.Writer) int

// nodeServer is the sshd of a node: one account, one key, one forced command.
type nodeServer struct {
	address, key       string
	connections, execs atomic.Int64
	refuse             atomic.Bool // requests to run something

	mu    sync.Mutex
	conns []net.Conn
}

func startNode(t *testing.T, authorized string, do program) *nodeServer {
	t.Helper()
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	host, err := ssh.NewSignerFromKey(private)
	if err != nil {
		t.Fatal(err)
	}
	cfg := &ssh.ServerConfig{PublicKeyCallback: func(c ssh.ConnMetadata, key ssh.PublicKey) (*ssh.Permissions, error) {
		if c.User() != "savepoint-zfs" || strings.TrimSpace(string(ssh.MarshalAuthorizedKey(key))) != authorized {
			return nil, errors.New("not authorised")
		}
		return nil, nil
	}}
	cfg.AddHostKey(host)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &nodeServer{address: l.Addr().String(), key: strings.TrimSpace(string(ssh.MarshalAuthorizedKey(host.PublicKey())))}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			raw, err := l.Accept()
			if err != nil {
				return
			}
			s.mu.Lock()
			s.conns = append(s.conns, raw)
			s.mu.Unlock()
			s.connections.Add(1)
			wg.Go(func() { s.serve(ctx, raw, cfg, do) })
		}
	})
	t.Cleanup(func() { cancel(); l.Close(); s.drop(); wg.Wait() })
	return s
}

// drop breaks every connection.
func (s *nodeServer) drop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.conns {
		c.Close()
	}
	s.conns = nil
}

func (s *nodeServer) serve(ctx context.Context, raw net.Conn, cfg *ssh.ServerConfig, do program) {
	defer raw.Close()
	conn, chans, reqs, err := ssh.NewServerConn(raw, cfg)
	if err != nil {
		return
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { ssh.DiscardRequests(reqs) })
	for nc := range chans {
		ch, reqs, err := nc.Accept()
		if err != nil {
			continue
		}
		wg.Go(func() {
			defer ch.Close()
			for r := range reqs {
				var exec struct{ Command string }
				if s.refuse.Load() || r.Type != "exec" || ssh.Unmarshal(r.Payload, &exec) != nil {
					r.Reply(false, nil)
					continue
				}
				r.Reply(true, nil)
				s.execs.Add(1)
				wg.Go(func() {
					code := do(ctx, exec.Command, ch, ch, ch.Stderr())
					if code < 0 {
						conn.Close()
						return
					}
					ch.SendRequest("exit-status", false, ssh.Marshal(struct{ Code uint32 }{uint32(code)}))
					ch.Close()
				})
			}
		})
	}
}

// echo answers with the request.
func echo(_ context.Context, command string, in io.Reader, out, _ io.Writer) int {
	text, err := io.ReadAll(in)
	if err != nil || command == "" {
		return 1
	}
	io.WriteString(out, "answer to "+string(text))
	return 0
}

func nodes(t *testing.T, id sshexec.Identity, servers map[string]*nodeServer, edit func(*sshexec.NodesConfig)) *sshexec.Nodes {
	t.Helper()
	cfg := sshexec.NodesConfig{User: "savepoint-zfs", Identity: id, Nodes: map[string]sshexec.NodeSSH{}}
	for name, s := range servers {
		cfg.Nodes[name] = sshexec.NodeSSH{Address: s.address, HostKey: s.key}
	}
	if edit != nil {
		edit(&cfg)
	}
	n, err := sshexec.NewNodes(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { n.Close() })
	return n
}

// Requests share one connection to each node, at the same time too; a connection
// that died while it was idle is replaced unseen.
func TestNodesExchange(t *testing.T) {
	id := identity(t)
	one, two := startNode(t, id.AuthorizedKey(), echo), startNode(t, id.AuthorizedKey(), echo)
	n := nodes(t, id, map[string]*nodeServer{"pve1": one, "pve2": two}, nil)
	ctx := within(t, 20*time.Second)
	large := bytes.Repeat([]byte("0123456789abcde\n"), 1<<16)
	var wg sync.WaitGroup
	for i := range 30 {
		wg.Go(func() {
			name, request := []string{"pve1", "pve2"}[i%2], []byte("request")
			if i > 26 {
				request = large
			}
			got, err := n.Exchange(ctx, name, request)
			if err != nil || string(got) != "answer to "+string(request) {
				t.Errorf("%s: got %d bytes, %v", name, len(got), err)
			}
		})
	}
	wg.Wait()
	if a, b := one.connections.Load(), two.connections.Load(); a != 1 || b != 1 {
		t.Errorf("%d and %d connections, want one each", a, b)
	}
	one.drop()
	if got, err := n.Exchange(ctx, "pve1", []byte("again")); err != nil || string(got) != "answer to again" {
		t.Errorf("after the connection died: %q, %v", got, err)
	}
	if got := one.connections.Load(); got != 2 {
		t.Errorf("%d connections, want another one", got)
	}
}

// Whatever fails before the request is sent says that nothing was done.
func TestNodesUnreached(t *testing.T) {
	id := identity(t)
	s := startNode(t, id.AuthorizedKey(), echo)
	request := []byte("request")
	exchange := func(t *testing.T, node string, edit func(*sshexec.NodesConfig)) error {
		t.Helper()
		_, err := nodes(t, id, map[string]*nodeServer{"pve1": s}, edit).Exchange(within(t, 10*time.Second), node, request)
		return err
	}
	change := func(edit func(*sshexec.NodeSSH)) func(*sshexec.NodesConfig) {
		return func(c *sshexec.NodesConfig) {
			at := c.Nodes["pve1"]
			edit(&at)
			c.Nodes["pve1"] = at
		}
	}
	t.Run("a node that is not configured", func(t *testing.T) {
		err := exchange(t, "pve9", nil)
		wantClass(t, err, orchestrator.ErrDenied)
		if !strings.Contains(err.Error(), "workspace.nodes") || !strings.Contains(err.Error(), "pve1") {
			t.Error(err)
		}
	})
	t.Run("nobody listens", func(t *testing.T) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		l.Close()
		wantClass(t, exchange(t, "pve1", change(func(n *sshexec.NodeSSH) { n.Address = l.Addr().String() })), orchestrator.ErrUnavailable)
	})
	t.Run("another host key", func(t *testing.T) {
		var key *orchestrator.HostKeyError
		if err := exchange(t, "pve1", change(func(n *sshexec.NodeSSH) { n.HostKey = otherKey(t) })); !errors.As(err, &key) {
			t.Errorf("got %v", err)
		}
	})
	t.Run("the key is refused", func(t *testing.T) {
		wantClass(t, exchange(t, "pve1", func(c *sshexec.NodesConfig) { c.Identity = identity(t) }), orchestrator.ErrDenied)
	})
	t.Run("no command is run", func(t *testing.T) {
		s.refuse.Store(true)
		defer s.refuse.Store(false)
		wantClass(t, exchange(t, "pve1", nil), orchestrator.ErrUnavailable)
	})
	t.Run("ctx has ended", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := nodes(t, id, map[string]*nodeServer{"pve1": s}, nil).Exchange(ctx, "pve1", request)
		wantClass(t, err, orchestrator.ErrUnavailable)
		if !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
	t.Run("closed", func(t *testing.T) {
		n := nodes(t, id, map[string]*nodeServer{"pve1": s}, nil)
		n.Close()
		_, err := n.Exchange(t.Context(), "pve1", request)
		wantClass(t, err, orchestrator.ErrUnavailable)
	})
	if n := s.execs.Load(); n != 0 {
		t.Errorf("%d requests got to the node", n)
	}
}

// Whatever fails later leaves open what was done.
func TestNodesUnknown(t *testing.T) {
	id := identity(t)
	for name, tt := range map[string]struct {
		do   program
		text string
	}{
		"the connection breaks in the answer": {func(_ context.Context, _ string, in io.Reader, out, _ io.Writer) int {
			io.ReadAll(in)
			io.WriteString(out, "half of an ans")
			return -1
		}, ""},
		"the connection breaks before the answer": {func(_ context.Context, _ string, in io.Reader, _, _ io.Writer) int {
			in.Read(make([]byte, 1))
			return -1
		}, ""},
		"an answer without end": {func(ctx context.Context, _ string, in io.Reader, out, _ io.Writer) int {
			for ctx.Err() == nil {
				if _, err := out.Write(make([]byte, 1<<10)); err != nil {
					break
				}
			}
			return 0
		}, "longer than 10000 bytes"},
		"no answer": {func(_ context.Context, _ string, in io.Reader, out, errs io.Writer) int {
			io.ReadAll(in)
			io.WriteString(errs, "sh: savepoint-zfs: not found\n")
			return 127
		}, "exit-status 127) without an answer: sh: savepoint-zfs: not found"},
	} {
		t.Run(name, func(t *testing.T) {
			s := startNode(t, id.AuthorizedKey(), tt.do)
			n := nodes(t, id, map[string]*nodeServer{"pve1": s}, func(c *sshexec.NodesConfig) { c.MaxAnswer = 10000 })
			_, err := n.Exchange(within(t, 20*time.Second), "pve1", []byte("request"))
			wantClass(t, err, orchestrator.ErrUnknownOutcome)
			if !strings.Contains(err.Error(), tt.text) || !strings.Contains(err.Error(), "pve1") {
				t.Error(err)
			}
		})
	}
	t.Run("ctx ends", func(t *testing.T) {
		got := make(chan struct{})
		s := startNode(t, id.AuthorizedKey(), func(ctx context.Context, _ string, in io.Reader, _, _ io.Writer) int {
			io.ReadAll(in)
			close(got)
			<-ctx.Done()
			return 0
		})
		n := nodes(t, id, map[string]*nodeServer{"pve1": s}, nil)
		ctx, cancel := context.WithCancel(t.Context())
		go func() { <-got; cancel() }()
		_, err := n.Exchange(ctx, "pve1", []byte("request"))
		wantClass(t, err, orchestrator.ErrUnknownOutcome)
		if !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
}

// Nodes behind a jump host are reached through it; the protocol of savepoint-zfs
// gets through.
func TestNodesThroughJumpHost(t *testing.T) {
	id := identity(t)
	s := startNode(t, id.AuthorizedKey(), func(_ context.Context, _ string, in io.Reader, out, _ io.Writer) int {
		if text, _ := io.ReadAll(in); string(text) != "savepoint-zfs 1\ndo hello\ndataset savepoint-zfs\nreserve 0\ngo\n" {
			io.WriteString(out, "what?\n")
		}
		io.WriteString(out, "savepoint-zfs 1\n= tank/savepoint\t-\t-\t-\nend ok\n")
		return 0
	})
	real := netip.MustParseAddrPort(s.address)
	j, err := jump.Listen(jump.Config{Dir: t.TempDir(), Authorized: []string{id.AuthorizedKey()}, Resolve: func(a netip.Addr, port uint16) (netip.AddrPort, bool) {
		return real, a == netip.MustParseAddr("10.9.9.1") && port == 22
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { j.Close() })
	n := nodes(t, id, map[string]*nodeServer{"pve1": s}, func(c *sshexec.NodesConfig) {
		c.Nodes["pve1"] = sshexec.NodeSSH{Address: "10.9.9.1:22", HostKey: s.key}
		c.Via = &sshexec.Jump{Address: j.Addr().String(), User: "lab", HostKey: j.HostKey(), Identity: id}
	})
	got, err := zfs.NewClient(n.Exchange).Hello(within(t, 20*time.Second), "pve1")
	if err != nil || len(got) != 1 || got[0] != "tank/savepoint" {
		t.Errorf("got %q, %v", got, err)
	}
}

func TestNewNodes(t *testing.T) {
	id := identity(t)
	good := sshexec.NodesConfig{User: "u", Identity: id, Nodes: map[string]sshexec.NodeSSH{"pve1": {Address: "127.0.0.1:22", HostKey: id.AuthorizedKey()}}}
	for name, edit := range map[string]func(*sshexec.NodesConfig){
		"no user":     func(c *sshexec.NodesConfig) { c.User = "" },
		"no nodes":    func(c *sshexec.NodesConfig) { c.Nodes = nil },
		"no identity": func(c *sshexec.NodesConfig) { c.Identity = sshexec.Identity{} },
		"bad key": func(c *sshexec.NodesConfig) {
			c.Nodes = map[string]sshexec.NodeSSH{"pve1": {Address: "127.0.0.1:22", HostKey: "x"}}
		},
		"no port": func(c *sshexec.NodesConfig) {
			c.Nodes = map[string]sshexec.NodeSSH{"pve1": {Address: "127.0.0.1", HostKey: id.AuthorizedKey()}}
		},
	} {
		c := good
		edit(&c)
		if _, err := sshexec.NewNodes(c); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	n, err := sshexec.NewNodes(good)
	if err != nil {
		t.Fatal(err)
	}
	n.Close()
}
