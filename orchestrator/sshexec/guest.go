package sshexec

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"savepoint/orchestrator"
	"savepoint/orchestrator/sshexec/wire"
)

// Inspect implements orchestrator.Guest: it waits until the guest answers.
// ErrUnavailable: it did not before ctx ended; the text holds the last cause,
// which is ErrDenied instead when that was a refused authentication.
func (c *Client) Inspect(ctx context.Context, sb orchestrator.Sandbox) (orchestrator.GuestFacts, error) {
	facts, _, err := c.ask(ctx, "inspect sandbox", sb, wire.Facts, func() []byte { return nil }, true)
	return facts, err
}

// Mark implements orchestrator.Guest. The marker is on the guest's disk when
// Mark returns. It waits for a booting guest like Inspect; a connection lost
// after the order was sent is ErrUnknownOutcome.
func (c *Client) Mark(ctx context.Context, sb orchestrator.Sandbox, generation string) (orchestrator.GuestFacts, error) {
	if generation == "" || len(generation) > 256 || strings.ContainsAny(generation, "\n\x00") {
		return orchestrator.GuestFacts{}, fmt.Errorf("mark sandbox %s: %w: generation %q is not one line of 1 to 256 bytes", sb.Name, orchestrator.ErrDenied, generation)
	}
	facts, _, err := c.ask(ctx, "mark sandbox", sb, wire.Mark, func() []byte { return []byte(generation) }, false)
	return facts, err
}

// SetClock implements orchestrator.Guest. t is the time at the call: what
// passes until the guest is reached is added.
func (c *Client) SetClock(ctx context.Context, sb orchestrator.Sandbox, t time.Time) error {
	called := time.Now()
	_, _, err := c.ask(ctx, "set clock of sandbox", sb, wire.Clock, func() []byte {
		now := t.Add(time.Since(called))
		return []byte(strconv.FormatInt(now.Unix(), 10) + " " + strconv.Itoa(now.Nanosecond()))
	}, false)
	return err
}

// Prepare makes a fresh guest, ours or a stock cloud image, fit for commands:
// the account agent with a home and no way to root, /workspace of its own,
// the directory of the generation marker. agentKeys are authorized_keys lines
// for the agent and may be empty: commands need none. It changes nothing on a
// guest that is prepared already. It waits for a booting guest like Inspect.
//
// ErrUnavailable: the guest refused a step, with its reason; calling again is
// safe.
func (c *Client) Prepare(ctx context.Context, sb orchestrator.Sandbox, agentKeys []string) error {
	for _, k := range agentKeys {
		if _, err := parseHostKey(k); err != nil {
			return fmt.Errorf("prepare sandbox %s: %w: a key for the agent: %v", sb.Name, orchestrator.ErrDenied, err)
		}
	}
	_, _, err := c.ask(ctx, "prepare sandbox", sb, wire.Prepare, func() []byte { return wire.EncodeFields(agentKeys...) }, true)
	return err
}

// Hold returns how the guest holds the processes of a command together:
// "cgroup" or "freeze" (cgroup v2, nothing escapes), or "tree" (see Limits).
func (c *Client) Hold(ctx context.Context, sb orchestrator.Sandbox) (string, error) {
	_, hold, err := c.ask(ctx, "inspect sandbox", sb, wire.Facts, func() []byte { return nil }, true)
	return hold, err
}

// ask sends one question as soon as the guest can be reached and waits for
// the answer. Questions that are repeatable are asked again after a loss.
func (c *Client) ask(ctx context.Context, what string, sb orchestrator.Sandbox, kind byte, payload func() []byte, repeatable bool) (orchestrator.GuestFacts, string, error) {
	var last error
	for {
		g, s, err := c.session(ctx, sb)
		if err == nil {
			facts, hold, err := s.ask(ctx, kind, payload())
			g.release(s, err == nil || isRefusal(err))
			if err == nil || isRefusal(err) {
				if err != nil {
					err = fmt.Errorf("%s %s: %w", what, sb.Name, err)
				}
				return facts, hold, err
			}
			if !repeatable {
				return facts, "", fmt.Errorf("%s %s: %w: %w", what, sb.Name, orchestrator.ErrUnknownOutcome, err)
			}
			last = err
		} else if last == nil || ctx.Err() == nil {
			last = err // an error that ctx itself made would hide the cause
		}
		if hopeless(last) {
			return orchestrator.GuestFacts{}, "", unreached(what, sb, last)
		}
		select {
		case <-time.After(c.cfg.RetryInterval):
		case <-ctx.Done():
			err := unreached(what, sb, last)
			if !errors.Is(err, ctx.Err()) {
				err = fmt.Errorf("%w (%w)", err, ctx.Err())
			}
			return orchestrator.GuestFacts{}, "", err
		}
	}
}

// ask asks the helper and waits. After any error but a refusal the question
// may have reached it, and the session is of no more use.
func (s *session) ask(ctx context.Context, kind byte, payload []byte) (facts orchestrator.GuestFacts, hold string, err error) {
	began := time.Now()
	if err := s.send(kind, payload); err != nil {
		return facts, "", err
	}
	var f wire.Frame
	ok := false
	select {
	case f, ok = <-s.in:
	case <-s.dead:
	case <-s.link.done:
		return facts, "", fmt.Errorf("connection lost: %w", s.link.err)
	case <-ctx.Done():
		return facts, "", ctx.Err()
	}
	if !ok {
		return facts, "", errors.New("the helper in the guest ended: " + s.stderr.String())
	}
	if f.Kind == wire.Refusal {
		return facts, "", refused(f.Payload)
	}
	fields, err := wire.DecodeFields(f.Payload)
	if err != nil || f.Kind != wire.Answer || len(fields) != 5 {
		return facts, "", errors.New("the helper's answer is not readable")
	}
	sec, err1 := strconv.ParseInt(fields[2], 10, 64)
	nano, err2 := strconv.ParseInt(fields[3], 10, 64)
	if err1 != nil || err2 != nil {
		return facts, "", errors.New("the guest's clock is not readable")
	}
	return orchestrator.GuestFacts{
		BootID: fields[0], Generation: fields[1],
		Clock: time.Unix(sec, nano), RoundTrip: time.Since(began),
	}, fields[4], nil
}
