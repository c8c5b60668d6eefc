package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"savepoint/orchestrator"
)

func newRecover(a *app) *cobra.Command {
	var dryRun bool
	c := &cobra.Command{
		Use: "recover", Short: "Finish or undo what a crash left",
		Long: "Settles every open transaction by its last durable record and removes sandboxes\n" +
			"whose creation or removal was interrupted. Every command that changes something\n" +
			"does this first; recover does only this. Exit code 5: a transaction is stuck.",
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if dryRun {
				return a.recoverDry(c)
			}
			cfg, err := a.config(a.configFile, true)
			if err != nil {
				return err
			}
			s, err := a.openWith(c.Context(), cfg)
			if err != nil {
				return err
			}
			defer s.narrate()()
			left, err := s.prov.Recover(c.Context(), false)
			if err != nil {
				return err
			}
			outcomes, err := s.recoverAll(c.Context())
			if err != nil {
				return err
			}
			if _, err := s.engine.Collect(c.Context()); err != nil {
				return err
			}
			return a.printRecovered(left, outcomes)
		},
	}
	c.Flags().BoolVar(&dryRun, "dry-run", false, "only say what would be settled")
	return c
}

// recoverAll settles the open transactions and takes stuck ones up again: who
// runs recover may have mended the cause.
func (s *session) recoverAll(ctx context.Context) ([]orchestrator.Outcome, error) {
	outcomes, err := s.engine.Recover(ctx)
	if err != nil {
		return outcomes, err
	}
	for i, o := range outcomes {
		if o.State != orchestrator.StateStuck {
			continue
		}
		if outcomes[i], err = s.engine.Retry(ctx, o.Transaction); err != nil {
			return outcomes, err
		}
	}
	return outcomes, nil
}

// recovered is the printed form of what recover did.
type recovered struct {
	Sandboxes    []orchestrator.Sandbox `json:"sandboxes_removed"`
	Transactions []orchestrator.Outcome `json:"transactions"`
}

func (a *app) printRecovered(left []orchestrator.Sandbox, outcomes []orchestrator.Outcome) error {
	code := exitDone
	for _, o := range outcomes {
		if o.State == orchestrator.StateStuck {
			code = exitStuck
		}
	}
	if a.format != formatText {
		if err := a.printJSON(recovered{append([]orchestrator.Sandbox{}, left...), append([]orchestrator.Outcome{}, outcomes...)}); err != nil {
			return err
		}
	} else {
		for _, sb := range left {
			fmt.Fprintf(a.out, "sandbox %s: removed, it was left %s\n", sb.Name, sb.State)
		}
		for _, o := range outcomes {
			fmt.Fprintf(a.out, "transaction %s in %s: %s %s\n", o.Transaction, o.Sandbox, o.State, o.Reason)
		}
		if len(left)+len(outcomes) == 0 {
			fmt.Fprintln(a.out, "nothing was left open")
		}
	}
	if code != exitDone {
		return outcomeError{code}
	}
	return nil
}

func (a *app) recoverDry(c *cobra.Command) error {
	j, err := a.readJournal()
	if err != nil {
		return err
	}
	var left []orchestrator.Sandbox
	var open []orchestrator.Transaction
	if j != nil {
		all, err := j.Sandboxes(c.Context())
		if err != nil {
			return err
		}
		for _, sb := range all {
			if sb.State == orchestrator.SandboxCreating || sb.State == orchestrator.SandboxDestroying {
				left = append(left, sb)
			}
		}
		if open, err = orchestrator.List(c.Context(), j, orchestrator.Filter{Open: true}); err != nil {
			return err
		}
	}
	if a.format != formatText {
		return a.printJSON(struct {
			Sandboxes    []orchestrator.Sandbox     `json:"sandboxes"`
			Transactions []orchestrator.Transaction `json:"transactions"`
		}{append([]orchestrator.Sandbox{}, left...), append([]orchestrator.Transaction{}, open...)})
	}
	for _, sb := range left {
		fmt.Fprintf(a.out, "sandbox %s is %s: would be removed\n", sb.Name, sb.State)
	}
	for _, t := range open {
		fmt.Fprintf(a.out, "transaction %s in %s is %s: would be settled\n", t.ID, t.Sandbox.Name, t.State)
	}
	if len(left)+len(open) == 0 {
		fmt.Fprintln(a.out, "nothing is left open")
	}
	return nil
}
