package sshexec

import (
	"bufio"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"

	"golang.org/x/crypto/ssh"

	"savepoint/orchestrator/sshexec/wire"
)

//go:embed helper.pl
var helperLoop string

//go:embed examine.pl
var helperRest string

//go:embed workspace.pl
var helperVolume string

//go:embed workspace_btrfs.pl
var helperBtrfs string

var helperText = helperLoop + helperRest + helperVolume + helperBtrfs

// HelperCommand is the one command line that ever reaches a sandbox's shell. It
// holds no data but the length of the helper's text, which follows on stdin.
// A simulated guest recognises it and serves the frames itself.
func HelperCommand() string {
	return fmt.Sprintf(`exec perl -e 'my ($n, $t) = (%d, ""); while (length $t < $n) { sysread STDIN, $t, $n - length $t, length $t or exit 97 } eval $t; print STDERR $@; exit 98'`, len(helperText))
}

// HelperLength is the number of bytes that follow HelperCommand on stdin
// before the first frame.
func HelperLength() int { return len(helperText) }

// session is one helper in the guest.
type session struct {
	link *link
	ch   ssh.Channel
	hold string          // how it holds commands together: "cgroup", "freeze", "tree"
	in   chan wire.Frame // closed when the helper's output ended
	dead chan struct{}
	once sync.Once

	wmu    sync.Mutex // one frame at a time
	stderr tail
}

// open starts a helper over the link. No command is on its way before the
// helper has greeted, so every error here means that nothing ran.
// With volume the sandbox has a workspace volume.
func open(ctx context.Context, l *link, volume bool) (*session, error) {
	type result struct {
		s   *session
		err error
	}
	got := make(chan result)
	go func() {
		s, err := start(l, volume)
		select {
		case got <- result{s, err}:
		case <-ctx.Done():
			if s != nil {
				s.close()
			}
		}
	}()
	var s *session
	select {
	case r := <-got:
		if r.err != nil {
			return nil, r.err
		}
		s = r.s
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-l.done:
		return nil, l.err
	}
	select {
	case f, ok := <-s.in:
		if ok && f.Kind == wire.Hello && len(f.Payload) > 0 {
			if fields, err := wire.DecodeFields(f.Payload); err == nil && len(fields) == 1 {
				s.hold = fields[0]
				return s, nil
			}
		}
		s.close()
		return nil, fmt.Errorf("helper did not start in the guest (it needs perl-base): %s", s.stderr.String())
	case <-ctx.Done():
		s.close()
		return nil, ctx.Err()
	case <-l.done:
		s.close()
		return nil, l.err
	}
}

func start(l *link, volume bool) (*session, error) {
	ch, reqs, err := l.client.OpenChannel("session", nil)
	if err != nil {
		return nil, err
	}
	s := &session{link: l, ch: ch, in: make(chan wire.Frame), dead: make(chan struct{})}
	go ssh.DiscardRequests(reqs)
	go io.Copy(&s.stderr, ch.Stderr()) //nolint:errcheck // ends with the channel
	go s.read()
	ok, err := ch.SendRequest("exec", true, ssh.Marshal(struct{ Command string }{HelperCommand()}))
	if err == nil && !ok {
		err = errors.New("sshd refuses to run commands")
	}
	if err == nil {
		_, err = io.WriteString(ch, helperText)
	}
	if err == nil && volume {
		err = s.send(wire.Volume, nil)
	}
	if err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

// read hands on what the helper says until its end. Signs of life end here:
// they are for the guest's side, whose kernel then notices a lost connection.
func (s *session) read() {
	defer close(s.in)
	r := bufio.NewReaderSize(s.ch, 64<<10)
	if wire.ReadGreeting(r) != nil {
		return
	}
	for {
		f, err := wire.Read(r)
		if err != nil {
			return
		}
		if f.Kind == wire.Hello && len(f.Payload) == 0 {
			continue
		}
		select {
		case s.in <- f:
		case <-s.dead:
			return
		}
	}
}

// send writes one frame.
func (s *session) send(kind byte, payload []byte) error {
	s.wmu.Lock()
	defer s.wmu.Unlock()
	return s.write(kind, payload)
}

// write is send for a caller that holds wmu.
func (s *session) write(kind byte, payload []byte) error {
	_, err := s.ch.Write(wire.Encode(kind, payload))
	return err
}

// close gives the session up. The helper sees the end of its input, kills its
// command with everything that it started, and ends.
func (s *session) close() {
	s.once.Do(func() {
		close(s.dead)
		go s.ch.Close()
	})
}

func (s *session) alive() bool {
	select {
	case <-s.dead:
		return false
	case <-s.link.done:
		return false
	default:
		return true
	}
}

// tail keeps the first bytes of what the helper's perl complained about.
type tail struct {
	mu  sync.Mutex
	buf []byte
}

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if room := 1024 - len(t.buf); room > 0 {
		t.buf = append(t.buf, p[:min(room, len(p))]...)
	}
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.buf) == 0 {
		return "no message"
	}
	return strings.TrimSpace(string(t.buf))
}
