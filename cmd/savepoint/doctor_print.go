package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
)

// groups are the headings of the report, with the checks below each.
var groups = []struct {
	name   string
	checks []string
}{
	{"Cluster", []string{"api", "version", "quorum", "clock", "certificate", "nodes"}},
	{"Rights", []string{"privileges"}},
	{"Storage", []string{"storage", "canary"}},
	{"Network", []string{"network", "packages"}},
	{"Guests", []string{"template", "ssh", "workspace"}},
	{"Sandboxes", []string{"schedules", "sandboxes"}},
}

func (a *app) printFindings(fs []finding) error {
	usable := !slices.ContainsFunc(fs, func(f finding) bool { return f.Level == levelProblem })
	if a.format != formatText {
		err := a.printJSON(struct {
			Usable   bool      `json:"usable"`
			Findings []finding `json:"findings"`
		}{usable, fs})
		if err != nil {
			return err
		}
	} else {
		width := 0 // a pipe gets whole lines, for grep
		if terminal(a.out) > 0 || a.getenv("COLUMNS") != "" {
			width = a.width(a.out)
		}
		r := report{w: a.out, st: a.style(a.out), width: width, said: map[string]bool{}}
		r.print(fs, usable)
	}
	if !usable {
		return outcomeError{exitUnusable}
	}
	return nil
}

// report writes findings for people.
type report struct {
	w     io.Writer
	st    style
	width int             // 0: lines are not broken
	said  map[string]bool // the commands that were printed
}

func (r *report) print(fs []finding, usable bool) {
	for _, g := range groups {
		in := slices.DeleteFunc(slices.Clone(fs), func(f finding) bool { return !slices.Contains(g.checks, f.Check) })
		if len(in) == 0 {
			continue
		}
		slices.SortStableFunc(in, func(a, b finding) int { return slices.Index(g.checks, a.Check) - slices.Index(g.checks, b.Check) })
		fmt.Fprintln(r.w, r.st.bold(g.name))
		for _, f := range in {
			r.finding(f)
		}
	}
	n := map[string]int{}
	for _, f := range fs {
		n[f.Level]++
	}
	fmt.Fprintf(r.w, "\n%d ok, %s, %s: ", n[levelOK], several(n[levelWarning], "warning"), several(n[levelProblem], "problem"))
	if usable {
		fmt.Fprintln(r.w, "the cluster can be used")
	} else {
		fmt.Fprintln(r.w, "the cluster cannot be used as it is")
	}
}

// several counts things: "1 warning", "2 warnings".
func several(n int, what string) string {
	if n != 1 {
		what += "s"
	}
	return fmt.Sprintf("%d %s", n, what)
}

const findingIndent = "  "

func (r *report) finding(f finding) {
	level := r.st.green("ok     ")
	switch f.Level {
	case levelWarning:
		level = r.st.yellow("warning")
	case levelProblem:
		level = r.st.red("problem")
	}
	const behind = 2 + 7 + 2 + 11 + 2 // level and check
	lines := []string{printable(f.Detail)}
	if r.width > 0 {
		lines = wrap(printable(f.Detail), max(r.width-behind, 20))
	}
	fmt.Fprintf(r.w, "%s%s  %-11s  %s\n", findingIndent, level, f.Check, lines[0])
	for _, l := range lines[1:] {
		fmt.Fprintf(r.w, "%*s%s\n", behind, "", l)
	}
	r.mend(f.Mend)
}

// mend is set off by an arrow, less far in than the detail: commands are long.
// What was printed once is not printed again.
func (r *report) mend(text string) {
	if text == "" {
		return
	}
	const lead = findingIndent + "       → "
	if r.said[text] {
		fmt.Fprintln(r.w, lead+"the same as above")
		return
	}
	r.said[text] = true
	lines := []string{printable(text)}
	if r.width > 0 {
		lines = foldMend(printable(text), max(r.width-len([]rune(lead)), 20))
	}
	fmt.Fprintln(r.w, lead+strings.Join(lines, "\n"+findingIndent+"         "))
}

// foldMend breaks prose at blanks, and a command at blanks outside quotes in
// such a way that the shell takes the lines for one.
func foldMend(text string, n int) []string {
	first, _, _ := strings.Cut(text, " ")
	if !slices.Contains([]string{"pveum", "pvesm", "pvesh", "qm", "zfs", "savepoint", "ha-manager"}, first) {
		return wrap(text, n)
	}
	var lines []string
	line := ""
	for _, word := range shellWords(text) {
		switch {
		case line == "":
			line = word
		case visible(line)+1+visible(word)+2 <= n:
			line += " " + word
		default:
			lines = append(lines, line+` \`)
			line = word
		}
	}
	return append(lines, line)
}

// shellWords parts a command at its blanks; quotes stay with their words.
func shellWords(s string) []string {
	var words []string
	var quote rune
	word := ""
	for _, c := range s {
		switch {
		case quote == 0 && c == ' ':
			words = append(words, word)
			word = ""
			continue
		case quote == 0 && (c == '\'' || c == '"'):
			quote = c
		case c == quote:
			quote = 0
		}
		word += string(c)
	}
	return append(words, word)
}
