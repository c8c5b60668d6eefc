package shell

import (
	"slices"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// builtin handles the builtins that change the shell's state or run code.
// It reports false for every other command. Those that are more than state
// are told to the host too, so that rules can name them.
func (w *Walker) builtin(sc *Scope, c Call) (Stream, bool) {
	args := c.Argv[1:]
	none := Stream{Known: true}
	switch c.Argv[0] {
	case "eval":
		if len(args) > 0 && args[0] == "--" {
			args = args[1:]
		}
		return w.Source(sc, strings.Join(args, " "), c.Span), true
	case ".", "source":
		return w.sourceFile(sc, c, args), true
	case "command", "builtin":
		rest, query := skipFlags(args)
		if query || len(rest) == 0 {
			w.host.Run(w, sc, c)
			return Stream{}, true
		}
		sub := sc.Sub()
		delete(sub.funcs, rest[0])
		if f, ok := sc.funcs[rest[0]]; ok && !f.called {
			f.called = true
			f.called = false
		}
		out := w.Exec(sub, Call{Argv: rest, Env: c.Env, Stdin: c.Stdin, Span: c.Span})
		funcs := sc.funcs
		*sc = *sub
		sc.funcs = funcs
		return out, true
	case "exec":
		for len(args) > 0 && strings.HasPrefix(args[0], "-") && args[0] != "-" {
			flag := args[0]
			args = args[1:]
			if flag == "--" {
				break
			}
			if strings.HasSuffix(flag, "a") && len(args) > 0 {
				args = args[1:]
			}
		}
		if len(args) == 0 {
			w.host.Run(w, sc, Call{Argv: []string{"exec"}, Stdin: c.Stdin, Span: c.Span})
			return none, true
		}
		sub := sc.Sub()
		sub.funcs = map[string]*function{}
		return w.Exec(sub, Call{Argv: args, Env: c.Env, Stdin: c.Stdin, Span: c.Span}), true
	case "trap":
		for len(args) > 0 && (args[0] == "--" || args[0] == "-p" || args[0] == "-l") {
			args = args[1:]
		}
		w.host.Run(w, sc, c)
		if len(args) > 1 && args[0] != "-" && args[0] != "" {
			w.Source(sc.Sub(), args[0], c.Span)
		}
		return none, true
	case "set":
		w.host.Run(w, sc, c)
		for i, a := range args {
			if a == "--" || a == "-" || a != "" && a[0] != '-' && a[0] != '+' {
				if a == "--" || a == "-" {
					i++
				} else if i > 0 && (args[i-1] == "-o" || args[i-1] == "+o" || strings.HasSuffix(args[i-1], "o")) {
					continue
				}
				sc.args = slices.Clone(args[i:])
				break
			}
		}
		return none, true
	case "shift":
		w.host.Run(w, sc, c)
		n := 1
		if len(args) > 0 {
			v, ok := number(args[0])
			if !ok {
				sc.args = []string{string(HoleFields)}
				return none, true
			}
			n = v
		}
		switch {
		case slices.Contains(sc.args, string(HoleFields)):
		case n >= 0 && n <= len(sc.args):
			sc.args = sc.args[n:]
		}
		return none, true
	case "cd", "pushd", "popd", "chdir":
		w.host.Run(w, sc, c)
		w.changeDir(sc, c.Argv[0], args)
		return none, true
	case "read", "mapfile", "readarray", "getopts":
		w.host.Run(w, sc, c)
		w.readVars(sc, c.Argv[0], args, c)
		return none, true
	case "export", "declare", "typeset", "local", "readonly":
		w.host.Run(w, sc, c)
		flags := ""
		for _, a := range args {
			if strings.HasPrefix(a, "-") || strings.HasPrefix(a, "+") {
				flags += a
				continue
			}
			w.declareWord(sc, c.Argv[0], flags, a)
		}
		return Stream{}, true
	case "unset":
		w.host.Run(w, sc, c)
		funcs := false
		for _, a := range args {
			switch {
			case a == "-f":
				funcs = true
			case strings.HasPrefix(a, "-"):
			case funcs:
				delete(sc.funcs, a)
			default:
				w.hidden(sc, a)
				if !sc.unset(a) {
					delete(sc.funcs, a)
				}
			}
		}
		return none, true
	case "let":
		w.host.Run(w, sc, c)
		for _, a := range args {
			w.hidden(sc, a)
			if name, _, ok := strings.Cut(a, "="); ok && syntax.ValidName(name) {
				sc.set(name, string(HoleText))
			}
		}
		return none, true
	case "printf":
		if len(args) > 1 && args[0] == "-v" {
			w.host.Run(w, sc, Call{Argv: append([]string{"printf"}, args[2:]...), Stdin: c.Stdin, Span: c.Span})
			w.hidden(sc, args[1])
			if syntax.ValidName(args[1]) {
				v := string(HoleText)
				if text, ok := printed("printf", args[2:], c.Stdin); ok {
					v = text
				}
				w.assigned(sc, args[1], false, v)
				sc.set(args[1], v)
			}
			return none, true
		}
		return Stream{}, false
	case "test", "[":
		for i, a := range args {
			if i > 0 && (args[i-1] == "-v" || args[i-1] == "-R") {
				w.hidden(sc, a)
			}
			switch a {
			case "-eq", "-ne", "-lt", "-le", "-gt", "-ge":
				if i > 0 {
					w.hidden(sc, args[i-1])
				}
				if i+1 < len(args) {
					w.hidden(sc, args[i+1])
				}
			}
		}
		return Stream{}, false
	case "alias":
		w.host.Run(w, sc, c)
		for _, a := range args {
			if _, code, ok := strings.Cut(a, "="); ok {
				lazy := w.lazy
				w.lazy = true
				w.Source(sc.Sub(), code, c.Span)
				w.lazy = lazy
			}
		}
		return none, true
	}
	return Stream{}, false
}

// skipFlags drops the flags of command and builtin; query is true when they
// only ask what a name is.
func skipFlags(args []string) (rest []string, query bool) {
	for len(args) > 0 && len(args[0]) > 1 && args[0][0] == '-' {
		flag := args[0]
		args = args[1:]
		if flag == "--" {
			break
		}
		if strings.ContainsAny(flag, "vV") {
			return args, true
		}
	}
	return args, false
}

func (w *Walker) changeDir(sc *Scope, name string, args []string) {
	for len(args) > 0 && len(args[0]) > 1 && args[0][0] == '-' {
		args = args[1:]
	}
	switch {
	case name == "popd":
		sc.cwd = ""
	case len(args) == 0 && name == "cd":
		sc.cwd = sc.home
	case len(args) == 0, args[0] == "-":
		sc.cwd = ""
	default:
		sc.cwd = sc.Path(args[0] + "/")
	}
	sc.set("PWD", "/\x01")
	if strings.HasPrefix(sc.cwd, "/") {
		sc.set("PWD", sc.cwd)
	}
}

// readVars makes the variables that read and its like assign unknown.
func (w *Walker) readVars(sc *Scope, name string, args []string, c Call) {
	value := string(HoleText)
	if !c.Stdin.Inherit {
		value = string(HoleOutput)
	}
	switch {
	case c.Stdin.Fetched:
		value = string(HoleFetched)
	case c.Stdin.Decoded:
		value = string(HoleDecoded)
	case name == "read" && c.Stdin.Known && !strings.Contains(strings.TrimSuffix(c.Stdin.Text, "\n"), "\n"):
		value = strings.TrimSpace(c.Stdin.Text)
	}
	if name != "read" && name != "getopts" {
		value = string(HoleFields)
	}
	var names []string
	isArray := name == "mapfile" || name == "readarray"
	for i := 0; i < len(args); i++ {
		a := args[i]
		if len(a) > 1 && a[0] == '-' {
			f := a[len(a)-1]
			switch {
			case f == 'C' && isArray && i+1 < len(args):
				w.Source(sc.Sub(), args[i+1]+" \x01 \x01", c.Span)
				i++
			case f == 'a' && name == "read":
				isArray = true
			case strings.IndexByte("dinNptuCcOs", f) >= 0 && name != "getopts":
				if f == 's' && name == "read" || f == 't' && name != "read" {
					continue
				}
				i++
			}
			continue
		}
		if name == "getopts" && len(names) == 0 && i == 0 {
			continue // the option string
		}
		w.hidden(sc, a)
		names = append(names, a)
	}
	if len(names) == 0 {
		names = []string{"REPLY"}
		if isArray {
			names = []string{"MAPFILE"}
		}
	}
	if len(names) > 1 {
		if Known(value) {
			value = string(HoleText)
		}
	}
	if name == "getopts" {
		names = append(names[:1], "OPTARG", "OPTIND")
		value = string(HoleText)
	}
	for _, n := range names {
		if !syntax.ValidName(n) {
			continue
		}
		w.assigned(sc, n, false, value)
		if isArray {
			sc.setList(n, []string{string(HoleFields)})
		} else {
			sc.set(n, value)
		}
	}
}

// generated reports whether a command prints shell code that is meant to be
// evaluated unseen: a finite table of programs and their first argument.
func generated(argv []string) bool {
	if len(argv) < 2 {
		return len(argv) == 1 && (argv[0] == "ssh-agent" || argv[0] == "lesspipe" || argv[0] == "resize")
	}
	switch argv[0] {
	case "ssh-agent":
		return argv[1] == "-s" || argv[1] == "-c" || argv[1] == "-k"
	case "dircolors":
		return argv[1] == "-b" || argv[1] == "-c"
	case "direnv":
		return argv[1] == "hook" || argv[1] == "export"
	case "pyenv", "rbenv", "nodenv", "goenv", "jenv", "starship", "zoxide", "thefuck", "atuin", "oh-my-posh":
		return argv[1] == "init" || argv[1] == "virtualenv-init" || argv[1] == "-" || argv[1] == "--alias"
	case "fnm", "opam":
		return argv[1] == "env"
	case "mise", "conda", "micromamba":
		return argv[1] == "activate" || argv[1] == "shell.bash" || argv[1] == "hook" || argv[1] == "shell"
	case "brew", "keychain", "gpg-agent", "minikube", "docker-machine":
		return argv[1] == "shellenv" || argv[1] == "--eval" || argv[1] == "--daemon" || argv[1] == "docker-env" || argv[1] == "env"
	case "kubectl", "helm", "gh", "npm", "pip", "pip3", "poetry", "rustup", "kind", "uv", "minikube-completion", "hugo", "podman", "docker":
		return argv[1] == "completion" || argv[1] == "completions" || len(argv) > 2 && argv[0] == "poetry" && argv[1] == "env" && argv[2] == "activate" || argv[1] == "generate-shell-completion"
	case "register-python-argcomplete":
		return true
	case "fzf":
		return argv[1] == "--bash"
	}
	return false
}

func (w *Walker) sourceFile(sc *Scope, c Call, args []string) Stream {
	if len(args) > 0 && args[0] == "--" {
		args = args[1:]
	}
	if len(args) == 0 {
		w.report(sc, FactAssign, "", c.Span)
		return Stream{Known: true}
	}
	saved := sc.args
	if len(args) > 1 {
		sc.args = args[1:]
		defer func() { sc.args = saved }()
	}
	s := w.content(sc, args[0])
	if !s.Known {
		w.host.Run(w, sc, c)
	}
	return w.Run(sc, s, c.Span)
}

// Run judges the content of a stream that a shell executes: known text is
// walked, a local file is a program like any other, the rest is opaque.
func (w *Walker) Run(sc *Scope, s Stream, at Span) Stream {
	switch {
	case s.Fetched:
		w.report(sc, FactFetched, s.File, at)
	case s.Known:
		return w.Source(sc, s.Text, at)
	case s.Decoded:
		w.report(sc, FactDecoded, s.File, at)
	case s.Script, s.File != "":
		w.report(sc, FactScript, s.File, at)
	case s.Inherit:
		w.report(sc, FactAssign, "", at)
	default:
		w.report(sc, FactOpaque, "standard input", at)
	}
	return Stream{}
}
