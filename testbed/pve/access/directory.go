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
	"time"
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

// Settings is what a Directory is made of.
type Settings struct {
	Major string // "8" or "9"
	// Users, Roles and ACL exist at least; those made through the API are added.
	Users []User
	Roles map[string][]string
	ACL   []Entry
	// Made returns the secret of one of Users ("a@pve") or its tokens
	// ("a@pve!t") that is set nowhere; nil leaves it empty.
	Made func(name string) Secret
	Key  []byte // signs tickets
	// Pool tells the pool that "/vms/N" or "/storage/ID" belongs to, or "".
	Pool func(path string) string
	// File keeps everything once the API has changed anything; "" keeps nothing.
	File string
	Now  func() time.Time
}

// Directory is the users and what they may do.
type Directory struct {
	Settings

	mu    sync.Mutex
	state *State                       // replaced whole, never altered
	known map[question]map[string]bool // answers given before
}

// question is what privileges depend on.
type question struct{ principal, path, pool string }

// maxKnown bounds the remembered answers.
const maxKnown = 20000

// New makes a directory from its settings and its file.
func New(cfg Settings) (*Directory, error) {
	d := &Directory{Settings: cfg, known: map[question]map[string]bool{}}
	state, err := readState(cfg.File, cfg.Major)
	if err != nil {
		return nil, err
	}
	if err := state.add(cfg); err != nil {
		return nil, err
	}
	d.state = state
	return d, nil
}

// ErrUnauthenticated is every refusal to say who somebody is.
var ErrUnauthenticated = errors.New("authentication failure")

// Login checks a password.
func (d *Directory) Login(user, password string) error {
	u := d.State().Users[user]
	if !u.active(d.Now()) || u.Password == "" || subtle.ConstantTimeCompare([]byte(u.Password), []byte(password)) != 1 {
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
	st, now := d.State(), d.Now()
	user, _, _ := strings.Cut(name, "!")
	t := st.token(name)
	if t == nil || secret == "" || subtle.ConstantTimeCompare([]byte(t.Secret), []byte(secret)) != 1 {
		return "", ErrUnauthenticated
	}
	if !st.Users[user].active(now) || expired(t.Expire, now) {
		return "", ErrUnauthenticated
	}
	return name, nil
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
	q := question{principal, path, d.Pool(path)}
	d.mu.Lock()
	defer d.mu.Unlock()
	privs, ok := d.known[q]
	if !ok {
		if len(d.known) >= maxKnown {
			clear(d.known)
		}
		privs = d.state.privs(d.Major, q)
		d.known[q] = privs
	}
	return privs
}

// privs works out an answer.
func (st *State) privs(major string, q question) map[string]bool {
	principal := q.principal
	user, _, isToken := strings.Cut(principal, "!")
	own := st.privsOf(major, user, q)
	if !isToken {
		return own
	}
	t := st.token(principal)
	if t == nil {
		return nil
	}
	if t.Shared {
		return own
	}
	granted := st.privsOf(major, principal, q)
	for p := range granted {
		if below, ok := own[p]; !ok {
			delete(granted, p)
		} else {
			granted[p] = granted[p] && below
		}
	}
	return granted
}

// privsOf are the privileges of the entries for exactly this subject, and for
// the groups of a user.
func (st *State) privsOf(major, subject string, q question) map[string]bool {
	out := map[string]bool{}
	if subject == Superuser {
		for _, p := range Privileges(major) {
			out[p] = true
		}
		return out
	}
	u := st.Users[subject]
	if u == nil && !strings.Contains(subject, "!") {
		return out
	}
	var groups []string
	if u != nil {
		for _, g := range u.Groups {
			groups = append(groups, GroupPrefix+g)
		}
	}
	st.grant(out, subject, groups, q.path)
	if q.pool != "" {
		st.grant(out, subject, groups, "/pool/"+q.pool)
	}
	return out
}

// grant adds what the entries give on a path. Those of a longer path take the
// place of those above, and a user's own that of his groups.
func (st *State) grant(out map[string]bool, subject string, groups []string, path string) {
	roles := map[string]bool{}
	for _, level := range levels(path) {
		mine, theirs := map[string]bool{}, map[string]bool{}
		for _, e := range st.ACL {
			if e.Path != level || e.Here && level != path {
				continue
			}
			switch {
			case e.Subject == subject:
				mine[e.Role] = !e.Here
			case slices.Contains(groups, e.Subject):
				theirs[e.Role] = !e.Here
			}
		}
		if len(mine) == 0 {
			mine = theirs
		}
		if len(mine) > 0 {
			roles = mine
		}
	}
	if _, none := roles["NoAccess"]; none {
		return
	}
	for role, below := range roles {
		for _, p := range st.Roles[role] {
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
