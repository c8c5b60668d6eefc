package orchestrator

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"strings"
	"sync"

	"savepoint/policy"
)

// sessionData is a Session as it is recorded.
type sessionData struct {
	Dir string            `json:"dir,omitempty"`
	Env map[string]string `json:"env,omitempty"`
}

// sessions are the sessions of a sandbox's accounts. A value is never changed
// in place: savepoints share it.
type sessions map[policy.User]sessionData

// with returns a copy with another session for the account.
func (s sessions) with(as policy.User, d sessionData) sessions {
	c := maps.Clone(s)
	if c == nil {
		c = sessions{}
	}
	c[as] = d
	return c
}

// over returns base with the sessions of s in place of its own.
func (s sessions) over(base sessions) sessions {
	c := maps.Clone(base)
	if c == nil {
		c = sessions{}
	}
	maps.Copy(c, s)
	return c
}

// loadSessions reads what the sandbox's last committed transaction left. One
// that cannot be read is an error: to run somewhere else is no answer.
func (e *Engine) loadSessions(ctx context.Context, sb Sandbox) (sessions, error) {
	k, ok := e.c.Journal.(SessionKeeper)
	if !ok {
		return nil, nil
	}
	data, err := k.Session(ctx, sb.ID)
	if err != nil {
		return nil, &JournalError{fmt.Errorf("read the session of sandbox %s: %w", sb.Name, classed(err))}
	}
	var s sessions
	if len(data) > 0 {
		if err := json.Unmarshal(data, &s); err != nil {
			return nil, fmt.Errorf("read the session of sandbox %s: %v: %w", sb.Name, err, ErrDenied)
		}
	}
	for as, d := range s { // it may be older than the rules for names
		s[as] = d.safe()
	}
	return s, nil
}

// enter makes the command of the spec begin where its account's session is.
// What the request says itself wins.
func (t *tx) enter() {
	t.dir, t.env = t.spec.Dir, maps.Clone(t.spec.Env)
	if !t.spec.Session {
		return
	}
	d := t.view.session.over(t.base)[t.spec.As]
	if t.dir == "" {
		t.dir = d.Dir
	}
	if t.env == nil {
		t.env = map[string]string{}
	}
	for name, value := range d.Env {
		if _, asked := t.env[name]; !asked {
			t.env[name] = value
		}
	}
}

// left is the session after the command: what its shell left, without what
// the request set for this one command. nil when it is as before.
func (t *tx) left(s *Session) *sessionData {
	if s == nil || !t.spec.Session {
		return nil
	}
	before := t.view.session.over(t.base)[t.spec.As]
	after := sessionData{Dir: s.Dir, Env: map[string]string{}}
	if t.spec.Dir != "" && s.Dir == t.spec.Dir {
		after.Dir = before.Dir
	}
	for name, value := range s.Env {
		if asked, ok := t.spec.Env[name]; ok && asked == value {
			continue
		}
		after.Env[name] = value
	}
	for name := range t.spec.Env {
		if value, ok := before.Env[name]; ok && s.Env[name] == t.spec.Env[name] {
			after.Env[name] = value
		}
	}
	after = t.public(after.safe())
	if after.Dir == before.Dir && maps.Equal(after.Env, before.Env) {
		return nil
	}
	return &after
}

// at is where the session is now: of the account of the last order, or of the
// transaction.
func (t *tx) at() string {
	as := t.spec.As
	if as == "" {
		as = t.view.As
	}
	d := t.view.session.over(t.base)[as]
	if t.leaves != nil && t.view.State == StateCommitted {
		d = *t.leaves
	}
	return d.Dir
}

// safe drops what is not kept: names that would make a shell or the loader run
// other code, and names that say that a secret is behind them.
func (d sessionData) safe() sessionData {
	env := map[string]string{}
	for name, value := range d.Env {
		if envName(name) == nil && !secretName().MatchString(name) && !strings.ContainsRune(value, 0) {
			env[name] = value
		}
	}
	if len(env) == 0 {
		env = nil
	}
	if !strings.HasPrefix(d.Dir, "/") || controls(d.Dir) {
		d.Dir = ""
	}
	return sessionData{Dir: d.Dir, Env: env}
}

func controls(s string) bool {
	return strings.ContainsFunc(s, func(c rune) bool { return c < ' ' || c == 0x7f })
}

// secretName matches names that usually hold secrets.
var secretName = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`(?i)(secret|token|passw|passphrase|credential|private_?key|api_?key|access_?key|auth_?key|_auth$|^auth$|_pat$|cookie|_dsn$|connection_?string)`)
})

// envName refuses names that are none, and those that make a shell or the
// loader run other code than the command that was judged.
func envName(name string) error {
	bad := name == ""
	for i, b := range []byte(name) {
		if b != '_' && (b|0x20 < 'a' || b|0x20 > 'z') && (i == 0 || b < '0' || b > '9') {
			bad = true
		}
	}
	switch name {
	case "BASH_ENV", "ENV", "SHELLOPTS", "BASHOPTS", "PS4", "PROMPT_COMMAND", "IFS":
		bad = true
	}
	if bad || strings.HasPrefix(name, "LD_") || strings.HasPrefix(name, "BASH_FUNC_") {
		return &UsageError{What: fmt.Sprintf("environment name %q is refused", name), Mend: "set it within the command"}
	}
	return nil
}

// recorded is the Record.Session of a commit: nil when nothing has changed.
func (t *tx) recorded(changed sessions) (json.RawMessage, error) {
	if len(changed) == 0 {
		return nil, nil
	}
	data, err := json.Marshal(changed.over(t.base))
	if err != nil {
		return nil, fmt.Errorf("encode the session of sandbox %s: %w", t.view.Sandbox.Name, err)
	}
	return data, nil
}
