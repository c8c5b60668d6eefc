package main

import (
	"fmt"
	"io"
	"strings"
)

// facts are labelled values, one below the other. Those that are longer than a
// line go on behind their label, so that they read well in any width.
type facts struct {
	indent string
	width  int
	rows   []fact
}

type fact struct {
	label string
	lines []string
}

// labels is how wide the labels are with the room behind them.
const labels = 13

func (f *facts) room() int { return max(f.width-len(f.indent)-labels, 20) }

// add adds a text; without one nothing. It is broken at blanks alone: an id or
// a digest that is longer than a line stays whole, to be copied.
func (f *facts) add(label, text string) {
	if text = strings.TrimSpace(printable(text)); text != "" {
		f.rows = append(f.rows, fact{label, wrap(text, f.room())})
	}
}

// addf adds a text that is put together.
func (f *facts) addf(label, format string, args ...any) { f.add(label, fmt.Sprintf(format, args...)) }

// list adds words that belong together each, as many on a line as there is room for.
func (f *facts) list(label string, items []string) {
	var lines []string
	for i, it := range items {
		if it = printable(it); i < len(items)-1 {
			it += ","
		}
		if n := len(lines) - 1; n >= 0 && visible(lines[n])+1+visible(it) <= f.room() {
			lines[n] += " " + it
		} else {
			lines = append(lines, it)
		}
	}
	if len(lines) > 0 {
		f.rows = append(f.rows, fact{label, lines})
	}
}

// exact adds a text of which every byte counts, with what cannot be seen made
// visible.
func (f *facts) exact(label, text string) {
	if text != "" {
		f.rows = append(f.rows, fact{label, broken(text, f.room())})
	}
}

func (f *facts) print(w io.Writer) error {
	var b strings.Builder
	for _, r := range f.rows {
		for i, line := range r.lines {
			label := r.label
			if i > 0 {
				label = ""
			}
			fmt.Fprintf(&b, "%s\n", strings.TrimRight(fmt.Sprintf("%s%-*s%s", f.indent, labels, label, line), " "))
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// listed prints rows in aligned columns. The last one goes below the others
// where there is no room for it.
func listed(w io.Writer, rows [][]string, width int) error {
	var b strings.Builder
	columns := map[int]int{}
	for _, r := range rows {
		for i, text := range r[:len(r)-1] {
			columns[i] = max(columns[i], visible(text))
		}
	}
	for _, r := range rows {
		line, last := " ", len(r)-1
		for i, text := range r[:last] {
			line += " " + text + strings.Repeat(" ", columns[i]-visible(text)+1)
		}
		line = strings.TrimSuffix(line, " ") + "  "
		switch detail := printable(r[last]); {
		case visible(line)+visible(detail) <= width && !strings.Contains(detail, "\n"):
			fmt.Fprintln(&b, strings.TrimRight(line+detail, " "))
		default:
			fmt.Fprintln(&b, strings.TrimRight(line, " "))
			for _, l := range wrap(detail, max(width-6, 20)) {
				fmt.Fprintln(&b, "      "+l)
			}
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}
