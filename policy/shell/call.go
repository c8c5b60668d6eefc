package shell

import (
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

func (w *Walker) call(sc *Scope, c *syntax.CallExpr) Stream {
	at := w.span(c)
	if len(c.Args) == 0 {
		for _, a := range c.Assigns {
			w.assign(sc, a, false)
		}
		w.report(sc, FactAssign, "", at)
		return Stream{Known: true}
	}
	var env []Setting
	local := sc
	for _, a := range c.Assigns {
		if local == sc {
			// Assignments in front of a command are seen by the command only;
			// its words are expanded without them.
			local = sc.branch()
		}
		w.assign(local, a, true)
		if a.Name != nil {
			for _, v := range local.get(a.Name.Value) {
				env = append(env, Setting{a.Name.Value, v})
			}
		}
	}
	var out Stream
	x := w.expander(sc)
	for first := true; first || x.next(); first = false {
		var argv []string
		for _, word := range c.Args {
			argv = append(argv, x.fields(word)...)
			if len(argv) > maxFields {
				w.limit(sc, at)
				return Stream{}
			}
		}
		if sc.options.keyword {
			w.keywords(sc, argv)
		}
		if len(argv) > 1 && argv[0] == "printf" && loose(c.Args[1:]) && strings.ContainsAny(argv[1], uncertain) {
			w.evaluated(sc, argv[1]) // may become -v and a subscript
		}
		restore := sc.borrow(local, c.Assigns)
		alias := w.aliased(sc, c, argv, at)
		o := w.Exec(sc, Call{Argv: argv, Env: env, Stdin: sc.stdin, Span: at})
		restore()
		if alias {
			o = Stream{Fetched: o.Fetched, Decoded: o.Decoded}
		}
		if first {
			out = o
		} else {
			out = Stream{Fetched: out.Fetched || o.Fetched, Decoded: out.Decoded || o.Decoded}
		}
		if len(argv) > 0 {
			sc.set("_", argv[len(argv)-1])
		}
	}
	return out
}

// keywords judges the words that set -k makes assignments of.
func (w *Walker) keywords(sc *Scope, argv []string) {
	for _, a := range argv[min(1, len(argv)):] {
		if name, value, ok := strings.Cut(a, "="); ok && syntax.ValidName(name) {
			w.assigned(sc, name, true, value)
		}
	}
}

// loose reports whether the first word begins with an expansion that the shell
// splits.
func loose(words []*syntax.Word) bool {
	if len(words) == 0 || len(words[0].Parts) == 0 {
		return false
	}
	switch words[0].Parts[0].(type) {
	case *syntax.ParamExp, *syntax.CmdSubst:
		return true
	}
	return false
}

// borrow gives the scope the variables that are assigned in front of one
// command, and returns what takes them away again.
func (sc *Scope) borrow(from *Scope, list []*syntax.Assign) (restore func()) {
	type saved struct {
		name string
		v    variable
		had  bool
	}
	var all []saved
	for _, a := range list {
		if a.Name == nil {
			continue
		}
		name := sc.resolve(a.Name.Value)
		old, had := sc.vars[name]
		all = append(all, saved{name, old, had})
		sc.vars[name] = from.vars[name]
	}
	return func() {
		for i := len(all) - 1; i >= 0; i-- {
			if s := all[i]; s.had {
				sc.vars[s.name] = s.v
			} else {
				delete(sc.vars, s.name)
			}
		}
	}
}

// Exec judges one command whose words are expanded: a function, a builtin or
// a program. Hosts call it with what a launcher would start.
func (w *Walker) Exec(sc *Scope, c Call) Stream {
	w.steps++
	if w.steps > maxSteps || w.depth >= maxDepth {
		w.limit(sc, c.Span)
		return Stream{}
	}
	if len(c.Argv) == 0 {
		w.report(sc, FactAssign, "", c.Span)
		return Stream{Known: true}
	}
	w.depth++
	defer func() { w.depth-- }()
	name, ok := commandWord(c.Argv[0])
	if !ok {
		kind := FactUnresolved
		switch {
		case Has(c.Argv[0], HoleFetched):
			kind = FactFetched
		case Has(c.Argv[0], HoleDecoded):
			kind = FactDecoded
		}
		w.report(sc, kind, strings.Join(c.Argv, " "), c.Span)
		return Stream{}
	}
	for _, r := range name {
		if r >= 0x80 {
			w.report(sc, FactConfusable, name, c.Span)
			return Stream{}
		}
	}
	if list := sc.funcs[c.Argv[0]]; len(list) > 0 {
		return w.functions(sc, list, c)
	}
	for _, f := range sc.passed[c.Argv[0]] {
		// An exported function, or the program of that name: both are judged.
		if f != nil {
			w.function(sc.Sub(), f, c.Argv[1:], c.Span)
		}
	}
	if out, ok := w.builtin(sc, c); ok {
		return out
	}
	if programs := sc.renamed(c.Argv[0]); len(programs) > 0 {
		w.host.Run(w, sc, c)
		var out Stream
		for i, p := range programs {
			c.Argv = append([]string{p}, c.Argv[1:]...)
			if o := w.Exec(sc, c); i == 0 {
				out = o
			} else {
				out = oneOf(out, o)
			}
		}
		return out
	}
	if !strings.Contains(c.Argv[0], "/") {
		for _, f := range sc.funcs["command_not_found_handle"] {
			if f != nil {
				w.function(sc.Sub(), f, c.Argv, c.Span)
			}
		}
	}
	if len(sc.via) > 0 && strings.ContainsAny(c.Argv[0], " \t\n;|&") {
		w.joined(sc, c)
	}
	w.connected(sc, c)
	switch name {
	case "chmod", "chattr", "umask", "setfacl", "ulimit", "chown", "mount", "install", "quota":
		sc.shared.guarded = true
	}
	for _, other := range sc.worlds() {
		w.steps++
		w.host.Run(w, other, c)
	}
	out := w.host.Run(w, sc, c)
	if !strings.Contains(c.Argv[0], "/") || strings.HasPrefix(c.Argv[0], "/bin/") || strings.HasPrefix(c.Argv[0], "/usr/bin/") {
		if text, ok := w.folded(sc, name, c); ok {
			folded := literal(text)
			folded.Decoded = folded.Decoded || out.Decoded
			return folded
		}
		out = w.after(sc, name, c, out)
	}
	out.Local = out.Local || !out.Known && !out.Fetched && !out.Decoded && w.local(sc, name, c)
	return out
}

// joined judges the words that a launcher such as watch gives to a shell as one
// line of code.
func (w *Walker) joined(sc *Scope, c Call) {
	by := sc.via[len(sc.via)-1]
	inner := sc.Fresh(by, "sh", nil).WithStdin(c.Stdin)
	words, values := c.Argv, []string(nil)
	for i, a := range words {
		if strings.HasPrefix(a, ":::") {
			words, values = words[:i], words[i+1:]
			break
		}
	}
	line := strings.Join(words, " ")
	if by != "watch" && by != "parallel" {
		lazy := w.lazy
		w.lazy = true
		defer func() { w.lazy = lazy }()
	}
	w.Source(inner, line, c.Span)
	for _, v := range values[:min(len(values), 16)] {
		if strings.Contains(line, "{") {
			w.Source(inner, strings.ReplaceAll(line, "{}", v), c.Span)
		} else {
			w.Source(inner, line+" "+v, c.Span)
		}
	}
}

// commandWord returns the name of the program a command word runs, and whether
// it is known. A directory that is not known does not hide the name.
func commandWord(word string) (string, bool) {
	i := strings.LastIndexByte(word, '/')
	name := word[i+1:]
	if name == "" || !Known(name) {
		return "", false
	}
	if i >= 0 && (Has(word[:i], HoleStar) || Has(word[:i], HoleChar) || Has(word[:i], HoleFields)) && !strings.HasPrefix(word, "\x05/") {
		return "", false
	}
	return name, true
}

// Name returns the name of the program a command word runs, without its
// directory.
func Name(word string) string {
	return word[strings.LastIndexByte(word, '/')+1:]
}
