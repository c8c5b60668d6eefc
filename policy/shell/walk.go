package shell

import (
	"maps"
	"slices"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

const (
	maxDepth = 48    // nesting of code inside code, functions and substitutions
	maxSteps = 20000 // statements walked for one text
	maxBytes = 1 << 20
	maxWork  = 1 << 21 // characters matched against patterns, for one text
)

// Walker walks one text. It is not for concurrent use and is thrown away
// after one text.
type Walker struct {
	host   Host
	steps  int
	bytes  int // of nested code parsed
	work   int // characters that patterns and expressions were tried on
	depth  int
	nest   int   // depth of the syntax tree
	base   *Span // set while nested code is walked: where the outer text has it
	done   bool  // a limit was reached: nothing is walked any more
	at     Span  // the statement being walked
	lazy   bool  // inside a function nobody calls
	saying bool  // see Says
	bang   bool  // some text holds the character that history expansion looks for
}

// NewWalker returns a walker that reports to the host.
func NewWalker(host Host) *Walker { return &Walker{host: host} }

// Walk filters, parses and walks a whole text.
func (w *Walker) Walk(sc *Scope, src string) {
	if kind, detail := Filter(src); kind != "" {
		w.host.Report(Fact{Kind: kind, Target: detail, Span: Span{0, len(src)}})
		return
	}
	w.bang = strings.Contains(src, "!")
	w.parse(sc, src)
	w.later(sc)
	w.dormant(sc)
}

// later walks what runs after the text was read: traps, with the state that
// the text leaves, and scripts that something in the background may have run
// after the line wrote them.
func (w *Walker) later(sc *Scope) {
	for _, p := range sc.shared.traps {
		w.Source(p.sc.Sub(), p.code, p.at)
	}
	var names []string
	for n := range sc.shared.ran {
		names = append(names, n)
	}
	slices.Sort(names)
	for _, n := range names {
		if f, ok := sc.shared.files[n]; ok && f.Content.said() != "" {
			w.Source(sc.Sub(), f.Content.said(), Span{})
		}
	}
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
	w.bang = w.bang || strings.Contains(code, "!") || !Known(code)
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
	file, err := parseFile(src)
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
		slices.Sort(names)
		w.lazy = true
		for _, n := range names {
			w.function(sc.Sub(), sc.funcs[n], []string{string(HoleFields)}, Span{})
		}
		w.lazy = false
	}
}

// spend counts work that grows with the text and reports whether some is left.
func (w *Walker) spend(n int) bool {
	w.work += n
	return w.work <= maxWork
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
	if s.Known && s.Text == "" {
		return t
	}
	if t.Known && t.Text == "" {
		return s
	}
	joined := Stream{
		Known: s.Known && t.Known, Local: (s.Known || s.Local) && (t.Known || t.Local), Fetched: s.Fetched || t.Fetched, Decoded: s.Decoded || t.Decoded,
		Listing: append(s.Listing[:len(s.Listing):len(s.Listing)], t.Listing...),
	}
	if joined.Known {
		if joined.Text = s.Text + t.Text; len(joined.Text) > maxValue {
			joined.Known, joined.Text = false, ""
		}
	}
	if !joined.Known {
		if joined.Said = s.said() + t.said(); len(joined.Said) > maxValue {
			joined.Local, joined.Said = false, ""
		}
	}
	return joined
}

// said is the part of a stream whose text is known.
func (s Stream) said() string {
	if s.Known {
		return s.Text
	}
	return s.Said
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
	if len(st.Redirs) > 0 {
		return w.redirected(run, st)
	}
	if h, ok := run.fds["1"]; ok {
		// An earlier exec sent the output of all that follows to a file.
		run.piped()
		out := w.bare(run, st)
		if _, again := run.fds["1"]; !again {
			run.fds = maps.Clone(run.fds)
			run.fds["1"] = h
		}
		return run.deliver(h, out)
	}
	return w.bare(run, st)
}

// bare runs a statement without its redirections.
func (w *Walker) bare(sc *Scope, st *syntax.Stmt) Stream {
	switch {
	case st.Cmd != nil:
		return w.command(sc, st.Cmd)
	case len(st.Redirs) == 0:
		w.report(sc, FactParse, "empty statement", w.span(st))
	default:
		w.report(sc, FactAssign, "", w.span(st))
	}
	return Stream{Known: true}
}

// redirected runs a statement with its redirections, which last as long as it
// does, or for good when it is exec without a command.
func (w *Walker) redirected(sc *Scope, st *syntax.Stmt) Stream {
	saying := w.saying
	w.saying = says(st)
	p := w.plumb(sc, st.Redirs)
	w.saying = saying
	stdin, fds, kept := sc.stdin, sc.fds, sc.kept
	if p.given {
		sc.stdin = p.stdin
	}
	h, away := p.fds["1"]
	sc.fds, sc.kept = p.fds, false
	sc.piped()
	out := w.bare(sc, st)
	if sc.kept {
		sc.fds, sc.kept = p.fds, kept
		return Stream{Known: true}
	}
	sc.stdin, sc.fds, sc.kept = stdin, fds, kept
	if !away {
		return out
	}
	if rest := sc.deliver(h, out); !p.both {
		return rest
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
		return Stream{Local: true}
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
		return w.stmt(sc, afterDashes(c.Stmt))
	case *syntax.CoprocClause:
		w.coprocName(sc, c)
		c.Stmt = unassigned(c.Stmt)
		sub := sc.Sub()
		sub.spread = true
		sub.stdin = Stream{} // whatever is written to it later
		sub.piped()
		w.stmt(sub, c.Stmt)
		return Stream{Known: true}
	default:
		w.report(sc, FactParse, "a construct that is not known here", w.span(cmd))
		return Stream{}
	}
}

// coprocName gives the variables of a coprocess their numbers.
func (w *Walker) coprocName(sc *Scope, c *syntax.CoprocClause) {
	name := "COPROC"
	if c.Name != nil {
		name = w.word(sc, c.Name)
	}
	if sc.loops > 0 {
		w.report(sc, FactForkBomb, "background jobs without an end", w.span(c))
	}
	if syntax.ValidName(name) {
		w.giveList(sc, name, []string{string(HoleText), string(HoleText)})
		w.give(sc, name+"_PID", string(HoleText))
	}
}

// unassigned turns leading NAME=VALUE words, which the parser takes for the
// command behind coproc, into what the shell sees in them.
func unassigned(st *syntax.Stmt) *syntax.Stmt {
	call, ok := st.Cmd.(*syntax.CallExpr)
	if !ok {
		return st
	}
	rest, inner := *st, *call
	for len(inner.Args) > 1 {
		lit, ok := inner.Args[0].Parts[0].(*syntax.Lit)
		if !ok {
			break
		}
		if name, _, has := strings.Cut(lit.Value, "="); !has || !syntax.ValidName(name) {
			break
		}
		inner.Args = inner.Args[1:]
	}
	rest.Cmd = &inner
	return &rest
}

// afterDashes drops the "--" that may stand between time and its command, which
// the parser takes for the command.
func afterDashes(st *syntax.Stmt) *syntax.Stmt {
	call, ok := st.Cmd.(*syntax.CallExpr)
	if !ok || len(call.Assigns) > 0 || len(call.Args) < 2 || call.Args[0].Lit() != "--" {
		return st
	}
	rest, inner := *st, *call
	inner.Args = call.Args[1:]
	rest.Cmd = &inner
	return &rest
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
			if sc.spread || spawns(f.body) && !sc.paced([]*syntax.Stmt{f.body}, 3) {
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
