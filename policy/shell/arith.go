package shell

import (
	"strconv"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

func number(s string) (int, bool) {
	n, err := strconv.ParseInt(strings.TrimSpace(s), 0, 32)
	return int(n), err == nil
}

// arith judges an arithmetic expression: the shell evaluates subscripts inside
// text that it finds in variables, and runs the substitutions in them.
func (w *Walker) arith(sc *Scope, e syntax.ArithmExpr) { w.arithValue(sc, e) }

func (w *Walker) arithValue(sc *Scope, e syntax.ArithmExpr) string {
	return w.arithValueIn(w.expander(sc), e)
}

// arithValueIn returns the number an expression yields, or a hole.
func (w *Walker) arithValueIn(x *expander, e syntax.ArithmExpr) string {
	if e == nil {
		return "0"
	}
	if n, ok := x.eval(e, 0); ok {
		return strconv.Itoa(n)
	}
	return string(HoleText)
}

// eval judges every part of the expression and computes what it can.
func (x *expander) eval(e syntax.ArithmExpr, depth int) (int, bool) {
	if depth > 200 {
		x.w.limit(x.sc, x.w.here())
		return 0, false
	}
	switch e := e.(type) {
	case *syntax.Word:
		return x.arithText(x.word(e), 0)
	case *syntax.ParenArithm:
		return x.eval(e.X, depth+1)
	case *syntax.UnaryArithm:
		v, ok := x.eval(e.X, depth+1)
		switch e.Op {
		case syntax.Inc, syntax.Dec:
			x.store(e.X, string(HoleText))
			return 0, false
		case syntax.Minus:
			return -v, ok
		case syntax.Plus:
			return v, ok
		}
		return 0, false
	case *syntax.BinaryArithm:
		return x.evalBinary(e, depth)
	case nil:
		return 0, true
	default:
		x.w.report(x.sc, FactParse, "arithmetic that is not known here", x.w.here())
		return 0, false
	}
}

func (x *expander) evalBinary(e *syntax.BinaryArithm, depth int) (int, bool) {
	a, ok1 := x.eval(e.X, depth+1)
	b, ok2 := x.eval(e.Y, depth+1)
	switch e.Op {
	case syntax.Assgn:
		v := string(HoleText)
		if ok2 {
			v = strconv.Itoa(b)
		}
		x.store(e.X, v)
		return b, ok2
	case syntax.AddAssgn, syntax.SubAssgn, syntax.MulAssgn, syntax.QuoAssgn, syntax.RemAssgn, syntax.AndAssgn, syntax.OrAssgn,
		syntax.XorAssgn, syntax.ShlAssgn, syntax.ShrAssgn:
		x.store(e.X, string(HoleText))
		return 0, false
	case syntax.Comma:
		return b, ok2
	}
	if !ok1 || !ok2 {
		return 0, false
	}
	const limit = 1 << 31
	switch e.Op {
	case syntax.Add:
		a += b
	case syntax.Sub:
		a -= b
	case syntax.Mul:
		a *= b
	case syntax.Quo:
		if b == 0 {
			return 0, false
		}
		a /= b
	case syntax.Rem:
		if b == 0 {
			return 0, false
		}
		a %= b
	case syntax.Xor:
		a ^= b
	case syntax.And:
		a &= b
	case syntax.Or:
		a |= b
	default:
		return 0, false
	}
	return a, a < limit && a > -limit
}

// store assigns to the variable that an expression names.
func (x *expander) store(e syntax.ArithmExpr, value string) {
	if w, ok := e.(*syntax.Word); ok {
		if name := w.Lit(); syntax.ValidName(name) {
			x.w.assigned(x.sc, name, false, value)
			x.sc.set(name, value)
		}
	}
}

// arithText evaluates text that the shell takes for arithmetic.
func (x *expander) arithText(s string, depth int) (int, bool) {
	s = strings.TrimSpace(s)
	if s == "" || s == string(HoleMaybe) {
		return 0, s == ""
	}
	if n, ok := number(s); ok {
		if len(s) > 1 && s[0] == '0' && s[1] != 'x' && s[1] != 'X' {
			v, err := strconv.ParseInt(s, 8, 32)
			return int(v), err == nil
		}
		return n, true
	}
	x.w.hidden(x.sc, s)
	if !syntax.ValidName(s) || depth > 4 {
		if !Known(s) && !x.harmless(s) {
			x.w.report(x.sc, FactPartlyKnown, s, x.w.here())
		}
		return 0, false
	}
	result, ok := 0, true
	for i, v := range x.sc.get(s) {
		if !x.sc.assigned(s) {
			return 0, false // the environment's own
		}
		n, known := x.arithText(v, depth+1)
		if i > 0 && n != result {
			ok = false
		}
		result, ok = n, ok && known
	}
	return result, ok
}

// harmless reports whether text that is not known was a number for sure or
// comes from the login environment.
func (x *expander) harmless(s string) bool { return s == string(HoleMaybe) }

// hidden judges text that the shell expands a second time, such as an array
// subscript or a prompt.
func (w *Walker) hidden(sc *Scope, text string) {
	switch {
	case Has(text, HoleFetched):
		w.report(sc, FactFetched, text, w.at)
		return
	case Has(text, HoleDecoded):
		w.report(sc, FactDecoded, text, w.at)
		return
	}
	if !strings.ContainsAny(text, "$`") {
		return
	}
	w.bytes += len(text)
	if w.depth >= maxDepth || w.bytes > maxBytes || tooDeep(text) {
		w.limit(sc, w.at)
		return
	}
	word, err := syntax.NewParser(syntax.Variant(syntax.LangBash)).Document(strings.NewReader(text))
	if err != nil {
		w.report(sc, FactOpaque, text, w.at)
		return
	}
	w.depth++
	base := w.base
	if base == nil {
		at := w.at
		w.base = &at
	}
	x := w.expander(sc)
	x.quoted(word.Parts, true)
	w.base = base
	w.depth--
}

// Hidden judges text that a program or builtin expands a second time.
func (w *Walker) Hidden(sc *Scope, text string) { w.hidden(sc, text) }

// test walks the condition of [[ ]].
func (w *Walker) test(sc *Scope, e syntax.TestExpr) {
	w.nest++
	defer func() { w.nest-- }()
	if w.nest > 2000 {
		w.limit(sc, w.at)
		return
	}
	switch e := e.(type) {
	case *syntax.Word:
		w.word(sc, e)
	case *syntax.ParenTest:
		w.test(sc, e.X)
	case *syntax.UnaryTest:
		if word, ok := e.X.(*syntax.Word); ok {
			v := w.word(sc, word)
			if e.Op == syntax.TsVarSet || e.Op == syntax.TsRefVar {
				w.hidden(sc, v)
			}
			return
		}
		w.test(sc, e.X)
	case *syntax.BinaryTest:
		switch e.Op {
		case syntax.TsEql, syntax.TsNeq, syntax.TsLeq, syntax.TsGeq, syntax.TsLss, syntax.TsGtr:
			for _, side := range []syntax.TestExpr{e.X, e.Y} {
				if word, ok := side.(*syntax.Word); ok {
					x := w.expander(sc)
					x.arithText(x.word(word), 0)
				}
			}
			return
		}
		w.test(sc, e.X)
		w.test(sc, e.Y)
	default:
		w.report(sc, FactParse, "a test that is not known here", w.here())
	}
}
