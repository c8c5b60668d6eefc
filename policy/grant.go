package policy

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Grant is what a person decided about one command: the named rule does not
// deny it. It holds for exactly these bytes and this account, until Expires.
type Grant struct {
	ID      string    `json:"id"`      // names the grant in records; one without is ignored
	Rule    string    `json:"rule"`    // id of the one rule that is lifted
	Command string    `json:"command"` // every byte of it counts
	User    User      `json:"user"`    // the zero value means Agent
	Expires time.Time `json:"expires"` // from this instant on it is ignored
}

// Lift is one exception that took effect in a verdict.
type Lift struct {
	Rule   string `json:"rule"`   // the rule that would have applied
	By     string `json:"by"`     // "grant ID" or "rule ID"
	Target string `json:"target"` // what the lifted rule was about
}

// ungrantable are the beginnings of the ids of rules about input that cannot
// be judged: nobody knows what a grant for it would let through.
var ungrantable = [...]string{"input.", "request.", "policy."}

// unjudged reports whether a rule is about input that cannot be judged.
func unjudged(id string) bool {
	return slices.ContainsFunc(ungrantable[:], func(p string) bool { return strings.HasPrefix(id, p) })
}

// Grantable says whether a grant may lift a rule; the error is for the person
// who asks for the grant.
func (e *Engine) Grantable(rule string) error {
	if unjudged(rule) {
		return fmt.Errorf("grant for rule %s: the rule is about input that cannot be judged, so nobody can say what the grant would let through; send a command that can be judged", rule)
	}
	r := e.rules.byID[rule]
	if r == nil {
		hint := "list the rules to find its id"
		if near := e.Suggest(rule); len(near) > 0 {
			hint = "did you mean " + strings.Join(near, " or ") + "?"
		}
		return fmt.Errorf("grant for rule %q: there is no such rule; %s", rule, hint)
	}
	if r.decision != Deny {
		return fmt.Errorf("grant for rule %s: it answers %s, not deny; the command runs without a grant", rule, r.decision)
	}
	return nil
}

// granted returns the id of the grant that lifts each rule for this request.
func (e *Engine) granted(r *Request, user User) map[string]string {
	if len(r.Grants) == 0 || r.Now.IsZero() {
		return nil
	}
	var out map[string]string
	for i := range r.Grants {
		g := &r.Grants[i]
		as := g.User
		if as == "" {
			as = Agent
		}
		if g.ID == "" || g.Command != r.Command || as != user || !r.Now.Before(g.Expires) || e.Grantable(g.Rule) != nil {
			continue
		}
		if out == nil {
			out = map[string]string{}
		}
		if _, ok := out[g.Rule]; !ok {
			out[g.Rule] = g.ID
		}
	}
	return out
}

// waive turns a denial into what an exception leaves of it: the command runs
// inside a boundary, and what no rollback reaches stays on record.
func (c *collector) waive(f *found, by string) {
	f.decide, f.opened = Snapshot, false
	effects := slices.Clone(f.effects)
	for i := range effects {
		if effects[i].Locus == External {
			effects[i].Reversible = false
		}
	}
	f.effects = effects
	f.reason = "Lifted by " + by + ": " + lowerFirst(f.rule.Reason)
	c.noteLift(f, by)
}

func (c *collector) noteLift(f *found, by string) {
	l := Lift{Rule: f.rule.ID, By: by, Target: f.target}
	if !slices.Contains(c.lifted, l) && len(c.lifted) < maxFindings*4 {
		c.lifted = append(c.lifted, l)
	}
}

// grant applies the grants of a request to all that was found.
func (c *collector) grant(granted map[string]string) {
	if len(granted) == 0 {
		return
	}
	for i := range c.all {
		if id, ok := granted[c.all[i].rule.ID]; ok && c.all[i].decide == Deny {
			c.waive(&c.all[i], "grant "+id)
		}
	}
}
