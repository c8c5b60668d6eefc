package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"savepoint/configs"
	"savepoint/orchestrator"
	"savepoint/orchestrator/journal"
)

func newJournal(a *app) *cobra.Command {
	c := &cobra.Command{Use: "journal", Short: "Keep the journal small"}
	c.AddCommand(newJournalCompact(a))
	return c
}

func newJournalCompact(a *app) *cobra.Command {
	var keep string
	var dryRun bool
	c := &cobra.Command{
		Use: "compact", Short: "Remove old transactions from the journal", Args: cobra.NoArgs,
		Long: "Removes the oldest transactions, those that ended longer ago than --keep-for, and\n" +
			"gives the space back. The chain of records goes on from the last one removed, so\n" +
			"tx verify proves what is left. Nothing is removed behind a transaction that is\n" +
			"not settled: it is named as what blocks. Idempotency keys go with their\n" +
			"transactions.",
		RunE: func(c *cobra.Command, _ []string) error {
			cfg, err := a.config(a.configFile, false)
			if err != nil {
				return err
			}
			p, err := retention(cfg, keep)
			if err != nil {
				return err
			}
			if dryRun {
				j, err := a.readJournalOf(cfg)
				if err != nil {
					return err
				}
				if j == nil {
					return a.printCompaction(journal.Compaction{}, dryRun)
				}
				would, err := j.Plan(c.Context(), p)
				if err != nil {
					return err
				}
				return a.printCompaction(would, dryRun)
			}
			j, err := a.writeJournalOf(cfg)
			if err != nil {
				return err
			}
			done, err := j.Compact(c.Context(), p)
			if err != nil {
				return &orchestrator.JournalError{Cause: err}
			}
			return a.printCompaction(done, dryRun)
		},
	}
	c.Flags().StringVar(&keep, "keep-for", "", "keep what ended since so long, e.g. 90d (default from the configuration: 90d)")
	c.Flags().BoolVar(&dryRun, "dry-run", false, "only say what would be removed")
	return c
}

// retention is what is kept: the flag's, or the configuration's.
func retention(cfg configs.Config, keep string) (journal.Policy, error) {
	d := cfg.Journal.KeepFor
	if keep != "" {
		var err error
		if d, err = configs.ParseDuration(keep); err != nil || d <= 0 {
			return journal.Policy{}, usagef("journal compact --keep-for %q: is not a duration above zero; write a number with a unit, like 90d or 36h", keep)
		}
	}
	return journal.Policy{KeepFor: d, Now: time.Now()}, nil
}

func (a *app) printCompaction(c journal.Compaction, dryRun bool) error {
	if a.format != formatText {
		return a.printJSON(struct {
			DryRun bool `json:"dry_run"`
			journal.Compaction
		}{dryRun, c})
	}
	did := "removed"
	if dryRun {
		did = "would remove"
	}
	line := fmt.Sprintf("%s %d transactions, %d records", did, c.Transactions, c.Records)
	if c.Freed > 0 {
		line += fmt.Sprintf("; %d KiB freed", c.Freed>>10)
	}
	if _, err := fmt.Fprintln(a.out, line); err != nil || len(c.Blocked) == 0 {
		return err
	}
	ids := make([]string, len(c.Blocked))
	for i, id := range c.Blocked {
		ids[i] = string(id)
	}
	more := ""
	if c.More > 0 {
		more = fmt.Sprintf(" and %d more", c.More)
	}
	_, err := fmt.Fprintf(a.out, "blocked by %s%s: not settled, and nothing that began later can be removed; end or collect them (see savepoint tx show, savepoint recover)\n", strings.Join(ids, ", "), more)
	return err
}
