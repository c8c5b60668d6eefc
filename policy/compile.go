package policy

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"savepoint/policy/program"
)

// ruleID is the form of ids: words parted by dots and dashes.
var ruleID = regexp.MustCompile(`^[a-z][a-z0-9]*([.-][a-z0-9]+)*$`)

func (r *rule) wrong(key string, cause error) error {
	return &LoadError{File: r.file, Line: r.line, Rule: readable(r.ID), Key: key, Cause: cause}
}

func (r *rule) checkID() error {
	switch {
	case r.ID == "":
		return errors.New("a rule has no id; give it one, such as own.no-make")
	case !ruleID.MatchString(r.ID):
		return errors.New("want lower-case words parted by dots or dashes, such as own.no-make")
	case r.own && unjudged(r.ID):
		return errors.New("ids that start with input., request. or policy. are kept for the policy itself; choose another")
	}
	return nil
}

// compile checks a rule by itself and prepares it for matching.
func (r *rule) compile(l *loader) error {
	d, err := ParseDecision(r.Decision)
	if err != nil {
		return r.wrong("decision", err)
	}
	r.decision = d
	switch r.Locus {
	case "", VMDisk, VMControl, External:
	default:
		return r.wrong("locus", fmt.Errorf("locus %q; want %s, %s or %s", readable(string(r.Locus)), VMDisk, VMControl, External))
	}
	if r.Reason == "" {
		return r.wrong("reason", errors.New("no reason; say in one sentence why"))
	}
	if r.decision == Deny && r.Alternative == "" {
		return r.wrong("alternative", errors.New("no alternative; a denial has to say what to do instead"))
	}
	for _, p := range r.Profiles {
		if p != Sealed && p != OpenEgress {
			return r.wrong("profiles", fmt.Errorf("profile %q does not exist; want %s or %s", readable(p), Sealed, OpenEgress))
		}
	}
	if len(r.When) == 0 {
		return r.wrong("when", errors.New("no conditions; list at least one"))
	}
	for i := range r.When {
		if key, err := r.When[i].compile(l); err != nil {
			at := fmt.Sprintf("when[%d]", i+1)
			return r.wrong(join(at, key), err)
		}
	}
	return nil
}

// compile returns the key that is wrong, and why.
func (c *condition) compile(l *loader) (string, error) {
	var err error
	for _, p := range [...]struct {
		key, text string
		to        **pattern
	}{{"value", c.Value, &c.value}, {"arg", c.Arg, &c.arg}, {"no_arg", c.NoArg, &c.noArg}, {"line", c.Line, &c.line}, {"text", c.Text, &c.text}} {
		if *p.to, err = l.pattern(p.text); err != nil {
			return p.key, err
		}
	}
	if c.Operands != "" && c.Operands != "none" && c.Operands != "some" {
		return "operands", fmt.Errorf("operands %q; want none or some", readable(c.Operands))
	}
	for _, a := range c.Action {
		switch a {
		case program.Read, program.Write, program.Remove, program.Mode, program.Fetch, program.Upload, program.Start:
		default:
			return "action", fmt.Errorf("action %q is not known; want read, write, delete, perms, fetch, send or run", readable(string(a)))
		}
	}
	if c.path, err = compilePaths(c.Path, l.paths); err != nil {
		return "path", err
	}
	if c.noPath, err = compilePaths(c.NoPath, l.paths); err != nil {
		return "no_path", err
	}
	switch c.Default {
	case "", "read-only", "change", "unknown", "fetch", "send", "here", "asks", "environment":
	default:
		return "default", fmt.Errorf("default %q is not known; want read-only, change, unknown, fetch, send, here, asks or environment", readable(c.Default))
	}
	return c.checkParts()
}

// checkParts refuses keys that would have no effect where they stand: the
// condition would hold for more than its author reads in it.
func (c *condition) checkParts() (string, error) {
	onUse := len(c.Program) > 0 || len(c.Action) > 0 || c.Default != "" && c.Default != "environment"
	onFact, onEnv := len(c.Fact) > 0, len(c.Env) > 0 || c.Default == "environment"
	if !onUse && !onFact && !onEnv {
		return "", errors.New("says neither program, action, fact, env nor default, so it would hold for everything")
	}
	about := len(c.Sub) > 0 || len(c.Options) > 0 || len(c.NoOptions) > 0 || c.Arg != "" || c.NoArg != "" || c.Line != "" || c.Text != "" ||
		c.Operands != "" || len(c.Path) > 0 || len(c.NoPath) > 0 || c.Tree || c.Unknown
	switch {
	case onFact && (onUse || onEnv || about || c.Value != "" || len(c.NoEnv) > 0):
		return "fact", errors.New("a fact of the shell stands alone; take the other keys out")
	case onEnv && (onUse || about):
		return "env", errors.New("a variable goes only with value and no_env; take the other keys out")
	case len(c.NoEnv) > 0 && len(c.Env) == 0:
		return "no_env", errors.New("without env it has no effect")
	case c.Value != "" && len(c.Options) == 0 && len(c.Env) == 0:
		return "value", errors.New("without options or env it has no effect; to look at arguments use arg or line")
	case (c.Tree || len(c.NoPath) > 0) && len(c.Action) == 0 && len(c.Path) == 0:
		return "action", errors.New("tree and no_path have no effect without action or path")
	}
	return "", nil
}

// isPath reports whether an entry is a path, not the name of a set.
func isPath(p string) bool {
	return strings.HasPrefix(p, "/") || strings.HasPrefix(p, "~") || strings.HasPrefix(p, "**/")
}

// checkPath refuses a path that no target could ever be.
func checkPath(p string) error {
	rest := strings.TrimPrefix(p, "**/")
	switch {
	case !isPath(p):
		return fmt.Errorf("path %q: want an absolute path, one below ~, or one that starts with **/", readable(p))
	case strings.HasPrefix(p, "~") && p != "~" && !strings.HasPrefix(p, "~/"):
		return fmt.Errorf("path %q: ~ is the home of the account; write ~/name, or /home/name for another", readable(p))
	case strings.Contains(strings.TrimSuffix(rest, "/**"), "**"):
		return fmt.Errorf("path %q: ** stands only at the start or as the last component", readable(p))
	}
	for _, s := range strings.Split(rest, "/") {
		if s == "." || s == ".." {
			return fmt.Errorf("path %q: write it without . and .. in it", readable(p))
		}
		if strings.ContainsFunc(s, func(r rune) bool { return r < ' ' }) {
			return fmt.Errorf("path %q: it holds control characters", readable(p))
		}
	}
	return nil
}

func compilePaths(list []string, sets map[string][]string) ([]pathPattern, error) {
	var out []pathPattern
	for _, p := range list {
		if isPath(p) {
			if err := checkPath(p); err != nil {
				return nil, err
			}
			out = append(out, newPathPattern(p))
			continue
		}
		set, ok := sets[p]
		if !ok {
			return nil, fmt.Errorf("there is no set of paths %q; define it under paths, or write an absolute path", readable(p))
		}
		for _, q := range set {
			out = append(out, newPathPattern(q))
		}
	}
	return out, nil
}
