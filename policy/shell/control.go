package shell

import "mvdan.cc/sh/v3/syntax"

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
	endless := !c.Until && always(c.Cond, "true", ":") || c.Until && always(c.Cond, "false")
	for range 2 {
		b := sc.Sub()
		if endless && !paced(c.Do) {
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

func always(cond []*syntax.Stmt, names ...string) bool {
	if len(cond) != 1 {
		return false
	}
	call, ok := cond[0].Cmd.(*syntax.CallExpr)
	if !ok || len(call.Args) != 1 {
		return false
	}
	for _, n := range names {
		if call.Args[0].Lit() == n {
			return true
		}
	}
	return false
}

// paced reports whether a loop body waits for something in each round.
func paced(body []*syntax.Stmt) bool {
	found := false
	for _, st := range body {
		syntax.Walk(st, func(n syntax.Node) bool {
			if call, ok := n.(*syntax.CallExpr); ok && len(call.Args) > 0 {
				switch call.Args[0].Lit() {
				case "sleep", "wait", "read", "usleep", "break", "exit", "return", "inotifywait":
					found = true
				}
			}
			return !found
		})
	}
	return found
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
		if c.Select {
			items = []string{string(HoleText)}
		}
		for _, it := range items {
			b := sc.Sub()
			w.assigned(b, loop.Name.Value, false, it)
			b.set(loop.Name.Value, it)
			w.stmts(b, c.Do)
			sc.join(b)
			if w.done {
				return Stream{}
			}
		}
		if len(items) == 0 || !allKnown(items) {
			b := before.Sub()
			b.set(loop.Name.Value, string(HoleText))
			w.stmts(b, c.Do)
			sc.join(sc.Sub(), b)
		}
	case *syntax.CStyleLoop:
		for _, x := range []syntax.ArithmExpr{loop.Init, loop.Cond, loop.Post} {
			if x != nil {
				w.arith(sc, x)
			}
		}
		for range 2 {
			b := sc.Sub()
			if loop.Cond == nil && !paced(c.Do) {
				b.loops++
			}
			w.blur(b, loop.Init)
			w.blur(b, loop.Post)
			w.stmts(b, c.Do)
			b.loops = sc.loops
			sc.join(sc.Sub(), b)
		}
	default:
		w.report(sc, FactParse, "a loop that is not known here", w.span(c))
	}
	return Stream{}
}

// blur makes the counters of a loop unknown numbers.
func (w *Walker) blur(sc *Scope, x syntax.ArithmExpr) {
	if x == nil {
		return
	}
	syntax.Walk(x, func(n syntax.Node) bool {
		if word, ok := n.(*syntax.Word); ok {
			if name := word.Lit(); name != "" && syntax.ValidName(name) {
				sc.set(name, string(HoleText))
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
	branches := []*Scope{sc.Sub()}
	for _, item := range c.Items {
		for _, p := range item.Patterns {
			w.word(sc, p)
		}
		b := sc.Sub()
		w.stmts(b, item.Stmts)
		branches = append(branches, b)
	}
	sc.join(branches...)
	return Stream{}
}

func (w *Walker) binary(sc *Scope, c *syntax.BinaryCmd) Stream {
	switch c.Op {
	case syntax.AndStmt, syntax.OrStmt:
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
		out := w.stmt(left, c.X)
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
