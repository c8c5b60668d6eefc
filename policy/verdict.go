package policy

import (
	"slices"
	"strings"

	"savepoint/policy/program"
	"savepoint/policy/shell"
)

const (
	maxFindings = 64 // kept per verdict; deciding ones are never dropped
	maxEffects  = 32
)

// Finding is one rule that applied to one part of a command.
type Finding struct {
	Rule     string     `json:"rule"`
	Decision Decision   `json:"decision"`
	Target   string     `json:"target"`
	Span     shell.Span `json:"span"`
	Via      []string   `json:"via"` // launchers around the part, outermost first
}

type found struct {
	rule    *rule
	decide  Decision
	effects []Effect
	target  string
	span    shell.Span
	via     []string
}

// collector is the program.Sink of one Decide.
type collector struct {
	engine   *Engine
	profile  string
	home     []string // components of the account's home
	text     string   // the judged text
	all      []found
	examples bool // run for the examples of rules: nothing is lifted
	seen     bool // something was judged
	hardened []rewrite
}

// rewrite replaces a part of the judged text.
type rewrite struct {
	span shell.Span
	text string
}

// Fact takes a fact of the shell or of code.
func (c *collector) Fact(f shell.Fact) {
	c.seen = true
	before := len(c.all)
	var last *rule
	var lifts []string
	for _, k := range c.engine.rules.forFact(f.Kind) {
		if k.rule != last && c.inProfile(k.rule) && k.condition.factApplies(&f) {
			c.add(k.rule, k.rule.decision, c.effect(k.rule, f.Target), f.Target, f.Span, f.Via)
			last = k.rule
			lifts = append(lifts, k.rule.Lifts...)
		}
	}
	c.lift(before, lifts)
}

// Use takes a program.
func (c *collector) Use(u program.Use) {
	if u.Tentative && len(u.Argv) < 2 {
		return // one bare word is a name, not a command
	}
	c.seen = c.seen || !u.Tentative
	kind := kindOf(&u)
	if u.Hardened != "" && !u.Tentative {
		kind = "read-only"
		if u.Span == (shell.Span{}) || !c.rewritable(u.Span, u.Hardened) || len(u.Via) > 0 {
			kind = "change"
		}
	}
	m := c.newUse(u, kind)
	before := len(c.all)
	var last *rule
	var lifts []string
	for _, k := range c.engine.rules.forProgram(u.Name) {
		if k.rule == last || u.Tentative && !k.rule.Guess || !c.inProfile(k.rule) {
			continue
		}
		if hits, ok := k.condition.applies(m); ok {
			c.matched(k.rule, &u, hits)
			last = k.rule
			lifts = append(lifts, k.rule.Lifts...)
		}
	}
	c.lift(before, lifts)
}

// lift drops what the named rules found since a place: an exception holds for
// the part of the command that it matched, not for the rest.
func (c *collector) lift(since int, rules []string) {
	if len(rules) == 0 || since > len(c.all) || c.examples {
		return
	}
	kept := slices.DeleteFunc(slices.Clone(c.all[since:]), func(f found) bool { return slices.Contains(rules, f.rule.ID) })
	c.all = append(c.all[:since], kept...)
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

func kindOf(u *program.Use) string {
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

func (c *collector) inProfile(r *rule) bool {
	return len(r.Profiles) == 0 || slices.Contains(r.Profiles, c.profile)
}

func (c *collector) matched(r *rule, u *program.Use, hits []program.Access) {
	decision := r.decision
	var effects []Effect
	target := ""
	if len(hits) == 0 {
		hits = touched(u)
	}
	opened := c.profile == OpenEgress && r.Locus == External && r.decision == Deny && len(hits) > 0
	for _, a := range hits {
		shown := shell.Show(a.Path)
		if target == "" {
			target = shown
		}
		effects = append(effects, c.effect(r, shown)...)
		opened = opened && c.engine.opens(a.Path)
	}
	if target == "" {
		target = shell.Show(strings.Join(u.Argv, " "))
		effects = c.effect(r, target)
		opened = false
	}
	if opened {
		decision = Snapshot
	}
	if r.decision == Allow {
		effects = nil
	}
	c.add(r, decision, effects, target, u.Span, u.Via)
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

func (c *collector) add(r *rule, d Decision, effects []Effect, target string, span shell.Span, via []string) {
	f := found{rule: r, decide: d, effects: effects, target: target, span: span, via: via}
	if len(c.all) < maxFindings*4 {
		c.all = append(c.all, f)
		return
	}
	// Full: a stricter finding still gets in, so that none is ever lost.
	for i := range c.all {
		if c.all[i].decide > d {
			c.all[i] = f
			return
		}
	}
}

func (c *collector) has(r *rule) bool {
	return slices.ContainsFunc(c.all, func(f found) bool { return f.rule == r })
}

// verdict combines the findings: the strictest wins, the first of them names
// the rule.
func (c *collector) verdict(command string, user User) Verdict {
	v := Verdict{Decision: Deny, Rule: "policy.nothing-judged", Reason: "nothing in the command could be judged", Alternative: "Send a plain command."}
	best := -1
	for i, f := range c.all {
		if best < 0 || f.decide < c.all[best].decide {
			best = i
		}
	}
	if best < 0 || !c.seen {
		return v
	}
	top := c.all[best]
	v = Verdict{Decision: top.decide, Rule: top.rule.ID, Reason: top.rule.Reason, Alternative: top.rule.Alternative, Recoverable: true}
	for _, f := range c.all {
		if f.decide < Allow && !f.rule.Reversible {
			v.Recoverable = false
		}
		for _, e := range f.effects {
			if len(v.Effects) < maxEffects && !slices.Contains(v.Effects, e) {
				v.Effects = append(v.Effects, e)
			}
		}
		if len(v.Findings) < maxFindings {
			v.Findings = append(v.Findings, Finding{Rule: f.rule.ID, Decision: f.decide, Target: f.target, Span: f.span, Via: f.via})
		}
	}
	if v.Decision == Deny {
		return v
	}
	text := command
	if v.Decision == Allow {
		v.Effects = nil
		text = c.rewritten(command)
	}
	v.permit = Permit{valid: true, command: text, user: user, decision: v.Decision}
	return v
}

// rewritten puts the hardened forms into the judged text.
func (c *collector) rewritten(command string) string {
	list := slices.Clone(c.hardened)
	slices.SortFunc(list, func(a, b rewrite) int { return b.span.Start - a.span.Start })
	for _, h := range list {
		command = command[:h.span.Start] + h.text + command[h.span.End:]
	}
	return command
}
