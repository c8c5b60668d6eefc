package shell

import (
	"slices"
	"strconv"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// give assigns the possible values of a scalar. Every assignment that a text
// makes comes through here or through giveList, whatever construct makes it:
// this is where programs get to see a variable that is exported.
func (w *Walker) give(sc *Scope, name string, values ...string) {
	if v, ok := sc.vars[name]; ok && v.isRef && v.ref == "" && len(values) == 1 {
		w.nameref(sc, name, values[0]) // a nameref without a target takes one
		return
	}
	w.assigned(sc, name, false, values...)
	to := sc.resolve(name)
	if v, _ := sc.lookup(to); v.fixed {
		sc.leave("abort", 1)
	}
	old, had := sc.lookup(to)
	sc.setValues(name, values)
	if w.maybe > 0 || sc.options.skipping {
		sc.vars[to] = either(old, sc.vars[to], had, true)
	}
	if sc.options.exporting {
		sc.export(name)
	}
}

// giveList assigns an array.
func (w *Walker) giveList(sc *Scope, name string, list []string, keys ...string) {
	w.assigned(sc, name, false, list...)
	sc.setList(name, list, keys...)
	if sc.options.exporting {
		sc.export(name)
	}
}

// giveTo assigns to what a builtin takes as the name of a variable: the shell
// expands a subscript in it.
func (w *Walker) giveTo(sc *Scope, target string, values ...string) {
	w.evaluated(sc, target)
	name, _, element := strings.Cut(target, "[")
	switch {
	case !syntax.ValidName(name):
	case element:
		w.giveList(sc, name, []string{string(HoleFields)})
		if special(name) {
			w.assigned(sc, name, true, values...)
		}
	default:
		w.give(sc, name, values...)
	}
}

// expose marks a variable as exported. What the line gave it before is now
// seen by programs.
func (w *Walker) expose(sc *Scope, name string) {
	name = sc.resolve(name)
	before, _ := sc.lookup(name)
	sc.export(name)
	if before.export || !before.set {
		return
	}
	values := before.values
	if before.isList {
		values = before.list
	}
	for _, v := range values {
		w.environment(sc, name, v)
	}
}

// export sets the attribute alone.
func (sc *Scope) export(name string) {
	name = sc.resolve(name)
	v, ok := sc.lookup(name)
	if !ok {
		v = variable{values: []string{string(HoleMaybe)}}
	}
	v.export = true
	sc.vars[name] = v
}

func (w *Walker) environment(sc *Scope, name, value string) {
	w.host.Report(Fact{Kind: FactEnvironment, Target: name + "=" + Show(value), Name: name, Value: value, Span: w.here(), Via: sc.via})
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
	if export {
		sc.export(name)
	}
	if a.Array != nil {
		w.assignList(sc, a)
		return
	}
	values := []string{""}
	if a.Value != nil {
		values = w.words(sc, a.Value)
	}
	if a.Append && a.Index == nil {
		values = appended(sc.get(name), values)
	}
	if a.Index != nil {
		w.element(sc, name, a.Index, values)
		return
	}
	if v, _ := sc.lookup(sc.resolve(name)); v.integer {
		values = w.integers(sc, values)
	}
	w.give(sc, name, values...)
}

// assignList performs NAME=(...).
func (w *Walker) assignList(sc *Scope, a *syntax.Assign) {
	name := a.Name.Value
	var list, keys []string
	for _, e := range a.Array.Elems {
		if e.Index != nil {
			w.arith(sc, e.Index)
			keys = append(keys, w.key(sc, e.Index))
		}
		if e.Value != nil {
			list = append(list, w.fields(sc, e.Value)...)
		}
	}
	if a.Append {
		if old, ok := sc.array(name); ok {
			keys = append(slices.Clone(sc.vars[sc.resolve(name)].keys), keys...)
			list = append(slices.Clone(old), list...)
		}
	}
	w.giveList(sc, name, list, keys...)
}

// appended is every old value with every new one behind it.
func appended(before, values []string) []string {
	var all []string
	for _, old := range before {
		for _, v := range values {
			if old == string(HoleMaybe) {
				old = ""
			}
			all = append(all, old+v)
		}
	}
	return union(nil, all)
}

// integers evaluates what a variable with the integer attribute is given.
func (w *Walker) integers(sc *Scope, values []string) []string {
	out := make([]string, 0, len(values))
	for _, v := range values {
		x := w.expander(sc)
		if n, ok := x.arithText(v, 0); ok {
			out = append(out, strconv.Itoa(n))
		} else {
			out = append(out, string(HoleText))
		}
	}
	return out
}

// element assigns one element of an array.
func (w *Walker) element(sc *Scope, name string, index syntax.ArithmExpr, values []string) {
	w.assigned(sc, name, false, values...)
	list, _ := sc.array(name)
	list = slices.Clone(list)
	keys := slices.Clone(sc.vars[sc.resolve(name)].keys)
	i, ok := number(w.arithValue(sc, index))
	if _, plain := number(w.key(sc, index)); !plain {
		keys = append(keys, w.key(sc, index))
	}
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
	sc.setList(name, list, keys...)
}

// key is the text of a subscript.
func (w *Walker) key(sc *Scope, index syntax.ArithmExpr) string {
	if word, ok := index.(*syntax.Word); ok {
		return w.word(sc, word)
	}
	return string(HoleText)
}

// assigned judges a value for variables that are code or that change what
// programs do.
func (w *Walker) assigned(sc *Scope, name string, export bool, values ...string) {
	name = sc.resolve(name)
	if v, _ := sc.lookup(name); export || v.export || sc.options.exporting || special(name) {
		for _, v := range values {
			w.environment(sc, name, v)
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

// Variable judges NAME=VALUE that a program such as env passes on.
func (w *Walker) Variable(sc *Scope, name, value string) { w.assigned(sc, name, true, value) }

// special reports whether the shell itself acts on the variable, exported or
// not.
func special(name string) bool {
	switch name {
	case "IFS", "PATH", "ENV", "BASH_ENV", "SHELLOPTS", "BASHOPTS", "PROMPT_COMMAND", "PS4", "GLOBIGNORE", "CDPATH", "HISTFILE", "BASH_LOADABLES_PATH", "BASH_CMDS", "BASH_ALIASES":
		return true
	}
	return false
}

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
