package sshexec

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"savepoint/orchestrator"
)

// guest is the hold of one sandbox: its connection and the helpers over it.
type guest struct {
	sb    orchestrator.Sandbox
	slot  *slot
	turns chan struct{} // one token per session in use

	mu   sync.Mutex
	idle []*session
}

func (g *guest) close(cause error) {
	g.slot.close(cause)
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, s := range g.idle {
		s.close()
	}
	g.idle = nil
}

// guest returns the sandbox's hold. A sandbox that has another address, host key
// or volume than before has been made anew: the old connection is not its.
func (c *Client) guest(sb orchestrator.Sandbox) (*guest, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, errClosed
	}
	g := c.guests[sb.ID]
	if g != nil && (g.sb.Address != sb.Address || g.sb.HostKey != sb.HostKey || g.sb.Workspace != sb.Workspace) {
		g.close(errors.New("the sandbox was made anew"))
		g = nil
	}
	if g == nil {
		g = &guest{sb: sb, slot: newSlot(), turns: make(chan struct{}, c.cfg.MaxSessions)}
		c.guests[sb.ID] = g
	}
	return g, nil
}

// Disconnect closes the sandbox's connection at once. Calls in progress end:
// a running command with ErrUnknownOutcome, and the guest kills it as soon as
// it learns of the loss. The next call dials.
func (c *Client) Disconnect(id orchestrator.SandboxID) {
	c.mu.Lock()
	g := c.guests[id]
	delete(c.guests, id)
	c.mu.Unlock()
	if g != nil {
		g.close(errDisconnected)
	}
}

var errDisconnected = errors.New("disconnected")

// session takes an idle helper or starts one. The caller gives it back with
// release. Every error means that nothing was started in the guest.
func (c *Client) session(ctx context.Context, sb orchestrator.Sandbox) (*guest, *session, error) {
	g, err := c.guest(sb)
	if err != nil {
		return nil, nil, err
	}
	select {
	case g.turns <- struct{}{}:
	case <-ctx.Done():
		return nil, nil, ctx.Err()
	case <-g.slot.done:
		return nil, nil, errDisconnected
	}
	s, err := c.take(ctx, g)
	if err != nil {
		<-g.turns
		return nil, nil, err
	}
	// Nothing may begin for a caller that has given up in the meantime.
	if err := ctx.Err(); err != nil {
		g.release(s, true)
		return nil, nil, context.Cause(ctx)
	}
	return g, s, nil
}

// take finds or starts a helper. A connection that turns out to have died
// since its last use is replaced once: nothing was asked over it.
func (c *Client) take(ctx context.Context, g *guest) (*session, error) {
	for attempt := 0; ; attempt++ {
		l, err := g.slot.get(ctx, func(ctx context.Context) (*link, error) { return c.dialGuest(ctx, g.sb) })
		if err != nil {
			return nil, err
		}
		if s := g.rested(l); s != nil {
			return s, nil
		}
		s, err := c.open(ctx, l, g.sb.Workspace != "")
		if err == nil || attempt > 0 || ctx.Err() != nil || !l.died(err) {
			return s, err
		}
		l.close(err)
	}
}

func (c *Client) open(ctx context.Context, l *link, volume bool) (*session, error) {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.DialTimeout)
	defer cancel()
	return open(ctx, l, volume)
}

// rested returns a helper over the link that waits for work, or nil.
func (g *guest) rested(l *link) *session {
	g.mu.Lock()
	defer g.mu.Unlock()
	for len(g.idle) > 0 {
		s := g.idle[len(g.idle)-1]
		g.idle = g.idle[:len(g.idle)-1]
		if s.alive() && s.link == l && !s.ended() {
			return s
		}
		s.close()
	}
	return nil
}

// ended reports whether an idle helper is gone, or says something it was not
// asked; either way it is of no use.
func (s *session) ended() bool {
	select {
	case <-s.in:
		return true
	default:
		return false
	}
}

func (g *guest) release(s *session, reusable bool) {
	if reusable && s.alive() {
		g.mu.Lock()
		select {
		case <-g.slot.done:
			s.close()
		default:
			g.idle = append(g.idle, s)
		}
		g.mu.Unlock()
	} else {
		s.close()
	}
	<-g.turns
}

// unreached gives the error of a session that could not be had its class.
func unreached(what string, sb orchestrator.Sandbox, err error) error {
	var key *orchestrator.HostKeyError
	if errors.As(err, &key) || errors.Is(err, orchestrator.ErrDenied) {
		return fmt.Errorf("%s %s: %w", what, sb.Name, err)
	}
	var auth *authError
	if errors.As(err, &auth) {
		return fmt.Errorf("%s %s: %w: %w", what, sb.Name, orchestrator.ErrDenied, err)
	}
	return fmt.Errorf("%s %s: %w: %w", what, sb.Name, orchestrator.ErrUnavailable, err)
}

// hopeless reports whether another attempt cannot help.
func hopeless(err error) bool {
	var auth *authError
	var jump *jumpError
	if errors.As(err, &auth) {
		return errors.As(err, &jump) // the jump host is not booting
	}
	return errors.Is(err, orchestrator.ErrDenied) || errors.Is(err, errClosed)
}
