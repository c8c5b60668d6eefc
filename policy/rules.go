package policy

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"savepoint/policy/program"
	"savepoint/policy/shell"
)

//go:embed rules/*.yaml
var builtIn embed.FS

// ruleFile is the whole of a rules file:
//
//	version: 1
//	paths:                         # names for sets of paths
//	  device: ["/dev/sd*"]
//	rules:
//	  - id: fs.write-device        # unique; what a verdict names
//	    decision: deny             # deny, snapshot or allow
//	    locus: vm-control          # where the effect is; none for refusals
//	    reversible: true           # whether a boundary undoes it
//	    profiles: [sealed]         # all when missing
//	    guess: true                # applies also where a command is only suspected
//	    reason: One sentence for a person.
//	    alternative: What to do instead.
//	    when:                      # the rule applies when one of these does
//	      - action: [write]
//	        path: [device]
//	    match: ["dd of=/dev/sda"]  # examples, run when the file is loaded
//	    not_match: ["dd of=disk.img"]
//
// Paths are absolute, "~" is the home of the account, "*" stands inside one
// component, a last component "**" for everything below, and a first "**/" for
// any directory.
type ruleFile struct {
	Version int                 `yaml:"version"`
	Paths   map[string][]string `yaml:"paths"`
	Rules   []*rule             `yaml:"rules"`
}

type rule struct {
	ID          string      `yaml:"id"`
	Decision    string      `yaml:"decision"`
	Locus       Locus       `yaml:"locus"`
	Reversible  bool        `yaml:"reversible"`
	Profiles    []string    `yaml:"profiles"`
	Guess       bool        `yaml:"guess"`
	Reason      string      `yaml:"reason"`
	Alternative string      `yaml:"alternative"`
	Lifts       []string    `yaml:"lifts"`
	When        []condition `yaml:"when"`
	Match       []string    `yaml:"match"`
	NotMatch    []string    `yaml:"not_match"`

	decision Decision
	file     string
}

// condition holds when all of its parts do. A part that is missing holds.
type condition struct {
	Program   []string         `yaml:"program"`    // names, "*" inside
	Sub       []string         `yaml:"sub"`        // sub-command path, alternatives with "|"
	Options   []string         `yaml:"options"`    // one of these is given
	NoOptions []string         `yaml:"no_options"` // none of these is
	Value     string           `yaml:"value"`      // pattern for the value of the option, or of the variable
	Arg       string           `yaml:"arg"`        // pattern for one argument
	NoArg     string           `yaml:"no_arg"`     // no argument matches it
	Line      string           `yaml:"line"`       // pattern for all arguments, joined by blanks
	Text      string           `yaml:"text"`       // pattern for the whole judged text
	Operands  string           `yaml:"operands"`   // "none" or "some"
	Action    []program.Action `yaml:"action"`     // what is done to a target
	Path      []string         `yaml:"path"`       // names of path sets, or paths
	NoPath    []string         `yaml:"no_path"`
	Tree      bool             `yaml:"tree"`    // only with everything below
	Unknown   bool             `yaml:"unknown"` // some argument is what another command printed
	Fact      []string         `yaml:"fact"`    // kinds of fact
	Env       []string         `yaml:"env"`     // names of variables, "*" inside
	NoEnv     []string         `yaml:"no_env"`
	Default   string           `yaml:"default"` // read-only, change, unknown, fetch, send

	value, arg, noArg, line, text *regexp.Regexp
	path, noPath                  []pathPattern
}

type ruleSet struct {
	rules []*rule

	programs map[string][]candidate // by program name, in the order of the rules
	others   []candidate            // for programs that no condition names
	facts    map[string][]candidate
}

// candidate is a condition that may hold, with its rule.
type candidate struct {
	rule      *rule
	condition *condition
}

func (s *ruleSet) forProgram(name string) []candidate {
	if list, ok := s.programs[name]; ok {
		return list
	}
	return s.others
}

func (s *ruleSet) forFact(kind string) []candidate { return s.facts[kind] }

// index sorts the conditions by what can make them hold.
func (s *ruleSet) index() {
	s.programs, s.facts = map[string][]candidate{}, map[string][]candidate{}
	for _, r := range s.rules {
		for i := range r.When {
			for _, p := range r.When[i].Program {
				if !strings.Contains(p, "*") {
					s.programs[p] = nil
				}
			}
		}
	}
	for _, r := range s.rules {
		for i := range r.When {
			k := candidate{r, &r.When[i]}
			c := k.condition
			if len(c.Fact) > 0 || len(c.Env) > 0 || c.Default == "environment" {
				kinds := c.Fact
				if len(kinds) == 0 {
					kinds = []string{shell.FactEnvironment}
				}
				for _, f := range kinds {
					s.facts[f] = append(s.facts[f], k)
				}
				continue
			}
			if len(c.Program) == 0 || slices.ContainsFunc(c.Program, func(p string) bool { return strings.Contains(p, "*") }) {
				s.others = append(s.others, k)
			}
			for name := range s.programs {
				if len(c.Program) == 0 || slices.ContainsFunc(c.Program, func(p string) bool { return nameMatches(p, name) }) {
					s.programs[name] = append(s.programs[name], k)
				}
			}
		}
	}
}

func loadRules(extra []RuleFile) (*ruleSet, error) {
	names, err := fs.Glob(builtIn, "rules/*.yaml")
	if err != nil {
		return nil, err
	}
	var files []RuleFile
	for _, n := range names {
		data, err := builtIn.ReadFile(n)
		if err != nil {
			return nil, err
		}
		files = append(files, RuleFile{Name: n, Data: data})
	}
	files = append(files, extra...)
	set := &ruleSet{}
	paths := map[string][]string{}
	for _, f := range files {
		if err := set.add(f, paths); err != nil {
			return nil, fmt.Errorf("rules file %s: %w", f.Name, err)
		}
	}
	set.index()
	for _, r := range set.rules {
		for _, id := range r.Lifts {
			if !slices.ContainsFunc(set.rules, func(o *rule) bool { return o.ID == id }) {
				return nil, fmt.Errorf("rules file %s: rule %s lifts %s, which does not exist", r.file, r.ID, id)
			}
		}
	}
	return set, nil
}

func (s *ruleSet) add(f RuleFile, paths map[string][]string) error {
	dec := yaml.NewDecoder(bytes.NewReader(f.Data))
	dec.KnownFields(true)
	var file ruleFile
	if err := dec.Decode(&file); err != nil {
		return err
	}
	if err := dec.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return errors.New("more than one document; keep all rules in the first")
	}
	if file.Version != 1 {
		return fmt.Errorf("version %d; this program reads version 1", file.Version)
	}
	for name, list := range file.Paths {
		if _, taken := paths[name]; taken {
			return fmt.Errorf("path set %q is defined twice; choose another name", name)
		}
		paths[name] = list
	}
	for _, r := range file.Rules {
		if r == nil || r.ID == "" {
			return errors.New("a rule has no id")
		}
		if slices.ContainsFunc(s.rules, func(o *rule) bool { return o.ID == r.ID }) {
			return fmt.Errorf("rule %s exists already; choose another id", r.ID)
		}
		r.file = f.Name
		if err := r.compile(paths); err != nil {
			return fmt.Errorf("rule %s: %w", r.ID, err)
		}
		s.rules = append(s.rules, r)
	}
	return nil
}

func (r *rule) compile(paths map[string][]string) error {
	switch r.Decision {
	case "deny":
		r.decision = Deny
	case "snapshot":
		r.decision = Snapshot
	case "allow":
		r.decision = Allow
	default:
		return fmt.Errorf("decision %q; want deny, snapshot or allow", r.Decision)
	}
	switch r.Locus {
	case "", VMDisk, VMControl, External:
	default:
		return fmt.Errorf("locus %q; want %s, %s or %s", r.Locus, VMDisk, VMControl, External)
	}
	if r.Reason == "" {
		return errors.New("no reason; say in one sentence why")
	}
	if r.decision == Deny && r.Alternative == "" {
		return errors.New("no alternative; a denial has to say what to do instead")
	}
	for _, p := range r.Profiles {
		if p != Sealed && p != OpenEgress {
			return fmt.Errorf("profile %q does not exist", p)
		}
	}
	if len(r.When) == 0 {
		return errors.New("no conditions under when")
	}
	for i := range r.When {
		if err := r.When[i].compile(paths); err != nil {
			return fmt.Errorf("condition %d: %w", i+1, err)
		}
	}
	return nil
}

func (c *condition) compile(paths map[string][]string) error {
	for _, p := range []struct {
		text string
		to   **regexp.Regexp
	}{{c.Value, &c.value}, {c.Arg, &c.arg}, {c.NoArg, &c.noArg}, {c.Line, &c.line}, {c.Text, &c.text}} {
		if p.text == "" {
			continue
		}
		re, err := regexp.Compile(p.text)
		if err != nil {
			return err
		}
		*p.to = re
	}
	if c.Operands != "" && c.Operands != "none" && c.Operands != "some" {
		return fmt.Errorf("operands %q; want none or some", c.Operands)
	}
	for _, a := range c.Action {
		switch a {
		case program.Read, program.Write, program.Remove, program.Mode, program.Fetch, program.Upload, program.Start:
		default:
			return fmt.Errorf("action %q is not known", a)
		}
	}
	var err error
	if c.path, err = compilePaths(c.Path, paths); err != nil {
		return err
	}
	if c.noPath, err = compilePaths(c.NoPath, paths); err != nil {
		return err
	}
	switch c.Default {
	case "", "read-only", "change", "unknown", "fetch", "send", "environment":
	default:
		return fmt.Errorf("default %q is not known", c.Default)
	}
	if len(c.Program) == 0 && len(c.Action) == 0 && len(c.Fact) == 0 && len(c.Env) == 0 && c.Default == "" {
		return errors.New("says neither program, action, fact, env nor default, so it would hold for everything")
	}
	return nil
}

func compilePaths(list []string, sets map[string][]string) ([]pathPattern, error) {
	var out []pathPattern
	for _, p := range list {
		if strings.HasPrefix(p, "/") || strings.HasPrefix(p, "~") || strings.HasPrefix(p, "**/") {
			out = append(out, newPathPattern(p))
			continue
		}
		set, ok := sets[p]
		if !ok {
			return nil, fmt.Errorf("path set %q does not exist", p)
		}
		for _, q := range set {
			out = append(out, newPathPattern(q))
		}
	}
	return out, nil
}

// runExamples checks that every rule does what its examples say.
func (e *Engine) runExamples() error {
	var wrong []error
	for _, r := range e.rules.rules {
		profile := Sealed
		if len(r.Profiles) > 0 {
			profile = r.Profiles[0]
		}
		for _, cmd := range r.Match {
			if !e.collect(cmd, Agent, profile, true).has(r) {
				wrong = append(wrong, fmt.Errorf("rules file %s: rule %s does not apply to its example %q", r.file, r.ID, cmd))
			}
		}
		for _, cmd := range r.NotMatch {
			if e.collect(cmd, Agent, profile, true).has(r) {
				wrong = append(wrong, fmt.Errorf("rules file %s: rule %s applies to %q, which it should not", r.file, r.ID, cmd))
			}
		}
	}
	return errors.Join(wrong...)
}
