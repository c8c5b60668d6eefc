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
	set     bool // assigned by the line itself
	gone    bool // unset by the line
}

// File is what the line itself did to one file.
type File struct {
	Content Stream
}

// Scope is the state of one shell at one point of the line: variables,
// functions, working directory, positional parameters.
type Scope struct {
	login     map[string]variable // the login environment, shared and never written
	vars      map[string]variable // what the line changed
	funcs     map[string]*function
	passed    map[string]*function // functions of the shell that started this one, perhaps exported
	args      []string             // "$@"
	arg0      string
	cwd       string // absolute, or "" when not known
	home      string
	stdin     Stream
	fds       map[string]handle // other open descriptors; never changed in place
	kept      bool              // exec made its redirections last
	oldcwd    string            // the directory before the last cd
	dirs      []string          // the stack of pushd, nearest first
	cdable    bool              // cd takes the name of a variable
	exporting bool              // every variable that is assigned is exported
	keyword   bool              // words that look like assignments are some, wherever they stand
	via       []string
	spread    bool        // inside a pipeline or in the background
	running   []*function // outermost first
	loops     int         // endless loops around
	shared    *shared
}

// shared is what subshells see of each other.
type shared struct {
	files     map[string]File
	links     map[string]string   // symbolic links that the line makes
	vague     []string            // the keys of files that hold holes
	ran       map[string]bool     // scripts that ran before the line wrote them, if it does
	traps     []pending           // code that runs later
	aliases   map[string][]string // every definition of an alias
	expanding map[string]bool     // aliases that are being expanded
	programs  map[string]string   // copies that the line makes of programs of the image
}

// pending is code that a trap runs at the end, in the scope as it is then.
type pending struct {
	sc   *Scope
	code string
	at   Span
}

type function struct {
	name   string
	body   *syntax.Stmt
	called bool
	span   *Span // of the text around, for a body that came from nested code
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
		login: l.vars, vars: map[string]variable{}, funcs: map[string]*function{}, arg0: "bash", home: l.home,
		stdin: Stream{Inherit: true}, shared: &shared{files: map[string]File{}, links: map[string]string{}, ran: map[string]bool{},
			aliases: map[string][]string{}, expanding: map[string]bool{}, programs: map[string]string{}},
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
	_, ok := sc.lookup(name)
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
	if l != "" && l != t && len(sc.shared.links) < 64 {
		sc.shared.links[l] = t
	}
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
		clean = path.Clean(sc.shared.links[longest] + clean[len(longest):])
	}
	return clean
}

// Sub returns a copy for a subshell or for a launcher: what happens in it
// stays in it, files excepted.
func (sc *Scope) Sub() *Scope {
	c := *sc
	c.vars = maps.Clone(sc.vars)
	c.funcs = maps.Clone(sc.funcs)
	c.args = slices.Clip(sc.args)
	c.via = slices.Clip(sc.via)
	c.running = slices.Clip(sc.running)
	return &c
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
		c.passed = map[string]*function{}
	}
	maps.Copy(c.passed, sc.funcs)
	c.funcs = map[string]*function{}
	c.arg0, c.args, c.exporting, c.keyword = arg0, args, false, false
	return c
}

// In returns a copy with another working directory ("" when not known).
func (sc *Scope) In(dir string) *Scope {
	c := *sc
	c.cwd = dir
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
	name = sc.resolve(name)
	v, _ := sc.lookup(name)
	out := make([]string, 0, len(values))
	for _, x := range values {
		if len(x) > maxValue {
			x = string(HoleText)
		}
		switch {
		case v.lower:
			x = strings.ToLower(x)
		case v.upper:
			x = strings.ToUpper(x)
		}
		out = append(out, x)
	}
	v.values, v.isList, v.list, v.set = out, false, nil, true
	sc.vars[name] = v
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
	v := sc.vars[name]
	if len(list) > maxFields {
		list = []string{string(HoleFields)}
	}
	v.list, v.keys, v.isList, v.values, v.set, v.gone = list, keys, true, nil, true, false
	sc.vars[name] = v
}

// join replaces the state by one in which every branch may have happened.
func (sc *Scope) join(branches ...*Scope) {
	if len(branches) == 0 {
		return
	}
	first := branches[0]
	merged := maps.Clone(first.vars)
	cwd := first.cwd
	args := first.args
	for _, b := range branches[1:] {
		for n := range b.vars {
			if _, ok := merged[n]; !ok {
				merged[n] = either(first.login[n], b.vars[n], known(first.login, n), !b.vars[n].gone)
			}
		}
		for n, m := range merged {
			v, ok := b.lookup(n)
			merged[n] = either(m, v, !m.gone, ok)
		}
		for n, f := range b.funcs {
			first.funcs[n] = f
		}
		// Nearer to the root is worse, and nothing known is best.
		if b.cwd != cwd && (strings.HasPrefix(b.cwd, "/") && (!strings.HasPrefix(cwd, "/") || len(b.cwd) < len(cwd))) {
			cwd = b.cwd
		}
		if !slices.Equal(b.args, args) {
			args = []string{string(HoleFields)}
		}
	}
	sc.plugged(branches)
	sc.vars, sc.funcs, sc.cwd, sc.args = merged, first.funcs, cwd, args
}

// plugged joins the descriptors: any branch may have opened one for good.
func (sc *Scope) plugged(branches []*Scope) {
	fds := map[string]handle{}
	stdin := branches[0].stdin
	for _, b := range branches {
		maps.Copy(fds, b.fds)
		sc.cdable = sc.cdable || b.cdable
		sc.exporting = sc.exporting || b.exporting
		sc.keyword = sc.keyword || b.keyword
		switch same := b.stdin.Known == stdin.Known && b.stdin.Text == stdin.Text && b.stdin.File == stdin.File && b.stdin.Inherit == stdin.Inherit; {
		case same:
		case stdin.Inherit:
			stdin = b.stdin
		case !b.stdin.Inherit:
			stdin = Stream{}
		}
	}
	if len(fds) > 0 {
		sc.fds = fds
	}
	sc.stdin = stdin
	sc.oldcwd = branches[len(branches)-1].oldcwd
	sc.dirs = branches[len(branches)-1].dirs
}

func known(vars map[string]variable, name string) bool { _, ok := vars[name]; return ok }

// either is a variable that has one of two states.
func either(a, b variable, hasA, hasB bool) variable {
	switch {
	case !hasA && !hasB:
		return variable{gone: true}
	case hasA && hasB && same(a, b):
		return a
	case hasA && hasB && (a.isList || b.isList || a.isRef || b.isRef):
		return variable{values: []string{string(HoleFields)}, set: true, export: a.export || b.export}
	case hasA && hasB:
		a.values = union(a.values, b.values)
		a.set, a.export = a.set || b.set, a.export || b.export
		return a
	case hasB:
		a = b
	}
	if a.isList || a.isRef {
		return a
	}
	a.values = union(a.values, []string{string(HoleMaybe)})
	return a
}

func same(a, b variable) bool {
	return a.isList == b.isList && a.isRef == b.isRef && a.ref == b.ref && slices.Equal(a.values, b.values) && slices.Equal(a.list, b.list)
}

func union(a, b []string) []string {
	out := slices.Clone(a)
	for _, x := range b {
		if !slices.Contains(out, x) {
			out = append(out, x)
		}
	}
	if len(out) > 8 {
		return []string{string(HoleFields)}
	}
	return out
}
