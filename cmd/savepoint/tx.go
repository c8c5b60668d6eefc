package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"
	"unicode"

	"github.com/spf13/cobra"

	"savepoint/orchestrator"
	"savepoint/policy"
)

func newTx(a *app) *cobra.Command {
	c := &cobra.Command{
		Use: "tx", Short: "Transactions of several commands, and the record of all",
		Long: "begin takes the snapshot and prints the transaction's id; exec runs commands in\n" +
			"it, savepoint and rollback --to go forth and back, commit and rollback end it.\n" +
			"Each order may come from another process. Until its end the sandbox takes no\n" +
			"other command. One that gets no order for too long is rolled back by the next\n" +
			"command that changes something, or by savepoint recover.\n\n" +
			"TX is an id, its first characters (at least 6) where no other begins so, or is\n" +
			"left out with --sandbox NAME.\n\n" + exitCodes,
	}
	c.AddCommand(
		newTxBegin(a), newTxExec(a), newTxSavepoint(a), newTxRollback(a), newTxCommit(a),
		newTxList(a), newTxShow(a), newTxVerify(a),
	)
	return c
}

// txFilter are the choices of tx list.
type txFilter struct {
	orchestrator.Filter
	states []string
	since  string
	as     string
	all    bool
}

// filter checks the choices.
func (f *txFilter) filter(now time.Time) (orchestrator.Filter, error) {
	out := f.Filter
	out.Used = !f.all && !out.Open
	for _, s := range f.states {
		if !orchestrator.State(s).Known() {
			return out, usagef("tx list --state %s: there is no such state; use %s", s, anyOf(orchestrator.States()))
		}
		out.States = append(out.States, orchestrator.State(s))
	}
	if f.since != "" {
		d, err := parseAge("tx list --since", f.since)
		if err != nil {
			return out, err
		}
		out.Since = now.Add(-d)
	}
	switch out.As = policy.User(f.as); out.As {
	case "", policy.Agent, policy.Root:
	default:
		return out, usagef("tx list --as %s: no such account; use agent or root", f.as)
	}
	switch out.Decision {
	case "", policy.Allow.String(), policy.Snapshot.String(), policy.Deny.String():
	default:
		return out, usagef("tx list --decision %s: no such decision; use allow, snapshot or deny", out.Decision)
	}
	if out.Limit < 0 {
		return out, usagef("tx list --limit %d is negative", out.Limit)
	}
	return out, nil
}

// anyOf lists what can be chosen.
func anyOf(states []orchestrator.State) string {
	names := make([]string, len(states))
	for i, s := range states {
		names[i] = string(s)
	}
	last := len(names) - 1
	return strings.Join(names[:last], ", ") + " or " + names[last]
}

func newTxList(a *app) *cobra.Command {
	var f txFilter
	c := &cobra.Command{
		Use: "list", Short: "List transactions, newest first", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			filter, err := f.filter(time.Now())
			if err != nil {
				return err
			}
			j, err := a.readJournal()
			if err != nil {
				return err
			}
			var txs []orchestrator.Transaction
			if j != nil {
				if txs, err = orchestrator.List(c.Context(), j, filter); err != nil {
					return err
				}
			}
			return printList(a, txs, func(w io.Writer) error {
				rows, now := make([][]string, len(txs)), time.Now()
				for i, t := range txs {
					took := ""
					if t.State.Final() {
						took = short(t.Timings.Total)
					}
					rows[i] = []string{
						string(t.ID), t.Began.Local().Format(time.DateTime), t.Sandbox.Name, stateCell(t, now),
						string(t.Boundary), took, oneLine(whatRan(t), 60),
					}
				}
				return table(w, "TRANSACTION\tBEGAN\tSANDBOX\tSTATE\tBOUNDARY\tTOOK\tCOMMAND", rows)
			})
		},
	}
	fl := c.Flags()
	fl.StringVar(&f.Sandbox, "sandbox", "", "only those of this sandbox (name or id)")
	fl.StringSliceVar(&f.states, "state", nil, "only those in this state; can be repeated")
	fl.StringVar(&f.since, "since", "", "only those begun within this time, e.g. 24h or 7d")
	fl.IntVar(&f.Limit, "limit", 50, "the newest so many; 0 = all")
	fl.BoolVar(&f.all, "all", false, "also snapshots that were taken ahead and not used by a command")
	fl.BoolVar(&f.Open, "open", false, "only those that are not finished")
	fl.StringVar(&f.as, "as", "", "only those with a command of this account: agent or root")
	fl.StringVar(&f.Rule, "rule", "", "only those with a command that this rule decided or was lifted for")
	fl.StringVar(&f.Decision, "decision", "", "only those with a command that was judged so: allow, snapshot or deny")
	return c
}

// stateCell marks what waits for its next order.
func stateCell(t orchestrator.Transaction, now time.Time) string {
	switch {
	case t.State != orchestrator.StateOpen || t.Bound:
		return string(t.State)
	case now.Before(t.Expires):
		return fmt.Sprintf("open, %s left", short(t.Expires.Sub(now).Round(time.Second)))
	default:
		return "open, expired"
	}
}

// whatRan is the command, or how many there were and the last of them.
func whatRan(t orchestrator.Transaction) string {
	n := len(t.Commands)
	switch {
	case t.Unused():
		return "(a snapshot taken ahead)"
	case !t.Several:
		return t.Command
	case n == 0:
		return "(no command)"
	case n == 1:
		return t.Commands[0].Command
	default:
		return fmt.Sprintf("(%d commands) … %s", n, t.Commands[n-1].Command)
	}
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

// showOf reads one transaction of the journal.
func showOf(ctx context.Context, j orchestrator.Journal, id orchestrator.TxID) (orchestrator.Transaction, error) {
	t, err := orchestrator.Show(ctx, j, id)
	return t, named(err)
}
