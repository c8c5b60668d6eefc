package sshexec

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/crypto/ssh"

	"savepoint/orchestrator"
)

// link is one authenticated SSH connection. It watches itself: a peer that
// stops answering closes it.
type link struct {
	client *ssh.Client
	done   chan struct{} // closed with the link

	once sync.Once
	err  error // why it ended; read after done
}

func newLink(client *ssh.Client, every, patience time.Duration) *link {
	l := &link{client: client, done: make(chan struct{})}
	go func() {
		err := client.Wait()
		if err == nil {
			err = errors.New("closed by the peer")
		}
		l.close(err)
	}()
	go l.keepAlive(every, patience)
	return l
}

// keepAlive asks the peer for any answer, a refusal too. Without it a peer
// that was frozen, reverted or cut off would be noticed after TCP's minutes.
func (l *link) keepAlive(every, patience time.Duration) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-l.done:
			return
		case <-tick.C:
		}
		late := time.AfterFunc(patience, func() {
			l.close(fmt.Errorf("no sign of life for %s", patience))
		})
		_, _, err := l.client.SendRequest("keepalive@openssh.com", true, nil)
		late.Stop()
		if err != nil {
			l.close(err)
			return
		}
	}
}

// close ends the link at once for everybody who waits on done. The transport
// is closed beside it, because a dead peer can make that block.
func (l *link) close(cause error) {
	l.once.Do(func() {
		l.err = cause
		close(l.done)
		go l.client.Close()
	})
}

func (l *link) alive() bool {
	select {
	case <-l.done:
		return false
	default:
		return true
	}
}

// died reports whether err says that the connection is gone. A write may learn it
// from the network before the connection's own reader does.
func (l *link) died(err error) bool {
	var network net.Error
	return !l.alive() || errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed) || errors.As(err, &network)
}

// slot holds at most one live link and lets one caller at a time dial it.
type slot struct {
	gate chan struct{}
	done chan struct{}

	mu     sync.Mutex
	cur    *link
	closed error
}

func newSlot() *slot { return &slot{gate: make(chan struct{}, 1), done: make(chan struct{})} }

func (s *slot) live() (*link, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed != nil {
		return nil, s.closed
	}
	if s.cur != nil && s.cur.alive() {
		return s.cur, nil
	}
	return nil, nil
}

func (s *slot) get(ctx context.Context, dial func(context.Context) (*link, error)) (*link, error) {
	if l, err := s.live(); l != nil || err != nil {
		return l, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-s.done:
			cancel()
		case <-ctx.Done():
		}
	}()
	select {
	case s.gate <- struct{}{}:
		defer func() { <-s.gate }()
	case <-ctx.Done():
		if _, err := s.live(); err != nil {
			return nil, err
		}
		return nil, ctx.Err()
	}
	if l, err := s.live(); l != nil || err != nil {
		return l, err
	}
	l, err := dial(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed != nil {
		if l != nil {
			l.close(s.closed)
		}
		return nil, s.closed
	}
	if err == nil {
		s.cur = l
	}
	return l, err
}

func (s *slot) close(cause error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed != nil {
		return
	}
	s.closed = cause
	close(s.done)
	if s.cur != nil {
		s.cur.close(cause)
	}
}

// authError says that the server did not accept the identity. During a first
// boot that is normal for a while: sshd answers before the keys are installed.
type authError struct{ cause error }

func (e *authError) Error() string { return "authentication refused: " + e.cause.Error() }
func (e *authError) Unwrap() error { return e.cause }

// jumpError marks a failure of the jump host's own connection.
type jumpError struct{ cause error }

func (e *jumpError) Error() string { return "jump host: " + e.cause.Error() }
func (e *jumpError) Unwrap() error { return e.cause }

func (c *Client) dialJump(ctx context.Context) (*link, error) {
	j := c.cfg.Jump
	ctx, cancel := context.WithTimeout(ctx, c.cfg.DialTimeout)
	defer cancel()
	raw, err := c.cfg.Dial(ctx, "tcp", j.Address)
	if err != nil {
		return nil, err
	}
	return c.handshake(ctx, raw, j.Address, j.User, c.jumpKey, []Identity{j.Identity})
}

// route opens a byte stream to the guest's sshd.
func (c *Client) route(ctx context.Context, address string) (net.Conn, error) {
	if c.jump == nil {
		return c.cfg.Dial(ctx, "tcp", address)
	}
	for attempt := 0; ; attempt++ {
		l, err := c.jump.get(ctx, c.dialJump)
		if err != nil {
			return nil, &jumpError{err}
		}
		conn, err := l.client.DialContext(ctx, "tcp", address)
		var refused *ssh.OpenChannelError
		if err == nil || errors.As(err, &refused) || ctx.Err() != nil || attempt > 0 {
			return conn, err
		}
		// The connection died since its last use: nothing was done, dial once more.
		l.close(err)
	}
}

func (c *Client) dialGuest(ctx context.Context, sb orchestrator.Sandbox) (*link, error) {
	key, err := parseHostKey(sb.HostKey)
	if err != nil {
		return nil, fmt.Errorf("%w: host key of sandbox %s: %v", orchestrator.ErrDenied, sb.Name, err)
	}
	ctx, cancel := context.WithTimeout(ctx, c.cfg.DialTimeout)
	defer cancel()
	address := net.JoinHostPort(sb.Address.String(), strconv.Itoa(c.cfg.Port))
	raw, err := c.route(ctx, address)
	if err != nil {
		return nil, err
	}
	return c.handshake(ctx, raw, address, "root", key, c.cfg.Identities)
}

// bannerPatience is how long a server may take for its first bytes. A
// connection through a forwarder to a guest that is booting is accepted and
// then silent; giving it the time of a whole key exchange would waste it.
const bannerPatience = 5 * time.Second

// greeted waits until the server has said its first bytes and returns the
// connection with nothing lost. It returns a connection in every case.
func greeted(ctx context.Context, raw net.Conn) (net.Conn, error) {
	late := time.AfterFunc(bannerPatience, func() { raw.Close() })
	r := bufio.NewReader(raw)
	_, err := r.Peek(4)
	switch {
	case !late.Stop() && err != nil:
		err = fmt.Errorf("no word from sshd for %s", bannerPatience)
	case err != nil && ctx.Err() != nil:
		err = fmt.Errorf("no answer from sshd: %w", ctx.Err())
	}
	return &peeked{raw, r}, err
}

type peeked struct {
	net.Conn
	r *bufio.Reader
}

func (p *peeked) Read(b []byte) (int, error) { return p.r.Read(b) }

// handshake authenticates both sides over raw, which it owns from here on.
func (c *Client) handshake(ctx context.Context, raw net.Conn, address, user string, pin ssh.PublicKey, ids []Identity) (*link, error) {
	stop := context.AfterFunc(ctx, func() { raw.Close() })
	spoken, err := greeted(ctx, raw)
	if err != nil {
		stop()
		raw.Close()
		return nil, err
	}
	signers := make([]ssh.Signer, len(ids))
	for i, id := range ids {
		signers[i] = id.signer
	}
	var mismatch *orchestrator.HostKeyError
	conn, chans, reqs, err := ssh.NewClientConn(spoken, address, &ssh.ClientConfig{
		User:              user,
		Auth:              []ssh.AuthMethod{ssh.PublicKeys(signers...)},
		HostKeyAlgorithms: algorithms(pin),
		ClientVersion:     "SSH-2.0-savepoint",
		HostKeyCallback: func(_ string, _ net.Addr, got ssh.PublicKey) error {
			if string(got.Marshal()) == string(pin.Marshal()) {
				return nil
			}
			mismatch = &orchestrator.HostKeyError{Host: address, Want: ssh.FingerprintSHA256(pin), Got: ssh.FingerprintSHA256(got)}
			return mismatch
		},
	})
	cut := !stop()
	if err == nil && !cut {
		return newLink(ssh.NewClient(conn, chans, reqs), c.cfg.KeepAlive, c.cfg.KeepAliveTimeout), nil
	}
	raw.Close()
	var other *ssh.AlgorithmNegotiationError
	switch {
	case mismatch != nil:
		return nil, mismatch
	case err == nil || cut:
		return nil, fmt.Errorf("no answer from sshd: %w", ctx.Err())
	case errors.As(err, &other) && other.What == "host key":
		return nil, &orchestrator.HostKeyError{Host: address, Want: ssh.FingerprintSHA256(pin),
			Got: "a key of another type (" + strings.Join(other.RequestedAlgorithms, ", ") + ")"}
	case strings.Contains(err.Error(), "unable to authenticate"): // the package has no type for it
		return nil, &authError{err}
	}
	return nil, err
}
