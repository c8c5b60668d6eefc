package sshexec

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"slices"
	"strings"
	"time"

	"golang.org/x/crypto/ssh"

	"savepoint/orchestrator"
)

// NodeSSH is the sshd of one node.
type NodeSSH struct {
	Address string // host:port
	HostKey string // authorized_keys form, pinned
}

// NodesConfig is what Nodes needs. User, Identity and Nodes are required.
type NodesConfig struct {
	User     string             // account on the nodes, with a forced command
	Identity Identity           // its key
	Nodes    map[string]NodeSSH // by the cluster's name of the node
	Via      *Jump              // nil = nodes are dialled directly

	// MaxAnswer is the longest answer in bytes; a longer one is an error.
	// Default 8 MiB.
	MaxAnswer int64
	// DialTimeout and Dial are as in Config.
	DialTimeout time.Duration
	Dial        func(ctx context.Context, network, address string) (net.Conn, error)
}

// Nodes has exchanges with the forced command of an account on the cluster's
// nodes, over one kept connection to each. It is safe for concurrent use. Close
// it to end its connections and goroutines.
type Nodes struct {
	user  string
	limit int64
	base  *Client // dials, through the jump host where there is one
	nodes map[string]*node
}

// node is one node's sshd.
type node struct {
	name, address string
	pin           ssh.PublicKey
	slot          *slot
	turns         chan struct{} // one token per exchange on its way
}

// NewNodes checks the configuration and returns the nodes. It dials nothing.
func NewNodes(cfg NodesConfig) (*Nodes, error) {
	if cfg.User == "" || len(cfg.Nodes) == 0 {
		return nil, errors.New("ssh to the nodes: a user and at least one node are needed")
	}
	base, err := New(Config{Identities: []Identity{cfg.Identity}, Jump: cfg.Via, DialTimeout: cfg.DialTimeout, Dial: cfg.Dial})
	if err != nil {
		return nil, fmt.Errorf("ssh to the nodes: %w", err)
	}
	n := &Nodes{user: cfg.User, limit: cfg.MaxAnswer, base: base, nodes: map[string]*node{}}
	if n.limit <= 0 {
		n.limit = 8 << 20
	}
	for name, at := range cfg.Nodes {
		pin, err := parseHostKey(at.HostKey)
		if err != nil {
			return nil, fmt.Errorf("ssh to node %s: host key: %w", name, err)
		}
		if _, _, err := net.SplitHostPort(at.Address); err != nil {
			return nil, fmt.Errorf("ssh to node %s: address %q is not HOST:PORT", name, at.Address)
		}
		n.nodes[name] = &node{name: name, address: at.Address, pin: pin, slot: newSlot(), turns: make(chan struct{}, base.cfg.MaxSessions)}
	}
	return n, nil
}

// Close ends every connection. Exchanges on their way end as after a loss.
func (n *Nodes) Close() error {
	for _, at := range n.nodes {
		at.slot.close(errClosed)
	}
	return n.base.Close()
}

// exchangeCommand is what is asked for; the account's forced command runs
// instead of it.
const exchangeCommand = "savepoint-zfs"

// Exchange hands one request to the node's forced command and returns all that
// it answers until it ends. It ends with ctx. ErrUnavailable: nothing of the
// request was sent; *orchestrator.HostKeyError and ErrDenied (the key is refused,
// or the node is not configured) say so too. ErrUnknownOutcome: it was sent, or
// a part of it, and the whole answer did not come.
func (n *Nodes) Exchange(ctx context.Context, name string, request []byte) ([]byte, error) {
	at := n.nodes[name]
	if at == nil {
		return nil, fmt.Errorf("ssh to node %s: %w: its sshd is not configured, only those of %v; add it to workspace.nodes", name, orchestrator.ErrDenied, slices.Sorted(maps.Keys(n.nodes)))
	}
	select {
	case at.turns <- struct{}{}:
		defer func() { <-at.turns }()
	case <-ctx.Done():
		return nil, at.unreached(context.Cause(ctx))
	case <-at.slot.done:
		return nil, at.unreached(errClosed)
	}
	l, ch, reqs, err := n.open(ctx, at)
	if err != nil {
		return nil, at.unreached(err)
	}
	defer func() { go ch.Close() }() // a dead peer can make it block
	answer, err := carry(ctx, l, ch, reqs, request, n.limit)
	if err != nil {
		return nil, fmt.Errorf("ssh to node %s: %w: %w", name, orchestrator.ErrUnknownOutcome, err)
	}
	return answer, nil
}

func (at *node) unreached(err error) error {
	return unreached("ssh to node", orchestrator.Sandbox{Name: at.name}, err)
}

// open starts the forced command. A connection that turns out to have died since
// its last use is replaced once: nothing was sent over it.
func (n *Nodes) open(ctx context.Context, at *node) (*link, ssh.Channel, <-chan *ssh.Request, error) {
	for attempt := 0; ; attempt++ {
		l, err := at.slot.get(ctx, func(ctx context.Context) (*link, error) {
			ctx, cancel := context.WithTimeout(ctx, n.base.cfg.DialTimeout)
			defer cancel()
			raw, err := n.base.route(ctx, at.address)
			if err != nil {
				return nil, err
			}
			return n.base.handshake(ctx, raw, at.address, n.user, at.pin, n.base.cfg.Identities)
		})
		if err != nil {
			return nil, nil, nil, err
		}
		ch, reqs, err := begin(ctx, l)
		if err == nil || attempt > 0 || ctx.Err() != nil || !l.died(err) {
			return l, ch, reqs, err
		}
		l.close(err)
	}
}

// begin opens a session and asks for the command.
func begin(ctx context.Context, l *link) (ssh.Channel, <-chan *ssh.Request, error) {
	type result struct {
		ch   ssh.Channel
		reqs <-chan *ssh.Request
		err  error
	}
	got := make(chan result)
	go func() {
		ch, reqs, err := l.client.OpenChannel("session", nil)
		if err == nil {
			var ok bool
			ok, err = ch.SendRequest("exec", true, ssh.Marshal(struct{ Command string }{exchangeCommand}))
			if err == nil && !ok {
				err = errors.New("sshd refuses to run the forced command")
			}
			if err != nil {
				ch.Close()
				go ssh.DiscardRequests(reqs)
			}
		}
		select {
		case got <- result{ch, reqs, err}:
			return
		case <-ctx.Done():
		case <-l.done:
		}
		if err == nil {
			ch.Close()
			ssh.DiscardRequests(reqs)
		}
	}()
	select {
	case r := <-got:
		return r.ch, r.reqs, r.err
	case <-l.done:
		return nil, nil, l.err
	case <-ctx.Done():
		return nil, nil, context.Cause(ctx)
	}
}

// carry sends the request and collects the answer. Only an answer after which
// the command's end was reported is whole: a lost connection looks like the end
// of its output.
func carry(ctx context.Context, l *link, ch ssh.Channel, reqs <-chan *ssh.Request, request []byte, limit int64) ([]byte, error) {
	over := make(chan struct{})
	defer close(over)
	go func() {
		select {
		case <-ctx.Done():
			ch.Close()
		case <-over:
		}
	}()
	var said tail
	heard := make(chan struct{}) // all that it complained about
	ended := make(chan string, 1)
	go func() {
		end := ""
		for r := range reqs {
			if r.Type == "exit-status" || r.Type == "exit-signal" {
				end = r.Type + " " + exitOf(r)
			}
			if r.WantReply {
				r.Reply(false, nil) //nolint:errcheck // the connection is gone then
			}
		}
		<-heard
		ended <- end
	}()
	go func() {
		defer close(heard)
		io.Copy(&said, ch.Stderr()) //nolint:errcheck // ends with the channel
	}()
	go func() {
		if _, err := ch.Write(request); err == nil {
			ch.CloseWrite() //nolint:errcheck // the answer shows it
		}
	}()
	var answer []byte
	var err error
	read := make(chan struct{})
	go func() { // a server may keep the channel open for as long as its process lives
		defer close(read)
		answer, err = io.ReadAll(io.LimitReader(ch, limit+1))
	}()
	select {
	case <-read:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case <-l.done:
		return nil, fmt.Errorf("connection lost: %w", l.err)
	}
	switch {
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case !l.alive():
		return nil, fmt.Errorf("connection lost: %w", l.err)
	case err != nil:
		return nil, err
	case int64(len(answer)) > limit:
		return nil, fmt.Errorf("the answer is longer than %d bytes", limit)
	}
	end := ""
	select {
	case end = <-ended:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if end == "" {
		return nil, errors.New("the connection was lost before the command's end was reported")
	}
	if len(answer) == 0 {
		return nil, fmt.Errorf("the command ended (%s) without an answer: %s", end, said.String())
	}
	return answer, nil
}

// exitOf is what a report of a command's end says.
func exitOf(r *ssh.Request) string {
	if r.Type == "exit-status" {
		var status struct{ Code uint32 }
		if ssh.Unmarshal(r.Payload, &status) == nil {
			return fmt.Sprint(status.Code)
		}
		return "unreadable"
	}
	var signal struct {
		Name  string
		Core  bool
		Error string
		Lang  string
	}
	if ssh.Unmarshal(r.Payload, &signal) != nil {
		return "unreadable"
	}
	return strings.TrimSpace(signal.Name + " " + signal.Error)
}
