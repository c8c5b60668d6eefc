package policy

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"sync"

	"go.yaml.in/yaml/v3"

	"savepoint/policy/program"
)

//go:embed rules/*.yaml
var builtIn embed.FS

// base is what is built in. Nothing of it changes once it is loaded, so all
// engines share it. Its examples are run by a test and not again by every
// process: they cannot turn out otherwise, and commands start faster.
type base struct {
	tables *program.Tables
	rules  *ruleSet
	paths  map[string][]string
}

var loadBase = sync.OnceValues(loadBaseNow)

func loadBaseNow() (*base, error) {
	tables, err := program.Load()
	if err != nil {
		return nil, err
	}
	names, err := fs.Glob(builtIn, "rules/*.yaml")
	if err != nil {
		return nil, err
	}
	l := &loader{tables: tables, set: &ruleSet{byID: map[string]*rule{}}, paths: map[string][]string{}, patterns: map[string]*pattern{}}
	for _, n := range names {
		data, err := builtIn.ReadFile(n)
		if err != nil {
			return nil, err
		}
		if err := l.add(RuleFile{Name: n, Data: data}); err != nil {
			return nil, err
		}
	}
	if err := l.finish(); err != nil {
		return nil, err
	}
	return &base{tables: l.tables, rules: l.set, paths: l.paths}, nil
}

// loader puts files together.
type loader struct {
	tables   *program.Tables
	set      *ruleSet
	paths    map[string][]string
	patterns map[string]*pattern // by text, those of this loader alone
	own      bool                // the files are those of a deployment
	added    []*rule             // by this loader
}

// load returns the built-in rules with those of a deployment.
func load(files []RuleFile) (*program.Tables, *ruleSet, []*rule, error) {
	b, err := loadBase()
	if err != nil {
		return nil, nil, nil, err
	}
	if len(files) == 0 {
		return b.tables, b.rules, nil, nil
	}
	l := &loader{
		tables: b.tables.Clone(), paths: maps.Clone(b.paths), patterns: map[string]*pattern{}, own: true,
		set: &ruleSet{rules: slices.Clone(b.rules.rules), byID: maps.Clone(b.rules.byID)},
	}
	for _, f := range files {
		if err := l.add(f); err != nil {
			return nil, nil, nil, err
		}
	}
	if err := l.finish(); err != nil {
		return nil, nil, nil, err
	}
	return l.tables, l.set, l.added, nil
}

func (l *loader) add(f RuleFile) error {
	file, tree, err := parseRules(f)
	if err != nil {
		return err
	}
	at := func(n *yaml.Node, rule, key string, cause error) error {
		e := &LoadError{File: f.Name, Rule: rule, Key: key, Cause: cause}
		if n != nil {
			e.Line = n.Line
		}
		return e
	}
	sets := child(tree, "paths")
	for _, name := range slices.Sorted(maps.Keys(file.Paths)) {
		node := child(sets, name)
		if _, taken := l.paths[name]; taken {
			return at(node, "", "paths."+name, errors.New("this set of paths is defined twice; choose another name"))
		}
		for _, p := range file.Paths[name] {
			if err := checkPath(p); err != nil {
				return at(node, "", "paths."+name, err)
			}
		}
		l.paths[name] = file.Paths[name]
	}
	if err := l.describe(f.Name, file.Programs, child(tree, "programs")); err != nil {
		return err
	}
	nodes := child(tree, "rules")
	for i, r := range file.Rules {
		r.file, r.line, r.own = f.Name, lineOf(nodes, i), l.own
		if err := r.checkID(); err != nil {
			return r.wrong("id", err)
		}
		if old := l.set.byID[r.ID]; old != nil {
			return r.wrong("id", fmt.Errorf("exists already in %s; choose another id", old.file))
		}
		if err := r.compile(l); err != nil {
			return err
		}
		l.set.rules = append(l.set.rules, r)
		l.set.byID[r.ID] = r
		l.added = append(l.added, r)
	}
	return nil
}

// describe adds the programs of a deployment to the tables.
func (l *loader) describe(file string, specs []*program.Spec, nodes *yaml.Node) error {
	for i, s := range specs {
		wrong := func(cause error) error {
			return &LoadError{File: file, Line: lineOf(nodes, i), Key: fmt.Sprintf("programs[%d]", i+1), Cause: cause}
		}
		if !l.own {
			return wrong(errors.New("built-in programs are described in package program"))
		}
		for _, n := range s.Names {
			if by := l.set.names(n); by != "" {
				return wrong(fmt.Errorf("name %q: rule %s knows this program; a rule can make it stricter, a description cannot replace it", n, by))
			}
		}
		if err := l.tables.Describe(s); err != nil {
			return wrong(err)
		}
	}
	return nil
}

// names returns the id of a built-in rule that names a program, or "".
func (s *ruleSet) names(name string) string {
	for _, r := range s.rules {
		if r.own {
			continue
		}
		for i := range r.When {
			if slices.ContainsFunc(r.When[i].Program, func(p string) bool { return nameMatches(p, name) }) {
				return r.ID
			}
		}
	}
	return ""
}

// finish checks what needs all files, and builds the index.
func (l *loader) finish() error {
	for _, r := range l.added {
		if err := l.checkLifts(r); err != nil {
			return r.wrong("lifts", err)
		}
		if err := l.checkClaim(r); err != nil {
			return r.wrong("when", err)
		}
		if err := l.checkFacts(r); err != nil {
			return err
		}
	}
	l.set.index()
	return nil
}

// checkLifts bounds what an exception may be for.
func (l *loader) checkLifts(r *rule) error {
	for _, id := range r.Lifts {
		o := l.set.byID[id]
		switch {
		case o == nil:
			hint := ""
			if near := suggest(l.set, id); len(near) > 0 {
				hint = "; did you mean " + strings.Join(near, " or ") + "?"
			}
			return fmt.Errorf("rule %q does not exist%s", readable(id), hint)
		case o == r:
			return errors.New("a rule cannot lift itself")
		case r.decision == Deny:
			return errors.New("a rule that denies lifts nothing; take the key out, or make the decision snapshot")
		case unjudged(id):
			return fmt.Errorf("rule %s is about input that cannot be judged; no rule may lift it", id)
		case o.decision == Allow:
			return fmt.Errorf("rule %s allows; there is nothing to lift", id)
		case o.decision == Snapshot && o.Locus == External:
			return fmt.Errorf("rule %s only records what reaches outside and denies nothing; it cannot be lifted", id)
		case o.decision == Snapshot && r.decision != Allow:
			return fmt.Errorf("rule %s answers snapshot, as this one does; there is nothing to lift", id)
		}
	}
	return nil
}

// unknownProgram is the rule that applies to a program nobody described.
const unknownProgram = "unknown-program"

// checkClaim refuses a rule that says "this only reads" of a program nobody
// described: that is a claim, and it has to be made where it can be seen.
func (l *loader) checkClaim(r *rule) error {
	if !r.own || r.decision != Allow || slices.Contains(r.Lifts, unknownProgram) {
		return nil
	}
	for i := range r.When {
		for _, p := range r.When[i].Program {
			if !l.tables.Known(p) {
				return fmt.Errorf("condition %d allows program %q, which the policy does not know: describe it under programs, or claim that it only reads with lifts: [%s]", i+1, readable(p), unknownProgram)
			}
		}
	}
	return nil
}

// checkFacts refuses a fact that no built-in rule knows: it would never hold.
func (l *loader) checkFacts(r *rule) error {
	if !r.own {
		return nil
	}
	known := map[string]bool{}
	for _, o := range l.set.rules {
		if o.own {
			continue
		}
		for i := range o.When {
			for _, f := range o.When[i].Fact {
				known[f] = true
			}
		}
	}
	for i := range r.When {
		for _, f := range r.When[i].Fact {
			if !known[f] {
				return r.wrong(fmt.Sprintf("when[%d].fact", i+1), fmt.Errorf("fact %q is not known; the facts are %s", readable(f), strings.Join(slices.Sorted(maps.Keys(known)), ", ")))
			}
		}
	}
	return nil
}

// runExamples checks that every rule does what its examples say.
func (e *Engine) runExamples(rules []*rule) error {
	var wrong []error
	for _, r := range rules {
		profile := Sealed
		if len(r.Profiles) > 0 {
			profile = r.Profiles[0]
		}
		for _, cmd := range r.Match {
			if !e.collect(Request{Command: cmd, User: Agent, Profile: profile}, true).has(r) {
				wrong = append(wrong, r.wrong("match", fmt.Errorf("rule %s does not apply to its example %q; mend the conditions or the example", r.ID, cmd)))
			}
		}
		for _, cmd := range r.NotMatch {
			if e.collect(Request{Command: cmd, User: Agent, Profile: profile}, true).has(r) {
				wrong = append(wrong, r.wrong("not_match", fmt.Errorf("rule %s applies to %q, which it should not; mend the conditions or the example", r.ID, cmd)))
			}
		}
	}
	return errors.Join(wrong...)
}
