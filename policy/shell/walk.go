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
	host    Host
	steps   int
	bytes   int // of nested code parsed
	work    int // characters that patterns and expressions were tried on
	depth   int
	nest    int      // depth of the syntax tree
	base    *Span    // set while nested code is walked: where the outer text has it
	done    bool     // a limit was reached: nothing is walked any more
	fixing  []string // variables that a declaration makes read-only
	seen    int      // the changes that the traps were judged after
	maybe   int      // what is expanded may not be: an assignment in it may not happen
	trapped int      // the code of a trap is being walked
	at      Span     // the statement being walked
	lazy    bool     // inside a function nobody calls
	saying  bool     // see Says
	bang    bool     // some text holds the character that history expansion looks for
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
	if sc.shared.over {
		w.limit(sc, Span{0, len(src)})
	}
}

// later walks what runs after the text was read: traps, with the state that
// the text leaves, and scripts that something in the background may have run
// after the line wrote them.
func (w *Walker) later(sc *Scope) {
	w.trapped++
	for _, p := range sc.shared.traps {
		w.Source(p.sc.Sub(), p.code, p.at)
	}
	w.trapped--
	var names []string
	for n := range sc.shared.ran {
		names = append(names, n)
	}
	slices.Sort(names)
	for _, n := range names {
		if f, ok := sc.disk.files[n]; ok && f.Content.said() != "" {
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
	out := sc.closed(w.parse(sc, code))
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
	f := sc.enter(lineFrame)
	f.level = w.nest
	defer func() { sc.frame = f.outer }()
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

// dormant walks the functions that nothing called, those that a later one
// replaced included.
func (w *Walker) dormant(sc *Scope) {
	for range 4 {
		var list []*function
		for _, f := range sc.shared.functions {
			if !f.called {
				list = append(list, f)
			}
		}
		if len(list) == 0 {
			return
		}
		w.lazy = true
		for _, f := range list {
			if !f.called {
				w.function(f.home.Sub(), f, []string{string(HoleFields)}, Span{})
			}
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
		gone := sc.frame != nil && sc.frame.left
		more := w.stmt(sc, st)
		if out = out.then(more); gone && out.Known && more.Text != "" {
			out.Known, out.Text, out.Said = false, "", out.Text // what is printed may end before
		}
		if f := sc.frame; f != nil && f.kind == lineFrame && f.level == w.nest && f.out != nil {
			sc.also(f.out) // an error has ended the line
			f.out = nil
		}
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
	if sc.shared.over {
		w.limit(sc, w.span(st))
		return Stream{}
	}
	w.at = w.span(st)
	sc.cut()
	w.interrupt(sc)
	defer w.interrupt(sc)
	if sc.options.failing {
		defer sc.leave("", 1)
	}
	if !st.Background && !st.Coprocess && !st.Disown {
		return w.connect(sc, st)
	}
	if sc.loops > 0 {
		w.report(sc, FactForkBomb, "background jobs without an end", w.span(st))
	}
	run := sc.Sub()
	run.spread, run.behind = true, true
	run.disk = sc.disk.fork()
	out := run.closed(w.connect(run, st))
	sc.written([]*Scope{sc, run}) // now or later
	return out
}

// connect runs a statement with its redirections.
func (w *Walker) connect(sc *Scope, st *syntax.Stmt) Stream {
	if len(st.Redirs) > 0 {
		return w.redirected(sc, st)
	}
	if h, ok := sc.fds["1"]; ok {
		// An earlier exec sent the output of all that follows to a file.
		sc.piped()
		out := w.bare(sc, st)
		sc.fds = maps.Clone(sc.fds)
		if sc.fds == nil {
			sc.fds = map[string]handle{}
		}
		next := h
		if later, again := sc.fds["1"]; again {
			next = h.or(later) // some exec inside, if it ran
		}
		sc.fds["1"] = next
		return sc.deliver(h, out)
	}
	return w.bare(sc, st)
}

// interrupt judges the traps of the line after the state has changed: they may
// run in any state, and what they change holds for what follows.
func (w *Walker) interrupt(sc *Scope) {
	if len(sc.shared.traps) == 0 || w.trapped > 0 || w.done || w.seen == sc.shared.changes {
		return
	}
	w.trapped++
	at := w.at
	for _, p := range sc.shared.traps {
		b := sc.branch()
		if p.last {
			b = sc.Sub()
		}
		w.Source(b, p.code, p.at)
		if !p.last {
			sc.also(b)
		}
	}
	w.at = at
	w.trapped--
	w.seen = sc.shared.changes
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
	before, changes := sc.branch(), sc.shared.changes
	before.stdin, before.fds = stdin, fds
	sc.fds, sc.kept = p.fds, false
	sc.piped()
	out := w.bare(sc, st)
	if sc.kept {
		sc.fds, sc.kept = p.fds, kept
		return Stream{Known: true}
	}
	sc.stdin, sc.fds, sc.kept = stdin, fds, kept
	if sc.shared.changes != changes && slices.ContainsFunc(st.Redirs, fallible) {
		sc.also(before) // nothing was run
	}
	if !away {
		return out
	}
	if rest := sc.deliver(h, out); !p.both {
		return rest
	}
	return out
}

// fallible reports whether a redirection may fail, so that the command does not
// run: one of a file, or of a descriptor that may be closed.
func fallible(r *syntax.Redirect) bool {
	switch r.Op {
	case syntax.Hdoc, syntax.DashHdoc, syntax.WordHdoc:
		return false
	}
	switch lit := r.Word.Lit(); lit {
	case "/dev/null", "1", "2", "-", "/dev/stdout", "/dev/stderr":
		return false
	}
	return true
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
		sub := sc.Sub()
		return sub.closed(w.stmts(sub, c.Stmts))
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
		sub.behind, sub.disk = true, sc.disk.fork()
		sub.closed(w.stmt(sub, c.Stmt))
		sc.written([]*Scope{sc, sub})
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
	f := sc.shared.bodies[c.Body]
	if f == nil {
		f = &function{name: c.Name.Value, body: c.Body, span: w.base, home: sc.shell()}
		sc.shared.bodies[c.Body] = f
		sc.shared.functions = append(sc.shared.functions, f)
	}
	sc.funcs[c.Name.Value] = []*function{f}
	sc.shared.changes++
}

// Here is where the statement being walked is in the judged text.
func (w *Walker) Here() Span { return w.here() }
