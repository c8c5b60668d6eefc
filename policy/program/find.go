package program

import (
	"strings"

	"savepoint/policy/shell"
)

// findCommand is one -exec of a find expression.
type findCommand struct {
	argv []string
	dir  bool // runs in the directory of the match
}

type findExpression struct {
	options  []string
	commands []findCommand
	writes   []string
	delete   bool
	narrow   bool // every alternative has a test that leaves most files out
	files    bool // plain files only
	odd      bool // something not in the table
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
			if strings.ContainsAny(value, "\x05\x06\x0e\x0f\x10") {
				e.odd = true // it may become more than one word
			}
		}
		if narrowing(a) && !negated && value != "*" && value != "\x03" {
			narrowHere = true
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
