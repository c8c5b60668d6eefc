package program

import (
	"regexp"
	"strings"

	"savepoint/policy/shell"
)

// handleTool calls the functions for tools; handle has those of the shell.
func (j *Judge) handleTool(w *shell.Walker, sc *shell.Scope, c shell.Call, spec *Spec, u Use, args []string) shell.Stream {
	switch spec.Handler {
	case "mux":
		return j.mux(w, sc, c, u, args)
	case "parallel":
		return j.parallel(w, sc, c, spec, u, args)
	case "capsh":
		return j.capsh(w, sc, c, u, args)
	case "cmake":
		return j.cmake(w, sc, c, u, args)
	case "compress":
		return j.compress(w, sc, c, spec, u, args)
	case "converter":
		return j.converter(w, sc, c, u, args)
	case "flatpak":
		return j.flatpak(w, sc, c, u, args)
	case "mode":
		return j.mode(sc, spec, u, args)
	case "knock":
		return j.knock(w, sc, c, spec, u, args)
	}
	j.Report(shell.Fact{Kind: shell.FactParse, Target: "no handler " + spec.Handler, Span: c.Span})
	return shell.Stream{}
}

var keyName = regexp.MustCompile(`^(?:[CMS]-.+|Enter|KPEnter|Space|Tab|Escape|BSpace|Up|Down|Left|Right|Home|End|NPage|PPage|F[0-9]+)$`)

// mux judges tmux and screen: what a new window runs, and what is typed into
// one. Text that is typed may be a part of a command, so that it need not
// parse.
func (j *Judge) mux(w *shell.Walker, sc *shell.Scope, c shell.Call, u Use, args []string) shell.Stream {
	u.Operands = args
	j.use(u)
	run := sc.Fresh(u.Name, "sh", nil).WithStdin(shell.Stream{Inherit: true})
	j.lenient++
	defer func() { j.lenient-- }()
	if u.Name == "screen" {
		j.screen(w, sc, c, run, args)
		return shell.Stream{}
	}
	verb, operands := "", []string(nil)
	flush := func() {
		switch verb {
		case "send-keys", "send":
			w.Source(run, typed(operands), c.Span)
		case "new-session", "new", "new-window", "neww", "split-window", "splitw", "respawn-pane", "respawnp", "respawn-window", "respawnw", "run-shell", "run", "pipe-pane", "pipep",
			"display-popup", "popup", "if-shell", "if":
			if len(operands) > 1 && !strings.HasPrefix(verb, "if") {
				w.Exec(sc.Under(u.Name), shell.Call{Argv: operands, Stdin: shell.Stream{Inherit: true}, Span: c.Span})
				break
			}
			for _, o := range operands {
				w.Source(run, o, c.Span)
			}
		case "set-hook", "bind-key", "bind", "confirm-before", "confirm":
			if len(operands) > 0 {
				w.Source(run, "tmux "+operands[len(operands)-1], c.Span)
			}
		case "source-file", "source":
			if f := c.Stdin; len(operands) > 0 && (operands[0] == "-" || operands[0] == "/dev/stdin") && f.Known {
				for _, line := range strings.Split(f.Text, "\n") {
					w.Source(run, "tmux "+line, c.Span)
				}
			}
		}
		verb, operands = "", nil
	}
	for i := 0; i < len(args); i++ {
		a := args[i]
		switch {
		case a == ";" || a == `\;`:
			flush()
		case len(a) == 2 && a[0] == '-' && strings.IndexByte("tsncFexyLSfTlpbBhw", a[1]) >= 0 && !(verb != "" && strings.IndexByte("lbhfp", a[1]) >= 0):
			i++
		case strings.HasPrefix(a, "-") && len(operands) == 0:
		case verb == "":
			verb = a
		default:
			operands = append(operands, a)
		}
	}
	flush()
	return shell.Stream{}
}

// typed is the text that a list of keys types.
func typed(keys []string) string {
	var b strings.Builder
	for _, k := range keys {
		switch {
		case k == "Space":
			b.WriteByte(' ')
		case k == "Enter" || k == "C-m" || k == "C-j" || k == "KPEnter":
			b.WriteByte('\n')
		case keyName.MatchString(k):
		default:
			b.WriteString(k)
		}
	}
	return b.String()
}

// entered is the ways to say that a line typed into a terminal ends.
var entered = strings.NewReplacer("^M", "\n", "\ue00d", "\n", `\n`, "\n", `\r`, "\n", `\015`, "\n", `\012`, "\n")

func (j *Judge) screen(w *shell.Walker, sc *shell.Scope, c shell.Call, run *shell.Scope, args []string) {
	for i := 0; i < len(args); i++ {
		a := args[i]
		switch {
		case a == "-X" && i+2 < len(args) && args[i+1] == "stuff":
			w.Source(run, entered.Replace(args[i+2]), c.Span)
			return
		case a == "-X":
			if i+2 < len(args) && (args[i+1] == "exec" || args[i+1] == "screen") {
				w.Exec(sc.Under("screen"), shell.Call{Argv: args[i+2:], Stdin: shell.Stream{Inherit: true}, Span: c.Span})
			}
			return
		case strings.HasPrefix(a, "-"):
			if strings.HasSuffix(a, "S") || len(a) == 2 && strings.IndexByte("cehprsStTxRD", a[1]) >= 0 && i+1 < len(args) && !strings.HasPrefix(args[i+1], "-") {
				i++
			}
		default:
			w.Exec(sc.Under("screen"), shell.Call{Argv: args[i:], Stdin: shell.Stream{Inherit: true}, Span: c.Span})
			return
		}
	}
}

// parallel judges GNU parallel: a command line with places for the values
// behind ":::", or else for lines of standard input.
func (j *Judge) parallel(w *shell.Walker, sc *shell.Scope, c shell.Call, spec *Spec, u Use, args []string) shell.Stream {
	var values []string
	for i, a := range args {
		if strings.HasPrefix(a, ":::") {
			for _, v := range args[i+1:] {
				if !strings.HasPrefix(v, ":::") {
					values = append(values, v)
				}
			}
			args = args[:i]
			break
		}
	}
	p := spec.parse(args)
	u.Options, u.Operands = p.options, p.operands
	j.options(w, sc, &u, p.options)
	if p.odd {
		j.guess(w, sc, c, u.Name, args)
	}
	j.use(u)
	if len(values) == 0 {
		values = []string{string(shell.HoleOutput)}
		if c.Stdin.Plain {
			values = []string{string(shell.HoleText)}
		} else if len(c.Stdin.Listing) > 0 {
			values = c.Stdin.Listing
		} else if c.Stdin.Known {
			values = strings.Split(strings.TrimSuffix(c.Stdin.Text, "\n"), "\n")
		}
	}
	run := sc.Fresh(u.Name, "sh", nil).WithStdin(shell.Stream{Known: true})
	line := strings.Join(p.operands, " ")
	if line == "" {
		line = "{}" // the values are the command lines
	}
	if parallelPlace.MatchString(line) && line != "{}" {
		w.Source(run, line, c.Span) // the places may belong to a program inside
	}
	for _, v := range values[:min(len(values), 32)] {
		one := parallelPlace.ReplaceAllLiteralString(line, v)
		if one == line {
			one = line + " " + v
		}
		w.Source(run, one, c.Span)
	}
	return shell.Stream{}
}

var parallelPlace = regexp.MustCompile(`\{[0-9]*(?:\.|/|//|/\.)?\}`)

// capsh judges capsh, which hands what follows "--" to bash.
func (j *Judge) capsh(w *shell.Walker, sc *shell.Scope, c shell.Call, u Use, args []string) shell.Stream {
	u.Operands = args
	j.use(u)
	for i, a := range args {
		if a == "--" || a == "==" {
			return w.Exec(sc.Under(u.Name), shell.Call{Argv: append([]string{"/bin/bash"}, args[i+1:]...), Stdin: c.Stdin, Span: c.Span})
		}
	}
	return shell.Stream{}
}

// cmake judges the command mode of cmake, which is a small set of file tools.
func (j *Judge) cmake(w *shell.Walker, sc *shell.Scope, c shell.Call, u Use, args []string) shell.Stream {
	u.Operands = args
	results(sc, &u, args)
	j.use(u)
	if len(args) < 2 || args[0] != "-E" {
		if len(args) > 1 && args[0] == "-P" && (args[1] == "-" || args[1] == "/dev/stdin") {
			j.code(w, sc, &u, "cmake", c.Stdin.Text)
			for _, m := range cmakeCommand.FindAllStringSubmatch(c.Stdin.Text, 16) {
				w.Source(sc.Fresh(u.Name, "sh", nil).WithStdin(shell.Stream{Known: true}), m[1], c.Span)
			}
		} else {
			j.guess(w, sc, c, u.Name, args)
		}
		return shell.Stream{}
	}
	rest := args[2:]
	front := map[string][]string{
		"rm": {"rm"}, "remove": {"rm"}, "remove_directory": {"rm", "-rf"}, "copy": {"cp"}, "copy_if_different": {"cp"}, "copy_directory": {"cp", "-r"}, "rename": {"mv"},
		"touch": {"touch"}, "touch_nocreate": {"touch"}, "make_directory": {"mkdir", "-p"}, "create_symlink": {"ln", "-s"}, "create_hardlink": {"ln"}, "cat": {"cat"},
		"env": {"env"}, "time": {"time"}, "tar": {"tar"}, "echo": {"echo"}, "sleep": {"sleep"},
	}[args[1]]
	inner := sc.Under(u.Name)
	switch {
	case args[1] == "chdir" && len(rest) > 1:
		return w.Exec(inner.In(sc.Path(rest[0])), shell.Call{Argv: rest[1:], Stdin: c.Stdin, Span: c.Span})
	case front != nil:
		return w.Exec(inner, shell.Call{Argv: append(front, rest...), Stdin: c.Stdin, Span: c.Span})
	}
	return shell.Stream{}
}

var cmakeCommand = regexp.MustCompile(`(?i)\bCOMMAND\s+([^)]*)`)

// knock judges nc: with -z it only tries whether a port is open.
func (j *Judge) knock(w *shell.Walker, sc *shell.Scope, c shell.Call, spec *Spec, u Use, args []string) shell.Stream {
	p := spec.parse(args)
	u.Options, u.Operands = p.options, p.operands
	action := Upload
	if hasFlag(p, "-z") && !p.odd && !hasFlag(p, "-l", "-e", "-c") && c.Stdin.Inherit {
		action = Fetch
	}
	for _, o := range p.operands {
		u.Accesses = append(u.Accesses, Access{Action: action, Path: o})
	}
	j.use(u)
	return shell.Stream{Fetched: true}
}
