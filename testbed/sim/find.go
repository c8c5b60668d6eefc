package sim

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
)

// runFind knows -type, -name, -path, -maxdepth, -mindepth, -newer, -empty, !,
// -print, -print0, -delete and -exec with ; or +.
func runFind(ctx context.Context, p *proc, args []string) int {
	rest := args[1:]
	var roots []string
	for len(rest) > 0 && !strings.HasPrefix(rest[0], "-") && rest[0] != "!" {
		roots, rest = append(roots, rest[0]), rest[1:]
	}
	if len(roots) == 0 {
		roots = []string{"."}
	}
	f := finding{p: p, ctx: ctx, deepest: 1 << 30}
	if !f.parse(rest) {
		return p.fail(1, "find", "this expression is not simulated")
	}
	var found []string
	for _, r := range roots {
		p.walk(r, 0, func(name string, n node, depth int) bool {
			if depth >= f.shallowest && depth <= f.deepest && f.matches(name, n) {
				found = append(found, name)
			}
			return depth < f.deepest
		}, func(name string, err error) { f.code = p.fail(1, "find", "'"+name+"': "+errno(err)) })
	}
	f.act(found)
	return f.code
}

type finding struct {
	p                   *proc
	ctx                 context.Context //nolint:containedctx // lives as long as the program
	tests               []func(name string, n node) bool
	shallowest, deepest int
	run                 []string
	together, remove    bool
	end                 string
	code                int
}

func (f *finding) parse(rest []string) bool {
	f.end = "\n"
	not := false
	add := func(test func(string, node) bool) {
		if not {
			inner := test
			test = func(name string, n node) bool { return !inner(name, n) }
		}
		f.tests, not = append(f.tests, test), false
	}
	for len(rest) > 0 {
		op := rest[0]
		rest = rest[1:]
		if op == "!" || op == "-not" {
			not = true
			continue
		}
		switch op {
		case "-print":
			continue
		case "-print0":
			f.end = "\x00"
			continue
		case "-delete":
			f.remove = true
			continue
		case "-empty":
			add(func(name string, n node) bool {
				names, err := f.p.g.tree.list(f.p.who, at(f.p.dir, name))
				return n.mode.IsRegular() && n.data == "" || n.mode.IsDir() && err == nil && len(names) == 0
			})
			continue
		case "-exec":
			end := slices.IndexFunc(rest, func(s string) bool { return s == ";" || s == "+" })
			if end < 1 {
				return false
			}
			f.run, f.together, rest = rest[:end], rest[end] == "+", rest[end+1:]
			continue
		}
		if len(rest) == 0 {
			return false
		}
		value := rest[0]
		rest = rest[1:]
		switch op {
		case "-type":
			want := map[string]fs.FileMode{"f": 0, "d": fs.ModeDir, "l": fs.ModeSymlink}
			t, ok := want[value]
			if !ok {
				return false
			}
			add(func(_ string, n node) bool { return n.mode.Type() == t })
		case "-name":
			add(func(name string, _ node) bool { ok, _ := path.Match(value, path.Base(name)); return ok })
		case "-path":
			add(func(name string, _ node) bool { ok, _ := path.Match(value, name); return ok })
		case "-newer":
			ref, err := f.p.g.tree.stat(f.p.who, at(f.p.dir, value), true)
			if err != nil {
				return false
			}
			add(func(_ string, n node) bool { return n.mtime.After(ref.mtime) })
		case "-maxdepth", "-mindepth":
			n, err := strconv.Atoi(value)
			if err != nil {
				return false
			}
			if op == "-maxdepth" {
				f.deepest = n
			} else {
				f.shallowest = n
			}
		default:
			return false
		}
	}
	return true
}

func (f *finding) matches(name string, n node) bool {
	for _, test := range f.tests {
		if !test(name, n) {
			return false
		}
	}
	return true
}

func (f *finding) act(found []string) {
	switch {
	case f.remove:
		for _, name := range slices.Backward(found) { // children before parents
			if err := f.p.grp.effect(func() error { return f.p.g.tree.remove(f.p.who, at(f.p.dir, name)) }); err != nil {
				f.code = f.p.fail(1, "find", "cannot delete '"+name+"': "+errno(err))
				if errors.Is(err, errKilled) {
					return
				}
			}
		}
	case f.run != nil && f.together:
		var args []string
		for _, a := range f.run {
			if a == "{}" {
				args = append(args, found...)
			} else {
				args = append(args, a)
			}
		}
		if len(found) > 0 && f.p.exec(f.ctx, args) != 0 {
			f.code = 1
		}
	case f.run != nil:
		for _, name := range found {
			args := make([]string, len(f.run))
			for i, a := range f.run {
				args[i] = strings.ReplaceAll(a, "{}", name)
			}
			if f.p.exec(f.ctx, args) == 137 {
				return
			}
		}
	default:
		for _, name := range found {
			if _, err := fmt.Fprint(f.p.out, name, f.end); err != nil {
				return
			}
		}
	}
}
