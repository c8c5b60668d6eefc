package shell

import (
	"regexp"
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
		return x.arithWord(e)
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
	switch e.Op {
	case syntax.AndArit, syntax.OrArit, syntax.TernQuest, syntax.TernColon:
		x.w.maybe++
		defer func() { x.w.maybe-- }()
	}
	b, ok2 := x.eval(e.Y, depth+1)
	switch e.Op {
	case syntax.Quo, syntax.Rem, syntax.QuoAssgn, syntax.RemAssgn:
		if !ok2 || b == 0 {
			x.sc.leave("abort", 1) // a division by zero ends the line
		}
	}
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
			x.w.give(x.sc, name, value)
		}
	}
}

// arithWord evaluates one word of an expression.
func (x *expander) arithWord(word *syntax.Word) (int, bool) {
	v := x.word(word)
	if !Known(v) && isCount(word.Parts) {
		return 0, false // a number, though not which
	}
	return x.arithText(v, 0)
}

// isCount reports whether a word is nothing but a number that the shell keeps.
func isCount(parts []syntax.WordPart) bool {
	if len(parts) != 1 {
		return false
	}
	switch p := parts[0].(type) {
	case *syntax.DblQuoted:
		return isCount(p.Parts)
	case *syntax.ArithmExp:
		return true
	case *syntax.ParamExp:
		return p.Length || p.Param != nil && counts(p.Param.Value) && !p.Excl && p.Exp == nil && p.Repl == nil && p.Slice == nil && p.Index == nil
	}
	return false
}

// assigning finds the names that text assigns when it is evaluated.
var assigning = regexp.MustCompile(`([A-Za-z_]\w*)\s*(?:\[[^\]]*\]\s*)?(?:(?:[-+*/%&|^]|<<|>>)?=(?:[^=]|$)|\+\+|--)|(?:\+\+|--)\s*([A-Za-z_]\w*)`)

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
	if depth > 32 || x.w.done {
		x.w.limit(x.sc, x.w.here())
		return 0, false
	}
	if !syntax.ValidName(s) {
		if !Known(s) && s != string(HoleMaybe) {
			x.w.report(x.sc, FactPartlyKnown, s, x.w.here())
		}
		// Text is evaluated as an expression: so is what its names hold.
		if !x.w.spend(len(s)) {
			x.w.limit(x.sc, x.w.here())
			return 0, false
		}
		for _, m := range assigning.FindAllStringSubmatch(s, 8) {
			x.w.give(x.sc, m[1]+m[2], string(HoleText))
		}
		for _, name := range names(s) {
			if name != s && x.sc.assigned(name) {
				x.w.steps++
				x.arithText(name, depth+1)
			}
		}
		return 0, false
	}
	result, ok := 0, true
	for i, v := range x.sc.get(s) {
		if !x.sc.assigned(s) {
			return 0, false // the environment's own
		}
		if v == s {
			return 0, false // names itself
		}
		n, known := x.arithText(v, depth+1)
		if i > 0 && n != result {
			ok = false
		}
		result, ok = n, ok && known
	}
	return result, ok
}

// names lists the variables that a text may name when it is evaluated.
func names(s string) []string {
	var out []string
	for _, f := range strings.FieldsFunc(s, func(r rune) bool {
		return r != '_' && (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z')
	}) {
		if syntax.ValidName(f) && len(out) < 64 {
			out = append(out, f)
		}
	}
	return out
}

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
	if err := w.nested(sc, text, func(parts []syntax.WordPart) { w.expander(sc).quoted(parts, true) }); err != nil {
		w.report(sc, FactOpaque, text, w.at)
	}
}

// nested parses text that the shell expands once more and hands its parts to
// expand. It counts as nested code does, so that no line has it parsed without
// an end: beyond the bounds the walk stops and expand is not called.
func (w *Walker) nested(sc *Scope, text string, expand func([]syntax.WordPart)) error {
	w.bytes += len(text)
	if w.depth >= maxDepth || w.bytes > maxBytes || tooDeep(text) {
		w.limit(sc, w.here())
		return nil
	}
	word, err := parseDocument(text)
	if err != nil {
		return err
	}
	w.depth++
	base := w.base
	if base == nil {
		at := w.at // places in the text are not places in the line
		w.base = &at
	}
	defer func() { w.depth--; w.base = base }()
	expand(word.Parts)
	return nil
}

// uncertain are the holes that may stand for code. What nobody set is empty,
// and a pattern in the line is what it says.
const uncertain = "\x01\x05\x06\x0e\x0f\x10"

// evaluated judges text that the shell expands a second time and that may be
// anything: what cannot be known of it is never read-only.
func (w *Walker) evaluated(sc *Scope, text string) {
	w.hidden(sc, text)
	if strings.ContainsAny(text, uncertain) {
		w.report(sc, FactPartlyKnown, text, w.here())
	}
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
				w.evaluated(sc, v)
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
					x.arithWord(word)
				}
			}
			return
		}
		w.test(sc, e.X)
		w.maybe++
		w.test(sc, e.Y)
		w.maybe--
	default:
		w.report(sc, FactParse, "a test that is not known here", w.here())
	}
}
