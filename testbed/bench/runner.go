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
	"time"

	"savepoint/testbed/notes"
)

// Info is what a run is, beside its results.
type Info struct {
	Schema  int       `json:"schema"`
	ID      string    `json:"id"` // the name of its directory
	Plan    Plan      `json:"plan"`
	Started time.Time `json:"started"`
	// Environment is the machine at the latest start: a run may go on elsewhere,
	// so each result has its own.
	Environment Environment `json:"environment"`
	// Experiments are the names of all that belong to the run, in their order.
	Experiments []string `json:"experiments"`
}

// Runner makes the experiments of one run, one after the other.
type Runner struct {
	// Dir is the directory of the run. It is made when it is not there.
	Dir         string
	Plan        Plan
	Experiments []Experiment
	// Again are names of experiments that are made although they are finished.
	Again []string
	// Environment is the machine; Root is where its load is read
	// (os.DirFS("/")), nil for nowhere.
	Environment Environment
	Root        fs.FS
	// Progress is told of every step, from one goroutine at a time. Nil for nobody.
	Progress func(Progress)
	// Now is time.Now unless set.
	Now func() time.Time
}

// Run makes what is not finished yet and returns the whole run. An experiment
// that fails does not stop the others: its Result has the error. Run itself
// fails with ctx, and when a file cannot be written.
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
			p.end(i, "kept")
			continue
		}
		res := r.one(ctx, e, p.begin(i))
		if ctx.Err() != nil {
			return nil, fmt.Errorf("run in %s: stopped in experiment %s; start it again with the same directory and it goes on there: %w", r.Dir, e.Name, context.Cause(ctx))
		}
		if err := notes.WriteJSON(r.file(e.Name), res); err != nil {
			return nil, fmt.Errorf("keep the result of experiment %s: %w", e.Name, err)
		}
		p.end(i, outcome(res))
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
	return notes.WriteJSON(filepath.Join(dir, reserved+".json"), info)
}

// finished reports whether an experiment need not be made.
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
	return res.Finished(), nil
}

// one makes one experiment.
func (r *Runner) one(ctx context.Context, e Experiment, progress func(done, total int, what string)) *Result {
	run := NewRun(e, r.Plan)
	run.progress = progress
	res := run.result
	res.Environment, res.Started = r.Environment, r.Now().UTC()
	var before ticks
	if r.Root != nil {
		res.Noise.Load, before = readLoad(r.Root), readTicks(r.Root)
	}
	err := e.Run(ctx, run)
	var skip *SkipError
	switch {
	case errors.As(err, &skip):
		res.Skipped = skip.Reason
	case err != nil:
		res.Err = err.Error()
	}
	if r.Root != nil {
		res.Noise.Steal = stolen(before, readTicks(r.Root))
	}
	res.Took = max(0, r.Now().Sub(res.Started).Seconds())
	return res
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
