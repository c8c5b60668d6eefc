package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"savepoint/testbed/notes"
)

// Info is what a run is, beside its results.
type Info struct {
	Schema  int       `json:"schema"`
	ID      string    `json:"id"` // the name of its directory
	Plan    Plan      `json:"plan"`
	Started time.Time `json:"started"`
	// Environment is the machine. A run does not go on with another one.
	Environment Environment `json:"environment"`
	// Cluster is what the experiments said of theirs, see Run.Where; nil until one
	// did. The same holds for it.
	Cluster *Environment `json:"cluster,omitempty"`
	// Experiments are the names of all that belong to the run, in their order.
	Experiments []string `json:"experiments"`
}

// Where is the machine, and the cluster when there is one.
func (i *Info) Where() Environment {
	if i.Cluster == nil {
		return i.Environment
	}
	return i.Environment.with(*i.Cluster)
}

// Runner makes the experiments of one run, one after the other.
type Runner struct {
	// Dir is the directory of the run. It is made when it is not there.
	Dir         string
	Plan        Plan
	Experiments []Experiment
	// Again are names of experiments that are made from the start although there is
	// a result, which is put aside as NAME.before.json.
	Again []string
	// Environment is the machine; Root is where its load is read
	// (os.DirFS("/")), nil for nowhere.
	Environment Environment
	Root        fs.FS
	// Progress is told of every step, from one goroutine at a time. Nil for nobody.
	Progress func(Progress)
	// Now is time.Now unless set.
	Now func() time.Time

	// Resumed is how many samples of earlier starts Run did not measure again, in the
	// experiments that went on. Run sets it.
	Resumed int

	info Info
}

// Run makes what is not finished yet and returns the whole run. An experiment
// that fails does not stop the others: its Result has the error. Run itself
// fails with ctx, and when a file cannot be written. Samples of an experiment that
// failed or was stopped are kept, and the next start of the run goes on from them.
func (r *Runner) Run(ctx context.Context) (*Report, error) {
	if r.Now == nil {
		r.Now = time.Now
	}
	if err := r.begin(); err != nil {
		return nil, fmt.Errorf("run in %s: %w", r.Dir, err)
	}
	p := newProgress(r)
	for i, e := range r.Experiments {
		kept, err := r.finished(e.Name)
		if err != nil {
			return nil, fmt.Errorf("run in %s: %w", r.Dir, err)
		}
		if kept {
			p.end(i, "kept", 0)
			continue
		}
		old, err := r.begun(e.Name)
		if err != nil {
			return nil, fmt.Errorf("run in %s: %w", r.Dir, err)
		}
		res, how := r.one(ctx, e, old, p.begin(i, old))
		stopped := ctx.Err() != nil
		if !stopped || res.Partial {
			if err := notes.WriteJSON(r.file(e.Name), res); err != nil {
				return nil, fmt.Errorf("keep the result of experiment %s: %w", e.Name, err)
			}
		}
		if stopped {
			return nil, fmt.Errorf("run in %s: stopped in experiment %s, of which %s are kept; start it again with the same directory and it goes on there: %w",
				r.Dir, e.Name, counted(float64(len(res.Samples)), "sample", "samples"), context.Cause(ctx))
		}
		r.Resumed += res.Resumed
		p.end(i, how, time.Duration(res.Took*float64(time.Second)))
	}
	return Load(r.Dir)
}

func outcome(res *Result) string {
	switch {
	case res.Skipped != "":
		return "skipped: " + res.Skipped
	case res.Err != "":
		return "failed: " + res.Err
	}
	return "done"
}

func (r *Runner) file(name string) string { return filepath.Join(r.Dir, name+".json") }

// begin makes the directory, or joins the run that is in it.
func (r *Runner) begin() error {
	dir, err := filepath.Abs(r.Dir)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	info := Info{Schema: Schema, ID: filepath.Base(dir), Plan: r.Plan, Started: r.Now().UTC()}
	switch old, err := readInfo(dir); {
	case err == nil && !old.Plan.Same(r.Plan):
		return fmt.Errorf("it was begun with another plan (%+v, now %+v): figures of both do not belong together; go on with the plan of before, or use another directory", old.Plan, r.Plan)
	case err == nil:
		if err := goesOnHere("machine", old.Environment, r.Environment); err != nil {
			return err
		}
		info = *old
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	info.Environment = r.Environment
	seen := map[string]bool{}
	for _, e := range r.Experiments {
		if err := checkName(e.Name); err != nil {
			return err
		}
		if seen[e.Name] {
			return fmt.Errorf("there are two experiments named %s", e.Name)
		}
		seen[e.Name] = true
		if !slices.Contains(info.Experiments, e.Name) {
			info.Experiments = append(info.Experiments, e.Name)
		}
	}
	for _, name := range r.Again {
		if !seen[name] {
			return fmt.Errorf("experiment %q is to be made again, and is none of this run", name)
		}
	}
	r.info = info
	return r.keepInfo()
}

func (r *Runner) keepInfo() error {
	return notes.WriteJSON(r.file(reserved), r.info)
}

// goesOnHere refuses to go on with a run where it was not begun.
func goesOnHere(what string, then, now Environment) error {
	machine, versions := then.Differences(now)
	if all := append(machine, versions...); len(all) > 0 {
		return fmt.Errorf("it was begun on another %s (%s): figures of both do not belong together; go on where it was begun, or begin another run in another directory", what, strings.Join(all, "; "))
	}
	return nil
}

// where notes the cluster of the run, which stays the same.
func (r *Runner) where(cluster Environment) error {
	if r.info.Cluster != nil {
		if err := goesOnHere("cluster", *r.info.Cluster, cluster); err != nil {
			return fmt.Errorf("run in %s: %w", r.Dir, err)
		}
		return nil
	}
	r.info.Cluster = &cluster
	return r.keepInfo()
}

// begun is what an earlier start measured of an experiment that is not finished, or
// of which arms ended; nil for nothing. What is to be made again is put aside.
func (r *Runner) begun(name string) (*Result, error) {
	if slices.Contains(r.Again, name) {
		if err := os.Rename(r.file(name), r.file(name+".before")); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("put the result of experiment %s aside: %w", name, err)
		}
		return nil, nil
	}
	old, err := readResultFile(r.file(name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil || !old.Partial && len(old.Ended) == 0 {
		return nil, err
	}
	return old, nil
}

// finished reports whether an experiment need not be made. One of which arms ended is,
// for those.
func (r *Runner) finished(name string) (bool, error) {
	if slices.Contains(r.Again, name) {
		return false, nil
	}
	res, err := readResultFile(r.file(name))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("%w; delete the file to measure it again", err)
	}
	return res.Finished() && len(res.Ended) == 0, nil
}

// one makes one experiment, from what an earlier start measured of it if it did, and
// says how it ended.
func (r *Runner) one(ctx context.Context, e Experiment, old *Result, progress func(done, total int, what string, resumed int)) (*Result, string) {
	run := NewRun(e, r.Plan)
	run.progress, run.now, run.where = progress, r.Now, r.where
	run.save = func(res *Result) error { return notes.WriteJSON(r.file(e.Name), res) }
	if old != nil {
		run.goOn(old)
	}
	began := r.Now().UTC()
	res := run.result
	res.Environment, res.Started = r.Environment, began
	var before ticks
	if r.Root != nil {
		res.Noise.Load, before = readLoad(r.Root), readTicks(r.Root)
	}
	err := r.profiled(ctx, e, run)
	var skip *SkipError
	switch {
	case ctx.Err() != nil: // what it says of being stopped is no failure
	case errors.As(err, &skip):
		res.Skipped = skip.Reason
	case err != nil:
		res.Err = err.Error()
	}
	if r.Root != nil {
		res.Noise.Steal = stolen(before, readTicks(r.Root))
	}
	res.Took = max(0, r.Now().Sub(began).Seconds())
	how, finished := outcome(res), err == nil && ctx.Err() == nil
	if !finished && !run.added && old != nil && old.Finished() {
		// Only ended arms were to be tried again, and none was: it is as good as before.
		if how != "done" {
			note := "arms that had ended could not be tried again: " + how
			if !slices.Contains(old.Notes, note) {
				old.Notes = append(old.Notes, note)
			}
		}
		return old, how
	}
	return run.end(finished), how
}

func (r *Runner) profiled(ctx context.Context, e Experiment, run *Run) error {
	if !r.Plan.Profile {
		return e.Run(ctx, run)
	}
	stop, err := watch(r.Dir, e.Name)
	if err != nil {
		return err
	}
	return errors.Join(e.Run(ctx, run), stop())
}

func readInfo(dir string) (*Info, error) {
	path := filepath.Join(dir, reserved+".json")
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var info Info
	if err := json.Unmarshal(raw, &info); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if info.Schema != Schema {
		return nil, fmt.Errorf("%s has schema %d, this program reads %d: use another directory", path, info.Schema, Schema)
	}
	for _, name := range info.Experiments {
		if err := checkName(name); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
	}
	return &info, nil
}

func readResultFile(path string) (*Result, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	res, err := ReadResult(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return res, nil
}
