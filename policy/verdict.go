package policy

import (
	"cmp"
	"slices"

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
	Reason   string     `json:"reason"`
	Target   string     `json:"target"`
	Span     shell.Span `json:"span"` // bytes of the judged command
	Via      []string   `json:"via"`  // launchers around the part, outermost first
}

type found struct {
	rule    *rule
	decide  Decision
	effects []Effect
	target  string
	span    shell.Span
	via     []string

	opened              bool   // a denial that the profile opens
	reason, alternative string // in place of those of the rule
}

func (f *found) why() string { return cmp.Or(f.reason, f.rule.Reason) }

// lasting reports whether it has an effect outside that stays.
func (f *found) lasting() bool {
	return slices.ContainsFunc(f.effects, func(x Effect) bool { return x.Locus == External && !x.Reversible })
}

// instead is empty for a denial that is lifted or opened.
func (f *found) instead() string {
	if f.decide != f.rule.decision {
		return ""
	}
	return cmp.Or(f.alternative, f.rule.Alternative)
}

// verdict combines the findings: the strictest wins, the first of them names
// the rule. Of what runs inside a boundary, an effect that no rollback reaches
// names it: that is what whoever reads the verdict has to know.
func (c *collector) verdict(command string, user User) Verdict {
	v := refuse(ruleNothing, refusals[ruleNothing].Reason)
	v.command = c.text
	top := c.top()
	if top == nil || !c.seen {
		return v
	}
	v = Verdict{Decision: top.decide, Rule: top.rule.ID, Reason: top.why(), Alternative: top.instead(), Recoverable: true, Lifted: c.lifted, command: c.text}
	for _, f := range c.all {
		if f.decide < Allow && !f.rule.Reversible {
			v.Recoverable = false
		}
	}
	kept := strictest(c.all)
	v.Effects = effects(c.all)
	for _, f := range kept {
		v.Findings = append(v.Findings, Finding{Rule: f.rule.ID, Decision: f.decide, Reason: f.why(), Target: f.target, Span: f.span, Via: f.via})
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

// top returns the finding that decides: the first of the strictest. Of those
// that need a boundary, one with an effect that no rollback reaches comes
// first: that is what whoever reads the verdict has to know.
func (c *collector) top() *found {
	var best *found
	for i := range c.all {
		f := &c.all[i]
		if best == nil || f.decide < best.decide || f.decide == Snapshot && f.weight() < best.weight() {
			best = f
		}
	}
	return best
}

// strictest returns the findings that a verdict has room for, in the order
// found: all, or the strictest when there are too many.
func strictest(all []found) []found {
	if len(all) <= maxFindings {
		return all
	}
	order := make([]int, len(all))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return all[a].weight() - all[b].weight() })
	order = order[:maxFindings]
	slices.Sort(order)
	out := make([]found, len(order))
	for i, n := range order {
		out[i] = all[n]
	}
	return out
}

// weight orders findings: the strictest first, and those with an effect that
// stays before others of the same decision.
func (f *found) weight() int {
	if f.lasting() {
		return 2 * int(f.decide)
	}
	return 2*int(f.decide) + 1
}

// effects lists the different effects in the order found. When there are too
// many, those that no rollback reaches come before the others.
func effects(all []found) []Effect {
	var out []Effect
	for _, f := range all {
		for _, e := range f.effects {
			if !slices.Contains(out, e) {
				out = append(out, e)
			}
		}
	}
	if len(out) <= maxEffects {
		return out
	}
	slices.SortStableFunc(out, func(a, b Effect) int { return rank(a) - rank(b) })
	return out[:maxEffects]
}

func rank(e Effect) int {
	if e.Reversible {
		return 1
	}
	return 0
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
