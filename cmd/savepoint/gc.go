package main

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"savepoint/orchestrator"
	"savepoint/orchestrator/janitor"
	"savepoint/orchestrator/provision"
)

func newGC(a *app) *cobra.Command {
	var dryRun bool
	var lockAge, timeout time.Duration
	c := &cobra.Command{
		Use: "gc", Short: "Collect what nobody owns any more",
		Long: "Compares the cluster with the journal and removes what crashes left behind: half-made\n" +
			"clones and snapshots, snapshots of settled transactions, VMs that carry our mark and\n" +
			"that no sandbox accounts for, volumes of saved memory without their snapshot. Only\n" +
			"what carries the mark of this instance is touched. What savepoint cannot mend, such\n" +
			"as a stale lock, is listed with the command for it.\n" +
			"Exit code 5: an operator is needed. 7: the cluster did not do all that was asked.",
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			ctx, cancel := withTimeout(c.Context(), timeout)
			defer cancel()
			s, err := a.openUnsettled(ctx)
			if err != nil {
				return err
			}
			if lockAge == 0 {
				lockAge = -1 // two looks, however close
			}
			return s.gc(ctx, dryRun, lockAge)
		},
	}
	c.Flags().BoolVar(&dryRun, "dry-run", false, "only say what would be done")
	addSpan(c.Flags(), &lockAge, "lock-age", 10*time.Minute, "how long a lock has to be seen without a task, at two looks, to be called stale")
	addTimeout(c, &timeout)
	return c
}

func (s *session) gc(ctx context.Context, dryRun bool, lockAge time.Duration) error {
	stuck := 0
	if !dryRun { // before the progress line: it writes
		var err error
		if stuck, err = s.settleTransactions(ctx); err != nil {
			return err
		}
	}
	p := s.narrate()
	defer p.stop()
	j, err := s.janitor(lockAge, func(f janitor.Finding) {
		if f.State == janitor.StateFound {
			p.say("%s %s", f.Kind, f.Subject)
		}
	})
	if err != nil {
		return err
	}
	var r janitor.Report
	if dryRun {
		r, err = j.Look(ctx)
	} else {
		r, err = j.Clean(ctx)
	}
	p.stop()
	if err != nil && len(r.Findings) == 0 {
		return err
	}
	if perr := s.app.printSurvey(r, dryRun); perr != nil {
		return perr
	}
	switch {
	case err != nil:
		return err
	case r.Count(janitor.LevelOperator) > 0 || stuck > 0:
		return outcomeError{exitStuck}
	}
	return r.Err()
}

// janitor puts a janitor together from the session's parts. lockAge is as in
// its Config.
func (s *session) janitor(lockAge time.Duration, observe func(janitor.Finding)) (*janitor.Janitor, error) {
	file, err := janitor.OpenFile(filepath.Join(s.cfg.StateDir, "janitor.log"))
	if err != nil {
		return nil, err
	}
	s.app.closers = append(s.app.closers, file.Close)
	first, last := orchestrator.VMID(s.cfg.Cluster.VMIDFirst), orchestrator.VMID(s.cfg.Cluster.VMIDLast)
	return janitor.New(janitor.Config{
		Cluster:   surveyor{c: s.cluster, first: first, last: last},
		Snapshots: everySnapshot{s.cluster.Snapshots(), s}, Hypervisor: s.cluster.VMs(), Registry: s.registry(),
		Ledger: janitor.Journal(s.journal), Notes: notes{file, cleaner(s.secrets)}, Remove: s.prov.Destroy, Collect: s.engine.Collect,
		Instance: s.cluster.Instance(), First: first, Last: last, Keep: []orchestrator.SnapshotName{provision.Pristine},
		LockAge: lockAge, Now: time.Now, Observe: observe,
	})
}

// printSurvey prints what was found and what came of it.
func (a *app) printSurvey(r janitor.Report, dryRun bool) error {
	switch a.format {
	case formatJSON:
		return a.printJSON(struct {
			DryRun bool `json:"dry_run"`
			janitor.Report
		}{dryRun, janitor.Report{Findings: append([]janitor.Finding{}, r.Findings...), Resumed: r.Resumed}})
	case formatNDJSON:
		for _, f := range r.Findings {
			if err := a.printJSON(f); err != nil {
				return err
			}
		}
		return nil
	case formatText:
	}
	for _, was := range r.Resumed {
		fmt.Fprintf(a.err, "savepoint: an earlier gc was interrupted at: %s\n", was)
	}
	width := a.width(a.out)
	for _, f := range r.Findings {
		printFinding(a.out, f, width)
	}
	fmt.Fprintln(a.out, summary(r, dryRun))
	return nil
}

func printFinding(w io.Writer, f janitor.Finding, width int) {
	owner := ""
	if f.Sandbox != "" && !strings.Contains(f.Subject, f.Sandbox) {
		owner = " of sandbox " + f.Sandbox
	}
	space := ""
	if f.Bytes > 0 {
		space = fmt.Sprintf(", %d MiB", f.Bytes>>20)
	}
	fmt.Fprintf(w, "%-8s  %s  %s%s%s\n", f.Level, f.Kind, printable(f.Subject), printable(owner), space)
	line := func(word, text string) {
		if text != "" {
			fmt.Fprint(w, fold(word+": "+text, "          ", width))
		}
	}
	line("why", f.Evidence)
	switch f.State {
	case janitor.StateFailed:
		line("failed", f.Error)
	case janitor.StateDone:
		line("done", f.Action)
	default:
		line("action", f.Action)
	}
	line("check first", f.Check)
	line("then run", f.Command)
}

// summary is the last line.
func summary(r janitor.Report, dryRun bool) string {
	collect, done, failed := 0, 0, 0
	for _, f := range r.Findings {
		switch {
		case f.State == janitor.StateFailed && f.Level != janitor.LevelOperator:
			failed++
		case f.Level != janitor.LevelCollect:
		case f.State == janitor.StateDone:
			done++
		default:
			collect++
		}
	}
	var parts []string
	for _, p := range []struct {
		n    int
		text string
	}{
		{done, "collected"}, {failed, "could not be collected now"}, {collect, "would be collected"},
		{r.Count(janitor.LevelOperator), "for an operator"}, {r.Count(janitor.LevelWait), "at work or being watched"},
	} {
		if p.n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", p.n, p.text))
		}
	}
	switch {
	case len(parts) > 0:
		return strings.Join(parts, ", ")
	case dryRun:
		return "nothing would be done"
	}
	return "nothing to do"
}
