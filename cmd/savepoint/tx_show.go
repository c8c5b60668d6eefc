package main

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"savepoint/orchestrator"
)

func newTxShow(a *app) *cobra.Command {
	var ref txRef
	c := &cobra.Command{
		Use: "show TX", Short: "Show all that is recorded of one transaction", Args: ref.args(0, 0),
		RunE: func(c *cobra.Command, args []string) error {
			r, _, err := ref.split(c, args)
			if err != nil {
				return err
			}
			j, err := a.readJournal()
			if err != nil {
				return err
			}
			if j == nil {
				return usagef("show transaction %s: there is no journal yet", cmp.Or(r.id, "of sandbox "+r.sandbox))
			}
			id, err := r.find(c.Context(), j, "")
			if err != nil {
				return err
			}
			t, err := showOf(c.Context(), j, id)
			if err != nil {
				return err
			}
			if a.format != formatText {
				return a.printJSON(t)
			}
			return a.printTransaction(t)
		},
	}
	ref.add(c)
	return c
}

func (a *app) printTransaction(t orchestrator.Transaction) error {
	st := a.style(a.out)
	rows := [][]string{
		{"transaction", string(t.ID)},
		{"state", paintState(st, t.State)},
		{"sandbox", fmt.Sprintf("%s (%s)", t.Sandbox.Name, t.Sandbox.VM)},
		{"began", t.Began.Local().Format(time.RFC3339)},
	}
	add := func(name, value string) {
		if value = strings.TrimSpace(value); value != "" {
			rows = append(rows, []string{name, value})
		}
	}
	if !t.Ended.IsZero() {
		add("ended", t.Ended.Local().Format(time.RFC3339))
	}
	if !t.Expires.IsZero() {
		add("expires", t.Expires.Local().Format(time.RFC3339)+", without another order")
	}
	add("asked by", t.By)
	add("key", oneLine(t.Key, 200))
	if !t.Several {
		add("command", oneLine(t.Command, 200))
		add("ran as", oneLine(t.Runs, 200))
	}
	add("as", string(t.As))
	add("on failure", string(t.OnFailure))
	if t.Several {
		add("commands", fmt.Sprint(len(t.Commands)))
	} else {
		add("verdict", verdictText(t.Verdict))
	}
	rows = append(rows, liftRows(t.Verdict)...)
	add("boundary", fmt.Sprintf("%s %s", t.Boundary, t.Snapshot))
	for _, v := range t.Validate {
		add("validate", fmt.Sprintf("%s (as %s)", oneLine(v.Command, 100), v.As))
	}
	if r := t.Result; r != nil && !t.Several {
		add("exit", exitText(*r))
	}
	rows = append(rows, checkRows(t.Checks)...)
	rows = append(rows, changeRows(t.Changed, t.ChangedCount)...)
	add("reason", oneLine(t.Reason, 1000))
	add("to do", oneLine(t.Mend, 1000))
	if t.Redacted > 0 {
		add("redacted", fmt.Sprintf("%d secrets were taken out of the record", t.Redacted))
	}
	for _, k := range t.Tasks {
		add("task", fmt.Sprintf("%s %s", k.Action, k.UPID))
	}
	add("timings", timingText(t.Timings))
	if err := table(a.out, "", rows); err != nil {
		return err
	}
	if err := a.printCommands(t); err != nil {
		return err
	}
	if err := a.printPoints(t); err != nil {
		return err
	}
	fmt.Fprintln(a.out, "\nsteps")
	steps := make([][]string, len(t.Steps))
	for i, s := range t.Steps {
		took := ""
		if s.Took > 0 {
			took = short(s.Took)
		}
		steps[i] = []string{"  +" + short(s.At.Sub(t.Began)), string(s.State), s.Event, took, oneLine(s.Detail, 100)}
	}
	if err := table(a.out, "", steps); err != nil {
		return err
	}
	if t.Result != nil && !t.Several {
		a.printOutput("\noutput\n", *t.Result)
	}
	return nil
}

// printCommands shows the commands of a transaction of several, one after the
// other, each with what came of it.
func (a *app) printCommands(t orchestrator.Transaction) error {
	for _, c := range t.Commands {
		fmt.Fprintf(a.out, "\ncommand %d, %s\n", c.N, stepState(c))
		rows := [][]string{{"  command", oneLine(c.Command, 200)}}
		add := func(name, value string) {
			if value = strings.TrimSpace(value); value != "" {
				rows = append(rows, []string{"  " + name, value})
			}
		}
		add("ran as", oneLine(c.Runs, 200))
		add("at", "+"+short(c.At.Sub(t.Began)))
		add("as", string(c.As))
		add("directory", oneLine(c.Dir, 200))
		add("key", oneLine(c.Key, 200))
		add("verdict", verdictText(c.Verdict))
		if c.Result != nil {
			add("exit", exitText(*c.Result))
			add("took", short(c.Result.Took))
		}
		for _, v := range c.Validate {
			add("validate", fmt.Sprintf("%s (as %s)", oneLine(v.Command, 100), v.As))
		}
		for _, more := range [][][]string{liftRows(c.Verdict), checkRows(c.Checks), changeRows(c.Changed, c.ChangedCount)} {
			for _, r := range more {
				add(r[0], r[1])
			}
		}
		if c.Reason != c.Verdict.Reason {
			add("reason", oneLine(c.Reason, 1000))
		}
		for i := range rows { // under one another, over all commands
			rows[i][0] = fmt.Sprintf("%-11s", rows[i][0])
		}
		if err := table(a.out, "", rows); err != nil {
			return err
		}
		if c.Result != nil {
			a.printOutput("", *c.Result)
		}
	}
	return nil
}

// stepState is the state of one command in words: open is the transaction's.
func stepState(c orchestrator.CommandView) string {
	switch {
	case c.State != orchestrator.StateOpen:
		return string(c.State)
	case c.Result == nil:
		return "not run"
	default:
		return "done"
	}
}

// printPoints shows the states that can come back, the newest first.
func (a *app) printPoints(t orchestrator.Transaction) error {
	if !t.Several {
		return nil
	}
	fmt.Fprintln(a.out, "\nsavepoints, the newest first")
	var rows [][]string
	for i := len(t.Points) - 1; i >= 0; i-- {
		p := t.Points[i]
		rows = append(rows, []string{"  " + p.Name, "+" + short(p.At.Sub(t.Began)), string(p.Boundary), string(p.Snapshot)})
	}
	return table(a.out, "", rows)
}

func (a *app) printOutput(title string, r orchestrator.RanView) {
	if r.Stdout+r.Stderr != "" {
		fmt.Fprintf(a.out, "%s%s%s", title, indent(printable(r.Stdout)), indent(printable(r.Stderr)))
	}
}

func verdictText(v orchestrator.Judgement) string {
	return fmt.Sprintf("%s [%s] %s", v.Decision, v.Rule, oneLine(v.Reason, 1000))
}

func exitText(r orchestrator.RanView) string {
	text := strings.TrimSpace(fmt.Sprintf("%d %s", r.Exit, r.Signal))
	if r.TimedOut {
		text += ", ended by its deadline"
	}
	return text
}

func liftRows(v orchestrator.Judgement) (rows [][]string) {
	for _, l := range v.Lifted {
		rows = append(rows, []string{"lifted", strings.TrimSpace(fmt.Sprintf("%s by %s: %s", l.Rule, l.By, oneLine(l.Target, 100)))})
	}
	return rows
}

func checkRows(checks []orchestrator.Check) (rows [][]string) {
	for _, k := range checks {
		text := "ok: " + oneLine(k.Name, 100)
		if !k.OK {
			text = "failed: " + oneLine(k.Name, 100)
		}
		if k.Detail != "" {
			text += ": " + oneLine(k.Detail, 300)
		}
		rows = append(rows, []string{"check", text})
	}
	return rows
}

func changeRows(changes []orchestrator.Change, count int) (rows [][]string) {
	for _, c := range changes {
		rows = append(rows, []string{string(c.Kind), oneLine(c.Path, 200)})
	}
	if more := count - len(changes); more > 0 {
		rows = append(rows, []string{"and", fmt.Sprintf("%d more paths", more)})
	}
	return rows
}

// timingText names the steps that took time.
func timingText(t orchestrator.Timings) string {
	var parts []string
	for _, p := range []struct {
		name string
		took time.Duration
	}{
		{"policy", t.Policy},
		{"snapshot", t.Snapshot},
		{"execute", t.Execute},
		{"validate", t.Validate},
		{"commit", t.Commit},
		{"rollback", t.Rollback},
		{"total", t.Total},
	} {
		if p.took > 0 {
			parts = append(parts, p.name+" "+short(p.took))
		}
	}
	return strings.Join(parts, ", ")
}
