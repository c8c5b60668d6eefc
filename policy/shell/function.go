package shell

import "mvdan.cc/sh/v3/syntax"

// functions walks every definition that a called function may have.
func (w *Walker) functions(sc *Scope, list []*function, c Call) Stream {
	if len(list) == 1 && list[0] != nil {
		return w.function(sc, list[0], c.Argv[1:], c.Span)
	}
	var out Stream
	var branches []*Scope
	for _, f := range list {
		b := sc.branch()
		var o Stream
		if f != nil {
			o = w.function(b, f, c.Argv[1:], c.Span)
		} else {
			delete(b.funcs, c.Argv[0])
			o = w.Exec(b, c)
			if b.funcs[c.Argv[0]] == nil {
				b.funcs[c.Argv[0]] = list
			}
		}
		if len(branches) > 0 {
			o = oneOf(out, o)
		}
		out, branches = o, append(branches, b)
		if w.done {
			return Stream{}
		}
	}
	sc.join(branches...)
	return out
}

const maxAgain = 3 // calls of a function inside itself that are followed

// function walks the body of a function with the given arguments.
func (w *Walker) function(sc *Scope, f *function, args []string, at Span) Stream {
	f.called = true
	depth := 0
	for _, r := range sc.running {
		if r == f {
			depth++
			if sc.spread || spawns(f.body) && !sc.paced([]*syntax.Stmt{f.body}, 3) {
				w.report(sc, FactForkBomb, f.name, at)
				return Stream{}
			}
		}
	}
	if depth > 0 {
		// What the inner calls leave behind counts, some of them deep.
		if f.again++; depth > maxAgain || f.again > 8*maxAgain {
			return Stream{}
		}
	}
	if w.depth >= maxDepth {
		w.limit(sc, at)
		return Stream{}
	}
	w.depth++
	saved, running, base := sc.args, sc.running, w.base
	sc.args = args
	sc.running = append(running[:len(running):len(running)], f)
	if f.span != nil {
		w.base = f.span
	}
	fr := sc.enter(functionFrame)
	out := w.stmt(sc, f.body)
	sc.frame = fr.outer
	sc.also(fr.out)
	for name, before := range fr.locals {
		sc.vars[name] = either(before, sc.vars[name], !before.gone, !sc.vars[name].gone)
	}
	sc.args, sc.running, w.base = saved, running, base
	w.depth--
	return out
}

// own notes that a variable belongs to the function that runs. Where it is
// assigned is not told apart: behind the function it is what it was before, or
// what the function made of it.
func (sc *Scope) own(name string) {
	f := sc.frame
	for f != nil && f.kind != functionFrame {
		if f.kind == shellFrame {
			return
		}
		f = f.outer
	}
	if f == nil {
		return
	}
	if _, seen := f.locals[name]; seen {
		return
	}
	v, ok := sc.lookup(name)
	if !ok {
		v = variable{gone: true}
	}
	if f.locals == nil {
		f.locals = map[string]variable{}
	}
	f.locals[name] = v
}
