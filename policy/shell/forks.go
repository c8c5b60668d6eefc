package shell

import (
	"regexp"
	"slices"
	"strconv"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// crowd is the number of rounds from which a loop counts as one without an
// end: nothing that people write starts so many jobs without waiting for some.
const crowd = 1000

// always reports whether a condition has the wanted outcome in every round, as
// far as one can tell from how it is written.
func always(cond []*syntax.Stmt, want bool) bool {
	if len(cond) == 0 {
		return false
	}
	st := cond[len(cond)-1]
	if st.Background {
		return want
	}
	if st.Negated {
		want = !want
	}
	switch c := st.Cmd.(type) {
	case *syntax.CallExpr:
		return outcome(c) == strconv.FormatBool(want)
	case *syntax.ArithmCmd:
		word, ok := c.X.(*syntax.Word)
		n, isNumber := 0, false
		if ok {
			n, isNumber = number(word.Lit())
		}
		return isNumber && (n != 0) == want
	case *syntax.TestClause:
		word, ok := c.X.(*syntax.Word)
		return ok && want && plain(word) != ""
	case *syntax.BinaryCmd:
		x, y := []*syntax.Stmt{c.X}, []*syntax.Stmt{c.Y}
		switch {
		case c.Op == syntax.AndStmt && want, c.Op == syntax.OrStmt && !want:
			return always(x, want) && always(y, want)
		case c.Op == syntax.AndStmt, c.Op == syntax.OrStmt:
			return always(x, want) || always(y, want)
		}
		return always(y, want)
	case *syntax.Block:
		return always(c.Stmts, want)
	case *syntax.Subshell:
		return always(c.Stmts, want)
	}
	return false
}

// plain is the text of a word without expansions, quotes removed.
func plain(word *syntax.Word) string {
	var out strings.Builder
	for _, p := range word.Parts {
		switch p := p.(type) {
		case *syntax.Lit:
			out.WriteString(p.Value)
		case *syntax.SglQuoted:
			out.WriteString(p.Value)
		case *syntax.DblQuoted:
			out.WriteString(plain(&syntax.Word{Parts: p.Parts}))
		default:
			return ""
		}
	}
	return out.String()
}

// outcome says "true" or "false" of a command that always ends the same way.
func outcome(c *syntax.CallExpr) string {
	var argv []string
	for _, a := range c.Args {
		argv = append(argv, plain(a))
	}
	if len(argv) > 1 && (argv[0] == "command" || argv[0] == "builtin") {
		argv = argv[1:]
	}
	switch {
	case len(argv) == 0:
		return "true"
	case len(argv) > 1 && argv[0] == "let":
		n, ok := number(argv[len(argv)-1])
		if !ok {
			return ""
		}
		return strconv.FormatBool(n != 0)
	}
	switch Name(argv[0]) {
	case "true", ":", "echo", "printf", "pwd", "date", "yes":
		return "true"
	case "false":
		return "false"
	case "[", "test":
		args := argv[1:]
		if argv[0] == "[" && len(args) > 0 {
			args = args[:len(args)-1]
		}
		switch {
		case len(args) == 1 && args[0] != "", len(args) == 2 && args[0] == "-n" && args[1] != "", len(args) == 3 && args[0] != "" && args[0] == args[2] && (args[1] == "=" || args[1] == "==" || args[1] == "-eq"):
			return "true"
		case len(args) == 0:
			return "false"
		}
	}
	return ""
}

// paced reports whether a loop body waits for something in each round, itself
// or in a function that it calls. What it starts in the background does not
// hold it up.
func (sc *Scope) paced(body []*syntax.Stmt, depth int) bool {
	found := false
	for _, st := range body {
		syntax.Walk(st, func(n syntax.Node) bool {
			switch n := n.(type) {
			case *syntax.Stmt:
				return !found && !n.Background && !n.Coprocess && !n.Disown
			case *syntax.CoprocClause, *syntax.ProcSubst, *syntax.FuncDecl:
				return false
			case *syntax.CallExpr:
				if len(n.Args) == 0 {
					break
				}
				name := plain(n.Args[0])
				switch Name(name) {
				case "sleep", "usleep":
					found = found || len(n.Args) > 1 && strings.Trim(plain(n.Args[1]), "0.smhd") != "" || len(n.Args) > 1 && n.Args[1].Lit() == ""
				case "wait", "read", "break", "exit", "return", "inotifywait":
					found = true
				default:
					if list := sc.funcs[name]; len(list) > 0 && depth < 3 {
						found = found || !slices.ContainsFunc(list, func(f *function) bool { return f == nil || !sc.paced([]*syntax.Stmt{f.body}, depth+1) })
					}
				}
			}
			return !found
		})
	}
	return found
}

// spawns reports whether code starts something that it does not wait for.
func spawns(n syntax.Node) bool {
	found := false
	syntax.Walk(n, func(n syntax.Node) bool {
		switch n := n.(type) {
		case *syntax.Stmt:
			found = found || n.Background || n.Disown
		case *syntax.CoprocClause:
			found = true
		}
		return !found
	})
	return found
}

var countUp = regexp.MustCompile(`\{(-?\d+)\.\.(-?\d+)(?:\.\.-?\d+)?\}`)

// crowded reports whether the items of a loop are written as a range of so
// many that the loop might as well have no end.
func crowded(items []*syntax.Word) bool {
	rounds := 1
	for _, it := range items {
		for _, p := range it.Parts {
			switch p := p.(type) {
			case *syntax.Lit:
				for _, m := range countUp.FindAllStringSubmatch(p.Value, 4) {
					a, ok1 := number(m[1])
					b, ok2 := number(m[2])
					if !ok1 || !ok2 {
						return true // longer than any number that fits
					}
					rounds *= 1 + min(max(a-b, b-a), crowd)
				}
			case *syntax.CmdSubst:
				if len(p.Stmts) == 1 && endless(p.Stmts[0]) {
					return true
				}
			}
		}
		if rounds >= crowd {
			return true
		}
	}
	return len(items) >= crowd
}

// endless reports whether a command prints lines without an end, or so many
// that it makes no difference.
func endless(st *syntax.Stmt) bool {
	c, ok := st.Cmd.(*syntax.CallExpr)
	if !ok || len(c.Args) == 0 {
		return false
	}
	last := plain(c.Args[len(c.Args)-1])
	switch Name(plain(c.Args[0])) {
	case "yes":
		return true
	case "cat":
		return last == "/dev/zero" || last == "/dev/urandom" || last == "/dev/random"
	case "seq", "jot":
		n, ok := number(last)
		return ok && n >= crowd || !ok && strings.Trim(last, "0123456789") == "" && last != ""
	}
	return false
}

// flooded reports whether the right side of a pipe starts a job for each line
// of an endless left side.
func flooded(left, right *syntax.Stmt) bool {
	if p, ok := left.Cmd.(*syntax.BinaryCmd); ok && p.Op == syntax.Pipe {
		left = p.X
	}
	if !endless(left) {
		return false
	}
	switch c := right.Cmd.(type) {
	case *syntax.WhileClause:
		for _, st := range c.Do {
			if spawns(st) {
				return true
			}
		}
	case *syntax.CallExpr:
		for i, a := range c.Args {
			arg := plain(a)
			switch {
			case i == 0 && Name(arg) != "xargs" && Name(arg) != "parallel":
				return false
			case arg == "-P0", arg == "-j0", arg == "--max-procs=0", arg == "--jobs=0", strings.HasPrefix(arg, "-") && !strings.HasPrefix(arg, "--") && (strings.HasSuffix(arg, "P0") || strings.HasSuffix(arg, "j0")):
				return true
			case (arg == "-P" || arg == "-j" || arg == "--max-procs" || arg == "--jobs") && i+1 < len(c.Args) && plain(c.Args[i+1]) == "0":
				return true
			}
		}
	}
	return false
}

// unbounded reports whether the condition of an arithmetic loop lets it run on
// without an end in sight: a number that is not zero, or a high bound.
func unbounded(e syntax.ArithmExpr) bool {
	switch e := e.(type) {
	case *syntax.Word:
		n, ok := number(e.Lit())
		return ok && n != 0
	case *syntax.ParenArithm:
		return unbounded(e.X)
	case *syntax.BinaryArithm:
		word, ok := e.Y.(*syntax.Word)
		if !ok {
			return false
		}
		n, isNumber := number(word.Lit())
		return isNumber && n >= crowd
	}
	return false
}
