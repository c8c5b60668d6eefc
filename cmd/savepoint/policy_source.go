package main

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"savepoint/policy"
	"savepoint/policy/shell"
)

const (
	sourceLines = 12 // a longer text is shown around what decided
	sourceMarks = 8  // for one line
)

// mark is a part of a text that something is said about.
type mark struct {
	span  shell.Span
	label string
}

// deciding lists the parts of the command that its verdict rests on.
func deciding(v policy.Verdict) []mark {
	var marks []mark
	if v.Decision == policy.Allow {
		return nil
	}
	for _, f := range v.Findings {
		if f.Decision != v.Decision {
			continue
		}
		m := mark{f.Span, f.Rule}
		if len(f.Via) > 0 {
			m.label += ", via " + strings.Join(f.Via, " > ")
		}
		if !slices.Contains(marks, m) {
			marks = append(marks, m)
		}
	}
	return marks
}

// printSource shows a text with its marked parts underlined, within the width.
// Nothing in it reaches the terminal as it is but what can be seen.
func printSource(w io.Writer, st style, text string, marks []mark, width int) {
	lines := strings.SplitAfter(text, "\n")
	if last := len(lines) - 1; last > 0 && lines[last] == "" {
		lines = lines[:last]
	}
	digits := 0
	if len(lines) > 1 {
		digits = len(strconv.Itoa(len(lines)))
	}
	labelled := map[int]bool{}
	at, skipped := 0, false
	shown := near(lines, marks)
	for i, line := range lines {
		start := at
		at += len(line)
		if !shown[i] {
			if !skipped {
				fmt.Fprintln(w, "  …")
			}
			skipped = true
			continue
		}
		skipped = false
		gutter, blank := "  ", "  "
		if digits > 0 {
			gutter, blank = fmt.Sprintf("  %*d | ", digits, i+1), "  "+strings.Repeat(" ", digits)+" | "
		}
		room := max(width-utf8.RuneCountInString(gutter), 10)
		cells := cellsOf(strings.TrimSuffix(line, "\n"))
		var here []mark
		for k, m := range marks {
			if m.span.Start < m.span.End && m.span.Start < start+len(line) && m.span.End > start {
				part := mark{shell.Span{Start: m.span.Start - start, End: m.span.End - start}, ""}
				if !labelled[k] {
					part.label, labelled[k] = m.label, true
				}
				here = append(here, part)
			}
		}
		printLine(w, st, cells, here, gutter, blank, room)
	}
	for k, m := range marks { // what has no place in the text
		if !labelled[k] {
			fmt.Fprintf(w, "  %s\n", cut(m.label, max(width-2, 10)))
		}
	}
}

// printWhole shows all of a text, in as many lines as it takes.
func printWhole(w io.Writer, text string, width int) {
	for _, line := range broken(text, max(width-2, 10)) {
		fmt.Fprintf(w, "  %s\n", line)
	}
}

// broken sets a text in lines of at most width columns, with its blanks and tabs
// as they are: put together again they are the text. A tab counts as wide as a
// terminal can make it.
func broken(text string, width int) (lines []string) {
	for line := range strings.Lines(text) {
		rest := cellsOf(strings.TrimSuffix(line, "\n"))
		for i, c := range rest {
			if line[c.at] == '\t' {
				rest[i].text, rest[i].width = "\t", 8
			}
		}
		for {
			n, used, blank := 0, 0, 0
			for n < len(rest) && used+rest[n].width <= width {
				used += rest[n].width
				n++
				if t := rest[n-1].text; t == " " || t == "\t" {
					blank = n
				}
			}
			if n < len(rest) && blank > n/2 {
				n = blank
			}
			lines = append(lines, render(rest[:n], 0, n))
			if rest = rest[n:]; len(rest) == 0 {
				break
			}
		}
	}
	return lines
}

// near says which lines are shown: all of a short text, else the first and
// those with a mark, with one around them.
func near(lines []string, marks []mark) map[int]bool {
	shown := map[int]bool{}
	at := 0
	for i, line := range lines {
		start := at
		at += len(line)
		if len(lines) <= sourceLines || i == 0 {
			shown[i] = true
			continue
		}
		for _, m := range marks {
			// Of a long part its two ends are enough.
			if m.span.Start >= start && m.span.Start < at || m.span.End > start && m.span.End <= at {
				shown[i-1], shown[i], shown[i+1] = true, true, true
			}
		}
	}
	return shown
}

// printLine shows one line, as often as it takes to show the start of every mark.
func printLine(w io.Writer, st style, cells []cell, marks []mark, gutter, blank string, room int) {
	if len(marks) == 0 {
		from, to := window(cells, 0, 0, room)
		fmt.Fprintln(w, gutter+strings.TrimRight(render(cells, from, to), " "))
		return
	}
	from, to := -1, -1
	for i, m := range marks {
		if i == sourceMarks {
			fmt.Fprintf(w, "%s%d more\n", blank, len(marks)-i)
			return
		}
		first, last := touched(cells, m.span)
		if from < 0 || first < from || first >= to && to < len(cells) {
			from, to = window(cells, first, last, room)
			fmt.Fprintln(w, gutter+strings.TrimRight(render(cells, from, to), " "))
		}
		indent := 0
		if from > 0 {
			indent = 1 // the sign for what was left out
		}
		indent += widthOf(cells[from:max(first, from)])
		under := max(widthOf(cells[max(first, from):max(min(last, to), max(first, from))]), 1)
		line := blank + strings.Repeat(" ", indent) + st.red(strings.Repeat("^", under))
		switch {
		case m.label == "":
			fmt.Fprintln(w, line)
		case indent+under+1+utf8.RuneCountInString(m.label) <= room:
			fmt.Fprintln(w, line+" "+m.label)
		default:
			fmt.Fprintf(w, "%s\n%s%s\n", line, blank, cut(m.label, room))
		}
	}
}

// touched returns the cells of a span: from the first on, before the last.
func touched(cells []cell, s shell.Span) (first, last int) {
	first = len(cells)
	for i, c := range cells {
		end := int(^uint(0) >> 1)
		if i+1 < len(cells) {
			end = cells[i+1].at
		}
		if end > s.Start && c.at < s.End {
			first, last = min(first, i), i+1
		}
	}
	if last == 0 { // only the end of the line
		return len(cells), len(cells)
	}
	return first, last
}

// window chooses what of a line is shown in the room around the cells from
// first to last: all of it, or a part whose ends are marked as cut.
func window(cells []cell, first, last, room int) (from, to int) {
	if widthOf(cells) <= room {
		return 0, len(cells)
	}
	room -= 2 // the signs for what was left out
	from, to = first, first
	used := 0
	for to < len(cells) && (to < last || to == first) && used+cells[to].width <= room {
		used += cells[to].width
		to++
	}
	// What is left goes to both sides, a third of it before.
	for before := (room - used) / 3; from > 0 && cells[from-1].width <= before; {
		from--
		before -= cells[from].width
		used += cells[from].width
	}
	for to < len(cells) && used+cells[to].width <= room {
		used += cells[to].width
		to++
	}
	for from > 0 && used+cells[from-1].width <= room {
		from--
		used += cells[from].width
	}
	return from, to
}
