package policy

import (
	"cmp"
	"fmt"
	"strings"

	"savepoint/policy/program"
	"savepoint/policy/shell"
)

// The profiles of rules. The zero value of Request.Profile means Sealed.
const (
	Sealed     = "sealed"      // external writes are denied, fetching is recorded
	OpenEgress = "open-egress" // external writes to Options.OpenHosts run inside a boundary
)

// RuleFile is one file of rules in the format that README.md describes: strict
// YAML, unknown keys are errors.
type RuleFile struct {
	Name string // for error messages
	Data []byte
}

// Options configures an Engine. The zero value is the built-in rules alone.
type Options struct {
	// Rules are added to the built-in ones. They can only make verdicts
	// stricter, except where a rule names the one it lifts.
	Rules []RuleFile
	// OpenHosts are the hosts that commands may write to under the profile
	// open-egress, in lower case. "*.example.org" covers every name below;
	// a port other than the usual one has to be listed: "example.org:8443".
	OpenHosts []string
}

// Engine judges commands. It does not change after New and is safe for
// concurrent use.
type Engine struct {
	tables *program.Tables
	rules  *ruleSet
	open   []string

	agent, root *shell.Login
}

// The homes of the accounts.
const (
	agentHome = "/home/agent"
	rootHome  = "/root"
)

// New loads the built-in rules and those of the options, and runs the examples
// of the latter; a test runs those of the built-in ones. An error names the
// file, the rule and the example.
func New(o Options) (*Engine, error) {
	for _, h := range o.OpenHosts {
		if err := checkOpenHost(h); err != nil {
			return nil, fmt.Errorf("load policy: %w", err)
		}
	}
	tables, set, own, err := load(o.Rules)
	if err != nil {
		return nil, fmt.Errorf("load policy: %w", err)
	}
	e := assemble(tables, set, o.OpenHosts)
	if err := e.runExamples(own); err != nil {
		return nil, fmt.Errorf("load policy: %w", err)
	}
	return e, nil
}

func assemble(tables *program.Tables, set *ruleSet, open []string) *Engine {
	return &Engine{tables: tables, rules: set, open: append([]string(nil), open...),
		agent: shell.NewLogin(agentHome, string(Agent)), root: shell.NewLogin(rootHome, string(Root))}
}

// Decide judges one command. It never fails: what cannot be judged is denied,
// and the verdict says why.
func (e *Engine) Decide(r Request) Verdict {
	r.User, r.Profile = cmp.Or(r.User, Agent), cmp.Or(r.Profile, Sealed)
	if r.User != Agent && r.User != Root {
		return refuse(ruleUser, fmt.Sprintf("The account %q is not one that commands run as.", r.User))
	}
	if r.Profile != Sealed && r.Profile != OpenEgress {
		return refuse(ruleProfile, fmt.Sprintf("There is no profile %q.", r.Profile))
	}
	if r.Dir != "" && (!strings.HasPrefix(r.Dir, "/") || strings.ContainsFunc(r.Dir, func(c rune) bool { return c < ' ' })) {
		return refuse(ruleDir, fmt.Sprintf("The directory %q is not an absolute path.", r.Dir))
	}
	c := e.collect(r, false)
	c.settle()
	c.grant(e.granted(&r, r.User))
	return c.verdict(r.Command, r.User)
}

// refuse answers with one of the refusals; the reason shows what in the request
// it is about.
func refuse(rule, reason string) Verdict {
	return Verdict{Decision: Deny, Rule: rule, Reason: reason, Alternative: refusals[rule].Alternative}
}

// collect walks the text of a request, whose account and profile are filled
// in, and gathers the findings.
func (e *Engine) collect(r Request, examples bool) *collector {
	login, home := e.agent, agentHome
	if r.User == Root {
		login, home = e.root, rootHome
	}
	c := &collector{engine: e, profile: r.Profile, home: splitPath(home), examples: examples}
	if len(r.Command) <= shell.MaxSource {
		c.text = r.Command
	}
	w := shell.NewWalker(program.NewJudge(e.tables, c))
	sc := shell.NewScope(login).In(shell.Clean(r.Dir, ""))
	for name, value := range r.Env {
		if strings.ContainsFunc(value, func(c rune) bool { return c < ' ' && c != '\n' && c != '\t' }) {
			value = string(shell.HoleFields) // such bytes stand for what is not known
		}
		sc.Set(name, value)
	}
	w.Walk(sc, r.Command)
	return c
}

// Rules returns the ids of all rules, in the order in which they are tried.
func (e *Engine) Rules() []string {
	ids := make([]string, len(e.rules.rules))
	for i, r := range e.rules.rules {
		ids[i] = r.ID
	}
	return ids
}
