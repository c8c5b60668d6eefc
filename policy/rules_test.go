package policy

import (
	"strings"
	"testing"
)

const ownRule = `version: 1
rules:
  - id: own.no-make
    decision: deny
    reason: The build runs elsewhere.
    alternative: Ask for a build.
    when: [{program: [make]}]
    match: ["make all", "sudo make", "sh -c 'make'"]
    not_match: ["echo make", "cmake ."]
`

func TestOwnRulesTighten(t *testing.T) {
	e, err := New(Options{Rules: []RuleFile{{Name: "own.yaml", Data: []byte(ownRule)}}})
	if err != nil {
		t.Fatal(err)
	}
	v := e.Decide(Request{Command: "cd x && make test"})
	if v.Decision != Deny || v.Rule != "own.no-make" || v.Alternative != "Ask for a build." {
		t.Errorf("got %s (%s): %s", v.Decision, v.Rule, v.Alternative)
	}
	if v := e.Decide(Request{Command: "rm -rf / && make"}); v.Rule != "fs.delete-root" {
		t.Errorf("the first of the strictest does not name the rule: %s", v.Rule)
	}
}

func TestALiftedRuleIsNamedAndNoOtherOne(t *testing.T) {
	const lift = `version: 1
rules:
  - id: own.crontab
    decision: snapshot
    locus: vm-disk
    reversible: true
    reason: This sandbox tests cron.
    lifts: [control.schedule]
    when: [{program: [crontab]}]
    match: ["crontab -r"]
`
	e, err := New(Options{Rules: []RuleFile{{Name: "lift.yaml", Data: []byte(lift)}}})
	if err != nil {
		t.Fatal(err)
	}
	if v := e.Decide(Request{Command: "crontab -r"}); v.Decision != Snapshot {
		t.Errorf("got %s (%s)", v.Decision, v.Rule)
	}
	for _, cmd := range []string{"crontab -r; rm -rf /", "crontab - <<< '* * * * * rm -rf /'"} {
		if v := e.Decide(Request{Command: cmd}); v.Decision != Deny {
			t.Errorf("%q: lifting one rule lifted another: %s", cmd, v.Rule)
		}
	}
	if v := e.Decide(Request{Command: "crontab -r; echo ls | at now"}); v.Decision != Deny {
		t.Errorf("the exception for one program covers another: %s (%s)", v.Decision, v.Rule)
	}
}

func TestWrongRuleFilesAreRefused(t *testing.T) {
	rule := func(lines string) string {
		return "version: 1\nrules:\n  - id: own.x\n    decision: deny\n    reason: r.\n    alternative: a.\n" + lines
	}
	for name, c := range map[string]struct{ data, want string }{
		"not yaml":             {"\t:", "own.yaml"},
		"empty":                {"", "empty"},
		"unknown key":          {rule("    when: [{program: [x]}]\n    colour: red\n"), "colour"},
		"unknown condition":    {rule("    when: [{programme: [x]}]\n"), "programme"},
		"other version":        {"version: 2\n", "version 2"},
		"two documents":        {"version: 1\n---\nversion: 1\n", "more than one document"},
		"wrong decision":       {strings.Replace(rule("    when: [{program: [x]}]\n"), "deny", "maybe", 1), `decision "maybe"`},
		"no reason":            {"version: 1\nrules: [{id: a, decision: snapshot, when: [{program: [x]}]}]\n", "no reason"},
		"no alternative":       {"version: 1\nrules: [{id: a, decision: deny, reason: r, when: [{program: [x]}]}]\n", "no alternative"},
		"no conditions":        {rule(""), "no conditions"},
		"condition for all":    {rule("    when: [{arg: x}]\n"), "hold for everything"},
		"bad pattern":          {rule("    when: [{program: [x], arg: '('}]\n"), "missing closing"},
		"unknown path set":     {rule("    when: [{action: [write], path: [nowhere]}]\n"), "nowhere"},
		"unknown action":       {rule("    when: [{action: [burn]}]\n"), "burn"},
		"id taken":             {strings.Replace(rule("    when: [{program: [x]}]\n"), "own.x", "fs.delete-root", 1), "exists already"},
		"lifts nothing":        {rule("    lifts: [no.such]\n    when: [{program: [x]}]\n"), "no.such"},
		"unknown profile":      {rule("    profiles: [wide]\n    when: [{program: [x]}]\n"), "wide"},
		"example fails":        {rule("    when: [{program: [x]}]\n    match: [y]\n"), "does not apply to its example"},
		"counter-example":      {rule("    when: [{program: [x]}]\n    not_match: [x a]\n"), "applies to"},
		"path set taken":       {"version: 1\npaths: {device: [/dev/x]}\n", "defined twice"},
		"locus does not exist": {rule("    locus: moon\n    when: [{program: [x]}]\n"), "moon"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := New(Options{Rules: []RuleFile{{Name: "own.yaml", Data: []byte(c.data)}}})
			if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "own.yaml") {
				t.Errorf("error %v, want own.yaml and %q in it", err, c.want)
			}
		})
	}
}
