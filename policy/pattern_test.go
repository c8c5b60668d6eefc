package policy

import (
	"regexp"
	"testing"
)

// patterns lists those that a condition asks, by their keys.
func (c *condition) patterns() map[string]*pattern {
	return map[string]*pattern{"value": c.value, "arg": c.arg, "no_arg": c.noArg, "line": c.line, "text": c.text}
}

// The built-in patterns are compiled when they are first asked: here, all of
// them are.
func TestEveryBuiltInPatternCompiles(t *testing.T) {
	built, err := loadBaseNow()
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, r := range built.rules.rules {
		for i := range r.When {
			c := &r.When[i]
			texts := map[string]string{"value": c.Value, "arg": c.Arg, "no_arg": c.NoArg, "line": c.Line, "text": c.Text}
			for key, p := range c.patterns() {
				switch {
				case (p != nil) != (texts[key] != ""):
					t.Errorf("rule %s, condition %d: %s is %q and its pattern is %v", r.ID, i+1, key, texts[key], p)
				case p == nil:
				case p.text != texts[key]:
					t.Errorf("rule %s, condition %d: the pattern of %s is that of %q, want %q", r.ID, i+1, key, p.text, texts[key])
				default:
					n++
					if _, err := regexp.Compile(p.text); err != nil {
						t.Errorf("rule %s, condition %d: %s: %v", r.ID, i+1, key, err)
						continue
					}
					p.matches("")
				}
			}
		}
	}
	if n == 0 {
		t.Error("no rule has a pattern")
	}
}

// Conditions that write the same pattern ask the same one, but those of a
// deployment have their own.
func TestPatternsAreSharedByText(t *testing.T) {
	built, own := &loader{patterns: map[string]*pattern{}}, &loader{patterns: map[string]*pattern{}, own: true}
	for _, l := range []*loader{built, own} {
		a, err := l.pattern("^a$")
		b, again := l.pattern("^a$")
		if err != nil || again != nil || a == nil || a != b || !a.matches("a") || a.matches("b") {
			t.Errorf("own %t: %p and %p, %v, %v", l.own, a, b, err, again)
		}
		if p, err := l.pattern(""); p != nil || err != nil {
			t.Errorf("own %t: no text has the pattern %v, %v", l.own, p, err)
		}
	}
	if p, err := own.pattern("(a"); p != nil || err == nil {
		t.Errorf("a deployment's pattern that does not compile is taken: %v", p)
	}
	if built.patterns["^a$"] == own.patterns["^a$"] {
		t.Error("a deployment shares the patterns of the built-in rules")
	}
}
