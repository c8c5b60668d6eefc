package shell

import (
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

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
		if refers(c.Variant.Value, flags) && a.Value != nil {
			w.nameref(sc, a.Name.Value, w.word(sc, a.Value))
			argv = append(argv, a.Name.Value+"=")
			continue
		}
		w.assign(sc, a, false)
		if v := sc.get(a.Name.Value); strings.ContainsAny(flags, "aA") && a.Value != nil && len(v) == 1 {
			w.compound(sc, a.Name.Value, v[0])
		}
		for _, v := range sc.get(a.Name.Value) {
			argv = append(argv, a.Name.Value+"="+v)
		}
	}
	w.fix(sc)
	w.host.Run(w, sc, Call{Argv: argv, Stdin: sc.stdin, Span: w.span(c)})
}

// fix makes the variables read-only that a declaration has named.
func (w *Walker) fix(sc *Scope) {
	for _, name := range w.fixing {
		v := sc.vars[name]
		v.fixed = true
		sc.vars[name] = v
	}
	w.fixing = nil
}

// fixed reports whether an assignment to a variable may fail.
func (sc *Scope) fixed(name string) bool {
	v, _ := sc.lookup(sc.resolve(name))
	return v.fixed || len(v.refs) > 0
}

// declareBuiltin handles a declaration whose command word was hidden.
func declareBuiltin(w *Walker, sc *Scope, c Call, args []string) (Stream, bool) {
	w.host.Run(w, sc, c)
	flags := ""
	for _, a := range args {
		if strings.HasPrefix(a, "-") || strings.HasPrefix(a, "+") {
			flags += a
			continue
		}
		w.declareWord(sc, c.Argv[0], flags, a)
	}
	w.fix(sc)
	return Stream{}, true
}

// declareWord handles a declaration whose word came out of an expansion.
func (w *Walker) declareWord(sc *Scope, variant, flags, word string) {
	name, value, has := strings.Cut(word, "=")
	name = strings.TrimSuffix(name, "+")
	w.evaluated(sc, name)
	if base, _, ok := strings.Cut(name, "["); ok {
		if has {
			w.giveTo(sc, name, value)
		}
		name, has = base, false
	}
	if !syntax.ValidName(name) {
		return
	}
	w.attributes(sc, variant, flags, name)
	if !has {
		return
	}
	if refers(variant, flags) {
		w.nameref(sc, name, value)
		return
	}
	values := []string{value}
	if v, _ := sc.lookup(sc.resolve(name)); v.integer {
		values = w.integers(sc, values)
	}
	w.give(sc, name, values...)
	if strings.ContainsAny(flags, "aA") {
		w.compound(sc, name, value)
	}
}

// refers reports whether a declaration makes its names refer to others.
func refers(variant, flags string) bool {
	return switched(flags, 'n') > 0 && variant != "export" && variant != "readonly" || variant == "nameref"
}

// switched says what flags do to an attribute: 1 on, -1 off, 0 nothing.
func switched(flags string, attribute rune) int {
	on, out := 1, 0
	for _, f := range flags {
		switch f {
		case '-':
			on = 1
		case '+':
			on = -1
		case attribute:
			out = on
		}
	}
	return out
}

func (w *Walker) nameref(sc *Scope, name, target string) {
	w.evaluated(sc, target)
	if !syntax.ValidName(target) {
		sc.vars[name] = variable{values: []string{string(HoleText)}, set: true}
		return
	}
	sc.shared.changes++
	sc.vars[name] = variable{isRef: true, ref: target, set: true}
}

func (w *Walker) attributes(sc *Scope, variant, flags, name string) {
	sc.shared.changes++
	if variant == "local" || (variant == "declare" || variant == "typeset") && switched(flags, 'g') <= 0 {
		sc.own(name)
	}
	switch on := switched(flags, 'n'); {
	case on > 0 && refers(variant, flags):
		// Without a value, the name refers to what it holds.
		target := ""
		if v := sc.get(name); len(v) == 1 && syntax.ValidName(v[0]) && sc.assigned(name) {
			target = v[0]
		}
		sc.vars[name] = variable{isRef: true, ref: target, set: true}
		return
	case on < 0 && variant != "export" && variant != "readonly":
		if v, ok := sc.vars[name]; ok && v.isRef {
			sc.vars[name] = variable{values: []string{v.ref}, set: true}
		}
	}
	name = sc.resolve(name)
	v, ok := sc.lookup(name)
	if !ok {
		v = variable{values: []string{string(HoleMaybe)}}
	}
	if on := switched(flags, 'i'); on != 0 {
		v.integer = on > 0
	}
	if on := switched(flags, 'l'); on != 0 {
		v.lower, v.upper = on > 0, v.upper && on < 0
	}
	if on := switched(flags, 'u'); on != 0 {
		v.upper, v.lower = on > 0, v.lower && on < 0
	}
	if variant == "readonly" || switched(flags, 'r') > 0 {
		w.fixing = append(w.fixing, name) // behind the value that it gets here
	}
	exports := switched(flags, 'x')
	if variant == "export" {
		exports = 1 - 2*max(0, switched(flags, 'n'))
	}
	if exports < 0 {
		v.export = false
	}
	sc.vars[name] = v
	if exports > 0 {
		w.expose(sc, name)
	}
}

// compound performs declare -a NAME='(...)', which the shell reads as a list.
func (w *Walker) compound(sc *Scope, name, value string) {
	if strings.HasPrefix(value, "(") && strings.HasSuffix(value, ")") && syntax.ValidName(name) {
		w.Source(sc, name+"="+value, w.here())
	}
}
