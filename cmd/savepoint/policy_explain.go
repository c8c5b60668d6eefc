package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"savepoint/policy"
)

func newPolicyExplain(a *app) *cobra.Command {
	var f policyFlags
	c := &cobra.Command{
		Use: "explain [RULE]", Short: "Say all that is written about a rule, or list the rules",
		Args: cobra.MaximumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			e, _, err := f.load(a)
			if err != nil {
				return err
			}
			if len(args) == 0 {
				return a.listRules(e)
			}
			x, ok := e.Explain(args[0])
			if !ok {
				hint := "savepoint policy explain lists the rules"
				if near := e.Suggest(args[0]); len(near) > 0 {
					hint = "did you mean " + strings.Join(near, " or ") + "?"
				}
				return usagef("policy explain %s: there is no such rule; %s", printable(args[0]), hint)
			}
			if a.format != formatText {
				return a.printJSON(x)
			}
			a.printRule(x)
			return nil
		},
	}
	f.addRules(c)
	return c
}

func (a *app) listRules(e *policy.Engine) error {
	var all []policy.Explanation
	for _, id := range e.Rules() {
		if x, ok := e.Explain(id); ok {
			all = append(all, x)
		}
	}
	return printList(a, all, func(w io.Writer) error {
		rows := [][]string{{"RULE", "DECISION", "REASON"}}
		for _, x := range all {
			rows = append(rows, []string{x.ID, x.Decision, x.Reason})
		}
		return fitted(w, rows, a.width(w))
	})
}

func (a *app) printRule(x policy.Explanation) {
	w, st, width := a.out, a.style(a.out), a.width(a.out)
	fmt.Fprintf(w, "%s  %s\n", st.bold(x.ID), paintDecision(st, x.Decision))
	fmt.Fprint(w, fold(x.Reason, "  ", width))
	if x.Alternative != "" {
		fmt.Fprint(w, fold("instead: "+x.Alternative, "  ", width))
	}
	if x.Locus != "" {
		undo := "can be rolled back"
		if !x.Reversible {
			undo = "cannot be rolled back"
		}
		fmt.Fprintf(w, "  effect on %s, %s\n", x.Locus, undo)
	}
	if len(x.Profiles) > 0 {
		fmt.Fprintf(w, "  only in profile %s\n", strings.Join(x.Profiles, ", "))
	}
	if len(x.Lifts) > 0 {
		fmt.Fprint(w, fold("where it applies it lifts "+strings.Join(x.Lifts, ", "), "  ", width))
	}
	switch {
	case x.Grantable:
		fmt.Fprint(w, fold("a grant can lift it for one command: savepoint policy grant SANDBOX --rule "+x.ID+" -- COMMAND", "  ", width))
	case x.Decision == policy.Deny.String():
		fmt.Fprintln(w, "  no grant can lift it")
	}
	if x.File != "" {
		fmt.Fprintf(w, "  written in %s\n", printable(x.File))
	}
	section := func(title string, lines []string) {
		if len(lines) == 0 {
			return
		}
		fmt.Fprintf(w, "\n%s\n", title)
		for _, l := range lines {
			fmt.Fprintln(w, "  "+cut(l, max(width-2, 20)))
		}
	}
	if len(x.Conditions) > 0 {
		fmt.Fprintln(w, "\napplies when")
		for i, l := range x.Conditions {
			if i > 0 {
				fmt.Fprintln(w, "  or")
			}
			fmt.Fprint(w, fold(l, "    ", width))
		}
	}
	section("examples it applies to", x.Match)
	section("examples it does not apply to", x.NotMatch)
}
