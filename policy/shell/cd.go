package shell

import (
	"slices"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

const maxPath = 4096 // PATH_MAX

// changeDir follows cd, pushd and popd.
func (w *Walker) changeDir(sc *Scope, name string, args []string) {
	rotate := ""
	for len(args) > 0 && len(args[0]) > 1 && (args[0][0] == '-' || args[0][0] == '+') {
		if strings.Trim(args[0][1:], "0123456789") == "" {
			rotate = args[0]
		}
		args = args[1:]
	}
	before, places := sc.cwd, sc.places
	sc.places = nil
	defer func() {
		// It may have failed, which matters where the directory is known.
		if strings.HasPrefix(before, "/") && !sc.stands(args) && before != sc.cwd && !sc.options.failing && len(sc.places) < maxPlaces && !slices.Contains(sc.places, before) {
			sc.stayed = before
			sc.places = append(slices.Clip(sc.places), before)
		}
	}()
	defer func() {
		// Where the line may have been elsewhere, it may now be there as well.
		if len(args) == 0 || rotate != "" || args[0] == "-" {
			if name != "cd" || len(args) > 0 {
				sc.places = places
			}
			return
		}
		for _, p := range places {
			c := *sc
			c.cwd, c.places = p, nil
			if d := w.target(&c, args[0]); d != sc.cwd && !slices.Contains(sc.places, d) {
				sc.places = append(sc.places, d)
			}
		}
	}()
	sc.shared.changes++
	sc.stayed = ""
	switch {
	case rotate != "":
		sc.cwd = worst(append(sc.dirs, sc.cwd))
	case name == "popd":
		sc.cwd = ""
		if len(sc.dirs) > 0 {
			sc.cwd, sc.dirs = sc.dirs[0], sc.dirs[1:]
		}
	case name == "pushd" && len(args) == 0:
		sc.cwd = ""
		if len(sc.dirs) > 0 {
			sc.cwd = sc.dirs[0]
			sc.dirs = append([]string{before}, sc.dirs[1:]...)
		}
	case len(args) == 0:
		sc.cwd = sc.get("HOME")[0]
	case args[0] == "-":
		sc.cwd = sc.oldcwd
	default:
		if name == "pushd" && len(sc.dirs) < 64 {
			sc.dirs = append([]string{before}, sc.dirs...)
		}
		sc.cwd = w.target(sc, args[0])
	}
	if len(sc.cwd) > maxPath {
		sc.cwd = "" // deeper than the shell itself keeps track of
	}
	sc.oldcwd = before
	sc.set("PWD", directory(sc.cwd))
	sc.set("OLDPWD", directory(before))
}

// target is the directory that a name given to cd means.
func (w *Walker) target(sc *Scope, name string) string {
	if sc.options.cdable && sc.assigned(name) {
		if v := sc.get(name); len(v) == 1 && v[0] != "" {
			name = v[0]
		}
	}
	first := name
	if i := strings.IndexByte(name, '/'); i >= 0 {
		first = name[:i]
	}
	if sc.assigned("CDPATH") && first != "" && first != "." && first != ".." {
		dirs := sc.get("CDPATH")
		var found []string
		for _, list := range dirs {
			for _, d := range strings.Split(list, ":") {
				if d != "" {
					found = append(found, sc.Path(d+"/"+name+"/"))
				}
			}
		}
		return worst(append(found, sc.Path(name+"/")))
	}
	return sc.Path(name + "/")
}

// worst picks the directory in which a mistake costs most: one that is known,
// nearest to the root.
func worst(dirs []string) string {
	best := ""
	for _, d := range dirs {
		if strings.HasPrefix(d, "/") && (best == "" || len(d) < len(best)) {
			best = d
		}
	}
	return best
}

// directory is the value of PWD for a directory.
func directory(cwd string) string {
	if strings.HasPrefix(cwd, "/") {
		return cwd
	}
	return "/\x01"
}

// stands reports whether a cd cannot fail: it goes to a directory that is always
// there.
func (sc *Scope) stands(args []string) bool {
	if len(args) == 0 || args[0] == "-" || strings.Trim(args[0], "./") == "" {
		return true
	}
	return sc.cwd == "/workspace" || sc.cwd == "/tmp" || sc.cwd == sc.home
}

// arrived drops the directory in which the shell has stayed if the cd failed:
// it did not, or the shell went elsewhere.
func (sc *Scope) arrived() {
	sc.places = slices.DeleteFunc(slices.Clone(sc.places), func(p string) bool { return p == sc.stayed })
	sc.stayed = ""
}

// moves reports whether a statement is a cd, or ends with one that has to
// succeed.
func moves(st *syntax.Stmt) bool {
	if st.Negated || st.Background {
		return false
	}
	switch c := st.Cmd.(type) {
	case *syntax.CallExpr:
		return len(c.Args) > 0 && (c.Args[0].Lit() == "cd" || c.Args[0].Lit() == "pushd")
	case *syntax.BinaryCmd:
		return c.Op == syntax.AndStmt && moves(c.Y)
	}
	return false
}

// quits reports whether a statement does nothing but leave.
func quits(st *syntax.Stmt) bool {
	switch c := st.Cmd.(type) {
	case *syntax.CallExpr:
		if len(c.Args) > 0 && !st.Background && !st.Negated && len(st.Redirs) == 0 {
			switch c.Args[0].Lit() {
			case "exit", "return", "break", "continue":
				return true
			}
		}
	case *syntax.Block:
		return len(c.Stmts) > 0 && quits(c.Stmts[len(c.Stmts)-1])
	}
	return false
}
