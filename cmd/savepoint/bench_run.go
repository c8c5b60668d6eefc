package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"savepoint/configs"
	"savepoint/testbed/bench"
	"savepoint/testbed/bench/gemini"
	"savepoint/testbed/bench/trials"
	"savepoint/testbed/guest"
)

// benchFlags are those of bench run.
type benchFlags struct {
	quick, resume, keep bool
	profile             bool
	dir, sandbox        string
	only, again         []string
	corpora             []string
	boundaries          []string
	seed                uint64
	repeat              int
	timeout             time.Duration
}

func newBenchRun(a *app) *cobra.Command {
	var f benchFlags
	c := &cobra.Command{
		Use: "run", Short: "Make the experiments",
		Long: "Makes every experiment, one after the other, and keeps each result as soon as it is\n" +
			"there. Without a configured cluster the local lab is used, and started when it does not\n" +
			"run. The experiments have a sandbox of their own and ruin it on purpose.\n\n" +
			"--quick is a short look; the full run takes hours on emulated guests. The first line\n" +
			"of the progress says about how long it takes. What was interrupted goes on with\n" +
			"--resume, on the same machine and cluster: samples that are there are not measured\n" +
			"again. What is finished is not repeated unless --again asks for it, which puts the\n" +
			"old result aside. --boundary keeps to some boundaries. Further corpora of commands for\n" +
			"the policy are files NAME.tsv in the directories of --corpora (or\n" +
			"SAVEPOINT_POLICY_CORPORA). --profile keeps profiles of this process beside each\n" +
			"result: NAME.cpu.pprof and NAME.heap.pprof for go tool pprof, and NAME.trace, of the\n" +
			"last seconds, for go tool trace.",
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if f.repeat < 0 {
				return usagef("bench run --repeat %d: must not be below zero", f.repeat)
			}
			if c.Flags().Changed("only") && len(f.only) == 0 {
				return usagef("bench run --only: it names no experiment")
			}
			if err := f.checkBoundaries(c.Flags().Changed("boundary")); err != nil {
				return err
			}
			ctx, cancel := withTimeout(c.Context(), f.timeout)
			defer cancel()
			return a.benchRun(ctx, f)
		},
	}
	fl := c.Flags()
	fl.BoolVar(&f.quick, "quick", false, "a short look")
	fl.BoolVar(&f.resume, "resume", false, "go on with the latest run")
	fl.BoolVar(&f.profile, "profile", false, "profile this process; the figures are then those of a profiled one")
	fl.StringVar(&f.dir, "dir", "", "directory of the run; one that is there goes on (default: a new one below STATE/bench)")
	fl.StringVar(&f.sandbox, "sandbox", "bench", "name of the sandbox of the experiments")
	fl.BoolVar(&f.keep, "keep", false, "keep that sandbox")
	fl.StringSliceVar(&f.only, "only", nil, "only these experiments")
	fl.StringSliceVar(&f.again, "again", nil, "make these again although they are finished")
	fl.StringSliceVar(&f.boundaries, "boundary", nil, "only these boundaries: workspace, disk, machine (default: all)")
	fl.StringSliceVar(&f.corpora, "corpora", nil, "directories of further corpora")
	fl.Uint64Var(&f.seed, "seed", 1, "what all orders and choices are drawn from")
	fl.IntVar(&f.repeat, "repeat", 0, "repetitions of every measurement (default: each experiment's own)")
	addTimeout(c, &f.timeout)
	return c
}

func (a *app) benchRun(ctx context.Context, f benchFlags) error {
	dir, err := a.newRunDir(f)
	if err != nil {
		return err
	}
	plan := bench.FullPlan()
	if f.quick {
		plan = bench.QuickPlan()
	}
	plan.Seed, plan.Repeat, plan.Boundaries, plan.Profile = f.seed, f.repeat, f.boundaries, f.profile
	b := &benchmark{app: a, flags: f, dir: dir}
	defer b.end(context.WithoutCancel(ctx))
	list, err := b.experiments()
	if err != nil {
		return err
	}
	env := bench.Look(os.DirFS("/"))
	env.Versions["savepoint"] = version()
	r := &bench.Runner{
		Dir: dir, Plan: plan, Experiments: list, Again: f.again, Environment: env, Root: os.DirFS("/"),
		Progress: bench.ProgressLines(a.err, time.Now),
	}
	rep, err := r.Run(ctx)
	if err != nil {
		return err
	}
	failed := 0
	for _, res := range rep.Results {
		if res.Err != "" {
			failed++
		}
	}
	if a.format != formatText {
		err = a.printJSON(rep.Document())
	} else {
		resumed := ""
		if r.Resumed > 0 {
			resumed = fmt.Sprintf(", %d samples resumed", r.Resumed)
		}
		_, err = fmt.Fprintf(a.out, "%s: %d experiments%s; see savepoint bench report\n", dir, len(rep.Results), resumed)
	}
	if err == nil && failed > 0 {
		return fmt.Errorf("%d experiments failed; savepoint bench run --resume tries them again", failed)
	}
	return err
}

// checkBoundaries refuses what is none, and puts them in order: the same ones are the
// same plan.
func (f *benchFlags) checkBoundaries(given bool) error {
	all := bench.AllBoundaries()
	for _, name := range f.boundaries {
		if !slices.Contains(all, name) {
			return usagef("bench run --boundary %q: there is no such boundary to measure; there are %s", name, strings.Join(all, ", "))
		}
	}
	if given && len(f.boundaries) == 0 {
		return usagef("bench run --boundary: it names no boundary")
	}
	kept := slices.DeleteFunc(all, func(name string) bool { return !slices.Contains(f.boundaries, name) })
	if f.boundaries = kept; len(kept) == len(bench.AllBoundaries()) {
		f.boundaries = nil
	}
	return nil
}

// newRunDir is the directory of the run, named by time unless it was named.
func (a *app) newRunDir(f benchFlags) (string, error) {
	if f.dir != "" {
		if f.resume {
			return "", usagef("bench run: --dir goes on with the run that is there by itself; leave --resume out")
		}
		return filepath.Abs(f.dir)
	}
	if f.resume {
		return a.runDir("")
	}
	all, err := a.benchDir()
	if err != nil {
		return "", err
	}
	first := filepath.Join(all, time.Now().UTC().Format("20060102-150405"))
	dir := first
	for n := 2; fileExists(dir); n++ { // begun in the same second
		dir = fmt.Sprintf("%s-%d", first, n)
	}
	return dir, nil
}

// experiments are those that were asked for, in the order in which they are made:
// what needs no cluster first.
func (b *benchmark) experiments() ([]bench.Experiment, error) {
	corpora := b.flags.corpora
	if env, ok := b.app.lookup("SAVEPOINT_POLICY_CORPORA"); ok && env != "" && corpora == nil {
		corpora = filepath.SplitList(env)
	}
	root, err := os.Getwd()
	if err != nil {
		return nil, err
	}
	cache, err := guest.CacheDir()
	if err != nil {
		return nil, err
	}
	rules, err := decider(configs.Config{})
	if err != nil {
		return nil, err
	}
	rig := &trials.Rig{}
	all := []bench.Experiment{
		trials.Interception(rules, corpora),
		trials.Scale(b.dir),
		b.onCluster(rig, trials.Overhead(rig)),
		b.onCluster(rig, trials.Turns(rig)),
		b.onCluster(rig, trials.Rollback(rig)),
		b.onCluster(rig, trials.Isolation(b.pairs)),
		b.onCluster(rig, trials.Guests(rig, b.another, b.room)),
		b.onCluster(rig, gemini.New(gemini.Config{Cache: filepath.Join(cache, "gemini"), Scratch: b.dir, Sandboxes: []gemini.Sandbox{&geminiBox{b: b, rig: rig}}})),
		trials.Crashes(root),
	}
	if len(b.flags.only) > 0 {
		if all, err = pick(all, "only", b.flags.only); err != nil {
			return nil, err
		}
	}
	_, err = pick(all, "again", b.flags.again)
	return all, err
}

// pick keeps the experiments that a flag names.
func pick(all []bench.Experiment, flag string, names []string) ([]bench.Experiment, error) {
	var there []string
	for _, e := range all {
		there = append(there, e.Name)
	}
	for _, name := range names {
		if !slices.Contains(there, name) {
			return nil, usagef("bench run --%s %q: there is no such experiment; there are %s", flag, name, strings.Join(there, ", "))
		}
	}
	return slices.DeleteFunc(slices.Clone(all), func(e bench.Experiment) bool { return !slices.Contains(names, e.Name) }), nil
}

// onCluster opens the cluster before an experiment that needs it, when that has
// not been done: what needs none is made where there is none.
func (b *benchmark) onCluster(rig *trials.Rig, e bench.Experiment) bench.Experiment {
	run := e.Run
	e.Run = func(ctx context.Context, r *bench.Run) error {
		if err := b.open(ctx, rig); err != nil {
			return err
		}
		where, err := b.place(ctx)
		if err != nil {
			return err
		}
		if err := r.Where(where); err != nil {
			return err
		}
		return run(ctx, r)
	}
	return e
}

// end gives back what the run made.
func (b *benchmark) end(ctx context.Context) {
	if b.s == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	err := errors.Join(b.eager.Quiet(ctx), b.drop(ctx))
	if err != nil {
		fmt.Fprintf(b.app.err, "savepoint: after the run: %s\n", printable(err.Error()))
	}
}
