package qemu

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"time"

	"savepoint/orchestrator"
	"savepoint/testbed/pve"
)

// agentChannel talks to one guest's agent: one call at a time.
//
// The channel is a serial line. What an earlier call left in it, and what was
// on its way when the memory was saved, is still there: so a channel whose
// state is not known is synchronised first. A 0xFF byte makes the agent drop
// half a command; guest-sync-delimited makes it answer 0xFF and our number, and
// everything before that is old.
type agentChannel struct {
	dial    func(ctx context.Context) (net.Conn, error)
	patient time.Duration // how long an agent may take to answer a synchronisation

	turn chan struct{} // holds one token: whose turn it is
	conn net.Conn
	in   *bufio.Reader
	sync bool // the channel's state is known
}

// maxAgentAnswer bounds one line of the agent: a guest is not trusted.
const maxAgentAnswer = 64 << 20

// agentCommandLimit bounds a command when the caller sets no deadline.
const agentCommandLimit = time.Minute

func newAgentChannel(dial func(ctx context.Context) (net.Conn, error), patient time.Duration) *agentChannel {
	a := &agentChannel{dial: dial, patient: patient, turn: make(chan struct{}, 1)}
	a.turn <- struct{}{}
	return a
}

// call sends one command and returns the "return" value.
func (a *agentChannel) call(ctx context.Context, command string, args any) (json.RawMessage, error) {
	select {
	case <-a.turn:
	case <-ctx.Done():
		return nil, fmt.Errorf("guest agent %s: waiting for another command: %w (%w)", command, orchestrator.ErrBusy, ctx.Err())
	}
	defer func() { a.turn <- struct{}{} }()

	err := a.synchronise(ctx)
	if err == nil && !a.sync { // the answer came as the patience ended
		err = context.DeadlineExceeded
	}
	if err != nil {
		a.drop()
		return nil, fmt.Errorf("guest agent %s: %w: the agent does not answer (%w)", command, orchestrator.ErrUnavailable, err)
	}
	limit, cancel := context.WithTimeout(ctx, agentCommandLimit)
	defer cancel()
	if _, ok := ctx.Deadline(); ok {
		limit = ctx
	}
	out, err := a.exchange(limit, command, args)
	var refused *pve.AgentError
	if err != nil && !errors.As(err, &refused) {
		a.drop()
		return nil, fmt.Errorf("guest agent %s: %w: no answer (%w)", command, orchestrator.ErrUnknownOutcome, err)
	}
	return out, err
}

// close ends the channel after the call in progress, if any.
func (a *agentChannel) close() {
	<-a.turn
	a.drop()
	a.turn <- struct{}{}
}

func (a *agentChannel) drop() {
	if a.conn != nil {
		_ = a.conn.Close()
	}
	a.conn, a.in, a.sync = nil, nil, false
}

// synchronise brings the channel into a known state.
func (a *agentChannel) synchronise(ctx context.Context) error {
	if a.sync {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, a.patient)
	defer cancel()
	if a.conn == nil {
		conn, err := a.dial(ctx)
		if err != nil {
			return err
		}
		a.conn, a.in = conn, bufio.NewReaderSize(conn, 64<<10)
	}
	// The agent reads numbers as signed 64 bits; JSON readers like 53.
	id := rand.Int64N(1 << 52)
	line, err := json.Marshal(map[string]any{"execute": "guest-sync-delimited", "arguments": map[string]int64{"id": id}})
	if err != nil {
		return err
	}
	stop := a.guard(ctx)
	defer stop()
	if _, err := a.conn.Write(append(append([]byte{0xff}, line...), '\n')); err != nil {
		return cause(ctx, err)
	}
	for {
		if err := a.skipTo(0xff); err != nil {
			return cause(ctx, err)
		}
		text, err := a.line()
		if err != nil {
			return cause(ctx, err)
		}
		var m struct {
			Return int64 `json:"return"`
		}
		// An answer to an older synchronisation is not ours.
		if json.Unmarshal(text, &m) == nil && m.Return == id {
			a.sync = true
			return nil
		}
	}
}

// skipTo drops bytes up to and with the delimiter, without collecting them.
func (a *agentChannel) skipTo(delim byte) error {
	for {
		b, err := a.in.ReadByte()
		if err != nil {
			return err
		}
		if b == delim {
			return nil
		}
	}
}

// line reads one line of at most maxAgentAnswer bytes.
func (a *agentChannel) line() ([]byte, error) {
	var out []byte
	for {
		part, err := a.in.ReadSlice('\n')
		out = append(out, part...)
		if len(out) > maxAgentAnswer {
			return nil, fmt.Errorf("answer longer than %d bytes", maxAgentAnswer)
		}
		if err == nil {
			return bytes.TrimLeft(out, "\xff"), nil
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return nil, err
		}
	}
}

func (a *agentChannel) exchange(ctx context.Context, command string, args any) (json.RawMessage, error) {
	line, err := json.Marshal(struct {
		Execute   string `json:"execute"`
		Arguments any    `json:"arguments,omitempty"`
	}{command, args})
	if err != nil {
		return nil, err
	}
	stop := a.guard(ctx)
	defer stop()
	if _, err := a.conn.Write(append(line, '\n')); err != nil {
		return nil, cause(ctx, err)
	}
	text, err := a.line()
	if err != nil {
		return nil, cause(ctx, err)
	}
	var m struct {
		Return json.RawMessage `json:"return"`
		Error  *struct {
			Class string `json:"class"`
			Desc  string `json:"desc"`
		} `json:"error"`
	}
	if err := json.Unmarshal(text, &m); err != nil {
		return nil, fmt.Errorf("answer not understood: %w", err)
	}
	if m.Error != nil {
		return nil, &pve.AgentError{Class: m.Error.Class, Desc: m.Error.Desc}
	}
	return m.Return, nil
}

// guard makes the end of ctx end reads and writes of the connection. The
// returned function lifts that; when it comes too late the connection is given
// up, because a deadline in the past would fail the next call.
func (a *agentChannel) guard(ctx context.Context) func() {
	conn := a.conn
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	return func() {
		if !stop() {
			a.drop()
		}
	}
}

func cause(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}
