package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"savepoint/orchestrator/journal"
)

func newTxVerify(a *app) *cobra.Command {
	var heads []string
	c := &cobra.Command{
		Use: "verify", Short: "Prove that no record was changed, removed or put in", Args: cobra.NoArgs,
		Long: "Follows the chain of all records and compares what is derived from them. It works\n" +
			"beside the process that holds the journal and changes nothing. Exit code 1: the\n" +
			"journal is not what was written; the first record that is not proved is named.\n\n" +
			"Somebody who can write the file could write all of it anew. Note the head that is\n" +
			"printed somewhere else, and give it back later with --head.",
		RunE: func(c *cobra.Command, _ []string) error {
			var noted []journal.Head
			for _, text := range heads {
				h, err := journal.ParseHead(text)
				if err != nil {
					return usageError{err}
				}
				noted = append(noted, h)
			}
			cfg, err := a.config(a.configFile, false)
			if err != nil {
				return err
			}
			j, err := a.readJournalOf(cfg)
			switch {
			case err != nil:
				return err
			case j == nil && len(noted) > 0:
				return fmt.Errorf("verify journal %s: it is gone, and a head of it was noted", journalFile(cfg))
			case j == nil:
				return usagef("verify journal %s: there is none yet; make a sandbox first (see savepoint sandbox create)", journalFile(cfg))
			}
			rep, err := j.Verify(c.Context(), noted...)
			return errors.Join(a.printVerified(rep, err), err)
		},
	}
	c.Flags().StringArrayVar(&heads, "head", nil, "SEQ:HASH that was noted before and has to be in the chain; can be repeated")
	return c
}

// verified is the printed form of a proof.
type verified struct {
	Sound   bool   `json:"sound"`
	Record  int64  `json:"record,omitempty"`  // the first that is not proved
	Problem string `json:"problem,omitempty"` // what is wrong with it
	journal.Report
}

func (a *app) printVerified(rep journal.Report, err error) error {
	if err != nil {
		var wrong *journal.ChainError
		if a.format == formatText || !errors.As(err, &wrong) {
			return nil
		}
		return a.printJSON(verified{Record: wrong.Seq, Problem: wrong.What, Report: rep})
	}
	if a.format != formatText {
		return a.printJSON(verified{Sound: true, Report: rep})
	}
	rows := [][]string{
		{"sound", a.style(a.out).green("yes")},
		{"records", fmt.Sprint(rep.Records)},
		{"transactions", fmt.Sprint(rep.Transactions)},
	}
	if rep.Removed > 0 {
		rows = append(rows, []string{"removed", fmt.Sprintf("%d records of %d transactions by savepoint journal compact, the last on %s; the proof begins at record %d",
			rep.Removed, rep.RemovedTransactions, rep.Anchored.Local().Format(time.RFC3339), rep.From.Seq+1)})
	}
	if rep.Original > rep.From.Seq+1 {
		rows = append(rows, []string{"original", fmt.Sprintf("from record %d on; those before it were chained when an older journal was brought up to date", rep.Original)})
	}
	rows = append(rows, []string{"head", rep.Head.String()})
	return table(a.out, "", rows)
}
