package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"savepoint/orchestrator"
	"savepoint/policy"
)

// runFlags are the choices of one transaction.
type runFlags struct {
	as         string
	boundary   string
	validate   []string
	validateAs string
	dir        string
	env        []string
	onFailure  string
	timeout    time.Duration
	stdin      bool
}

func newRun(a *app) *cobra.Command {
	var f runFlags
	c := &cobra.Command{
		Use: "run SANDBOX [flags] -- COMMAND", Short: "Run one command as a transaction",
		Long: "Judges the command, snapshots the sandbox unless the command is proved\n" +
			"read-only, runs it, validates the result and commits, or rolls everything back.\n" +
			"The command is one shell text: several words are joined by spaces, so quote it\n" +
			"as a whole when the shell in the sandbox is to see quotes.\n\n" + exitCodes,
		Example: "  savepoint run demo -- 'echo hi > /workspace/f'\n" +
			"  savepoint run demo --as root --validate 'test -s /etc/passwd' -- 'apt-get install -y ./x.deb'",
		Args: func(c *cobra.Command, args []string) error {
			if len(args) < 2 {
				return usagef("run: a sandbox and a command are needed: savepoint run SANDBOX -- COMMAND")
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			spec, err := f.spec(strings.Join(args[1:], " "))
			if err != nil {
				return err
			}
			s, sb, err := a.openSandbox(c.Context(), args[0])
			if err != nil {
				return err
			}
			p := s.narrate()
			defer p.stop()
			if err := s.wake(c.Context(), sb); err != nil {
				return err
			}
			spec.Sandbox, spec.By, spec.Profile = sb, "cli", s.cfg.Policy.Profile
			if f.stdin {
				spec.Stdin = a.stdin
			}
			said := context.AfterFunc(c.Context(), func() {
				p.note("savepoint: interrupted; rolling back, please wait")
			})
			out, err := s.engine.Run(c.Context(), spec)
			said()
			p.stop()
			if err != nil {
				return a.runFailed(out, err)
			}
			if err := a.printOutcome(out); err != nil {
				return err
			}
			if code := outcomeCode(out); code != exitDone {
				return outcomeError{code}
			}
			return nil
		},
	}
	fl := c.Flags()
	fl.StringVar(&f.as, "as", "agent", "who runs it: agent (no privileges) or root")
	fl.StringVar(&f.boundary, "boundary", "auto", "what the snapshot covers: auto, none, workspace, disk or machine")
	fl.StringArrayVar(&f.validate, "validate", nil, "a command that has to exit 0 afterwards for the commit; can be repeated")
	fl.StringVar(&f.validateAs, "validate-as", "agent", "who runs the validations: agent or root")
	fl.StringVar(&f.dir, "dir", "", "working directory (default: the user's home)")
	fl.StringArrayVar(&f.env, "env", nil, "NAME=VALUE for the command; can be repeated")
	fl.StringVar(&f.onFailure, "on-failure", "rollback", "what a failed command means: rollback, or keep what it did")
	fl.DurationVar(&f.timeout, "timeout", 0, "end the command and all it started after this long (default from the configuration: 10m)")
	fl.BoolVar(&f.stdin, "stdin", false, "give our standard input to the command")
	return c
}

func (f *runFlags) spec(command string) (orchestrator.Spec, error) {
	if f.timeout < 0 {
		return orchestrator.Spec{}, usagef("run: --timeout %s is negative", f.timeout)
	}
	spec := orchestrator.Spec{
		Command: command, As: policy.User(f.as), Boundary: orchestrator.Boundary(f.boundary),
		Timeout: f.timeout, Dir: f.dir, OnFailure: orchestrator.OnFailure(f.onFailure),
	}
	for _, v := range f.validate {
		spec.Validate = append(spec.Validate, orchestrator.Validation{Command: v, As: policy.User(f.validateAs)})
	}
	for _, e := range f.env {
		name, value, ok := strings.Cut(e, "=")
		if !ok || name == "" {
			return spec, usagef("run: --env %q: must be NAME=VALUE", e)
		}
		if spec.Env == nil {
			spec.Env = map[string]string{}
		}
		spec.Env[name] = value
	}
	return spec, nil
}

// wake starts the sandbox's VM if it is off, but never under a transaction that
// is open: recovery decides what becomes of that.
func (s *session) wake(ctx context.Context, sb orchestrator.Sandbox) error {
	release, err := s.engine.Hold(ctx, sb, "start")
	if err != nil {
		return err
	}
	defer release()
	return s.prov.Wake(ctx, sb)
}

// runFailed reports a transaction that ended with an error. Where its state is
// known for good, data formats get the contract's object too.
func (a *app) runFailed(out orchestrator.Outcome, err error) error {
	switch {
	case out.Transaction == "" || out.State == "":
		return err // nothing was recorded
	case out.State == orchestrator.StateStuck:
		// Besides why it ended, the user has to learn what is to be done now.
		fmt.Fprintf(a.err, "savepoint: %s\n", printable(err.Error()))
		if err := a.printOutcome(out); err != nil {
			return err
		}
		return outcomeError{exitStuck}
	case out.State.Final():
		if a.format != formatText {
			return errors.Join(err, a.printJSON(out))
		}
		return err
	default:
		return openError{out.Transaction, err}
	}
}

// outcomeCode is the exit code of a finished transaction.
func outcomeCode(o orchestrator.Outcome) int {
	switch {
	case o.State == orchestrator.StateStuck:
		return exitStuck
	case o.Interrupted:
		return exitInterrupted
	case o.State == orchestrator.StateCommitted:
		return exitDone
	case o.State == orchestrator.StateDenied:
		return exitDenied
	default:
		return exitRolledBack
	}
}

// printOutcome writes the result: the contract's object, or the command's own
// output on stdout and one line about the transaction on stderr.
func (a *app) printOutcome(o orchestrator.Outcome) error {
	if a.format != formatText {
		return a.printJSON(o)
	}
	if _, err := io.WriteString(a.out, o.Stdout); err != nil {
		return err
	}
	if _, err := io.WriteString(a.err, o.Stderr); err != nil {
		return err
	}
	st := a.style(a.err)
	line := fmt.Sprintf("savepoint: %s (%s", paintState(st, o.State), o.Verdict.Decision)
	if o.State != orchestrator.StateDenied {
		line += ", boundary " + string(o.Boundary)
	}
	if o.ExitCode != nil {
		line += fmt.Sprintf(", exit %d", *o.ExitCode)
	}
	line += fmt.Sprintf(", %s)", short(o.Timings.Total))
	if o.Reason != "" {
		line += ": " + printable(o.Reason)
	}
	if o.State == orchestrator.StateDenied {
		line += fmt.Sprintf(" [rule %s]", o.Verdict.Rule)
	}
	if o.Truncated {
		line += "; output was cut (run.output_limit)"
	}
	_, err := fmt.Fprintln(a.err, line)
	return err
}

func paintState(st style, s orchestrator.State) string {
	switch s {
	case orchestrator.StateCommitted:
		return st.green(string(s))
	case orchestrator.StateRolledBack:
		return st.yellow(string(s))
	default:
		return st.red(string(s))
	}
}
