package policy

import (
	"slices"
	"strings"

	"savepoint/policy/program"
	"savepoint/policy/shell"
)

// maxLine is how much of the joined arguments patterns are asked about.
const maxLine = 4096

// applies reports whether a condition holds for a use of a program, and which
// accesses made it hold.
func (c *condition) applies(u *use) ([]program.Access, bool) {
	if c.Default != "" && c.Default != u.kind {
		return nil, false
	}
	if len(c.Action) > 0 && len(u.Accesses) == 0 {
		return nil, false
	}
	if len(c.Program) > 0 && !slices.ContainsFunc(c.Program, func(p string) bool { return nameMatches(p, u.Name) }) {
		return nil, false
	}
	if len(c.Sub) > 0 && !c.subMatches(&u.Use) {
		return nil, false
	}
	if len(c.Options) > 0 && !slices.ContainsFunc(u.Options, c.optionMatches) && !c.wordOption(&u.Use) {
		return nil, false
	}
	if len(c.NoOptions) > 0 && slices.ContainsFunc(u.Options, func(o program.Option) bool { return slices.Contains(c.NoOptions, o.Name) }) {
		return nil, false
	}
	if c.Operands == "none" && len(u.Operands) > 0 || c.Operands == "some" && len(u.Operands) == 0 {
		return nil, false
	}
	if c.arg != nil || c.noArg != nil || c.line != nil || c.Unknown {
		if !c.argsMatch(u) {
			return nil, false
		}
	}
	if c.text != nil && !u.hits.contains(c.text) && !c.text.matches(u.resolved()) {
		return nil, false
	}
	if len(c.Action) == 0 && len(c.path) == 0 {
		return nil, true
	}
	var hits []program.Access
	for i, a := range u.Accesses {
		if len(c.Action) > 0 && !slices.Contains(c.Action, a.Action) || c.Tree && !a.Tree {
			continue
		}
		t := &u.targets[i]
		if len(c.path) > 0 && !slices.ContainsFunc(c.path, func(p pathPattern) bool { return p.matches(*t, u.hits.home) }) {
			continue
		}
		if slices.ContainsFunc(c.noPath, func(p pathPattern) bool { return p.covers(*t, u.hits.home) }) {
			continue
		}
		hits = append(hits, a)
	}
	return hits, len(hits) > 0
}

// use is a program.Use with what matching needs of it, computed once.
type use struct {
	program.Use
	kind    string
	hits    *collector
	targets []target // of the accesses
	shown   []string // the arguments as a person reads them
	line    string   // the same, joined
	whole   string   // see resolved
}

func (c *collector) newUse(u program.Use, kind string) *use {
	out := &use{Use: u, kind: kind, hits: c}
	out.targets = make([]target, len(u.Accesses))
	for i, a := range u.Accesses {
		path := a.Path
		if path == string(shell.HoleDecoded) && a.Tree && u.Name == "rm" {
			path = "/" // the line hides which path it is: take it for the worst
		}
		out.targets[i] = newTarget(path, a.Action == program.Remove || a.Action == program.Mode)
	}
	return out
}

func (u *use) args() []string {
	if u.shown == nil {
		u.shown = make([]string, 0, len(u.Argv))
		for _, a := range u.Argv[min(1, len(u.Argv)):] {
			u.shown = append(u.shown, shell.Show(a))
		}
		u.line = strings.Join(u.shown, " ")
		u.line = u.line[:min(len(u.line), maxLine)]
	}
	return u.shown
}

func nameMatches(pattern, name string) bool {
	if !strings.Contains(pattern, "*") {
		return pattern == name
	}
	return shell.Matches(strings.ReplaceAll(pattern, "*", "\x03"), name)
}

// subMatches compares the sub-command path. A program without a table of
// sub-commands has its first operands, options left out.
func (c *condition) subMatches(u *program.Use) bool {
	have := u.Sub
	if len(have) < len(c.Sub) {
		have = nil
		for _, a := range u.Argv[min(1, len(u.Argv)):] {
			if a != "" && a[0] != '-' {
				have = append(have, a)
			}
		}
		// An option's value may stand in front: try every start.
		for i := 0; i+len(c.Sub) <= len(have) && i < 6; i++ {
			if c.subAt(have[i:]) {
				return true
			}
		}
		return false
	}
	return c.subAt(have)
}

func (c *condition) subAt(have []string) bool {
	for i, want := range c.Sub {
		if i >= len(have) {
			return false
		}
		ok := false
		for _, alt := range strings.Split(want, "|") {
			ok = ok || nameMatches(alt, have[i])
		}
		if !ok {
			return false
		}
	}
	return true
}

func (c *condition) optionMatches(o program.Option) bool {
	return slices.Contains(c.Options, o.Name) && (c.value == nil || c.value.matches(shell.Show(o.Value)))
}

// wordOption finds an option in the words of a program without a table of
// options; a cluster of letters counts for each of them.
func (c *condition) wordOption(u *program.Use) bool {
	for _, a := range u.Argv[min(1, len(u.Argv)):] {
		if a == "--" {
			return false
		}
		if len(a) < 2 || a[0] != '-' {
			continue
		}
		name, value, _ := strings.Cut(a, "=")
		for _, want := range c.Options {
			switch {
			case name == want:
			case len(want) == 2 && len(a) > 2 && a[1] != '-' && strings.Contains(a[1:], want[1:]) && !u.Parsed:
			default:
				continue
			}
			if c.value == nil || c.value.matches(shell.Show(value)) {
				return true
			}
		}
	}
	return false
}

func (c *condition) argsMatch(u *use) bool {
	args := u.args()
	if c.arg != nil && !slices.ContainsFunc(args, c.arg.matches) {
		return false
	}
	if c.noArg != nil && slices.ContainsFunc(args, c.noArg.matches) {
		return false
	}
	if c.line != nil && !c.line.matches(u.line) {
		return false
	}
	return !c.Unknown || slices.ContainsFunc(u.Argv, func(a string) bool {
		return shell.Has(a, shell.HoleOutput) || shell.Has(a, shell.HoleDecoded) || shell.Has(a, shell.HoleFetched)
	})
}

// factApplies reports whether a condition holds for a fact.
func (c *condition) factApplies(f *shell.Fact) bool {
	if len(c.Fact) > 0 {
		return slices.Contains(c.Fact, f.Kind)
	}
	if len(c.Env) == 0 || f.Kind != shell.FactEnvironment {
		return c.Default == "environment" && f.Kind == shell.FactEnvironment
	}
	if !slices.ContainsFunc(c.Env, func(p string) bool { return nameMatches(p, f.Name) }) {
		return false
	}
	if slices.ContainsFunc(c.NoEnv, func(p string) bool { return nameMatches(p, f.Name) }) {
		return false
	}
	return c.value == nil || c.value.matches(shell.Show(f.Value))
}

// resolved is what the shell makes of the command and of what it reads: the
// judged text may hold it in another spelling.
func (u *use) resolved() string {
	if u.whole == "" {
		u.whole = shell.Show(strings.Join(u.Argv, " "))
		if u.Stdin.Known && len(u.whole) < maxLine {
			u.whole += "\n" + u.Stdin.Text[:min(len(u.Stdin.Text), maxLine)]
		}
		u.whole = u.whole[:min(len(u.whole), maxLine)]
	}
	return u.whole
}

// contains reports whether a pattern matches the judged text, which is the same
// for every use in it: a long text full of uses is searched once.
func (c *collector) contains(p *pattern) bool {
	hit, asked := c.inText[p]
	if !asked {
		hit = p.matches(c.text)
		if c.inText == nil {
			c.inText = map[*pattern]bool{}
		}
		c.inText[p] = hit
	}
	return hit
}
