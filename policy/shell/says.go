package shell

import (
	"slices"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// Says reports whether the command whose redirections are being judged prints
// or reads no more than the line shows, such as echo with plain words, or exec
// alone: it can hand nothing of the machine to what it is connected to.
func (w *Walker) Says() bool { return w.saying }

func says(st *syntax.Stmt) bool {
	if st.Cmd == nil {
		return true
	}
	c, ok := st.Cmd.(*syntax.CallExpr)
	if !ok {
		return false
	}
	if len(c.Args) == 0 {
		return len(c.Assigns) == 0
	}
	switch c.Args[0].Lit() {
	case "exec": // what it does to the standard streams holds for all that follows
		return len(c.Args) == 1 && !slices.ContainsFunc(st.Redirs, func(r *syntax.Redirect) bool {
			return r.N == nil || r.N.Value == "0" || r.N.Value == "1" || r.N.Value == "2"
		})
	case "cat":
		return len(c.Args) == 1
	case ":", "true", "echo", "printf":
		for _, a := range c.Args[1:] {
			if substitutes(a) {
				return false
			}
		}
		return true
	}
	return false
}

// substitutes reports whether a word holds what another command prints.
func substitutes(word *syntax.Word) bool {
	found := false
	syntax.Walk(word, func(n syntax.Node) bool {
		switch n.(type) {
		case *syntax.CmdSubst, *syntax.ProcSubst, *syntax.ArithmExp, *syntax.ParamExp:
			_, plain := n.(*syntax.ParamExp)
			found = found || !plain
		}
		return !found
	})
	return found
}

// assigns reports whether a statement does nothing but set variables to text,
// which cannot fail.
func assigns(st *syntax.Stmt) bool {
	c, ok := st.Cmd.(*syntax.CallExpr)
	if !ok || st.Negated || st.Background || len(st.Redirs) > 0 || len(c.Args) > 0 || len(c.Assigns) == 0 {
		return false
	}
	for _, a := range c.Assigns {
		if a.Array != nil || a.Index != nil || a.Value != nil && substitutes(a.Value) {
			return false
		}
	}
	return true
}

// choice performs "A && X=a || X=b", in which one of the two assignments
// happens for sure.
func (w *Walker) choice(sc *Scope, c *syntax.BinaryCmd) bool {
	if c.Op != syntax.OrStmt || !assigns(c.Y) || c.X.Negated || len(c.X.Redirs) > 0 {
		return false
	}
	front, ok := c.X.Cmd.(*syntax.BinaryCmd)
	if !ok || front.Op != syntax.AndStmt || !assigns(front.Y) {
		return false
	}
	w.stmt(sc, front.X)
	then, other := sc.branch(), sc.branch()
	w.stmt(then, front.Y)
	w.stmt(other, c.Y)
	sc.join(then, other)
	return true
}

// sayings returns the two values of "$(A && echo a || echo b)" when A prints
// nothing: one of the two plain words, for sure.
func sayings(sc *Scope, word *syntax.Word) []string {
	parts := word.Parts
	if len(parts) == 1 {
		if q, ok := parts[0].(*syntax.DblQuoted); ok {
			parts = q.Parts
		}
	}
	if len(parts) != 1 {
		return nil
	}
	sub, ok := parts[0].(*syntax.CmdSubst)
	if !ok || len(sub.Stmts) != 1 || len(sc.funcs["echo"]) > 0 {
		return nil
	}
	or, ok := plainly(sub.Stmts[0], syntax.OrStmt)
	if !ok {
		return nil
	}
	and, ok := plainly(or.X, syntax.AndStmt)
	if !ok || !mute(and.X) {
		return nil
	}
	a, okA := echoes(and.Y)
	b, okB := echoes(or.Y)
	if !okA || !okB {
		return nil
	}
	return union([]string{a}, []string{b})
}

func plainly(st *syntax.Stmt, op syntax.BinCmdOperator) (*syntax.BinaryCmd, bool) {
	c, ok := st.Cmd.(*syntax.BinaryCmd)
	return c, ok && c.Op == op && !st.Negated && !st.Background && len(st.Redirs) == 0
}

// echoes returns what a statement prints that only says one plain word.
func echoes(st *syntax.Stmt) (string, bool) {
	c, ok := st.Cmd.(*syntax.CallExpr)
	if !ok || st.Negated || st.Background || len(st.Redirs) > 0 || len(c.Assigns) > 0 || len(c.Args) != 2 || c.Args[0].Lit() != "echo" {
		return "", false
	}
	text := c.Args[1].Lit()
	if text == "" || text[0] == '-' || !plainText(text) {
		return "", false
	}
	return text, true
}

// plainText reports whether the shell takes every character for itself.
func plainText(s string) bool {
	for _, r := range s {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '-', r == '_', r == '.', r == '/', r == '+':
		default:
			return false
		}
	}
	return true
}

// mute reports whether a statement prints nothing: a test, or what sends its
// output to nowhere.
func mute(st *syntax.Stmt) bool {
	if st.Background {
		return false
	}
	for _, r := range st.Redirs {
		out := r.Op == syntax.RdrOut && (r.N == nil || r.N.Value == "1") || r.Op == syntax.RdrAll
		if out && r.Word != nil && r.Word.Lit() == "/dev/null" {
			return true
		}
		if r.Op == syntax.DplOut {
			break // what went elsewhere before stays there
		}
	}
	switch c := st.Cmd.(type) {
	case *syntax.TestClause:
		return true
	case *syntax.CallExpr:
		return len(c.Args) > 0 && (c.Args[0].Lit() == "[" || c.Args[0].Lit() == "test")
	}
	return false
}

// connected reports to the host a descriptor that is a connection when a
// command names it as a file, since that command may send anything.
func (w *Walker) connected(sc *Scope, c Call) {
	for _, h := range sc.fds {
		if !connection(h.path) {
			continue
		}
		for _, a := range c.Argv {
			if _, ok := fdNumber(Clean(a[strings.LastIndexByte(a, '=')+1:], "")); ok {
				saying := w.saying
				w.saying = false
				w.host.Write(w, sc, h.path)
				w.saying = saying
				return
			}
		}
	}
}

func connection(path string) bool {
	return strings.HasPrefix(path, "/dev/tcp/") || strings.HasPrefix(path, "/dev/udp/")
}
