package program

import (
	"strings"

	"savepoint/policy/shell"
)

// findCommand is one -exec of a find expression.
type findCommand struct {
	argv []string
	dir  bool // runs in the directory of the match
	many bool // ends in "+": one run gets many matches
}

type findExpression struct {
	options  []string
	commands []findCommand
	writes   []string
	delete   bool
	name     string // the plain name that -name asks for
	narrow   bool   // every alternative has a test that leaves most files out
	files    bool   // plain files only
	odd      bool   // something not in the table
}

// findArity is how many values the primaries take. A missing one is not known.
func findArity(primary string) (int, bool) {
	switch primary {
	case "(", ")", "!", ",", "-a", "-and", "-o", "-or", "-not", "-depth", "-d", "-daystart", "-follow", "-mount", "-xdev", "-noleaf", "-warn",
		"-nowarn", "-ignore_readdir_race", "-noignore_readdir_race", "-empty", "-executable", "-readable", "-writable", "-false", "-true", "-nouser",
		"-nogroup", "-print", "-print0", "-prune", "-quit", "-ls", "-delete":
		return 0, true
	case "-maxdepth", "-mindepth", "-regextype", "-amin", "-anewer", "-atime", "-cmin", "-cnewer", "-ctime", "-fstype", "-gid", "-group", "-ilname",
		"-iname", "-inum", "-ipath", "-iregex", "-iwholename", "-links", "-lname", "-mmin", "-mtime", "-name", "-newer", "-path", "-perm", "-regex",
		"-samefile", "-size", "-type", "-uid", "-used", "-user", "-wholename", "-xtype", "-context", "-printf", "-fls", "-fprint", "-fprint0", "-newermt",
		"-newerct", "-neweraa", "-newermm", "-newerat":
		return 1, true
	case "-fprintf":
		return 2, true
	}
	return 0, false
}

// narrowing tests leave out most files of a tree.
func narrowing(primary string) bool {
	switch primary {
	case "-name", "-iname", "-path", "-ipath", "-wholename", "-regex", "-iregex", "-lname", "-inum", "-samefile", "-size", "-newer", "-newermt",
		"-mtime", "-mmin", "-ctime", "-cmin", "-atime", "-amin", "-user", "-group", "-empty", "-perm", "-nouser", "-nogroup", "-uid", "-gid", "-xtype",
		"-executable", "-used", "-anewer", "-cnewer":
		return true
	}
	return false
}

// everything reports whether a test lets nearly every file pass.
func everything(primary, value string) bool {
	switch primary {
	case "-size":
		return strings.HasPrefix(value, "+0") || strings.HasPrefix(value, "-") && len(strings.Trim(value, "-ckMGbw")) > 5
	case "-perm":
		return strings.Trim(value, "-/0") == ""
	case "-mtime", "-mmin", "-ctime", "-cmin", "-atime", "-amin":
		return value == "+0" || strings.HasPrefix(value, "-") && len(value) > 5
	case "-uid", "-gid":
		return value == "0"
	case "-user", "-group":
		return value == "root"
	case "-path", "-wholename", "-name", "-iname":
		return strings.Trim(value, "*\x03/") == "" || value == "?*" || value == "*?"
	case "-regex", "-iregex":
		return value == ".*" || value == ".+" || value == "/.*"
	}
	return false
}

func findExpr(args []string) findExpression {
	var e findExpression
	narrowHere, all, negated := false, true, false
	for i := 0; i < len(args); i++ {
		a := args[i]
		e.options = append(e.options, a)
		switch a {
		case "-exec", "-execdir", "-ok", "-okdir":
			cmd := findCommand{dir: strings.HasSuffix(a, "dir")}
			i++
			for i < len(args) && args[i] != ";" && !(args[i] == "+" && i > 0 && strings.Contains(args[i-1], "{}")) {
				cmd.argv = append(cmd.argv, args[i])
				i++
			}
			cmd.many = i < len(args) && args[i] == "+"
			e.commands = append(e.commands, cmd)
			negated = false
			continue
		case "-delete":
			e.delete = true
		case "-o", "-or", ",":
			all = all && narrowHere
			narrowHere = false
		case "!", "-not":
			negated = true
			continue
		}
		n, ok := findArity(a)
		if !ok {
			e.odd = true
			negated = false
			continue
		}
		value := ""
		if n > 0 && i+n < len(args) {
			value = args[i+1]
			if splits(value) || unknownStart(value) && value[0] == shell.HoleStar {
				e.odd = true // it may become more than one word
			}
		}
		if narrowing(a) && !negated && !everything(a, value) {
			narrowHere = true
		}
		if a == "-name" && !negated && shell.Known(value) && !strings.ContainsAny(value, "*?[") {
			e.name = value
		}
		if a == "-type" && value == "f" && !negated {
			e.files = true
		}
		if strings.HasPrefix(a, "-f") && n > 0 && a != "-fstype" {
			e.writes = append(e.writes, value)
		}
		negated = false
		i += n
	}
	e.narrow = all && narrowHere
	return e
}

// find judges actions, and what it lists.
func (j *Judge) find(w *shell.Walker, sc *shell.Scope, c shell.Call, u Use, args []string) shell.Stream {
	roots, rest := findRoots(args)
	u.Operands = roots
	e := findExpr(rest)
	for _, r := range roots {
		if unknownStart(r) || splits(r) {
			e.odd = true // it may turn out to be an action
		}
		u.Accesses = append(u.Accesses, Access{Action: Read, Path: sc.Path(r)})
	}
	u.ReadOnly = !e.odd
	for _, o := range e.options {
		u.Options = append(u.Options, Option{Name: o, Known: true})
	}
	targets, handed := e.handed(roots, sc)
	for _, f := range e.writes {
		u.ReadOnly = false
		u.Accesses = append(u.Accesses, Access{Action: Write, Path: sc.Path(f)})
	}
	if e.delete {
		u.ReadOnly = false
		for _, t := range targets {
			u.Accesses = append(u.Accesses, Access{Action: Remove, Path: sc.Path(t), Tree: !e.narrow})
		}
	}
	for _, cmd := range e.commands {
		if len(cmd.argv) > 0 && empties(shell.Name(cmd.argv[0])) {
			for _, t := range targets {
				u.Accesses = append(u.Accesses, Access{Action: Remove, Path: sc.Path(t)}) // nothing of them is left
			}
		}
	}
	j.use(u)
	for _, cmd := range e.commands {
		j.findRuns(w, sc, c, cmd, handed)
	}
	return shell.Stream{Listing: handed}
}

// empties reports whether a program leaves nothing of the files it is given.
func empties(name string) bool { return name == "truncate" || name == "shred" }

// findRoots parts the places where find starts from the expression.
func findRoots(args []string) (roots, rest []string) {
	i := 0
	for i < len(args) && (args[i] == "-H" || args[i] == "-L" || args[i] == "-P" || strings.HasPrefix(args[i], "-O") || args[i] == "-D") {
		if args[i] == "-D" {
			i++
		}
		i++
	}
	for i < len(args) && (args[i] == "" || args[i][0] != '-') && args[i] != "(" && args[i] != "!" && args[i] != ")" && args[i] != "," {
		roots = append(roots, args[i])
		i++
	}
	if len(roots) == 0 {
		roots = []string{"."}
	}
	return roots, args[min(i, len(args)):]
}

// handed is what the matches below each root are like, and what the commands
// and the output get.
func (e *findExpression) handed(roots []string, sc *shell.Scope) (targets, handed []string) {
	targets = make([]string, len(roots))
	handed = make([]string, 0, 2*len(roots))
	for n, r := range roots {
		targets[n] = e.target(r, sc)
		if e.name != "" && e.narrow && !e.files && shell.Known(r) && (strings.TrimSuffix(r, "/") != "/home" || "/home/"+e.name == sc.Home()) {
			handed = append(handed, strings.TrimSuffix(r, "/")+"/"+e.name) // it may be right below
		}
		if handed = append(handed, targets[n]); targets[n] == r {
			handed = append(handed, strings.TrimSuffix(r, "/")+"/\x01/\x01") // and all below
		}
	}
	return targets, handed
}

// findRuns judges one command of a find expression with what it gets.
func (j *Judge) findRuns(w *shell.Walker, sc *shell.Scope, c shell.Call, cmd findCommand, handed []string) {
	inner := sc.Under("find")
	if cmd.dir {
		inner = inner.In("")
	}
	used := false
	for _, t := range handed {
		argv := make([]string, len(cmd.argv), len(cmd.argv)+1)
		for n, a := range cmd.argv {
			used = used || strings.Contains(a, "{}")
			argv[n] = strings.ReplaceAll(a, "{}", t)
		}
		if cmd.many {
			argv = append(argv, t) // a second file is where some write
		}
		w.Exec(inner, shell.Call{Argv: argv, Stdin: shell.Stream{Known: true}, Span: c.Span})
		if !used {
			break
		}
	}
}

// target is the path that stands for what find hands to its commands.
func (e *findExpression) target(root string, sc *shell.Scope) string {
	if !shell.Known(root) && strings.Trim(root, "\x01\x02\x05\x10") == "" {
		root = "\x01" // nothing but a variable: without it, find takes the working directory
	}
	switch {
	case e.narrow && !shell.Known(root):
		return "\x01/\x01"
	case e.narrow:
		return strings.TrimSuffix(root, "/") + "/\x01/\x01"
	case e.files:
		return strings.TrimSuffix(root, "/") + "/\x03\x03"
	}
	return root
}
