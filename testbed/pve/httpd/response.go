package httpd

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"
)

// Response is what a handler answers.
type Response struct {
	Status int
	Reason string // of the status line; "" takes the usual one. Only its first line is sent.
	// ContentType of the body; "" sends none.
	ContentType string
	Body        []byte
	Header      map[string]string
	// Drop closes the connection instead of answering.
	Drop bool
}

// Text makes an answer without a content type, as errors outside the API are.
func Text(status int, reason, body string) *Response {
	return &Response{Status: status, Reason: reason, Body: []byte(body)}
}

// compressFrom is the length above which a body is compressed for clients that
// accept it.
const compressFrom = 1024

// compressor keeps gzip writers, which are dear to make.
type compressor struct{ pool sync.Pool }

// encode renders the response for the wire.
func (a *Response) encode(r *Request, c *compressor, now time.Time, keep bool) []byte {
	reason, _, _ := strings.Cut(a.Reason, "\n")
	if reason == "" {
		reason = http.StatusText(a.Status)
	}
	body := a.Body
	var out bytes.Buffer
	out.Grow(len(body) + 512)
	fmt.Fprintf(&out, "%s %d %s\r\n", proto(r), a.Status, reason)
	date := now.UTC().Format(http.TimeFormat)
	out.WriteString("Cache-Control: max-age=0\r\n")
	if keep {
		out.WriteString("Connection: Keep-Alive\r\n")
	} else {
		out.WriteString("Connection: close\r\n")
	}
	fmt.Fprintf(&out, "Date: %s\r\nPragma: no-cache\r\nServer: pve-api-daemon/3.0\r\nExpires: %s\r\n", date, date)
	if len(body) > compressFrom && accepts(r, "gzip") {
		if z, ok := c.compress(body); ok {
			body = z
			out.WriteString("Content-Encoding: gzip\r\n")
		}
	}
	if a.ContentType != "" {
		fmt.Fprintf(&out, "Content-Type: %s\r\n", a.ContentType)
	}
	for k, v := range a.Header {
		fmt.Fprintf(&out, "%s: %s\r\n", k, v)
	}
	fmt.Fprintf(&out, "Content-Length: %d\r\n\r\n", len(body))
	if r.Method != "HEAD" {
		out.Write(body)
	}
	return out.Bytes()
}

func (c *compressor) compress(body []byte) ([]byte, bool) {
	var z bytes.Buffer
	w, ok := c.pool.Get().(*gzip.Writer)
	if !ok {
		w, _ = gzip.NewWriterLevel(nil, gzip.BestSpeed) // a valid level: no error
	}
	defer c.pool.Put(w)
	w.Reset(&z)
	if _, err := w.Write(body); err != nil {
		return nil, false
	}
	if err := w.Close(); err != nil {
		return nil, false
	}
	return z.Bytes(), true
}

func accepts(r *Request, coding string) bool {
	for part := range strings.SplitSeq(r.Header["accept-encoding"], ",") {
		name, q, _ := strings.Cut(strings.TrimSpace(part), ";")
		if strings.EqualFold(name, coding) {
			return !strings.HasSuffix(strings.ReplaceAll(q, " ", ""), "q=0")
		}
	}
	return false
}

func proto(r *Request) string {
	if r.Proto == "HTTP/1.0" {
		return r.Proto
	}
	return "HTTP/1.1"
}
