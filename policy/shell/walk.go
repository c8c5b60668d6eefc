package shell

import (
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

const (
	maxDepth = 48    // nesting of code inside code, functions and substitutions
	maxSteps = 20000 // statements walked for one text
	maxBytes = 1 << 20
)

// Walker walks one text. It is not for concurrent use and is thrown away
// after one text.
type Walker struct {
	host  Host
	steps int
	bytes int // of nested code parsed
	depth int
	nest  int   // depth of the syntax tree
	base  *Span // set while nested code is walked: where the outer text has it
	done  bool  // a limit was reached: nothing is walked any more
	at    Span  // the statement being walked
	lazy  bool  // inside a function nobody calls
}

// NewWalker returns a walker that reports to the host.
func NewWalker(host Host) *Walker { return &Walker{host: host} }

// Walk filters, parses and walks a whole text.
func (w *Walker) Walk(sc *Scope, src string) {
	if kind, detail := Filter(src); kind != "" {
		w.host.Report(Fact{Kind: kind, Target: detail, Span: Span{0, len(src)}})
		return
	}
	w.parse(sc, src)
	w.dormant(sc)
}

// Source walks code found inside the text, in the given scope, and returns
// what is known of its output.
func (w *Walker) Source(sc *Scope, code string, at Span) Stream {
	trimmed := strings.Trim(code, " \t\n\"'")
	if trimmed != "" && strings.Trim(trimmed, holes+" ") == "" {
		kind := FactOpaque
		if Has(code, HoleFetched) {
			kind = FactFetched
		} else if Has(code, HoleDecoded) {
			kind = FactDecoded
		} else if strings.Trim(trimmed, string(HoleScript)+" ") == "" {
			kind = FactScript
		}
		w.report(sc, kind, code, at)
		return Stream{}
	}
	switch {
	case Has(code, HoleFetched):
		w.report(sc, FactFetched, code, at)
	case Has(code, HoleDecoded):
		w.report(sc, FactDecoded, code, at)
	}
	if !Known(code) {
		w.report(sc, FactPartlyKnown, code, at)
	}
	code = strings.NewReplacer("\x03", "*", "\x04", "?").Replace(code)
	w.bytes += len(code)
	if w.depth >= maxDepth || w.bytes > maxBytes {
		w.limit(sc, at)
		return Stream{}
	}
	w.depth++
	base := w.base
	w.base = &at
	out := w.parse(sc, code)
	w.base = base
	w.depth--
	return out
}

func (w *Walker) parse(sc *Scope, src string) Stream {
	if tooDeep(src) {
		w.limit(sc, Span{0, len(src)})
		return Stream{}
	}
	file, err := syntax.NewParser(syntax.Variant(syntax.LangBash)).Parse(strings.NewReader(src), "")
	if err != nil {
		at := Span{0, len(src)}
		if w.base != nil {
			at = *w.base
		}
		w.report(sc, FactParse, err.Error(), at)
		return Stream{}
	}
	if len(file.Stmts) == 0 {
		w.report(sc, FactAssign, "", w.here()) // nothing but blanks and comments
	}
	return w.stmts(sc, file.Stmts)
}

// tooDeep bounds what the recursive parser is given: no text that people write
// opens this many brackets.
func tooDeep(src string) bool {
	depth, keyword := 0, 0
	for i := 0; i < len(src); i++ {
		switch src[i] {
		case '(', '{', '`', '[':
			depth++
		case ')', '}', ']':
			if depth > 0 {
				depth--
			}
		case 'i', 'w', 'u', 'f', 'c', '!':
			rest := src[i:]
			for _, k := range [...]string{"if ", "if\n", "if\t", "while ", "until ", "for ", "case ", "! "} {
				if strings.HasPrefix(rest, k) {
					keyword++
				}
			}
		}
		if depth > 400 {
			return true
		}
	}
	return keyword > 3000
}

// dormant walks the functions that nothing called.
func (w *Walker) dormant(sc *Scope) {
	for range 4 {
		var names []string
		for n, f := range sc.funcs {
			if !f.called {
				names = append(names, n)
			}
		}
		if len(names) == 0 {
			return
		}
		sortStrings(names)
		w.lazy = true
		for _, n := range names {
			w.function(sc.Sub(), sc.funcs[n], []string{string(HoleFields)}, Span{})
		}
		w.lazy = false
	}
}

func (w *Walker) limit(sc *Scope, at Span) {
	if !w.done {
		w.done = true
		w.report(sc, FactDepth, "", at)
	}
}

func (w *Walker) report(sc *Scope, kind, target string, at Span) {
	if w.base != nil {
		at = *w.base
	}
	if (kind == FactUnresolved || kind == FactParse || kind == FactOpaque) && w.lazy {
		kind = FactPartlyKnown
	}
	w.host.Report(Fact{Kind: kind, Target: Show(target), Span: at, Via: sc.via})
}

// here is where nested code is in the outer text, or nowhere.
func (w *Walker) here() Span {
	if w.base != nil {
		return *w.base
	}
	return w.at
}

// Report reports a fact that a host found, at the place being walked.
func (w *Walker) Report(sc *Scope, kind, target string, at Span) { w.report(sc, kind, target, at) }

func (w *Walker) span(n syntax.Node) Span {
	if w.base != nil {
		return *w.base
	}
	return Span{int(n.Pos().Offset()), int(n.End().Offset())}
}

func (w *Walker) stmts(sc *Scope, list []*syntax.Stmt) Stream {
	out := Stream{Known: true}
	for _, st := range list {
		out = out.then(w.stmt(sc, st))
		if w.done {
			return Stream{}
		}
	}
	return out
}

// then joins two outputs that follow each other.
func (s Stream) then(t Stream) Stream {
	joined := Stream{
		Known: s.Known && t.Known, Fetched: s.Fetched || t.Fetched, Decoded: s.Decoded || t.Decoded,
		Listing: append(s.Listing[:len(s.Listing):len(s.Listing)], t.Listing...),
	}
	if joined.Known {
		if joined.Text = s.Text + t.Text; len(joined.Text) > maxValue {
			joined.Known, joined.Text = false, ""
		}
	}
	if s.Known && s.Text == "" {
		joined.File, joined.Plain = t.File, t.Plain
	}
	return joined
}

func (w *Walker) stmt(sc *Scope, st *syntax.Stmt) Stream {
	w.steps++
	w.nest++
	defer func() { w.nest-- }()
	if w.steps > maxSteps || w.nest > 2000 {
		w.limit(sc, w.span(st))
	}
	if w.done {
		return Stream{}
	}
	w.at = w.span(st)
	run := sc
	if st.Background || st.Coprocess || st.Disown {
		run = sc.Sub()
		run.spread = true
		if sc.loops > 0 {
			w.report(sc, FactForkBomb, "background jobs without an end", w.span(st))
		}
	}
	var target string
	redirected := false
	if len(st.Redirs) > 0 {
		in, path, out, ok := w.redirects(run, st.Redirs)
		target, redirected = path, out
		if ok {
			saved := run.stdin
			run.stdin = in
			defer func() { run.stdin = saved }()
		}
	}
	out := Stream{Known: true}
	if st.Cmd != nil {
		out = w.command(run, st.Cmd)
	} else if len(st.Redirs) == 0 {
		w.report(sc, FactParse, "empty statement", w.span(st))
	} else {
		w.report(sc, FactAssign, "", w.span(st))
	}
	if redirected {
		if target != "" {
			run.Wrote(target, out)
		}
		out = Stream{Known: true}
	}
	return out
}

func (w *Walker) command(sc *Scope, cmd syntax.Command) Stream {
	switch c := cmd.(type) {
	case *syntax.CallExpr:
		return w.call(sc, c)
	case *syntax.IfClause:
		return w.ifClause(sc, c)
	case *syntax.WhileClause:
		return w.while(sc, c)
	case *syntax.ForClause:
		return w.forClause(sc, c)
	case *syntax.CaseClause:
		return w.caseClause(sc, c)
	case *syntax.Block:
		return w.stmts(sc, c.Stmts)
	case *syntax.Subshell:
		return w.stmts(sc.Sub(), c.Stmts)
	case *syntax.BinaryCmd:
		return w.binary(sc, c)
	case *syntax.FuncDecl:
		w.declare(sc, c)
		return Stream{Known: true}
	case *syntax.ArithmCmd:
		w.arith(sc, c.X)
		w.report(sc, FactAssign, "", w.span(c))
		return Stream{Known: true}
	case *syntax.TestClause:
		w.test(sc, c.X)
		w.report(sc, FactAssign, "", w.span(c))
		return Stream{Known: true}
	case *syntax.DeclClause:
		w.declClause(sc, c)
		return Stream{}
	case *syntax.LetClause:
		for _, x := range c.Exprs {
			w.arith(sc, x)
		}
		w.report(sc, FactAssign, "", w.span(c))
		return Stream{Known: true}
	case *syntax.TimeClause:
		if c.Stmt == nil {
			w.report(sc, FactAssign, "", w.span(c))
			return Stream{Known: true}
		}
		return w.stmt(sc, c.Stmt)
	case *syntax.CoprocClause:
		if c.Name != nil {
			w.word(sc, c.Name)
		}
		sub := sc.Sub()
		sub.spread = true
		w.stmt(sub, c.Stmt)
		return Stream{Known: true}
	default:
		w.report(sc, FactParse, "a construct that is not known here", w.span(cmd))
		return Stream{}
	}
}

func (w *Walker) declare(sc *Scope, c *syntax.FuncDecl) {
	if c.Name == nil || c.Body == nil {
		w.report(sc, FactParse, "a function without a name", w.span(c))
		return
	}
	w.report(sc, FactAssign, "", w.span(c))
	f := &function{name: c.Name.Value, body: c.Body, span: w.base}
	sc.funcs[c.Name.Value] = f
}

// function walks the body of a function with the given arguments.
func (w *Walker) function(sc *Scope, f *function, args []string, at Span) Stream {
	f.called = true
	for _, r := range sc.running {
		if r == f {
			if sc.spread {
				w.report(sc, FactForkBomb, f.name, at)
			}
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
	out := w.stmt(sc, f.body)
	sc.args, sc.running, w.base = saved, running, base
	w.depth--
	return out
}

// Here is where the statement being walked is in the judged text.
func (w *Walker) Here() Span { return w.here() }
