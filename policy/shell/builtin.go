package shell

import (
	"slices"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// A builtin changes the shell's state or runs code. It reports false when the
// host judges the command like any other.
type builtin func(w *Walker, sc *Scope, c Call, args []string) (Stream, bool)

// silent is what a builtin prints that prints nothing.
var silent = Stream{Known: true}

// builtinOf returns the builtin of that name, or nil. (A map would be an
// initialization cycle: the functions lead back to it.)
func builtinOf(name string) builtin {
	switch name {
	case "eval":
		return evalBuiltin
	case ".", "source":
		return sourceBuiltin
	case "command", "builtin":
		return commandBuiltin
	case "exec":
		return execBuiltin
	case "trap":
		return trapBuiltin
	case "fc":
		return fcBuiltin
	case "history":
		return historyBuiltin
	case "alias":
		return aliasBuiltin
	case "shopt":
		return shoptBuiltin
	case "set":
		return setBuiltin
	case "shift":
		return shiftBuiltin
	case "cd", "pushd", "popd", "chdir":
		return cdBuiltin
	case "read", "mapfile", "readarray", "getopts":
		return readBuiltin
	case "export", "declare", "typeset", "local", "readonly":
		return declareBuiltin
	case "unset":
		return unsetBuiltin
	case "let":
		return letBuiltin
	case "printf":
		return printfBuiltin
	case "wait":
		return waitBuiltin
	case "test", "[":
		return testBuiltin
	case "break", "continue", "return", "exit":
		return leaveBuiltin
	}
	return nil
}

// builtin runs the builtin of that name. Those that are more than state are
// told to the host too, so that rules can name them.
func (w *Walker) builtin(sc *Scope, c Call) (Stream, bool) {
	if run := builtinOf(c.Argv[0]); run != nil {
		return run(w, sc, c, c.Argv[1:])
	}
	return Stream{}, false
}

func evalBuiltin(w *Walker, sc *Scope, c Call, args []string) (Stream, bool) {
	if len(args) > 0 && args[0] == "--" {
		args = args[1:]
	}
	return w.Source(sc, strings.Join(args, " "), c.Span), true
}

func sourceBuiltin(w *Walker, sc *Scope, c Call, args []string) (Stream, bool) {
	return w.sourceFile(sc, c, args), true
}

func commandBuiltin(w *Walker, sc *Scope, c Call, args []string) (Stream, bool) {
	rest, query := skipFlags(args)
	if query || len(rest) == 0 {
		w.host.Run(w, sc, c)
		if len(args) == 2 && args[0] == "-v" && len(rest) == 1 && Known(rest[0]) && len(sc.funcs[rest[0]]) == 0 {
			return literal(located(rest[0]) + "\n"), true
		}
		return Stream{}, true
	}
	sub := sc.copy()
	delete(sub.funcs, rest[0])
	out := w.Exec(sub, Call{Argv: rest, Env: c.Env, Stdin: c.Stdin, Span: c.Span})
	funcs := sc.funcs
	whole := sc.whole
	*sc = *sub
	sc.funcs, sc.whole = funcs, whole
	return out, true
}

func execBuiltin(w *Walker, sc *Scope, c Call, args []string) (Stream, bool) {
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
		sc.kept = true
		w.host.Run(w, sc, Call{Argv: []string{"exec"}, Stdin: c.Stdin, Span: c.Span})
		return silent, true
	}
	sub := sc.Sub()
	sub.funcs = map[string][]*function{}
	return w.Exec(sub, Call{Argv: args, Env: c.Env, Stdin: c.Stdin, Span: c.Span}), true
}

func trapBuiltin(w *Walker, sc *Scope, c Call, args []string) (Stream, bool) {
	out := silent
	for len(args) > 0 && (args[0] == "--" || args[0] == "-p" || args[0] == "-l") {
		args = args[1:]
	}
	w.host.Run(w, sc, c)
	if len(args) > 1 && args[0] != "-" && args[0] != "" {
		if said := w.Source(sc.Sub(), args[0], c.Span); !said.Known || said.Text != "" {
			out = Stream{} // what it prints comes later
		}
		last := !slices.ContainsFunc(args[1:], func(s string) bool { return s != "EXIT" && s != "0" })
		p := pending{sc.shell(), args[0], c.Span, last}
		switch known := slices.ContainsFunc(sc.shared.traps, func(q pending) bool { return q.sc == p.sc && q.code == p.code && q.last == p.last }); {
		case known || w.trapped > 0:
		case len(sc.shared.traps) >= 64:
			sc.shared.over = true
		default:
			sc.shared.traps = append(sc.shared.traps, p)
			sc.shared.changes++
		}
	}
	return out, true
}

func fcBuiltin(w *Walker, sc *Scope, c Call, args []string) (Stream, bool) {
	w.host.Run(w, sc, c)
	if len(args) == 0 || !strings.HasPrefix(args[0], "-l") && args[0] != "--help" {
		w.report(sc, FactOpaque, "a command of the history", c.Span)
	}
	return silent, true
}

func historyBuiltin(w *Walker, sc *Scope, c Call, args []string) (Stream, bool) {
	for i, a := range args {
		if a == "-p" {
			for _, text := range args[i+1:] {
				w.hidden(sc, text) // expanded before it is shown
			}
			break
		}
		if a == "-s" {
			w.remembered(sc, strings.Join(args[i+1:], " "), c.Span)
			break
		}
	}
	return Stream{}, false
}

func shoptBuiltin(_ *Walker, sc *Scope, _ Call, args []string) (Stream, bool) {
	for _, a := range args {
		sc.Option("-O", a)
	}
	if slices.Contains(args, "allexport") {
		sc.options.exporting = sc.options.exporting || !slices.ContainsFunc(args, func(a string) bool { return strings.HasPrefix(a, "-") && strings.Contains(a, "u") })
	}
	return Stream{}, false
}

func setBuiltin(w *Walker, sc *Scope, c Call, args []string) (Stream, bool) {
	w.host.Run(w, sc, c)
	sc.given(args)
	if histories(args) && w.bang {
		w.report(sc, FactOpaque, "history expansion", c.Span)
	}
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
	return silent, true
}

func shiftBuiltin(w *Walker, sc *Scope, c Call, args []string) (Stream, bool) {
	w.host.Run(w, sc, c)
	n := 1
	if len(args) > 0 {
		v, ok := number(args[0])
		if !ok {
			sc.args = []string{string(HoleFields)}
			return silent, true
		}
		n = v
	}
	switch {
	case slices.Contains(sc.args, string(HoleFields)):
	case n >= 0 && n <= len(sc.args):
		sc.args = sc.args[n:]
	}
	return silent, true
}

func cdBuiltin(w *Walker, sc *Scope, c Call, args []string) (Stream, bool) {
	w.host.Run(w, sc, c)
	w.changeDir(sc, c.Argv[0], args)
	return silent, true
}

func readBuiltin(w *Walker, sc *Scope, c Call, args []string) (Stream, bool) {
	w.host.Run(w, sc, c)
	w.readVars(sc, c.Argv[0], args, c)
	return silent, true
}

func unsetBuiltin(w *Walker, sc *Scope, c Call, args []string) (Stream, bool) {
	w.host.Run(w, sc, c)
	funcs := false
	for _, a := range args {
		switch {
		case a == "-f":
			funcs = true
		case a == "-n" || a == "-v":
		case funcs:
			delete(sc.funcs, a)
		case strings.Contains(a, "["):
			w.evaluated(sc, a)
			if name, _, _ := strings.Cut(a, "["); syntax.ValidName(name) {
				if _, ok := sc.array(name); ok {
					sc.setList(name, []string{string(HoleFields)}) // one is gone
				}
			}
		default:
			w.evaluated(sc, a)
			if !sc.unset(a) {
				delete(sc.funcs, a)
			}
		}
	}
	return silent, true
}

// letBuiltin handles let with words that came out of expansions: names that
// they assign get numbers.
func letBuiltin(w *Walker, sc *Scope, c Call, args []string) (Stream, bool) {
	w.host.Run(w, sc, c)
	for _, a := range args {
		x := w.expander(sc)
		x.arithText(a, 0)
	}
	return silent, true
}

func printfBuiltin(w *Walker, sc *Scope, c Call, args []string) (Stream, bool) {
	if len(args) > 0 && len(args[0]) > 2 && strings.HasPrefix(args[0], "-v") {
		args = append([]string{"-v", args[0][2:]}, args[1:]...)
	}
	if len(args) > 1 && args[0] == "-v" {
		w.host.Run(w, sc, Call{Argv: append([]string{"printf"}, args[2:]...), Stdin: c.Stdin, Span: c.Span})
		v := string(HoleText)
		if text, ok := printed("printf", args[2:], c.Stdin); ok {
			v = text
		}
		w.giveTo(sc, args[1], v)
		return silent, true
	}
	// A format that may turn out to be "-v name[subscript]" is evaluated.
	if len(args) > 0 && args[0] != "" && strings.IndexByte(holes, args[0][0]) >= 0 && args[0][0] != byte(HoleMaybe) && (len(args) > 1 || Has(args[0], HoleFields)) {
		w.evaluated(sc, args[0])
	}
	return Stream{}, false
}

// waitBuiltin handles wait -p, which assigns the name that it is given.
func waitBuiltin(w *Walker, sc *Scope, _ Call, args []string) (Stream, bool) {
	for i, a := range args {
		if len(a) < 2 || a[0] != '-' {
			break
		}
		if _, target, ok := strings.Cut(a[1:], "p"); ok {
			if target == "" && i+1 < len(args) {
				target = args[i+1]
			}
			w.giveTo(sc, target, string(HoleText))
			break
		}
	}
	return Stream{}, false
}

func testBuiltin(w *Walker, sc *Scope, _ Call, args []string) (Stream, bool) {
	for i, a := range args {
		if i > 0 && (args[i-1] == "-v" || args[i-1] == "-R") {
			w.evaluated(sc, a)
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
}

func aliasBuiltin(w *Walker, sc *Scope, c Call, args []string) (Stream, bool) {
	w.host.Run(w, sc, c)
	for _, a := range args {
		if name, code, ok := strings.Cut(a, "="); ok {
			sc.defineAlias(name, code)
			w.remembered(sc, code, c.Span)
		}
	}
	return silent, true
}

// remembered judges code that is only kept: what brings it back is judged
// itself.
func (w *Walker) remembered(sc *Scope, code string, at Span) {
	lazy := w.lazy
	w.lazy = true
	w.Source(sc.Sub(), code, at)
	w.lazy = lazy
}

// histories reports whether set switches history expansion on, which puts text
// of earlier commands into later lines.
func histories(args []string) bool {
	for i, a := range args {
		switch {
		case a == "--" || a == "" || a[0] != '-':
			if i == 0 || args[i-1] != "-o" && args[i-1] != "+o" {
				return false
			}
			if args[i-1] == "-o" && a == "histexpand" {
				return true
			}
		case strings.Contains(a, "H"):
			return true
		}
	}
	return false
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
		if strings.Trim(flag, "-p") != "" {
			return nil, true // not an option: the shell refuses, and nothing runs
		}
	}
	return args, false
}

// options notes what set does to the way variables are exported.
func (sc *Scope) given(args []string) {
	for i, a := range args {
		switch {
		case len(a) > 1 && (a[0] == '-' || a[0] == '+') && a != "--":
			sc.Option(a, "")
		case i > 0 && len(args[i-1]) > 1 && strings.HasSuffix(args[i-1], "o"):
			sc.Option(args[i-1], a)
		default:
			return
		}
	}
}

// Option notes an option of the shell and the value of -o: after allexport all
// variables that are assigned are exported, after keyword all words that look
// like assignments are some.
func (sc *Scope) Option(flag, value string) {
	if flag == "" || strings.HasPrefix(flag, "--") {
		return
	}
	on, name := flag[0] == '-', flag
	sc.shared.changes++
	if value == "allexport" || value == "" && strings.Contains(flag, "a") {
		sc.options.exporting = on
	}
	if value == "keyword" || value == "" && strings.Contains(flag, "k") {
		sc.options.keyword = on
	}
	o := &sc.options
	set := func(flag *bool, letter string, names ...string) {
		if slices.Contains(names, value) || value == "" && letter != "" && strings.Contains(name, letter) {
			*flag = *flag || on
		}
	}
	set(&o.failing, "e", "errexit")
	set(&o.keeping, "C", "noclobber")
	set(&o.vanishing, "", "nullglob", "failglob")
	set(&o.skipping, "", "extdebug")
	set(&o.lastpipe, "", "lastpipe")
	set(&o.cdable, "", "cdable_vars")
}
