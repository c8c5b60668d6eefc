package policy

import (
	"errors"
	"strings"
	"testing"
)

// What is wrong with a rules file is said with the file, the line, the rule,
// the key, and what to do.
func TestLoadErrorsSayWhere(t *testing.T) {
	const head = "version: 1\nrules:\n  - id: own.a\n    decision: snapshot\n    reason: r.\n    when: [{program: [x]}]\n"
	const deny = "  - id: own.b\n    decision: deny\n    reason: r.\n    alternative: a.\n"
	for name, c := range map[string]struct {
		data, rule, key, want string
		line                  int
	}{
		"syntax":               {"version: 1\nrules: [\n", "", "", "not YAML", 0},
		"a list":               {"- version: 1\n", "", "", "want keys with values", 1},
		"a text":               {"rules\n", "", "", "want keys with values", 1},
		"nothing":              {"# only a comment\n", "", "", "empty", 0},
		"version missing":      {"rules:\n  - id: x\n    decision: snapshot\n    reason: r.\n    when: [{program: [x]}]\n", "", "version", "write version: 1", 1},
		"version text":         {"version: one\n", "", "version", "want a number", 1},
		"key at the top":       {"version: 1\nrule: []\n", "", "rule", "keys here are paths, programs, rules, version", 2},
		"key twice":            {head + "    reason: again.\n", "own.a", "reason", "given twice", 7},
		"unknown key":          {head + deny + "    colour: red\n", "own.b", "colour", "no such key", 11},
		"unknown condition":    {head + deny + "    when:\n      - program: [y]\n      - {programme: [y]}\n", "own.b", "when[2].programme", "no such key", 13},
		"merged key":           {"version: 1\nrules:\n  - &a {id: own.a, decision: snapshot, reason: r., when: [{program: [x]}]}\n  - {<<: *a, id: own.c}\n", "own.c", "<<", "no such key", 4},
		"list for a text":      {head + deny + "    when: [{program: [y]}]\n    locus: [external]\n", "own.b", "locus", "holds a list; want a text", 12},
		"text for a list":      {head + deny + "    when: [{program: y}]\n", "own.b", "when[1].program", `holds "y"; want a list`, 11},
		"keys for a list":      {head + deny + "    when: {program: [y]}\n", "own.b", "when", "want a list", 11},
		"text for a truth":     {head + deny + "    when: [{program: [y]}]\n    reversible: yes please\n", "own.b", "reversible", "want true or false", 12},
		"nothing for a text":   {head + deny + "    when: [{program: [y]}]\n    locus:\n", "own.b", "locus", "holds nothing", 12},
		"empty list":           {head + deny + "    when: [{program: [], action: [write]}]\n", "own.b", "when[1].program", "the list is empty", 11},
		"empty text":           {head + deny + "    when: [{program: [y], arg: ''}]\n", "own.b", "when[1].arg", "empty text", 11},
		"empty text in a list": {head + deny + "    when: [{program: ['']}]\n", "own.b", "when[1].program[1]", "empty text", 11},
		"a rule is a text":     {"version: 1\nrules: [x]\n", "", "", "want keys with values", 2},
		"no id":                {"version: 1\nrules:\n  - {decision: snapshot, reason: r., when: [{program: [x]}]}\n", "", "id", "no id", 3},
		"wrong id":             {"version: 1\nrules:\n  - {id: Own Rule, decision: snapshot, reason: r., when: [{program: [x]}]}\n", "Own Rule", "id", "lower-case", 3},
		"kept id":              {"version: 1\nrules:\n  - {id: input.own, decision: snapshot, reason: r., when: [{program: [x]}]}\n", "input.own", "id", "kept for the policy", 3},
		"id twice":             {head + strings.Replace(deny, "own.b", "own.a", 1) + "    when: [{program: [y]}]\n", "own.a", "id", "exists already in own.yaml", 7},
		"built-in id":          {strings.Replace(head, "own.a", "fs.delete-root", 1), "fs.delete-root", "id", "exists already in rules/10-files.yaml", 3},
		"decision":             {strings.Replace(head, "snapshot", "block", 1), "own.a", "decision", "want deny, snapshot or allow", 3},
		"pattern":              {head + deny + "    when: [{program: [y], line: '(a'}]\n", "own.b", "when[1].line", "RE2", 7},
		"set of paths":         {head + deny + "    when: [{action: [write], path: [devices]}]\n", "own.b", "when[1].path", `no set of paths "devices"`, 7},
		"relative path":        {"version: 1\npaths:\n  mine: [x/y]\n", "", "paths.mine", "absolute path", 3},
		"path with dots":       {head + deny + "    when: [{action: [write], path: [/x/../y]}]\n", "own.b", "when[1].path", "without . and ..", 7},
		"path with stars":      {head + deny + "    when: [{action: [write], path: [/x/**/y]}]\n", "own.b", "when[1].path", "** stands only", 7},
		"path of another home": {head + deny + "    when: [{action: [write], path: [~bob/x]}]\n", "own.b", "when[1].path", "home of the account", 7},
		"fact":                 {head + deny + "    when: [{fact: [parse-eror]}]\n", "own.b", "when[1].fact", "the facts are", 7},
		"fact and program":     {head + deny + "    when: [{fact: [script], program: [y]}]\n", "own.b", "when[1].fact", "stands alone", 7},
		"env and program":      {head + deny + "    when: [{env: [X], program: [y]}]\n", "own.b", "when[1].env", "only with value and no_env", 7},
		"no_env alone":         {head + deny + "    when: [{program: [y], no_env: [X]}]\n", "own.b", "when[1].no_env", "without env", 7},
		"value alone":          {head + deny + "    when: [{program: [y], value: x}]\n", "own.b", "when[1].value", "without options or env", 7},
		"tree alone":           {head + deny + "    when: [{program: [y], tree: true}]\n", "own.b", "when[1].action", "no effect", 7},
		"lifts misspelt":       {head + "    lifts: [control.schedul]\n", "own.a", "lifts", "did you mean control.schedule", 3},
		"lifts input":          {head + "    lifts: [input.parse-error]\n", "own.a", "lifts", "cannot be judged", 3},
		"lifts the limit":      {head + "    lifts: [input.depth-limit]\n", "own.a", "lifts", "cannot be judged", 3},
		"lifts itself":         {head + "    lifts: [own.a]\n", "own.a", "lifts", "cannot lift itself", 3},
		"lifts what allows":    {head + "    lifts: [read-only]\n", "own.a", "lifts", "nothing to lift", 3},
		"lifts a record":       {head + "    lifts: [egress.fetch]\n", "own.a", "lifts", "only records", 3},
		"lifts its like":       {head + "    lifts: [local-change]\n", "own.a", "lifts", "as this one does", 3},
		"a denial lifts":       {head + deny + "    when: [{program: [y]}]\n    lifts: [control.schedule]\n", "own.b", "lifts", "lifts nothing", 7},
		"allows the unknown":   {strings.Replace(head, "snapshot", "allow", 1), "own.a", "when", "lifts: [unknown-program]", 3},
		"allows a pattern":     {strings.Replace(strings.Replace(head, "snapshot", "allow", 1), "[x]", "['*']", 1), "own.a", "when", "does not know", 3},
		"example":              {head + "    match: [y]\n", "own.a", "match", `does not apply to its example "y"`, 3},
		"counter-example":      {head + "    not_match: [x a]\n", "own.a", "not_match", `applies to "x a"`, 3},
		"too long":             {head + "#" + strings.Repeat("x", maxRuleFile), "", "", "split it", 0},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := New(Options{Rules: []RuleFile{{Name: "own.yaml", Data: []byte(c.data)}}})
			var at *LoadError
			if !errors.As(err, &at) {
				t.Fatalf("error %v", err)
			}
			if at.File != "own.yaml" || at.Line != c.line || at.Rule != c.rule || at.Key != c.key || !strings.Contains(err.Error(), c.want) {
				t.Errorf("line %d, rule %q, key %q: %v; want line %d, rule %q, key %q and %q", at.Line, at.Rule, at.Key, err, c.line, c.rule, c.key, c.want)
			}
		})
	}
}

// All that is wrong with the keys of a file is said at once.
func TestSeveralMistakesAreListed(t *testing.T) {
	_, err := newOwn(t, "version: 1\nrules:\n  - {id: own.a, decision: snapshot, reason: [], when: [{programs: [x]}], colour: red}\n")
	for _, want := range []string{"own.a: reason", "own.a: when[1].programs", "own.a: colour"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v lacks %q", err, want)
		}
	}
}

func TestAnchorsAreFollowed(t *testing.T) {
	const file = "version: 1\nrules:\n  - {id: own.a, decision: deny, reason: r., alternative: a., when: [&x {program: [own1], line: 'bad'}]}\n" +
		"  - {id: own.b, decision: deny, reason: r., alternative: a., when: [*x]}\n"
	e, err := newOwn(t, file)
	if err != nil {
		t.Fatal(err)
	}
	if v := e.Decide(Request{Command: "own1 bad"}); v.Rule != "own.a" || len(v.Findings) < 3 {
		t.Errorf("%s, %+v", v.Rule, v.Findings)
	}
	for _, bad := range []string{
		"version: 1\nrules: &r [*r]\n", "version: 1\nrules: &r\n  - {id: own.a, when: *r}\n",
		"version: 1\nprograms: [&p {names: [own], effect: read, sub: {x: *p}}]\n",
		"version: 1\npaths: &p {a: *p}\n",
	} {
		if _, err := newOwn(t, bad); err == nil {
			t.Errorf("%q: something that holds itself is loaded", bad)
		}
	}
}

// Every example of the built-in rules does what it says.
func TestBuiltInExamples(t *testing.T) {
	e := newEngine(t)
	if err := e.runExamples(e.rules.rules); err != nil {
		t.Error(err)
	}
	for _, r := range e.rules.rules {
		if len(r.Match) == 0 && len(r.When) > 0 && r.When[0].Fact == nil {
			t.Logf("rule %s has no example", r.ID)
		}
	}
}
