package shell

import (
	"slices"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// aliased judges a command whose first word is an alias that the text defines,
// with the alias put in its place, and reports whether there is one. Whether
// the shell expands aliases, and from which line on, is not followed: the
// caller judges the command as it stands too.
func (w *Walker) aliased(sc *Scope, c *syntax.CallExpr, argv []string, at Span) bool {
	if len(argv) == 0 || len(sc.shared.aliases) == 0 {
		return false
	}
	name := c.Args[0].Lit()
	codes := sc.shared.aliases[name]
	if len(codes) == 0 || sc.shared.expanding[name] {
		return false
	}
	sc.shared.expanding[name] = true
	defer delete(sc.shared.expanding, name)
	for _, code := range codes {
		rest := argv[1:]
		line := code
		// A blank at its end makes the next word an alias too.
		for strings.HasSuffix(line, " ") && len(rest) > 0 && len(sc.shared.aliases[rest[0]]) > 0 && len(line) < maxValue {
			line += sc.shared.aliases[rest[0]][0]
			rest = rest[1:]
		}
		for _, a := range rest {
			// Patterns stay live, everything else stays as it is.
			line += " '" + strings.NewReplacer("'", `'\''`, "\x03", "'*'", "\x04", "'?'").Replace(a) + "'"
		}
		w.Source(sc, line, at)
	}
	return true
}

// defineAlias keeps every definition of an alias, whatever branch or subshell
// it stands in.
func (sc *Scope) defineAlias(name, code string) {
	keep(sc, sc.shared.aliases, name, code)
}

// renamed returns the programs of the image behind a name that the line gave
// to them with cp or ln.
func (sc *Scope) renamed(word string) []string {
	if len(sc.shared.programs) == 0 && len(sc.shared.links) == 0 {
		return nil
	}
	key := Clean(word, sc.cwd)
	out := slices.Clip(sc.shared.programs[key])
	for _, t := range sc.shared.links[key] {
		if ofImage(t) {
			out = append(out, t)
		}
	}
	return out
}

// ofImage reports whether a path names a program of the image.
func ofImage(path string) bool {
	for _, d := range [...]string{"/bin/", "/sbin/", "/usr/bin/", "/usr/sbin/", "/usr/local/bin/", "/usr/local/sbin/"} {
		if strings.HasPrefix(path, d) && !strings.HasSuffix(path, "/") {
			return true
		}
	}
	return false
}

// located is what which, command -v and type -P print for a name.
func located(name string) string {
	if strings.Contains(name, "/") {
		return name
	}
	return "/usr/bin/" + name
}
