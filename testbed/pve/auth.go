package pve

import (
	"errors"
	"strings"
	"time"

	"savepoint/testbed/pve/access"
	"savepoint/testbed/pve/httpd"
)

// caller is who makes a call.
type caller struct {
	name   string // user@realm or user@realm!token; "" for nobody
	ticket bool   // came with a ticket, not a token
}

// root reports whether the caller is the superuser himself; his tokens are not.
func (c caller) root() bool { return c.name == access.Superuser && c.ticket }

// The reasons of a 401.
var (
	errNoTicket = errors.New("No ticket")
	errBadAuth  = errors.New("Authentication failed!")
	errCSRF     = errors.New("Permission denied - invalid csrf token")
)

// authenticate says who makes the request. A ticket in a cookie goes before a token.
func (s *Server) authenticate(r *httpd.Request) (caller, error) {
	now := s.cfg.Now()
	if ticket := cookie(r.Header["cookie"], "PVEAuthCookie"); ticket != "" {
		user, err := s.access.CheckTicket(unescape(strings.ReplaceAll(ticket, "+", "%2B")), now)
		if err != nil {
			return caller{}, errBadAuth
		}
		if r.Method != "GET" && !s.access.CheckCSRF(r.Header["csrfpreventiontoken"], user, now) {
			return caller{}, errCSRF
		}
		return caller{name: user, ticket: true}, nil
	}
	if value, ok := strings.CutPrefix(r.Header["authorization"], "PVEAPIToken="); ok {
		name, err := s.access.Token(value)
		if err != nil {
			return caller{}, errBadAuth
		}
		return caller{name: name}, nil
	}
	return caller{}, errNoTicket
}

func cookie(header, name string) string {
	for part := range strings.SplitSeq(header, ";") {
		if k, v, ok := strings.Cut(strings.TrimSpace(part), "="); ok && k == name {
			return v
		}
	}
	return ""
}

// unauthorized makes a 401 wait, as guesses must not be cheap.
func (s *Server) unauthorized(r *httpd.Request, reason string) *httpd.Response {
	s.hesitate(r)
	return httpd.Text(401, reason, "")
}

func (s *Server) hesitate(r *httpd.Request) {
	if s.cfg.UnauthorizedDelay <= 0 {
		return
	}
	t := time.NewTimer(s.cfg.UnauthorizedDelay)
	defer t.Stop()
	select {
	case <-t.C:
	case <-r.Context().Done():
	}
}
