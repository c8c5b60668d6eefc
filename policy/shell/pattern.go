package shell

import (
	"regexp"
	"strings"

	"mvdan.cc/sh/v3/pattern"
	"mvdan.cc/sh/v3/syntax"
)

// rawPattern returns a pattern word as written, when it is all literal.
func (x *expander) rawPattern(w *syntax.Word) (string, bool) {
	if w == nil {
		return "", true
	}
	var out strings.Builder
	for _, p := range w.Parts {
		switch p := p.(type) {
		case *syntax.Lit:
			out.WriteString(p.Value)
		default:
			v := x.word(&syntax.Word{Parts: []syntax.WordPart{p}})
			if Has(v, HoleStar) && strings.Trim(strings.ReplaceAll(v, "\x03", ""), holes) == strings.ReplaceAll(v, "\x03", "") && !Has(v, HoleChar) {
				out.WriteString(strings.ReplaceAll(v, "\x03", "*"))
				continue
			}
			if !Known(v) {
				return "", false
			}
			out.WriteString(pattern.QuoteMeta(v, 0))
		}
	}
	return out.String(), true
}

func compile(pat string, mode pattern.Mode, wrap func(string) string) (*regexp.Regexp, bool) {
	if len(pat) > 1024 || extended(pat) {
		return nil, false
	}
	expr, err := pattern.Regexp(pat, mode)
	if err != nil {
		return nil, false
	}
	re, err := regexp.Compile(wrap(expr))
	return re, err == nil
}

// extended reports whether a pattern means something else once extglob is on.
func extended(pat string) bool {
	for i := 1; i < len(pat); i++ {
		if pat[i] == '(' && strings.IndexByte("?*+@!", pat[i-1]) >= 0 {
			return true
		}
	}
	return false
}

// matched reports whether the replacement holds a & that stands for the match,
// and whether that is known: a quoted one stands for itself.
func matched(w *syntax.Word) (has, known bool) {
	if w == nil {
		return false, true
	}
	known = true
	for _, p := range w.Parts {
		l, ok := p.(*syntax.Lit)
		if !ok || strings.Contains(l.Value, "\\") {
			known = false
		}
		has = has || ok && strings.Contains(l.Value, "&")
	}
	return has, known || !has
}

func (x *expander) replace(v string, r *syntax.Replace) string {
	if !Known(v) {
		if same := guessed(v, func(s string) string { return x.replace(s, r) }); same != "" {
			return same
		}
	}
	with := x.word(r.With)
	raw, ok := x.rawPattern(r.Orig)
	if !ok || !Known(v) || len(v) > 4096 {
		if Has(v, HoleMaybe) {
			return string(HoleMaybe)
		}
		return string(HoleText)
	}
	prefix, suffix := "(?s)", ""
	switch {
	case raw == "#" && !r.All && !strings.Contains(with, "&"):
		return with + v // put in front
	case raw == "%" && !r.All && !strings.Contains(with, "&"):
		return v + with
	case strings.HasPrefix(raw, "#") && !r.All:
		prefix, raw = "(?s)^", raw[1:]
	case strings.HasPrefix(raw, "%") && !r.All:
		suffix, raw = "$", raw[1:]
	}
	if !x.w.spend(len(v) * (1 + len(raw)/4)) {
		x.w.limit(x.sc, x.w.here())
		return string(HoleText)
	}
	re, ok := compile(raw, 0, func(e string) string { return prefix + "(?:" + strings.TrimPrefix(e, "(?s)") + ")" + suffix })
	if !ok || raw == "" {
		return string(HoleText)
	}
	whole, sure := matched(r.With)
	if !sure || !whole && strings.Contains(with, "&") {
		return string(HoleText)
	}
	first := true
	out := re.ReplaceAllStringFunc(v, func(m string) string {
		if !r.All && !first || m == "" {
			return m
		}
		first = false
		if whole {
			return strings.ReplaceAll(with, "&", m)
		}
		return with
	})
	if len(out) > maxValue {
		return string(HoleText)
	}
	return out
}

// guessed computes with two texts in place of the unknown ones; what comes out
// the same both times does not depend on them.
func guessed(v string, compute func(string) string) string {
	if strings.Trim(v, "\x01") == "" || strings.ContainsAny(v, strings.ReplaceAll(holes, "\x01", "")) {
		return ""
	}
	a, b := compute(strings.ReplaceAll(v, "\x01", "work")), compute(strings.ReplaceAll(v, "\x01", "srv/data.d/x"))
	if a != b || !Known(a) {
		return ""
	}
	return a
}

func (x *expander) trim(v string, e *syntax.Expansion) string {
	if !Known(v) {
		if same := guessed(v, func(s string) string { return x.trim(s, e) }); same != "" {
			return same
		}
	}
	raw, ok := x.rawPattern(e.Word)
	if !ok || !Known(v) || len(v) > 4096 {
		if Has(v, HoleMaybe) {
			return string(HoleMaybe)
		}
		return string(HoleText)
	}
	if !x.w.spend(len(v) * (1 + len(v)/8) * (1 + len(raw)/4)) {
		x.w.limit(x.sc, x.w.here())
		return string(HoleText)
	}
	re, ok := compile(raw, pattern.EntireString, func(s string) string { return s })
	if !ok {
		return string(HoleText)
	}
	runes := []rune(v)
	cut := func(n int, prefix bool) (string, bool) {
		if prefix {
			return string(runes[n:]), re.MatchString(string(runes[:n]))
		}
		return string(runes[:len(runes)-n]), re.MatchString(string(runes[len(runes)-n:]))
	}
	if len(runes) > 512 {
		return string(HoleText)
	}
	prefix := e.Op == syntax.RemSmallPrefix || e.Op == syntax.RemLargePrefix
	if e.Op == syntax.RemSmallPrefix || e.Op == syntax.RemSmallSuffix {
		for n := 0; n <= len(runes); n++ {
			if rest, ok := cut(n, prefix); ok {
				return rest
			}
		}
		return v
	}
	for n := len(runes); n >= 0; n-- {
		if rest, ok := cut(n, prefix); ok {
			return rest
		}
	}
	return v
}
