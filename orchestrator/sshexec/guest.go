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
// which is ErrDenied instead when that was a refused authentication. So is the
// answer, at once, of a guest whose workspace volume is not mounted. It is the one
// question that has the guest sync first, for GuestFacts.Writes.
func (c *Client) Inspect(ctx context.Context, sb orchestrator.Sandbox) (orchestrator.GuestFacts, error) {
	a, err := c.ask(ctx, "inspect sandbox", sb, wire.Facts, func() []byte { return nil }, true)
	return a.facts, err
}

// Mark implements orchestrator.Guest. The marker is on the guest's disk when
// Mark returns, or on its workspace volume where the sandbox has one: while that
// is not mounted, ErrUnavailable. It waits for a booting guest like Inspect; a
// connection lost after the order was sent is ErrUnknownOutcome.
func (c *Client) Mark(ctx context.Context, sb orchestrator.Sandbox, generation string) (orchestrator.GuestFacts, error) {
	if generation == "" || len(generation) > 256 || strings.ContainsAny(generation, "\n\x00") {
		return orchestrator.GuestFacts{}, fmt.Errorf("mark sandbox %s: %w: generation %q is not one line of 1 to 256 bytes", sb.Name, orchestrator.ErrDenied, generation)
	}
	a, err := c.ask(ctx, "mark sandbox", sb, wire.Mark, func() []byte { return []byte(generation) }, false)
	return a.facts, err
}

// SetClock implements orchestrator.Guest. t is the time at the call: what
// passes until the guest is reached is added.
func (c *Client) SetClock(ctx context.Context, sb orchestrator.Sandbox, t time.Time) error {
	called := time.Now()
	_, err := c.ask(ctx, "set clock of sandbox", sb, wire.Clock, func() []byte {
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
// With a workspace volume it mounts that too, and closes the account agent for
// logins: a session of the guest's own sshd would not be confined to the volume.
//
// ErrUnavailable: the guest refused a step, with its reason; calling again is
// safe.
func (c *Client) Prepare(ctx context.Context, sb orchestrator.Sandbox, agentKeys []string) error {
	for _, k := range agentKeys {
		if _, err := parseHostKey(k); err != nil {
			return fmt.Errorf("prepare sandbox %s: %w: a key for the agent: %v", sb.Name, orchestrator.ErrDenied, err)
		}
	}
	_, err := c.ask(ctx, "prepare sandbox", sb, wire.Prepare, func() []byte { return wire.EncodeFields(agentKeys...) }, true)
	if err != nil || sb.Workspace == "" {
		return err
	}
	return c.Mount(ctx, sb)
}

// Hold returns how the guest holds the processes of a command together:
// "cgroup" or "freeze" (cgroup v2, nothing escapes), or "tree" (see Limits).
func (c *Client) Hold(ctx context.Context, sb orchestrator.Sandbox) (string, error) {
	a, err := c.ask(ctx, "inspect sandbox", sb, wire.Facts, func() []byte { return nil }, true)
	return a.hold, err
}

// answer is what the helper says to a question.
type answer struct {
	facts    orchestrator.GuestFacts
	hold     string
	writes   string
	free     []orchestrator.Space
	services map[string]bool
	volume   guestVolume
}

// ask sends one question and waits for the answer.
func (c *Client) ask(ctx context.Context, what string, sb orchestrator.Sandbox, kind byte, payload func() []byte, repeatable bool) (a answer, err error) {
	err = c.converse(ctx, what, sb, repeatable, func(s *session) (err error) {
		a, err = s.ask(ctx, kind, payload())
		return err
	})
	return a, err
}

// converse has one exchange with a helper as soon as the guest can be reached.
// One that is repeatable is had again after a loss.
func (c *Client) converse(ctx context.Context, what string, sb orchestrator.Sandbox, repeatable bool, exchange func(*session) error) error {
	var last error
	for {
		g, s, err := c.session(ctx, sb)
		if err == nil {
			err = exchange(s)
			var ended *cut
			severed := errors.As(err, &ended)
			g.release(s, err == nil || isRefusal(err) || severed)
			if err == nil {
				return nil
			}
			if isRefusal(err) {
				return fmt.Errorf("%s %s: %w", what, sb.Name, err)
			}
			if !repeatable {
				return fmt.Errorf("%s %s: %w: %w", what, sb.Name, orchestrator.ErrUnknownOutcome, err)
			}
			last = err
		} else if last == nil || ctx.Err() == nil {
			last = err // an error that ctx itself made would hide the cause
		}
		if hopeless(last) {
			return unreached(what, sb, last)
		}
		select {
		case <-time.After(c.cfg.RetryInterval):
		case <-ctx.Done():
			err := unreached(what, sb, last)
			if !errors.Is(err, ctx.Err()) {
				err = fmt.Errorf("%w (%w)", err, ctx.Err())
			}
			return err
		}
	}
}

// ask asks the helper and waits. After any error but a refusal the question
// may have reached it, and the session is of no more use.
func (s *session) ask(ctx context.Context, kind byte, payload []byte) (a answer, err error) {
	began := time.Now()
	if err := s.send(kind, payload); err != nil {
		return a, err
	}
	var f wire.Frame
	ok := false
	select {
	case f, ok = <-s.in:
	case <-s.dead:
	case <-s.link.done:
		return a, fmt.Errorf("connection lost: %w", s.link.err)
	case <-ctx.Done():
		return a, ctx.Err()
	}
	if !ok {
		return a, errors.New("the helper in the guest ended: " + s.stderr.String())
	}
	switch f.Kind {
	case wire.Refusal:
		return a, refused(f.Payload)
	case wire.Answer:
		a, err = answered(f.Payload)
		a.facts.RoundTrip = time.Since(began)
		return a, err
	}
	return a, errAnswer
}

var errAnswer = errors.New("the helper's answer is not readable")

// answered reads an answer frame.
func answered(payload []byte) (a answer, err error) {
	fields, err := wire.DecodeFields(payload)
	if err != nil || len(fields) < 5 || a.more(fields[5:]) != nil {
		return a, errAnswer
	}
	sec, err1 := strconv.ParseInt(fields[2], 10, 64)
	nano, err2 := strconv.ParseInt(fields[3], 10, 64)
	if err1 != nil || err2 != nil {
		return a, errors.New("the guest's clock is not readable")
	}
	a.facts = orchestrator.GuestFacts{
		BootID: fields[0], Generation: fields[1],
		Clock: time.Unix(sec, nano), Writes: a.writes,
	}
	a.hold = fields[4]
	return a, nil
}
