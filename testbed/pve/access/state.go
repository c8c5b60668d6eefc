package access

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
	"time"
)

// User is one who may call.
type User struct {
	ID       string // name@realm
	Password Secret // "" = cannot log in with a password
	Tokens   []Token

	Disabled bool     `json:",omitempty"`
	Expire   int64    `json:",omitempty"` // Unix seconds; 0 = never
	Groups   []string `json:",omitempty"` // sorted
	// Info is what else is told of the user: "comment", "email", "firstname",
	// "lastname", "keys".
	Info map[string]string `json:",omitempty"`
}

// Token is an API token of a user.
type Token struct {
	ID     string
	Secret Secret
	// Shared gives the token all of its user's privileges; otherwise it needs
	// entries of its own.
	Shared  bool
	Expire  int64  `json:",omitempty"` // Unix seconds; 0 = never
	Comment string `json:",omitempty"`
}

// Entry grants a role on a path.
type Entry struct {
	Path    string
	Subject string // user@realm, user@realm!token or @group
	Role    string
	Here    bool // not on what is below the path
}

// GroupPrefix begins the subject of an entry for a group.
const GroupPrefix = "@"

// State is everybody and everything that was granted.
type State struct {
	Users  map[string]*User
	Groups map[string]string   // comment by name
	Roles  map[string][]string // the built-in ones too
	ACL    []Entry
}

// active reports whether the user exists and may log in.
func (u *User) active(now time.Time) bool {
	return u != nil && !u.Disabled && !expired(u.Expire, now)
}

func expired(at int64, now time.Time) bool { return at > 0 && now.Unix() >= at }

// Token returns a token of the user, nil when there is none.
func (u *User) Token(id string) *Token {
	for i := range u.Tokens {
		if u.Tokens[i].ID == id {
			return &u.Tokens[i]
		}
	}
	return nil
}

// token finds a token by its full name.
func (st *State) token(name string) *Token {
	user, id, ok := strings.Cut(name, "!")
	if u := st.Users[user]; ok && u != nil {
		return u.Token(id)
	}
	return nil
}

// Drop removes every entry of a subject.
func (st *State) Drop(subject string) {
	st.ACL = slices.DeleteFunc(st.ACL, func(e Entry) bool { return e.Subject == subject })
}

// Set makes an entry, or changes its reach.
func (st *State) Set(e Entry) {
	for i, o := range st.ACL {
		if o.Path == e.Path && o.Subject == e.Subject && o.Role == e.Role {
			st.ACL[i] = e
			return
		}
	}
	st.ACL = append(st.ACL, e)
}

// Unset removes an entry, whatever its reach; no error when there is none.
func (st *State) Unset(e Entry) {
	st.ACL = slices.DeleteFunc(st.ACL, func(o Entry) bool {
		return o.Path == e.Path && o.Subject == e.Subject && o.Role == e.Role
	})
}

func (st *State) clone() *State {
	n := &State{Users: map[string]*User{}, Groups: maps.Clone(st.Groups), Roles: map[string][]string{}, ACL: slices.Clone(st.ACL)}
	for id, u := range st.Users {
		c := *u
		c.Tokens, c.Groups, c.Info = slices.Clone(u.Tokens), slices.Clone(u.Groups), maps.Clone(u.Info)
		n.Users[id] = &c
	}
	for name, privs := range st.Roles {
		n.Roles[name] = slices.Clone(privs)
	}
	return n
}

// State returns what there is now, to read only.
func (d *Directory) State() *State {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.state
}

// Change applies f to a copy and keeps it. On an error nothing has changed.
func (d *Directory) Change(f func(*State) error) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	n := d.state.clone()
	if err := f(n); err != nil {
		return err
	}
	if err := n.write(d.File, d.Major); err != nil {
		return err
	}
	d.state = n
	clear(d.known)
	return nil
}

// add makes what the settings demand, where it is missing.
func (st *State) add(cfg Settings) error {
	for name, privs := range cfg.Roles {
		for _, p := range privs {
			if !slices.Contains(Privileges(cfg.Major), p) {
				return fmt.Errorf("role %s: invalid privilege '%s'", name, p)
			}
		}
		st.Roles[name] = slices.Clone(privs)
	}
	made := cfg.Made
	if made == nil {
		made = func(string) Secret { return "" }
	}
	for _, want := range append(slices.Clone(cfg.Users), User{ID: Superuser}) {
		u := st.Users[want.ID]
		if u == nil {
			u = &User{ID: want.ID}
			st.Users[want.ID] = u
		}
		u.Password = firstOf(want.Password, u.Password, made(want.ID))
		for _, t := range want.Tokens {
			have := u.Token(t.ID)
			if have == nil {
				u.Tokens = append(u.Tokens, Token{ID: t.ID})
				have = u.Token(t.ID)
			}
			have.Secret = firstOf(t.Secret, have.Secret, made(want.ID+"!"+t.ID))
			have.Shared = t.Shared
		}
	}
	for _, e := range cfg.ACL {
		path, ok := NormalizePath(e.Path)
		switch {
		case !ok:
			return fmt.Errorf("access entry for %s: invalid path '%s'", e.Subject, e.Path)
		case st.Roles[e.Role] == nil:
			return fmt.Errorf("access entry for %s on %s: role '%s' does not exist", e.Subject, e.Path, e.Role)
		}
		e.Path = path
		st.Set(e)
	}
	return nil
}

func firstOf(secrets ...Secret) Secret {
	for _, s := range secrets {
		if s != "" {
			return s
		}
	}
	return ""
}

// kept is the form of a State in its file, where secrets are not redacted.
type kept struct {
	Users  []keptUser
	Groups map[string]string
	Roles  map[string][]string
	ACL    []Entry
}

type keptUser struct {
	User
	Password string
	Tokens   []keptToken
}

type keptToken struct {
	Token
	Secret string
}

// readState reads a file; a missing one holds nothing.
func readState(file, major string) (*State, error) {
	st := &State{Users: map[string]*User{}, Groups: map[string]string{}, Roles: builtin(major)}
	if file == "" {
		return st, nil
	}
	b, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return st, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read users: %w", err)
	}
	var k kept
	if err := json.Unmarshal(b, &k); err != nil {
		return nil, fmt.Errorf("read users %s: %w; remove the file to begin with the configured ones", file, err)
	}
	for name, privs := range k.Roles {
		// a server of another version knows other privileges
		st.Roles[name] = slices.DeleteFunc(privs, func(p string) bool { return !slices.Contains(Privileges(major), p) })
	}
	maps.Copy(st.Groups, k.Groups)
	for _, ku := range k.Users {
		u := ku.User
		u.Password, u.Tokens = Secret(ku.Password), nil
		for _, kt := range ku.Tokens {
			kt.Token.Secret = Secret(kt.Secret)
			u.Tokens = append(u.Tokens, kt.Token)
		}
		st.Users[u.ID] = &u
	}
	st.ACL = slices.DeleteFunc(k.ACL, func(e Entry) bool { return st.Roles[e.Role] == nil })
	return st, nil
}

// write replaces the file whole.
func (st *State) write(file, major string) error {
	if file == "" {
		return nil
	}
	k := kept{Groups: st.Groups, Roles: maps.Clone(st.Roles), ACL: st.ACL}
	maps.DeleteFunc(k.Roles, func(name string, _ []string) bool { return builtin(major)[name] != nil })
	for _, id := range slices.Sorted(maps.Keys(st.Users)) {
		ku := keptUser{User: *st.Users[id], Password: st.Users[id].Password.Reveal()}
		for _, t := range ku.User.Tokens {
			ku.Tokens = append(ku.Tokens, keptToken{t, t.Secret.Reveal()})
		}
		k.Users = append(k.Users, ku)
	}
	b, err := json.MarshalIndent(k, "", "  ")
	if err != nil {
		return fmt.Errorf("write users: %w", err)
	}
	if err := os.WriteFile(file+".new", b, 0o600); err != nil {
		return fmt.Errorf("write users: %w", err)
	}
	if err := os.Rename(file+".new", file); err != nil {
		return fmt.Errorf("write users: %w", err)
	}
	return nil
}
