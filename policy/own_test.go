package policy

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
)

func newOwn(t testing.TB, files ...string) (*Engine, error) {
	t.Helper()
	var o Options
	for i, f := range files {
		o.Rules = append(o.Rules, RuleFile{Name: fmt.Sprintf("own%d.yaml", i+1), Data: []byte(f)})
	}
	return New(o)
}

const ownPrograms = `version: 1
programs:
  - names: [vaultsync, vs]
    effect: change
    options: "-v --verbose --config=input --region=text"
    sub:
      list: {effect: read, options: "-a --all --format=text", operands: "text*"}
      show: {effect: read, options: "--out=output", operands: "input*"}
      push: {effect: change, options: "--target=send --force", operands: "input*"}
      wipe: {effect: change, options: "--yes", operands: "delete*"}
  - names: [withenv]
    effect: launch
    alone: read
    stop: true
    options: "-q --env=text"
    operands: "command"
rules:
  - id: own.vaultsync-force
    decision: deny
    locus: external
    reason: Forcing overwrites what others stored.
    alternative: Push without --force.
    when: [{program: [vaultsync, vs], sub: [push], options: [--force]}]
    match: ["vaultsync push --force a", "vs -v push --force a", "withenv -q vs push --force a"]
    not_match: ["vaultsync push a", "vaultsync list --force"]
  - id: own.vaultsync-region
    decision: deny
    reason: That region is not ours.
    alternative: Use region north.
    when:
      - {program: [vaultsync], options: [--region], value: "^south"}
      - {program: [vaultsync], sub: [list], operands: none, no_options: [--all, -a]}
      - {program: [vaultsync], sub: [show], arg: "^secret/"}
    match: ["vaultsync --region south-1 list x", "vaultsync --region=south list x", "vaultsync list", "vaultsync show secret/a"]
    not_match: ["vaultsync --region north list x", "vaultsync list -a", "vaultsync show a"]
`

func TestOwnProgramsAreDescribed(t *testing.T) {
	e, err := newOwn(t, ownPrograms)
	if err != nil {
		t.Fatal(err)
	}
	for cmd, want := range map[string]string{
		"vaultsync list -a":                         "read-only",
		"vaultsync --verbose list --format=x a b":   "read-only",
		"vs show a b | head":                        "read-only",
		"vs show --out=f a":                         "local-change",
		"vs show --out=/etc/sudoers a":              "fs.write-accounts",
		"vs show --colour a":                        "local-change", // an option that is not described
		"vs list \"$x\"":                            "local-change", // may be an option
		"vs list > f":                               "local-change",
		"./vs list -a":                              "local-change", // a file of that name is another program
		"vs --config=f frobnicate":                  "local-change",
		"vs wipe --yes old":                         "local-change",
		"vs wipe --yes /etc":                        "fs.delete-root",
		"vs push --target=https://h.example/ a":     "egress.send",
		"vs push --force a":                         "own.vaultsync-force",
		"vaultsync --region south list x":           "own.vaultsync-region",
		"withenv -q ls":                             "read-only",
		"withenv --env=x rm -rf /etc":               "fs.delete-root",
		"withenv -q sh -c 'vs wipe /usr'":           "fs.delete-root",
		"withenv --no-such rm -rf /etc":             "fs.delete-root",
		"sudo withenv -q vaultsync push --force a":  "own.vaultsync-force",
		"vaultsync2 list":                           "unknown-program",
		"vaultsync list $(rm -rf /etc); vs list -a": "fs.delete-root",
	} {
		if v := e.Decide(Request{Command: cmd}); v.Rule != want {
			t.Errorf("%q: got %s (%s), want %s", cmd, v.Decision, v.Rule, want)
		}
	}
	if v := newEngine(t).Decide(Request{Command: "vs list -a"}); v.Rule != "unknown-program" {
		t.Errorf("a description of one engine reaches another: %s", v.Rule)
	}
}

func TestOneFileDescribesWhatAnotherUses(t *testing.T) {
	programs, rules, _ := strings.Cut(ownPrograms, "rules:\n")
	for _, files := range [][]string{{programs, "version: 1\nrules:\n" + rules}, {"version: 1\nrules:\n" + rules, programs}} {
		if _, err := newOwn(t, files...); err != nil {
			t.Error(err)
		}
	}
}

func TestWrongDescriptionsAreRefused(t *testing.T) {
	for name, c := range map[string]struct{ program, want string }{
		"built in":            {"{names: [basename], effect: read}", "describes this program already"},
		"a version of one":    {"{names: [python3.12], effect: read}", "describes this program already"},
		"another version":     {"{names: [bash5], effect: read}", "describes this program already"},
		"a family":            {"{names: [mkfs.own], effect: read}", "knows this program"},
		"named by a rule":     {"{names: [websocat2, magic-wormhole], effect: read}", "knows this program"},
		"second name":         {"{names: [own, rm], effect: read}", "already"},
		"a word of the shell": {"{names: [eval], effect: read}", "a word of the shell"},
		"a path":              {"{names: [/bin/own], effect: read}", "plain name"},
		"a pattern":           {"{names: ['own*'], effect: read}", "plain name"},
		"a redirection":       {"{names: ['>'], effect: read}", "plain name"},
		"no names":            {"{effect: read}", "without names"},
		"one name twice":      {"{names: [own, own], effect: read}", "given twice"},
		"no effect":           {"{names: [own]}", "want read, change or launch"},
		"unknown effect":      {"{names: [own], effect: write}", "want read, change or launch"},
		"unknown kind":        {"{names: [own], effect: read, options: '-a=file'}", "the kinds are"},
		"unknown operand":     {"{names: [own], effect: read, operands: 'file*'}", "the kinds are"},
		"option without dash": {"{names: [own], effect: read, options: 'a'}", "does not start with a dash"},
		"a handler":           {"{names: [own], effect: read, handler: git}", "handler"},
		"a handler below":     {"{names: [own], effect: read, sub: {x: {effect: read, handler: git}}}", "handler"},
		"names below":         {"{names: [own], effect: read, sub: {x: {effect: read, names: [y]}}}", "named by its key"},
		"empty below":         {"{names: [own], effect: read, sub: {x: }}", "sub.x"},
		"wrong alone":         {"{names: [own], effect: launch, alone: change}", "alone"},
		"alone of a reader":   {"{names: [own], effect: read, alone: read}", "alone"},
		"a dash below":        {"{names: [own], effect: read, sub: {--x: {effect: read}}}", "dash"},
		"unknown key":         {"{names: [own], effect: read, opts: '-a'}", "programs[1].opts: no such key"},
		"unknown key below":   {"{names: [own], effect: read, sub: {x: {effects: read}}}", "programs[1].sub.x.effects"},
		"wrong type":          {"{names: own, effect: read}", "want a list"},
		"options as a list":   {"{names: [own], effect: read, options: [-a]}", "want a text"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := newOwn(t, "version: 1\nprograms:\n  - "+c.program+"\n")
			var at *LoadError
			if err == nil || !strings.Contains(err.Error(), c.want) || !errors.As(err, &at) || at.File != "own1.yaml" || at.Line != 3 {
				t.Errorf("error %v, want line 3 and %q", err, c.want)
			}
		})
	}
}

// An exception of a deployment that allows is a claim about one program, not
// about files of that name, redirections, variables or arguments that run.
func TestAClaimThatAProgramReads(t *testing.T) {
	e, err := newOwn(t, `version: 1
rules:
  - id: own.frob
    decision: allow
    reason: The list of the frobnicator only reads.
    lifts: [unknown-program]
    when: [{program: [frob], sub: [list]}]
    match: ["frob list -a"]
    not_match: ["frob delete"]
`)
	if err != nil {
		t.Fatal(err)
	}
	for cmd, want := range map[string]Decision{
		"frob list -a":             Allow,
		"frob list | head":         Allow,
		"/usr/bin/frob list":       Allow,
		"frob delete":              Snapshot,
		"./frob list":              Snapshot,
		"/tmp/frob list":           Snapshot,
		"bin/frob list":            Snapshot,
		"frob list > f":            Snapshot,
		"FOO=1 frob list":          Snapshot,
		"frob list; frob delete":   Snapshot,
		"frob list $(touch x)":     Snapshot,
		"frob list rm -rf /":       Deny,
		"frob list; rm -rf /":      Deny,
		"LD_PRELOAD=./x frob list": Deny,
	} {
		v := e.Decide(Request{Command: cmd})
		if v.Decision != want {
			t.Errorf("%q: got %s (%s), want %s", cmd, v.Decision, v.Rule, want)
		}
		if want == Allow && !slices.ContainsFunc(v.Lifted, func(l Lift) bool { return l.Rule == "unknown-program" && l.By == "rule own.frob" }) {
			t.Errorf("%q: the exception is not on record: %+v", cmd, v.Lifted)
		}
	}
}

// A denial that is lifted leaves a boundary behind, even by a rule that allows.
func TestALiftedDenialIsNeverAllowed(t *testing.T) {
	e, err := newOwn(t, `version: 1
rules:
  - id: own.push
    decision: allow
    reason: This sandbox may push.
    lifts: [external.git-push, local-change]
    when: [{program: [git], sub: [push]}]
    match: ["git push"]
`)
	if err != nil {
		t.Fatal(err)
	}
	v := e.Decide(Request{Command: "git push"})
	if v.Decision != Snapshot || v.Recoverable || !slices.ContainsFunc(v.Effects, func(x Effect) bool { return x.Locus == External && !x.Reversible }) {
		t.Errorf("got %s (%s), recoverable %t, %+v", v.Decision, v.Rule, v.Recoverable, v.Effects)
	}
	if !slices.Contains(v.Lifted, Lift{Rule: "external.git-push", By: "rule own.push", Target: "git push"}) {
		t.Errorf("lifted %+v", v.Lifted)
	}
	if v := e.Decide(Request{Command: "git push; git push | tee f; gh pr merge 3"}); v.Decision != Deny {
		t.Errorf("got %s", v.Decision)
	}
}

// Without lifts, no rule of a deployment changes a verdict into a weaker one,
// whatever it applies to.
func TestOwnRulesCannotWeaken(t *testing.T) {
	before := newEngine(t)
	var b strings.Builder
	b.WriteString("version: 1\nrules:\n")
	n := 0
	for _, decision := range []string{"allow", "snapshot"} {
		for _, when := range []string{
			"{action: [read, write, delete, perms, fetch, send, run]}", "{default: read-only}", "{default: change}", "{default: unknown}", "{default: fetch}", "{default: send}", "{default: environment}",
			"{env: ['*']}", "{fact: [parse-error, control-bytes, too-large, depth-limit, unresolved-command, opaque-eval, fetch-execute, decode-execute, code-network, fork-bomb, script]}",
			"{program: [rm, git, curl, sh, bash, sudo, dd, find, python3, tee, mkfs, '>']}", "{action: [write, delete], path: [precious, system-config, '/**', '**/x']}",
		} {
			if decision == "allow" && strings.Contains(when, "'>'") {
				when = strings.Replace(when, ", '>'", "", 1)
			}
			n++
			fmt.Fprintf(&b, "  - {id: own.r%d, decision: %s, reversible: true, guess: true, reason: Test., when: [%s]}\n", n, decision, when)
		}
	}
	after, err := newOwn(t, b.String())
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range golden(t) {
		old, v := before.Decide(Request{Command: r[2]}), after.Decide(Request{Command: r[2]})
		if v.Decision > old.Decision || old.Decision == Deny && v.Rule != old.Rule {
			t.Errorf("%q: %s (%s) became %s (%s)", r[2], old.Decision, old.Rule, v.Decision, v.Rule)
		}
	}
}
