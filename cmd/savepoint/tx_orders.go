package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"savepoint/orchestrator"
)

func newTxSavepoint(a *app) *cobra.Command {
	var ref txRef
	var boundary string
	var timeout time.Duration
	c := &cobra.Command{
		Use: "savepoint TX NAME", Short: "Note the present state under a name, to go back to", Args: ref.args(1, 1),
		Long: "Takes a snapshot inside the transaction. The boundary is that of the newest\n" +
			"savepoint, or a smaller one. When it cannot be taken the transaction goes on\n" +
			"without it.",
		RunE: func(c *cobra.Command, args []string) error {
			ctx, cancel := withTimeout(c.Context(), timeout)
			defer cancel()
			return a.order(ctx, c, &ref, args, func(x *orchestrator.Tx, rest []string) (orchestrator.Outcome, error) {
				return x.Savepoint(ctx, rest[0], orchestrator.Boundary(boundary))
			})
		},
	}
	ref.add(c)
	c.Flags().StringVar(&boundary, "boundary", "", "what the snapshot covers: workspace, disk or machine (default: as the newest savepoint)")
	addTimeout(c, &timeout)
	return c
}

func newTxRollback(a *app) *cobra.Command {
	var ref txRef
	var to string
	c := &cobra.Command{
		Use: "rollback TX", Short: "Undo everything and end the transaction, or go back to a savepoint", Args: ref.args(0, 0),
		Long: "Restores the state at the begin and ends the transaction. With --to NAME it\n" +
			"restores the state at that savepoint (begin is the first of them) and the\n" +
			"transaction goes on; newer savepoints are gone. Exit code 0: it is restored, and\n" +
			"that was proved.",
		RunE: func(c *cobra.Command, args []string) error {
			ctx := c.Context()
			return a.order(ctx, c, &ref, args, func(x *orchestrator.Tx, _ []string) (orchestrator.Outcome, error) {
				if c.Flags().Changed("to") {
					return x.RollbackTo(ctx, to)
				}
				o, err := x.Rollback(ctx, "")
				o.Interrupted = false // it was asked for
				return o, err
			}, orchestrator.StateRolledBack)
		},
	}
	ref.add(c)
	c.Flags().StringVar(&to, "to", "", "the savepoint to go back to; the transaction goes on")
	return c
}

func newTxCommit(a *app) *cobra.Command {
	var ref txRef
	c := &cobra.Command{
		Use: "commit TX", Short: "Validate the whole and keep it, or roll it back", Args: ref.args(0, 0),
		Long: "Runs the validations of tx begin and commits; when one fails everything is rolled\n" +
			"back and the exit code is 4.",
		RunE: func(c *cobra.Command, args []string) error {
			ctx := c.Context()
			return a.order(ctx, c, &ref, args, func(x *orchestrator.Tx, _ []string) (orchestrator.Outcome, error) {
				return x.Commit(ctx)
			})
		},
	}
	ref.add(c)
	return c
}

// order carries out one order of an open transaction. Done are the states that
// it is to lead to besides those that mean success anyway.
func (a *app) order(ctx context.Context, c *cobra.Command, ref *txRef, args []string, do func(*orchestrator.Tx, []string) (orchestrator.Outcome, error), done ...orchestrator.State) error {
	r, rest, err := ref.split(c, args)
	if err != nil {
		return err
	}
	s, err := a.open(ctx)
	if err != nil {
		return err
	}
	x, err := s.resume(ctx, r, "")
	if err != nil {
		return err
	}
	p := s.narrate()
	defer p.stop()
	o, err := do(x, rest)
	p.stop()
	code := stepCode(o, false)
	for _, d := range done {
		if o.State == d {
			code = exitDone
		}
	}
	return a.ended(ctx, x, o, err, code)
}

// ended reports an order and lets the transaction go.
func (a *app) ended(ctx context.Context, x *orchestrator.Tx, o orchestrator.Outcome, err error, code int) error {
	if cerr := x.Close(ctx); err == nil {
		err = cerr
	}
	switch {
	case err == nil:
		if err := a.printOutcome(o); err != nil {
			return err
		}
		return exitWith(code)
	case o.State == orchestrator.StateOpen:
		return fmt.Errorf("%w; transaction %s is still open", err, o.Transaction)
	default:
		return a.runFailed(o, err)
	}
}

// environment reads NAME=VALUE for the command.
func environment(command string, list []string) (map[string]string, error) {
	var env map[string]string
	for _, e := range list {
		name, value, ok := strings.Cut(e, "=")
		if !ok || name == "" {
			return nil, usagef("%s: --env %q: must be NAME=VALUE", command, e)
		}
		if env == nil {
			env = map[string]string{}
		}
		env[name] = value
	}
	return env, nil
}
