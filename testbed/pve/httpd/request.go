package httpd

import (
	"bufio"
	"context"
	"errors"
	"io"
	"strconv"
	"strings"
)

// The limits of a request's head. A head beyond them is answered by closing
// the connection.
const (
	maxHeaders     = 64
	maxHeaderBytes = 8 << 10
)

// errSilent ends a connection without an answer.
var errSilent = errors.New("request head refused")

// Request is one request whose head was read. It is valid until the handler returns.
type Request struct {
	Method string
	Target string            // as sent: path and query, still percent-encoded
	Proto  string            // "HTTP/1.1"
	Header map[string]string // by lower-case name; repeated ones are joined by ", "
	// Length is the announced length of the body, 0 when there is none.
	Length int64
	// Remote is the peer's address.
	Remote string

	ctx  context.Context
	body *io.LimitedReader
	conn *conn
}

// Context ends when the server closes. The peer's going away does not end it,
// as it does not end a call on a real node.
func (r *Request) Context() context.Context { return r.ctx }

// Path is the target without its query, still percent-encoded.
func (r *Request) Path() string {
	p, _, _ := strings.Cut(r.Target, "?")
	return p
}

// Query is the part of the target after the first '?', still percent-encoded.
func (r *Request) Query() string {
	_, q, _ := strings.Cut(r.Target, "?")
	return q
}

// Body reads the request's body; it ends with io.EOF after Length bytes.
// Whoever asks for it first makes a waiting client ("Expect: 100-continue") send.
func (r *Request) Body() io.Reader {
	if strings.EqualFold(r.Header["expect"], "100-continue") && r.body.N == r.Length {
		r.conn.proceed()
	}
	return r.body
}

// readHead reads a request line and headers.
func readHead(br *bufio.Reader) (*Request, error) {
	left := maxHeaderBytes
	line, err := readLine(br, &left)
	for err == nil && line == "" { // stray line ends between requests
		line, err = readLine(br, &left)
	}
	if err != nil {
		return nil, err
	}
	parts := strings.Split(line, " ")
	if len(parts) != 3 || !strings.HasPrefix(parts[2], "HTTP/") || parts[0] == "" {
		return nil, errSilent
	}
	r := &Request{Method: parts[0], Target: parts[1], Proto: parts[2], Header: map[string]string{}}
	for n := 0; ; n++ {
		line, err := readLine(br, &left)
		if err != nil {
			return nil, err
		}
		if line == "" {
			break
		}
		if n >= maxHeaders {
			return nil, errSilent
		}
		name, value, ok := strings.Cut(line, ":")
		if !ok || name == "" {
			return nil, errSilent
		}
		name, value = strings.ToLower(name), strings.TrimSpace(value)
		if old, seen := r.Header[name]; seen {
			value = old + ", " + value
		}
		r.Header[name] = value
	}
	if v, ok := r.Header["content-length"]; ok {
		n, err := strconv.ParseInt(v, 10, 64)
		if err != nil || n < 0 {
			return nil, errSilent
		}
		r.Length = n
	}
	return r, nil
}

// readLine reads one line without its end and takes its length off left.
func readLine(br *bufio.Reader, left *int) (string, error) {
	var line []byte
	for {
		part, more, err := br.ReadLine()
		if err != nil {
			return "", err
		}
		line = append(line, part...)
		if *left -= len(part) + 1; *left < 0 {
			return "", errSilent
		}
		if !more {
			return string(line), nil
		}
	}
}
