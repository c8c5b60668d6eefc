package sshexec

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"
	"time"

	"savepoint/orchestrator"
	"savepoint/orchestrator/sshexec/wire"
	"savepoint/policy"
)

const (
	defaultLimit = 1 << 20
	stdinSize    = 32 << 10 // longest stdin frame
)

// backstop is how much later than the client the guest enforces a deadline by
// itself, for the case that the order to kill cannot reach it.
const backstop = 5 * time.Second

// Run implements orchestrator.Executor. The context's end kills the command
// like its deadline does; the error is then the context's cause if the guest
// confirmed that all is gone, with a result that holds the output so far, and
// ErrUnknownOutcome if not. A working directory that cannot be entered is a
// *DirectoryError; the command did not start.
func (c *Client) Run(ctx context.Context, sb orchestrator.Sandbox, p policy.Permit, r orchestrator.ExecRequest) (orchestrator.ExecResult, error) {
	order, err := runOrder(p, r)
	if err != nil {
		return orchestrator.ExecResult{}, fmt.Errorf("run on sandbox %s: %w: %w", sb.Name, orchestrator.ErrDenied, err)
	}
	g, s, err := c.session(ctx, sb)
	if err != nil {
		return orchestrator.ExecResult{}, unreached("run on sandbox", sb, err)
	}
	res, reusable, err := s.run(ctx, c.cfg, order, r)
	g.release(s, reusable)
	if dir := directoryError(r.Dir, err); dir != nil {
		return res, dir // the caller, who named it, knows what was to run where
	}
	if err != nil {
		err = fmt.Errorf("run on sandbox %s: %w", sb.Name, err)
	}
	return res, err
}

// DirectoryError says that the working directory that was asked for cannot be
// entered, so that the command did not start. It has the class ErrNotFound when
// there is no such directory, and ErrDenied when the account may not enter it.
type DirectoryError struct {
	Dir   string
	Cause string // what the guest said
	class error
}

func (e *DirectoryError) Error() string {
	mend := "use a directory that exists in the sandbox"
	if errors.Is(e.class, orchestrator.ErrDenied) {
		mend = "use a directory that the account may enter"
	}
	return fmt.Sprintf("working directory %s: %s; %s", e.Dir, e.Cause, mend)
}
func (e *DirectoryError) Unwrap() error { return e.class }

// directoryError makes the helper's refusal of the directory one, and nil of
// every other error. Nobody asked for the directory "": what is wrong with the
// user's home is the guest's affair.
func directoryError(dir string, err error) *DirectoryError {
	var no *refusal
	if dir == "" || !errors.As(err, &no) {
		return nil
	}
	cause, ok := strings.CutPrefix(no.text, "working directory "+dir+": ") // helper.pl says it so
	if !ok {
		return nil
	}
	return &DirectoryError{Dir: dir, Cause: cause, class: no.class}
}

// runOrder builds the payload of a run frame. Its fields are the account, the
// directory, the guest's own deadline in milliseconds, "1" for a stdin, letters of
// how it ends, the command, and one NAME=VALUE each for the environment.
func runOrder(p policy.Permit, r orchestrator.ExecRequest) ([]byte, error) {
	if !p.Valid() {
		return nil, errors.New("no permit of the policy")
	}
	if p.User() != policy.Agent && p.User() != policy.Root {
		return nil, fmt.Errorf("account %q is neither agent nor root", p.User())
	}
	if r.Timeout < 0 {
		return nil, fmt.Errorf("a timeout of %s", r.Timeout)
	}
	millis := int64(0)
	if r.Timeout > 0 {
		millis = (r.Timeout + backstop).Milliseconds()
	}
	stdin := ""
	if r.Stdin != nil {
		stdin = "1"
	}
	how := ""
	if r.Capture {
		how += wire.HowCapture
	}
	if p.NeedsBoundary() {
		how += wire.HowSync
	}
	if r.Health {
		how += wire.HowHealth
	}
	fields := []string{string(p.User()), r.Dir, strconv.FormatInt(millis, 10), stdin, how, p.Command()}
	for k, v := range r.Env {
		if err := checkName(k); err != nil {
			return nil, err
		}
		fields = append(fields, k+"="+v)
	}
	for _, f := range fields {
		if strings.ContainsRune(f, 0) {
			return nil, errors.New("a zero byte in the command, its directory or its environment")
		}
	}
	return wire.EncodeFields(fields...), nil
}

// checkName refuses names that are none, and those that make a shell or the
// dynamic loader run text which the policy has not seen.
func checkName(name string) error {
	for i, b := range []byte(name) {
		if b != '_' && (b|0x20 < 'a' || b|0x20 > 'z') && (i == 0 || b < '0' || b > '9') {
			return fmt.Errorf("environment name %q", name)
		}
	}
	switch name {
	case "", "BASH_ENV", "ENV", "SHELLOPTS", "BASHOPTS", "PS4", "PROMPT_COMMAND", "IFS":
		return fmt.Errorf("environment name %q", name)
	}
	if strings.HasPrefix(name, "LD_") || strings.HasPrefix(name, "BASH_FUNC_") {
		return fmt.Errorf("environment name %q", name)
	}
	return nil
}

// Why a command is being ended.
const (
	notEnded = iota
	endedByDeadline
	endedByContext
)

// turn is one command's use of a session.
type turn struct {
	s *session

	mu     sync.Mutex
	over   bool // nothing more may be sent for this command
	ended  int
	giveUp *time.Timer

	away int           // bytes of stdin sent and not yet taken
	room chan struct{} // holds a token after away shrank
	done chan struct{} // closed with the turn
}

// send writes a frame unless the turn is over: a late frame would be taken as
// one of the next command's. It may block for as long as the link is stuck, so
// it must not hold the lock that ends the turn.
func (t *turn) send(kind byte, payload []byte) bool {
	t.s.wmu.Lock()
	defer t.s.wmu.Unlock()
	t.mu.Lock()
	over := t.over
	t.mu.Unlock()
	return !over && t.s.write(kind, payload) == nil
}

// end orders the kill, once, and gives the session up when no confirmation
// comes in time.
func (t *turn) end(why int, patience time.Duration) {
	t.mu.Lock()
	if t.over || t.ended != notEnded {
		t.mu.Unlock()
		return
	}
	t.ended = why
	t.giveUp = time.AfterFunc(patience, t.s.close)
	t.mu.Unlock()
	t.send(wire.Kill, nil)
}

// close ends the turn and returns why the command was ended, if it was. A
// session that goes on is quiet when close returns.
func (t *turn) close(goesOn bool) int {
	t.mu.Lock()
	t.over = true
	if t.giveUp != nil {
		t.giveUp.Stop()
	}
	close(t.done)
	ended := t.ended
	t.mu.Unlock()
	if goesOn {
		t.s.wmu.Lock()
		t.s.wmu.Unlock() //nolint:staticcheck // only waits for a frame that is being written
	}
	return ended
}

func (s *session) run(ctx context.Context, cfg Config, order []byte, r orchestrator.ExecRequest) (res orchestrator.ExecResult, reusable bool, err error) {
	t := &turn{s: s, room: make(chan struct{}, 1), done: make(chan struct{})}
	began := cfg.Now()
	if s.send(wire.Run, order) != nil {
		return res, false, fmt.Errorf("%w: the connection was lost while the command was sent", orchestrator.ErrUnknownOutcome)
	}
	if r.Timeout > 0 {
		timer := time.AfterFunc(r.Timeout, func() { t.end(endedByDeadline, cfg.KillTimeout) })
		defer timer.Stop()
	}
	stop := context.AfterFunc(ctx, func() { t.end(endedByContext, cfg.KillTimeout) })
	defer stop()
	if r.Stdin != nil {
		go t.pump(r.Stdin)
	}
	limit := r.Limit
	if limit <= 0 {
		limit = defaultLimit
	}
	out, errs := capture{limit: limit, to: r.Stdout}, capture{limit: limit, to: r.Stderr}
	end, err := t.collect(&out, &errs)
	var no *refusal
	ended := t.close(err == nil || errors.As(err, &no))
	res = orchestrator.ExecResult{
		ExitCode: end.code, Signal: end.signal,
		Stdout: out.kept, Stderr: errs.kept, StdoutBytes: out.total, StderrBytes: errs.total,
		Truncated: out.total > limit || errs.total > limit,
		Duration:  cfg.Now().Sub(began),
		Session:   end.session,
		Health:    end.health,
	}
	if res.Health != nil { // it was said before the end, and the end is what the caller can tell the time of
		res.Health.RoundTrip = res.Duration
	}
	if err != nil {
		return res, no != nil, err
	}
	if !end.gone {
		return res, false, fmt.Errorf("%w: processes of the command could not be killed", orchestrator.ErrUnknownOutcome)
	}
	switch {
	case end.reason == "deadline" || end.reason == "kill" && ended == endedByDeadline:
		res.TimedOut = true
	case end.reason == "kill":
		err = fmt.Errorf("ended with everything it started: %w", context.Cause(ctx))
	}
	return res, true, err
}

// collect reads the helper's frames until the command's end.
func (t *turn) collect(out, errs *capture) (end ending, err error) {
	end.code = -1
	var session *orchestrator.Session
	var health *orchestrator.GuestHealth
	for {
		var f wire.Frame
		ok := false
		select {
		case f, ok = <-t.s.in:
		case <-t.s.dead:
		case <-t.s.link.done:
		}
		if !ok {
			return end, fmt.Errorf("%w: %s", orchestrator.ErrUnknownOutcome, t.loss())
		}
		switch f.Kind {
		case wire.Stdout:
			out.write(f.Payload)
		case wire.Stderr:
			errs.write(f.Payload)
		case wire.Ack:
			if len(f.Payload) == 4 {
				t.taken(int(binary.BigEndian.Uint32(f.Payload)))
			}
		case wire.Refusal:
			return end, refused(f.Payload)
		case wire.Session:
			session = sessionOf(f.Payload)
		case wire.Answer: // one that cannot be read is as good as none: there will be a question
			if a, err := answered(f.Payload); err == nil {
				health = a.health()
			}
		case wire.Exit:
			if end, err = endOf(f.Payload); err == nil && end.reason == "" {
				end.health = health
				if end.signal == "" {
					end.session = session
				}
			}
			return end, err
		}
	}
}

func (t *turn) loss() string {
	select {
	case <-t.s.link.done:
		return "connection lost: " + t.s.link.err.Error()
	default:
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ended != notEnded {
		return "the guest did not confirm the end of the command"
	}
	return "the helper in the guest ended: " + t.s.stderr.String()
}

// pump sends stdin, never more than the helper has room for, so that an order
// to kill is never stuck behind data that the command does not read.
func (t *turn) pump(r io.Reader) {
	buf := make([]byte, stdinSize)
	for {
		n, err := r.Read(buf)
		if n > 0 && !t.send(wire.Stdin, buf[:n]) {
			return
		}
		if err != nil {
			t.send(wire.EOF, nil)
			return
		}
		for t.taken(-n) > wire.StdinAway-stdinSize {
			n = 0
			select {
			case <-t.room:
			case <-t.done:
				return
			}
		}
	}
}

// taken notes n bytes of stdin as taken by the command and returns how many
// are still on their way.
func (t *turn) taken(n int) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.away -= n
	if n > 0 {
		select {
		case t.room <- struct{}{}:
		default:
		}
	}
	return t.away
}

// capture keeps the first bytes of a stream, counts all, and hands them on.
type capture struct {
	kept  []byte
	total int64
	limit int64
	to    io.Writer
}

func (c *capture) write(p []byte) {
	if room := c.limit - int64(len(c.kept)); room > 0 {
		c.kept = append(c.kept, p[:min(room, int64(len(p)))]...)
	}
	c.total += int64(len(p))
	if c.to != nil {
		if _, err := c.to.Write(p); err != nil {
			c.to = nil
		}
	}
}
