package policy

import (
	"slices"
	"strings"

	"savepoint/policy/program"
	"savepoint/policy/shell"
)

// collector is the program.Sink of one Decide.
type collector struct {
	engine   *Engine
	profile  string
	home     []string          // components of the account's home
	text     string            // the judged text
	inText   map[*pattern]bool // which patterns match it, once asked
	all      []found
	examples bool // run for the examples of rules: nothing is lifted
	seen     bool // something was judged
	hardened []rewrite
	lifted   []Lift

	turned    bool   // an earlier part changed what the address of this machine stands for
	elsewhere string // what in the command may send things to other hosts than it shows
}

// rewrite replaces a part of the judged text.
type rewrite struct {
	span shell.Span
	text string
}

// Fact takes a fact of the shell or of code.
func (c *collector) Fact(f shell.Fact) {
	c.seen = true
	if f.Kind == shell.FactEnvironment && c.elsewhere == "" && redirects(f.Name) {
		c.elsewhere = "variable " + readable(f.Name)
	}
	p := c.open(f.Span)
	var last *rule
	for _, k := range c.engine.rules.forFact(f.Kind) {
		if k.rule != last && c.inProfile(k.rule) && k.condition.factApplies(&f) {
			p.add(k.rule, k.rule.decision, c.effect(k.rule, f.Target), f.Target, f.Via)
			last = k.rule
		}
	}
	c.close(p)
}

// Use takes a program.
func (c *collector) Use(u program.Use) {
	if u.Tentative && len(u.Argv) < 2 {
		return // one bare word is a name, not a command
	}
	c.seen = c.seen || !u.Tentative
	if c.turned && u.Reach == program.Here {
		u.Reach = "" // the address that is shown may stand for another
	}
	c.turned = c.turned || turnsAside(&u)
	kind := kindOf(&u)
	if u.Hardened != "" && !u.Tentative {
		kind = "read-only"
		if u.Span == (shell.Span{}) || !c.rewritable(u.Span, u.Hardened) || len(u.Via) > 0 {
			kind = "change"
		}
	}
	if c.profile == OpenEgress && c.elsewhere == "" && unsettles(&u) {
		c.elsewhere = "what " + readable(u.Name) + " changes"
	}
	m := c.newUse(u, kind)
	p := c.open(u.Span)
	var last *rule
	for _, k := range c.engine.rules.forProgram(u.Name) {
		if k.rule == last || u.Tentative && !k.rule.Guess || !c.inProfile(k.rule) || k.rule.claims(&u) {
			continue
		}
		if u.Prints && !k.rule.own && k.rule.decision == Deny {
			continue // nothing but help is printed, whatever the words in front
		}
		if hits, ok := k.condition.applies(m); ok {
			c.matched(p, k.rule, &u, hits)
			last = k.rule
		}
	}
	c.close(p)
}

// part gathers the findings about one part of a command: an exception holds
// for the part that it matched, not for the rest.
type part struct {
	span   shell.Span
	found  []found
	lifter []*rule
}

func (c *collector) open(at shell.Span) *part {
	if at.Start >= at.End {
		at = shell.Span{Start: 0, End: len(c.text)} // nested where nothing smaller is known
	}
	// A statement ends behind its ";" or "&", which is not worth underlining.
	if n := at.End; n <= len(c.text) && n-at.Start > 1 && (c.text[n-1] == ';' || c.text[n-1] == '&') && c.text[n-2] != '\\' {
		at.End -= len(c.text[at.Start:n]) - len(strings.TrimRight(c.text[at.Start:n-1], " \t\n"))
	}
	return &part{span: at}
}

func (p *part) add(r *rule, d Decision, effects []Effect, target string, via []string) {
	p.found = append(p.found, found{rule: r, decide: d, effects: effects, target: target, span: p.span, via: via})
	if len(r.Lifts) > 0 {
		p.lifter = append(p.lifter, r)
	}
}

// close applies the exceptions of a part and keeps what is left. A denial that
// is lifted leaves a boundary behind; a local change that is lifted is the
// claim of the deployment that the part only reads.
func (c *collector) close(p *part) {
	for i := range p.found {
		f := &p.found[i]
		by := -1
		if !c.examples {
			by = slices.IndexFunc(p.lifter, func(r *rule) bool { return r != f.rule && slices.Contains(r.Lifts, f.rule.ID) })
		}
		switch {
		case by < 0:
		case f.rule.decision == Deny:
			c.waive(f, "rule "+p.lifter[by].ID)
		default:
			c.noteLift(f, "rule "+p.lifter[by].ID)
			continue
		}
		c.add(*f)
	}
}

// rewritable notes a hardened form; the same part can have only one.
func (c *collector) rewritable(at shell.Span, text string) bool {
	for _, h := range c.hardened {
		if h.span == at {
			return h.text == text
		}
		if at.Start < h.span.End && h.span.Start < at.End {
			return false
		}
	}
	c.hardened = append(c.hardened, rewrite{at, text})
	return true
}

// turnsAside reports whether a use changes settings with which later parts go
// to another address than the one they show.
func turnsAside(u *program.Use) bool {
	if u.Name == "git" {
		return len(u.Sub) > 0 && u.Sub[0] == "config" && slices.ContainsFunc(u.Argv, func(a string) bool {
			a = strings.ToLower(a)
			return strings.Contains(a, "insteadof") || strings.Contains(a, "proxy") || !shell.Known(a)
		})
	}
	return unsettles(u)
}

func kindOf(u *program.Use) string {
	if u.Reach != "" {
		return u.Reach
	}
	for _, a := range u.Accesses {
		if a.Action == program.Upload {
			return "send"
		}
	}
	for _, a := range u.Accesses {
		if a.Action == program.Fetch {
			return "fetch"
		}
	}
	switch {
	case u.ReadOnly:
		return "read-only"
	case u.Known:
		return "change"
	}
	return "unknown"
}

// claims reports whether a rule would say of a file that is not a program of
// the image that it only reads: the name alone does not show that.
func (r *rule) claims(u *program.Use) bool {
	return r.decision == Allow && len(r.Lifts) > 0 && (len(u.Argv) == 0 || !program.Trusted(u.Argv[0]))
}

func (c *collector) inProfile(r *rule) bool {
	return len(r.Profiles) == 0 || slices.Contains(r.Profiles, c.profile)
}

func (c *collector) matched(p *part, r *rule, u *program.Use, hits []program.Access) {
	if c.opening(r) {
		c.egress(p, r, u)
		return
	}
	var effects []Effect
	target := ""
	if len(hits) == 0 {
		hits = touched(u)
	}
	for _, a := range hits {
		shown := shell.Show(a.Path)
		if target == "" {
			target = shown
		}
		effects = append(effects, c.effect(r, shown)...)
	}
	if target == "" {
		target = shell.Show(strings.Join(u.Argv, " "))
		effects = c.effect(r, target)
	}
	if r.decision == Allow {
		effects = nil
	}
	p.add(r, r.decision, effects, target, u.Via)
}

// touched lists what a use does beyond reading.
func touched(u *program.Use) []program.Access {
	var out []program.Access
	for _, a := range u.Accesses {
		if a.Action != program.Read {
			out = append(out, a)
		}
	}
	return out
}

func (c *collector) effect(r *rule, target string) []Effect {
	if r.Locus == "" {
		return nil
	}
	return []Effect{{Locus: r.Locus, Reversible: r.Reversible, Target: target}}
}

// add keeps a finding. When there are many, the first of every rule and
// decision still gets in, so that no rule that applied is ever lost: a grant
// may lift all the others.
func (c *collector) add(f found) {
	room := maxFindings * 4
	if f.lasting() {
		room *= 2
	}
	if len(c.all) >= room && slices.ContainsFunc(c.all, func(o found) bool { return o.rule == f.rule && o.decide == f.decide }) {
		return
	}
	c.all = append(c.all, f)
}

func (c *collector) has(r *rule) bool {
	return slices.ContainsFunc(c.all, func(f found) bool { return f.rule == r })
}
