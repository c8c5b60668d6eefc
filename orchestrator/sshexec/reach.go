package sshexec

import (
	"context"
	"errors"
	"fmt"

	"savepoint/orchestrator"
)

// Reach connects to the jump host, so that a wrong address, host key or
// identity is found without a guest. Without a jump host there is nothing to
// find. The connection is kept for the guests. Errors: *HostKeyError,
// ErrDenied when the identity is refused, else ErrUnavailable.
func (c *Client) Reach(ctx context.Context) error {
	if c.jump == nil {
		return nil
	}
	_, err := c.jump.get(ctx, c.dialJump)
	if err == nil {
		return nil
	}
	var key *orchestrator.HostKeyError
	var auth *authError
	class := orchestrator.ErrUnavailable
	switch {
	case errors.As(err, &key):
		return fmt.Errorf("reach jump host %s: %w; if the host was installed anew, put its new key into ssh.jump.host_key", c.cfg.Jump.Address, err)
	case errors.As(err, &auth):
		class = orchestrator.ErrDenied
	}
	return fmt.Errorf("reach jump host %s as %s: %w: %w", c.cfg.Jump.Address, c.cfg.Jump.User, class, err)
}
