package shell

import (
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// variable is what is known of one shell variable. Several values mean that
// the branches of the line disagree.
type variable struct {
	values  []string // a scalar: each one is possible
	list    []string // an array, when isList
	isList  bool
	keys    []string // of the list, when they are not just its positions
	ref     string   // nameref target, when isRef
	isRef   bool
	integer bool
	lower   bool
	upper   bool
	export  bool
	set     bool     // assigned by the line itself
	gone    bool     // unset by the line
	fixed   bool     // read-only: an assignment fails
	loose   bool     // the branches disagree on integer, lower and upper
	refs    []string // what else an assignment may change, when the branches disagree
}

// Scope is the state of one shell at one point of the line: variables,
// functions, working directory, positional parameters.
type Scope struct {
	login   map[string]variable    // the login environment, shared and never written
	vars    map[string]variable    // what the line changed
	funcs   map[string][]*function // every definition that is possible; see defined
	passed  map[string][]*function // functions of the shell that started this one, perhaps exported
	args    []string               // "$@"
	arg0    string
	cwd     string   // absolute, or "" when not known
	places  []string // other directories that it may be, when the branches disagree
	stayed  string   // where the shell is if the last cd failed
	home    string
	stdin   Stream
	fds     map[string]handle // other open descriptors; never changed in place
	kept    bool              // exec made its redirections last
	oldcwd  string            // the directory before the last cd
	dirs    []string          // the stack of pushd, nearest first
	options settings
	via     []string
	spread  bool        // inside a pipeline or in the background
	behind  bool        // in the background
	running []*function // outermost first
	loops   int         // endless loops around
	frame   *frame      // the innermost construct that can be left
	whole   *Scope      // of a branch: the shell that it is a branch of
	pick    int         // which targets the links have that have several
	disk    *disk
	shared  *shared
}

// shared is what subshells and branches see of each other. Nothing is taken
// back: a link or an alias that a later one replaces is one of several.
type shared struct {
	links     map[string][]string // symbolic links that the line makes
	ran       map[string]bool     // scripts that ran before the line wrote them, if it does
	traps     []pending           // code that runs later
	aliases   map[string][]string
	expanding map[string]bool     // aliases that are being expanded
	programs  map[string][]string // copies that the line makes of programs of the image
	functions []*function         // all that the line declares
	bodies    map[*syntax.Stmt]*function
	version   int  // counts what is written to files
	work      int  // entries of tables copied and compared
	changes   int  // counts what changes the state
	guarded   bool // something changed what may be written: a file may stay as it is
	over      bool // more than can be kept: the text cannot be judged
}

// pending is code that a trap runs later, in the scope as it is then.
type pending struct {
	sc   *Scope
	code string
	at   Span
	last bool // at the end only
}

type function struct {
	name   string
	body   *syntax.Stmt
	called bool
	home   *Scope // the shell that declares it
	again  int    // calls inside itself
	span   *Span  // of the text around, for a body that came from nested code
}

// Login is the environment of a fresh login shell of one account. It does not
// change and can be shared.
type Login struct {
	home string
	vars map[string]variable
}

// NewLogin describes an account by its home directory and name.
func NewLogin(home, user string) *Login {
	l := &Login{home: home, vars: map[string]variable{}}
	for name, value := range map[string]string{
		"HOME": home, "USER": user, "LOGNAME": user, "SHELL": "/bin/bash", "BASH": "/bin/bash",
		"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "PWD": "/\x01", "OLDPWD": "/\x01",
		"IFS": " \t\n", "OSTYPE": "linux-gnu", "LANG": "\x01", "TERM": "\x01", "HOSTNAME": "\x01", "MACHTYPE": "x86_64-pc-linux-gnu",
		"HOSTTYPE": "x86_64", "RANDOM": "\x01", "SRANDOM": "\x01", "SECONDS": "\x01", "LINENO": "\x01", "UID": "\x01", "EUID": "\x01",
		"PPID": "\x01", "BASHPID": "\x01", "EPOCHSECONDS": "\x01", "EPOCHREALTIME": "\x01", "BASH_VERSION": "\x01", "SHLVL": "\x01", "REPLY": "\x02",
		"OPTIND": "1", "COLUMNS": "\x02", "LINES": "\x02", "BASHOPTS": "\x01", "SHELLOPTS": "\x01",
	} {
		l.vars[name] = variable{values: []string{value}}
	}
	for _, name := range [...]string{"HOME", "USER", "LOGNAME", "SHELL", "PATH", "PWD", "OLDPWD", "LANG", "TERM", "SHLVL"} {
		v := l.vars[name]
		v.export = true
		l.vars[name] = v
	}
	return l
}

// NewScope returns the state of a fresh login shell. Nothing is assumed about
// its working directory.
func NewScope(l *Login) *Scope {
	return &Scope{
		login: l.vars, vars: map[string]variable{}, funcs: map[string][]*function{}, arg0: "bash", home: l.home,
		stdin: Stream{Inherit: true}, disk: &disk{files: map[string]File{}}, shared: &shared{links: map[string][]string{}, ran: map[string]bool{},
			aliases: map[string][]string{}, expanding: map[string]bool{}, programs: map[string][]string{}, bodies: map[*syntax.Stmt]*function{}},
	}
}

// lookup finds a variable in what the line changed, then in the environment.
func (sc *Scope) lookup(name string) (variable, bool) {
	v, ok := sc.vars[name]
	switch {
	case v.gone:
		return variable{}, false // nothing of it stays: whoever sets it again begins anew
	case !ok:
		v, ok = sc.login[name]
	}
	return v, ok
}

// unset removes a variable and reports whether there was one.
func (sc *Scope) unset(name string) bool {
	v, ok := sc.lookup(name)
	sc.shared.changes++
	if v.fixed {
		return ok
	}
	for _, t := range v.refs {
		sc.vars[t] = either(sc.vars[t], variable{}, !sc.vars[t].gone, false)
	}
	sc.vars[name] = variable{gone: true}
	return ok
}

// Home is the home directory of the account.
func (sc *Scope) Home() string { return sc.home }

// Cwd is the working directory, or "" when it is not known.
func (sc *Scope) Cwd() string { return sc.cwd }

// Via lists the launchers around, outermost first.
func (sc *Scope) Via() []string { return sc.via }

// Stdin is what is known of standard input.
func (sc *Scope) Stdin() Stream { return sc.stdin }

// Looping reports whether the command is repeated without an end.
func (sc *Scope) Looping() bool { return sc.loops > 0 }

// Spread reports whether the command runs beside others.
func (sc *Scope) Spread() bool { return sc.spread }

// Linked notes that the line makes a symbolic link.
func (sc *Scope) Linked(link, target string) {
	l := Clean(link, sc.cwd)
	t := Clean(target, path.Dir(l))
	if l != "" && l != t {
		keep(sc, sc.shared.links, l, t)
	}
}

// keep adds one of several values to a table of what the line makes.
func keep(sc *Scope, table map[string][]string, key, value string) {
	switch list := table[key]; {
	case slices.Contains(list, value):
	case len(list) >= maxPlaces || len(table) >= 1024:
		sc.shared.over = true
	default:
		table[key] = append(list, value)
	}
}

const maxJoined = 1 << 20 // entries of tables that branches copy and compare

// spend counts what branches cost.
func (s *shared) spend(n int) {
	s.work += n
	s.over = s.over || s.work > maxJoined
}

// Path returns the canonical form of a path value, followed through links that
// the line makes. The link itself stays unless a slash follows it.
func (sc *Scope) Path(p string) string {
	clean := Clean(p, sc.cwd)
	if len(sc.shared.links) == 0 || clean == "" {
		return clean
	}
	open := strings.HasSuffix(p, "/")
	for range 8 {
		longest := "" // the only one that decides, whatever the order of the map
		for link := range sc.shared.links {
			rest, ok := strings.CutPrefix(clean, link)
			if ok && (strings.HasPrefix(rest, "/") || rest == "" && open) && len(link) > len(longest) {
				longest = link
			}
		}
		if longest == "" {
			break
		}
		targets := sc.shared.links[longest]
		if sc.pick < 0 {
			break // as if there were no link
		}
		clean = path.Clean(targets[min(sc.pick, len(targets)-1)] + clean[len(longest):])
	}
	return clean
}

// worlds lists copies of the scope for what else relative paths and links may
// mean, where it is not known which branch was taken.
func (sc *Scope) worlds() []*Scope {
	var out []*Scope
	targets := 0
	for _, t := range sc.shared.links {
		targets = max(targets, len(t))
	}
	for _, p := range sc.places {
		out = append(out, sc.In(p))
	}
	for pick := 1; pick <= targets; pick++ {
		c := *sc
		if c.pick = pick; pick == targets {
			c.pick = -1 // no link at all
		}
		out = append(out, &c)
	}
	return out
}

// Sub returns a copy for a subshell or for a launcher: what happens in it
// stays in it, files excepted.
func (sc *Scope) Sub() *Scope {
	c := sc.copy()
	c.whole, c.frame = nil, &frame{kind: shellFrame}
	return c
}

// branch returns a copy for what the shell may do or not: it is joined later.
func (sc *Scope) branch() *Scope {
	c := sc.copy()
	c.disk = sc.disk.fork()
	return c
}

func (sc *Scope) copy() *Scope {
	sc.shared.spend(len(sc.vars) + len(sc.funcs))
	c := *sc
	c.vars = maps.Clone(sc.vars)
	c.funcs = maps.Clone(sc.funcs)
	c.args = slices.Clip(sc.args)
	c.via = slices.Clip(sc.via)
	c.running = slices.Clip(sc.running)
	c.whole = sc.shell()
	return &c
}

// shell is the shell that a branch belongs to.
func (sc *Scope) shell() *Scope {
	if sc.whole != nil {
		return sc.whole
	}
	return sc
}

// Under returns a copy of the scope as seen by a program started by a
// launcher.
func (sc *Scope) Under(launcher string) *Scope {
	c := *sc
	c.via = append(slices.Clip(sc.via), launcher)
	return &c
}

// Fresh returns the scope of a new shell that a program starts: exported
// variables only, no functions, given positional parameters.
func (sc *Scope) Fresh(launcher, arg0 string, args []string) *Scope {
	c := sc.Under(launcher)
	c.vars = make(map[string]variable, len(sc.vars))
	for n, v := range sc.vars {
		// A variable that the line assigned without exporting it is gone in
		// the child; keeping it known would be wrong, dropping it too: the
		// child then sees what the login environment had, if anything.
		if v.export {
			c.vars[n] = v
		}
	}
	c.passed = maps.Clone(sc.passed)
	if c.passed == nil {
		c.passed = map[string][]*function{}
	}
	for n, list := range sc.funcs {
		c.passed[n] = added(c.passed[n], list...)
	}
	c.funcs = map[string][]*function{}
	c.arg0, c.args, c.options = arg0, args, settings{}
	c.whole, c.frame = nil, &frame{kind: shellFrame}
	return c
}

// In returns a copy with another working directory ("" when not known).
func (sc *Scope) In(dir string) *Scope {
	c := *sc
	c.cwd, c.places = dir, nil
	return &c
}

// WithStdin returns a copy with another standard input.
func (sc *Scope) WithStdin(s Stream) *Scope {
	c := *sc
	c.stdin = s
	return &c
}

func (sc *Scope) resolve(name string) string {
	for range 8 {
		v, ok := sc.lookup(name)
		if !ok || !v.isRef {
			return name
		}
		name = v.ref
	}
	return name
}

// get returns the possible values of a scalar. An unset one has the hole that
// may be empty.
func (sc *Scope) get(name string) []string {
	v, ok := sc.lookup(sc.resolve(name))
	switch {
	case !ok:
		return []string{string(HoleMaybe)}
	case v.isList && len(v.list) > 0:
		return v.list[:1]
	case v.isList:
		return []string{""}
	default:
		return v.values
	}
}

func (sc *Scope) array(name string) ([]string, bool) {
	v, ok := sc.lookup(sc.resolve(name))
	if !ok || !v.isList {
		return nil, false
	}
	return v.list, true
}

// keys lists the keys of an array.
func (sc *Scope) keys(name string) []string {
	v, ok := sc.lookup(sc.resolve(name))
	switch {
	case !ok:
		return nil
	case !v.isList:
		return []string{"0"}
	case len(v.keys) == len(v.list):
		return v.keys
	}
	out := make([]string, len(v.list))
	for i := range out {
		if out[i] = strconv.Itoa(i); len(v.keys) > 0 || v.list[i] == string(HoleFields) {
			return []string{string(HoleFields)}
		}
	}
	return out
}

// assigned reports whether the line itself gave the variable its value.
func (sc *Scope) assigned(name string) bool {
	v, _ := sc.lookup(sc.resolve(name))
	return v.set
}

func (sc *Scope) setValues(name string, values []string) {
	sc.shared.changes++
	name = sc.resolve(name)
	v, had := sc.lookup(name)
	out := make([]string, 0, len(values))
	for _, x := range values {
		if len(x) > maxValue {
			x = string(HoleText)
		}
		if v.loose {
			out = append(out, x)
		}
		switch {
		case v.lower:
			x = strings.ToLower(x)
		case v.upper:
			x = strings.ToUpper(x)
		}
		out = append(out, x)
	}
	if len(out) > len(values) {
		out = union(nil, out)
	}
	sc.through(v, out)
	w := v
	w.values, w.isList, w.list, w.set, w.gone = out, false, nil, true, false
	if v.fixed {
		w = either(v, w, had, true) // the assignment fails, unless a branch says otherwise
	}
	sc.vars[name] = w
}

// through assigns to the variables that a name may refer to.
func (sc *Scope) through(v variable, values []string) {
	for _, t := range v.refs {
		if old, had := sc.lookup(t); t != "" && len(old.refs) == 0 {
			b := old
			b.values, b.isList, b.list, b.set, b.gone = values, false, nil, true, false
			sc.vars[t] = either(old, b, had, true)
		}
	}
}

func (sc *Scope) set(name, value string) { sc.setValues(name, []string{value}) }

// Set assigns a variable that the program's environment gets.
func (sc *Scope) Set(name, value string) {
	sc.set(name, value)
	v, _ := sc.lookup(name)
	v.export = true
	sc.vars[name] = v
}

func (sc *Scope) setList(name string, list []string, keys ...string) {
	name = sc.resolve(name)
	sc.shared.changes++
	v := sc.vars[name]
	if len(list) > maxFields {
		list = []string{string(HoleFields)}
	}
	sc.through(v, []string{string(HoleFields)})
	u := v
	u.list, u.keys, u.isList, u.values, u.set, u.gone = list, keys, true, nil, true, false
	if v.fixed {
		u = either(v, u, true, true)
	}
	sc.vars[name] = u
}
