package sshexec

import (
	"context"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"savepoint/orchestrator"
	"savepoint/orchestrator/sshexec/wire"
)

// Transport is the connection that commands of the sandbox use.
func (c *Client) Transport(ctx context.Context, sb orchestrator.Sandbox) (*ssh.Client, error) {
	g, err := c.guest(sb)
	if err != nil {
		return nil, err
	}
	l, err := g.slot.get(ctx, func(ctx context.Context) (*link, error) { return c.dialGuest(ctx, sb) })
	if err != nil {
		return nil, err
	}
	return l.client, nil
}

// ChangeHelper edits the text that is sent to guests until the test ends.
func ChangeHelper(t testing.TB, old, by string) {
	if !strings.Contains(helperText, old) {
		t.Fatalf("the helper does not hold %q", old)
	}
	before := helperText
	helperText = strings.ReplaceAll(helperText, old, by)
	t.Cleanup(func() { helperText = before })
}

// SessionOf and Entries read what a guest says.
var (
	SessionOf = sessionOf
	Entries   = entries
)

// TemplateText is what a machine that becomes a template is sent.
func TemplateText() string { return templateText }

// HelperText is what a guest is sent.
func HelperText() string { return helperText }

// deaf takes what is sent and says nothing.
type deaf struct{ ssh.Channel }

func (deaf) Write(p []byte) (int, error) { return len(p), nil }
func (deaf) Close() error                { return nil }

// ListOf is what becomes of a request that a guest answers with these frames, and
// whether its session goes on.
func ListOf(ctx context.Context, r orchestrator.ManifestRequest, frames []wire.Frame) (m orchestrator.Manifest, goesOn bool, err error) {
	s := &session{link: &link{done: make(chan struct{})}, ch: deaf{}, in: make(chan wire.Frame), dead: make(chan struct{})}
	order, limit, err := listOrder(r)
	if err != nil {
		return m, false, err
	}
	go func() {
		defer close(s.in)
		for _, f := range frames {
			select {
			case s.in <- f:
			case <-s.dead:
				return
			}
		}
	}()
	m, err = s.list(ctx, time.Minute, order, limit)
	return m, s.alive(), err
}
