package sshexec

import (
	"context"
	"strings"
	"testing"

	"golang.org/x/crypto/ssh"

	"savepoint/orchestrator"
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
