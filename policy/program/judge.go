package program

import (
	"slices"
	"strings"

	"savepoint/policy/shell"
)

// Access is one thing a program does to one target.
type Access struct {
	Action Action
	Path   string // canonical as far as known; may hold holes
	Tree   bool   // all below it too
}

// Action is what is done to a target.
type Action string

// The actions.
const (
	Read   Action = "read"
	Write  Action = "write"
	Remove Action = "delete"
	Mode   Action = "perms"
	Fetch  Action = "fetch" // a request that carries nothing out
	Upload Action = "send"  // data leaves, or something outside changes
	Start  Action = "run"   // the file is executed
)

// Use is one program as it would run.
type Use struct {
	Name      string // without its directory
	Sub       []string
	Argv      []string
	Options   []Option
	Operands  []string
	Accesses  []Access
	ReadOnly  bool   // proved
	Known     bool   // in the tables
	Parsed    bool   // Options come from a table
	Tentative bool   // only a guess that this is a command at all
	Hardened  string // the form that is read-only, when the given one is not
	Span      shell.Span
	Via       []string
	Stdin     shell.Stream
}

// Sink receives what the judge finds, in order.
type Sink interface {
	Use(u Use)
	Fact(f shell.Fact)
}

// Judge is the shell.Host that knows the tables. It is used for one text.
type Judge struct {
	tables    *Tables
	sink      Sink
	tentative int
}

// NewJudge returns a judge that reports to the sink.
func NewJudge(t *Tables, sink Sink) *Judge { return &Judge{tables: t, sink: sink} }

// Report passes a fact on, unless only a guess led to it.
func (j *Judge) Report(f shell.Fact) {
	if j.tentative == 0 {
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
	})
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

// Run judges one program.
func (j *Judge) Run(w *shell.Walker, sc *shell.Scope, c shell.Call) shell.Stream {
	name := shell.Name(c.Argv[0])
	spec := j.tables.specs[name]
	if spec == nil {
		if i := strings.IndexByte(name, '.'); i > 0 && trusted(c.Argv[0]) {
			spec = j.tables.specs[name[:i]+".*"]
		}
	}
	if !trusted(c.Argv[0]) {
		if out, ok := j.local(w, sc, c); ok {
			return out
		}
	}
	called := name
	if spec == nil {
		if base := strings.TrimRight(name, "0123456789.-"); base != name && j.tables.specs[base] != nil && j.tables.specs[base].Handler == "interpreter" {
			spec, called = j.tables.specs[base], base // such as python3.12
		}
	}
	if spec == nil {
		j.unknown(w, sc, c, name)
		return shell.Stream{Fetched: c.Stdin.Fetched, Decoded: c.Stdin.Decoded || c.Stdin.Known && c.Stdin.Text != ""}
	}
	u := Use{Name: called, Argv: c.Argv, Span: c.Span, Via: sc.Via(), Known: true, Stdin: c.Stdin}
	if help(c.Argv) && trusted(c.Argv[0]) {
		u.ReadOnly, u.Options = true, []Option{{Name: c.Argv[len(c.Argv)-1], Known: true}}
		j.use(u)
		return shell.Stream{}
	}
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

// help reports whether the only argument asks for help or the version.
func help(argv []string) bool {
	switch len(argv) {
	case 2:
		switch argv[1] {
		case "--help", "--version":
			return true
		case "version":
			switch argv[0] {
			case "go", "terraform", "tofu", "helm", "hugo", "buf", "kustomize":
				return true
			}
		case "-V", "-v", "-version":
			switch argv[0] {
			case "node", "npm", "java", "javac", "gcc", "cargo", "rustc", "nginx", "pip", "pip3", "ssh":
				return argv[0] != "pip" && argv[0] != "pip3" || argv[1] == "-V"
			}
		}
	case 3:
		return argv[0] == "kubectl" && argv[1] == "version" && argv[2] == "--client"
	}
	return false
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

func (j *Judge) generic(w *shell.Walker, sc *shell.Scope, c shell.Call, spec *Spec, u Use, args []string) shell.Stream {
	p := spec.parse(args)
	u.Options = append(u.Options, p.options...)
	changed := j.options(w, sc, &u, p.options)
	inner := sc
	if o, ok := j.dir(spec, p.options); ok {
		inner = sc.In(sc.Path(o))
	}
	if spec.Effect == "launch" && p.odd || spec.Guess {
		j.guess(w, inner, c, u.Name, args)
	}
	list, fit := spec.slots(p.operands)
	u.Operands = p.operands
	for i, k := range list {
		if k == Command {
			u.Operands = p.operands[:i]
			u.ReadOnly = spec.Alone == "read" && !changed && !p.odd
			j.use(u)
			if p.operands[i] == "-c" && i+1 < len(p.operands) {
				return w.Source(inner.Fresh(u.Name, "sh", nil).WithStdin(c.Stdin), p.operands[i+1], c.Span)
			}
			return w.Exec(inner.Under(u.Name), shell.Call{Argv: p.operands[i:], Env: c.Env, Stdin: c.Stdin, Span: c.Span})
		}
	}
	for i, k := range list {
		if j.operand(w, inner, &u, k, p.operands[i]) {
			changed = true
		}
	}
	if spec.Effect == "launch" {
		u.ReadOnly = spec.Alone == "read" && !changed && !p.odd && fit
		j.use(u)
		return shell.Stream{}
	}
	u.ReadOnly = spec.Effect == "read" && !changed && !p.odd && fit && u.Known && trusted(c.Argv[0]) && (spec.Inert || !p.loose && !loose(p.options))
	j.use(u)
	return shell.Stream{Listing: listing(u, p, c), Plain: spec.Plain, Fetched: fetches(u.Accesses), Decoded: decodes(u, c)}
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

// loose reports whether an option's value is not known and may be a path.
func loose(options []Option) bool {
	for _, o := range options {
		if o.Has && o.kind != Text && o.kind != Input && !shell.Known(o.Value) {
			return true
		}
	}
	return false
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

// dir returns the value of the option that sets the working directory.
func (j *Judge) dir(spec *Spec, options []Option) (string, bool) {
	for _, o := range options {
		if o.kind == Dir && o.Has {
			return o.Value, true
		}
	}
	return "", false
}

// options judges option values; it reports whether one changes something.
func (j *Judge) options(w *shell.Walker, sc *shell.Scope, u *Use, list []Option) bool {
	changed := false
	for _, o := range list {
		if o.kind == Change {
			changed = true
		}
		if o.Has && o.kind != "" && o.kind != Text && o.kind != Change && o.kind != Dir {
			if j.operand(w, sc, u, o.kind, o.Value) {
				changed = true
			}
		}
	}
	return changed
}

// operand judges one argument by its kind; it reports whether the program is
// more than read-only because of it.
func (j *Judge) operand(w *shell.Walker, sc *shell.Scope, u *Use, k Kind, v string) bool {
	path := sc.Path(v)
	switch k {
	case Input, Dir:
		u.Accesses = append(u.Accesses, Access{Action: Read, Path: path})
		return shell.Has(v, shell.HoleFetched)
	case Output:
		u.Accesses = append(u.Accesses, Access{Action: Write, Path: path})
		return !sinkhole(path)
	case Delete:
		u.Accesses = append(u.Accesses, Access{Action: Remove, Path: path})
		return true
	case Perms:
		u.Accesses = append(u.Accesses, Access{Action: Mode, Path: path})
		return true
	case URL:
		u.Accesses = append(u.Accesses, Access{Action: Fetch, Path: v})
		return true
	case Send:
		u.Accesses = append(u.Accesses, Access{Action: Upload, Path: v})
		return true
	case Code, Words:
		if u.Name == "gdb" {
			v = strings.TrimPrefix(strings.TrimPrefix(strings.TrimSpace(v), "!"), "shell ")
		}
		w.Source(sc.Fresh(u.Name, "sh", nil).WithStdin(shell.Stream{}), v, u.Span)
		return true
	case Run:
		w.Exec(sc.Under(u.Name), shell.Call{Argv: []string{v}, Stdin: shell.Stream{}, Span: u.Span})
		return true
	case Script:
		w.Run(sc.Fresh(u.Name, v, nil), w.Content(sc, v), u.Span)
		return true
	case Expand:
		w.Hidden(sc, v)
		return true
	case Change:
		return true
	default: // Text, Digits, Command: no file, no code
		return false
	}
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
	j.use(Use{Name: name, Argv: c.Argv, Operands: c.Argv[1:], Span: c.Span, Via: sc.Via(), Stdin: c.Stdin})
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
