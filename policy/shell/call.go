package shell

import (
	"slices"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

func sortStrings(s []string) { slices.Sort(s) }

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
			local = sc.Sub()
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
		o := w.Exec(sc, Call{Argv: argv, Env: env, Stdin: sc.stdin, Span: at})
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
	if f, ok := sc.funcs[c.Argv[0]]; ok {
		return w.function(sc, f, c.Argv[1:], c.Span)
	}
	if out, ok := w.builtin(sc, c); ok {
		return out
	}
	out := w.host.Run(w, sc, c)
	if !strings.Contains(c.Argv[0], "/") || strings.HasPrefix(c.Argv[0], "/bin/") || strings.HasPrefix(c.Argv[0], "/usr/bin/") {
		if text, ok := printed(name, c.Argv[1:], c.Stdin); ok {
			folded := literal(text)
			folded.Decoded = folded.Decoded || out.Decoded
			return folded
		}
	}
	return out
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

// assign performs NAME=VALUE. The environment of a single command is told
// apart, since it is exported.
func (w *Walker) assign(sc *Scope, a *syntax.Assign, export bool) {
	if a.Name == nil {
		if a.Value != nil {
			w.word(sc, a.Value)
		}
		return
	}
	name := a.Name.Value
	if a.Index != nil {
		w.arith(sc, a.Index)
	}
	if a.Array != nil {
		var list []string
		for _, e := range a.Array.Elems {
			if e.Index != nil {
				w.arith(sc, e.Index)
			}
			if e.Value != nil {
				list = append(list, w.fields(sc, e.Value)...)
			}
		}
		if a.Append {
			if old, ok := sc.array(name); ok {
				list = append(slices.Clone(old), list...)
			}
		}
		w.assigned(sc, name, export, list...)
		sc.setList(name, list)
		return
	}
	values := []string{""}
	if a.Value != nil {
		values = w.words(sc, a.Value)
	}
	if a.Append && a.Index == nil {
		var all []string
		for _, old := range sc.get(name) {
			for _, v := range values {
				if old == string(HoleMaybe) {
					old = ""
				}
				all = append(all, old+v)
			}
		}
		values = union(nil, all)
	}
	w.assigned(sc, name, export, values...)
	if a.Index != nil {
		w.element(sc, name, a.Index, values)
		return
	}
	v, _ := sc.lookup(sc.resolve(name))
	if v.integer {
		for _, x := range values {
			w.hidden(sc, x)
		}
	}
	sc.setValues(name, values)
	if export {
		v, _ := sc.lookup(sc.resolve(name))
		v.export = true
		sc.vars[sc.resolve(name)] = v
	}
}

// element assigns one element of an array.
func (w *Walker) element(sc *Scope, name string, index syntax.ArithmExpr, values []string) {
	list, _ := sc.array(name)
	list = slices.Clone(list)
	i, ok := number(w.arithValue(sc, index))
	value := values[0]
	if len(values) > 1 {
		value = string(HoleFields)
	}
	switch {
	case ok && i >= 0 && i < len(list):
		list[i] = value
	case ok && i == len(list):
		list = append(list, value)
	default:
		list = append(list, value)
		for j := range list {
			list[j] = string(HoleText) // positions are not known any more
		}
	}
	sc.setList(name, list)
}

// assigned judges a value for variables that are code or that change what
// programs do.
func (w *Walker) assigned(sc *Scope, name string, export bool, values ...string) {
	name = sc.resolve(name)
	if v, _ := sc.lookup(name); export || v.export || special(name) {
		for _, v := range values {
			w.host.Report(Fact{Kind: FactEnvironment, Target: name + "=" + Show(v), Name: name, Value: v, Span: w.here(), Via: sc.via})
		}
	}
	if commandVariable(name) {
		for _, v := range values {
			switch {
			case v == "" || v == string(HoleMaybe):
			case strings.Trim(v, "\x01\x02\x05\x10 ") == "":
				w.report(sc, FactPartlyKnown, name, w.here())
			default:
				w.Source(sc.Sub().WithStdin(Stream{Known: true}), strings.TrimPrefix(v, "|"), w.here())
			}
		}
	}
	switch name {
	case "PS0", "PS1", "PS2", "PS3", "PS4":
		for _, v := range values {
			w.hidden(sc, v)
		}
	case "PROMPT_COMMAND":
		for _, v := range values {
			w.Source(sc.Sub(), v, Span{})
		}
	}
}

// special reports whether the shell itself acts on the variable, exported or
// not.
func special(name string) bool {
	switch name {
	case "IFS", "PATH", "ENV", "BASH_ENV", "SHELLOPTS", "BASHOPTS", "PROMPT_COMMAND", "PS4", "GLOBIGNORE", "CDPATH", "HISTFILE", "BASH_LOADABLES_PATH", "BASH_CMDS", "BASH_ALIASES":
		return true
	}
	return false
}

// declClause walks export, declare, local, readonly, typeset, nameref.
func (w *Walker) declClause(sc *Scope, c *syntax.DeclClause) {
	argv := []string{c.Variant.Value}
	flags := ""
	for _, a := range c.Args {
		if a.Naked && a.Name == nil && a.Value != nil {
			for _, f := range w.fields(sc, a.Value) {
				argv = append(argv, f)
				if strings.HasPrefix(f, "-") || strings.HasPrefix(f, "+") {
					flags += f
				} else {
					w.declareWord(sc, c.Variant.Value, flags, f)
				}
			}
			continue
		}
		w.attributes(sc, c.Variant.Value, flags, a.Name.Value)
		if a.Naked {
			if a.Index != nil {
				w.arith(sc, a.Index)
			}
			argv = append(argv, a.Name.Value)
			continue
		}
		if strings.Contains(flags, "n") && c.Variant.Value != "export" && c.Variant.Value != "readonly" && a.Value != nil {
			w.nameref(sc, a.Name.Value, w.word(sc, a.Value))
			argv = append(argv, a.Name.Value+"=")
			continue
		}
		w.assign(sc, a, false)
		for _, v := range sc.get(a.Name.Value) {
			argv = append(argv, a.Name.Value+"="+v)
		}
	}
	w.host.Run(w, sc, Call{Argv: argv, Stdin: sc.stdin, Span: w.span(c)})
}

func (w *Walker) nameref(sc *Scope, name, target string) {
	w.hidden(sc, target)
	if !syntax.ValidName(target) {
		sc.vars[name] = variable{values: []string{string(HoleText)}, set: true}
		return
	}
	sc.vars[name] = variable{isRef: true, ref: target, set: true}
}

func (w *Walker) attributes(sc *Scope, variant, flags, name string) {
	name = sc.resolve(name)
	v, ok := sc.lookup(name)
	if !ok {
		v = variable{values: []string{string(HoleMaybe)}}
	}
	for _, f := range flags {
		switch f {
		case 'i':
			v.integer = true
		case 'l':
			v.lower, v.upper = true, false
		case 'u':
			v.upper, v.lower = true, false
		case 'x':
			v.export = true
		case 'n':
			if variant == "export" {
				v.export = false
			}
		}
	}
	if variant == "export" && !strings.Contains(flags, "n") {
		v.export = true
	}
	sc.vars[name] = v
}

// declareWord handles a declaration whose word came out of an expansion.
func (w *Walker) declareWord(sc *Scope, variant, flags, word string) {
	name, value, has := strings.Cut(word, "=")
	w.hidden(sc, name)
	if !syntax.ValidName(name) {
		return
	}
	w.attributes(sc, variant, flags, name)
	if has {
		if strings.Contains(flags, "n") && variant != "export" {
			w.nameref(sc, name, value)
			return
		}
		if strings.Contains(flags, "i") {
			w.hidden(sc, value)
		}
		w.assigned(sc, name, variant == "export", value)
		sc.set(name, value)
	}
}

// Variable judges NAME=VALUE that a program such as env passes on.
func (w *Walker) Variable(sc *Scope, name, value string) { w.assigned(sc, name, true, value) }

// commandVariable reports whether programs run the value of a variable.
func commandVariable(name string) bool {
	switch name {
	case "GIT_SSH_COMMAND", "GIT_SSH", "GIT_EXTERNAL_DIFF", "GIT_EDITOR", "GIT_SEQUENCE_EDITOR", "GIT_PAGER", "GIT_ASKPASS", "GIT_PROXY_COMMAND", "SSH_ASKPASS", "SUDO_ASKPASS",
		"PAGER", "MANPAGER", "SYSTEMD_PAGER", "BAT_PAGER", "DELTA_PAGER", "AWS_PAGER", "PSQL_PAGER", "EDITOR", "VISUAL", "SUDO_EDITOR", "SYSTEMD_EDITOR", "FCEDIT", "BROWSER",
		"RSYNC_RSH", "CVS_RSH", "TAR_OPTIONS", "RUSTC_WRAPPER", "RUSTC", "CC", "CXX", "LD", "CARGO_BUILD_RUSTC_WRAPPER", "npm_config_script_shell", "MAKEFILES", "FZF_DEFAULT_COMMAND",
		"LESSOPEN", "LESSCLOSE", "XXX_TERMINAL", "TERMCMD", "DIFFPROG", "MERGE", "P4EDITOR", "HGEDITOR", "SVN_EDITOR", "SVN_SSH", "HGMERGE", "KUBE_EDITOR", "NULLCMD":
		return true
	}
	return false
}
