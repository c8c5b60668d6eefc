package httpd

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"time"
)

// Handler answers one request.
type Handler func(*Request) *Response

// Server serves a Handler over connections.
type Server struct {
	handler Handler
	idle    time.Duration
	now     func() time.Time
	gzip    compressor

	ctx    context.Context
	cancel context.CancelFunc

	mu        sync.Mutex
	listeners map[net.Listener]bool
	conns     map[net.Conn]bool
	closed    bool
	wg        sync.WaitGroup
}

// ErrClosed is what Serve returns after Close.
var ErrClosed = errors.New("http server closed")

// bodyTimeout bounds how long a client may take between two parts of a body.
const bodyTimeout = 30 * time.Second

// New makes a server. A connection on which no request begins for idle is
// closed; now is the clock of the Date header.
func New(h Handler, idle time.Duration, now func() time.Time) *Server {
	ctx, cancel := context.WithCancel(context.Background())
	return &Server{
		handler: h, idle: idle, now: now, ctx: ctx, cancel: cancel,
		listeners: map[net.Listener]bool{}, conns: map[net.Conn]bool{},
	}
}

// Context ends when the server closes.
func (s *Server) Context() context.Context { return s.ctx }

// Serve accepts connections until Close, and then returns ErrClosed. It closes l.
func (s *Server) Serve(l net.Listener) error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		l.Close()
		return ErrClosed
	}
	s.listeners[l] = true
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		delete(s.listeners, l)
		s.mu.Unlock()
		l.Close()
	}()
	for {
		c, err := l.Accept()
		if err != nil {
			if s.ctx.Err() != nil {
				return ErrClosed
			}
			if errors.Is(err, net.ErrClosed) {
				return fmt.Errorf("accept api connection: %w", err)
			}
			// Out of descriptors, most likely: let others finish.
			select {
			case <-time.After(50 * time.Millisecond):
			case <-s.ctx.Done():
			}
			continue
		}
		s.mu.Lock()
		if s.closed {
			s.mu.Unlock()
			c.Close()
			return ErrClosed
		}
		s.conns[c] = true
		s.wg.Add(1)
		s.mu.Unlock()
		go s.serve(c)
	}
}

// Close ends all listeners and connections and waits for their goroutines.
// Handlers see their context end.
func (s *Server) Close() {
	s.mu.Lock()
	s.closed = true
	s.cancel()
	for l := range s.listeners {
		l.Close()
	}
	for c := range s.conns {
		c.Close()
	}
	s.mu.Unlock()
	s.wg.Wait()
}

type conn struct {
	net.Conn
	br *bufio.Reader
}

// proceed tells a client that waits for permission to send its body.
func (c *conn) proceed() { fmt.Fprint(c, "HTTP/1.1 100 Continue\r\n\r\n") }

// readBody renews the deadline, so that a slow upload lives while it moves.
func (c *conn) readBody(p []byte) (int, error) {
	if err := c.SetReadDeadline(time.Now().Add(bodyTimeout)); err != nil {
		return 0, err
	}
	return c.br.Read(p)
}

type bodyReader struct{ c *conn }

func (b bodyReader) Read(p []byte) (int, error) { return b.c.readBody(p) }

func (s *Server) serve(nc net.Conn) {
	c := &conn{Conn: nc, br: bufio.NewReader(nc)}
	defer func() {
		nc.Close()
		s.mu.Lock()
		delete(s.conns, nc)
		s.mu.Unlock()
		s.wg.Done()
	}()
	for s.exchange(c) {
	}
}

// exchange reads one request and answers it; false ends the connection.
func (s *Server) exchange(c *conn) bool {
	if err := c.SetReadDeadline(time.Now().Add(s.idle)); err != nil {
		return false
	}
	r, err := readHead(c.br)
	if err != nil {
		return false
	}
	r.ctx, r.conn, r.Remote = s.ctx, c, c.RemoteAddr().String()
	r.body = &io.LimitedReader{R: bodyReader{c}, N: r.Length}
	a := refuse(r)
	if a == nil {
		a = s.handler(r)
	}
	if a == nil || a.Drop {
		return false
	}
	keep := a.Status < 400 && r.body.N == 0 && keepAlive(r)
	if err := c.SetWriteDeadline(time.Now().Add(bodyTimeout)); err != nil {
		return false
	}
	if _, err := c.Write(a.encode(r, &s.gzip, s.now(), keep)); err != nil {
		return false
	}
	if !keep {
		drain(r)
	}
	return keep
}

// drain takes the rest of a short body off the connection, so that closing it
// does not reset it before the client has read the answer.
func drain(r *Request) {
	if r.body.N > 0 && r.body.N <= 4<<20 && r.Header["expect"] == "" {
		_ = r.conn.SetReadDeadline(time.Now().Add(time.Second))
		_, _ = io.CopyN(io.Discard, r.conn.br, r.body.N)
	}
}

// refuse answers what no handler is asked about.
func refuse(r *Request) *Response {
	if version := strings.TrimPrefix(r.Proto, "HTTP/"); !strings.HasPrefix(version, "1.") {
		text := fmt.Sprintf("http protocol version %s not supported", version)
		return Text(506, text, text)
	}
	switch r.Method {
	case "GET", "POST", "PUT", "DELETE":
	default:
		return Text(501, fmt.Sprintf("method '%s' not available", r.Method), "")
	}
	if _, chunked := r.Header["transfer-encoding"]; chunked {
		const text = "chunked transfer encoding not supported"
		return Text(501, text, text)
	}
	return nil
}

func keepAlive(r *Request) bool {
	c := strings.ToLower(r.Header["connection"])
	if r.Proto == "HTTP/1.0" {
		return strings.Contains(c, "keep-alive")
	}
	return !strings.Contains(c, "close")
}
