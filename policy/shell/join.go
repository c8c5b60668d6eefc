package shell

import (
	"maps"
	"slices"
	"strings"
)

const maxPlaces = 16 // working directories that are told apart

// join replaces the state by one in which every branch may have happened.
func (sc *Scope) join(branches ...*Scope) {
	if len(branches) == 0 {
		return
	}
	first := branches[0]
	for _, b := range branches {
		sc.shared.spend(len(b.vars) + len(b.funcs))
	}
	merged := maps.Clone(first.vars)
	args := first.args
	for _, b := range branches[1:] {
		for n := range b.vars {
			if _, ok := merged[n]; !ok {
				merged[n] = either(first.login[n], b.vars[n], known(first.login, n), !b.vars[n].gone)
			}
		}
		for n, m := range merged {
			v, ok := b.lookup(n)
			merged[n] = either(m, v, !m.gone, ok)
		}
		if !slices.Equal(b.args, args) {
			args = []string{string(HoleFields)}
		}
	}
	sc.plugged(branches)
	sc.placed(branches)
	sc.written(branches)
	sc.vars, sc.funcs, sc.args = merged, defined(branches), args
}

// defined keeps every definition that a function may have. A nil among them
// means that there may be none, and the program of that name runs.
func defined(branches []*Scope) map[string][]*function {
	out := maps.Clone(branches[0].funcs)
	for _, b := range branches[1:] {
		for n, list := range b.funcs {
			before, ok := out[n]
			switch {
			case !ok:
				out[n] = added(list, nil)
			case !slices.Equal(before, list):
				out[n] = added(before, list...)
			}
		}
		for n, list := range out {
			if _, ok := b.funcs[n]; !ok {
				out[n] = added(list, nil)
			}
		}
	}
	return out
}

func added(list []*function, more ...*function) []*function {
	out := slices.Clip(list)
	for _, f := range more {
		if !slices.Contains(out, f) {
			out = append(out, f)
		}
	}
	return out
}

// placed joins the working directories. Nearer to the root is worse, and
// nothing known is best; the others are kept beside it.
func (sc *Scope) placed(branches []*Scope) {
	cwd := branches[0].cwd
	all := append([]string{cwd}, branches[0].places...)
	for _, b := range branches[1:] {
		if b.cwd != cwd && (strings.HasPrefix(b.cwd, "/") && (!strings.HasPrefix(cwd, "/") || len(b.cwd) < len(cwd))) {
			cwd = b.cwd
		}
		all = append(append(all, b.cwd), b.places...)
	}
	var rest []string
	for _, p := range all {
		if p != cwd && !slices.Contains(rest, p) {
			rest = append(rest, p)
		}
	}
	if len(rest) > maxPlaces {
		sc.shared.over, rest = true, nil
	}
	sc.cwd, sc.places = cwd, rest
}

// plugged joins the descriptors and the options: any branch may have changed
// them for good.
func (sc *Scope) plugged(branches []*Scope) {
	fds := map[string]handle{}
	stdin := branches[0].stdin
	oldcwd, dirs := branches[0].oldcwd, branches[0].dirs
	for _, b := range branches {
		for n, h := range b.fds {
			if old, ok := fds[n]; ok {
				h = old.or(h)
			}
			fds[n] = h
		}
		sc.options = sc.options.or(b.options)
		switch {
		case sameStream(b.stdin, stdin):
		case stdin.Inherit:
			stdin = b.stdin
		case !b.stdin.Inherit:
			stdin = Stream{Fetched: stdin.Fetched || b.stdin.Fetched, Decoded: stdin.Decoded || b.stdin.Decoded}
		}
		if b.oldcwd != oldcwd {
			oldcwd = worst([]string{oldcwd, b.oldcwd})
		}
		if !slices.Equal(b.dirs, dirs) {
			dirs = []string{worst(append(slices.Clone(dirs), b.dirs...))}
		}
	}
	if len(fds) > 0 {
		sc.fds = fds
	}
	sc.stdin, sc.oldcwd, sc.dirs = stdin, oldcwd, dirs
}

// or is a descriptor that is one of two.
func (h handle) or(g handle) handle {
	if h.path == g.path && h.write == g.write && h.output == g.output && sameStream(h.in, g.in) {
		return h
	}
	if !sameStream(h.in, g.in) {
		h.in = oneOf(h.in, g.in)
	}
	h.write, h.append, h.output = h.write || g.write, h.append || g.append, h.output || g.output
	switch {
	case h.path == "" || connection(g.path):
		h.path = g.path
	case g.path != "" && g.path != h.path && len(h.others) < maxPlaces:
		h.others = append(slices.Clip(h.others), g.path)
	}
	h.guard = h.guard || h.path != ""
	return h
}

// settings are the options of a shell that change what its lines mean. Once a
// branch has switched one on, it counts as on.
type settings struct {
	cdable    bool // cd takes the name of a variable
	exporting bool // every variable that is assigned is exported
	keyword   bool // words that look like assignments are some, wherever they stand
	vanishing bool // a pattern that fits nothing is no word
	lastpipe  bool // the last part of a pipe runs in the shell itself
	failing   bool // a command that fails ends the shell
	keeping   bool // a redirection does not replace a file
	skipping  bool // a trap decides whether a command runs
}

func (o settings) or(p settings) settings {
	return settings{
		o.cdable || p.cdable, o.exporting || p.exporting, o.keyword || p.keyword, o.vanishing || p.vanishing,
		o.lastpipe || p.lastpipe, o.failing || p.failing, o.keeping || p.keeping, o.skipping || p.skipping,
	}
}

func known(vars map[string]variable, name string) bool { _, ok := vars[name]; return ok }

// either is a variable that has one of two states.
func either(a, b variable, hasA, hasB bool) variable {
	switch {
	case !hasA && !hasB:
		return variable{gone: true}
	case hasA && hasB && same(a, b):
		return a
	case hasA && hasB:
		v := a
		v.set, v.export, v.fixed = a.set || b.set, a.export || b.export, a.fixed || b.fixed
		v.loose = a.loose || b.loose || a.integer != b.integer || a.lower != b.lower || a.upper != b.upper
		v.integer, v.lower, v.upper = a.integer || b.integer, a.lower || b.lower, a.upper || b.upper
		if a.isList || b.isList || a.isRef || b.isRef {
			v.values, v.list, v.keys, v.isList, v.isRef, v.ref = []string{string(HoleFields)}, nil, nil, false, false, ""
			v.refs = union(a.targets(), b.targets())
			return v
		}
		v.values, v.refs = union(a.values, b.values), union(a.refs, b.refs)
		return v
	case hasB:
		a = b
	}
	if a.isList {
		return variable{values: []string{string(HoleFields)}, set: a.set, export: a.export, fixed: a.fixed}
	}
	if a.isRef {
		return variable{values: []string{string(HoleFields)}, refs: a.targets(), set: a.set, export: a.export}
	}
	a.values = union(a.values, []string{string(HoleMaybe)})
	a.loose = a.loose || a.integer || a.lower || a.upper
	return a
}

// targets are the variables that an assignment may change in its place.
func (v variable) targets() []string {
	if v.isRef {
		return []string{v.ref}
	}
	return v.refs
}

func same(a, b variable) bool {
	return a.isList == b.isList && a.isRef == b.isRef && a.ref == b.ref && slices.Equal(a.values, b.values) && slices.Equal(a.list, b.list) && slices.Equal(a.keys, b.keys) &&
		slices.Equal(a.refs, b.refs) && a.set == b.set && a.export == b.export && a.integer == b.integer && a.lower == b.lower && a.upper == b.upper && a.fixed == b.fixed && a.loose == b.loose
}

func union(a, b []string) []string {
	out := slices.Clone(a)
	for _, x := range b {
		if !slices.Contains(out, x) {
			out = append(out, x)
		}
	}
	if len(out) > 8 {
		return []string{string(HoleFields)}
	}
	return out
}
