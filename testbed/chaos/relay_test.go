package chaos

import (
	"io"
	"net"
	"sync"
	"testing"
	"time"
)

// relay stands between savepoint and a server whose port changes when it is
// started again. The way through it can be cut.
type relay struct {
	listen net.Listener
	wg     sync.WaitGroup

	mu     sync.Mutex
	target string
	conns  map[*net.TCPConn]bool
	down   bool          // nobody gets in
	gate   chan struct{} // closed: bytes pass
	closed bool
}

func newRelay(t *testing.T, target string) *relay {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &relay{listen: l, target: target, conns: map[*net.TCPConn]bool{}, gate: make(chan struct{})}
	close(r.gate)
	r.wg.Go(r.accept)
	t.Cleanup(r.close)
	return r
}

func (r *relay) addr() string { return r.listen.Addr().String() }

// aim sends new connections to another port.
func (r *relay) aim(target string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.target = target
}

// cut resets every connection and lets nobody in until mend.
func (r *relay) cut() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.down = true
	for c := range r.conns {
		_ = c.SetLinger(0)
		_ = c.Close()
	}
}

// stall keeps every byte until mend; nothing is reset.
func (r *relay) stall() {
	r.mu.Lock()
	defer r.mu.Unlock()
	select {
	case <-r.gate:
		r.gate = make(chan struct{})
	default:
	}
}

func (r *relay) mend() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.down = false
	r.open()
}

func (r *relay) open() {
	select {
	case <-r.gate:
	default:
		close(r.gate)
	}
}

func (r *relay) close() {
	r.mu.Lock()
	r.closed, r.down = true, true
	r.open()
	for c := range r.conns {
		_ = c.Close()
	}
	r.mu.Unlock()
	_ = r.listen.Close()
	r.wg.Wait()
}

func (r *relay) accept() {
	for {
		c, err := r.listen.Accept()
		if err != nil {
			return
		}
		r.wg.Go(func() { r.serve(c.(*net.TCPConn)) })
	}
}

// keep registers a connection, or closes it when the way is cut.
func (r *relay) keep(c *net.TCPConn) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.down {
		_ = c.SetLinger(0)
		_ = c.Close()
		return false
	}
	r.conns[c] = true
	return true
}

func (r *relay) drop(c *net.TCPConn) {
	_ = c.Close()
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.conns, c)
}

func (r *relay) serve(in *net.TCPConn) {
	if !r.keep(in) {
		return
	}
	defer r.drop(in)
	r.mu.Lock()
	target := r.target
	r.mu.Unlock()
	c, err := net.DialTimeout("tcp", target, 5*time.Second)
	if err != nil {
		_ = in.SetLinger(0)
		return
	}
	out := c.(*net.TCPConn)
	if !r.keep(out) {
		return
	}
	defer r.drop(out)
	var wg sync.WaitGroup
	wg.Go(func() { r.carry(out, in) })
	r.carry(in, out)
	wg.Wait()
}

// carry copies one way, hands on the end of output, and resets the other side
// after a reset.
func (r *relay) carry(to, from *net.TCPConn) {
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		r.mu.Lock()
		gate := r.gate
		r.mu.Unlock()
		<-gate
		if n > 0 {
			if _, werr := to.Write(buf[:n]); werr != nil {
				_ = from.Close()
				return
			}
		}
		switch {
		case err == io.EOF:
			_ = to.CloseWrite()
			return
		case err != nil:
			_ = to.SetLinger(0)
			_ = to.Close()
			return
		}
	}
}

// The relay is what the verdict on a cut rests on: it is tried without a guest.
func TestRelay(t *testing.T) {
	server, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var served sync.WaitGroup
	served.Go(func() {
		for {
			c, err := server.Accept()
			if err != nil {
				return
			}
			served.Go(func() {
				defer c.Close()
				_, _ = io.Copy(c, c)
			})
		}
	})
	defer served.Wait()
	defer server.Close()
	r := newRelay(t, server.Addr().String())
	defer r.close()

	dial := func() net.Conn {
		c, err := net.Dial("tcp", r.addr())
		if err != nil {
			t.Fatal(err)
		}
		if err := c.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
			t.Fatal(err)
		}
		return c
	}
	echo := func(c net.Conn, text string) (string, error) {
		if _, err := c.Write([]byte(text)); err != nil {
			return "", err
		}
		buf := make([]byte, len(text))
		_, err := io.ReadFull(c, buf)
		return string(buf), err
	}
	c := dial()
	defer c.Close()
	if got, err := echo(c, "one"); err != nil || got != "one" {
		t.Fatalf("open: %q, %v", got, err)
	}

	r.stall()
	if _, err := c.Write([]byte("two")); err != nil {
		t.Fatal(err)
	}
	if err := c.SetReadDeadline(time.Now().Add(50 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 3)
	if n, err := c.Read(buf); err == nil {
		t.Fatalf("stalled, yet %q came back", buf[:n])
	}
	r.mend()
	if err := c.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(c, buf); err != nil || string(buf) != "two" {
		t.Fatalf("mended: %q, %v", buf, err)
	}

	r.cut()
	if got, err := echo(c, "x"); err == nil {
		t.Fatalf("cut, yet %q came back", got)
	}
	// The reset may come before the connection is made or after it.
	if d, err := net.Dial("tcp", r.addr()); err == nil {
		defer d.Close()
		if err := d.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
			t.Fatal(err)
		}
		if got, err := echo(d, "x"); err == nil {
			t.Fatalf("cut, yet a new connection carried %q", got)
		}
	}
	r.mend()
	e := dial()
	defer e.Close()
	if got, err := echo(e, "three"); err != nil || got != "three" {
		t.Fatalf("mended: %q, %v", got, err)
	}
}
