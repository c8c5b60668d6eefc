package qemu

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"savepoint/orchestrator"
	"savepoint/testbed/pve"
)

// fakeAgent behaves like a guest agent at the far end of a serial line: it
// drops what it has collected at 0xFF, and answers one line per command.
type fakeAgent struct {
	mu       sync.Mutex
	stale    string // bytes that are in the line before anything else
	mute     bool
	syncs    int
	commands []string
	shutdown func() // told of guest-shutdown, which is never answered
	wg       sync.WaitGroup
}

func (f *fakeAgent) dial(context.Context) (net.Conn, error) {
	ours, theirs := net.Pipe()
	f.wg.Go(func() { f.serve(theirs) })
	return ours, nil
}

func (f *fakeAgent) serve(c net.Conn) {
	defer c.Close()
	// A serial line is buffered: writing never waits for the reader.
	out := make(chan string, 64)
	f.wg.Go(func() {
		for s := range out {
			if _, err := c.Write([]byte(s)); err != nil {
				for range out {
				}
				return
			}
		}
	})
	defer close(out)
	f.mu.Lock()
	if f.stale != "" {
		out <- f.stale
		f.stale = ""
	}
	f.mu.Unlock()
	in := bufio.NewReader(c)
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			return
		}
		if i := bytes.LastIndexByte(line, 0xff); i >= 0 {
			line = line[i+1:]
		}
		var m struct {
			Execute   string
			Arguments json.RawMessage
		}
		if json.Unmarshal(line, &m) != nil {
			out <- `{"error": {"class": "GenericError", "desc": "JSON parse error"}}` + "\n"
			continue
		}
		f.mu.Lock()
		mute := f.mute
		if m.Execute == "guest-sync-delimited" {
			f.syncs++
		} else {
			f.commands = append(f.commands, m.Execute)
		}
		f.mu.Unlock()
		if mute {
			continue
		}
		switch m.Execute {
		case "guest-sync-delimited":
			var a struct{ ID int64 }
			_ = json.Unmarshal(m.Arguments, &a)
			out <- fmt.Sprintf("\xff{\"return\": %d}\n", a.ID)
		case "guest-ping":
			out <- "{\"return\": {}}\n"
		case "guest-file-read":
			out <- `{"return": {"buf-b64": "` + strings.Repeat("A", 200<<10) + `"}}` + "\n"
		case "guest-shutdown":
			f.shutdown()
		default:
			out <- `{"error": {"class": "CommandNotFound", "desc": "The command ` + m.Execute + ` has not been found"}}` + "\n"
		}
	}
}

func newFakeChannel(t *testing.T, f *fakeAgent) *agentChannel {
	a := newAgentChannel(f.dial, time.Minute)
	t.Cleanup(func() { a.close(); f.wg.Wait() })
	return a
}

func TestAgentCalls(t *testing.T) {
	f := &fakeAgent{}
	a := newFakeChannel(t, f)
	ctx := context.Background()
	if got, err := a.call(ctx, "guest-ping", nil); err != nil || string(got) != "{}" {
		t.Errorf("ping: %s, %v", got, err)
	}
	if got, err := a.call(ctx, "guest-file-read", map[string]int{"handle": 1}); err != nil || len(got) < 200<<10 {
		t.Errorf("long answer: %d bytes, %v", len(got), err)
	}
	var refused *pve.AgentError
	if _, err := a.call(ctx, "nonsense", nil); !errors.As(err, &refused) || refused.Class != "CommandNotFound" {
		t.Errorf("refusal: %v", err)
	}
	if f.syncs != 1 {
		t.Errorf("%d synchronisations for one connection, want 1", f.syncs)
	}
}

// F98: after a resume the line holds what was on its way when the memory was
// saved: half an answer, and the answer to somebody else's synchronisation.
func TestAgentDropsStaleBytes(t *testing.T) {
	for name, stale := range map[string]string{
		"half an answer":        `{"return": {"pid": 12`,
		"whole answers":         "{\"return\": {}}\n{\"return\": 7}\n",
		"older synchronisation": "\xff{\"return\": 12345}\n",
		"delimiters":            "\xff\xff\xff",
	} {
		t.Run(name, func(t *testing.T) {
			f := &fakeAgent{stale: stale}
			a := newFakeChannel(t, f)
			for range 3 {
				if got, err := a.call(context.Background(), "guest-ping", nil); err != nil || string(got) != "{}" {
					t.Errorf("got %s, %v", got, err)
				}
			}
		})
	}
}

// F89: waiting for an agent is bounded, and a silent one is told apart from
// one that was asked and did not answer.
func TestAgentSilence(t *testing.T) {
	f := &fakeAgent{mute: true}
	a := newFakeChannel(t, f)
	ctx := context.Background()
	a.patient = 50 * time.Millisecond
	if _, err := a.call(ctx, "guest-ping", nil); !errors.Is(err, orchestrator.ErrUnavailable) || errors.Is(err, orchestrator.ErrUnknownOutcome) {
		t.Errorf("silent agent: %v", err)
	}
	if len(f.commands) != 0 {
		t.Errorf("commands sent to a silent agent: %v", f.commands)
	}
	a.patient = time.Minute
	short, cancel := context.WithCancel(ctx)
	defer cancel()
	f.mu.Lock()
	f.mute, f.shutdown = false, cancel
	f.mu.Unlock()
	if _, err := a.call(short, "guest-shutdown", nil); !errors.Is(err, orchestrator.ErrUnknownOutcome) {
		t.Errorf("no answer: %v", err)
	}
	// The next call starts from a known state again.
	if _, err := a.call(ctx, "guest-ping", nil); err != nil {
		t.Errorf("after a lost answer: %v", err)
	}
}

// lateConn gives an answer in the moment in which the caller's patience ends.
type lateConn struct {
	net.Conn
	end func()
}

func (c lateConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n > 0 {
		c.end()
	}
	return n, err
}

func (lateConn) SetDeadline(time.Time) error { return nil }

// An agent that answers the synchronisation as the patience with it ends is one
// that does not answer: nothing was asked of it.
func TestAgentAnswersTooLate(t *testing.T) {
	f := &fakeAgent{}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	a := newAgentChannel(func(ctx context.Context) (net.Conn, error) {
		conn, err := f.dial(ctx)
		return lateConn{conn, cancel}, err
	}, time.Minute)
	t.Cleanup(func() { a.close(); f.wg.Wait() })
	if _, err := a.call(ctx, "guest-ping", nil); !errors.Is(err, orchestrator.ErrUnavailable) {
		t.Errorf("got %v", err)
	}
	if len(f.commands) != 0 {
		t.Errorf("commands sent: %v", f.commands)
	}
	if _, err := a.call(t.Context(), "guest-ping", nil); err != nil {
		t.Errorf("the next call: %v", err)
	}
}

func TestAgentOneCallAtATime(t *testing.T) {
	f := &fakeAgent{}
	a := newFakeChannel(t, f)
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			if _, err := a.call(context.Background(), "guest-ping", nil); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	<-a.turn
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
	defer cancel()
	if _, err := a.call(ctx, "guest-ping", nil); !errors.Is(err, orchestrator.ErrBusy) {
		t.Errorf("while another call runs: %v", err)
	}
	a.turn <- struct{}{}
}
