package main

import (
	"cmp"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"savepoint/orchestrator"
)

func newTxShow(a *app) *cobra.Command {
	var ref txRef
	c := &cobra.Command{
		Use: "show TX", Short: "Show what became of one transaction", Args: ref.args(0, 0),
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
				return usagef("show transaction %s: there is no journal yet; make a sandbox first (see savepoint sandbox create)", cmp.Or(r.id, "of sandbox "+r.sandbox))
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

// printTransaction shows what is recorded, for a person.
func (a *app) printTransaction(t orchestrator.Transaction) error {
	width := a.width(a.out)
	f := &facts{width: width}
	whole(f, t, paintState(a.style(a.out), t.State))
	switch {
	case t.Unused():
		f.add("command", "none: its snapshot was taken ahead, for a command to come")
	case !t.Several:
		commandFacts(f, commandOf(t))
	}
	for _, v := range t.Validate {
		validationFacts(f, v)
	}
	if r := t.Result; r != nil && !t.Several {
		resultFacts(f, *r)
	}
	checkFacts(f, t.Checks)
	if !t.Several {
		changeFacts(f, t.Changed, t.ChangedCount)
	}
	endFacts(f, t)
	if err := f.print(a.out); err != nil {
		return err
	}
	if r := t.Result; r != nil && !t.Several && r.Stdout+r.Stderr != "" {
		fmt.Fprintln(a.out)
		a.printOutput("", *r)
	}
	for _, c := range t.Commands {
		if err := a.printCommand(t, c, width); err != nil {
			return err
		}
	}
	return a.printHistory(t, width)
}

// whole adds what is said of the transaction as a whole.
func whole(f *facts, t orchestrator.Transaction, state string) {
	f.add("transaction", string(t.ID))
	f.rows = append(f.rows, fact{"state", []string{state}}) // it may be coloured
	sb := t.Sandbox
	at := ""
	if sb.Address.IsValid() {
		at = ", " + sb.Address.String()
	}
	f.addf("sandbox", "%s (%s%s, id %s)", sb.Name, sb.VM, at, sb.ID)
	if sb.Tenant != "" {
		f.exact("tenant", joined(sb.Tenant, ", network ", sb.VNet))
	}
	f.add("asked by", t.By)
	f.add("instance", t.Owner)
	f.exact("key", t.Key)
	f.add("began", t.Began.Local().Format(time.RFC3339))
	if !t.Ended.IsZero() {
		f.add("ended", t.Ended.Local().Format(time.RFC3339))
	}
	if !t.Expires.IsZero() {
		f.add("expires", t.Expires.Local().Format(time.RFC3339)+", without another order")
	}
	if t.Several {
		f.add("commands", fmt.Sprint(len(t.Commands)))
		f.add("as", string(t.As))
	}
	f.add("on failure", string(t.OnFailure))
	f.add("profile", t.Profile)
	if t.Session {
		f.add("session", "each command begins where the one before ended")
	}
	if t.Bound {
		f.add("lasts", "as long as the process that began it")
	}
	f.addf("boundary", "%s %s", t.Boundary, t.Snapshot)
	if t.Ahead && !t.Unused() {
		f.add("snapshot", "taken ahead, and nothing was written in the guest before the command came")
	}
	if t.Snapshot != "" {
		f.add("vm", map[bool]string{true: "running at the begin", false: "stopped at the begin"}[t.RunningAtBegin])
	}
	f.add("boot id", t.BootID)
}

// endFacts adds how it ended and what is to be done.
func endFacts(f *facts, t orchestrator.Transaction) {
	if t.Interrupted {
		f.add("interrupted", "before the commit point")
	}
	if t.Several || t.Reason != t.Verdict.Reason {
		f.add("reason", t.Reason)
	}
	f.add("to do", t.Mend)
	if t.Attempts > 1 {
		f.addf("rollback", "took %d attempts", t.Attempts)
	}
	if t.Redacted > 0 {
		f.addf("redacted", "%s taken out of the record", plural(t.Redacted, "secret was", "secrets were"))
	}
	if t.State.Final() && !t.Settled {
		f.add("left", "its snapshot is still on the cluster; savepoint gc deletes it")
	}
	f.list("timings", timings(t.Timings))
}

// printCommand shows one of several commands with what came of it.
func (a *app) printCommand(t orchestrator.Transaction, c orchestrator.CommandView, width int) error {
	fmt.Fprintf(a.out, "\ncommand %d, %s\n", c.N, stepState(c))
	f := &facts{indent: "  ", width: width}
	f.add("at", after(c.At.Sub(t.Began)))
	f.exact("key", c.Key)
	commandFacts(f, c)
	for _, v := range c.Validate {
		validationFacts(f, v)
	}
	if c.Result != nil {
		resultFacts(f, *c.Result)
	}
	checkFacts(f, c.Checks)
	changeFacts(f, c.Changed, c.ChangedCount)
	if c.Reason != c.Verdict.Reason {
		f.add("reason", c.Reason)
	}
	if err := f.print(a.out); err != nil {
		return err
	}
	if c.Result != nil {
		a.printOutput("  ", *c.Result)
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

// printHistory shows the states that can come back, the newest first, and every
// record.
func (a *app) printHistory(t orchestrator.Transaction, width int) error {
	var rows [][]string
	if t.Several {
		fmt.Fprintln(a.out, "\nsavepoints, the newest first")
		for i := len(t.Points) - 1; i >= 0; i-- {
			p := t.Points[i]
			rows = append(rows, []string{p.Name, after(p.At.Sub(t.Began)), string(p.Boundary), string(p.Snapshot)})
		}
		if err := listed(a.out, rows, width); err != nil {
			return err
		}
	}
	fmt.Fprintln(a.out, "\nsteps")
	rows = nil
	for _, s := range t.Steps {
		took := ""
		if s.Took > 0 {
			took = short(s.Took)
		}
		rows = append(rows, []string{fmt.Sprintf("#%d", s.Seq), after(s.At.Sub(t.Began)), string(s.State), s.Event, took, s.Detail})
	}
	return listed(a.out, rows, width)
}

// printOutput shows what is kept of both streams.
func (a *app) printOutput(margin string, r orchestrator.RanView) {
	for _, s := range []struct{ name, text string }{{"stdout", r.Stdout}, {"stderr", r.Stderr}} {
		if s.text != "" {
			fmt.Fprintf(a.out, "%s%s:\n", margin, s.name)
			for _, line := range broken(s.text, 1<<20) { // a terminal breaks lines itself, and they can be copied
				fmt.Fprintf(a.out, "%s  %s\n", margin, line)
			}
		}
	}
}

// after is a time seen from a transaction's begin. What was prepared for it lies
// before that.
func after(d time.Duration) string {
	if d < 0 {
		return "-" + short(-d)
	}
	return "+" + short(d)
}
