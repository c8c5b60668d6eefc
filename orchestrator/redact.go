package orchestrator

import (
	"bytes"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// Redacted stands in the record for what looked like a secret. Only what is
// recorded is redacted: the caller gets the output as it is. The digests of a
// record are of the exact bytes, so that they can be compared; who can guess a
// short secret can prove his guess by them.
const Redacted = "[redacted]"

// redactOverlap is how much further than the recorded part of an output is
// looked at, so that a secret which the limit cuts in two is recognized: no
// built-in pattern needs more to match the beginning of a longer secret.
const redactOverlap = 4 << 10

// secretForm is one form of secrets: a pattern that begins where one of the
// hints does. What its groups match is redacted; without groups all that it
// matches. To try patterns at hints only keeps the cost proportional to the
// text, whatever somebody writes into it.
type secretForm struct {
	hints   []string // lower case
	pattern *regexp.Regexp
	// fits looks at the text around a hint first; nil = always. lower is s in
	// lower case.
	fits func(s, lower string, at int) bool
}

// secretForms are the built-in ones.
var secretForms = sync.OnceValue(func() (all []secretForm) {
	form := func(fits func(s, lower string, at int) bool, pattern string, hints ...string) {
		all = append(all, secretForm{hints, regexp.MustCompile(`^(?:` + pattern + `)`), fits})
	}
	const (
		quoted = `\\"(?:[^"\\]|\\[^"])*(?:\\")?|"(?:[^"\\]|\\(?s:.))*"?|'[^']*'?`
		value  = `((?:` + quoted + `|[^\s'"&;|<>\\,)}]|[,)}][^\s'"&;|<>\\,)}]|\\[^"])+)`
		is     = `(?:[_.-]?(?:value|data|b64|base64|[0-9]+))?(?:\\?["']\]?|\])?[ \t]*(?::=|[:=]>?)[ \t]*` + value
		names  = `(?i:passw(?:or)?d|passphrase|secret(?:[_.-]?(?:access[_.-]?)?key)?|token|credentials?|key|pwd)`
	)
	// Keys.
	whole := func(_, lower string, at int) bool { return strings.Contains(lower[at:], "-----end ") }
	form(whole,
		`-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----(?s:.*?)-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----`, "-----begin ")
	form(func(s, lower string, at int) bool { return !whole(s, lower, at) },
		`-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----[A-Za-z0-9+/=:,.()\s\\_-]*`, "-----begin ")
	// Tokens that say what they are.
	form(edge, `(?:AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{16}\b`, "akia", "asia", "abia", "acca")
	form(edge, `gh[pousr]_[A-Za-z0-9]{16,}|github_pat_[A-Za-z0-9_]{16,}`, "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_")
	form(edge, `gl(?:pat|dt|rt|rtr|cbt|ptt|ft|soat|imt|agent|oas)-[A-Za-z0-9_.-]{16,}`, "gl")
	form(edge, `xox[a-z]-[A-Za-z0-9-]{10,}|xapp-[A-Za-z0-9-]{10,}`, "xox", "xapp-")
	form(nil, `hooks\.slack\.com/(?:services|workflows)/[A-Za-z0-9/_-]+`, "hooks.slack.com")
	form(edge, `sk-[A-Za-z0-9_-]{16,}|[srp]k_(?:live|test)_[A-Za-z0-9]{10,}|whsec_[A-Za-z0-9+/=]{16,}`, "sk-", "sk_", "rk_", "pk_", "whsec_")
	form(edge, `AIza[A-Za-z0-9_-]{30,}|ya29\.[A-Za-z0-9_-]{16,}|GOCSPX-[A-Za-z0-9_-]{16,}`, "aiza", "ya29.", "gocspx-")
	form(edge, `npm_[A-Za-z0-9]{30,}|pypi-[A-Za-z0-9_-]{16,}|hf_[A-Za-z0-9]{20,}|do[opr]_v1_[a-f0-9]{32,}|dckr_[a-z]+_[A-Za-z0-9_-]{16,}`,
		"npm_", "pypi-", "hf_", "doo_v1_", "dop_v1_", "dor_v1_", "dckr_")
	form(edge, `SG\.[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{16,}|hv[sbr]\.[A-Za-z0-9_-]{20,}`, "sg.", "hvs.", "hvb.", "hvr.")
	form(alone, `eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}(?:\.[A-Za-z0-9_-]*)*`, "eyj")
	form(edge, `PVEAPIToken=[^\s=:]+[=:]([A-Za-z0-9-]+)|PVE(?:AuthCookie=)?:[^\s:]+:[0-9A-F]{8}::[A-Za-z0-9+/=]+`, "pve")
	form(nil, `\$(?:1|2[abxy]?|5|6|7|y|gy|argon2[a-z]*)\$[./A-Za-z0-9$=,+-]{8,}`, "$")
	// Places that hold one.
	form(nil, `(?i:authorization\\?["']?\s*[:=]\s*\\?["']?(?:(?:bearer|basic|token|digest|negotiate|apikey)\s+)?([^\s"'\\]+))`, "authorization")
	form(alone, `(?i:bearer)\s+([A-Za-z0-9._~+/=-]{16,})`, "bearer")
	form(nil, `(?i:cookie:)[ \t]*([^\r\n"']+)`, "cookie:")
	form(alone, `(?i:x-[a-z0-9-]*(?:token|key|secret|auth)[a-z0-9-]*\\?["']?:[ \t]*([^\s"'\\]+))`, "x-")
	form(nil, `://[^\s/:@'"<>]*:([^\s/'"<>]+)@|://([^\s/:@'"<>]{16,})@`, "://")
	form(assigned, names+is, "passw", "passphrase", "secret", "token", "credential", "key", "pwd")
	form(option, names+`(?:[ \t]+|=)`+value, "passw", "passphrase", "secret", "token", "credential", "key")
	form(func(_, lower string, at int) bool { i := strings.Index(lower, "curl"); return i >= 0 && i < at },
		`\s(?:-u|-U|--user|--proxy-user)[ \t=]*["']?[^\s:"']+:([^\s"']+)`, " -u", " --user", " --proxy-user")
	form(alone, `(?i:sshpass)\s+-p[ \t]*`+value, "sshpass")
	form(alone, `(?i:(?:login|machine)\s+\S+\s+password)\s+(\S+)`, "login", "machine")
	form(func(_, lower string, at int) bool { return strings.Contains(lower[at:], "chpasswd") },
		`(?:echo|printf)[ \t]+["']?[^\s:'"]+:([^\s'"|]+)["']?[ \t]*\|`, "echo", "printf")
	form(alone, `(?i:identified\s+(?:with\s+\S+\s+)?by)\s+`+value, "identified")
	return all
})

func wordByte(c byte) bool {
	return c == '_' || '0' <= c && c <= '9' || 'a' <= c|0x20 && c|0x20 <= 'z'
}

// edge: no word goes on to the left of a hint.
func edge(s, _ string, at int) bool { return at == 0 || !wordByte(s[at-1]) }

// alone is edge for words that may be joined by "-".
func alone(s, lower string, at int) bool { return edge(s, lower, at) && (at == 0 || s[at-1] != '-') }

// nameAt returns where the name begins that the hint is a part of. One behind a
// slash is a file's.
func nameAt(s string, at int) (from int, ok bool) {
	for from = at; from > 0 && at-from < 200 && (wordByte(s[from-1]) || s[from-1] == '-' || s[from-1] == '.'); from-- {
	}
	return from, from == 0 || s[from-1] != '/'
}

// assigned: the hint is the end of a name that says "secret".
func assigned(s, lower string, at int) bool {
	from, ok := nameAt(s, at)
	before := lower[from:at]
	trimmed := strings.TrimRight(before, "_.-")
	end := at
	for end < len(s) && end-at < 200 && (wordByte(s[end]) || s[end] == '-' || s[end] == '.') {
		end++
	}
	switch {
	case !ok && (end == len(s) || s[end] != '='): // a file's name, as in an error about it
		return false
	case strings.HasPrefix(lower[at:], "pwd"):
		return len(trimmed) < len(before) && trimmed != ""
	case strings.HasPrefix(lower[at:], "key"):
		return slices.ContainsFunc([]string{"api", "access", "private", "auth", "account", "encryption", "signing", "secret"}, func(w string) bool {
			return strings.HasSuffix(trimmed, w)
		})
	}
	return true
}

// option is assigned for a name that begins with "-" as a word of a command does.
func option(s, lower string, at int) bool {
	from, _ := nameAt(s, at)
	return s[from] == '-' && (from == 0 || strings.IndexByte(" \t\n'\"", s[from-1]) >= 0) && assigned(s, lower, at)
}

// lowered is s with the letters of ASCII in lower case, byte for byte.
func lowered(s string) string {
	b := []byte(s)
	for i, c := range b {
		if 'A' <= c && c <= 'Z' {
			b[i] = c | 0x20
		}
	}
	return string(b)
}

// redactor finds secrets in what is about to be recorded. The zero value knows
// the built-in forms.
type redactor struct {
	own   []*regexp.Regexp
	exact []string // values that are secrets by the name of their variable
}

// with adds values that are known to be secrets. Short ones would be found in
// everything.
func (r redactor) with(env map[string]string) redactor {
	r.exact = slices.Clone(r.exact)
	for name, value := range env {
		if len(value) >= 6 && secretName().MatchString(name) && !slices.Contains(r.exact, value) {
			r.exact = append(r.exact, value)
		}
	}
	return r
}

// known adds the secrets that a text holds: a verdict names words of a command
// without what told them to be secrets.
func (r redactor) known(text string) redactor {
	r.exact = slices.Clone(r.exact)
	for _, f := range r.spans(text) {
		whole := text[f.from:f.to]
		for _, v := range []string{whole, strings.Trim(whole, `"'\`)} {
			if len(v) >= 6 && !slices.Contains(r.exact, v) {
				r.exact = append(r.exact, v)
			}
		}
	}
	return r
}

// Redact returns the text without what looks like a secret or matches one of
// own, for whatever is kept or logged outside of a transaction's records.
func Redact(text string, own []*regexp.Regexp) string {
	text, _ = redactor{own: own}.text(text)
	return text
}

// span is a part of a text.
type span struct{ from, to int }

// text returns the text without its secrets, and how many were found. It is
// repeated until nothing is found any more, so that redacting twice changes
// nothing; a text that never comes to rest is dropped as a whole. The result is
// at most six times as long.
func (r redactor) text(s string) (string, int) { return r.head(s, len(s)) }

// head is text for the first limit bytes of s. The rest is only looked at: a
// secret that reaches over the limit is redacted as a whole.
func (r redactor) head(s string, limit int) (out string, n int) {
	limit = min(limit, len(s))
	const most = 16
	for range most {
		found := r.spans(s)
		if len(found) == 0 {
			return s[:limit], n
		}
		var b strings.Builder
		at, now := 0, -1
		for _, f := range found {
			if now < 0 && limit <= f.from {
				now = b.Len() + limit - at
			}
			b.WriteString(s[at:f.from])
			b.WriteString(Redacted)
			if at = f.to; now < 0 && limit <= f.to {
				now = b.Len()
			}
			n++
		}
		if now < 0 {
			now = b.Len() + limit - at
		}
		b.WriteString(s[at:])
		s, limit = b.String(), now
	}
	return Redacted, n + 1
}

// spans are the secrets of a text, sorted and apart from one another. What was
// redacted before is none.
func (r redactor) spans(s string) []span {
	var found []span
	take := func(m []int, from int) {
		group := false
		for i := 2; i < len(m); i += 2 {
			if m[i] >= 0 {
				found, group = append(found, span{from + m[i], from + m[i+1]}), true
			}
		}
		if !group {
			found = append(found, span{from + m[0], from + m[1]})
		}
	}
	lower := lowered(s)
	for _, f := range secretForms() {
		for _, h := range f.hints {
			for at := 0; ; {
				i := strings.Index(lower[at:], h)
				if i < 0 {
					break
				}
				i, at = at+i, at+i+len(h)
				if f.fits != nil && !f.fits(s, lower, i) {
					continue
				}
				if m := f.pattern.FindStringSubmatchIndex(s[i:]); m != nil {
					take(m, i)
					at = max(at, i+m[1]) // what is found later in it, is found the next time
				}
			}
		}
	}
	for _, p := range r.own {
		for _, m := range p.FindAllStringSubmatchIndex(s, -1) {
			take(m, 0)
		}
	}
	for _, v := range r.exact {
		for at := 0; ; {
			i := strings.Index(s[at:], v)
			if i < 0 {
				break
			}
			found = append(found, span{at + i, at + i + len(v)})
			at += i + len(v)
		}
	}
	return apart(s, found)
}

// apart joins spans that touch, makes one that cuts a marker hold it whole, and
// drops those that hold nothing but markers.
func apart(s string, found []span) []span {
	if len(found) == 0 {
		return nil
	}
	var marks []span
	for at := 0; ; {
		i := strings.Index(s[at:], Redacted)
		if i < 0 {
			break
		}
		marks = append(marks, span{at + i, at + i + len(Redacted)})
		at += i + len(Redacted)
	}
	for i, f := range found {
		for _, m := range marks {
			if f.from < m.to && m.from < f.to {
				found[i] = span{min(found[i].from, m.from), max(found[i].to, m.to)}
			}
		}
	}
	slices.SortFunc(found, func(a, b span) int { return a.from - b.from })
	var out []span
	for _, f := range found {
		switch n := len(out); {
		case f.from == f.to:
		case n > 0 && f.from <= out[n-1].to:
			out[n-1].to = max(out[n-1].to, f.to)
		default:
			out = append(out, f)
		}
	}
	return slices.DeleteFunc(out, func(f span) bool {
		return strings.ReplaceAll(s[f.from:f.to], Redacted, "") == ""
	})
}

// exactFields are the fields of records that recovery, resuming and the comparison of
// requests rely on, and those whose values are savepoint's own words. All
// other texts of a record are redacted, also those of fields to come.
var exactFields = map[string]bool{
	"Sandbox.Name": true, "Sandbox.HostKey": true, "Sandbox.Workspace": true, "Sandbox.Tenant": true, "Sandbox.VNet": true, "VMRef.Node": true, "boxNote.Name": true,
	"beginData.Digest": true, "beginData.Request": true, "beginData.EnvNames": true, "beginData.Profile": true,
	"stepData.Digest": true, "stepData.Request": true, "stepData.EnvNames": true, "stepData.Profile": true,
	"Judgement.Decision": true, "Judgement.Rule": true, "Lift.Rule": true, "Lift.By": true,
	"snapshotData.BootID": true, "restoredData.BootID": true, "healthData.Services": true, "Space.Mount": true,
	"ranData.Stdout": true, "ranData.Stderr": true, // redacted before they are cut, see recorded
	"ranData.Signal": true, "ranData.StdoutDigest": true, "ranData.StderrDigest": true, "ranData.Session": true,
	"taskData.Action": true, "saveData.Name": true, "returnData.Name": true,
}

// record returns a copy of a record's facts without secrets, and how many were
// found.
func (r redactor) record(data any) (any, int) {
	n := 0
	v := reflect.ValueOf(data)
	if !v.IsValid() {
		return data, 0
	}
	return r.value(v, &n).Interface(), n
}

var plainString = reflect.TypeFor[string]()

// value copies what it changes: the caller's facts may be shared.
func (r redactor) value(v reflect.Value, n *int) reflect.Value {
	switch v.Kind() {
	case reflect.String:
		if v.Type() != plainString { // a word of savepoint's own, or an id
			return v
		}
		s, found := r.text(v.String())
		*n += found
		if found == 0 {
			return v
		}
		return reflect.ValueOf(s)
	case reflect.Pointer, reflect.Interface:
		if v.IsNil() {
			return v
		}
		was := *n
		in := r.value(v.Elem(), n)
		if *n == was {
			return v
		}
		if v.Kind() == reflect.Interface {
			return in
		}
		p := reflect.New(v.Type().Elem())
		p.Elem().Set(in)
		return p
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			s, found := r.text(string(v.Bytes()))
			*n += found
			if found == 0 {
				return v
			}
			return reflect.ValueOf([]byte(s)).Convert(v.Type())
		}
		out, copied := v, false
		for i := range v.Len() {
			was := *n
			if in := r.value(v.Index(i), n); *n != was {
				if !copied {
					out, copied = reflect.MakeSlice(v.Type(), v.Len(), v.Len()), true
					reflect.Copy(out, v)
				}
				out.Index(i).Set(in)
			}
		}
		return out
	case reflect.Struct:
		return r.fields(v, n)
	default: // numbers and the like hold no text
		return v
	}
}

func (r redactor) fields(v reflect.Value, n *int) reflect.Value {
	out, copied := v, false
	for i := range v.NumField() {
		f := v.Type().Field(i)
		if !f.IsExported() || exactFields[v.Type().Name()+"."+f.Name] {
			continue
		}
		was := *n
		if in := r.value(v.Field(i), n); *n != was {
			if !copied {
				out, copied = reflect.New(v.Type()).Elem(), true
				out.Set(v)
			}
			out.Field(i).Set(in)
		}
	}
	return out
}

// noteRedacted adds to a record how many secrets were taken out of it.
func noteRedacted(data []byte, n int) []byte {
	if n == 0 || len(data) < 3 || data[len(data)-1] != '}' {
		return data
	}
	return append(append(data[:len(data)-1:len(data)-1], `,"redacted":`...), strconv.Itoa(n)+"}"...)
}

var redactedKey = []byte(`,"redacted":`)

// redactedIn reads what noteRedacted wrote: the last member of the object. A
// quote within a text is written with a backslash, so no text looks like it.
func redactedIn(data []byte) int {
	i := bytes.LastIndex(data, redactedKey)
	if i < 0 || len(data) == 0 {
		return 0
	}
	n, err := strconv.Atoi(string(data[i+len(redactedKey) : len(data)-1]))
	if err != nil {
		return 0
	}
	return n
}

// clean is a text without secrets, for a reason that quotes or shortens it: a
// pattern does not know a secret any more that was quoted or cut.
func (t *tx) clean(s string) string {
	if s != "" {
		s, _ = t.redactor().text(s)
	}
	return s
}

// harmless refuses a key that holds a secret: it is kept as it is, to be found
// by.
func (e *Engine) harmless(s Spec) error {
	if _, n := (redactor{own: e.c.Redact}).with(s.Env).known(s.Command).text(s.Key); n > 0 {
		return &UsageError{What: "idempotency key: it looks like a secret, and keys are kept in the journal", Mend: "use another one"}
	}
	return nil
}

// redactor knows also the secrets that the caller gave this command, or wrote
// into it.
func (t *tx) redactor() redactor {
	if t.secrets == nil || t.secretsOf != t.spec.Command {
		r := redactor{own: t.e.c.Redact}.with(t.spec.Env).known(t.spec.Command)
		for _, v := range t.spec.Validate {
			r = r.known(v.Command)
		}
		t.secrets, t.secretsOf = &r, t.spec.Command
	}
	return *t.secrets
}

// public drops from a session what would be redacted in the record: to keep it
// altered would change what the next command sees.
func (t *tx) public(d sessionData) sessionData {
	r := t.redactor()
	env := map[string]string{}
	for name, value := range d.Env {
		if _, n := r.text(name + "=" + value); n == 0 {
			env[name] = value
		}
	}
	if len(env) == 0 {
		env = nil
	}
	if _, n := r.text(d.Dir); n > 0 {
		d.Dir = ""
	}
	return sessionData{Dir: d.Dir, Env: env}
}

// recorded is what of an output goes into the record: its beginning, redacted
// before it is cut. head is at least that long and goes on behind the limit.
func (r redactor) recorded(head []byte, limit int) (out []byte, n int) {
	s, n := r.head(string(head), limit)
	return []byte(s[:min(len(s), limit)]), n
}
