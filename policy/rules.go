package policy

import (
	"slices"
	"strings"

	"savepoint/policy/program"
	"savepoint/policy/shell"
)

// ruleFile is the whole of a rules file; README.md of this package is its
// reference. The parser is strict: see the type strict.
type ruleFile struct {
	Version  int                 `yaml:"version"`
	Paths    map[string][]string `yaml:"paths"`    // names for sets of paths
	Programs []*program.Spec     `yaml:"programs"` // descriptions of own programs
	Rules    []*rule             `yaml:"rules"`
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
	line     int  // in the file
	own      bool // of the deployment, not built in
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
	Default   string           `yaml:"default"` // read-only, change, unknown, fetch, send, here, asks, environment

	value, arg, noArg, line, text *pattern // nil for none
	path, noPath                  []pathPattern
}

type ruleSet struct {
	rules []*rule
	byID  map[string]*rule

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

// isPattern reports whether a program's name stands for several.
func isPattern(name string) bool { return strings.Contains(name, "*") }

// index sorts the conditions by what can make them hold.
func (s *ruleSet) index() {
	s.programs, s.facts = map[string][]candidate{}, map[string][]candidate{}
	for _, r := range s.rules {
		for i := range r.When {
			for _, p := range r.When[i].Program {
				if !isPattern(p) {
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
			if wildcard := len(c.Program) == 0 || slices.ContainsFunc(c.Program, isPattern); !wildcard {
				for n, name := range c.Program {
					if slices.Index(c.Program, name) == n { // written twice counts once
						s.programs[name] = append(s.programs[name], k)
					}
				}
				continue
			}
			s.others = append(s.others, k)
			for name := range s.programs {
				if len(c.Program) == 0 || slices.ContainsFunc(c.Program, func(p string) bool { return nameMatches(p, name) }) {
					s.programs[name] = append(s.programs[name], k)
				}
			}
		}
	}
}
