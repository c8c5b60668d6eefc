package shell

import "strings"

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
	before := sc.cwd
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
	if sc.cdable && sc.assigned(name) {
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
