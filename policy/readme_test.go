package policy

import (
	"os"
	"reflect"
	"strings"
	"testing"

	"savepoint/policy/program"
)

// readmeRules returns the example of the documentation.
func readmeRules(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(text), "<!-- example rules -->\n```yaml\n")
	rules, _, end := strings.Cut(rest, "```\n")
	if !ok || !end {
		t.Fatal("README.md has no example rules")
	}
	return rules
}

func TestTheExampleOfTheReadmeHolds(t *testing.T) {
	e, err := newOwn(t, readmeRules(t))
	if err != nil {
		t.Fatal(err)
	}
	for cmd, want := range map[string]string{
		"fleetctl list --all":                                "read-only",
		"fleetctl export --out=f a":                          "local-change",
		"fleetctl prune old":                                 "fleet.no-prune",
		"fleetctl prune --dry-run /etc":                      "fs.delete-root",
		"fleetctl upload --to=https://fleet.example/ f":      "egress.send",
		"./fleetctl list --all":                              "local-change",
		"rm -rf /workspace/recordings":                       "fleet.keep-recordings",
		"crontab -r; curl -T f https://fleet.example/":       "egress.send",
		"fleetctl list | xargs rm -rf /workspace/recordings": "fleet.keep-recordings",
	} {
		if v := e.Decide(Request{Command: cmd}); v.Rule != want {
			t.Errorf("%q: got %s (%s), want %s", cmd, v.Decision, v.Rule, want)
		}
	}
	v := e.Decide(Request{Command: "crontab -r"})
	if v.Decision != Snapshot || len(v.Lifted) != 1 || v.Lifted[0].By != "rule fleet.may-schedule" {
		t.Errorf("got %s (%s), lifted %+v", v.Decision, v.Rule, v.Lifted)
	}
}

// The reference names every key there is.
func TestTheReadmeNamesEveryKey(t *testing.T) {
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range documentedKeys() {
		if !strings.Contains(string(text), "| `"+key+"` |") {
			t.Errorf("README.md has no row for the key %q", key)
		}
	}
}

// documentedKeys are the keys of a rules file that a deployment may use.
func documentedKeys() []string {
	var keys []string
	for _, t := range []reflect.Type{reflect.TypeFor[ruleFile](), reflect.TypeFor[rule](), reflect.TypeFor[condition](), reflect.TypeFor[program.Spec]()} {
		for key := range fieldsOf(t) {
			if key != "handler" {
				keys = append(keys, key)
			}
		}
	}
	return keys
}
