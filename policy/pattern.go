package policy

import (
	"fmt"
	"regexp"
	"sync"
)

// pattern is a regular expression of a rule. Nothing of it changes once it is
// made, so all conditions that write the same text share one.
type pattern struct {
	text string
	re   func() *regexp.Regexp
}

func (p *pattern) matches(s string) bool { return p.re().MatchString(s) }

// lazyPattern compiles a pattern when it is first asked: one process judges few
// commands, and they ask few of the built-in patterns. A test compiles them
// all.
func lazyPattern(text string) *pattern {
	return &pattern{text: text, re: sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(text) })}
}

// checkedPattern compiles a pattern at once: that of a deployment may be wrong.
func checkedPattern(text string) (*pattern, error) {
	re, err := regexp.Compile(text)
	if err != nil {
		return nil, fmt.Errorf("not a pattern: %w; the syntax is that of Go and RE2", err)
	}
	return &pattern{text: text, re: func() *regexp.Regexp { return re }}, nil
}

// pattern returns the pattern of a text, nil for none.
func (l *loader) pattern(text string) (*pattern, error) {
	if text == "" {
		return nil, nil
	}
	if p := l.patterns[text]; p != nil {
		return p, nil
	}
	p, err := lazyPattern(text), error(nil)
	if l.own {
		p, err = checkedPattern(text)
	}
	if err != nil {
		return nil, err
	}
	l.patterns[text] = p
	return p, nil
}
