package main

import (
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"savepoint/policy"
)

func newPolicy(a *app) *cobra.Command {
	c := &cobra.Command{Use: "policy", Short: "Ask the policy without running anything"}
	c.AddCommand(newPolicyCheck(a))
	return c
}

func newPolicyCheck(a *app) *cobra.Command {
	var as, profile, input string
	c := &cobra.Command{
		Use: "check [flags] [-- COMMAND]", Short: "Say what the policy decides about a command, or about a file of them",
		Long: "With a command: prints its verdict; the exit code is 3 when it is denied. With\n" +
			"--input FILE (- for standard input): reads one {\"id\",\"command\"} a line and prints\n" +
			"one verdict a line in the same order; the exit code is 0 whatever they are.",
		Example: "  savepoint policy check -- 'rm -rf build'\n" +
			"  savepoint policy check --input commands.ndjson --output ndjson",
		RunE: func(c *cobra.Command, args []string) error {
			cfg, err := a.config(a.configFile, false)
			if err != nil {
				return err
			}
			if profile == "" {
				profile = cfg.Policy.Profile
			}
			e, err := decider(cfg)
			if err != nil {
				return err
			}
			if u := policy.User(as); u != policy.Agent && u != policy.Root {
				return usagef("policy check --as %s: no such account; use agent or root", as)
			}
			req := policy.Request{User: policy.User(as), Profile: profile}
			switch {
			case input != "" && len(args) > 0:
				return usagef("policy check: --input and a command exclude each other")
			case input != "":
				return a.checkFile(e, req, input)
			case len(args) == 0:
				return usagef("policy check: a command is needed: savepoint policy check -- COMMAND, or --input FILE")
			}
			req.Command = strings.Join(args, " ")
			return a.checkOne(e, req)
		},
	}
	c.Flags().StringVar(&as, "as", "agent", "who would run it: agent or root")
	c.Flags().StringVar(&profile, "profile", "", "set of rules (default from the configuration: sealed)")
	c.Flags().StringVar(&input, "input", "", "file with one {\"id\",\"command\"} a line; - is standard input")
	return c
}

func (a *app) checkFile(e *policy.Engine, req policy.Request, path string) error {
	in := a.stdin
	if path != "-" {
		f, err := os.Open(path)
		if err != nil {
			return usagef("policy check: %w", err)
		}
		defer f.Close()
		in = f
	}
	if a.format != formatNDJSON {
		return usagef("policy check --input: the result is a line per command; use --output ndjson")
	}
	if err := e.Check(req, in, a.out); err != nil {
		return usagef("policy check %s: %w", path, err)
	}
	return nil
}

func (a *app) checkOne(e *policy.Engine, req policy.Request) error {
	v := e.Decide(req)
	if a.format != formatText {
		if err := a.printJSON(policy.NewCheckResult("", v)); err != nil {
			return err
		}
	} else if err := printVerdict(a.out, a.style(a.out), v); err != nil {
		return err
	}
	if v.Decision == policy.Deny {
		return outcomeError{exitDenied}
	}
	return nil
}

func printVerdict(w io.Writer, st style, v policy.Verdict) error {
	fmt.Fprintf(w, "%s  rule %s\n  %s\n", paintDecision(st, v.Decision.String()), v.Rule, v.Reason)
	if v.Alternative != "" {
		fmt.Fprintf(w, "  instead: %s\n", v.Alternative)
	}
	for _, e := range v.Effects {
		undo := "can be rolled back"
		if !e.Reversible {
			undo = "cannot be rolled back"
		}
		fmt.Fprintf(w, "  effect on %s: %s, %s\n", e.Locus, oneLine(e.Target, 100), undo)
	}
	return nil
}

func paintDecision(st style, d string) string {
	switch d {
	case "allow":
		return st.green(d)
	case "snapshot":
		return st.yellow(d)
	default:
		return st.red(d)
	}
}
