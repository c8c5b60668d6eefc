package access

import (
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"sync"
)

// Secret is a password or a token's secret. It prints as "redacted".
type Secret string

func (Secret) String() string { return "redacted" }

// Format keeps the secret out of every verb, also those that are no use for it.
func (Secret) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, "redacted") }

// GoString keeps the secret out of %#v.
func (Secret) GoString() string { return "redacted" }

// MarshalText keeps the secret out of JSON.
func (Secret) MarshalText() ([]byte, error) { return []byte("redacted"), nil }

// Reveal returns the secret itself.
func (s Secret) Reveal() string { return string(s) }

// User is one who may call.
type User struct {
	ID       string // name@realm
	Password Secret // "" = cannot log in with a password
	Tokens   []Token
}

// Token is an API token of a user.
type Token struct {
	ID     string
	Secret Secret
	// Shared gives the token all of its user's privileges; otherwise it needs
	// entries of its own.
	Shared bool
}

// Entry grants a role on a path.
type Entry struct {
	Path    string
	Subject string // user@realm or user@realm!token
	Role    string
	Here    bool // not on what is below the path
}

// Directory is the users and what they may do. It does not change, except for
// which pool an object is in.
type Directory struct {
	major string
	users map[string]User
	roles map[string][]string
	acl   []Entry
	key   []byte
	pool  func(path string) string

	mu    sync.Mutex
	known map[question]map[string]bool // answers given before
}

// question is what privileges depend on.
type question struct{ principal, path, pool string }

// maxKnown bounds the remembered answers.
const maxKnown = 20000

// New makes a directory for a major version ("8", "9"). key signs tickets.
// pool tells the pool that "/vms/N" or "/storage/ID" belongs to, or "".
func New(major string, users []User, roles map[string][]string, acl []Entry, key []byte, pool func(path string) string) (*Directory, error) {
	d := &Directory{major: major, users: map[string]User{}, roles: builtin(major), acl: acl, key: key, pool: pool, known: map[question]map[string]bool{}}
	for name, privs := range roles {
		for _, p := range privs {
			if !slices.Contains(Privileges(major), p) {
				return nil, fmt.Errorf("role %s: invalid privilege '%s'", name, p)
			}
		}
		d.roles[name] = privs
	}
	for _, u := range users {
		d.users[u.ID] = u
	}
	for _, e := range acl {
		if _, ok := d.roles[e.Role]; !ok {
			return nil, fmt.Errorf("access entry for %s on %s: role '%s' does not exist", e.Subject, e.Path, e.Role)
		}
		if _, ok := NormalizePath(e.Path); !ok {
			return nil, fmt.Errorf("access entry for %s: invalid path '%s'", e.Subject, e.Path)
		}
	}
	return d, nil
}

// ErrUnauthenticated is every refusal to say who somebody is.
var ErrUnauthenticated = errors.New("authentication failure")

// Login checks a password.
func (d *Directory) Login(user, password string) error {
	u, ok := d.users[user]
	if !ok || u.Password == "" || subtle.ConstantTimeCompare([]byte(u.Password), []byte(password)) != 1 {
		return ErrUnauthenticated
	}
	return nil
}

// Token checks "user@realm!id=secret" and returns the principal, which is the
// part before the '='.
func (d *Directory) Token(value string) (string, error) {
	name, secret, ok := strings.Cut(value, "=")
	if !ok {
		return "", ErrUnauthenticated
	}
	if t, ok := d.token(name); ok && subtle.ConstantTimeCompare([]byte(t.Secret), []byte(secret)) == 1 && secret != "" {
		return name, nil
	}
	return "", ErrUnauthenticated
}

func (d *Directory) token(name string) (Token, bool) {
	user, id, ok := strings.Cut(name, "!")
	if !ok {
		return Token{}, false
	}
	for _, t := range d.users[user].Tokens {
		if t.ID == id {
			return t, true
		}
	}
	return Token{}, false
}

var rePath = regexp.MustCompile(`^[a-zA-Z0-9._/-]+$`)

// NormalizePath brings an object's path into its one form; false means that it
// cannot be one.
func NormalizePath(p string) (string, bool) {
	parts := strings.FieldsFunc(p, func(r rune) bool { return r == '/' })
	p = "/" + strings.Join(parts, "/")
	return p, rePath.MatchString(p)
}

// Privs returns the principal's privileges on a path, to read only; the value
// says whether they reach below it.
func (d *Directory) Privs(principal, path string) map[string]bool {
	path, ok := NormalizePath(path)
	if !ok {
		return nil
	}
	q := question{principal, path, d.pool(path)}
	d.mu.Lock()
	defer d.mu.Unlock()
	privs, ok := d.known[q]
	if !ok {
		if len(d.known) >= maxKnown {
			clear(d.known)
		}
		privs = d.privs(q)
		d.known[q] = privs
	}
	return privs
}

// privs works out an answer.
func (d *Directory) privs(q question) map[string]bool {
	principal := q.principal
	user, _, isToken := strings.Cut(principal, "!")
	own := d.privsOf(user, q)
	if !isToken {
		return own
	}
	t, ok := d.token(principal)
	if !ok {
		return nil
	}
	if t.Shared {
		return own
	}
	granted := d.privsOf(principal, q)
	for p := range granted {
		if below, ok := own[p]; !ok {
			delete(granted, p)
		} else {
			granted[p] = granted[p] && below
		}
	}
	return granted
}

// privsOf are the privileges of the entries for exactly this subject.
func (d *Directory) privsOf(subject string, q question) map[string]bool {
	out := map[string]bool{}
	if subject == Superuser {
		for _, p := range Privileges(d.major) {
			out[p] = true
		}
		return out
	}
	if _, isUser := d.users[subject]; !isUser && !strings.Contains(subject, "!") {
		return out
	}
	d.grant(out, subject, q.path)
	if q.pool != "" {
		d.grant(out, subject, "/pool/"+q.pool)
	}
	return out
}

func (d *Directory) grant(out map[string]bool, subject, path string) {
	roles := map[string]bool{}
	for _, level := range levels(path) {
		here := map[string]bool{}
		for _, e := range d.acl {
			at, _ := NormalizePath(e.Path)
			if e.Subject == subject && at == level && (!e.Here || level == path) {
				here[e.Role] = !e.Here
			}
		}
		if len(here) > 0 {
			roles = here
		}
	}
	if _, none := roles["NoAccess"]; none {
		return
	}
	for role, below := range roles {
		for _, p := range d.roles[role] {
			out[p] = out[p] || below
		}
	}
}

// levels are the path and all above it, the shortest first.
func levels(path string) []string {
	out := []string{"/"}
	for i, c := range path {
		if c == '/' && i > 0 {
			out = append(out, path[:i])
		}
	}
	if path != "/" {
		out = append(out, path)
	}
	return out
}

// Has reports whether the principal has the privilege on the path.
func (d *Directory) Has(principal, path, priv string) bool {
	_, ok := d.Privs(principal, path)[priv]
	return ok
}
