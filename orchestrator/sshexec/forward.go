package sshexec

import (
	"bufio"
	"bytes"
	"context"
	_ "embed"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"

	"golang.org/x/crypto/ssh"

	"savepoint/orchestrator"
	"savepoint/orchestrator/sshexec/wire"
)

//go:embed forward.pl
var forwardText string

const (
	forwardGreeting = "\x00savepoint-forward-1\x00\n"
	// ForwardMost is how many connections a Forward carries at once; more wait in
	// the guest.
	ForwardMost = 16
	// forwardWindow is how many bytes of one connection and direction may be under
	// way unacknowledged; forwardPiece the longest frame.
	forwardWindow, forwardPiece = 256 << 10, 32 << 10
)

// The kinds of frames. A connection is over when both sides have sent its end.
const (
	forwardListens = 'L' // guest: port (uint32)
	forwardAlive   = 'H' // guest: a sign of life
	forwardOpen    = 'O' // guest: there is a connection
	forwardData    = 'D'
	forwardAck     = 'A' // so many bytes (uint32) were taken
	forwardEnd     = 'Z' // no more data
	forwardReset   = 'X' // the connection failed; forget it
)

// Forward is a port of the loopback of a guest whose connections end on our side.
type Forward struct {
	Port int // in the guest, on 127.0.0.1

	stream io.ReadWriteCloser
	cancel context.CancelFunc
	done   chan struct{}
	err    error // why it ended; read after done

	wmu  sync.Mutex // one frame at a time
	mu   sync.Mutex
	open map[uint32]*forwarded
	all  sync.WaitGroup
}

// Forward listens on a free port of 127.0.0.1 in the guest. For each connection
// that a program of the guest makes there dial opens the other end; what dial
// reaches is all that the guest gets to reach. ctx ends the forward as Close does.
// So does the end of the sandbox's connection, and with it every rollback: begin
// anew after one.
//
// It does not use sshd's own forwarding, which guests may have forbidden: a program
// is sent to the guest's perl, over a session of the kept connection. The port is
// open to every process in the guest, so what is behind it needs no secret of ours.
func (c *Client) Forward(ctx context.Context, sb orchestrator.Sandbox, dial func(context.Context) (net.Conn, error)) (*Forward, error) {
	const what = "forward a port of sandbox"
	g, err := c.guest(sb)
	if err != nil {
		return nil, unreached(what, sb, err)
	}
	select { // it counts as a session: sshd has only so many
	case g.turns <- struct{}{}:
	case <-ctx.Done():
		return nil, unreached(what, sb, context.Cause(ctx))
	case <-g.slot.done:
		return nil, unreached(what, sb, errDisconnected)
	}
	fail := func(err error) (*Forward, error) {
		<-g.turns
		return nil, unreached(what, sb, err)
	}
	ch, err := c.probeChannel(ctx, g)
	if err != nil {
		return fail(err)
	}
	complaint := &tail{}
	go io.Copy(complaint, ch.Stderr()) //nolint:errcheck // ends with the channel
	ok, err := ch.SendRequest("exec", true, ssh.Marshal(struct{ Command string }{ForwardCommand()}))
	if err == nil && !ok {
		err = errors.New("sshd refuses to run commands")
	}
	if err != nil {
		ch.Close()
		return fail(err)
	}
	f, err := ForwardOver(ctx, ch, dial)
	if err != nil {
		if errors.Is(err, io.EOF) {
			err = fmt.Errorf("the program ended in the guest (it needs perl-base): %s", complaint.String())
		}
		return fail(err)
	}
	go func() {
		<-f.done
		<-g.turns
	}()
	return f, nil
}

// ForwardCommand is the command line that forwards. It holds no data but the
// length of the program, which follows on stdin.
func ForwardCommand() string {
	return strings.Replace(ProbeCommand(), fmt.Sprintf("(%d,", len(probeText)), fmt.Sprintf("(%d,", len(forwardText)), 1)
}

// ForwardOver sends the program that ForwardCommand waits for and returns when it
// listens. The stream is the Forward's from then on, and closed with an error.
func ForwardOver(ctx context.Context, stream io.ReadWriteCloser, dial func(context.Context) (net.Conn, error)) (*Forward, error) {
	ctx, cancel := context.WithCancel(ctx)
	f := &Forward{stream: stream, cancel: cancel, done: make(chan struct{}), open: map[uint32]*forwarded{}}
	stop := context.AfterFunc(ctx, func() { stream.Close() })
	r := bufio.NewReader(stream)
	if err := f.begin(r); err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		stop()
		cancel()
		stream.Close()
		return nil, err
	}
	go func() {
		err := f.serve(ctx, r, dial)
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		f.err = err
		cancel()
		stop()
		stream.Close()
		f.mu.Lock()
		for _, c := range f.open {
			c.drop()
		}
		f.mu.Unlock()
		f.all.Wait()
		close(f.done)
	}()
	return f, nil
}

// Done is closed when the forward has ended, and nothing of it is left.
func (f *Forward) Done() <-chan struct{} { return f.done }

// Err says why it ended, after Done.
func (f *Forward) Err() error {
	<-f.done
	return f.err
}

// Close ends every connection and the port, and waits for our side of it.
func (f *Forward) Close() {
	f.cancel()
	<-f.done
}

func (f *Forward) begin(r *bufio.Reader) error {
	if _, err := fmt.Fprintf(f.stream, "%s%d %d\n", forwardText, ForwardMost, forwardWindow); err != nil {
		return err
	}
	greeting := make([]byte, len(forwardGreeting))
	if _, err := io.ReadFull(r, greeting); err != nil {
		return fmt.Errorf("no greeting: %w", io.EOF)
	}
	if !bytes.Equal(greeting, []byte(forwardGreeting)) {
		return errors.New("the program's greeting is another one: does a start-up file of root print something?")
	}
	kind, _, data, err := readForward(r)
	if err != nil || kind != forwardListens || len(data) != 4 {
		return errors.New("the program does not say where it listens")
	}
	f.Port = int(binary.BigEndian.Uint32(data))
	return nil
}

func readForward(r *bufio.Reader) (kind byte, id uint32, data []byte, err error) {
	frame, err := wire.Read(r)
	if err != nil {
		return 0, 0, nil, err
	}
	if len(frame.Payload) < 4 {
		return 0, 0, nil, errors.New("the program in the guest sent half a frame")
	}
	return frame.Kind, binary.BigEndian.Uint32(frame.Payload), frame.Payload[4:], nil
}

// serve reads frames until the stream ends or what it says makes no sense.
func (f *Forward) serve(ctx context.Context, r *bufio.Reader, dial func(context.Context) (net.Conn, error)) error {
	for {
		kind, id, data, err := readForward(r)
		if err != nil {
			return err
		}
		f.mu.Lock()
		c, many := f.open[id], len(f.open)
		f.mu.Unlock()
		switch kind {
		case forwardAlive:
		case forwardOpen:
			switch {
			case c != nil:
				return errors.New("the program in the guest opened a connection twice")
			case many < 2*ForwardMost: // those that are over there may not be over here yet
				f.accept(ctx, id, dial)
			default:
				if err := f.send(forwardReset, id, nil); err != nil {
					return err
				}
			}
		case forwardData, forwardAck, forwardEnd, forwardReset:
			if c == nil { // late: it has ended here
				continue
			}
			if err := c.given(kind, data); err != nil {
				return err
			}
		default:
			return fmt.Errorf("the program in the guest sent a frame %q", kind)
		}
	}
}

func (f *Forward) send(kind byte, id uint32, data []byte) error {
	f.wmu.Lock()
	defer f.wmu.Unlock()
	_, err := f.stream.Write(wire.Encode(kind, append(binary.BigEndian.AppendUint32(nil, id), data...)))
	return err
}
