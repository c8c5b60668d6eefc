package shell

import (
	"fmt"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// subst judges a command substitution and returns its value.
func (x *expander) subst(n syntax.Node, stmts []*syntax.Stmt) string {
	s, seen := x.outputs[n]
	if !seen {
		if x.w.depth >= maxDepth {
			x.w.limit(x.sc, x.w.here())
			return string(HoleText)
		}
		x.w.depth++
		at, maybe := x.w.at, x.w.maybe
		x.w.maybe = 0 // inside, all follows in order
		sub := x.sc.Sub()
		sub.stdin = Stream{Inherit: true}
		sub.piped()
		sub.options.failing = false // as the shell does
		s = sub.closed(x.w.stmts(sub, stmts))
		s.Script = s.Script || x.w.generatedBy(sub, stmts)
		if len(stmts) == 1 && stmts[0].Cmd == nil && len(stmts[0].Redirs) == 1 && stmts[0].Redirs[0].Op == syntax.RdrIn {
			s = x.w.content(x.sc, x.w.word(x.sc, stmts[0].Redirs[0].Word)) // $(<file)
		}
		x.w.at, x.w.maybe = at, maybe
		x.w.depth--
		if x.outputs == nil {
			x.outputs = map[syntax.Node]Stream{}
		}
		x.outputs[n] = s
	}
	switch {
	case s.Known:
		return strings.TrimRight(s.Text, "\n")
	case s.Fetched:
		return string(HoleFetched)
	case s.Decoded:
		return string(HoleDecoded)
	case s.Script:
		return string(HoleScript)
	case s.Plain:
		return string(HoleText)
	}
	return string(HoleOutput)
}

// process judges a process substitution. The value is a path that no other
// file has; what is known of its content is kept under it.
func (x *expander) process(p *syntax.ProcSubst) string {
	x.w.steps++
	if x.sc.loops > 0 {
		x.w.report(x.sc, FactForkBomb, "background jobs without an end", x.w.here())
	}
	sub := x.sc.Sub()
	sub.spread = true
	sub.piped()
	if p.Op == syntax.CmdOut {
		sub.stdin = Stream{}
	} else {
		sub.stdin = Stream{Inherit: true}
	}
	at := x.w.at
	s := sub.closed(x.w.stmts(sub, p.Stmts))
	s.Script = x.w.generatedBy(sub, p.Stmts)
	x.w.at = at
	path := fmt.Sprintf("/dev/fd/p%d", x.w.steps)
	if !s.Known && !s.Fetched && !s.Decoded && !s.Script {
		s = Stream{Listing: s.Listing} // opaque when run
	}
	x.sc.shared.version++
	x.sc.disk.put(path, File{Content: s, version: x.sc.shared.version})
	return path
}
