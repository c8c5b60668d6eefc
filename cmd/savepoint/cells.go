package main

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

const tabStop = 4

// cell is one character as it is shown.
type cell struct {
	text  string
	width int
	at    int // byte in the line
}

// cellsOf makes a line fit to be shown: tabs become blanks, and what cannot be
// seen, or would steer a terminal, an escape.
func cellsOf(line string) []cell {
	var cells []cell
	column := 0
	for i := 0; i < len(line); {
		r, n := utf8.DecodeRuneInString(line[i:])
		c := cell{text: line[i : i+n], width: 1, at: i}
		switch {
		case r == '\t':
			c.width = tabStop - column%tabStop
			c.text = strings.Repeat(" ", c.width)
		case r == utf8.RuneError && n == 1:
			c.text, c.width = fmt.Sprintf(`\x%02x`, line[i]), 4
		case unicode.In(r, unicode.Mn, unicode.Me) && len(cells) > 0:
			cells[len(cells)-1].text += c.text // it stands over the one before
			i += n
			continue
		case !unicode.IsPrint(r):
			q := strconv.QuoteRuneToASCII(r)
			c.text = q[1 : len(q)-1]
			c.width = len(c.text)
		case wide(r):
			c.width = 2
		}
		column += c.width
		cells = append(cells, c)
		i += n
	}
	return cells
}

// wide reports whether terminals give the character two columns.
func wide(r rune) bool {
	i, _ := slices.BinarySearchFunc(wideRanges[:], r, func(e [2]rune, r rune) int { return int(e[1]) - int(r) })
	return i < len(wideRanges) && r >= wideRanges[i][0]
}

// wideRanges are the blocks of East Asian wide characters and of emoji.
var wideRanges = [...][2]rune{
	{0x1100, 0x115f}, {0x231a, 0x231b}, {0x23e9, 0x23ec}, {0x25fd, 0x25fe}, {0x2614, 0x2615}, {0x2648, 0x2653},
	{0x26a1, 0x26a1}, {0x26bd, 0x26be}, {0x2705, 0x2705}, {0x2728, 0x2728}, {0x274c, 0x274c}, {0x2795, 0x2797},
	{0x2e80, 0x303e}, {0x3041, 0x33ff}, {0x3400, 0x4dbf}, {0x4e00, 0x9fff}, {0xa000, 0xa4cf}, {0xa960, 0xa97c},
	{0xac00, 0xd7a3}, {0xf900, 0xfaff}, {0xfe30, 0xfe6f}, {0xff01, 0xff60}, {0xffe0, 0xffe6}, {0x16fe0, 0x18aff},
	{0x1b000, 0x1b2ff}, {0x1f300, 0x1f64f}, {0x1f680, 0x1f6ff}, {0x1f7e0, 0x1f7eb}, {0x1f900, 0x1faff}, {0x20000, 0x3fffd},
}

func widthOf(cells []cell) int {
	n := 0
	for _, c := range cells {
		n += c.width
	}
	return n
}

func render(cells []cell, from, to int) string {
	var b strings.Builder
	if from > 0 {
		b.WriteString("…")
	}
	for _, c := range cells[from:to] {
		b.WriteString(c.text)
	}
	if to < len(cells) {
		b.WriteString("…")
	}
	return b.String()
}

// cut shortens a text to one line of at most n columns.
func cut(s string, n int) string {
	cells := cellsOf(strings.ReplaceAll(s, "\n", " "))
	if widthOf(cells) <= n {
		return render(cells, 0, len(cells))
	}
	to, used := 0, 0
	for used+cells[to].width < n {
		used += cells[to].width
		to++
	}
	return render(cells, 0, to)
}

// fold sets a text in lines of at most n columns, each behind the indent.
func fold(s, indent string, n int) string {
	var b strings.Builder
	column := 0
	room := max(n-len(indent), 20)
	for _, word := range strings.Fields(s) {
		cells := cellsOf(word)
		width := widthOf(cells)
		switch {
		case column == 0:
			b.WriteString(indent)
		case column+1+width > room:
			b.WriteString("\n" + indent)
			column = 0
		default:
			b.WriteByte(' ')
			column++
		}
		for _, c := range cells { // a word longer than a line is broken
			if column+c.width > room {
				b.WriteString("\n" + indent)
				column = 0
			}
			b.WriteString(c.text)
			column += c.width
		}
	}
	if column > 0 {
		b.WriteByte('\n')
	}
	return b.String()
}

// width is how many columns a result may take: the terminal's, what COLUMNS
// says, or 100.
func (a *app) width(w io.Writer) int {
	n := terminal(w)
	if n == 0 {
		n, _ = strconv.Atoi(a.getenv("COLUMNS"))
	}
	switch {
	case n <= 0:
		return 100
	case n < 20:
		return 20
	}
	return n
}
