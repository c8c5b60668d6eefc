package policy

import (
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
// of every rule. An error names the file, the rule and the example.
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
	user := r.User
	if user == "" {
		user = Agent
	}
	if user != Agent && user != Root {
		return e.refuse(ruleUser, fmt.Sprintf("the account %q is not one that commands run as", user))
	}
	profile := r.Profile
	if profile == "" {
		profile = Sealed
	}
	if profile != Sealed && profile != OpenEgress {
		return e.refuse(ruleProfile, fmt.Sprintf("there is no profile %q", profile))
	}
	if r.Dir != "" && (!strings.HasPrefix(r.Dir, "/") || strings.ContainsFunc(r.Dir, func(c rune) bool { return c < ' ' })) {
		return e.refuse(ruleDir, fmt.Sprintf("the directory %q is not an absolute path", r.Dir))
	}
	c := e.collectIn(r.Dir, r.Env, r.Command, user, profile, false)
	c.settle()
	c.grant(e.granted(&r, user))
	return c.verdict(r.Command, user)
}

func (e *Engine) refuse(rule, reason string) Verdict {
	return Verdict{Decision: Deny, Rule: rule, Reason: reason, Alternative: "Use one of the names in the documentation."}
}

// collect walks the text and gathers the findings.
func (e *Engine) collect(command string, user User, profile string, examples bool) *collector {
	return e.collectIn("", nil, command, user, profile, examples)
}

// collectIn is collect for a command that begins in dir, "" assumes nothing, and
// with variables besides those of a login.
func (e *Engine) collectIn(dir string, env map[string]string, command string, user User, profile string, examples bool) *collector {
	login, home := e.agent, agentHome
	if user == Root {
		login, home = e.root, rootHome
	}
	c := &collector{engine: e, profile: profile, home: splitPath(home), examples: examples}
	if len(command) <= shell.MaxSource {
		c.text = command
	}
	w := shell.NewWalker(program.NewJudge(e.tables, c))
	sc := shell.NewScope(login).In(shell.Clean(dir, ""))
	for name, value := range env {
		if strings.ContainsFunc(value, func(c rune) bool { return c < ' ' && c != '\n' && c != '\t' }) {
			value = string(shell.HoleFields) // such bytes stand for what is not known
		}
		sc.Set(name, value)
	}
	w.Walk(sc, command)
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

// Rule returns what is written about one rule, and whether it exists.
func (e *Engine) Rule(id string) (RuleInfo, bool) {
	r := e.rules.byID[id]
	if r == nil {
		return RuleInfo{}, false
	}
	return RuleInfo{ID: r.ID, Decision: r.decision, Reason: r.Reason, Alternative: r.Alternative, File: r.file, Match: r.Match, NotMatch: r.NotMatch}, true
}

// RuleInfo is a rule as a person reads it.
type RuleInfo struct {
	ID          string
	Decision    Decision
	Reason      string
	Alternative string
	File        string
	Match       []string // commands the rule applies to
	NotMatch    []string // commands it does not apply to
}
