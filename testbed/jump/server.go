package jump

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/subtle"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/crypto/ssh"
)

// Config is what a jump host needs.
type Config struct {
	// Dir holds the host key, "jump_host_key", mode 0600; it must exist.
	Dir string
	// Address to listen at; the zero value means 127.0.0.1 and any port.
	// Anything but loopback is refused.
	Address netip.AddrPort
	// Authorized are authorized_keys lines of the clients that may forward.
	Authorized []string
	// Resolve returns the loopback endpoint that stands for a guest's address
	// and port, or false to refuse. It must be safe for concurrent use.
	Resolve func(guest netip.Addr, port uint16) (netip.AddrPort, bool)
	// Dial connects to a guest that has no loopback endpoint. It is asked first;
	// an error that wraps ErrNoGuest hands the question on to Resolve. Nil:
	// there are no such guests. It must be safe for concurrent use.
	Dial func(ctx context.Context, guest netip.Addr, port uint16) (net.Conn, error)
	// Commands are the accounts with a forced command, by user name. Such a user
	// has no other rights here, whatever key he shows.
	Commands map[string]Command
}

// ErrNoGuest says that an address is not one of Dial's guests.
var ErrNoGuest = errors.New("no such guest")

// Server is a listening jump host. Close it.
type Server struct {
	cfg     Config
	ssh     *ssh.ServerConfig
	hostKey string
	listen  net.Listener
	stop    context.CancelFunc
	ctx     context.Context //nolint:containedctx // the server's life, ended by Close
	wg      sync.WaitGroup
}

// Listen starts the server and returns once it accepts connections. A crash
// leaves the host key, which the next start uses again.
func Listen(cfg Config) (*Server, error) {
	if !cfg.Address.IsValid() {
		cfg.Address = netip.MustParseAddrPort("127.0.0.1:0")
	}
	if !cfg.Address.Addr().IsLoopback() {
		return nil, fmt.Errorf("start jump host at %s: only loopback addresses are allowed", cfg.Address)
	}
	if cfg.Resolve == nil && (len(cfg.Authorized) > 0 || len(cfg.Commands) == 0) {
		return nil, errors.New("start jump host: no Resolve")
	}
	allowed, err := keys(cfg)
	if err != nil {
		return nil, fmt.Errorf("start jump host: %w", err)
	}
	key, err := hostKey(filepath.Join(cfg.Dir, "jump_host_key"))
	if err != nil {
		return nil, fmt.Errorf("start jump host: %w", err)
	}
	sc := &ssh.ServerConfig{
		ServerVersion: "SSH-2.0-jump",
		PublicKeyCallback: func(c ssh.ConnMetadata, k ssh.PublicKey) (*ssh.Permissions, error) {
			user := c.User()
			if _, forced := cfg.Commands[user]; !forced {
				user = forwarder
			}
			for _, a := range allowed[user] {
				if subtle.ConstantTimeCompare(a, k.Marshal()) == 1 {
					return nil, nil
				}
			}
			return nil, errors.New("key is not authorised")
		},
	}
	sc.AddHostKey(key)
	l, err := net.Listen("tcp", cfg.Address.String())
	if err != nil {
		return nil, fmt.Errorf("start jump host: %w", err)
	}
	s := &Server{cfg: cfg, ssh: sc, listen: l, hostKey: strings.TrimSpace(string(ssh.MarshalAuthorizedKey(key.PublicKey())))}
	s.ctx, s.stop = context.WithCancel(context.Background())
	s.wg.Go(s.accept)
	return s, nil
}

// forwarder stands for everybody who has no command. No user can have that name.
const forwarder = ""

// keys are those that each user with a command, and the forwarder, may show.
func keys(cfg Config) (map[string][][]byte, error) {
	lines := map[string][]string{forwarder: cfg.Authorized}
	for user, c := range cfg.Commands {
		if user == forwarder || c.Run == nil {
			return nil, fmt.Errorf("command of user %q: a user name and something to run are needed", user)
		}
		lines[user] = c.Authorized
	}
	out := map[string][][]byte{}
	for user, list := range lines {
		for i, line := range list {
			key, _, _, _, err := ssh.ParseAuthorizedKey([]byte(line))
			if err != nil {
				return nil, fmt.Errorf("authorized key %d of user %q: %w", i+1, user, err)
			}
			out[user] = append(out[user], key.Marshal())
		}
	}
	return out, nil
}

// Addr returns where the server listens.
func (s *Server) Addr() netip.AddrPort { return s.listen.Addr().(*net.TCPAddr).AddrPort() }

// HostKey returns the authorized_keys line that clients pin.
func (s *Server) HostKey() string { return s.hostKey }

// Close ends every connection and returns once all is gone.
func (s *Server) Close() error {
	s.stop()
	err := s.listen.Close()
	s.wg.Wait()
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

func (s *Server) accept() {
	for {
		conn, err := s.listen.Accept()
		if err != nil {
			if s.ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
				return
			}
			// Out of descriptors, most likely: let others finish.
			select {
			case <-time.After(50 * time.Millisecond):
				continue
			case <-s.ctx.Done():
				return
			}
		}
		s.wg.Go(func() { s.serve(conn) })
	}
}

func (s *Server) serve(raw net.Conn) {
	stop := context.AfterFunc(s.ctx, func() { raw.Close() })
	defer stop()
	defer raw.Close()
	raw.SetDeadline(time.Now().Add(20 * time.Second)) //nolint:errcheck // a dead connection fails below
	conn, chans, reqs, err := ssh.NewServerConn(raw, s.ssh)
	if err != nil {
		return
	}
	raw.SetDeadline(time.Time{}) //nolint:errcheck // as above
	s.wg.Go(func() { ssh.DiscardRequests(reqs) })
	serve := s.forward
	if c, forced := s.cfg.Commands[conn.User()]; forced {
		gone, lost := context.WithCancel(s.ctx)
		defer lost()
		s.wg.Go(func() { _ = conn.Wait(); lost() })
		serve = func(nc ssh.NewChannel) { c.serve(gone, nc) }
	}
	var channels sync.WaitGroup
	for ch := range chans {
		channels.Go(func() { serve(ch) })
	}
	conn.Close()
	channels.Wait()
}

// target is the payload of a direct-tcpip request, RFC 4254 section 7.2.
type target struct {
	Host       string
	Port       uint32
	OriginHost string
	OriginPort uint32
}

func (s *Server) forward(nc ssh.NewChannel) {
	if nc.ChannelType() != "direct-tcpip" {
		nc.Reject(ssh.UnknownChannelType, "only direct-tcpip is served here") //nolint:errcheck // the connection is gone then
		return
	}
	var to target
	if err := ssh.Unmarshal(nc.ExtraData(), &to); err != nil || to.Port > 65535 {
		nc.Reject(ssh.ConnectionFailed, "malformed request") //nolint:errcheck // as above
		return
	}
	guest, err := netip.ParseAddr(to.Host)
	if err != nil {
		nc.Reject(ssh.Prohibited, "guests are named by address") //nolint:errcheck // as above
		return
	}
	conn, err := s.dial(guest, uint16(to.Port))
	if errors.Is(err, ErrNoGuest) {
		nc.Reject(ssh.Prohibited, fmt.Sprintf("no guest at %s port %d", guest, to.Port)) //nolint:errcheck // as above
		return
	}
	if err != nil {
		nc.Reject(ssh.ConnectionFailed, fmt.Sprintf("guest %s does not answer", guest)) //nolint:errcheck // as above
		return
	}
	defer conn.Close()
	stop := context.AfterFunc(s.ctx, func() { conn.Close() })
	defer stop()
	ch, reqs, err := nc.Accept()
	if err != nil {
		return
	}
	defer ch.Close()
	s.wg.Go(func() { ssh.DiscardRequests(reqs) })
	carry(conn, ch)
}

// dialTime bounds how long a guest may take to accept a connection.
const dialTime = 10 * time.Second

// dial connects to a guest. ErrNoGuest: there is none.
func (s *Server) dial(guest netip.Addr, port uint16) (stream, error) {
	ctx, cancel := context.WithTimeout(s.ctx, dialTime)
	defer cancel()
	conn, err := net.Conn(nil), ErrNoGuest
	if s.cfg.Dial != nil {
		conn, err = s.cfg.Dial(ctx, guest, port)
	}
	if errors.Is(err, ErrNoGuest) {
		end, ok := s.cfg.Resolve(guest, port)
		if !ok || !end.Addr().IsLoopback() {
			return nil, ErrNoGuest
		}
		conn, err = (&net.Dialer{}).DialContext(ctx, "tcp", end.String())
	}
	if err != nil {
		return nil, err
	}
	if two, ok := conn.(stream); ok {
		return two, nil
	}
	conn.Close()
	return nil, fmt.Errorf("a connection of type %T cannot end one direction alone", conn)
}

// stream is a connection whose two directions end one by one.
type stream interface {
	net.Conn
	CloseWrite() error
}

// carry copies both ways, hands on each side's end of output, and ends when
// both have ended or the guest's side is gone.
func carry(conn stream, ch ssh.Channel) {
	var wg sync.WaitGroup
	wg.Go(func() {
		if _, err := io.Copy(conn, ch); err != nil {
			conn.Close()
			return
		}
		conn.CloseWrite() //nolint:errcheck // the other direction notices
	})
	_, err := io.Copy(ch, conn)
	if err == nil {
		err = ch.CloseWrite()
	}
	if err != nil { // the guest was cut off: the client must not wait for it
		ch.Close()
	}
	wg.Wait()
}

// hostKey loads the key, or makes it on the first start.
func hostKey(path string) (ssh.Signer, error) {
	text, err := os.ReadFile(path)
	if err == nil {
		info, err := os.Stat(path)
		if err != nil {
			return nil, err
		}
		if info.Mode().Perm()&0o077 != 0 {
			return nil, fmt.Errorf("host key %s: mode %04o lets others read it", path, info.Mode().Perm())
		}
		key, err := ssh.ParsePrivateKey(text)
		if err != nil {
			return nil, fmt.Errorf("host key %s: %w", path, err)
		}
		return key, nil
	}
	if !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, err
	}
	block, err := ssh.MarshalPrivateKey(private, "jump host")
	if err != nil {
		return nil, err
	}
	// Whole or absent: a crash must not leave half a key.
	part := path + ".new"
	if err := os.WriteFile(part, pem.EncodeToMemory(block), 0o600); err != nil {
		return nil, err
	}
	if err := os.Rename(part, path); err != nil {
		return nil, err
	}
	return ssh.NewSignerFromKey(private)
}
