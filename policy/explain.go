package policy

import (
	"cmp"
	"slices"
	"strings"

	"github.com/agnivade/levenshtein"
)

// Explanation is all that is written about one rule.
type Explanation struct {
	ID          string   `json:"id"`
	Decision    string   `json:"decision"`
	Reason      string   `json:"reason"`
	Alternative string   `json:"alternative"`
	File        string   `json:"file"` // where it is written; "" for a refusal of the engine itself
	Locus       Locus    `json:"locus"`
	Reversible  bool     `json:"reversible"`
	Profiles    []string `json:"profiles"`   // empty: in all
	Lifts       []string `json:"lifts"`      // rules that it lifts where it applies
	Conditions  []string `json:"conditions"` // readable; it applies when one holds
	Match       []string `json:"match"`
	NotMatch    []string `json:"not_match"`
	Grantable   bool     `json:"grantable"` // a grant may lift it
}

// refusals are the answers of the engine itself, which no file holds.
var refusals = map[string]Explanation{
	ruleUser:    {Reason: "The account is not one that commands run as.", Alternative: "Run it as agent or as root.", Conditions: []string{"the account of the request is not agent or root"}},
	ruleDir:     {Reason: "The directory is not an absolute path.", Alternative: "Give the whole path, from the root on.", Conditions: []string{"the directory of the request does not begin with a slash, or holds control characters"}},
	ruleProfile: {Reason: "There is no such profile.", Alternative: "Use sealed or open-egress.", Conditions: []string{"the profile of the request is not sealed or open-egress"}},
	ruleNothing: {Reason: "Nothing in the command could be judged.", Alternative: "Send a plain command.", Conditions: []string{"nothing in the text is a command"}},
}

// The ids of the refusals.
const (
	ruleUser    = "request.user"
	ruleProfile = "request.profile"
	ruleDir     = "request.directory"
	ruleNothing = "policy.nothing-judged"
)

// Explain returns what is written about one rule, and whether it exists. The
// rules that only the engine itself answers with are among them.
func (e *Engine) Explain(id string) (Explanation, bool) {
	if x, ok := refusals[id]; ok {
		x.ID, x.Decision = id, Deny.String()
		x.Profiles, x.Lifts, x.Match, x.NotMatch = []string{}, []string{}, []string{}, []string{}
		return x, true
	}
	r := e.rules.byID[id]
	if r == nil {
		return Explanation{}, false
	}
	x := Explanation{
		ID: r.ID, Decision: r.decision.String(), Reason: r.Reason, Alternative: r.Alternative, File: r.file, Locus: r.Locus, Reversible: r.Reversible,
		Profiles: copyOf(r.Profiles), Lifts: copyOf(r.Lifts), Match: copyOf(r.Match), NotMatch: copyOf(r.NotMatch), Conditions: []string{},
		Grantable: e.Grantable(id) == nil,
	}
	for i := range r.When {
		x.Conditions = append(x.Conditions, r.When[i].String())
	}
	return x, true
}

func copyOf(list []string) []string { return append([]string{}, list...) }

// String writes a condition as a sentence part.
func (c *condition) String() string {
	var parts []string
	say := func(what string, list ...string) {
		if len(list) > 0 && list[0] != "" {
			parts = append(parts, what+" "+strings.Join(list, " or "))
		}
	}
	say("program", c.Program...)
	if len(c.Sub) > 0 {
		say("sub-command", strings.Join(c.Sub, " "))
	}
	say("with option", c.Options...)
	say("without option", c.NoOptions...)
	say("value like", c.Value)
	say("an argument like", c.Arg)
	say("no argument like", c.NoArg)
	say("all arguments like", c.Line)
	say("the whole text like", c.Text)
	switch c.Operands {
	case "none":
		say("without operands", "(options alone)")
	case "some":
		say("with", "operands")
	}
	for i, a := range c.Action {
		if i == 0 {
			parts = append(parts, "action "+string(a))
			continue
		}
		parts[len(parts)-1] += " or " + string(a)
	}
	say("path in", c.Path...)
	say("path not in", c.NoPath...)
	if c.Tree {
		say("with all", "below it")
	}
	if c.Unknown {
		say("an argument is", "what another command printed")
	}
	say("the shell reports", c.Fact...)
	say("variable", c.Env...)
	say("variable other than", c.NoEnv...)
	say("nothing said more than", c.Default)
	return strings.Join(parts, ", ")
}

// Suggest returns up to three ids that look most like the given one, nearest
// first; none when nothing is near.
func (e *Engine) Suggest(id string) []string { return suggest(e.rules, id) }

func suggest(rules *ruleSet, id string) []string {
	type near struct {
		id string
		d  int
	}
	var list []near
	want := strings.ToLower(id)
	if len(want) < 3 || len(want) > 64 {
		return nil
	}
	for known := range rules.byID {
		d := levenshtein.ComputeDistance(want, known)
		_, tail, _ := strings.Cut(known, ".")
		if t := levenshtein.ComputeDistance(want, tail); t < d {
			d = t
		}
		if len(want) > 2 && strings.Contains(known, want) {
			d = min(d, 1)
		}
		if d <= max(2, len(want)/3) {
			list = append(list, near{known, d})
		}
	}
	slices.SortFunc(list, func(a, b near) int { return cmp.Or(a.d-b.d, strings.Compare(a.id, b.id)) })
	out := []string{}
	for _, n := range list[:min(3, len(list))] {
		out = append(out, n.id)
	}
	return out
}
