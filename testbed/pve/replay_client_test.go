package pve_test

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"savepoint/testbed/pve/access"
)

// line is one recorded request with its answer.
type line struct {
	Seq         int             `json:"seq"`
	Area        string          `json:"area"`
	Title       string          `json:"title"`
	Auth        string          `json:"auth"`
	Method      string          `json:"method"`
	Path        string          `json:"path"`
	Query       json.RawMessage `json:"query"`
	Body        json.RawMessage `json:"body"`
	ContentType string          `json:"content_type"`
	Status      *int            `json:"status"`
	Reason      string          `json:"reason"`
	BodyOut     any             `json:"body_out"`
	Task        *taskEnd        `json:"task"`
	Note        string          `json:"note"`
}

type taskEnd struct {
	Type       string   `json:"type"`
	ExitStatus string   `json:"exitstatus"`
	Log        []string `json:"log"`
}

// reply is what our server answered.
type reply struct {
	status  int // 0 = closed without an answer
	reason  string
	body    any // parsed JSON, else text
	noType  bool
	rawBody []byte
}

// rawClient sends requests byte by byte, as some of them no client would send.
type rawClient struct {
	addr string
	tls  *tls.Config
}

func newRawClient(t *testing.T, addr, caFile string) *rawClient {
	t.Helper()
	ca, err := os.ReadFile(caFile)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)
	return &rawClient{addr: addr, tls: &tls.Config{RootCAs: roots, ServerName: "localhost"}}
}

// request is a request as bytes need it.
type request struct {
	method, target, proto string
	header                [][2]string
	body                  []byte
	chunked               bool
}

func (c *rawClient) send(r request) (reply, error) {
	conn, err := tls.Dial("tcp", c.addr, c.tls)
	if err != nil {
		return reply{}, err
	}
	defer conn.Close()
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s %s %s\r\nHost: localhost\r\n", r.method, r.target, r.proto)
	for _, h := range r.header {
		fmt.Fprintf(&b, "%s: %s\r\n", h[0], h[1])
	}
	switch {
	case r.chunked:
		fmt.Fprintf(&b, "Transfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n", len(r.body), r.body)
	case len(r.body) > 0 || r.method == "POST" || r.method == "PUT":
		fmt.Fprintf(&b, "Content-Length: %d\r\n\r\n%s", len(r.body), r.body)
	default:
		b.WriteString("\r\n")
	}
	// a refused body may be answered before it was sent whole
	if _, err := conn.Write(b.Bytes()); err != nil && !errors.Is(err, io.ErrClosedPipe) {
		return reply{}, nil
	}
	res, err := http.ReadResponse(bufio.NewReader(conn), &http.Request{Method: r.method})
	if err != nil {
		return reply{}, nil // closed without an answer
	}
	defer res.Body.Close()
	out := reply{status: res.StatusCode}
	_, out.reason, _ = strings.Cut(res.Status, " ")
	if out.rawBody, err = io.ReadAll(res.Body); err != nil {
		return out, err
	}
	out.noType = res.Header.Get("Content-Type") == ""
	out.body = string(out.rawBody)
	if strings.HasPrefix(res.Header.Get("Content-Type"), "application/json") {
		d := json.NewDecoder(bytes.NewReader(out.rawBody))
		d.UseNumber()
		var v any
		if err := d.Decode(&v); err != nil {
			return out, err
		}
		out.body = v
	}
	return out, nil
}

// identities are the callers of the recording.
type identities struct {
	tokens   map[string]string // header value by kind
	password string
	ticket   map[string][2]string // ticket and CSRF by user
}

func (id *identities) apply(l line, r *request) {
	add := func(k, v string) { r.header = append(r.header, [2]string{k, v}) }
	token := func(v string) { add("Authorization", "PVEAPIToken="+v) }
	cookie := func(user string, csrf bool) {
		t := id.ticket[user]
		add("Cookie", "PVEAuthCookie="+url.QueryEscape(t[0]))
		if csrf {
			add("CSRFPreventionToken", t[1])
		}
	}
	broken := "PVEAuthCookie=" + url.QueryEscape("PVE:sp@pve:65000000::AAAA")
	switch l.Auth {
	case "token":
		token(id.tokens["token"])
		if strings.HasPrefix(l.Note, "cookie: a ticket with a broken signature") {
			add("Cookie", broken)
		}
	case "limited", "roottoken":
		token(id.tokens[l.Auth])
	case "badtoken":
		secret := "00000000-0000-4000-8000-000000000000"
		switch l.Title {
		case "token id unknown":
			token("sp@pve!nope=" + secret)
		case "token user unknown":
			token("nobody@pve!t1=" + secret)
		case "token, wrong secret":
			token("sp@pve!t1=" + secret)
		default:
			_, value, _ := strings.Cut(l.Note, "header value: ")
			value, _, _ = strings.Cut(value, " [")
			add("Authorization", strings.TrimSpace(value))
		}
	case "ticket":
		switch {
		case strings.Contains(l.Note, "broken signature"):
			add("Cookie", broken)
		case strings.Contains(l.Note, "no CSRFPreventionToken"):
			cookie("sp@pve", false)
		case strings.Contains(l.Note, "CSRFPreventionToken: "):
			cookie("sp@pve", false)
			add("CSRFPreventionToken", "00000000:AAAA")
		default:
			cookie("sp@pve", l.Method != "GET")
		}
	case "rootticket":
		cookie(access.Superuser, l.Method != "GET")
	}
}

var reRepeated = regexp.MustCompile(`^(.) repeated (\d+) times$`)

// expand undoes the words that stand for long values.
func expand(s string) string {
	if m := reRepeated.FindStringSubmatch(s); m != nil {
		n, _ := strconv.Atoi(m[2])
		return strings.Repeat(m[1], n)
	}
	if s == "description= and 600000 letters" {
		return "description=" + strings.Repeat("a", 600000)
	}
	return s
}

// encodePairs encodes an object, a list of pairs or a raw string as a form.
func encodePairs(raw json.RawMessage, subst func(k, v string) string) string {
	if len(raw) == 0 || string(raw) == "null" {
		return ""
	}
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return expand(text)
	}
	var parts []string
	add := func(k string, v any) {
		s, ok := v.(string)
		if !ok {
			b, _ := json.Marshal(v)
			s = string(b)
		}
		parts = append(parts, url.QueryEscape(k)+"="+url.QueryEscape(subst(k, expand(s))))
	}
	var pairs [][2]any
	if json.Unmarshal(raw, &pairs) == nil {
		for _, p := range pairs {
			add(fmt.Sprint(p[0]), p[1])
		}
		return strings.Join(parts, "&")
	}
	var object map[string]json.RawMessage
	if err := json.Unmarshal(raw, &object); err != nil {
		return ""
	}
	for k, v := range object {
		var s any
		d := json.NewDecoder(bytes.NewReader(v))
		d.UseNumber()
		_ = d.Decode(&s)
		if n, ok := s.(json.Number); ok {
			s = n.String()
		}
		add(k, s)
	}
	return strings.Join(parts, "&")
}
