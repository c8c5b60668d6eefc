package program

import (
	"strings"

	"savepoint/policy/shell"
)

func hasFlag(p parsed, names ...string) bool { _, ok := p.given(names...); return ok }

func (j *Judge) rm(w *shell.Walker, sc *shell.Scope, c shell.Call, spec *Spec, u Use, args []string) shell.Stream {
	p := spec.parse(args)
	u.Options, u.Operands = p.options, p.operands
	tree := hasFlag(p, "-r", "-R", "--recursive")
	for _, o := range p.operands {
		u.Accesses = append(u.Accesses, Access{Action: Remove, Path: sc.Path(o), Tree: tree})
	}
	j.use(u)
	return shell.Stream{Known: true}
}

// copy judges cp, mv, ln and install: many sources, one destination, which an
// option may name.
func (j *Judge) copy(w *shell.Walker, sc *shell.Scope, c shell.Call, spec *Spec, u Use, args []string) shell.Stream {
	p := spec.parse(args)
	u.Options, u.Operands = p.options, p.operands
	j.options(w, sc, &u, p.options)
	sources, dest := p.operands, ""
	if o, ok := p.given("-t", "--target-directory"); ok {
		dest = o.Value
	} else if n := len(sources); n > 1 {
		sources, dest = sources[:n-1], sources[n-1]
	} else if u.Name == "ln" && n == 1 {
		dest = "."
	}
	if dest == "" && len(sources) > 0 && u.Name == "mv" {
		dest = "."
	}
	if u.Name == "install" && hasFlag(p, "-d", "--directory") {
		for _, o := range p.operands {
			u.Accesses = append(u.Accesses, Access{Action: Write, Path: sc.Path(o)})
		}
		j.use(u)
		return shell.Stream{Known: true}
	}
	for _, s := range sources {
		a := Access{Action: Read, Path: sc.Path(s)}
		if u.Name == "mv" {
			a.Action, a.Tree = Remove, true
		}
		if u.Name != "ln" {
			u.Accesses = append(u.Accesses, a)
		}
	}
	if u.Name == "ln" && hasFlag(p, "-s", "--symbolic") && len(sources) == 1 && dest != "" {
		sc.Linked(dest, sources[0])
		sc.Linked(dest+"/"+shell.Name(sources[0]), sources[0])
	}
	if dest != "" {
		u.Accesses = append(u.Accesses, Access{Action: Write, Path: sc.Path(dest)})
		if u.Name == "cp" && len(sources) == 1 && sc.Path(sources[0]) == "/dev/null" {
			u.Accesses = append(u.Accesses, Access{Action: Remove, Path: sc.Path(dest)}) // nothing of it is left
		}
		if len(sources) == 1 {
			target := dest
			if strings.HasSuffix(dest, "/") || dest == "." {
				target = strings.TrimSuffix(dest, "/") + "/" + shell.Name(sources[0])
			}
			if f, ok := sc.File(sources[0]); ok {
				sc.Wrote(target, f.Content)
				sc.Wrote(dest+"/"+shell.Name(sources[0]), f.Content)
			}
			// A file put into a directory keeps its name: what matters is where
			// it may end up.
			if name := shell.Name(sources[0]); shell.Known(name) && !unknownStart(dest) {
				u.Accesses = append(u.Accesses, Access{Action: Write, Path: sc.Path(dest + "/" + name)})
			}
		}
	}
	if m, ok := p.given("-m", "--mode"); ok && u.Name == "install" {
		u.Argv = append(u.Argv[:len(u.Argv):len(u.Argv)], m.Value)
	}
	j.use(u)
	return shell.Stream{Known: true}
}

func (j *Judge) tee(w *shell.Walker, sc *shell.Scope, c shell.Call, spec *Spec, u Use, args []string) shell.Stream {
	p := spec.parse(args)
	u.Options, u.Operands = p.options, p.operands
	u.ReadOnly = !p.odd
	for _, o := range p.operands {
		path := sc.Path(o)
		u.Accesses = append(u.Accesses, Access{Action: Write, Path: path})
		if !sinkhole(path) {
			u.ReadOnly = false
		}
		if f, ok := sc.File(o); ok && strings.HasPrefix(path, "/dev/fd/p") {
			_ = f // the reader was judged with an unknown input
		} else {
			sc.Wrote(o, c.Stdin)
		}
	}
	j.use(u)
	return c.Stdin
}

// mode judges chmod and chown, whose first operand is the mode or the owner,
// unless another file gives it, or a mode that takes something away stands
// among the options.
func (j *Judge) mode(sc *shell.Scope, spec *Spec, u Use, args []string) shell.Stream {
	p := spec.parse(args)
	u.Options, u.Operands = p.options, p.operands
	paths := p.operands
	taken := hasFlag(p, "--reference")
	for _, o := range p.options {
		taken = taken || u.Name == "chmod" && len(o.Name) == 2 && strings.IndexByte("rwxXstugo", o.Name[1]) >= 0
	}
	if !taken && len(paths) > 0 {
		paths = paths[1:]
	}
	tree := hasFlag(p, "-R", "--recursive")
	for _, o := range paths {
		u.Accesses = append(u.Accesses, Access{Action: Mode, Path: sc.Path(o), Tree: tree})
	}
	j.use(u)
	return shell.Stream{Known: true}
}

func (j *Judge) dd(sc *shell.Scope, u Use, args []string) shell.Stream {
	u.ReadOnly = true
	for _, a := range args {
		key, value, _ := strings.Cut(a, "=")
		path := sc.Path(value)
		switch key {
		case "of":
			u.Accesses = append(u.Accesses, Access{Action: Write, Path: path})
			u.ReadOnly = u.ReadOnly && sinkhole(path)
		case "if":
			u.Accesses = append(u.Accesses, Access{Action: Read, Path: path})
		case "bs", "count", "skip", "ibs", "cbs", "status", "iflag":
		case "--help", "--version":
		default:
			u.ReadOnly = false
		}
	}
	u.Operands = args
	j.use(u)
	return shell.Stream{}
}

// declare judges export and its like. What they assign was reported by the
// shell; the rest is the shell's own state.
func (j *Judge) declare(sc *shell.Scope, c shell.Call, u Use, args []string) shell.Stream {
	u.ReadOnly = true
	for _, a := range args {
		switch {
		case len(a) > 1 && (a[0] == '-' || a[0] == '+') && shell.Known(a):
			u.Options = append(u.Options, Option{Name: a, Known: true})
		default:
			u.Operands = append(u.Operands, a)
			if name, _, _ := strings.Cut(a, "="); !shell.Known(name) {
				u.ReadOnly = false
			}
		}
	}
	j.use(u)
	return shell.Stream{}
}

// stdinCode judges at, batch and crontab, which run their input later.
func (j *Judge) stdinCode(w *shell.Walker, sc *shell.Scope, c shell.Call, spec *Spec, u Use, args []string) shell.Stream {
	p := spec.parse(args)
	u.Options, u.Operands = p.options, p.operands
	list := hasFlag(p, "-l") && !p.odd
	u.ReadOnly = list
	changed := j.options(w, sc, &u, p.options)
	u.ReadOnly = u.ReadOnly && !changed
	j.use(u)
	if list {
		return shell.Stream{}
	}
	in := c.Stdin
	if u.Name == "crontab" && len(p.operands) > 0 && p.operands[0] != "-" {
		in = w.Content(sc, p.operands[0])
	}
	if !in.Known {
		if in.Fetched || in.Decoded {
			w.Run(sc.Fresh(u.Name, "sh", nil), in, c.Span)
		}
		return shell.Stream{}
	}
	text := in.Text
	if u.Name == "crontab" {
		text = cronCommands(text)
	}
	w.Source(sc.Fresh(u.Name, "sh", nil), text, c.Span)
	return shell.Stream{}
}

// cronCommands takes the commands out of the lines of a crontab.
func cronCommands(text string) string {
	var out []string
	for _, line := range strings.Split(text, "\n") {
		line = strings.TrimSpace(line)
		fields := 5
		switch {
		case line == "" || line[0] == '#':
			continue
		case line[0] == '@':
			fields = 1
		}
		rest := line
		for range fields {
			_, rest, _ = strings.Cut(strings.TrimLeft(rest, " \t"), " ")
		}
		if rest != "" {
			out = append(out, rest)
		} else if strings.Contains(line, "=") {
			out = append(out, line)
		}
	}
	return strings.Join(out, "\n")
}

// busybox judges busybox and toybox, whose first operand is the program.
func (j *Judge) busybox(w *shell.Walker, sc *shell.Scope, c shell.Call, u Use, args []string) shell.Stream {
	u.ReadOnly = true
	j.use(u)
	if len(args) == 0 || strings.HasPrefix(args[0], "--") {
		return shell.Stream{}
	}
	return w.Exec(sc.Under(u.Name), shell.Call{Argv: args, Env: c.Env, Stdin: c.Stdin, Span: c.Span})
}

// tar judges what tar runs and writes; its first argument may lack the dash.
func (j *Judge) tar(w *shell.Walker, sc *shell.Scope, c shell.Call, spec *Spec, u Use, args []string) shell.Stream {
	if len(args) > 0 && args[0] != "" && args[0][0] != '-' && shell.Known(args[0]) {
		args = tarOld(args)
	}
	p := spec.parse(args)
	u.Options, u.Operands = p.options, p.operands
	inner := sc
	if d, ok := workDir(p.options); ok {
		inner = sc.In(sc.Path(d))
	}
	changed := j.options(w, sc, &u, p.options)
	if p.odd {
		j.guess(w, sc, c, u.Name, args)
	}
	file, _ := p.given("-f", "--file")
	list := hasFlag(p, "-t", "--list")
	create := hasFlag(p, "-c", "--create", "-r", "--append", "-u", "--update", "-A", "--delete")
	extract := hasFlag(p, "-x", "--extract", "--get")
	if strings.Contains(file.Value, ":") && !hasFlag(p, "--force-local") {
		u.Accesses = append(u.Accesses, Access{Action: Upload, Path: file.Value})
	}
	switch {
	case create && file.Has && file.Value != "-":
		u.Accesses = append(u.Accesses, Access{Action: Write, Path: sc.Path(file.Value)})
	case extract && !hasFlag(p, "-O", "--to-stdout"):
		dir := "."
		if d, ok := workDir(p.options); ok {
			dir = d
		}
		into := shell.Clean(dir, inner.Cwd())
		u.Accesses = append(u.Accesses, Access{Action: Write, Path: into})
		if dir != "." && into != "/" {
			u.Accesses = append(u.Accesses, Access{Action: Write, Path: into + "/\x01"})
		}
	}
	if hasFlag(p, "--remove-files") {
		for _, o := range p.operands {
			u.Accesses = append(u.Accesses, Access{Action: Remove, Path: shell.Clean(o, inner.Cwd()), Tree: true})
		}
	}
	stdout := file.Value == "-" || !file.Has
	j.unpacked(w, sc, c, p, inner, extract)
	if stdout && create && !changed && !p.odd && !p.loose {
		u.ReadOnly = true
	}
	if (list || extract && hasFlag(p, "-O", "--to-stdout")) && !create && !changed && !p.odd && !p.loose {
		u.ReadOnly = !strings.Contains(file.Value, ":")
	}
	j.use(u)
	return shell.Stream{Fetched: c.Stdin.Fetched && extract}
}

// unpacked notes that what an archive from the network holds is now a file, so
// that running it unseen is told apart from running what was there.
func (j *Judge) unpacked(w *shell.Walker, sc *shell.Scope, c shell.Call, p parsed, into *shell.Scope, extract bool) {
	file, _ := p.given("-f", "--file")
	from := c.Stdin
	if file.Has && file.Value != "-" {
		from = w.Content(sc, file.Value)
	}
	if d := into.Cwd(); extract && from.Fetched && d != "" && d != sc.Cwd() {
		sc.Wrote(d+"/\x01", shell.Stream{Fetched: true})
	}
}

// tarOld rewrites "xzf a.tgz" into "-x -z -f a.tgz".
func tarOld(args []string) []string {
	var out []string
	rest := args[1:]
	for _, r := range args[0] {
		out = append(out, "-"+string(r))
		switch r {
		case 'f', 'b', 'C', 'T', 'X', 'I', 'F', 'g', 'K', 'L', 'N', 'V', 'H':
			if len(rest) > 0 {
				out = append(out, rest[0])
				rest = rest[1:]
			}
		}
	}
	return append(out, rest...)
}
