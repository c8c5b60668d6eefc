package shell

import (
	"slices"
	"strings"
	"unicode/utf8"

	"mvdan.cc/sh/v3/syntax"
)

const maxChoices = 24 // combinations of alternative values that are tried

// expander turns words into values. Substitutions inside are judged once; a
// variable with several possible values makes next yield one round for each
// combination.
type expander struct {
	w        *Walker
	sc       *Scope
	choice   map[string]int
	count    map[string]int
	order    []string
	rounds   int
	outputs  map[syntax.Node]Stream
	document bool // a here-document: $* joins with blanks
}

func (w *Walker) expander(sc *Scope) *expander { return &expander{w: w, sc: sc} }

// next moves to the next combination of alternative values.
func (x *expander) next() bool {
	if len(x.order) == 0 {
		return false
	}
	total := 1
	for _, n := range x.order {
		total *= x.count[n]
		if total > maxChoices {
			if x.rounds >= maxChoices {
				return false
			}
			break
		}
	}
	x.rounds++
	if total > maxChoices && x.rounds == maxChoices {
		for _, n := range x.order {
			x.choice[n] = -1 // any: the value is not known
		}
		return true
	}
	for _, n := range x.order {
		x.choice[n]++
		if x.choice[n] < x.count[n] {
			return true
		}
		x.choice[n] = 0
	}
	return false
}

// value returns the value of a variable in this round.
func (x *expander) value(name string) string {
	values := x.sc.get(name)
	if len(values) == 1 {
		return values[0]
	}
	if len(values) == 0 {
		return ""
	}
	if x.choice == nil {
		x.choice, x.count = map[string]int{}, map[string]int{}
	}
	if _, seen := x.count[name]; !seen {
		x.count[name] = len(values)
		x.order = append(x.order, name)
	}
	i := x.choice[name]
	if i < 0 || i >= len(values) {
		return string(HoleFields)
	}
	return values[i]
}

// words returns the possible values of a word that is not split.
func (w *Walker) words(sc *Scope, word *syntax.Word) []string {
	x := w.expander(sc)
	values := []string{x.word(word)}
	for x.next() {
		values = union(values, []string{x.word(word)})
	}
	if said := sayings(sc, word); said != nil {
		return said
	}
	return values
}

// word expands a word that is not split; its first alternative only.
func (w *Walker) word(sc *Scope, word *syntax.Word) string {
	v := w.words(sc, word)
	if len(v) > 1 {
		return string(HoleFields)
	}
	return v[0]
}

func (w *Walker) fields(sc *Scope, word *syntax.Word) []string {
	x := w.expander(sc)
	out := x.fields(word)
	for x.next() {
		out = append(out, x.fields(word)...)
		if len(out) > maxFields {
			return []string{string(HoleFields)}
		}
	}
	return out
}

// builder collects the fields of one word.
type builder struct {
	cur    strings.Builder
	has    bool // the current field exists, even if empty
	fields []string
	split  bool
	ifs    string
	vague  bool // where the shell splits is not known
}

func (b *builder) add(s string, quoted bool) {
	if quoted || s != "" {
		b.has = true
	}
	if b.cur.Len()+len(s) > maxValue {
		b.cur.Reset()
		s = string(HoleText)
	}
	b.cur.WriteString(s)
}

func (b *builder) flush() {
	if b.has && len(b.fields) < maxFields {
		b.fields = append(b.fields, b.cur.String())
	}
	b.cur.Reset()
	b.has = false
}

// unquoted adds an expansion's result that the shell splits.
func (b *builder) unquoted(s string) {
	if !b.split {
		b.add(s, false)
		return
	}
	if s == string(HoleText) || b.vague && s != "" {
		s = string(HoleFields)
	}
	start := 0
	for i, r := range s {
		if strings.ContainsRune(b.ifs, r) {
			b.add(globbed(s[start:i]), false)
			b.flush()
			start = i + utf8.RuneLen(r)
		}
	}
	b.add(globbed(s[start:]), false)
}

// globbed marks the pattern characters of text that is subject to file name
// expansion.
func globbed(s string) string {
	if !strings.ContainsAny(s, "*?[") {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		switch c := s[i]; c {
		case '*':
			b.WriteByte(HoleStar)
		case '?':
			b.WriteByte(HoleChar)
		case '[':
			if j := bracketEnd(s, i); j > 0 {
				b.WriteByte(HoleChar)
				i = j
				continue
			}
			b.WriteByte(c)
		default:
			b.WriteByte(c)
		}
	}
	return b.String()
}

func bracketEnd(s string, i int) int {
	j := i + 1
	if j < len(s) && (s[j] == '!' || s[j] == '^') {
		j++
	}
	if j < len(s) && s[j] == ']' {
		j++
	}
	for ; j < len(s); j++ {
		switch s[j] {
		case ']':
			return j
		case '/', ' ', '\n':
			return -1
		}
	}
	return -1
}

func (x *expander) word(word *syntax.Word) string {
	if word == nil {
		return ""
	}
	b := &builder{ifs: " \t\n"}
	x.parts(b, word.Parts, true)
	b.has = true
	b.flush()
	return strings.Join(b.fields, " ")
}

// fields expands a word into the words the shell would make of it.
func (x *expander) fields(word *syntax.Word) []string {
	if word == nil {
		return nil
	}
	if x.sc.shared.over {
		x.w.limit(x.sc, x.w.here())
		return []string{string(HoleFields)}
	}
	var out []string
	for _, w := range x.braces(word) {
		b := &builder{split: true, ifs: " \t\n"}
		switch ifs := x.sc.get("IFS"); {
		case len(ifs) == 1 && Known(ifs[0]):
			b.ifs = ifs[0]
		case len(ifs) != 1 || ifs[0] != string(HoleMaybe):
			b.vague = true
		}
		x.parts(b, w.Parts, true)
		b.flush()
		if x.sc.options.vanishing && slices.ContainsFunc(b.fields, func(v string) bool { return Has(v, HoleStar) || Has(v, HoleChar) }) {
			x.sc.leave("abort", 1) // so does a pattern that fits nothing, when the shell is told so
		}
		out = append(out, b.fields...)
		if len(out) > maxFields {
			return []string{string(HoleFields)}
		}
	}
	return out
}

func (x *expander) parts(b *builder, parts []syntax.WordPart, first bool) {
	for i, p := range parts {
		if x.w.done {
			return
		}
		switch p := p.(type) {
		case *syntax.Lit:
			v := p.Value
			if first && i == 0 && strings.HasPrefix(v, "~") {
				v = x.tilde(b, v, len(parts) == 1)
			}
			x.literal(b, v)
		case *syntax.SglQuoted:
			b.add(single(p), true)
		case *syntax.DblQuoted:
			x.double(b, p.Parts)
		case *syntax.ParamExp:
			x.param(b, p, false)
		case *syntax.CmdSubst:
			b.unquoted(x.subst(p, p.Stmts))
		case *syntax.ArithmExp:
			b.add(x.w.arithValueIn(x, p.X), false)
		case *syntax.ProcSubst:
			b.add(x.process(p), true)
		case *syntax.ExtGlob:
			b.add(string(HoleStar), false)
		case *syntax.BraceExp:
			b.add(string(HoleText), false)
		default:
			x.w.report(x.sc, FactParse, "a word part that is not known here", x.w.span(p))
			b.add(string(HoleFields), false)
		}
	}
}

// single is the text of a single-quoted string. Holes in it are kept: they come
// from the text around code that is walked, never from the text itself.
func single(p *syntax.SglQuoted) string {
	if !p.Dollar {
		return p.Value
	}
	var out strings.Builder
	rest := p.Value
	for {
		i := strings.IndexAny(rest, holes)
		if i < 0 {
			break
		}
		out.WriteString(inert(ansiC(rest[:i])))
		out.WriteByte(rest[i])
		rest = rest[i+1:]
	}
	out.WriteString(inert(ansiC(rest)))
	return out.String()
}

// tilde expands ~ and ~user in front of a word and returns what is left.
func (x *expander) tilde(b *builder, v string, whole bool) string {
	end := strings.IndexByte(v, '/')
	if end < 0 {
		end = len(v)
		if !whole {
			return v
		}
	}
	switch user := v[1:end]; user {
	case "":
		home := x.value("HOME")
		b.add(home, true)
	case "root":
		b.add("/root", true)
	case "+", "-":
		b.add("/\x01", true)
	default:
		if strings.ContainsAny(user, `\'"$*?[`) {
			return v
		}
		b.add("/home/"+user, true)
	}
	return v[end:]
}

// literal adds unquoted text: backslashes quote, pattern characters are live.
func (x *expander) literal(b *builder, v string) {
	if !strings.ContainsAny(v, `\*?[`) {
		b.add(v, false)
		return
	}
	var out strings.Builder
	for i := 0; i < len(v); i++ {
		switch c := v[i]; c {
		case '\\':
			i++
			if i < len(v) && v[i] != '\n' {
				out.WriteByte(v[i])
			}
		case '*':
			out.WriteByte(HoleStar)
		case '?':
			out.WriteByte(HoleChar)
		case '[':
			if j := bracketEnd(v, i); j > 0 {
				out.WriteByte(HoleChar)
				i = j
				continue
			}
			out.WriteByte(c)
		default:
			out.WriteByte(c)
		}
	}
	b.add(out.String(), true)
}

// double adds the inside of double quotes, which is split only by "$@".
func (x *expander) double(b *builder, parts []syntax.WordPart) {
	if len(parts) == 0 {
		b.add("", true)
		return
	}
	for _, p := range parts {
		switch p := p.(type) {
		case *syntax.Lit:
			b.add(unescape(p.Value, false), true)
		case *syntax.ParamExp:
			if !x.spreads(b, p) {
				x.param(b, p, true)
			}
		default:
			b.add(x.quoted([]syntax.WordPart{p}, false), true)
		}
	}
}

// spreads handles "$@" and "${a[@]}": every element is a word of its own.
func (x *expander) spreads(b *builder, p *syntax.ParamExp) bool {
	list, ok := x.elementsOf(p)
	if !ok {
		return false
	}
	if w, whole := p.Index.(*syntax.Word); p.Param.Value == "*" || whole && w.Lit() == "*" {
		b.add(strings.Join(list, x.separator()), true)
		return true
	}
	for i, v := range list {
		if i > 0 {
			b.flush()
		}
		b.add(v, true)
	}
	return true
}

// separator is what "$*" puts between its elements.
func (x *expander) separator() string {
	ifs := x.sc.get("IFS")
	switch {
	case x.document:
		return " "
	case len(ifs) != 1:
		return string(HoleMaybe)
	case ifs[0] == string(HoleMaybe):
		return " " // unset
	case !Known(ifs[0]):
		return string(HoleMaybe)
	}
	for _, r := range ifs[0] {
		return string(r)
	}
	return ""
}

// quoted expands parts inside double quotes or a here-document.
func (x *expander) quoted(parts []syntax.WordPart, heredoc bool) string {
	b := &builder{}
	for _, p := range parts {
		switch p := p.(type) {
		case *syntax.Lit:
			b.add(unescape(p.Value, heredoc), true)
		case *syntax.ParamExp:
			x.param(b, p, true)
		case *syntax.CmdSubst:
			b.add(x.subst(p, p.Stmts), true)
		case *syntax.ArithmExp:
			b.add(x.w.arithValueIn(x, p.X), true)
		case *syntax.SglQuoted:
			b.add(single(p), true)
		case *syntax.DblQuoted:
			b.add(x.quoted(p.Parts, heredoc), true)
		default:
			x.w.report(x.sc, FactParse, "a word part that is not known here", x.w.span(p))
			b.add(string(HoleText), true)
		}
	}
	return b.cur.String()
}

func unescape(v string, heredoc bool) string {
	if !strings.Contains(v, `\`) {
		return v
	}
	var out strings.Builder
	for i := 0; i < len(v); i++ {
		if v[i] != '\\' || i+1 >= len(v) {
			out.WriteByte(v[i])
			continue
		}
		switch c := v[i+1]; {
		case c == '\n':
			i++
		case c == '$' || c == '`' || c == '\\' || c == '"' && !heredoc:
			out.WriteByte(c)
			i++
		default:
			out.WriteByte('\\')
		}
	}
	return out.String()
}
