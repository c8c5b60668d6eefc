package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"savepoint/testbed/bench"
)

func newBench(a *app) *cobra.Command {
	c := &cobra.Command{
		Use: "bench", Short: "The experiments: run, report, compare",
		Long: "Reproduces the experiments of arXiv 2512.12806 and measures savepoint beside them:\n" +
			"what the policy stops, whether every damage comes back, what a transaction costs by\n" +
			"boundary and beside the paper's copy of the workspace, whole agent turns, isolation,\n" +
			"growth, crashes, and the Gemini CLI as a baseline. Each run is a directory below\n" +
			"STATE/bench; results are JSON with every raw sample.",
	}
	c.AddCommand(newBenchRun(a), newBenchReport(a), newBenchCompare(a))
	return c
}

// benchDir is where runs are kept.
func (a *app) benchDir() (string, error) {
	state, err := a.state()
	if err != nil {
		return "", err
	}
	return filepath.Join(state, "bench"), nil
}

// runDir finds a run: by its directory, by its name, or the latest one.
func (a *app) runDir(name string) (string, error) {
	if name != "" && fileExists(filepath.Join(name, "run.json")) {
		return name, nil
	}
	all, err := a.benchDir()
	if err != nil {
		return "", err
	}
	if name != "" {
		dir := filepath.Join(all, name)
		if strings.ContainsRune(name, filepath.Separator) || !fileExists(filepath.Join(dir, "run.json")) {
			return "", usagef("run %q: there is no such run in %s, and it is no directory of one (see savepoint bench run)", name, all)
		}
		return dir, nil
	}
	runs, err := bench.Runs(all)
	if err != nil {
		return "", err
	}
	if len(runs) == 0 {
		return "", usagef("there is no run in %s; make one with savepoint bench run", all)
	}
	return runs[len(runs)-1], nil
}

// loadRun reads the run that the user means.
func (a *app) loadRun(name string) (*bench.Report, string, error) {
	dir, err := a.runDir(name)
	if err != nil {
		return nil, "", err
	}
	rep, err := bench.Load(dir)
	if err != nil {
		return nil, "", usagef("%w; delete a broken result, and savepoint bench run --dir %s, with the flags it was begun with, measures it again", err, dir)
	}
	return rep, dir, nil
}

func newBenchReport(a *app) *cobra.Command {
	var history string
	c := &cobra.Command{
		Use: "report [RUN]", Short: "What a run measured, against the figures to reach",
		Long: "Writes report.md, report.html (one file with its plots, for a browser) and\n" +
			"bench.txt (for benchstat) into the run's directory, and prints the table of every\n" +
			"figure to reach: reached, not, or undecided (too few samples, a part of the experiment, a\n" +
			"selection), with what this run measured. RUN is a directory or a\n" +
			"name; the latest when left out. With --history the run is added to that file of JSON\n" +
			"Lines, and the page shows the trend.",
		Args: cobra.MaximumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			rep, dir, err := a.loadRun(strings.Join(args, ""))
			if err != nil {
				return err
			}
			return a.benchReport(rep, dir, history)
		},
	}
	c.Flags().StringVar(&history, "history", "", "file of past runs to add this one to")
	return c
}

func (a *app) benchReport(rep *bench.Report, dir, history string) error {
	doc := rep.Document()
	var trend []bench.Past
	if history != "" {
		past, err := bench.AppendHistory(history, rep)
		if err != nil {
			return err
		}
		trend = past
	}
	files := []string{}
	for _, f := range []struct {
		name  string
		write func(*os.File) error
	}{
		{"report.md", func(f *os.File) error { return doc.Markdown(f) }},
		{"report.html", func(f *os.File) error { return doc.HTML(f, trend) }},
		{"bench.txt", func(f *os.File) error { return rep.GoBench(f) }},
	} {
		path := filepath.Join(dir, f.name)
		if err := writeWhole(path, f.write); err != nil {
			return fmt.Errorf("write the report: %w", err)
		}
		files = append(files, path)
	}
	if a.format != formatText {
		return a.printJSON(doc)
	}
	var rows [][]string
	for _, t := range doc.Targets {
		rows = append(rows, []string{t.Name, t.Target, t.Value, t.Answer(), t.Experiment})
	}
	if err := table(a.out, "FIGURE\tTARGET\tTHIS RUN\tREACHED\tEXPERIMENT", rows); err != nil {
		return err
	}
	for _, t := range doc.Targets {
		if !t.Reached && t.Explain != "" {
			if _, err := fmt.Fprintf(a.out, "%s: %s\n", t.Name, joined(t.Explain, "; ", t.Why)); err != nil {
				return err
			}
		}
	}
	_, err := fmt.Fprintf(a.out, "written: %s\n", strings.Join(files, ", "))
	return err
}

// writeWhole writes a file beside and puts it in its place.
func writeWhole(path string, write func(*os.File) error) error {
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) // it is gone when all went well
	err = errors.Join(write(f), f.Chmod(0o644), f.Close())
	if err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}

func newBenchCompare(a *app) *cobra.Command {
	var limit float64
	c := &cobra.Command{
		Use: "compare [[OLD] NEW]", Short: "What became better or worse between two runs",
		Long: "Compares every figure of two runs: better, worse, or noise (Mann-Whitney, corrected for\n" +
			"the number of figures of an experiment by Benjamini-Hochberg, q < 0.05, and larger than\n" +
			"--limit). More failed samples are worse, whatever their number. Exit code 1 when something\n" +
			"is worse, or gone that the plan still has. NEW is the latest run when left\n" +
			"out, OLD the latest earlier one beside it with the same plan on the same machine; where\n" +
			"there is none nothing is compared, which is no error. A quick run and a full one, and\n" +
			"runs of other boundaries, measure different work and are not compared.",
		Args: cobra.MaximumNArgs(2),
		RunE: func(_ *cobra.Command, args []string) error {
			if !(limit >= 0) { // also what is no number
				return usagef("bench compare --limit %v: must not be below zero", limit)
			}
			old, now, err := a.twoRuns(args)
			if err != nil {
				return err
			}
			return a.benchCompare(old, now, limit)
		},
	}
	c.Flags().Float64Var(&limit, "limit", 0.1, "smallest change that counts: 0.1 is 10 %, of a share 10 points")
	return c
}

// twoRuns are those to compare. Without a name of the old one there may be none.
func (a *app) twoRuns(args []string) (old, now *bench.Report, err error) {
	last := ""
	if len(args) > 0 {
		last = args[len(args)-1]
	}
	now, dir, err := a.loadRun(last)
	if err != nil {
		return nil, nil, err
	}
	if len(args) < 2 {
		abs, err := filepath.Abs(dir)
		if err != nil {
			return nil, nil, fmt.Errorf("find the run before %s: %w", dir, err)
		}
		old, err = bench.Before(filepath.Dir(abs), now)
		return old, now, err
	}
	old, _, err = a.loadRun(args[0])
	if err != nil {
		return nil, nil, err
	}
	words := func(p bench.Plan) string {
		text := "a full run"
		if p.Quick {
			text = "a quick run"
		}
		if len(p.Boundaries) > 0 {
			text += " of the boundaries " + strings.Join(p.Boundaries, ", ")
		}
		return text
	}
	if is, was := words(now.Info.Plan), words(old.Info.Plan); is != was {
		err = usagef("bench compare: %s is %s and %s is %s: they measure different work; compare runs of one plan", old.Info.ID, was, now.Info.ID, is)
	}
	return old, now, err
}

func (a *app) benchCompare(old, now *bench.Report, limit float64) error {
	if old == nil {
		none := "there is no earlier run with its plan on this machine to compare it with"
		if a.format != formatText {
			return a.printJSON(&bench.Comparison{New: now.Info.ID, Limit: limit, Warnings: []string{none}, Changes: []bench.Change{}})
		}
		_, err := fmt.Fprintf(a.out, "%s: %s\n", now.Info.ID, none)
		return err
	}
	cmp := bench.Compare(old, now, limit)
	write := func() error { return cmp.Markdown(a.out) }
	if a.format != formatText {
		write = func() error { return a.printJSON(cmp) }
	}
	if err := write(); err != nil {
		return err
	}
	if worse := len(cmp.Regressions()); worse > 0 {
		return fmt.Errorf("%d figures are worse than in %s, or gone", worse, cmp.Old)
	}
	return nil
}
