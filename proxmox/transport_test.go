package proxmox

import (
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"savepoint/orchestrator"
)

func wantClass(t *testing.T, err, class error) {
	t.Helper()
	if !errors.Is(err, class) {
		t.Fatalf("got %v, want class %q", err, class)
	}
	for _, other := range []error{orchestrator.ErrNotFound, orchestrator.ErrExists, orchestrator.ErrBusy, orchestrator.ErrUnavailable, orchestrator.ErrUnknownOutcome, orchestrator.ErrDenied} {
		if other != class && errors.Is(err, other) {
			t.Errorf("%v is also of class %q", err, other)
		}
	}
}

func wantText(t *testing.T, err error, parts ...string) {
	t.Helper()
	for _, p := range parts {
		if !strings.Contains(err.Error(), p) {
			t.Errorf("error %q does not say %q", err, p)
		}
	}
}

// A write is never sent twice once it may have arrived; a read is.
func TestRetryOnlyWhatIsSafe(t *testing.T) {
	const post, get = "POST /nodes/pve1/qemu/100/snapshot", "GET /nodes/pve1/qemu/100/config"
	for _, tc := range []struct {
		name  string
		a     answer
		reads int
		class error // of the write
	}{
		{"500 logical failure", answer{status: 500, message: "VM is locked (clone)"}, 1, orchestrator.ErrBusy},
		{"502", answer{status: 502, message: "bad gateway"}, 3, orchestrator.ErrUnknownOutcome},
		{"503", answer{status: 503, message: "unavailable"}, 3, orchestrator.ErrUnknownOutcome},
		{"504", answer{status: 504, message: "timeout"}, 3, orchestrator.ErrUnknownOutcome},
		{"595 never reached the node", answer{status: 595, message: "Connection refused"}, 3, orchestrator.ErrUnavailable},
		{"596", answer{status: 596, message: "Connection timed out"}, 3, orchestrator.ErrUnknownOutcome},
		{"597", answer{status: 597, message: "Broken pipe"}, 1, orchestrator.ErrUnknownOutcome},
		{"429", answer{status: 429, message: "slow down"}, 3, orchestrator.ErrUnavailable},
		{"connection lost", answer{drop: true}, 3, orchestrator.ErrUnknownOutcome},
		{"400", answer{status: 400, message: "Parameter verification failed."}, 1, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			s := newScripted(t)
			s.always(post, tc.a)
			s.always(get, tc.a)
			c := s.open(t)
			_, err := c.postTask(t.Context(), "/nodes/pve1/qemu/100/snapshot", map[string]any{"snapname": "sp"})
			if n := s.count(post); n != 1 {
				t.Errorf("the write was sent %d times", n)
			}
			err = explain("create", "vm", err, true)
			if tc.class != nil {
				wantClass(t, err, tc.class)
			} else if err == nil {
				t.Error("no error")
			}
			if err := c.get(t.Context(), "/nodes/pve1/qemu/100/config", nil, nil); err == nil {
				t.Error("the read worked")
			}
			if n := s.count(get); n != tc.reads {
				t.Errorf("the read was sent %d times, want %d", n, tc.reads)
			}
		})
	}
}

// Nothing listens: the write provably never left, so it is ErrUnavailable and
// names what to check.
func TestClusterDown(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	_ = l.Close()
	c, err := Open(testConfig("https://"+addr, nil))
	if err != nil {
		t.Fatal(err)
	}
	_, err = c.postTask(t.Context(), "/nodes/pve1/qemu/100/snapshot", nil)
	err = explain("create snapshot", "vm 100", err, true)
	wantClass(t, err, orchestrator.ErrUnavailable)
	wantText(t, err, "connection refused", "check the url")
	_, err = c.Version(t.Context())
	wantClass(t, err, orchestrator.ErrUnavailable)
}

// A connection that the server closed while it was idle carries nothing away:
// the write goes out on a new one, once.
func TestWriteAfterIdleClose(t *testing.T) {
	const post = "POST /nodes/pve1/qemu/100/snapshot"
	s := newScripted(t)
	s.always(post, answer{data: testUPID})
	s.always("GET /version", answer{data: map[string]any{"version": "9.1.2"}})
	c := s.open(t)
	for range 5 {
		if _, err := c.Version(t.Context()); err != nil {
			t.Fatal(err)
		}
		s.CloseClientConnections()
		before := s.count(post)
		id, err := c.postTask(t.Context(), "/nodes/pve1/qemu/100/snapshot", map[string]any{"snapname": "sp"})
		// The close may be seen before or after the request was written; what
		// must not happen is a second delivery, or "never left" after one.
		sent := s.count(post) - before
		if err == nil && (sent != 1 || id != testUPID) {
			t.Fatalf("answer %q after %d deliveries", id, sent)
		}
		if err != nil && sent > 0 && errors.Is(explain("", "", err, true), orchestrator.ErrUnavailable) {
			t.Fatalf("delivered, but the error says it never left: %v", err)
		}
	}
}

func TestKeepAlive(t *testing.T) {
	s := newScripted(t)
	s.always("GET /version", answer{data: map[string]any{"version": "8.4.1"}})
	c := s.open(t)
	for range 20 {
		v, err := c.Version(t.Context())
		if err != nil || v.Major != 8 || v.Minor != 4 || !v.Supported() {
			t.Fatalf("%+v, %v", v, err)
		}
	}
	if n := s.connections(); n != 1 {
		t.Errorf("20 requests took %d connections", n)
	}
}

func TestWrongCA(t *testing.T) {
	s := newScripted(t)
	s.always("GET /version", answer{data: map[string]any{"version": "9.1"}})
	cfg := testConfig(s.URL, x509.NewCertPool()) // trusts nobody
	c, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_, err = c.Version(t.Context())
	wantClass(t, err, orchestrator.ErrDenied)
	wantText(t, err, "ca_file", "issuer", colons(fingerprint(s.Certificate())))
	if n := s.count("GET /version"); n != 0 {
		t.Errorf("%d requests reached a server that was not verified", n)
	}
}

func TestCAFileAndPin(t *testing.T) {
	s := newScripted(t)
	s.always("GET /version", answer{data: map[string]any{"version": "9.1"}})
	file := s.caFile(t)
	good := s.open(t, func(c *Config) {
		c.CAs, c.CAFile, c.Fingerprint = nil, file, colons(fingerprint(s.Certificate()))
	})
	if _, err := good.Version(t.Context()); err != nil {
		t.Fatal(err)
	}
	bad := s.open(t, func(c *Config) { c.Fingerprint = strings.Repeat("ab", 32) })
	_, err := bad.Version(t.Context())
	wantClass(t, err, orchestrator.ErrDenied)
	wantText(t, err, "pinned is AB:AB", colons(fingerprint(s.Certificate())))
}

func TestRedirectIsRefused(t *testing.T) {
	s := newScripted(t)
	s.Config.Handler = http.RedirectHandler("https://example.invalid/", http.StatusTemporaryRedirect)
	_, err := s.open(t).Version(t.Context())
	wantText(t, err, "redirect")
}

func TestRequestTimeoutOfAWriteIsUnknown(t *testing.T) {
	s := newScripted(t)
	hang := make(chan struct{})
	defer close(hang)
	s.always("POST /nodes/pve1/qemu/100/snapshot", answer{data: testUPID, hang: hang})
	c := s.open(t, func(c *Config) { c.RequestTimeout = time.Second })
	_, err := c.postTask(t.Context(), "/nodes/pve1/qemu/100/snapshot", nil)
	if !maybeDone(err) {
		t.Errorf("a write that timed out is %v", explain("", "", err, true))
	}
	if n := s.count("POST /nodes/pve1/qemu/100/snapshot"); n != 1 {
		t.Errorf("sent %d times", n)
	}
}

func TestOpenRefuses(t *testing.T) {
	for name, change := range map[string]func(*Config){
		"http":             func(c *Config) { c.URL = "http://pve:8006" },
		"a path":           func(c *Config) { c.URL = "https://pve:8006/x" },
		"no credentials":   func(c *Config) { c.TokenID = "" },
		"bad token id":     func(c *Config) { c.TokenID = "root@pam" },
		"no secret":        func(c *Config) { c.TokenSecret = "" },
		"both credentials": func(c *Config) { c.User, c.Password = "root@pam", "x" },
		"no instance":      func(c *Config) { c.Instance = "" },
		"bad instance":     func(c *Config) { c.Instance = "a b" },
		"slow poll":        func(c *Config) { c.PollInterval = time.Second },
		"missing ca file":  func(c *Config) { c.CAFile = "/nonexistent/ca.pem" },
		"bad fingerprint":  func(c *Config) { c.Fingerprint = "12" },
	} {
		t.Run(name, func(t *testing.T) {
			cfg := testConfig("https://pve:8006", nil)
			change(&cfg)
			if _, err := Open(cfg); err == nil {
				t.Error("accepted")
			} else if strings.Contains(err.Error(), testSecret) {
				t.Errorf("the error holds the secret: %v", err)
			}
		})
	}
}

func TestSecretIsNeverPrinted(t *testing.T) {
	cfg := testConfig("https://pve:8006", nil)
	cfg.Password = "hunter2"
	js, err := json.Marshal(struct {
		A Secret
		B map[string]Secret
	}{cfg.TokenSecret, map[string]Secret{"x": cfg.Password}})
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{fmt.Sprint(cfg), fmt.Sprintf("%+v %#v %q %x", cfg, cfg, cfg.TokenSecret, cfg.Password), string(js), cfg.Password.String()} {
		if strings.Contains(text, testSecret) || strings.Contains(text, "hunter2") || strings.Contains(text, "68756e74657232") {
			t.Errorf("a secret is visible in %s", text)
		}
	}
}

// Ticket authentication: one login for many calls at once, the CSRF token on
// writes only, and one new login when the server forgot the ticket.
func TestTicket(t *testing.T) {
	s := newScripted(t)
	logins := 0
	s.on("POST /access/ticket", func(_ *http.Request, body []byte) answer {
		var in map[string]string
		if json.Unmarshal(body, &in) != nil || in["username"] != "root@pam" || in["password"] != "pw" {
			return answer{status: 401, message: "authentication failure"}
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		logins++
		return answer{data: map[string]any{"ticket": fmt.Sprintf("PVE:root@pam:%d", logins), "CSRFPreventionToken": "csrf"}}
	})
	check := func(r *http.Request, write bool) answer {
		s.mu.Lock()
		want := fmt.Sprintf("PVEAuthCookie=PVE:root@pam:%d", logins)
		s.mu.Unlock()
		if r.Header.Get("Cookie") != want || (r.Header.Get("CSRFPreventionToken") == "csrf") != write {
			return answer{status: 401, message: "No ticket"}
		}
		return answer{data: map[string]any{"version": "9.1"}}
	}
	s.on("GET /version", func(r *http.Request, _ []byte) answer { return check(r, false) })
	s.on("PUT /nodes/pve1/qemu/100/config", func(r *http.Request, _ []byte) answer { return check(r, true) })
	c := s.open(t, func(c *Config) { c.TokenID, c.TokenSecret, c.User, c.Password = "", "", "root@pam", "pw" })
	errs := make(chan error, 8)
	for range cap(errs) {
		go func() { _, err := c.Version(t.Context()); errs <- err }()
	}
	for range cap(errs) {
		if err := <-errs; err != nil {
			t.Fatal(err)
		}
	}
	if err := c.put(t.Context(), "/nodes/pve1/qemu/100/config", map[string]any{"cores": 1}); err != nil {
		t.Fatal(err)
	}
	if n := s.count("POST /access/ticket"); n != 1 {
		t.Errorf("%d logins", n)
	}
	s.mu.Lock()
	logins = 7 // the server forgets
	s.mu.Unlock()
	if err := c.put(t.Context(), "/nodes/pve1/qemu/100/config", map[string]any{"cores": 1}); err != nil {
		t.Fatal(err)
	}
}

// Many calls find at once that the server forgot the ticket: one login serves
// them all, none is refused for having come second.
func TestTicketForgottenUnderManyCalls(t *testing.T) {
	const callers = 4
	s := newScripted(t)
	logins := 0
	s.on("POST /access/ticket", func(*http.Request, []byte) answer {
		s.mu.Lock()
		defer s.mu.Unlock()
		logins++
		return answer{data: map[string]any{"ticket": fmt.Sprintf("PVE:root@pam:%d", logins), "CSRFPreventionToken": "csrf"}}
	})
	var old sync.WaitGroup // until every caller has come with the old ticket
	old.Add(callers)
	s.on("GET /version", func(r *http.Request, _ []byte) answer {
		if r.Header.Get("Cookie") == "PVEAuthCookie=PVE:root@pam:1" {
			old.Done()
			old.Wait()
			return answer{status: 401, message: "No ticket"}
		}
		return answer{data: map[string]any{"version": "9.1"}}
	})
	c := s.open(t, func(c *Config) { c.TokenID, c.TokenSecret, c.User, c.Password = "", "", "root@pam", "pw" })
	errs := make(chan error, callers)
	for range callers {
		go func() { _, err := c.Version(t.Context()); errs <- err }()
	}
	for range callers {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	if logins != 2 {
		t.Errorf("%d logins", logins)
	}
}

func TestBadCredentials(t *testing.T) {
	s := newScripted(t)
	s.always("GET /version", answer{status: 401})
	_, err := s.open(t).Version(t.Context())
	wantClass(t, err, orchestrator.ErrDenied)
	wantText(t, err, "credentials", "token")
	if n := s.count("GET /version"); n != 1 {
		t.Errorf("asked %d times", n)
	}
}

func TestServerClock(t *testing.T) {
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	c := &serverClock{now: func() time.Time { return now }}
	c.observe(now.Add(2 * time.Hour).Format(http.TimeFormat))
	if got := c.at(now); !got.Equal(now.Add(2 * time.Hour)) {
		t.Errorf("got %v", got)
	}
	c.observe(now.Add(-time.Second).Format(http.TimeFormat))
	if got := c.at(now); !got.Equal(now) {
		t.Errorf("a difference within the resolution counts: %v", got)
	}
	c.observe("nonsense")
}
