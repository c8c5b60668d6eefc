package sshexec

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"golang.org/x/crypto/ssh"

	"savepoint/orchestrator"
	"savepoint/policy"
)

// Bare runs the permit's command as plain SSH would: one exec of its exact text
// on the sandbox's own connection, by the account that the connection has (root),
// with nothing that savepoint adds. It is what experiments compare Run with. What
// the command starts in the background goes on after it, and nothing of the
// sandbox is synced. When ctx ends the channel is closed and the outcome is
// unknown. Output is kept whole.
func (c *Client) Bare(ctx context.Context, sb orchestrator.Sandbox, p policy.Permit, stdin io.Reader) (orchestrator.ExecResult, error) {
	var res orchestrator.ExecResult
	if !p.Valid() {
		return res, fmt.Errorf("bare exec on sandbox %s: %w: the permit is not valid", sb.Name, orchestrator.ErrDenied)
	}
	g, err := c.guest(sb)
	if err != nil {
		return res, err
	}
	l, err := g.slot.get(ctx, func(ctx context.Context) (*link, error) { return c.dialGuest(ctx, g.sb) })
	if err != nil {
		return res, unreached("bare exec on sandbox", sb, err)
	}
	s, err := l.client.NewSession()
	if err != nil {
		l.close(err) // the next call dials
		return res, fmt.Errorf("bare exec on sandbox %s: %w: %w", sb.Name, orchestrator.ErrUnavailable, err)
	}
	defer s.Close()
	defer context.AfterFunc(ctx, func() { _ = s.Close() })()
	var stdout, stderr bytes.Buffer
	s.Stdin, s.Stdout, s.Stderr = stdin, &stdout, &stderr
	began := time.Now()
	err = s.Run(p.Command())
	res.Duration, res.Stdout, res.Stderr = time.Since(began), stdout.Bytes(), stderr.Bytes()
	res.StdoutBytes, res.StderrBytes = int64(stdout.Len()), int64(stderr.Len())
	var ended *ssh.ExitError
	switch {
	case err == nil:
		return res, nil
	case errors.As(err, &ended):
		res.ExitCode, res.Signal = ended.ExitStatus(), ended.Signal()
		if res.Signal != "" {
			res.ExitCode = -1
		}
		return res, nil
	case ctx.Err() != nil:
		return res, fmt.Errorf("bare exec on sandbox %s: %w: %w", sb.Name, orchestrator.ErrUnknownOutcome, context.Cause(ctx))
	}
	return res, fmt.Errorf("bare exec on sandbox %s: %w: %w", sb.Name, orchestrator.ErrUnknownOutcome, err)
}
