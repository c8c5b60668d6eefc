package sshexec_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"savepoint/orchestrator/sshexec"
	"savepoint/orchestrator/sshexec/wire"
)

// process is a program's standard input and output.
type process struct {
	io.Reader
	io.WriteCloser
}

// guestProgram starts ForwardCommand on this machine, as a guest would.
func guestProgram(t *testing.T) process {
	t.Helper()
	if _, err := exec.LookPath("perl"); err != nil {
		t.Skip(err)
	}
	cmd := exec.Command("sh", "-c", sshexec.ForwardCommand())
	in, err1 := cmd.StdinPipe()
	out, err2 := cmd.StdoutPipe()
	var complaint bytes.Buffer
	cmd.Stderr = &complaint
	if err := errors.Join(err1, err2, cmd.Start()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close()
		if err := cmd.Wait(); err != nil || complaint.Len() > 0 {
			t.Errorf("the guest's program: %v: %s", err, complaint.String())
		}
	})
	return process{out, in}
}

// served listens on loopback, answers each connection with serve, and returns how
// to dial it.
func served(t *testing.T, serve func(*net.TCPConn)) func(context.Context) (net.Conn, error) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				serve(conn.(*net.TCPConn))
			}()
		}
	}()
	t.Cleanup(func() { l.Close(); <-done })
	return func(ctx context.Context) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "tcp", l.Addr().String())
	}
}

func forward(t *testing.T, ctx context.Context, stream io.ReadWriteCloser, dial func(context.Context) (net.Conn, error)) *sshexec.Forward {
	t.Helper()
	f, err := sshexec.ForwardOver(ctx, stream, dial)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.Close)
	return f
}

func inGuest(t *testing.T, f *sshexec.Forward) *net.TCPConn {
	t.Helper()
	conn, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", f.Port))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	return conn.(*net.TCPConn)
}

func echoes(conn *net.TCPConn) { _, _ = io.Copy(conn, conn) }

// Many connections at once carry more than a window each, in both directions, and
// a side that has said its last word still hears the other.
func TestForward(t *testing.T) {
	f := forward(t, t.Context(), guestProgram(t), served(t, echoes))
	const size = 1 << 20
	results := make(chan error)
	for i := range sshexec.ForwardMost + 4 { // four wait
		conn := inGuest(t, f)
		text := bytes.Repeat([]byte{byte(i), byte(i >> 1), 7}, size/3)
		go func() {
			_, err := conn.Write(text)
			results <- errors.Join(err, conn.CloseWrite())
		}()
		go func() {
			got, err := io.ReadAll(conn)
			if err == nil && !bytes.Equal(got, text) {
				err = fmt.Errorf("connection %d: %d bytes came back, want the %d that were sent", i, len(got), len(text))
			}
			results <- errors.Join(err, conn.Close())
		}()
	}
	for range 2 * (sshexec.ForwardMost + 4) {
		if err := <-results; err != nil {
			t.Error(err)
		}
	}
}

// A connection that nobody reads holds up itself alone.
func TestForwardOneStuck(t *testing.T) {
	var taken atomic.Int64
	release := make(chan struct{})
	f := forward(t, t.Context(), guestProgram(t), served(t, func(conn *net.TCPConn) {
		kind := make([]byte, 1)
		if _, err := io.ReadFull(conn, kind); err != nil {
			return
		}
		if kind[0] == 'e' {
			echoes(conn)
			return
		}
		<-release
		n, _ := io.Copy(io.Discard, conn)
		taken.Store(n)
	}))
	stuck := inGuest(t, f)
	const much = 32 << 20 // more than all buffers on the way
	sent := make(chan error, 1)
	go func() {
		_, err := stuck.Write(append([]byte{'s'}, make([]byte, much)...))
		sent <- errors.Join(err, stuck.CloseWrite())
	}()
	other := inGuest(t, f)
	if _, err := other.Write([]byte("ehello")); err != nil {
		t.Fatal(err)
	}
	answer := make([]byte, 5)
	if _, err := io.ReadFull(other, answer); err != nil || string(answer) != "hello" {
		t.Errorf("%q %v", answer, err)
	}
	select {
	case err := <-sent:
		t.Errorf("%d bytes went where nobody reads: %v", much, err)
	default:
	}
	close(release)
	if err := <-sent; err != nil {
		t.Error(err)
	}
	if _, err := io.ReadAll(stuck); err != nil || taken.Load() != much {
		t.Errorf("%d bytes arrived, want %d: %v", taken.Load(), much, err)
	}
}

// What cannot be dialled is refused in the guest; the port stays.
func TestForwardRefused(t *testing.T) {
	var refuse atomic.Bool
	refuse.Store(true)
	good := served(t, echoes)
	f := forward(t, t.Context(), guestProgram(t), func(ctx context.Context) (net.Conn, error) {
		if refuse.Load() {
			return nil, errors.New("no")
		}
		return good(ctx)
	})
	if got, err := io.ReadAll(inGuest(t, f)); len(got) > 0 {
		t.Errorf("%q %v", got, err)
	}
	refuse.Store(false)
	conn := inGuest(t, f)
	_, _ = conn.Write([]byte("x"))
	_ = conn.CloseWrite()
	if got, err := io.ReadAll(conn); err != nil || string(got) != "x" {
		t.Errorf("%q %v", got, err)
	}
}

// The context's end closes the port and every connection, and a forward whose
// stream is lost says why it ended.
func TestForwardEnds(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	f := forward(t, ctx, guestProgram(t), served(t, echoes))
	conn := inGuest(t, f)
	_, _ = conn.Write([]byte("x"))
	if _, err := io.ReadFull(conn, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	over := errors.New("over")
	cancel(over)
	if err := f.Err(); !errors.Is(err, over) {
		t.Errorf("%v", err)
	}
	if n, _ := conn.Read(make([]byte, 1)); n > 0 {
		t.Error("the connection is still there")
	}
	if late, err := net.Dial("tcp", conn.RemoteAddr().String()); err == nil {
		late.Close()
		t.Error("the port is still there")
	}

	stream := guestProgram(t)
	f = forward(t, t.Context(), stream, served(t, echoes))
	stream.Close()
	if err := f.Err(); err == nil {
		t.Error("no word of the lost stream")
	}
}

// liar plays a program in a guest that was taken over.
func liar(t *testing.T, says []byte) *sshexec.Forward {
	t.Helper()
	ours, theirs := net.Pipe()
	t.Cleanup(func() { theirs.Close() })
	go func() {
		r := bufio.NewReader(theirs)
		_, _ = r.ReadString(0) // the program's text, which holds none, until the end
	}()
	go func() { _, _ = theirs.Write(says) }()
	f, err := sshexec.ForwardOver(t.Context(), ours, func(context.Context) (net.Conn, error) {
		a, b := net.Pipe()
		t.Cleanup(func() { b.Close() })
		return a, nil
	})
	if err != nil {
		t.Logf("refused: %v", err)
		return nil
	}
	t.Cleanup(f.Close)
	return f
}

// A guest that does not keep to the rules loses the forward, and takes no more
// memory than the windows.
func TestForwardLies(t *testing.T) {
	frame := func(kind byte, id byte, data string) string {
		return string(wire.Encode(kind, append([]byte{0, 0, 0, id}, data...)))
	}
	hello := "\x00savepoint-forward-1\x00\n" + frame('L', 0, "\x00\x00\x10\x00")
	for name, says := range map[string]string{
		"another greeting": "Welcome to the guest, which is not a program at all\n",
		"no port":          "\x00savepoint-forward-1\x00\n" + frame('L', 0, ""),
		"half a frame":     hello + string(wire.Encode('D', []byte{1})),
		"unknown kind":     hello + frame('?', 0, ""),
		"twice":            hello + frame('O', 1, "") + frame('O', 1, ""),
		"more than it may": hello + frame('O', 1, "") + strings.Repeat(frame('D', 1, strings.Repeat("x", 200<<10)), 3),
		"false ack":        hello + frame('O', 1, "") + frame('A', 1, "\xff\xff\xff\xff"),
		"too long a frame": hello + "D\xff\xff\xff\xff",
	} {
		t.Run(name, func(t *testing.T) {
			if f := liar(t, []byte(says)); f != nil && f.Err() == nil {
				t.Error("nothing was noticed")
			}
		})
	}
}

// TestForwardOpenSSH: over a session of Debian's sshd, and gone after
// the sandbox's connection is.
func TestForwardOpenSSH(t *testing.T) {
	c, sb := realGuest(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	f, err := c.Forward(ctx, sb, served(t, echoes))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	conn := inGuest(t, f) // the guest's network is ours
	_, _ = conn.Write([]byte("x"))
	if _, err := io.ReadFull(conn, make([]byte, 1)); err != nil {
		t.Error(err)
	}
	c.Disconnect(sb.ID)
	if err := f.Err(); err == nil {
		t.Error("it outlived the connection")
	}
}
