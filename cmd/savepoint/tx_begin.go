package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"savepoint/orchestrator"
	"savepoint/policy"
)

// beginFlags are the choices of a transaction of several commands.
type beginFlags struct {
	as, boundary, onFailure, profile, key string
	idle                                  time.Duration
	session                               bool
	checks                                guardFlags
}

func newTxBegin(a *app) *cobra.Command {
	var f beginFlags
	var timeout time.Duration
	c := &cobra.Command{
		Use: "begin SANDBOX", Short: "Take a snapshot and open a transaction; prints its id", Args: cobra.ExactArgs(1),
		Long: "Takes the snapshot that the whole transaction can be rolled back to, and prints\n" +
			"the transaction's id alone on standard output.\n\n" +
			"--boundary auto covers what the account of --as can write; begin with --as root,\n" +
			"or a larger boundary, when steps will run as root. --validate is a command that\n" +
			"has to exit 0 at the commit, else everything is rolled back.\n\n" +
			"--on-failure rollback (the default): a step that fails rolls everything back.\n" +
			"keep: it is reported and the transaction goes on.\n\n" + exitCodes,
		Example: "  tx=$(savepoint tx begin demo)\n" +
			"  savepoint tx exec $tx -- 'cd /workspace && ./configure'\n" +
			"  savepoint tx exec $tx -- make\n" +
			"  savepoint tx commit $tx",
		RunE: func(c *cobra.Command, args []string) error {
			spec, err := f.spec()
			if err != nil {
				return err
			}
			ctx, cancel := withTimeout(c.Context(), timeout)
			defer cancel()
			s, sb, err := a.openSandbox(ctx, args[0])
			if err != nil {
				return err
			}
			p := s.narrate()
			defer p.stop()
			if err := s.wakeFor(ctx, sb, f.key); err != nil {
				return err
			}
			spec.Sandbox = sb
			if spec.Profile == "" {
				spec.Profile = s.cfg.Policy.Profile
			}
			x, err := s.engine.Begin(ctx, spec)
			if err != nil {
				return err
			}
			p.stop()
			t := x.View()
			return errors.Join(a.printBegun(t), x.Close(c.Context()))
		},
	}
	fl := c.Flags()
	fl.StringVar(&f.as, "as", "agent", "who runs the steps that do not say: agent (no privileges) or root")
	fl.StringVar(&f.boundary, "boundary", "auto", "what the snapshot covers: auto, workspace, disk or machine")
	fl.StringVar(&f.onFailure, "on-failure", "rollback", "what a failed step means: rollback, or keep and go on")
	addSpan(fl, &f.idle, "idle", 0, "roll back when there is no order for this long (default from the configuration: 1h)")
	fl.StringVar(&f.key, "key", "", "the second begin with this key returns the first one's transaction")
	fl.StringVar(&f.profile, "profile", "", "set of rules: sealed or open-egress (default from the configuration: sealed)")
	fl.BoolVar(&f.session, "session", true, "begin each step where the one before ended: directory and exported variables")
	f.checks.registerValidate(fl, "at the commit")
	addTimeout(c, &timeout)
	return c
}

func (f *beginFlags) spec() (orchestrator.BeginSpec, error) {
	switch f.profile {
	case "", policy.Sealed, policy.OpenEgress:
	default:
		return orchestrator.BeginSpec{}, usagef("tx begin: there is no profile %q; use %s or %s", f.profile, policy.Sealed, policy.OpenEgress)
	}
	return orchestrator.BeginSpec{
		As: policy.User(f.as), Boundary: orchestrator.Boundary(f.boundary), OnFailure: orchestrator.OnFailure(f.onFailure),
		Validate: f.checks.validations(), Profile: f.profile, Session: f.session, Idle: f.idle, Key: f.key, By: "cli",
	}, nil
}

// begun is the printed form of a transaction that was begun: the fields of a
// result, and what the next orders depend on.
type begun struct {
	orchestrator.Outcome
	OnFailure orchestrator.OnFailure `json:"on_failure"`
	Session   bool                   `json:"session"`
	Expires   time.Time              `json:"expires,omitzero"`
	Key       string                 `json:"key,omitempty"`
}

func (a *app) printBegun(t orchestrator.Transaction) error {
	b := begun{
		Outcome: orchestrator.Outcome{
			Transaction: t.ID, SandboxID: t.Sandbox.ID, Sandbox: t.Sandbox.Name, State: t.State, Verdict: t.Verdict,
			Boundary: t.Boundary, Reason: t.Reason, Timings: t.Timings,
		},
		OnFailure: t.OnFailure, Session: t.Session, Expires: t.Expires, Key: t.Key,
	}
	if a.format != formatText {
		return a.printJSON(b)
	}
	if _, err := fmt.Fprintln(a.out, t.ID); err != nil {
		return err
	}
	until := ""
	if !t.Expires.IsZero() {
		until = "; it is rolled back without an order until " + t.Expires.Local().Format(time.DateTime)
	}
	_, err := fmt.Fprintf(a.err, "savepoint: %s (boundary %s, snapshot %s)%s\n", paintState(a.style(a.err), t.State), t.Boundary, short(t.Timings.Snapshot), until)
	return err
}
