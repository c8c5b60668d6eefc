package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
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
	runs, err := runsIn(all)
	if err != nil {
		return "", err
	}
	if len(runs) == 0 {
		return "", usagef("there is no run in %s; make one with savepoint bench run", all)
	}
	return filepath.Join(all, runs[len(runs)-1]), nil
}

// runsIn lists the names of the runs, the latest last: they are named by time.
func runsIn(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list the runs: %w", err)
	}
	var names []string
	for _, e := range entries {
		if e.IsDir() && fileExists(filepath.Join(dir, e.Name(), "run.json")) {
			names = append(names, e.Name())
		}
	}
	slices.Sort(names)
	return names, nil
}

func newBenchReport(a *app) *cobra.Command {
	var history string
	c := &cobra.Command{
		Use: "report [RUN]", Short: "What a run measured, against the figures to reach",
		Long: "Writes report.md, report.html (one file with its plots, for a browser) and\n" +
			"bench.txt (for benchstat) into the run's directory, and prints the table of every\n" +
			"figure to reach: reached or not, with what this run measured. RUN is a directory or a\n" +
			"name; the latest when left out. With --history the run is added to that file of JSON\n" +
			"Lines, and the page shows the trend.",
		Args: cobra.MaximumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			dir, err := a.runDir(strings.Join(args, ""))
			if err != nil {
				return err
			}
			return a.benchReport(dir, history)
		},
	}
	c.Flags().StringVar(&history, "history", "", "file of past runs to add this one to")
	return c
}

func (a *app) benchReport(dir, history string) error {
	rep, err := bench.Load(dir)
	if err != nil {
		return usageError{err}
	}
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
		return doc.JSON(a.out)
	}
	var rows [][]string
	for _, t := range bench.Targets(rep) {
		yes := "no"
		if t.Reached {
			yes = "yes"
		}
		rows = append(rows, []string{t.Name, t.Target, t.Value, yes, t.Experiment})
	}
	if err := table(a.out, "FIGURE\tTARGET\tTHIS RUN\tREACHED\tEXPERIMENT", rows); err != nil {
		return err
	}
	for _, t := range bench.Targets(rep) {
		if !t.Reached && t.Explain != "" {
			if _, err := fmt.Fprintf(a.out, "%s: %s\n", t.Name, t.Explain); err != nil {
				return err
			}
		}
	}
	_, err = fmt.Fprintf(a.out, "written: %s\n", strings.Join(files, ", "))
	return err
}

// writeWhole writes a file beside and puts it in its place.
func writeWhole(path string, write func(*os.File) error) error {
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) //nolint:errcheck // it is gone when all went well
	err = errors.Join(write(f), f.Chmod(0o644), f.Close())
	if err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}

func newBenchCompare(a *app) *cobra.Command {
	var limit float64
	c := &cobra.Command{
		Use: "compare OLD NEW", Short: "What became better or worse between two runs",
		Long: "Compares every figure of two runs: better, worse, or noise (Mann-Whitney, p < 0.05, and\n" +
			"larger than --limit). Exit code 1 when something is worse.",
		Args: cobra.ExactArgs(2),
		RunE: func(_ *cobra.Command, args []string) error {
			if limit < 0 {
				return usagef("bench compare --limit %v: must not be below zero", limit)
			}
			var reps [2]*bench.Report
			for i, name := range args {
				dir, err := a.runDir(name)
				if err != nil {
					return err
				}
				if reps[i], err = bench.Load(dir); err != nil {
					return usageError{err}
				}
			}
			cmp := bench.Compare(reps[0], reps[1], limit)
			var err error
			if a.format != formatText {
				err = a.printJSON(cmp)
			} else {
				err = cmp.Markdown(a.out)
			}
			if worse := cmp.Regressions(); err == nil && len(worse) > 0 {
				return fmt.Errorf("%d figures are worse than in %s", len(worse), cmp.Old)
			}
			return err
		},
	}
	c.Flags().Float64Var(&limit, "limit", 0.1, "smallest change that counts: 0.1 is 10 %, of a share 10 points")
	return c
}
