package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"savepoint/orchestrator"
	"savepoint/policy"
)

// runFlags are the choices of one transaction.
type runFlags struct {
	guardFlags
	as        string
	boundary  string
	dir       string
	env       []string
	onFailure string
	timeout   time.Duration
	stdin     bool
	grants    []string
	key       string
	session   bool
}

func newRun(a *app) *cobra.Command {
	var f runFlags
	c := &cobra.Command{
		Use: "run SANDBOX [flags] -- COMMAND", Short: "Run one command as a transaction",
		Long: "Judges the command, snapshots the sandbox unless the command is proved\n" +
			"read-only, runs it, validates the result and commits, or rolls everything back.\n" +
			"The command is one shell text: several words are joined by spaces, so quote it\n" +
			"as a whole when the shell in the sandbox is to see quotes.\n\n" +
			"--grant RULE lifts a rule that denies the command, for this transaction only;\n" +
			"savepoint policy check -- COMMAND names the rules.\n\n" +
			"A command of root that changes what savepoint's hold of the guest rests on is\n" +
			"rolled back, whatever it exits with; --unprotect PATH allows it. With\n" +
			"--only-change PATH everything else has to stay as it was.\n\n" + exitCodes,
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
			if err := s.wakeFor(c.Context(), sb, f.key); err != nil {
				return err
			}
			if !c.Flags().Changed("session") {
				spec.Session = s.cfg.Run.Session
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
			return exitWith(outcomeCode(out))
		},
	}
	fl := c.Flags()
	fl.StringVar(&f.as, "as", "agent", "who runs it: agent (no privileges) or root")
	fl.StringVar(&f.boundary, "boundary", "auto", "what the snapshot covers: auto, none, workspace, disk or machine")
	f.register(fl)
	fl.StringVar(&f.dir, "dir", "", "working directory (default: the user's home)")
	fl.StringArrayVar(&f.env, "env", nil, "NAME=VALUE for the command; can be repeated")
	fl.StringVar(&f.onFailure, "on-failure", "rollback", "what a failed command means: rollback, or keep what it did")
	addSpan(fl, &f.timeout, "timeout", 0, "end the command and all it started after this long (default from the configuration: 10m)")
	fl.StringArrayVar(&f.grants, "grant", nil, "lift this rule for this one command; can be repeated")
	fl.BoolVar(&f.stdin, "stdin", false, "give our standard input to the command")
	fl.StringVar(&f.key, "key", "", "the second run with this key returns the first one's result and runs nothing")
	fl.BoolVar(&f.session, "session", false, "begin where the last committed command ended: directory and exported variables (default from the configuration: false)")
	return c
}

func (f *runFlags) spec(command string) (orchestrator.Spec, error) {
	spec := orchestrator.Spec{
		Command: command, As: policy.User(f.as), Boundary: orchestrator.Boundary(f.boundary),
		Timeout: f.timeout, Dir: f.dir, OnFailure: orchestrator.OnFailure(f.onFailure), Grants: f.grants, Guard: f.guard,
		Key: f.key, Session: f.session, Validate: f.validations(),
	}
	var err error
	spec.Env, err = environment("run", f.env)
	return spec, err
}

// wakeFor is wake, unless the key was used: then nothing will run.
func (s *session) wakeFor(ctx context.Context, sb orchestrator.Sandbox, key string) error {
	if key != "" {
		if _, used, err := s.journal.ByKey(ctx, sb.ID, key); err != nil || used {
			return err
		}
	}
	return s.wake(ctx, sb)
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
	line := fmt.Sprintf("savepoint: %s (", paintState(st, o.State))
	if o.Step > 0 {
		line += fmt.Sprintf("step %d, ", o.Step)
	}
	line += o.Verdict.Decision
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
	if o.State == orchestrator.StateDenied && o.Step > 0 {
		line += "; the transaction goes on"
	}
	if o.Replayed {
		line += "; nothing was run, this is the result of the first request with its key"
	}
	if o.Truncated {
		line += "; output was cut (run.output_limit)"
	}
	_, err := fmt.Fprintln(a.err, line)
	sayChanges(a.err, o)
	if o.Message != "" {
		_, merr := fmt.Fprint(a.err, fold(o.Message, "  ", a.width(a.err)))
		err = cmp.Or(err, merr)
	}
	sayLifts(a.err, byGrant(o.Verdict.Lifted), a.width(a.err))
	return err
}

// byGrant leaves out what the rules themselves lifted.
func byGrant(lifts []policy.Lift) []policy.Lift {
	return slices.DeleteFunc(slices.Clone(lifts), func(l policy.Lift) bool {
		_, ok := orchestrator.GrantOf(l)
		return !ok
	})
}

func paintState(st style, s orchestrator.State) string {
	switch s {
	case orchestrator.StateCommitted, orchestrator.StateOpen:
		return st.green(string(s))
	case orchestrator.StateRolledBack:
		return st.yellow(string(s))
	default:
		return st.red(string(s))
	}
}
