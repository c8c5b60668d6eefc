package program

import (
	"slices"
	"strings"

	"savepoint/policy/shell"
)

// handle calls the function that knows a program whose command line the table
// alone cannot describe.
func (j *Judge) handle(w *shell.Walker, sc *shell.Scope, c shell.Call, spec *Spec, u Use, args []string) shell.Stream {
	switch spec.Handler {
	case "shell":
		return j.shell(w, sc, c, spec, u, args)
	case "env":
		return j.env(w, sc, c, spec, u, args)
	case "su":
		return j.su(w, sc, c, spec, u, args)
	case "xargs":
		return j.xargs(w, sc, c, spec, u, args)
	case "find":
		return j.find(w, sc, c, u, args)
	case "rm":
		return j.rm(w, sc, c, spec, u, args)
	case "copy":
		return j.copy(w, sc, c, spec, u, args)
	case "tee":
		return j.tee(w, sc, c, spec, u, args)
	case "dd":
		return j.dd(sc, u, args)
	case "declare":
		return j.declare(sc, c, u, args)
	case "stdin-code":
		return j.stdinCode(w, sc, c, spec, u, args)
	case "interpreter":
		return j.interpreter(w, sc, c, spec, u, args)
	case "awk":
		return j.awk(w, sc, c, spec, u, args)
	case "sed":
		return j.sed(w, sc, c, spec, u, args)
	case "git":
		return j.git(w, sc, c, spec, u, args)
	case "fetch":
		return j.fetch(w, sc, c, spec, u, args)
	case "remote":
		return j.remote(w, sc, c, spec, u, args)
	case "tar":
		return j.tar(w, sc, c, spec, u, args)
	case "editor":
		return j.editor(w, sc, c, spec, u, args)
	case "daemon":
		return j.daemon(w, sc, c, spec, u, args)
	case "kill":
		return j.kill(sc, u, spec, args)
	case "query":
		return j.query(w, sc, c, spec, u, args)
	case "fd":
		return j.fd(w, sc, c, spec, u, args)
	case "make":
		return j.make(w, sc, c, spec, u, args)
	case "sql":
		return j.sql(w, sc, c, spec, u, args)
	case "bwrap":
		return j.bwrap(w, sc, c, u, args)
	case "container":
		return j.container(w, sc, c, spec, u, args)
	case "busybox":
		return j.busybox(w, sc, c, u, args)
	}
	return j.handleTool(w, sc, c, spec, u, args)
}

// shell judges sh, bash and their like: -c, a script, or standard input.
func (j *Judge) shell(w *shell.Walker, sc *shell.Scope, c shell.Call, spec *Spec, u Use, args []string) shell.Stream {
	for len(args) > 0 && len(args[0]) > 1 && args[0][0] == '+' {
		off := args[0]
		args = args[1:] // +x switches an option off
		if strings.ContainsAny(off, "oO") && len(args) > 0 {
			args = args[1:] // its name
		}
	}
	p := spec.parse(args)
	for len(p.operands) > 0 && (p.operands[0] == "-" || len(p.operands[0]) > 1 && p.operands[0][0] == '+') {
		skip := 1
		if strings.HasPrefix(p.operands[0], "+") && strings.ContainsAny(p.operands[0], "oO") {
			skip = min(2, len(p.operands))
		}
		q := spec.parse(p.operands[skip:])
		p.options, p.operands, p.odd = append(p.options, q.options...), q.operands, p.odd || q.odd
	}
	u.Options, u.Operands = p.options, p.operands
	changed := j.options(w, sc, &u, p.options)
	_, hasC := p.given("-c", "--command")
	switch u.Name {
	case "sh", "bash", "dash":
		// Without -l and -i no startup file is read: the code is all there is.
		u.ReadOnly = hasC && !p.odd && !changed && !hasFlag(p, "-l", "-i", "--login", "--rcfile", "--init-file")
	}
	j.use(u)
	if !hasC && p.odd {
		j.guess(w, sc, c, u.Name, args)
	}
	switch {
	case hasC:
		if len(p.operands) == 0 {
			return shell.Stream{}
		}
		arg0, rest := u.Name, []string(nil)
		if len(p.operands) > 1 {
			arg0, rest = p.operands[1], p.operands[2:]
		}
		return w.Source(started(sc.Fresh(u.Name, arg0, rest), &p).WithStdin(c.Stdin), p.operands[0], c.Span)
	case len(p.operands) > 0 && !stdinOption(p):
		inner := started(sc.Fresh(u.Name, p.operands[0], p.operands[1:]), &p)
		return w.Run(inner, w.Content(sc, p.operands[0]), c.Span)
	default:
		return w.Run(started(sc.Fresh(u.Name, u.Name, p.operands), &p), c.Stdin, c.Span)
	}
}

// started is a new shell with the options of its command line, such as -a.
func started(inner *shell.Scope, p *parsed) *shell.Scope {
	for _, o := range p.options {
		inner.Option(o.Name, o.Value)
	}
	return inner
}

func stdinOption(p parsed) bool { _, ok := p.given("-s"); return ok }

// env judges env, sudo and doas: options, then NAME=VALUE, then a command.
func (j *Judge) env(w *shell.Walker, sc *shell.Scope, c shell.Call, spec *Spec, u Use, args []string) shell.Stream {
	p := spec.parse(args)
	u.Options = append(u.Options, p.options...)
	changed := false
	inner := sc.Sub().Under(u.Name)
	if d, ok := workDir(p.options); ok {
		inner = inner.In(sc.Path(d))
	}
	rest := p.operands
	if o, ok := p.given("-S", "--split-string"); ok {
		// env -S splits its value into the front of the command line.
		w.Source(inner, o.Value+" "+quoteAll(rest), c.Span)
		u.Operands = rest
		j.use(u)
		return shell.Stream{}
	}
	for len(rest) > 0 {
		name, value, ok := strings.Cut(rest[0], "=")
		if !ok || name == "" || strings.ContainsAny(name, "/ ") {
			break
		}
		w.Variable(sc, name, value)
		if shell.Known(name) {
			inner.Set(name, value)
		}
		changed = true
		rest = rest[1:]
	}
	u.Operands = p.operands[:len(p.operands)-len(rest)]
	if hasFlag(p, "-e", "--edit") && u.Name == "sudo" {
		for _, f := range rest {
			u.Accesses = append(u.Accesses, Access{Action: Write, Path: sc.Path(f)})
		}
		j.use(u)
		return shell.Stream{}
	}
	if p.odd {
		j.guess(w, inner, c, u.Name, args)
	}
	u.ReadOnly = spec.Alone == "read" && !p.odd && !changed && !j.options(w, sc, &u, p.options)
	if u.Name == "env" && len(rest) > 0 {
		u.ReadOnly = !p.odd && j.plainFront(w, sc, c, args[:p.first])
	}
	j.use(u)
	if len(rest) == 0 {
		return shell.Stream{}
	}
	return w.Exec(inner, shell.Call{Argv: rest, Stdin: c.Stdin, Span: c.Span})
}

func quoteAll(args []string) string {
	var b strings.Builder
	for _, a := range args {
		b.WriteString("'" + strings.ReplaceAll(a, "'", `'\''`) + "' ")
	}
	return b.String()
}

// su judges su, runuser and sg: -c CODE before or after the account.
func (j *Judge) su(w *shell.Walker, sc *shell.Scope, c shell.Call, spec *Spec, u Use, args []string) shell.Stream {
	p := spec.parse(args)
	u.Options, u.Operands = p.options, p.operands
	j.use(u)
	if o, ok := p.given("-c", "--command", "--session-command"); ok {
		return w.Source(sc.Fresh(u.Name, "sh", nil).WithStdin(c.Stdin), o.Value, c.Span)
	}
	if _, ok := p.given("-u"); ok && u.Name == "runuser" && len(p.operands) > 0 {
		return w.Exec(sc.Under(u.Name), shell.Call{Argv: p.operands, Stdin: c.Stdin, Span: c.Span})
	}
	if u.Name == "sg" && len(p.operands) > 1 && !slices.Contains([]string{"run", "scan", "test", "new", "lsp"}, p.operands[0]) { // those are of ast-grep
		return w.Source(sc.Fresh(u.Name, "sh", nil).WithStdin(c.Stdin), p.operands[1], c.Span)
	}
	if !c.Stdin.Inherit {
		return w.Run(sc.Fresh(u.Name, "sh", nil), c.Stdin, c.Span)
	}
	return shell.Stream{}
}

// xargs judges the command with what standard input adds to it.
func (j *Judge) xargs(w *shell.Walker, sc *shell.Scope, c shell.Call, spec *Spec, u Use, args []string) shell.Stream {
	p := spec.parse(args)
	u.Options = p.options
	changed := j.options(w, sc, &u, p.options)
	if p.odd {
		j.guess(w, sc, c, u.Name, args)
	}
	u.ReadOnly = !p.odd && !changed && j.plainFront(w, sc, c, args[:p.first])
	j.use(u)
	argv := p.operands
	if len(argv) == 0 {
		argv = []string{"echo"}
	}
	var added []string
	in := c.Stdin
	if o, ok := p.given("-a", "--arg-file"); ok {
		in = w.Content(sc, o.Value)
	}
	switch s := in; {
	case s.Fetched:
		added = []string{string(shell.HoleFetched)}
	case s.Known:
		added = xargsItems(s.Text, p)
		if len(added) > 256 {
			added = []string{string(shell.HoleFields)}
		}
	case s.Decoded:
		added = []string{string(shell.HoleDecoded)}
	case len(s.Listing) > 0:
		added = s.Listing
		if n, one := p.given("-n", "--max-args", "-L", "--max-lines", "-l"); len(added) == 1 && (!one || n.Value != "1") {
			added = []string{added[0], added[0]} // a second file is where some write
		}
	case s.Plain:
		added = []string{string(shell.HoleText)}
	default:
		added = []string{string(shell.HoleOutput)}
	}
	mark := ""
	for _, o := range p.options {
		switch o.Name {
		case "-I", "-J", "-R":
			mark = o.Value
		case "-i", "--replace":
			if mark = o.Value; mark == "" {
				mark = "{}"
			}
		}
	}
	inner := sc.Under(u.Name).WithStdin(shell.Stream{Known: true})
	if mark == "" {
		return w.Exec(inner, shell.Call{Argv: append(slices.Clip(argv), added...), Stdin: shell.Stream{Known: true}, Span: c.Span})
	}
	for _, a := range added {
		one := make([]string, len(argv))
		for i := range argv {
			one[i] = strings.ReplaceAll(argv[i], mark, a)
		}
		w.Exec(inner, shell.Call{Argv: one, Stdin: shell.Stream{Known: true}, Span: c.Span})
	}
	return shell.Stream{}
}

// xargsItems splits known input as the options say.
func xargsItems(text string, p parsed) []string {
	switch {
	case hasFlag(p, "-0", "--null"):
		return strings.FieldsFunc(text, func(r rune) bool { return r == 0xe000 })
	case hasFlag(p, "-d", "--delimiter"):
		o, _ := p.given("-d", "--delimiter")
		sep := unescapeLiteral(o.Value)
		if sep == "" {
			sep = "\n"
		}
		return strings.Split(strings.TrimSuffix(text, "\n"), sep[:1])
	case hasFlag(p, "-I", "-i", "--replace", "-J", "-R"):
		return strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	}
	return strings.FieldsFunc(unquoted.Replace(text), func(r rune) bool {
		return r == ' ' || r == '\n' || r == '\t' || r == 0xe000
	})
}
