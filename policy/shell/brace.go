package shell

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// braces performs brace expansion.
func (x *expander) braces(word *syntax.Word) []*syntax.Word {
	curly := false
	for _, p := range word.Parts {
		if l, ok := p.(*syntax.Lit); ok && strings.Contains(l.Value, "{") {
			curly = true
		}
	}
	if !curly {
		return []*syntax.Word{word}
	}
	cp := *word
	if !syntax.SplitBraces(&cp) {
		return []*syntax.Word{word}
	}
	// Counted before anything is built: the number doubles with every brace.
	n := combinations(&cp, 0)
	if n > maxFields || !x.w.spend(n*len(cp.Parts)) {
		x.w.limit(x.sc, x.w.here())
		return []*syntax.Word{word}
	}
	return x.alternatives(&cp, 0)
}

// combinations is how many words a word with braces becomes, as far as it
// matters.
func combinations(word *syntax.Word, depth int) int {
	n := 1
	for _, p := range word.Parts {
		br, ok := p.(*syntax.BraceExp)
		if !ok {
			continue
		}
		if depth > 16 {
			return maxFields + 1
		}
		sum := 0
		for _, e := range br.Elems {
			sum += combinations(e, depth+1)
		}
		if br.Sequence {
			sum = len(sequence(br))
		}
		if n *= max(1, sum); n > maxFields {
			return n
		}
	}
	return n
}

func (x *expander) alternatives(word *syntax.Word, depth int) []*syntax.Word {
	if depth > 16 {
		x.w.limit(x.sc, x.w.here())
		return []*syntax.Word{word}
	}
	for i, p := range word.Parts {
		br, ok := p.(*syntax.BraceExp)
		if !ok {
			continue
		}
		var out []*syntax.Word
		for _, e := range x.elements(br, depth) {
			parts := make([]syntax.WordPart, 0, len(word.Parts)+len(e.Parts))
			parts = append(append(append(parts, word.Parts[:i]...), e.Parts...), word.Parts[i+1:]...)
			out = append(out, x.alternatives(&syntax.Word{Parts: parts}, depth+1)...)
			if len(out) > maxFields {
				x.w.limit(x.sc, x.w.here())
				break
			}
		}
		return out
	}
	return []*syntax.Word{word}
}

func (x *expander) elements(br *syntax.BraceExp, depth int) []*syntax.Word {
	if !br.Sequence {
		var out []*syntax.Word
		for _, e := range br.Elems {
			out = append(out, x.alternatives(e, depth+1)...)
		}
		return out
	}
	return sequence(br)
}

// sequence lists {1..5} and {a..e}; a long one is some text.
func sequence(br *syntax.BraceExp) []*syntax.Word {
	lit := func(s string) *syntax.Word {
		return &syntax.Word{Parts: []syntax.WordPart{&syntax.Lit{Value: s}}}
	}
	from, to := br.Elems[0].Lit(), br.Elems[1].Lit()
	a, err1 := strconv.Atoi(from)
	b, err2 := strconv.Atoi(to)
	if err1 != nil || err2 != nil {
		if len(br.Elems) > 2 || len(from) != 1 || len(to) != 1 {
			return []*syntax.Word{lit(string(HoleText))}
		}
		var out []*syntax.Word
		lo, hi := min(from[0], to[0]), max(from[0], to[0])
		for c := int(lo); c <= int(hi) && c < 0x7f; c++ {
			out = append(out, lit(string(rune(c))))
		}
		if from > to {
			slices.Reverse(out)
		}
		return out
	}
	if d := max(a, b) - min(a, b); d > 16 || d < 0 || len(br.Elems) > 2 || padded(from) || padded(to) {
		return []*syntax.Word{lit(string(HoleText))}
	}
	var out []*syntax.Word
	for n := min(a, b); n <= max(a, b); n++ {
		out = append(out, lit(fmt.Sprint(n)))
	}
	if a > b {
		slices.Reverse(out)
	}
	return out
}

// padded reports whether a number has leading zeros, which a sequence keeps.
func padded(n string) bool {
	n = strings.TrimPrefix(n, "-")
	return len(n) > 1 && n[0] == '0'
}
