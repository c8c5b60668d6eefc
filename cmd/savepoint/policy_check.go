package main

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"savepoint/policy"
)

// checkFlags are the choices of policy check.
type checkFlags struct {
	policyFlags
	input    string
	journal  bool
	forModel bool
	grants   []string
}

func newPolicyCheck(a *app) *cobra.Command {
	var f checkFlags
	c := &cobra.Command{
		Use: "check [flags] [-- COMMAND]", Short: "Say what the policy decides about a command, a file of them, or all in the journal",
		Long: "With a command: prints its verdict and the parts it rests on; the exit code is 3\n" +
			"when it is denied. With --input FILE (- for standard input): reads one\n" +
			"{\"id\",\"command\"} a line and prints one verdict a line in the same order. With\n" +
			"--journal: judges again every command and validation that was ever asked for, as\n" +
			"who asked and with the grants it used, and prints what would be decided\n" +
			"differently now. The exit code of both is 0 whatever the verdicts are.",
		Example: "  savepoint policy check -- 'rm -rf build'\n" +
			"  savepoint policy check --input commands.ndjson --output ndjson\n" +
			"  savepoint policy check --journal --rules stricter.yaml",
		RunE: func(c *cobra.Command, args []string) error {
			if err := f.fit(c, args); err != nil {
				return err
			}
			e, req, cfg, err := f.request(a, "policy check")
			if err != nil {
				return err
			}
			switch {
			case f.input != "":
				return a.checkFile(e, req, f.input)
			case f.journal:
				return a.checkJournal(c.Context(), e, cfg)
			}
			req.Command = strings.Join(args, " ")
			for _, rule := range f.grants {
				if err := e.Grantable(rule); err != nil {
					return usagef("policy check: %w", err)
				}
				now := time.Now()
				req.Now = now
				req.Grants = append(req.Grants, policy.Grant{ID: "of --grant", Rule: rule, Command: req.Command, User: req.User, Expires: now.Add(time.Minute)})
			}
			return a.checkOne(e, req, f.forModel)
		},
	}
	f.add(c)
	c.Flags().StringVar(&f.input, "input", "", "file with one {\"id\",\"command\"} a line; - is standard input")
	c.Flags().BoolVar(&f.journal, "journal", false, "judge again what the journal holds, with the accounts and profiles recorded there")
	c.Flags().BoolVar(&f.forModel, "for-model", false, "print only the message that a model gets")
	c.Flags().StringArrayVar(&f.grants, "grant", nil, "judge as if a grant lifted this rule; can be repeated")
	return c
}

// fit refuses choices that do not go together.
func (f *checkFlags) fit(c *cobra.Command, args []string) error {
	switch {
	case f.input != "" && len(args) > 0:
		return usagef("policy check: --input and a command exclude each other")
	case f.journal && (len(args) > 0 || f.input != ""):
		return usagef("policy check: --journal takes its commands from the journal; leave out --input and the command")
	case f.journal && (c.Flags().Changed("as") || f.profile != ""):
		return usagef("policy check: --journal takes the accounts and profiles from the journal; leave out --as and --profile")
	case (f.journal || f.input != "") && (f.forModel || len(f.grants) > 0):
		return usagef("policy check: --for-model and --grant are for one command")
	case !f.journal && f.input == "" && len(args) == 0:
		return usagef("policy check: a command is needed: savepoint policy check -- COMMAND, --input FILE, or --journal")
	}
	return nil
}

func (a *app) checkFile(e *policy.Engine, req policy.Request, path string) error {
	if a.format != formatNDJSON {
		return usagef("policy check --input: the result is a line per command; use --output ndjson")
	}
	in, err := a.input(path)
	if err != nil {
		return usagef("policy check: %w", err)
	}
	defer in.Close()
	if err := e.Check(req, in, a.out); err != nil {
		return usagef("policy check %s: %w", path, err)
	}
	return nil
}

// findingView is a finding as JSON.
type findingView struct {
	Rule     string          `json:"rule"`
	Decision policy.Decision `json:"decision"`
	Target   string          `json:"target"`
	Span     spanView        `json:"span"`
	Via      []string        `json:"via"`
}

// spanView is a part of the command, in bytes.
type spanView struct {
	Start int `json:"start"`
	End   int `json:"end"`
}

// checkView is the contract's object and, for one command, what explains it.
type checkView struct {
	policy.CheckResult
	Findings    []findingView `json:"findings"`
	Lifted      []policy.Lift `json:"lifted"`
	Hardened    string        `json:"hardened,omitempty"`
	WhyNotAllow []string      `json:"why_not_allow"`
	Message     string        `json:"message"`
}

func newCheckView(v policy.Verdict) checkView {
	view := checkView{
		CheckResult: policy.NewCheckResult("", v), Findings: []findingView{}, Lifted: []policy.Lift{},
		WhyNotAllow: []string{}, Message: v.Message(),
	}
	for _, f := range v.Findings {
		view.Findings = append(view.Findings, findingView{f.Rule, f.Decision, f.Target, spanView{f.Span.Start, f.Span.End}, append([]string{}, f.Via...)})
	}
	view.Lifted = append(view.Lifted, v.Lifted...)
	view.WhyNotAllow = append(view.WhyNotAllow, v.WhyNotAllow()...)
	view.Hardened, _ = v.Hardened()
	return view
}

func (a *app) checkOne(e *policy.Engine, req policy.Request, forModel bool) (err error) {
	v := e.Decide(req)
	switch {
	case a.format == formatJSON:
		err = a.printJSON(newCheckView(v))
	case a.format == formatNDJSON:
		err = a.printJSON(policy.NewCheckResult("", v))
	case forModel:
		_, err = fmt.Fprintln(a.out, v.Message())
	default:
		printVerdict(a.out, a.style(a.out), e, req, v, a.width(a.out))
	}
	if err != nil {
		return err
	}
	if v.Decision == policy.Deny {
		return outcomeError{exitDenied}
	}
	return nil
}

func printVerdict(w io.Writer, st style, e *policy.Engine, req policy.Request, v policy.Verdict, width int) {
	fmt.Fprintf(w, "%s  rule %s\n", paintDecision(st, v.Decision.String()), v.Rule)
	fmt.Fprint(w, fold(v.Reason, "  ", width), "\n")
	printSource(w, st, req.Command, deciding(v), width)
	fmt.Fprintln(w)
	if v.Alternative != "" {
		fmt.Fprint(w, fold("instead: "+v.Alternative, "  ", width))
	}
	for _, f := range v.Effects {
		where, undo := string(f.Locus), "can be rolled back"
		if f.Target != "" {
			where += ": " + oneLine(f.Target, 100)
		}
		if !f.Reversible {
			undo = "cannot be rolled back"
		}
		fmt.Fprint(w, fold(fmt.Sprintf("effect on %s, %s", where, undo), "  ", width))
	}
	sayLifts(w, v.Lifted, width)
	if form, ok := v.Hardened(); ok {
		fmt.Fprintln(w, "  runs in this form:")
		printWhole(w, form, width)
	}
	if v.Decision == policy.Snapshot {
		fmt.Fprintln(w, "  it would be allowed without a snapshot but for:")
		for i, why := range v.WhyNotAllow() {
			if i == sourceMarks {
				fmt.Fprintln(w, "    …")
				break
			}
			fmt.Fprintln(w, "    "+cut(why, max(width-4, 20)))
		}
	}
	if v.Decision == policy.Deny {
		sayWayOut(w, e, v, width)
	}
}

// sayWayOut tells whether a grant could let a denied command through, and which.
func sayWayOut(w io.Writer, e *policy.Engine, v policy.Verdict, width int) {
	var flags []string
	for _, rule := range denying(v) {
		if e.Grantable(rule) != nil {
			fmt.Fprintf(w, "  no grant can lift %s\n", rule)
			return
		}
		flags = append(flags, "--rule "+rule)
	}
	if len(flags) > 0 {
		hint := "a grant lets it through once: savepoint policy grant SANDBOX " + strings.Join(flags, " ") + " -- COMMAND"
		fmt.Fprint(w, fold(hint, "  ", width))
	}
}

// denying lists the rules that deny, each once, in the order found.
func denying(v policy.Verdict) []string {
	if v.Decision != policy.Deny {
		return nil
	}
	rules := []string{v.Rule}
	seen := map[string]bool{v.Rule: true}
	for _, f := range v.Findings {
		if f.Decision == policy.Deny && !seen[f.Rule] {
			seen[f.Rule] = true
			rules = append(rules, f.Rule)
		}
	}
	return rules
}
