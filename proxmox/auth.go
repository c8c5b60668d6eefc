package proxmox

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"time"
)

const ticketPath = "/access/ticket"

// authorizer puts the credentials on a request.
type authorizer interface {
	authorize(r *http.Request) error
	// renew drops what the server refused to a request begun at that time and
	// reports whether another try can succeed.
	renew(begun time.Time) bool
}

type tokenAuth struct{ header string }

func (a *tokenAuth) authorize(r *http.Request) error {
	r.Header.Set("Authorization", a.header)
	return nil
}

func (*tokenAuth) renew(time.Time) bool { return false }

// ticketLife is how long a ticket is used; the server takes it for two hours.
const ticketLife = time.Hour

// ticketAuth logs in with user and password when a ticket is needed. The
// library's own session is not used: it is read without a lock, and it
// replays refused requests.
type ticketAuth struct {
	user     string
	password Secret
	now      func() time.Time
	post     func(ctx context.Context, in, out any) error

	mu      sync.Mutex
	ticket  string
	csrf    string
	expires time.Time
	renewed time.Time
}

func (a *ticketAuth) authorize(r *http.Request) error {
	if strings.HasSuffix(r.URL.Path, ticketPath) {
		return nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.ticket == "" || !a.now().Before(a.expires) {
		var out struct {
			Ticket string `json:"ticket"`
			CSRF   string `json:"CSRFPreventionToken"`
		}
		in := map[string]string{"username": a.user, "password": string(a.password)}
		if err := a.post(r.Context(), in, &out); err != nil {
			return err
		}
		a.ticket, a.csrf, a.expires = out.Ticket, out.CSRF, a.now().Add(ticketLife)
	}
	r.Header.Set("Cookie", "PVEAuthCookie="+a.ticket)
	if r.Method != http.MethodGet {
		r.Header.Set("CSRFPreventionToken", a.csrf)
	}
	return nil
}

// renew allows one login after a refusal, and not again for a minute: a
// request that a fresh ticket does not help is refused for good. A request that
// was begun before the last renewal had the ticket before.
func (a *ticketAuth) renew(begun time.Time) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.renewed.After(begun) {
		return true
	}
	if a.now().Sub(a.renewed) < time.Minute {
		return false
	}
	a.ticket, a.renewed = "", a.now()
	return true
}
