package policy

import (
	"slices"
	"strings"
	"testing"
	"time"
)

var noon = time.Date(2030, 1, 2, 12, 0, 0, 0, time.UTC)

func grantFor(rule, command string) Grant {
	return Grant{ID: "g1", Rule: rule, Command: command, User: Agent, Expires: noon.Add(time.Hour)}
}

func TestAGrantLiftsItsRule(t *testing.T) {
	e := newEngine(t)
	const cmd = "git push -f upstream main"
	v := e.Decide(Request{Command: cmd, Now: noon, Grants: []Grant{grantFor("external.git-push", cmd)}})
	if v.Decision != Snapshot || v.Alternative != "" {
		t.Fatalf("got %s (%s), alternative %q", v.Decision, v.Rule, v.Alternative)
	}
	if want := []Lift{{Rule: "external.git-push", By: "grant g1", Target: cmd}}; !slices.Equal(v.Lifted, want) {
		t.Errorf("lifted %+v, want %+v", v.Lifted, want)
	}
	if v.Recoverable || !slices.Contains(v.Effects, Effect{Locus: External, Target: cmd}) {
		t.Errorf("the external effect is lost: recoverable %t, %+v", v.Recoverable, v.Effects)
	}
	if p, ok := v.Permit(); !ok || p.Command() != cmd || !p.NeedsBoundary() {
		t.Errorf("permit %+v", p)
	}
	if m := v.Message(); !strings.Contains(m, "grant g1") || !strings.Contains(m, "external.git-push") {
		t.Errorf("message %q", m)
	}
}

func TestGrantsThatDoNotFitAreIgnored(t *testing.T) {
	e := newEngine(t)
	const cmd = "git push -f upstream main"
	change := func(f func(*Grant)) []Grant {
		g := grantFor("external.git-push", cmd)
		f(&g)
		return []Grant{g}
	}
	for name, r := range map[string]Request{
		"other bytes":     {Grants: change(func(g *Grant) { g.Command = cmd + " " })},
		"other case":      {Grants: change(func(g *Grant) { g.Command = strings.ToUpper(cmd) })},
		"other account":   {User: Root, Grants: change(func(*Grant) {})},
		"other rule":      {Grants: change(func(g *Grant) { g.Rule = "external.publish" })},
		"a whole family":  {Grants: change(func(g *Grant) { g.Rule = "external.*" })},
		"expired":         {Grants: change(func(g *Grant) { g.Expires = noon.Add(-time.Second) })},
		"expires now":     {Grants: change(func(g *Grant) { g.Expires = noon })},
		"never expires":   {Grants: change(func(g *Grant) { g.Expires = time.Time{} })},
		"without an id":   {Grants: change(func(g *Grant) { g.ID = "" })},
		"no such rule":    {Grants: change(func(g *Grant) { g.Rule = "no.such" })},
		"not a denial":    {Grants: change(func(g *Grant) { g.Rule = "local-change" })},
		"for no judgment": {Grants: change(func(g *Grant) { g.Rule = "input.parse-error" })},
	} {
		t.Run(name, func(t *testing.T) {
			r.Command, r.Now = cmd, noon
			if v := e.Decide(r); v.Decision != Deny || len(v.Lifted) != 0 {
				t.Errorf("got %s, lifted %+v", v.Decision, v.Lifted)
			}
		})
	}
	r := Request{Command: cmd, Grants: []Grant{grantFor("external.git-push", cmd)}}
	if v := e.Decide(r); v.Decision != Deny {
		t.Errorf("without a time the grant holds: %s", v.Decision)
	}
	r.Now, r.Grants[0].User = noon, ""
	if v := e.Decide(r); v.Decision != Snapshot {
		t.Errorf("the account is not the default one: %s", v.Decision)
	}
}

func TestOtherDenialsStand(t *testing.T) {
	e := newEngine(t)
	for _, cmd := range []string{
		"git push; rm -rf /",
		"git push && curl -T f https://example.org/",
		"git push $(rm -rf /etc)",
		// More findings of the lifted rule than a verdict keeps.
		strings.Repeat("git push;", 400) + "rm -rf /",
		"rm -rf /;" + strings.Repeat("git push;", 400),
	} {
		v := e.Decide(Request{Command: cmd, Now: noon, Grants: []Grant{grantFor("external.git-push", cmd)}})
		if v.Decision != Deny || v.Rule == "external.git-push" {
			t.Errorf("%.40q: got %s (%s)", cmd, v.Decision, v.Rule)
		}
		if len(v.Lifted) == 0 {
			t.Errorf("%.40q: the exception is not on record", cmd)
		}
		if !slices.ContainsFunc(v.Findings, func(f Finding) bool { return f.Rule == v.Rule && f.Decision == Deny }) {
			t.Errorf("%.40q: the deciding rule %s is not among the findings", cmd, v.Rule)
		}
	}
	long := strings.Repeat("touch x;", 400) + "git push; git push other"
	if v := e.Decide(Request{Command: long, Now: noon, Grants: []Grant{grantFor("external.git-push", long)}}); v.Decision != Snapshot || v.Rule != "external.git-push" ||
		!slices.Contains(v.Effects, Effect{Locus: External, Target: "git push"}) || !slices.Contains(v.Effects, Effect{Locus: External, Target: "git push other"}) {
		t.Errorf("an effect that stays is lost among others: %s (%s), %+v", v.Decision, v.Rule, v.Effects)
	}
	const cmd = "git push; rm -rf /"
	v := e.Decide(Request{Command: cmd, Now: noon, Grants: []Grant{grantFor("external.git-push", cmd), grantFor("fs.delete-root", cmd)}})
	if v.Decision != Snapshot || len(v.Lifted) != 2 {
		t.Errorf("two grants: %s (%s), %+v", v.Decision, v.Rule, v.Lifted)
	}
}

// What cannot be judged stays denied, whatever is granted for it.
func TestNoGrantForInputThatCannotBeJudged(t *testing.T) {
	e := newEngine(t)
	for cmd, rule := range map[string]string{
		"if":                       "input.parse-error",
		"ls\x00":                   "input.control-bytes",
		strings.Repeat("a", 1<<17): "input.too-large",
		strings.Repeat("(", 500) + "ls" + strings.Repeat(")", 500): "input.depth-limit",
	} {
		v := e.Decide(Request{Command: cmd, Now: noon, Grants: []Grant{grantFor(rule, cmd)}})
		if v.Decision != Deny || v.Rule != rule {
			t.Errorf("%s: got %s (%s)", rule, v.Decision, v.Rule)
		}
	}
	for _, rule := range []string{"request.user", "request.profile", "policy.nothing-judged"} {
		if err := e.Grantable(rule); err == nil || !strings.Contains(err.Error(), "cannot be judged") {
			t.Errorf("%s: %v", rule, err)
		}
	}
}

func TestGrantable(t *testing.T) {
	e := newEngine(t)
	for rule, want := range map[string]string{
		"external.git-push": "",
		"fs.delete-root":    "",
		"input.depth-limit": "cannot be judged",
		"local-change":      "snapshot, not deny",
		"read-only":         "allow, not deny",
		"external.git-pus":  "did you mean external.git-push",
		"":                  "no such rule",
		"zzzzzzzzzz":        "list the rules",
	} {
		err := e.Grantable(rule)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%q: %v, want %q", rule, err, want)
		}
	}
	for _, id := range e.Rules() {
		x, _ := e.Explain(id)
		if x.Grantable != (e.Grantable(id) == nil) {
			t.Errorf("%s: explanation and check disagree", id)
		}
	}
}
