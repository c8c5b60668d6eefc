package main

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
	"unicode"

	"github.com/spf13/cobra"

	"savepoint/orchestrator"
)

func newTx(a *app) *cobra.Command {
	c := &cobra.Command{Use: "tx", Short: "Look at transactions"}
	c.AddCommand(newTxList(a), newTxShow(a))
	return c
}

func newTxList(a *app) *cobra.Command {
	var f orchestrator.Filter
	var states []string
	var since time.Duration
	c := &cobra.Command{
		Use: "list", Short: "List transactions, newest first", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			for _, s := range states {
				if !orchestrator.State(s).Known() {
					return usagef("tx list --state %s: there is no such state", s)
				}
				f.States = append(f.States, orchestrator.State(s))
			}
			if since > 0 {
				f.Since = time.Now().Add(-since)
			}
			j, err := a.readJournal()
			if err != nil {
				return err
			}
			var txs []orchestrator.Transaction
			if j != nil {
				if txs, err = orchestrator.List(c.Context(), j, f); err != nil {
					return err
				}
			}
			return printList(a, txs, func(w io.Writer) error {
				rows := make([][]string, len(txs))
				for i, t := range txs {
					rows[i] = []string{
						string(t.ID), t.Began.Local().Format(time.DateTime), t.Sandbox.Name, string(t.State),
						string(t.Boundary), short(t.Timings.Total), oneLine(t.Command, 60),
					}
				}
				return table(w, "TRANSACTION\tBEGAN\tSANDBOX\tSTATE\tBOUNDARY\tTOOK\tCOMMAND", rows)
			})
		},
	}
	c.Flags().StringVar(&f.Sandbox, "sandbox", "", "only those of this sandbox (name or id)")
	c.Flags().StringSliceVar(&states, "state", nil, "only those in this state; can be repeated")
	c.Flags().DurationVar(&since, "since", 0, "only those begun within this time, e.g. 24h")
	c.Flags().IntVar(&f.Limit, "limit", 50, "the newest so many; 0 = all")
	c.Flags().BoolVar(&f.Open, "open", false, "only those that are not finished")
	return c
}

func newTxShow(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "show TRANSACTION", Short: "Show all that is recorded of one transaction", Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			j, err := a.readJournal()
			if err != nil {
				return err
			}
			if j == nil {
				return usagef("show transaction %s: there is no journal yet", args[0])
			}
			t, err := orchestrator.Show(c.Context(), j, orchestrator.TxID(args[0]))
			if errors.Is(err, orchestrator.ErrNotFound) {
				return usageError{err}
			}
			if err != nil {
				return err
			}
			if a.format != formatText {
				return a.printJSON(t)
			}
			return a.printTransaction(t)
		},
	}
}

func (a *app) printTransaction(t orchestrator.Transaction) error {
	st := a.style(a.out)
	rows := [][]string{
		{"transaction", string(t.ID)},
		{"state", paintState(st, t.State)},
		{"sandbox", fmt.Sprintf("%s (%s)", t.Sandbox.Name, t.Sandbox.VM)},
		{"began", t.Began.Local().Format(time.RFC3339)},
		{"command", oneLine(t.Command, 200)},
		{"as", string(t.As)},
		{"verdict", fmt.Sprintf("%s [%s] %s", t.Verdict.Decision, t.Verdict.Rule, t.Verdict.Reason)},
	}
	if t.Boundary != "" {
		rows = append(rows, []string{"boundary", strings.TrimSpace(fmt.Sprintf("%s %s", t.Boundary, t.Snapshot))})
	}
	if r := t.Result; r != nil {
		rows = append(rows, []string{"exit", strings.TrimSpace(fmt.Sprintf("%d %s", r.Exit, r.Signal))})
	}
	if t.Reason != "" {
		rows = append(rows, []string{"reason", oneLine(t.Reason, 1000)})
	}
	if t.Mend != "" {
		rows = append(rows, []string{"to do", t.Mend})
	}
	for _, k := range t.Tasks {
		rows = append(rows, []string{"task", fmt.Sprintf("%s %s", k.Action, k.UPID)})
	}
	if err := table(a.out, "", rows); err != nil {
		return err
	}
	fmt.Fprintln(a.out, "\nsteps")
	steps := make([][]string, len(t.Steps))
	for i, s := range t.Steps {
		steps[i] = []string{"  +" + short(s.At.Sub(t.Began)), string(s.State), s.Event, oneLine(s.Detail, 100)}
	}
	if err := table(a.out, "", steps); err != nil {
		return err
	}
	if t.Result != nil && t.Result.Stdout+t.Result.Stderr != "" {
		fmt.Fprintf(a.out, "\noutput\n%s%s", indent(printable(t.Result.Stdout)), indent(printable(t.Result.Stderr)))
	}
	return nil
}

// oneLine shortens a text to one line of at most n characters, with control
// characters made visible.
func oneLine(s string, n int) string {
	s = strings.NewReplacer("\n", " ", "\t", " ").Replace(printable(s))
	if r := []rune(s); len(r) > n {
		return string(r[:n-1]) + "…"
	}
	return s
}

// printable makes the control characters of a text visible, line ends and tabs
// aside: what a guest wrote must not steer the terminal of who reads about it.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) && r != '\n' && r != '\t' {
			return '�'
		}
		return r
	}, s)
}

// indent sets every line in by two blanks.
func indent(s string) string {
	if s == "" {
		return ""
	}
	return "  " + strings.ReplaceAll(strings.TrimSuffix(s, "\n"), "\n", "\n  ") + "\n"
}
