package shell

import (
	"slices"
	"strconv"
	"strings"
	"unicode"

	"mvdan.cc/sh/v3/syntax"
)

// elementsOf returns the list behind $@, $*, ${a[@]} and ${a[*]}, with its
// slice applied.
func (x *expander) elementsOf(p *syntax.ParamExp) ([]string, bool) {
	if p.Param != nil && p.Excl && p.Index != nil && wholeArray(p.Index) && p.Exp == nil && p.Repl == nil && p.Slice == nil {
		return x.sc.keys(p.Param.Value), true
	}
	if p.Param == nil || p.Length || p.Excl || p.Exp != nil || p.Repl != nil || p.Names != 0 {
		return nil, false
	}
	name := p.Param.Value
	var list []string
	switch {
	case name == "@" || name == "*":
		list = x.sc.args
	case p.Index != nil && wholeArray(p.Index):
		l, ok := x.sc.array(name)
		if !ok {
			v := x.value(name)
			if v == string(HoleMaybe) {
				v = string(HoleFields)
			}
			l = []string{v}
		}
		list = l
	default:
		return nil, false
	}
	if p.Slice == nil {
		return list, true
	}
	from, ok1 := number(x.w.arithValueIn(x, p.Slice.Offset))
	length, ok2 := len(list), true
	if p.Slice.Length != nil {
		length, ok2 = number(x.w.arithValueIn(x, p.Slice.Length))
	}
	for _, v := range list {
		if Has(v, HoleFields) {
			return []string{string(HoleFields)}, true
		}
	}
	if name == "@" || name == "*" {
		list = append([]string{x.sc.arg0}, list...)
	}
	if !ok1 || !ok2 || length < 0 {
		return []string{string(HoleFields)}, true
	}
	if from < 0 {
		from += len(list)
	}
	if from < 0 || from > len(list) {
		return nil, true
	}
	return list[from:min(len(list), from+min(length, len(list)))], true
}

func wholeArray(index syntax.ArithmExpr) bool {
	w, ok := index.(*syntax.Word)
	if !ok {
		return false
	}
	lit := w.Lit()
	return lit == "@" || lit == "*"
}

// param adds a parameter expansion.
func (x *expander) param(b *builder, p *syntax.ParamExp, quoted bool) {
	emit := b.unquoted
	if quoted {
		emit = func(s string) { b.add(s, true) }
	}
	if p.Param == nil || p.NestedParam != nil || p.Flags != nil || p.Width || p.IsSet || len(p.Modifiers) > 0 {
		x.w.report(x.sc, FactParse, "an expansion that is not known here", x.w.span(p))
		emit(string(HoleFields))
		return
	}
	name := p.Param.Value
	if p.Index != nil && !wholeArray(p.Index) {
		x.w.arith(x.sc, p.Index)
	}
	if list, ok := x.elementsOf(p); ok {
		for i, v := range list {
			if i > 0 {
				if quoted {
					b.add(x.separator(), true)
				} else {
					b.flush()
				}
			}
			emit(v)
		}
		return
	}
	switch {
	case p.Names != 0:
		emit(string(HoleFields))
		return
	case p.Length:
		if list, ok := x.sc.array(name); ok && p.Index != nil && wholeArray(p.Index) && !slices.ContainsFunc(list, func(v string) bool { return Has(v, HoleFields) }) {
			emit(strconv.Itoa(len(list)))
			return
		}
		if v := x.base(p); Known(v) && p.Index == nil {
			emit(strconv.Itoa(len([]rune(v))))
			return
		}
		emit(string(HoleText))
		return
	}
	v := x.base(p)
	if p.Excl {
		target := v
		if counts(name) {
			target = string(HoleMaybe) // a number: no code in it
		}
		v = x.indirect(target)
		if name = ""; syntax.ValidName(target) {
			name = target
		}
	}
	switch {
	case p.Slice != nil:
		v = x.slice(v, p.Slice)
	case p.Repl != nil:
		v = x.replace(v, p.Repl)
	case p.Exp != nil:
		v = x.expansion(v, name, p.Exp, quoted, b)
	}
	emit(v)
}

// base is the plain value of the parameter.
func (x *expander) base(p *syntax.ParamExp) string {
	name := p.Param.Value
	switch name {
	case "0":
		return x.sc.arg0
	case "@", "*":
		return strings.Join(x.sc.args, x.separator())
	case "#":
		for _, a := range x.sc.args {
			if Has(a, HoleFields) {
				return string(HoleText)
			}
		}
		return strconv.Itoa(len(x.sc.args))
	case "?", "$", "!", "-":
		return string(HoleText)
	}
	if n, err := strconv.Atoi(name); err == nil && n <= 0 {
		return x.sc.arg0
	} else if err == nil {
		for i := 0; i < len(x.sc.args) && i < n; i++ {
			if Has(x.sc.args[i], HoleFields) {
				return string(HoleText)
			}
		}
		if n > len(x.sc.args) {
			return ""
		}
		return x.sc.args[n-1]
	}
	if p.Index != nil {
		if list, ok := x.sc.array(name); ok {
			if wholeArray(p.Index) {
				return strings.Join(list, x.separator())
			}
			i, ok := number(x.w.arithValueIn(x, p.Index))
			if ok && i < 0 {
				i += len(list)
			}
			if ok && i >= 0 && i < len(list) && allKnown(list) {
				return list[i]
			}
			return string(HoleText)
		}
		if v, set := x.sc.lookup(x.sc.resolve(name)); set && v.set {
			if i, ok := number(x.w.arithValueIn(x, p.Index)); ok && i == 0 {
				return x.value(name)
			}
			return string(HoleText)
		}
		return string(HoleMaybe)
	}
	return x.value(name)
}

// indirect follows ${!v}.
func (x *expander) indirect(v string) string {
	if !Known(v) {
		x.w.evaluated(x.sc, v)
		return string(HoleText)
	}
	if syntax.ValidName(v) {
		return x.value(v)
	}
	if n, err := strconv.Atoi(v); err == nil && n >= 0 {
		return x.base(&syntax.ParamExp{Param: &syntax.Lit{Value: v}})
	}
	x.w.evaluated(x.sc, v)
	return string(HoleText)
}

// counts reports whether a parameter is a number that the shell keeps itself.
func counts(name string) bool {
	switch name {
	case "#", "?", "$", "!", "OPTIND", "RANDOM", "SRANDOM", "SECONDS", "LINENO", "UID", "EUID", "PPID", "BASHPID", "EPOCHSECONDS", "SHLVL":
		return true
	}
	return false
}

func (x *expander) slice(v string, s *syntax.Slice) string {
	from, ok1 := number(x.w.arithValueIn(x, s.Offset))
	runes := []rune(v)
	length, ok2 := len(runes), true
	if s.Length != nil {
		length, ok2 = number(x.w.arithValueIn(x, s.Length))
	}
	unknown := string(HoleText)
	if Has(v, HoleMaybe) {
		unknown = string(HoleMaybe)
	}
	if !ok1 || !ok2 {
		return unknown
	}
	if Known(v) {
		if from < 0 {
			from += len(runes)
		}
		if from < 0 || from > len(runes) {
			return ""
		}
		end := from + min(length, len(runes)-from)
		if length < 0 {
			end = len(runes) + length
		}
		if end < from {
			return ""
		}
		return string(runes[from:end])
	}
	known := strings.IndexAny(v, holes)
	if from >= 0 && length >= 0 && length <= len(runes) && s.Length != nil && from+length <= known && from <= known {
		return v[from : from+length]
	}
	return unknown
}

func (x *expander) expansion(v, name string, e *syntax.Expansion, quoted bool, b *builder) string {
	maybe := v == string(HoleMaybe)
	switch e.Op {
	case syntax.DefaultUnset, syntax.DefaultUnsetOrNull, syntax.AssignUnset, syntax.AssignUnsetOrNull:
		word := x.operand(e.Word, quoted)
		if maybe || v == "" && (e.Op == syntax.DefaultUnsetOrNull || e.Op == syntax.AssignUnsetOrNull) {
			if (e.Op == syntax.AssignUnset || e.Op == syntax.AssignUnsetOrNull) && syntax.ValidName(name) {
				if len(x.sc.get(name)) > 1 {
					x.w.maybe++ // in one of its states
					defer func() { x.w.maybe-- }()
				}
				x.w.give(x.sc, name, word)
			}
			return word
		}
		return v
	case syntax.ErrorUnset, syntax.ErrorUnsetOrNull:
		x.word(e.Word)
		if x.sc.frame.nested() {
			x.sc.leave("exit", 1)
		}
		if maybe {
			return string(HoleText)
		}
		return v
	case syntax.AlternateUnset, syntax.AlternateUnsetOrNull:
		word := x.operand(e.Word, quoted)
		switch {
		case maybe:
			return string(HoleMaybe)
		case v == "" && e.Op == syntax.AlternateUnsetOrNull:
			return ""
		}
		return word
	case syntax.RemSmallPrefix, syntax.RemLargePrefix, syntax.RemSmallSuffix, syntax.RemLargeSuffix:
		return x.trim(v, e)
	case syntax.UpperAll, syntax.LowerAll, syntax.UpperFirst, syntax.LowerFirst:
		if e.Word != nil && len(e.Word.Parts) > 0 {
			x.word(e.Word)
			return string(HoleText)
		}
		return recase(v, e.Op)
	case syntax.OtherParamOps:
		op := ""
		if e.Word != nil {
			op = e.Word.Lit()
		}
		switch op {
		case "U":
			return strings.ToUpper(v)
		case "u":
			return recase(v, syntax.UpperFirst)
		case "L":
			return strings.ToLower(v)
		case "E":
			if Known(v) {
				return inert(ansiC(v))
			}
		case "P":
			x.w.evaluated(x.sc, v)
		}
		return string(HoleText)
	}
	x.w.report(x.sc, FactParse, "an expansion that is not known here", x.w.here())
	return string(HoleFields)
}

// operand expands the word of a default value. Between double quotes, single
// quotes in it are plain characters and what they hold is expanded.
func (x *expander) operand(word *syntax.Word, quoted bool) string {
	x.w.maybe++ // it may not be expanded at all
	defer func() { x.w.maybe-- }()
	if word == nil || !quoted {
		return x.word(word)
	}
	var out strings.Builder
	for _, p := range word.Parts {
		q, ok := p.(*syntax.SglQuoted)
		switch {
		case !ok:
			out.WriteString(x.quoted([]syntax.WordPart{p}, false))
		case q.Dollar:
			out.WriteRune(HoleText)
		default:
			out.WriteString("'" + x.reparsed(q.Value) + "'")
		}
	}
	return out.String()
}

// reparsed expands text that the parser took for quoted and the shell does not.
func (x *expander) reparsed(text string) string {
	if !strings.ContainsAny(text, "$`\\") {
		return text
	}
	out := string(HoleText)
	if err := x.w.nested(x.sc, text, func(parts []syntax.WordPart) { out = x.quoted(parts, false) }); err != nil {
		x.w.report(x.sc, FactParse, err.Error(), x.w.here())
	}
	return out
}

func recase(v string, op syntax.ParExpOperator) string {
	r := []rune(v)
	for i, c := range r {
		switch op {
		case syntax.UpperAll, syntax.UpperFirst:
			r[i] = unicode.ToUpper(c)
		default:
			r[i] = unicode.ToLower(c)
		}
		if op == syntax.UpperFirst || op == syntax.LowerFirst {
			break
		}
	}
	return string(r)
}
