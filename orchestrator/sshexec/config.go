package sshexec

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"

	"golang.org/x/crypto/ssh"

	"savepoint/orchestrator"
)

// Jump is the SSH server through which guests are reached.
type Jump struct {
	Address  string // host:port
	User     string
	HostKey  string // authorized_keys form, pinned
	Identity Identity
}

// Config is what a Client needs. Zero durations and numbers take the default.
type Config struct {
	Identities []Identity // keys of root in the guests; at least one
	Jump       *Jump      // nil = guests are dialled directly
	Port       int        // of the guests' sshd; default 22

	// DialTimeout bounds one attempt to connect and authenticate. Default 20 s:
	// a key exchange alone takes a second in an emulated guest.
	DialTimeout time.Duration
	// RetryInterval is the pause between attempts to reach a guest that is
	// booting. Default 250 ms.
	RetryInterval time.Duration
	// KeepAlive is the pause between questions whether the peer lives.
	// Default 10 s. A peer that stays silent for KeepAliveTimeout (default
	// 30 s, longer than a snapshot pauses a machine) is given up.
	KeepAlive, KeepAliveTimeout time.Duration
	// KillTimeout is how long a confirmation is awaited that a command and all
	// it started are gone. Default 10 s.
	KillTimeout time.Duration
	// MaxSessions is how many commands run at once in one sandbox; more wait.
	// Default 8; OpenSSH refuses more than 10.
	MaxSessions int
	// Dial opens the connection to the jump host, or to the guest when there
	// is none. Default: net.Dialer. Tests and tunnels replace it.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Now is the clock that results are measured with. Default time.Now.
	Now func() time.Time
}

// Client reaches guests. It is safe for concurrent use. Close it to end its
// connections and goroutines.
type Client struct {
	cfg     Config
	jumpKey ssh.PublicKey
	jump    *slot // nil without a jump host

	mu     sync.Mutex
	guests map[orchestrator.SandboxID]*guest
	closed bool
}

var (
	_ orchestrator.Executor = (*Client)(nil)
	_ orchestrator.Guest    = (*Client)(nil)
	_ orchestrator.Examiner = (*Client)(nil)
)

// New checks the configuration and returns a client. It dials nothing.
func New(cfg Config) (*Client, error) {
	if len(cfg.Identities) == 0 || slices.Contains(cfg.Identities, Identity{}) {
		return nil, errors.New("ssh client: no identity for the guests: configure a private key")
	}
	for _, d := range []struct {
		p    *time.Duration
		deft time.Duration
	}{
		{&cfg.DialTimeout, 20 * time.Second},
		{&cfg.RetryInterval, 250 * time.Millisecond},
		{&cfg.KeepAlive, 10 * time.Second},
		{&cfg.KeepAliveTimeout, 30 * time.Second},
		{&cfg.KillTimeout, 10 * time.Second},
	} {
		if *d.p < 0 {
			return nil, fmt.Errorf("ssh client: a timeout of %s is negative", *d.p)
		}
		if *d.p == 0 {
			*d.p = d.deft
		}
	}
	if cfg.Port == 0 {
		cfg.Port = 22
	}
	if cfg.MaxSessions == 0 {
		cfg.MaxSessions = 8
	}
	if cfg.Dial == nil {
		cfg.Dial = (&net.Dialer{}).DialContext
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	c := &Client{cfg: cfg, guests: map[orchestrator.SandboxID]*guest{}}
	if j := cfg.Jump; j != nil {
		key, err := parseHostKey(j.HostKey)
		if err != nil {
			return nil, fmt.Errorf("ssh client: host key of jump host %s: %w", j.Address, err)
		}
		if j.Identity.signer == nil {
			return nil, fmt.Errorf("ssh client: no identity for jump host %s", j.Address)
		}
		c.jumpKey, c.jump = key, newSlot()
	}
	return c, nil
}

// Close ends every connection. Calls in progress end as after Disconnect;
// later calls return ErrUnavailable.
func (c *Client) Close() error {
	c.mu.Lock()
	c.closed = true
	guests := c.guests
	c.guests = map[orchestrator.SandboxID]*guest{}
	c.mu.Unlock()
	for _, g := range guests {
		g.close(errClosed)
	}
	if c.jump != nil {
		c.jump.close(errClosed)
	}
	return nil
}

var errClosed = errors.New("client closed")
