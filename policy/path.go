package policy

import (
	"strings"

	"savepoint/policy/shell"
)

// pathPattern is one path of a rule, taken apart.
type pathPattern struct {
	segments []string // with "*" as the hole for a star
	home     bool     // starts at the home of the account
	below    bool     // ends in "**": everything below, not the path itself
	anywhere bool     // starts with "**/"
}

func newPathPattern(p string) pathPattern {
	var out pathPattern
	if strings.HasPrefix(p, "**/") {
		out.anywhere, p = true, p[3:]
	}
	if strings.HasPrefix(p, "~") {
		out.home, p = true, p[1:]
	}
	if strings.HasSuffix(p, "/**") {
		out.below, p = true, strings.TrimSuffix(p, "/**")
	}
	for _, s := range strings.Split(p, "/") {
		if s != "" {
			out.segments = append(out.segments, strings.ReplaceAll(s, "*", "\x03"))
		}
	}
	return out
}

// target is a path of a program, taken apart once for all patterns.
type target struct {
	path     string
	have     []string // components; nil for the root and for relative paths
	absolute bool
	destroys bool // it is removed or its mode changed
}

// newTarget takes a path apart. When it is destroyed, a path that climbs out of
// the working directory is taken to reach the root.
func newTarget(path string, destroys bool) target {
	if destroys && strings.HasPrefix(path, "../../..") {
		for strings.HasPrefix(path, "../") {
			path = path[3:]
		}
		if path = "/" + strings.TrimPrefix(path, ".."); path == "/." {
			path = "/"
		}
	}
	return target{path: path, have: splitPath(path), absolute: strings.HasPrefix(path, "/"), destroys: destroys}
}

// matches reports whether a path, which may hold holes, can be one that the
// pattern means. A name directly below the root of which nothing is known
// matches when the path is destroyed.
func (p pathPattern) matches(t target, home []string) bool {
	if p.anywhere {
		return p.suffix(t.have)
	}
	if !t.absolute {
		return false
	}
	have, want := t.have, p.segments
	if p.home {
		if len(have) < len(home) || !segmentsMatch(have[:len(home)], home, false) {
			// "/home/*" stands for the account's home too.
			return false
		}
		have = have[len(home):]
		if len(want) == 0 && !p.below {
			return len(have) == 0 || len(have) == 1 && everything(have[0])
		}
	}
	switch n := len(want); {
	case p.below:
		return len(have) > n && segmentsMatch(have[:n], want, false)
	case len(have) == n:
		return segmentsMatch(have, want, n == 1 && t.destroys && !p.home)
	case len(have) == n+1 && everything(have[n]):
		return segmentsMatch(have[:n], want, false) // all inside counts as the directory
	}
	return false
}

// covers reports whether a path is surely one that the pattern means: what is
// not known of it makes no difference.
func (p pathPattern) covers(t target, home []string) bool {
	if !p.matches(t, home) {
		return false
	}
	n := len(p.segments)
	if p.home {
		n += len(home)
	}
	return shell.Known(t.path) || p.below && n <= len(t.have) && shell.Known(strings.Join(t.have[:n], "/"))
}

func (p pathPattern) suffix(have []string) bool {
	n := len(p.segments)
	for i := 0; i+n <= len(have); i++ {
		if (p.below && len(have) > i+n || !p.below && len(have) == i+n) && segmentsMatch(have[i:i+n], p.segments, false) {
			return true
		}
	}
	return false
}

// everything reports whether a last component stands for all names there.
func everything(s string) bool {
	return s == "\x03" || s == "\x03\x03" || s == "\x03.\x03" || s == ".\x03" || s == ".[!.]\x03" || s == ".\x04\x03"
}

func splitPath(p string) []string {
	if p == "/" {
		return nil
	}
	return strings.Split(strings.Trim(p, "/"), "/")
}

// segmentsMatch compares component by component. top is set for a path of one
// component.
func segmentsMatch(have, want []string, top bool) bool {
	for i := range want {
		if !segmentMatches(have[i], want[i], top) {
			return false
		}
	}
	return true
}

// segmentMatches compares one component. A component of which nothing is known
// matches only directly below the root, where everything is precious.
func segmentMatches(have, want string, top bool) bool {
	if have == "\x03\x03" || !shell.Known(have) && strings.Trim(have, "\x01\x02\x05\x0e\x0f\x10") == "" && !top {
		return false
	}
	if want == "\x03" {
		return true
	}
	if want != "" && want[0] == '.' && have != "" && (have[0] == '\x03' || have[0] == '\x04') {
		return false // a pattern leaves names with a dot in front out
	}
	if shell.Has(want, shell.HoleStar) {
		if shell.Known(have) {
			return shell.Matches(want, have)
		}
		// Both are patterns: they can mean the same when their fixed starts agree.
		i, k := strings.IndexAny(have, "\x01\x02\x03\x04\x05\x06\x0e\x0f\x10"), strings.IndexByte(want, '\x03')
		n := min(i, k)
		return have[:n] == want[:n]
	}
	return shell.Matches(have, want)
}
