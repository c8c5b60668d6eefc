package main

import (
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"savepoint/policy"
)

func newPolicyTest(a *app) *cobra.Command {
	var f policyFlags
	c := &cobra.Command{
		Use: "test FILE", Short: "Judge labelled commands and say where the policy is of another opinion",
		Long: "Reads a table: the header line expected, class, command, then one case a line,\n" +
			"the three parted by tabs. In the command \\n, \\t, \\r, \\0, \\e and \\\\ stand for the\n" +
			"characters they name. FILE - is standard input. Prints how often each decision\n" +
			"was wanted and got, and every miss. The exit code is 1 when there is one.",
		Example: "  savepoint policy test cases.tsv\n  savepoint policy test --rules mine.yaml --as root - < cases.tsv",
		Args:    cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			e, req, _, err := f.request(a, "policy test")
			if err != nil {
				return err
			}
			in, err := a.input(args[0])
			if err != nil {
				return usagef("policy test: %w", err)
			}
			defer in.Close()
			cases, err := policy.ReadCases(in)
			if err != nil {
				return usagef("policy test %s: %w", args[0], err)
			}
			r := e.Test(req, cases)
			if err := a.printReport(r); err != nil {
				return err
			}
			if len(r.Misses) > 0 {
				return outcomeError{exitInternal}
			}
			return nil
		},
	}
	f.add(c)
	return c
}

func (a *app) printReport(r policy.TestReport) error {
	switch a.format {
	case formatJSON:
		return a.printJSON(r)
	case formatNDJSON: // a miss a line, then the figures
		for _, m := range r.Misses {
			if err := a.printJSON(m); err != nil {
				return err
			}
		}
		misses := len(r.Misses)
		r.Misses = nil
		return a.printJSON(struct {
			Summary any `json:"summary"`
		}{struct {
			Cases  int                `json:"cases"`
			Right  int                `json:"right"`
			Misses int                `json:"misses"`
			Rows   []policy.MatrixRow `json:"matrix"`
		}{r.Cases, r.Right, misses, r.Rows}})
	case formatText:
	}
	st := a.style(a.out)
	rows := make([][]string, len(r.Rows))
	for i, row := range r.Rows {
		rows[i] = []string{"wanted " + row.Want.String(), strconv.Itoa(row.Deny), strconv.Itoa(row.Snapshot), strconv.Itoa(row.Allow)}
	}
	if err := table(a.out, "\tgot deny\tsnapshot\tallow", rows); err != nil {
		return err
	}
	if len(r.Misses) > 0 {
		fmt.Fprintln(a.out)
		if err := a.printMisses(r.Misses); err != nil {
			return err
		}
	}
	end := fmt.Sprintf("%d cases, all as wanted", r.Cases)
	if n := len(r.Misses); n > 0 {
		end = fmt.Sprintf("%d cases, %d as wanted, %s", r.Cases, r.Right, st.red(plural(n, "miss", "misses")))
		if weak := r.Matrix.Weaker(); weak > 0 {
			end += fmt.Sprintf(" (%d weaker than wanted)", weak)
		}
	}
	_, err := fmt.Fprintf(a.out, "\n%s\n", end)
	return err
}

// printMisses writes a table whose last column, the command, gets what the
// width leaves.
func (a *app) printMisses(misses []policy.Miss) error {
	rows := [][]string{{"LINE", "CLASS", "WANTED", "GOT", "RULE", "COMMAND"}}
	for _, m := range misses {
		rows = append(rows, []string{strconv.Itoa(m.Case.Line), m.Case.Class, m.Case.Want.String(), m.Got.String(), m.Rule, m.Case.Command})
	}
	return fitted(a.out, rows, a.width(a.out))
}

// fitted writes rows in aligned columns of which the last is cut to the width.
func fitted(w io.Writer, rows [][]string, width int) error {
	if len(rows) == 0 {
		return nil
	}
	last := len(rows[0]) - 1
	columns := make([]int, last)
	for _, r := range rows {
		for i := range columns {
			r[i] = cut(r[i], 40)
			columns[i] = max(columns[i], widthOf(cellsOf(r[i])))
		}
	}
	room := width
	for _, n := range columns {
		room -= n + 2
	}
	for _, r := range rows {
		var b strings.Builder
		for i, n := range columns {
			b.WriteString(r[i] + strings.Repeat(" ", n+2-widthOf(cellsOf(r[i]))))
		}
		text := strings.TrimRight(b.String()+cut(r[last], max(room, 12)), " ")
		if _, err := fmt.Fprintln(w, text); err != nil {
			return err
		}
	}
	return nil
}

func plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
