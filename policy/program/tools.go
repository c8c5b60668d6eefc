package program

import (
	"regexp"
	"slices"
	"strings"

	"savepoint/policy/shell"
)

// fd judges fd, whose -x and -X take a command that gets every match.
func (j *Judge) fd(w *shell.Walker, sc *shell.Scope, c shell.Call, spec *Spec, u Use, args []string) shell.Stream {
	p := spec.parse(args)
	u.Options, u.Operands = p.options, p.operands
	u.ReadOnly = !p.odd && !p.loose
	roots := []string{"."}
	pattern := ""
	if len(p.operands) > 0 {
		pattern = p.operands[0]
	}
	if len(p.operands) > 1 {
		roots = p.operands[1:]
	}
	targets := make([]string, len(roots))
	for i, r := range roots {
		if pattern == "" || pattern == "." || pattern == "*" {
			targets[i] = r
		} else {
			targets[i] = strings.TrimSuffix(r, "/") + "/\x01/\x01"
		}
	}
	j.use(u)
	if len(p.rest) == 0 {
		return shell.Stream{Listing: targets}
	}
	for _, t := range targets {
		argv := slices.Clone(p.rest)
		found := false
		for i := range argv {
			if strings.Contains(argv[i], "{") {
				found = true
				argv[i] = strings.NewReplacer("{}", t, "{/}", t, "{//}", t, "{.}", t, "{/.}", t).Replace(argv[i])
			}
		}
		if !found {
			argv = append(argv, t)
		}
		w.Exec(sc.Under(u.Name), shell.Call{Argv: argv, Stdin: shell.Stream{Known: true}, Span: c.Span})
	}
	return shell.Stream{}
}

// make judges makefiles that the line itself holds; others are not seen.
func (j *Judge) make(w *shell.Walker, sc *shell.Scope, c shell.Call, spec *Spec, u Use, args []string) shell.Stream {
	p := spec.parse(args)
	u.Options, u.Operands = p.options, p.operands
	j.use(u)
	run := func(text string) {
		for _, recipe := range recipes(text) {
			w.Source(sc.Fresh("make", "sh", nil).WithStdin(shell.Stream{Known: true}), recipe, c.Span)
		}
	}
	for _, o := range p.options {
		switch o.Name {
		case "-f", "--file", "--makefile":
			in := w.Content(sc, o.Value)
			if o.Value == "-" {
				in = c.Stdin
			}
			if in.Known {
				run(in.Text)
			} else if in.Fetched || in.Decoded || o.Value == "-" {
				w.Run(sc, in, c.Span)
			}
		case "--eval", "-E":
			run(o.Value)
		}
	}
	for _, o := range p.operands {
		if name, value, ok := strings.Cut(o, "="); ok && (name == "SHELL" || name == "CC" || strings.HasSuffix(name, "_CMD") || strings.Contains(value, "$(shell")) {
			run("x:;" + value)
			run(value)
		}
	}
	return shell.Stream{}
}

// recipes takes the shell lines out of a makefile.
func recipes(text string) []string {
	var out []string
	for _, line := range strings.Split(strings.ReplaceAll(text, "\\\n", " "), "\n") {
		if i := strings.Index(line, "$(shell "); i >= 0 {
			if end := strings.LastIndexByte(line, ')'); end > i {
				out = append(out, line[i+len("$(shell "):end])
			}
		}
		recipe := ""
		if strings.HasPrefix(line, "\t") {
			recipe = line
		} else if head, tail, ok := strings.Cut(line, ";"); ok && strings.Contains(head, ":") {
			recipe = tail
		}
		recipe = strings.TrimLeft(recipe, "\t @-+")
		if recipe != "" {
			out = append(out, strings.ReplaceAll(recipe, "$$", "$"))
		}
	}
	return out
}

// copyProgram is COPY ... PROGRAM 'command', which the server or client runs.
var copyProgram = regexp.MustCompile(`(?i)\bprogram\s+['"]([^'"]*)['"]`)

// sqlFile is a file that a command or statement of a client writes.
var sqlFile = regexp.MustCompile(`(?im)(?:^\s*\.(?:output|once|backup|save|log|excel)\s+(?:main\s+)?|^\s*\\[owg]\s+|\bwritefile\(\s*|\binto\s+(?:out|dump)file\s+|\bto\s+|\bvacuum\s+into\s+|\battach\s+(?:database\s+)?|\bpg_write_file\(\s*)['"]?([/~][^'"\s;,)]+)`)

// databaseHost is the host that a client is told to go to, unless it is this
// machine.
func databaseHost(args []string) string {
	host := ""
	for i, a := range args {
		switch {
		case (a == "-h" || a == "--host") && i+1 < len(args):
			host = args[i+1]
		case strings.HasPrefix(a, "--host="):
			host = a[len("--host="):]
		case strings.HasPrefix(a, "-h") && len(a) > 2:
			host = a[2:]
		}
	}
	switch {
	case host == "localhost", host == "::1", strings.HasPrefix(host, "127."), strings.HasPrefix(host, "/"), host == "db", host == "postgres", host == "mysql", host == "redis", host == "mariadb":
		return ""
	}
	return host
}

// statement reports whether an argument says what a client is to do.
func statement(a string) bool {
	switch name, _, _ := strings.Cut(a, "="); name {
	case "-c", "-e", "-f", "--command", "--execute", "--file", "--eval":
		return true
	}
	return false
}

// sql judges database clients whose own commands run the shell.
func (j *Judge) sql(w *shell.Walker, sc *shell.Scope, c shell.Call, spec *Spec, u Use, args []string) shell.Stream {
	p := spec.parse(args)
	u.Options, u.Operands = p.options, p.operands
	texts := append([]string(nil), p.operands...)
	for _, o := range p.options {
		if o.Has {
			texts = append(texts, o.Value)
		}
	}
	if c.Stdin.Known {
		texts = append(texts, c.Stdin.Text)
	}
	results(sc, &u, args)
	for _, t := range texts {
		for _, m := range sqlFile.FindAllStringSubmatch(t, 8) {
			u.Accesses = append(u.Accesses, Access{Action: Write, Path: sc.Path(m[1])})
		}
	}
	if !c.Stdin.Inherit && !(c.Stdin.Known && c.Stdin.Text == "") && !slices.ContainsFunc(args, statement) {
		if host := databaseHost(args); host != "" {
			u.Accesses = append(u.Accesses, Access{Action: Upload, Path: host}) // what comes in is run there
		}
	}
	j.use(u)
	run := sc.Fresh(u.Name, "sh", nil).WithStdin(shell.Stream{Known: true})
	for _, t := range texts {
		for _, line := range strings.Split(t, "\n") {
			line = strings.TrimSpace(line)
			for _, prefix := range []string{".shell ", ".system ", ".sh ", ".she ", ".shel ", ".sys ", ".syst ", `\! `, `\!`, "system ", "! ", ".once |", ".output |", `.import "|`, `.import |`, `.import '|`, `\o |`, `\g |`, `\w |`} {
				if rest, ok := strings.CutPrefix(line, prefix); ok {
					w.Source(run, rest, c.Span)
					break
				}
			}
			for _, m := range copyProgram.FindAllStringSubmatch(line, 8) {
				w.Source(run, m[1], c.Span)
			}
		}
	}
	return shell.Stream{}
}

// bwrap judges bubblewrap, whose options take up to two values.
func (j *Judge) bwrap(w *shell.Walker, sc *shell.Scope, c shell.Call, u Use, args []string) shell.Stream {
	i := 0
	for i < len(args) && strings.HasPrefix(args[i], "--") {
		switch args[i] {
		case "--bind", "--bind-try", "--dev-bind", "--dev-bind-try", "--ro-bind", "--ro-bind-try", "--symlink", "--setenv", "--file", "--bind-data", "--ro-bind-data", "--chmod":
			i += 3
		case "--args", "--unsetenv", "--userns", "--pidns", "--uid", "--gid", "--hostname", "--chdir", "--proc", "--dev", "--tmpfs", "--mqueue", "--dir", "--lock-file", "--sync-fd", "--remount-ro", "--exec-label", "--file-label", "--seccomp", "--block-fd", "--info-fd", "--cap-add", "--cap-drop", "--perms", "--size", "--argv0":
			i += 2
		case "--":
			i++
			j.use(u)
			return w.Exec(sc.Under(u.Name), shell.Call{Argv: args[min(i, len(args)):], Stdin: c.Stdin, Span: c.Span})
		default:
			i++
		}
	}
	j.use(u)
	if i >= len(args) {
		return shell.Stream{}
	}
	return w.Exec(sc.Under(u.Name), shell.Call{Argv: args[i:], Stdin: c.Stdin, Span: c.Span})
}

// container judges docker and podman: what exec and run start, and where.
func (j *Judge) container(w *shell.Walker, sc *shell.Scope, c shell.Call, spec *Spec, u Use, args []string) shell.Stream {
	p := spec.parse(args)
	u.Options, u.Operands = p.options, p.operands
	rest := p.operands
	if len(rest) > 0 && (rest[0] == "compose" || rest[0] == "container" || rest[0] == "image" || rest[0] == "volume" || rest[0] == "system" || rest[0] == "network") {
		rest = rest[1:]
	}
	verb := ""
	if len(rest) > 0 {
		verb = rest[0]
	}
	switch verb {
	case "ps", "images", "logs", "inspect", "version", "info", "top", "stats", "port", "diff", "history", "ls", "df", "config":
		u.ReadOnly = false // the daemon may be elsewhere; a snapshot costs little
	}
	if verb == "pull" || verb == "search" {
		u.Accesses = append(u.Accesses, Access{Action: Fetch, Path: strings.Join(rest[1:], " ")})
	}
	if n := len(rest); verb == "cp" && n > 2 && !remotePath(rest[n-1]) {
		u.Accesses = append(u.Accesses, Access{Action: Write, Path: sc.Path(rest[n-1])})
	}
	j.use(u)
	if verb == "exec" || verb == "run" {
		// What runs inside sees the container's own files; only what would be
		// a catastrophe anywhere counts.
		j.guess(w, sc, c, u.Name, rest[1:])
	}
	return shell.Stream{}
}

// kill judges kill, pkill and killall, whose signal may be written as an
// option of its own.
func (j *Judge) kill(sc *shell.Scope, u Use, spec *Spec, args []string) shell.Stream {
	var rest []string
	for i, a := range args {
		if i == 0 && signalOption(a) && !(len(args) == 1) {
			continue
		}
		rest = append(rest, a)
	}
	p := spec.parse(rest)
	u.Options, u.Operands = p.options, p.operands
	u.ReadOnly = u.Name == "kill" && (hasFlag(p, "-l", "-L", "--list", "--table") || len(args) > 1 && args[0] == "-0")
	j.use(u)
	return shell.Stream{Known: true}
}

func signalOption(a string) bool {
	if len(a) < 2 || a[0] != '-' {
		return false
	}
	name := strings.TrimPrefix(strings.ToUpper(a[1:]), "SIG")
	if digits(name) {
		return true
	}
	switch name {
	case "HUP", "INT", "QUIT", "ILL", "TRAP", "ABRT", "BUS", "FPE", "KILL", "USR1", "SEGV", "USR2", "PIPE", "ALRM", "TERM", "STKFLT", "CHLD", "CONT", "STOP", "TSTP", "TTIN", "TTOU", "URG", "XCPU", "XFSZ", "VTALRM", "PROF", "WINCH", "IO", "POLL", "PWR", "SYS":
		return true
	}
	return false
}

var (
	editorWrite = regexp.MustCompile(`(?:^|[|:\s])[0-9,%$.]*(?:w|wq|write|sav|saveas|W)!?\s*(?:>>\s*)?([/~][^|\s]+)`)
	editorCode  = regexp.MustCompile(`^[: ]*(?:lua|luado|py|py3|python3?|pythonx|pyx|perl|perldo|ruby|rubydo|tcl|mzscheme)\b`)
)

// editor judges ed, ex and vi: commands in options and on standard input may
// start the shell.
func (j *Judge) editor(w *shell.Walker, sc *shell.Scope, c shell.Call, spec *Spec, u Use, args []string) shell.Stream {
	p := spec.parse(args)
	u.Options = p.options
	var scripts []string
	for _, o := range p.operands {
		if strings.HasPrefix(o, "+") {
			scripts = append(scripts, o[1:])
			continue
		}
		u.Operands = append(u.Operands, o)
		u.Accesses = append(u.Accesses, Access{Action: Write, Path: sc.Path(o)})
	}
	for _, o := range p.options {
		if o.Has {
			scripts = append(scripts, o.Value)
		}
	}
	if c.Stdin.Known {
		scripts = append(scripts, strings.Split(c.Stdin.Text, "\n")...)
	}
	for _, s := range scripts {
		if m := editorWrite.FindStringSubmatch(s); m != nil {
			u.Accesses = append(u.Accesses, Access{Action: Write, Path: sc.Path(m[1])})
		}
	}
	j.use(u)
	for _, s := range scripts {
		if remoteInvoke.MatchString(s) {
			w.Report(sc, shell.FactFetched, s, c.Span)
		}
		if m := editorCode.FindStringSubmatch(s); m != nil || strings.Contains(s, "(") {
			j.code(w, sc, &u, u.Name, s)
		}
		if rest, ok := strings.CutPrefix(strings.TrimLeft(s, ": "), "term"); ok {
			w.Source(sc.Fresh(u.Name, "sh", nil).WithStdin(shell.Stream{Known: true}), strings.TrimPrefix(rest, "inal"), c.Span)
		}
		if i := strings.IndexByte(s, '!'); i >= 0 && strings.Trim(s[:i], ":%rw silent0123456789,.$") == "" {
			w.Source(sc.Fresh(u.Name, "sh", nil).WithStdin(shell.Stream{Known: true}), strings.TrimPrefix(s[i+1:], "!"), c.Span)
		}
	}
	return shell.Stream{}
}

// daemon judges start-stop-daemon, which names the program in an option.
func (j *Judge) daemon(w *shell.Walker, sc *shell.Scope, c shell.Call, spec *Spec, u Use, args []string) shell.Stream {
	p := spec.parse(args)
	u.Options, u.Operands = p.options, p.operands
	j.use(u)
	o, ok := p.given("-a", "--startas", "-x", "--exec")
	if !ok || !hasFlag(p, "-S", "--start") {
		return shell.Stream{}
	}
	return w.Exec(sc.Under(u.Name), shell.Call{Argv: append([]string{o.Value}, p.operands...), Stdin: shell.Stream{Known: true}, Span: c.Span})
}
