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

// add adds prose, in which blanks only part words; without a word nothing. It is
// broken at blanks alone: an id or a digest that is longer than a line stays
// whole, to be copied.
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

// exact adds a text of which every byte counts: blanks and tabs stay as they
// are, also at the end, and so do line ends; what else cannot be seen becomes an
// escape. A line for which there is no room goes on in the next one, nothing
// added and nothing left out.
func (f *facts) exact(label, text string) {
	if text == "" {
		return
	}
	lines := broken(text, f.room())
	if strings.HasSuffix(text, "\n") {
		lines = append(lines, "")
	}
	f.rows = append(f.rows, fact{label, lines})
}

func (f *facts) print(w io.Writer) error {
	var b strings.Builder
	for _, r := range f.rows {
		for i, line := range r.lines {
			label := r.label
			if i > 0 {
				label = ""
			}
			head := fmt.Sprintf("%s%-*s", f.indent, labels, label)
			if line == "" {
				head = strings.TrimRight(head, " ")
			}
			fmt.Fprintf(&b, "%s%s\n", head, line)
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
