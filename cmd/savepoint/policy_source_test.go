package main

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"savepoint/policy/shell"
)

// part marks the n-th place (from 1) of a piece of the text.
func part(text, piece, label string, n int) mark {
	at := 0
	for ; n > 1; n-- {
		at += strings.Index(text[at:], piece) + 1
	}
	at += strings.Index(text[at:], piece)
	return mark{shell.Span{Start: at, End: at + len(piece)}, label}
}

func TestPrintSource(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		text  string
		marks func(text string) []mark
		width int
		want  []string
	}{
		{name: "plain", text: "rm -rf /", width: 80, marks: func(s string) []mark { return []mark{part(s, "rm -rf /", "r.one", 1)} },
			want: []string{"  rm -rf /", "  ^^^^^^^^ r.one"}},
		{name: "nothing marked", text: "ls", width: 80, want: []string{"  ls"}},
		{name: "two parts", text: "rm a; rm b", width: 80,
			marks: func(s string) []mark { return []mark{part(s, "rm b", "r.two", 1), part(s, "rm a", "r.one", 1)} },
			want:  []string{"  rm a; rm b", "        ^^^^ r.two", "  ^^^^ r.one"}},
		{name: "lines", text: "cd /tmp\nrm -rf /\nls\n", width: 80, marks: func(s string) []mark { return []mark{part(s, "rm -rf /", "r", 1)} },
			want: []string{"  1 | cd /tmp", "  2 | rm -rf /", "    | ^^^^^^^^ r", "  3 | ls"}},
		{name: "over two lines", text: "rm \\\n  -rf /", width: 80, marks: func(s string) []mark { return []mark{{shell.Span{Start: 0, End: len(s)}, "r"}} },
			want: []string{`  1 | rm \`, "    | ^^^^ r", "  2 |   -rf /", "    | ^^^^^^^"}},
		{name: "tabs", text: "\tx\ty", width: 80, marks: func(s string) []mark { return []mark{part(s, "y", "r", 1)} },
			want: []string{"      x   y", "          ^ r"}},
		{name: "wide and combining", text: "echo 日本 e\u0301 é; rm 語", width: 80, marks: func(s string) []mark { return []mark{part(s, "rm 語", "r", 1)} },
			want: []string{"  echo 日本 e\u0301 é; rm 語", "                 ^^^^^ r"}},
		{name: "what cannot be seen", text: "a\x1b[31mb\u200b\xff c", width: 80, marks: func(s string) []mark { return []mark{part(s, "c", "r", 1)} },
			want: []string{`  a\x1b[31mb\u200b\xff c`, "                       ^ r"}},
		{name: "long, the end matters", text: strings.Repeat("x", 100) + " rm /", width: 30, marks: func(s string) []mark { return []mark{part(s, "rm /", "r", 1)} },
			want: []string{"  …" + strings.Repeat("x", 21) + " rm /", "                         ^^^^", "  r"}},
		{name: "long, two places", text: "rm 1 " + strings.Repeat("x", 100) + " rm 2", width: 30,
			marks: func(s string) []mark { return []mark{part(s, "rm 1", "a", 1), part(s, "rm 2", "b", 1)} },
			want:  []string{"  rm 1 " + strings.Repeat("x", 21) + "…", "  ^^^^ a", "  …" + strings.Repeat("x", 21) + " rm 2", "                         ^^^^", "  b"}},
		{name: "a part longer than the line", text: "echo " + strings.Repeat("y", 50), width: 20, marks: func(s string) []mark { return []mark{part(s, strings.Repeat("y", 50), "r", 1)} },
			want: []string{"  …" + strings.Repeat("y", 16) + "…", "   " + strings.Repeat("^", 16), "  r"}},
		{name: "wide at the cut", text: strings.Repeat("字", 30), width: 20, marks: func(s string) []mark { return []mark{{shell.Span{Start: 60, End: 63}, "r"}} },
			want: []string{"  …" + strings.Repeat("字", 8) + "…", "       ^^ r"}},
		{name: "no place", text: "ls", width: 80, marks: func(string) []mark { return []mark{{shell.Span{}, "r.whole"}} },
			want: []string{"  ls", "  r.whole"}},
		{name: "past the end", text: "ls", width: 80, marks: func(string) []mark { return []mark{{shell.Span{Start: 40, End: 50}, "r"}} },
			want: []string{"  ls", "  r"}},
		{name: "empty", text: "", width: 80, want: []string{"  "}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var b strings.Builder
			var marks []mark
			if c.marks != nil {
				marks = c.marks(c.text)
			}
			printSource(&b, style{}, c.text, marks, c.width)
			if diff := cmp.Diff(strings.Join(c.want, "\n")+"\n", b.String()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// A long script is shown around what decided.
func TestPrintSourceSkips(t *testing.T) {
	t.Parallel()
	text := strings.Repeat("true\n", 20) + "rm -rf /\n" + strings.Repeat("true\n", 20)
	var b strings.Builder
	printSource(&b, style{}, text, []mark{part(text, "rm -rf /", "r", 1)}, 80)
	want := "   1 | true\n  …\n  20 | true\n  21 | rm -rf /\n     | ^^^^^^^^ r\n  22 | true\n  …\n"
	if diff := cmp.Diff(want, b.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// Whatever the text and the marks are, no line is wider than asked, and no
// character that steers a terminal gets out.
func FuzzPrintSource(f *testing.F) {
	f.Add("rm -rf /\n\techo 日本 \x1b[2J\xff", 3, 9, 40)
	f.Add(strings.Repeat("é", 300), 100, 300, 20)
	f.Fuzz(func(t *testing.T, text string, from, to, width int) {
		if len(text) > 4096 {
			return
		}
		width = 24 + abs(width)%200
		var b strings.Builder
		printSource(&b, style{}, text, []mark{{shell.Span{Start: from, End: to}, "rule"}, {shell.Span{Start: to, End: from}, "rule"}}, width)
		for _, line := range strings.Split(b.String(), "\n") {
			if n := widthOf(cellsOf(line)); n > width {
				t.Errorf("%d columns, want at most %d: %q", n, width, line)
			}
			if cut(line, 1<<20) != line {
				t.Errorf("not fit to be shown: %q", line)
			}
		}
	})
}

func abs(n int) int {
	if n < 0 {
		return -(n + 1)
	}
	return n
}

func TestCutAndFold(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		in   string
		n    int
		want string
	}{
		{"short", 10, "short"}, {"exactly ten", 11, "exactly ten"}, {"a longer text", 6, "a lon…"},
		{"日本語", 5, "日本…"}, {"two\nlines", 20, "two lines"}, {"\x1b[0m", 20, `\x1b[0m`}, {"", 5, ""},
	} {
		if got := cut(c.in, c.n); got != c.want {
			t.Errorf("cut(%q, %d): got %q, want %q", c.in, c.n, got, c.want)
		}
	}
	got := fold("one two three four five six", "  ", 22)
	if want := "  one two three four\n  five six\n"; got != want {
		t.Errorf("fold: got %q, want %q", got, want)
	}
	if got := fold("", "  ", 22); got != "" {
		t.Errorf("fold nothing: %q", got)
	}
}

// All of a text is shown, broken at blanks where there are some.
func TestPrintWhole(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		text  string
		width int
		want  string
	}{
		{"ls", 40, "  ls\n"},
		{"one two three four", 12, "  one two \n  three four\n"},
		{strings.Repeat("x", 25), 12, "  xxxxxxxxxx\n  xxxxxxxxxx\n  xxxxx\n"},
		{"a\n\n日本語\x1b", 40, "  a\n  \n  日本語\\x1b\n"},
		{"a\tb\t \n\t\tc", 15, "  a\t\n  b\t \n  \t\n  \tc\n"}, // tabs and blanks at the end stay
		{"", 40, ""},
	} {
		var b strings.Builder
		printWhole(&b, c.text, c.width)
		if diff := cmp.Diff(c.want, b.String()); diff != "" {
			t.Errorf("%q (-want +got):\n%s", c.text, diff)
		}
	}
}
