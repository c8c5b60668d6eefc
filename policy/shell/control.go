package shell

import (
	"maps"

	"mvdan.cc/sh/v3/syntax"
)

func (w *Walker) ifClause(sc *Scope, c *syntax.IfClause) Stream {
	out := Stream{Known: true}
	var branches []*Scope
	for c != nil {
		if len(c.Cond) > 0 {
			w.stmts(sc, c.Cond)
		}
		b := sc.Sub()
		w.stmts(b, c.Then)
		out = Stream{}
		branches = append(branches, b)
		if len(c.Cond) == 0 { // else
			sc.join(branches...)
			return out
		}
		c = c.Else
	}
	sc.join(append([]*Scope{sc.Sub()}, branches...)...)
	return out
}

func (w *Walker) while(sc *Scope, c *syntax.WhileClause) Stream {
	endless := always(c.Cond, !c.Until)
	for range 2 {
		b := sc.Sub()
		if endless && !sc.paced(c.Do, 0) {
			b.loops++
		} else if endless {
			b.loops = 0
		}
		w.stmts(b, c.Cond)
		w.stmts(b, c.Do)
		b.loops = sc.loops
		sc.join(sc.Sub(), b)
		if w.done {
			break
		}
	}
	return Stream{}
}

func (w *Walker) forClause(sc *Scope, c *syntax.ForClause) Stream {
	switch loop := c.Loop.(type) {
	case *syntax.WordIter:
		items := sc.args
		if loop.InPos.IsValid() || len(loop.Items) > 0 {
			items = nil
			for _, it := range loop.Items {
				items = append(items, w.fields(sc, it)...)
			}
		}
		for i, it := range items {
			if it == string(HoleFields) {
				items[i] = string(HoleText) // one of an unknown number
			}
		}
		before := sc.Sub()
		many := (len(items) >= crowd || crowded(loop.Items)) && !sc.paced(c.Do, 0)
		if c.Select {
			w.give(sc, "REPLY", string(HoleText))
			items = append(items, string(HoleText))
		}
		out := Stream{Known: true}
		for _, it := range items {
			b := sc.Sub()
			w.iterate(b, loop.Name.Value, it)
			if many {
				b.loops++
			}
			out = out.then(w.stmts(b, c.Do))
			b.loops = sc.loops
			sc.join(b)
			if w.done {
				return Stream{}
			}
		}
		if len(items) == 0 || !allKnown(items) {
			b := before.Sub()
			w.iterate(b, loop.Name.Value, string(HoleText))
			if many {
				b.loops++
			}
			w.stmts(b, c.Do)
			b.loops = sc.loops
			sc.join(sc.Sub(), b)
		} else if !c.Select && !leaves(c.Do) {
			return out
		}
	case *syntax.CStyleLoop:
		w.counting(sc, c, loop)
	default:
		w.report(sc, FactParse, "a loop that is not known here", w.span(c))
	}
	return Stream{}
}

// counting walks for ((init; cond; post)).
func (w *Walker) counting(sc *Scope, c *syntax.ForClause, loop *syntax.CStyleLoop) {
	for _, x := range []syntax.ArithmExpr{loop.Init, loop.Cond, loop.Post} {
		if x != nil {
			w.arith(sc, x)
		}
	}
	for range 2 {
		b := sc.Sub()
		if (loop.Cond == nil || unbounded(loop.Cond)) && !sc.paced(c.Do, 0) {
			b.loops++
		}
		w.blur(b, loop.Init)
		w.blur(b, loop.Post)
		w.stmts(b, c.Do)
		b.loops = sc.loops
		sc.join(sc.Sub(), b)
	}
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
				case "break", "exit", "return", "continue":
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
		b := sc.Sub()
		if before != nil {
			b.join(sc.Sub(), before)
			before = nil
		}
		w.stmts(b, item.Stmts)
		branches = append(branches, b)
		if item.Op != syntax.Break {
			before = b.Sub()
		}
	}
	if rest || len(branches) == 0 {
		branches = append([]*Scope{sc.Sub()}, branches...) // no item fits
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
		if c.Op == syntax.AndStmt && succeeds(c.X) {
			return x.then(w.stmt(sc, c.Y))
		}
		b := sc.Sub()
		y := w.stmt(b, c.Y)
		sc.join(sc.Sub(), b)
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
		out := w.stmt(left, c.X)
		if flooded(c.X, c.Y) {
			w.report(sc, FactForkBomb, "jobs without an end", w.span(c))
		}
		right := sc.Sub()
		right.spread = true
		right.stdin = out
		return w.stmt(right, c.Y)
	default:
		w.report(sc, FactParse, "an operator that is not known here", w.span(c))
		return Stream{}
	}
}

// succeeds reports whether a statement cannot fail, so that what follows &&
// runs for sure.
func succeeds(st *syntax.Stmt) bool {
	if st.Negated || len(st.Redirs) > 0 {
		return false
	}
	switch c := st.Cmd.(type) {
	case *syntax.DeclClause:
		return true
	case *syntax.CallExpr:
		if len(c.Args) == 0 {
			return true
		}
		switch c.Args[0].Lit() {
		case "true", ":", "echo", "set", "shopt":
			return true
		}
	case *syntax.BinaryCmd:
		return c.Op == syntax.AndStmt && succeeds(c.X) && succeeds(c.Y)
	}
	return false
}
