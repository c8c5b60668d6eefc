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
var findArity = map[string]int{
	"(": 0, ")": 0, "!": 0, ",": 0, "-a": 0, "-and": 0, "-o": 0, "-or": 0, "-not": 0, "-depth": 0, "-d": 0, "-daystart": 0, "-follow": 0, "-mount": 0, "-xdev": 0,
	"-noleaf": 0, "-warn": 0, "-nowarn": 0, "-ignore_readdir_race": 0, "-noignore_readdir_race": 0, "-empty": 0, "-executable": 0, "-readable": 0, "-writable": 0,
	"-false": 0, "-true": 0, "-nouser": 0, "-nogroup": 0, "-print": 0, "-print0": 0, "-prune": 0, "-quit": 0, "-ls": 0, "-delete": 0,
	"-maxdepth": 1, "-mindepth": 1, "-regextype": 1, "-amin": 1, "-anewer": 1, "-atime": 1, "-cmin": 1, "-cnewer": 1, "-ctime": 1, "-fstype": 1, "-gid": 1, "-group": 1,
	"-ilname": 1, "-iname": 1, "-inum": 1, "-ipath": 1, "-iregex": 1, "-iwholename": 1, "-links": 1, "-lname": 1, "-mmin": 1, "-mtime": 1, "-name": 1, "-newer": 1,
	"-path": 1, "-perm": 1, "-regex": 1, "-samefile": 1, "-size": 1, "-type": 1, "-uid": 1, "-used": 1, "-user": 1, "-wholename": 1, "-xtype": 1, "-context": 1,
	"-printf": 1, "-fls": 1, "-fprint": 1, "-fprint0": 1, "-fprintf": 2, "-newermt": 1, "-newerct": 1, "-neweraa": 1, "-newermm": 1, "-newerat": 1,
}

// narrowing tests leave out most files of a tree.
var narrowing = map[string]bool{
	"-name": true, "-iname": true, "-path": true, "-ipath": true, "-wholename": true, "-regex": true, "-iregex": true, "-lname": true, "-inum": true, "-samefile": true,
	"-size": true, "-newer": true, "-newermt": true, "-mtime": true, "-mmin": true, "-ctime": true, "-cmin": true, "-atime": true, "-amin": true, "-user": true, "-group": true,
	"-empty": true, "-perm": true, "-nouser": true, "-nogroup": true, "-uid": true, "-gid": true, "-xtype": true, "-executable": true, "-used": true, "-anewer": true, "-cnewer": true,
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
		n, ok := findArity[a]
		if !ok {
			e.odd = true
			negated = false
			continue
		}
		value := ""
		if n > 0 && i+n < len(args) {
			value = args[i+1]
		}
		if narrowing[a] && !negated && value != "*" && value != "\x03" {
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
