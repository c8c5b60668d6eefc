package shell

import (
	"maps"
	"slices"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

func (w *Walker) ifClause(sc *Scope, c *syntax.IfClause) Stream {
	out := Stream{Known: true}
	var branches []*Scope
	for c != nil {
		if len(c.Cond) > 0 {
			w.stmts(sc, c.Cond)
		}
		b := sc.branch()
		w.stmts(b, c.Then)
		out = Stream{}
		branches = append(branches, b)
		if len(c.Cond) == 0 { // else
			sc.join(branches...)
			return out
		}
		c = c.Else
	}
	sc.join(append([]*Scope{sc.branch()}, branches...)...)
	return out
}

func (w *Walker) while(sc *Scope, c *syntax.WhileClause) Stream {
	endless := always(c.Cond, !c.Until)
	f := sc.enter(loopFrame)
	defer func() { sc.frame = f.outer }()
	var ends []*Scope
	w.settle(sc, 2, func() {
		b := sc.branch()
		if endless && !sc.paced(c.Do, 0) {
			b.loops++
		} else if endless {
			b.loops = 0
		}
		w.stmts(b, c.Cond)
		ends = append(ends, b.branch())
		w.stmts(b, c.Do)
		b.round(f)
		b.loops = sc.loops
		sc.also(b)
	})
	for _, e := range ends {
		e.loops = sc.loops
	}
	sc.join(append([]*Scope{sc.branch()}, ends...)...)
	sc.also(f.out)
	return Stream{}
}

func (w *Walker) forClause(sc *Scope, c *syntax.ForClause) Stream {
	f := sc.enter(loopFrame)
	defer func() { sc.frame = f.outer }()
	switch loop := c.Loop.(type) {
	case *syntax.WordIter:
		return w.each(sc, c, loop, f)
	case *syntax.CStyleLoop:
		w.counting(sc, c, loop)
		sc.also(f.out)
	default:
		w.report(sc, FactParse, "a loop that is not known here", w.span(c))
	}
	return Stream{}
}

// each walks "for" and "select" over words. Where the words are not known, or
// may be none, the state in front of the loop is one of those behind it.
func (w *Walker) each(sc *Scope, c *syntax.ForClause, loop *syntax.WordIter, f *frame) Stream {
	items, sure, some := w.items(sc, loop)
	many := (len(items) >= crowd || crowded(loop.Items)) && !sc.paced(c.Do, 0)
	if c.Select {
		w.give(sc, "REPLY", string(HoleText))
		items = append(items, string(HoleText))
		sure, some = false, false
	}
	before := sc.branch()
	out := Stream{Known: true}
	round := func(item string, replace bool) bool {
		b := sc.branch()
		w.iterate(b, loop.Name.Value, item)
		if many {
			b.loops++
		}
		out = out.then(w.stmts(b, c.Do))
		b.round(f)
		b.loops = sc.loops
		if replace {
			sc.join(b)
		} else {
			sc.also(b)
		}
		return !w.done
	}
	for i, it := range items {
		if !round(it, sure || some && i == 0) {
			return Stream{}
		}
	}
	if len(items) == 0 || !allKnown(items) {
		w.settle(sc, 1, func() {
			b := sc.branch()
			b.also(before.branch())
			w.iterate(b, loop.Name.Value, string(HoleText))
			if many {
				b.loops++
			}
			w.stmts(b, c.Do)
			b.round(f)
			b.loops = sc.loops
			sc.also(b)
		})
		sure = false
	}
	sc.also(f.out)
	if !sure || f.left || leaves(c.Do) {
		return Stream{}
	}
	return out
}

// items lists what a loop goes over. They are sure when there are exactly
// these, and some when there is one at least.
func (w *Walker) items(sc *Scope, loop *syntax.WordIter) (items []string, sure, some bool) {
	sure = true
	if loop.InPos.IsValid() || len(loop.Items) > 0 {
		for _, it := range loop.Items {
			x := w.expander(sc)
			list := x.fields(it)
			for x.next() {
				list, sure = append(list, x.fields(it)...), false
			}
			items = append(items, list...)
			some = some || !vanishes(it, sc.options.vanishing) || sure && len(list) > 0 && allKnown(list)
			if len(items) > maxFields {
				items, sure = []string{string(HoleFields)}, false
				break
			}
		}
	} else {
		items = append(items, sc.args...)
		some = len(items) > 0 && items[0] != string(HoleFields)
	}
	for i, it := range items {
		sure = sure && Known(it)
		if it == string(HoleFields) {
			items[i] = string(HoleText) // one of an unknown number
		}
	}
	return items, sure, some
}

// vanishes reports whether a word may expand to no word at all. A pattern does
// only when the shell is told to drop those that fit nothing.
func vanishes(word *syntax.Word, patterns bool) bool {
	for _, p := range word.Parts {
		switch p := p.(type) {
		case *syntax.ParamExp, *syntax.CmdSubst:
		case *syntax.DblQuoted:
			for _, q := range p.Parts {
				if _, ok := q.(*syntax.ParamExp); !ok {
					return false
				}
			}
			if len(p.Parts) == 0 || !slices.ContainsFunc(p.Parts, func(q syntax.WordPart) bool { return spreading(q.(*syntax.ParamExp)) }) {
				return false
			}
		case *syntax.Lit:
			if !patterns {
				return false
			}
			if strings.ContainsAny(p.Value, "*?[") {
				return true
			}
		case *syntax.ExtGlob:
			if !patterns {
				return false
			}
		default:
			return false
		}
	}
	return true
}

// spreading reports whether a parameter between quotes may become no word, as
// "$@" and "${a[@]}" do.
func spreading(p *syntax.ParamExp) bool {
	if p.Param == nil || p.Names != 0 || p.Excl {
		return true
	}
	return p.Param.Value == "@" || p.Index != nil && wholeArray(p.Index)
}

// counting walks for ((init; cond; post)).
func (w *Walker) counting(sc *Scope, c *syntax.ForClause, loop *syntax.CStyleLoop) {
	for _, x := range []syntax.ArithmExpr{loop.Init, loop.Cond, loop.Post} {
		if x != nil {
			w.arith(sc, x)
		}
	}
	w.settle(sc, 2, func() {
		b := sc.branch()
		if (loop.Cond == nil || unbounded(loop.Cond)) && !sc.paced(c.Do, 0) {
			b.loops++
		}
		w.blur(b, loop.Init)
		w.blur(b, loop.Post)
		w.stmts(b, c.Do)
		b.round(sc.frame)
		b.loops = sc.loops
		sc.also(b)
	})
}

// iterate gives the variable of a loop its next value; one that refers to
// another is made to refer to the item.
func (w *Walker) iterate(sc *Scope, name, item string) {
	if v, ok := sc.vars[name]; ok && v.isRef {
		w.nameref(sc, name, item)
		return
	}
	w.give(sc, name, item)
}

// leaves reports whether a loop body may end the loop early.
func leaves(body []*syntax.Stmt) bool {
	found := false
	for _, st := range body {
		syntax.Walk(st, func(n syntax.Node) bool {
			if call, ok := n.(*syntax.CallExpr); ok && len(call.Args) > 0 {
				switch call.Args[0].Lit() {
				case "break", "exit", "return", "continue", "eval", "command", "builtin":
					found = true
				}
			}
			return !found
		})
	}
	return found
}

// blur makes the counters of a loop unknown numbers.
func (w *Walker) blur(sc *Scope, x syntax.ArithmExpr) {
	if x == nil {
		return
	}
	syntax.Walk(x, func(n syntax.Node) bool {
		if word, ok := n.(*syntax.Word); ok {
			if name := word.Lit(); name != "" && syntax.ValidName(name) {
				w.give(sc, name, string(HoleText))
			}
		}
		return true
	})
}

func allKnown(list []string) bool {
	for _, v := range list {
		if !Known(v) {
			return false
		}
	}
	return true
}

func (w *Walker) caseClause(sc *Scope, c *syntax.CaseClause) Stream {
	w.word(sc, c.Word)
	var branches []*Scope
	var before *Scope // ";&" and ";;&" go on with what the item above left
	rest := true
	for _, item := range c.Items {
		for _, p := range item.Patterns {
			w.word(sc, p)
			rest = rest && p.Lit() != "*"
		}
		b := sc.branch()
		if before != nil {
			b.join(sc.branch(), before)
			before = nil
		}
		w.stmts(b, item.Stmts)
		branches = append(branches, b)
		if item.Op != syntax.Break {
			before = b.branch()
		}
	}
	if rest || len(branches) == 0 {
		branches = append([]*Scope{sc.branch()}, branches...) // no item fits
	}
	sc.join(branches...)
	return Stream{}
}

func (w *Walker) binary(sc *Scope, c *syntax.BinaryCmd) Stream {
	switch c.Op {
	case syntax.AndStmt, syntax.OrStmt:
		if w.choice(sc, c) {
			return Stream{Known: true}
		}
		x := w.stmt(sc, c.X)
		if c.Op == syntax.AndStmt && w.succeeds(sc, c.X) {
			return x.then(w.stmt(sc, c.Y))
		}
		b := sc.branch()
		if c.Op == syntax.AndStmt && moves(c.X) {
			b.arrived()
		}
		y := w.stmt(b, c.Y)
		if c.Op == syntax.OrStmt && moves(c.X) && quits(c.Y) {
			sc.arrived()
			b.arrived()
		}
		sc.also(b)
		out := x.then(y)
		if c.Op == syntax.OrStmt {
			out.Known = false
		}
		return out
	case syntax.Pipe, syntax.PipeAll:
		left := sc.Sub()
		left.spread = true
		left.piped()
		if c.Op == syntax.PipeAll {
			left.fds = maps.Clone(left.fds)
			if left.fds == nil {
				left.fds = map[string]handle{}
			}
			left.fds["2"] = handle{output: true}
		}
		out := left.closed(w.stmt(left, c.X))
		if flooded(c.X, c.Y) {
			w.report(sc, FactForkBomb, "jobs without an end", w.span(c))
		}
		right := sc.Sub()
		right.spread = true
		right.stdin = out
		if !sc.options.lastpipe {
			return right.closed(w.stmt(right, c.Y))
		}
		right = sc.branch() // in the shell itself, or in one of its own
		stdin := sc.stdin
		right.stdin = out
		last := w.stmt(right, c.Y)
		right.stdin = stdin
		sc.also(right)
		return last
	default:
		w.report(sc, FactParse, "an operator that is not known here", w.span(c))
		return Stream{}
	}
}

// succeeds reports whether a statement cannot fail, so that what follows &&
// runs for sure.
func (w *Walker) succeeds(sc *Scope, st *syntax.Stmt) bool {
	if st.Negated || len(st.Redirs) > 0 {
		return false
	}
	switch c := st.Cmd.(type) {
	case *syntax.DeclClause:
		inside := c.Variant.Value != "local" || len(sc.running) > 0
		return inside && !slices.ContainsFunc(c.Args, func(a *syntax.Assign) bool {
			return a.Name == nil && (a.Value == nil || strings.Trim(a.Value.Lit(), "-aAilurxg") != "" || a.Value.Lit() == "") || a.Name != nil && sc.fixed(a.Name.Value)
		})
	case *syntax.CallExpr:
		if len(c.Args) == 0 {
			return !slices.ContainsFunc(c.Assigns, func(a *syntax.Assign) bool {
				return a.Name == nil || a.Index != nil || sc.fixed(a.Name.Value) || a.Value != nil && substitutes(a.Value)
			})
		}
		name := c.Args[0].Lit()
		if len(sc.funcs[name]) > 0 || len(sc.shared.aliases[name]) > 0 {
			return false
		}
		switch name {
		case "true", ":":
			return true
		case "echo":
			_, away := sc.fds["1"] // which may be full or closed
			return !away
		case "set":
			return !slices.ContainsFunc(c.Args[1:], func(a *syntax.Word) bool {
				return strings.Trim(a.Lit(), "-+abefhkmnptuvxBCEHPT") != "" || a.Lit() == ""
			})
		}
	case *syntax.BinaryCmd:
		return c.Op == syntax.AndStmt && w.succeeds(sc, c.X) && w.succeeds(sc, c.Y)
	}
	return false
}
