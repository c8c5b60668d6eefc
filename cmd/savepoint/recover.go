package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"savepoint/orchestrator"
	"savepoint/orchestrator/provision"
)

func newRecover(a *app) *cobra.Command {
	var dryRun bool
	var timeout time.Duration
	c := &cobra.Command{
		Use: "recover", Short: "Finish or undo what a crash left",
		Long: "Settles every open transaction by its last durable record, removes sandboxes whose\n" +
			"creation or removal was interrupted, and deletes snapshots that finished\n" +
			"transactions left. A transaction of tx begin that still has time is left alone.\n" +
			"The cluster's lock that a killed network apply left is given back.\n" +
			"Every command that changes something settles and removes first, but it takes up\n" +
			"no stuck transaction again; recover does. Exit code 5: a transaction is stuck, or a\n" +
			"snapshot cannot be deleted before an operator takes a dead task's lock away.",
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if dryRun {
				return a.recoverDry(c)
			}
			ctx, cancel := withTimeout(c.Context(), timeout)
			defer cancel()
			s, err := a.openUnsettled(ctx)
			if err != nil {
				return err
			}
			p := s.narrate()
			defer p.stop()
			// What cannot be settled in one sandbox keeps no other from it.
			removed, berr := s.prov.Recover(ctx)
			outcomes, terr := s.recoverAll(ctx)
			var cerr error
			if terr == nil || ofOneSandbox(terr) {
				_, cerr = s.engine.Collect(ctx)
			}
			nerr := s.freeNetworks(ctx)
			p.stop()
			open, werr := orchestrator.List(ctx, s.journal, orchestrator.Filter{Open: true, States: []orchestrator.State{orchestrator.StateOpen}})
			alone, _ := parted(open, time.Now())
			return a.printRecovered(removed, outcomes, alone, errors.Join(berr, terr, cerr, nerr, werr))
		},
	}
	c.Flags().BoolVar(&dryRun, "dry-run", false, "only say what would be settled")
	addSpan(c.Flags(), &timeout, "timeout", 0, "begin with no further transaction after this long; a rollback at work has its own limit")
	return c
}

// recoverAll settles the open transactions and takes stuck ones up again: who
// runs recover may have mended the cause.
func (s *session) recoverAll(ctx context.Context) ([]orchestrator.Outcome, error) {
	outcomes, err := s.engine.Recover(ctx)
	errs := []error{err}
	for i, o := range outcomes {
		if o.State != orchestrator.StateStuck || ctx.Err() != nil {
			continue
		}
		again, err := s.engine.Retry(ctx, o.Transaction)
		if errs = append(errs, err); again.Transaction != "" {
			outcomes[i] = again
		}
	}
	return outcomes, errors.Join(errs...)
}

// recovered is the printed form of what recover did.
type recovered struct {
	Sandboxes    []orchestrator.Sandbox `json:"sandboxes_removed"`
	Transactions []orchestrator.Outcome `json:"transactions"`
	Open         []waiting              `json:"open"`           // left alone
	Snapshots    []undeletable          `json:"snapshots_left"` // an operator has to mend something first
}

// undeletable is a snapshot of a finished transaction that only an operator can
// make deletable again.
type undeletable struct {
	Sandbox     string                    `json:"sandbox"`
	Transaction orchestrator.TxID         `json:"transaction"`
	Snapshot    orchestrator.SnapshotName `json:"snapshot"`
	Reason      string                    `json:"reason"`
}

// left lists the snapshots that the joined errors of a collection are about.
func left(err error) []undeletable {
	out := []undeletable{}
	switch e := err.(type) { //nolint:errorlint // the tree itself is walked
	case *orchestrator.StuckError:
		if e.Snapshot != "" {
			out = append(out, undeletable{e.Sandbox, e.Tx, e.Snapshot, e.Reason + "; " + e.Mend})
		}
	case interface{ Unwrap() []error }:
		for _, part := range e.Unwrap() {
			out = append(out, left(part)...)
		}
	case interface{ Unwrap() error }:
		return left(e.Unwrap())
	}
	return out
}

// waiting is an open transaction of several commands that may still go on.
type waiting struct {
	Transaction orchestrator.TxID `json:"transaction"`
	Sandbox     string            `json:"sandbox"`
	Expires     time.Time         `json:"expires"`
}

func (w waiting) String() string {
	return fmt.Sprintf("transaction %s in %s is open and is left alone; without an order it is rolled back after %s", w.Transaction, w.Sandbox, w.Expires.Local().Format(time.DateTime))
}

// parted tells the transactions that recovery leaves alone from those that it
// settles.
func parted(txs []orchestrator.Transaction, now time.Time) (alone []waiting, rest []orchestrator.Transaction) {
	alone, rest = []waiting{}, []orchestrator.Transaction{}
	for _, t := range txs {
		if t.State == orchestrator.StateOpen && !t.Bound && now.Before(t.Expires) {
			alone = append(alone, waiting{t.ID, t.Sandbox.Name, t.Expires})
		} else {
			rest = append(rest, t)
		}
	}
	return alone, rest
}

// printRecovered reports what was settled, also next to an error for the rest.
func (a *app) printRecovered(removed []orchestrator.Sandbox, outcomes []orchestrator.Outcome, open []waiting, failed error) error {
	code := exitDone
	for _, o := range outcomes {
		if o.State == orchestrator.StateStuck {
			code = exitStuck
		}
	}
	if a.format != formatText {
		if err := a.printJSON(recovered{append([]orchestrator.Sandbox{}, removed...), append([]orchestrator.Outcome{}, outcomes...), open, left(failed)}); err != nil {
			return err
		}
	} else {
		for _, sb := range removed {
			fmt.Fprintf(a.out, "sandbox %s: removed, it was left %s\n", sb.Name, sb.State)
		}
		for _, o := range outcomes {
			fmt.Fprintf(a.out, "transaction %s in %s: %s %s\n", o.Transaction, o.Sandbox, o.State, printable(o.Reason))
		}
		for _, w := range open {
			fmt.Fprintln(a.out, w)
		}
		if len(removed)+len(outcomes)+len(open) == 0 && failed == nil {
			fmt.Fprintln(a.out, "nothing was left open")
		}
	}
	switch {
	case failed != nil && code == exitStuck:
		fmt.Fprintf(a.err, "savepoint: %s\n", printable(failed.Error()))
		return outcomeError{code}
	case failed != nil:
		return failed
	}
	return exitWith(code)
}

func (a *app) recoverDry(c *cobra.Command) error {
	j, err := a.readJournal()
	if err != nil {
		return err
	}
	var left []orchestrator.Sandbox
	var open []orchestrator.Transaction
	if j != nil {
		if left, err = provision.Unfinished(c.Context(), j); err != nil {
			return err
		}
		if open, err = orchestrator.List(c.Context(), j, orchestrator.Filter{Open: true}); err != nil {
			return err
		}
	}
	alone, open := parted(open, time.Now())
	if a.format != formatText {
		return a.printJSON(struct {
			Sandboxes    []orchestrator.Sandbox     `json:"sandboxes"`
			Transactions []orchestrator.Transaction `json:"transactions"`
			Open         []waiting                  `json:"open"`
		}{append([]orchestrator.Sandbox{}, left...), open, alone})
	}
	for _, sb := range left {
		fmt.Fprintf(a.out, "sandbox %s is %s: would be removed\n", sb.Name, sb.State)
	}
	for _, t := range open {
		fmt.Fprintf(a.out, "transaction %s in %s is %s: would be settled\n", t.ID, t.Sandbox.Name, t.State)
	}
	for _, w := range alone {
		fmt.Fprintln(a.out, w)
	}
	if len(left)+len(open)+len(alone) == 0 {
		fmt.Fprintln(a.out, "nothing is left open")
	}
	return nil
}
