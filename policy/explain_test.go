package policy

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
)

func TestEveryRuleIsExplained(t *testing.T) {
	e := newEngine(t)
	for _, id := range append(e.Rules(), "request.user", "request.profile", "policy.nothing-judged") {
		x, ok := e.Explain(id)
		if !ok || x.ID != id || x.Reason == "" || len(x.Conditions) == 0 || x.Decision == "deny" && x.Alternative == "" {
			t.Errorf("%s: %t %+v", id, ok, x)
		}
		if slices.Contains(x.Conditions, "") {
			t.Errorf("%s: a condition says nothing: %q", id, x.Conditions)
		}
		text, err := json.Marshal(x)
		if err != nil || strings.Contains(string(text), ":null") {
			t.Errorf("%s: %s, %v", id, text, err)
		}
	}
	if _, ok := e.Explain("no.such"); ok {
		t.Error("a rule that does not exist is explained")
	}
}

func TestExplanationSaysWhatIsWritten(t *testing.T) {
	const file = `version: 1
rules:
  - id: own.deploy
    decision: snapshot
    locus: vm-disk
    reversible: true
    profiles: [open-egress]
    reason: This sandbox tests cron.
    lifts: [control.schedule]
    when:
      - {program: [crontab, at], options: ["-r", "--remove"], value: "^a", no_arg: "^b$", operands: some}
      - {action: [write, delete], path: [boot, /opt/x], no_path: ["~/y"], tree: true}
      - {env: [MY_VAR], no_env: [MY_VARIANT]}
      - {fact: [script]}
    match: [". ./x"]
    not_match: ["ls"]
`
	e, err := New(Options{Rules: []RuleFile{{Name: "own.yaml", Data: []byte(file)}}})
	if err != nil {
		t.Fatal(err)
	}
	x, ok := e.Explain("own.deploy")
	if !ok || x.File != "own.yaml" || x.Locus != VMDisk || !x.Reversible || x.Grantable || x.Decision != "snapshot" ||
		!slices.Equal(x.Profiles, []string{OpenEgress}) || !slices.Equal(x.Lifts, []string{"control.schedule"}) || len(x.Match) != 1 || len(x.NotMatch) != 1 {
		t.Errorf("%+v", x)
	}
	want := []string{
		"program crontab or at, with option -r or --remove, value like ^a, no argument like ^b$, with operands",
		"action write or delete, path in boot or /opt/x, path not in ~/y, with all below it",
		"variable MY_VAR, variable other than MY_VARIANT",
		"the shell reports script",
	}
	if !slices.Equal(x.Conditions, want) {
		t.Errorf("got %q\nwant %q", x.Conditions, want)
	}
}

func TestSuggest(t *testing.T) {
	e := newEngine(t)
	for id, want := range map[string]string{
		"fs.delete-rot":    "fs.delete-root",
		"FS.Delete-Root":   "fs.delete-root",
		"git-push":         "external.git-push",
		"external.gitpush": "external.git-push",
		"publish":          "external.publish",
		"zzzzzzzz":         "",
		"":                 "",
	} {
		got := e.Suggest(id)
		if want == "" && len(got) > 0 || want != "" && (len(got) == 0 || got[0] != want) || len(got) > 3 {
			t.Errorf("%q: %q, want %q first", id, got, want)
		}
	}
	if got := e.Suggest(strings.Repeat("x", 1<<20)); len(got) != 0 {
		t.Errorf("a long id: %q", got)
	}
}
