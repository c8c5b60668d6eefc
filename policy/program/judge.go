package program

import (
	"slices"
	"strings"

	"savepoint/policy/shell"
)

// Judge is the shell.Host that knows the tables. It is used for one text.
type Judge struct {
	tables    *Tables
	sink      Sink
	tentative int
	lenient   int               // text is judged that may be a part of a command only
	aliases   map[string]string // of git, as the text sets them
	aliasing  int               // aliases that are being judged
}

// NewJudge returns a judge that reports to the sink.
func NewJudge(t *Tables, sink Sink) *Judge { return &Judge{tables: t, sink: sink} }

// Report passes a fact on, unless only a guess led to it.
func (j *Judge) Report(f shell.Fact) {
	if j.tentative == 0 && !(j.lenient > 0 && f.Kind == shell.FactParse) {
		j.sink.Fact(f)
	}
}

// Write reports a redirection to a file.
func (j *Judge) Write(w *shell.Walker, sc *shell.Scope, path string) {
	j.redirect(w, sc, ">", Write, path)
}

// Read reports a redirection from a file.
func (j *Judge) Read(w *shell.Walker, sc *shell.Scope, path string) {
	j.redirect(w, sc, "<", Read, path)
}

func (j *Judge) redirect(w *shell.Walker, sc *shell.Scope, name string, a Action, path string) {
	clean := sc.Path(path)
	j.sink.Use(Use{
		Name: name, Argv: []string{name, path}, Operands: []string{path}, Known: true,
		ReadOnly: a == Read || sinkhole(clean),
		Accesses: []Access{{Action: a, Path: clean}}, Via: sc.Via(), Span: w.Here(), Tentative: j.tentative > 0,
		Reach: probe(w, clean),
	})
}

// probe reports whether a redirection opens a port of this machine for a
// command that says only what the line holds.
func probe(w *shell.Walker, path string) string {
	if loopDevice.MatchString(path) && !engineDoor.MatchString(strings.ReplaceAll(path, "/", ":")) && w.Says() {
		return Here
	}
	return ""
}

// sinkhole reports whether writing to the path changes nothing.
func sinkhole(path string) bool {
	switch path {
	case "/dev/null", "/dev/stdout", "/dev/stderr", "/dev/tty", "/dev/zero", "/dev/full":
		return true
	}
	return strings.HasPrefix(path, "/dev/fd/")
}

// systemDirs hold the programs of the image; only root writes there.
var systemDirs = [...]string{"/bin/", "/sbin/", "/usr/bin/", "/usr/sbin/", "/usr/local/bin/", "/usr/local/sbin/", "/usr/lib/git-core/"}

// trusted reports whether the command word names a program of the image.
func trusted(word string) bool {
	if !strings.Contains(word, "/") {
		return true
	}
	clean := shell.Clean(word, "")
	for _, d := range systemDirs {
		if strings.HasPrefix(clean, d) {
			return true
		}
	}
	return false
}

// Trusted reports whether the command word names a program of the image, not a
// file that the command may have made.
func Trusted(word string) bool { return trusted(word) }

// described finds the table of a program, also by the family of its name or
// without the version behind it, and the name that the table is for.
func (j *Judge) described(word, name string) (*Spec, string) {
	if spec := j.tables.specs[name]; spec != nil {
		return spec, name
	}
	if i := strings.IndexByte(name, '.'); i > 0 && trusted(word) {
		if spec := j.tables.specs[name[:i]+".*"]; spec != nil {
			return spec, name
		}
	}
	base := strings.TrimRight(name, "0123456789.-")
	if spec := j.tables.specs[base]; base != name && spec != nil && spec.Handler == "interpreter" {
		return spec, base // such as python3.12
	}
	return nil, name
}

// Run judges one program.
func (j *Judge) Run(w *shell.Walker, sc *shell.Scope, c shell.Call) shell.Stream {
	name := shell.Name(c.Argv[0])
	if !trusted(c.Argv[0]) {
		if out, ok := j.local(w, sc, c); ok {
			return out
		}
	}
	c = j.around(w, sc, c, name)
	spec, called := j.described(c.Argv[0], name)
	if spec == nil {
		j.unknown(w, sc, c, name)
		return shell.Stream{Fetched: c.Stdin.Fetched, Decoded: c.Stdin.Decoded || c.Stdin.Known && c.Stdin.Text != ""}
	}
	u := Use{Name: called, Argv: c.Argv, Span: c.Span, Via: sc.Via(), Known: true, Stdin: c.Stdin}
	if _, sure := printsHelp(called, c.Argv[1:]); sure && trusted(c.Argv[0]) {
		u.ReadOnly, u.Prints = true, true
		j.use(u)
		return shell.Stream{}
	}
	if help(c.Argv) && trusted(c.Argv[0]) {
		u.ReadOnly, u.Options = true, []Option{{Name: c.Argv[len(c.Argv)-1], Known: true}}
		if name == "go" { // else it starts the tool chain that the project names
			u.ReadOnly = false
			if len(c.Env) == 0 {
				u.Hardened = "GOTOOLCHAIN=local go version"
			}
		}
		j.use(u)
		return shell.Stream{}
	}
	u.Reach = reach(sc, c, called)
	u.Parsed = len(spec.options) > 0
	args := c.Argv[1:]
	for len(spec.Sub) > 0 && spec.Handler == "" {
		p := spec.parse(args)
		if len(p.operands) == 0 {
			break
		}
		sub, ok := spec.Sub[p.operands[0]]
		if !ok {
			break
		}
		u.Options = append(u.Options, p.options...)
		u.Sub = append(u.Sub, p.operands[0])
		j.options(w, sc, &u, p.options)
		if p.odd && !spec.Inert {
			u.Known = false
		}
		spec, args = sub, p.operands[1:]
		if help(append([]string{""}, args...)) && u.Known {
			u.ReadOnly = true
			j.use(u)
			return shell.Stream{}
		}
	}
	return j.apply(w, sc, c, spec, u, args)
}

// around judges what does not depend on the table of a program: code that an
// argument holds, where its requests go, and whether the line has just fetched
// it. It returns the call with the place of a database that variables name.
func (j *Judge) around(w *shell.Walker, sc *shell.Scope, c shell.Call, name string) shell.Call {
	j.argumentCode(w, sc, c, name)
	for _, a := range c.Argv[1:] {
		if strings.Contains(a, "://") && isMetadata(hostOf(a)) {
			w.Report(sc, FactMetadata, a, c.Span)
		}
	}
	if !strings.Contains(c.Argv[0], "/") && fetchedProgram(sc, name) {
		w.Report(sc, shell.FactFetched, name, c.Span)
	}
	if host := frameworkDatabase(sc, c); host != "" {
		j.use(Use{Name: name, Argv: c.Argv, Span: c.Span, Via: sc.Via(), Known: true, Accesses: []Access{{Action: Upload, Path: host}}})
	}
	if host := implicitHost(sc, c, name); host != "" {
		c.Argv = append(slices.Clip(c.Argv), "--host="+host)
	}
	return c
}

func (j *Judge) use(u Use) {
	u.Tentative = j.tentative > 0
	j.sink.Use(u)
}

// apply judges a program whose table is found.
func (j *Judge) apply(w *shell.Walker, sc *shell.Scope, c shell.Call, spec *Spec, u Use, args []string) shell.Stream {
	if spec.Handler != "" {
		return j.handle(w, sc, c, spec, u, args)
	}
	return j.generic(w, sc, c, spec, u, args)
}

// listing is the paths that a reader prints: those ls is given, and those that
// come in where nothing is left out.
func listing(u Use, p parsed, c shell.Call) []string {
	switch u.Name {
	case "ls":
		if hasFlag(p, "-d", "--directory") || slices.ContainsFunc(p.operands, func(o string) bool { return shell.Has(o, shell.HoleStar) || shell.Has(o, shell.HoleChar) }) {
			return p.operands
		}
	case "cat", "sort", "uniq", "tac", "head", "tail", "tr":
		if len(p.operands) == 0 || u.Name == "tr" {
			return c.Stdin.Listing
		}
	}
	return nil
}

func fetches(list []Access) bool {
	for _, a := range list {
		if a.Action == Fetch {
			return true
		}
	}
	return false
}

// decodes reports whether the program turns encoded text of the line into
// other text that is not known.
func decodes(u Use, c shell.Call) bool {
	if c.Stdin.Decoded {
		return true
	}
	fromLine := c.Stdin.Known && c.Stdin.Text != ""
	switch u.Name {
	case "base64", "base32", "basenc", "uudecode":
		for _, o := range u.Options {
			if o.Name == "-d" || o.Name == "--decode" || o.Name == "-D" {
				return fromLine || len(u.Operands) > 0
			}
		}
	case "xxd", "gunzip", "zcat", "bunzip2", "xzcat", "openssl", "gpg", "rev", "tr", "sed", "awk", "perl", "python3", "python", "jq", "iconv", "gzip":
		return fromLine
	}
	return false
}

// local judges a program that is not of the image: a script or binary that
// the line may have made itself.
func (j *Judge) local(w *shell.Walker, sc *shell.Scope, c shell.Call) (shell.Stream, bool) {
	f, ok := sc.File(c.Argv[0])
	if !ok {
		return shell.Stream{}, false
	}
	if f.Content.Known && strings.HasPrefix(f.Content.Text, "#!") && !strings.Contains(firstLine(f.Content.Text), "sh") {
		j.code(w, sc, &Use{Name: shell.Name(c.Argv[0]), Span: c.Span}, firstLine(f.Content.Text), f.Content.Text)
	} else {
		w.Run(sc.Fresh(c.Argv[0], c.Argv[0], c.Argv[1:]), f.Content, c.Span)
	}
	j.use(Use{Name: shell.Name(c.Argv[0]), Argv: c.Argv, Span: c.Span, Via: sc.Via()})
	return shell.Stream{}, true
}

func firstLine(s string) string {
	line, _, _ := strings.Cut(s, "\n")
	return line
}

// unknown judges a program nobody described: a local change, unless one of
// its arguments begins a command that would be a catastrophe.
func (j *Judge) unknown(w *shell.Walker, sc *shell.Scope, c shell.Call, name string) {
	u := Use{Name: name, Argv: c.Argv, Operands: c.Argv[1:], Span: c.Span, Via: sc.Via(), Stdin: c.Stdin}
	if _, sure := printsHelp(name, c.Argv[1:]); sure && trusted(c.Argv[0]) {
		u.Known, u.ReadOnly, u.Prints = true, true, true
		j.use(u)
		return
	}
	u.Reach = reach(sc, c, name)
	results(sc, &u, c.Argv[1:])
	j.use(u)
	j.guess(w, sc, c, name, c.Argv[1:])
}

// guess judges every place in the arguments at which a command may begin.
func (j *Judge) guess(w *shell.Walker, sc *shell.Scope, c shell.Call, name string, args []string) {
	if j.tentative > 2 {
		return
	}
	j.tentative++
	defer func() { j.tentative-- }()
	under := sc.Under(name)
	for i, a := range args {
		if i > 0 {
			switch args[i-1] {
			case "-c", "-e", "-x", "--command", "--exec", "--eval", "--cmd", "-exec", "--run", "-ex", "-C":
				w.Source(under.Fresh(name, "sh", nil), a, c.Span)
			}
		}
		if option, value, ok := strings.Cut(a, "="); ok && strings.HasPrefix(option, "-") && strings.Contains(value, " ") {
			if word := strings.Fields(value); len(word) > 0 && j.tables.Known(shell.Name(word[0])) {
				w.Source(under.Fresh(name, "sh", nil), value, c.Span)
			}
		}
		if spec := j.tables.specs[name]; spec != nil && spec.Guess && strings.Contains(a, " ") {
			if word := strings.Fields(a); len(word) > 0 && j.tables.Known(shell.Name(word[0])) {
				w.Source(under.Fresh(name, "sh", nil), a, c.Span)
			}
		}
		if i < 16 && a != "" && a[0] != '-' && shell.Known(a) && (j.tables.Known(shell.Name(a))) && trusted(a) {
			w.Exec(under, shell.Call{Argv: args[i:], Stdin: shell.Stream{}, Span: c.Span})
		}
	}
}
