package httpd_test

import (
	"bufio"
	"compress/gzip"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"savepoint/testbed/pve/httpd"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// serve starts a server with the handler and returns its address.
func serve(t *testing.T, idle time.Duration, h httpd.Handler) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return serveOn(t, l, idle, h)
}

func serveOn(t *testing.T, l net.Listener, idle time.Duration, h httpd.Handler) string {
	t.Helper()
	s := httpd.New(h, idle, time.Now)
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(l) }()
	t.Cleanup(func() {
		s.Close()
		if err := <-ended; err != httpd.ErrClosed {
			t.Errorf("serve ended with %v", err)
		}
	})
	return l.Addr().String()
}

// echo answers what it was asked.
func echo(r *httpd.Request) *httpd.Response {
	body, err := io.ReadAll(r.Body())
	if err != nil {
		return &httpd.Response{Drop: true}
	}
	return &httpd.Response{Status: 200, ContentType: "text/plain", Body: fmt.Appendf(nil, "%s %s?%s %s", r.Method, r.Path(), r.Query(), body)}
}

// talk sends bytes and returns the first response, nil when there is none.
func talk(t *testing.T, addr, text string) (*http.Response, string, net.Conn, *bufio.Reader) {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(10 * time.Second))
	if _, err := io.WriteString(c, text); err != nil {
		t.Fatal(err)
	}
	br := bufio.NewReader(c)
	method, _, _ := strings.Cut(text, " ")
	res, err := http.ReadResponse(br, &http.Request{Method: method})
	if err != nil {
		return nil, "", c, br
	}
	b, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res, string(b), c, br
}

func TestRefusals(t *testing.T) {
	addr := serve(t, 5*time.Second, echo)
	for _, tt := range []struct{ name, send, status, body string }{
		{"head", "HEAD / HTTP/1.1\r\n\r\n", "501 method 'HEAD' not available", ""},
		{"patch", "PATCH / HTTP/1.1\r\n\r\n", "501 method 'PATCH' not available", ""},
		{"http 2", "GET / HTTP/2.0\r\n\r\n", "506 http protocol version 2.0 not supported", "http protocol version 2.0 not supported"},
		{"chunked", "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "501 chunked transfer encoding not supported", "chunked transfer encoding not supported"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			res, body, _, _ := talk(t, addr, tt.send)
			if res == nil || res.Status != tt.status || body != tt.body || !res.Close {
				t.Errorf("got %v %q", res, body)
			}
		})
	}
	long := "GET / HTTP/1.1\r\n" + strings.Repeat("X-A: b\r\n", 65) + "\r\n"
	wide := "GET / HTTP/1.1\r\nX: " + strings.Repeat("a", 9000) + "\r\n\r\n"
	for name, send := range map[string]string{"65 headers": long, "9000 bytes": wide, "no request": "nonsense\r\n\r\n", "negative length": "POST / HTTP/1.1\r\nContent-Length: -1\r\n\r\n"} {
		t.Run(name, func(t *testing.T) {
			if res, _, _, _ := talk(t, addr, send); res != nil {
				t.Errorf("answered %v, want silence", res.Status)
			}
		})
	}
}

func TestReasonAndClose(t *testing.T) {
	addr := serve(t, 5*time.Second, func(*httpd.Request) *httpd.Response {
		return &httpd.Response{Status: 500, Reason: "VM is locked (clone)\nmore", ContentType: "application/json;charset=UTF-8", Body: []byte("{}")}
	})
	res, _, c, br := talk(t, addr, "GET /x HTTP/1.1\r\n\r\n")
	if res.Status != "500 VM is locked (clone)" {
		t.Errorf("status line %q", res.Status)
	}
	if _, err := br.ReadByte(); err != io.EOF {
		t.Errorf("connection after an error: %v, want its end", err)
	}
	c.Close()
}

func TestKeepAliveAndIdle(t *testing.T) {
	addr := serve(t, 1500*time.Millisecond, echo)
	_, body, c, br := talk(t, addr, "POST /a%20b?x=1 HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc")
	if body != "POST /a%20b?x=1 abc" {
		t.Errorf("body %q", body)
	}
	if _, err := io.WriteString(c, "GET /second HTTP/1.1\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	res, err := http.ReadResponse(br, nil)
	if err != nil {
		t.Fatalf("second request on the connection: %v", err)
	}
	io.Copy(io.Discard, res.Body)
	if _, err := br.ReadByte(); err != io.EOF { // the idle time ends it
		t.Errorf("idle connection: %v, want its end", err)
	}
	res, _, _, br = talk(t, addr, "GET / HTTP/1.0\r\n\r\n")
	if _, err := br.ReadByte(); err != io.EOF || res.Proto != "HTTP/1.0" {
		t.Errorf("HTTP/1.0: %v %v", res.Proto, err)
	}
}

// short is a listener that is out of descriptors once.
type short struct {
	net.Listener
	failed bool
}

func (l *short) Accept() (net.Conn, error) {
	if !l.failed {
		l.failed = true
		return nil, &net.OpError{Op: "accept", Err: syscall.EMFILE}
	}
	return l.Listener.Accept()
}

func TestServeSurvivesABadMoment(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := serveOn(t, &short{Listener: l}, 5*time.Second, echo)
	if _, body, _, _ := talk(t, addr, "GET /x HTTP/1.1\r\nConnection: close\r\n\r\n"); body != "GET /x? " {
		t.Errorf("body %q", body)
	}
}

func TestExpectContinue(t *testing.T) {
	addr := serve(t, 5*time.Second, echo)
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	fmt.Fprint(c, "POST / HTTP/1.1\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n")
	br := bufio.NewReader(c)
	if line, err := br.ReadString('\n'); err != nil || line != "HTTP/1.1 100 Continue\r\n" {
		t.Fatalf("got %q %v", line, err)
	}
	if _, err := br.ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	fmt.Fprint(c, "hi")
	res, err := http.ReadResponse(br, nil)
	if err != nil || res.StatusCode != 200 {
		t.Fatalf("got %v %v", res, err)
	}
}

func TestCompression(t *testing.T) {
	big := strings.Repeat("abc ", 1000)
	addr := serve(t, 5*time.Second, func(r *httpd.Request) *httpd.Response {
		return &httpd.Response{Status: 200, ContentType: "text/plain", Body: []byte(big)}
	})
	res, body, _, _ := talk(t, addr, "GET / HTTP/1.1\r\nAccept-Encoding: gzip\r\n\r\n")
	if res.Header.Get("Content-Encoding") != "gzip" {
		t.Fatal("not compressed")
	}
	z, err := gzip.NewReader(strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	plain, err := io.ReadAll(z)
	if err != nil || string(plain) != big {
		t.Errorf("wrong content, %v", err)
	}
	for _, accept := range []string{"", "Accept-Encoding: gzip;q=0\r\n"} {
		if res, body, _, _ := talk(t, addr, "GET / HTTP/1.1\r\n"+accept+"\r\n"); res.Header.Get("Content-Encoding") != "" || body != big {
			t.Errorf("compressed for %q", accept)
		}
	}
}

// A dropped connection is seen as such, and Close ends a handler that waits.
func TestDropAndClose(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	waiting := make(chan struct{})
	s := httpd.New(func(r *httpd.Request) *httpd.Response {
		if r.Path() == "/wait" {
			close(waiting)
			<-r.Context().Done()
		}
		return &httpd.Response{Drop: true}
	}, 5*time.Second, time.Now)
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(l) }()
	if res, _, _, _ := talk(t, l.Addr().String(), "GET / HTTP/1.1\r\n\r\n"); res != nil {
		t.Errorf("answered %v", res.Status)
	}
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	fmt.Fprint(c, "GET /wait HTTP/1.1\r\n\r\n")
	<-waiting
	s.Close()
	<-ended
}
