package program

import "strings"

// A text up to this length is searched as a whole: nothing is gained by
// looking for the places first.
const shortText = 600

// Around a plain text that a pattern needs, its match lies within the lines
// before and the brackets behind, up to a limit.
const (
	linesBefore = 2
	linesBehind = 3
	farthest    = 4096
)

// spots calls f with the parts of the text in which a pattern may match, each
// with its place, until f is done. Parts begin at the beginning of a line, so
// that what has to stand in front of a word looks the same; they do not touch.
func (p pattern) spots(text string, f func(part string, at int) (done bool)) {
	if len(text) <= shortText || len(p.needles) == 0 || len(p.needles) > maxNeedles {
		if p.may(text) {
			f(text, 0)
		}
		return
	}
	var where [maxNeedles]int // the next place of each needle
	for i := range p.needles {
		where[i] = after(text, p.needles[i], 0)
	}
	start, end := -1, -1
	for {
		next := len(text)
		for i := range p.needles {
			next = min(next, where[i])
		}
		if next == len(text) {
			break
		}
		for i := range p.needles {
			if where[i] == next {
				where[i] = after(text, p.needles[i], next+1)
			}
		}
		if from := lineStart(text, next, linesBefore); start < 0 {
			start = from
		} else if from > end {
			if f(text[start:end], start) {
				return
			}
			start = from
		}
		end = max(end, spotEnd(text, next))
	}
	if start >= 0 {
		f(text[start:end], start)
	}
}

// maxNeedles is more than any pattern has.
const maxNeedles = 48

// after is the place of a needle from i on, or the end of the text.
func after(text, needle string, i int) int {
	if k := strings.Index(text[i:], needle); k >= 0 {
		return i + k
	}
	return len(text)
}

// lineStart is where the line begins that stands n lines before the one at i.
func lineStart(text string, i, n int) int {
	for {
		i = strings.LastIndexByte(text[:i], '\n')
		if i < 0 {
			return 0
		}
		if n == 0 {
			return i + 1
		}
		n--
	}
}

// spotEnd is the end of the line where the brackets that open behind i are
// closed again, some lines on at least.
func spotEnd(text string, i int) int {
	depth, lines := 0, 0
	for k := i; k < len(text); k++ {
		switch text[k] {
		case '(', '[', '{':
			depth++
		case ')', ']', '}':
			depth--
		case '\n':
			if lines++; lines >= linesBehind && depth <= 0 || k-i > farthest {
				return k + 1
			}
		}
	}
	return len(text)
}

// FindAllStringSubmatch returns the matches as the regular expression does.
func (p pattern) FindAllStringSubmatch(text string, limit int) [][]string {
	var out [][]string
	for _, m := range p.FindAllStringSubmatchIndex(text, limit) {
		groups := make([]string, len(m)/2)
		for g := range groups {
			if m[2*g] >= 0 {
				groups[g] = text[m[2*g]:m[2*g+1]]
			}
		}
		out = append(out, groups)
	}
	return out
}

// FindAllStringSubmatchIndex returns the matches as the regular expression
// does.
func (p pattern) FindAllStringSubmatchIndex(text string, limit int) [][]int {
	var out [][]int
	p.spots(text, func(part string, at int) bool {
		for _, m := range p.Regexp.FindAllStringSubmatchIndex(part, limit) {
			for k := range m {
				if m[k] >= 0 {
					m[k] += at
				}
			}
			if out = append(out, m); len(out) >= limit {
				return true
			}
		}
		return false
	})
	return out
}
