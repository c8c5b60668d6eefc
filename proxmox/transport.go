package proxmox

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-retryablehttp"
)

// pinError says that the API presented another certificate than the pinned one.
type pinError struct{ want, got, issuer string }

func (e *pinError) Error() string {
	return fmt.Sprintf("the api presented a certificate with SHA-256 %s (issuer %s), pinned is %s", e.got, e.issuer, e.want)
}

// transportError is a request that got no answer. sent is false only if the
// request provably never left: no connection could be made for it.
type transportError struct {
	method string
	sent   bool
	err    error
}

func (e *transportError) Error() string { return e.err.Error() }
func (e *transportError) Unwrap() error { return e.err }

// Timeout keeps the net.Error behaviour that http.Client asks for.
func (e *transportError) Timeout() bool {
	var t interface{ Timeout() bool }
	return errors.As(e.err, &t) && t.Timeout()
}

func tlsConfig(cfg Config) (*tls.Config, error) {
	pool, err := cfg.readCAs()
	if err != nil {
		return nil, err
	}
	conf := &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: pool}
	if want := cfg.Fingerprint; want != "" {
		conf.VerifyConnection = func(s tls.ConnectionState) error {
			leaf := s.PeerCertificates[0] // a verified connection has one
			if got := fingerprint(leaf); got != want {
				return &pinError{want: colons(want), got: colons(got), issuer: leaf.Issuer.String()}
			}
			return nil
		}
	}
	return conf, nil
}

func fingerprint(cert *x509.Certificate) string {
	sum := sha256.Sum256(cert.Raw)
	return hex.EncodeToString(sum[:])
}

// normalFingerprint returns s as 64 lower-case hex digits, or "".
func normalFingerprint(s string) (string, error) {
	if s == "" {
		return "", nil
	}
	n := strings.ToLower(strings.ReplaceAll(s, ":", ""))
	if raw, err := hex.DecodeString(n); err != nil || len(raw) != sha256.Size {
		return "", errors.New("fingerprint must be a SHA-256 in hex (64 digits, colons allowed)")
	}
	return n, nil
}

// colons writes a fingerprint as Proxmox shows it: "AB:CD:…".
func colons(hexText string) string {
	up := strings.ToUpper(hexText)
	parts := make([]string, 0, len(up)/2)
	for i := 0; i+2 <= len(up); i += 2 {
		parts = append(parts, up[i:i+2])
	}
	return strings.Join(parts, ":")
}

// newTransport makes the one transport. TLS is set here and not by the
// library's options, which a wrapped transport ignores.
func newTransport(cfg Config, conf *tls.Config) *http.Transport {
	return &http.Transport{
		Proxy:                 http.ProxyFromEnvironment,
		DialContext:           (&net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second}).DialContext,
		TLSClientConfig:       conf,
		TLSHandshakeTimeout:   10 * time.Second,
		ResponseHeaderTimeout: cfg.RequestTimeout,
		MaxIdleConnsPerHost:   32,
		IdleConnTimeout:       4 * time.Second, // the API closes its side after 5 s: never write into a closing connection
	}
}

// retrying wraps the transport in the only retry policy there is: reads, and
// writes that never left.
func retrying(cfg Config, rt http.RoundTripper) *http.Client {
	rc := retryablehttp.NewClient()
	rc.HTTPClient = &http.Client{Transport: rt, Timeout: cfg.RequestTimeout, CheckRedirect: keepRedirect}
	rc.Logger = nil
	rc.RetryMax = 2
	rc.RetryWaitMin = 100 * time.Millisecond
	rc.RetryWaitMax = time.Second
	rc.CheckRetry = checkRetry
	rc.Backoff = func(lo, hi time.Duration, attempt int, _ *http.Response) time.Duration {
		return min(lo<<attempt, hi)
	}
	rc.ErrorHandler = retryablehttp.PassthroughErrorHandler
	rc.RequestLogHook = func(_ retryablehttp.Logger, r *http.Request, attempt int) {
		if attempt > 0 {
			cfg.Logger.Debug().Str("method", r.Method).Str("path", r.URL.Path).Int("attempt", attempt+1).Msg("request sent again")
		}
	}
	outer := rc.StandardClient()
	outer.CheckRedirect = refuseRedirect
	return outer
}

var errRedirect = errors.New("the api answered with a redirect, which is refused")

// keepRedirect hands a redirect on to the outer client, which refuses it.
func keepRedirect(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

func refuseRedirect(*http.Request, []*http.Request) error { return errRedirect }

// checkRetry lets reads be sent again when the network or a proxying node
// failed, and writes only when no connection was made for them.
func checkRetry(ctx context.Context, res *http.Response, err error) (bool, error) {
	if ctx.Err() != nil {
		return false, ctx.Err()
	}
	if err != nil {
		var te *transportError
		if !errors.As(err, &te) || isIdentityError(err) || te.Timeout() {
			return false, nil
		}
		return te.method == http.MethodGet || !te.sent, nil
	}
	if res.Request == nil || res.Request.Method != http.MethodGet {
		return false, nil
	}
	switch res.StatusCode {
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout, 595, 596:
		return true, nil
	}
	return false, nil
}

// isIdentityError reports whether the other side is not who it should be.
func isIdentityError(err error) bool {
	var verification *tls.CertificateVerificationError
	var pin *pinError
	return errors.As(err, &verification) || errors.As(err, &pin)
}

// tracker notes for every failed request whether it left, and reads the
// server's clock from its answers.
type tracker struct {
	next  http.RoundTripper
	clock *serverClock
}

func (t *tracker) RoundTrip(r *http.Request) (*http.Response, error) {
	var connected atomic.Bool
	// The transport takes a second connection for a request with a body only
	// if nothing was written to the first, so asking for one resets the note.
	ctx := httptrace.WithClientTrace(r.Context(), &httptrace.ClientTrace{
		GetConn: func(string) { connected.Store(false) },
		GotConn: func(httptrace.GotConnInfo) { connected.Store(true) },
	})
	res, err := t.next.RoundTrip(r.WithContext(ctx))
	if err != nil {
		return nil, &transportError{method: r.Method, sent: connected.Load(), err: err}
	}
	t.clock.observe(res.Header.Get("Date"))
	res.Request = r
	return res, nil
}

// serverClock knows how far the cluster's clock is from ours, so that times of
// ours can be compared with the start times in UPIDs.
type serverClock struct {
	now    func() time.Time
	offset atomic.Int64 // server minus ours, in nanoseconds
}

// observe takes the Date of an answer; it has whole seconds, so small
// differences mean nothing.
func (s *serverClock) observe(date string) {
	if date == "" {
		return
	}
	at, err := http.ParseTime(date)
	if err != nil {
		return
	}
	off := at.Sub(s.now())
	if off.Abs() < 3*time.Second {
		off = 0
	}
	s.offset.Store(int64(off))
}

// at translates a time of ours into the server's.
func (s *serverClock) at(t time.Time) time.Time { return t.Add(time.Duration(s.offset.Load())) }
