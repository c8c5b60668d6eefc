package bench

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
)

// Report is a run that was read back.
type Report struct {
	Info    Info
	Results []*Result // those there are, in the order of the run
}

// Load reads a run. Experiments without a file have not been made yet: see Open.
func Load(dir string) (*Report, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("read the run in %s: %w", dir, err)
	}
	info, err := readInfo(abs)
	if err != nil {
		return nil, fmt.Errorf("read the run in %s: %w", dir, err)
	}
	rep := &Report{Info: *info}
	for _, name := range info.Experiments {
		res, err := readResultFile(filepath.Join(abs, name+".json"))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil && res.Experiment != name {
			err = fmt.Errorf("%s.json is the result of experiment %s", name, res.Experiment)
		}
		if err != nil {
			return nil, fmt.Errorf("read the run in %s: %w", dir, err)
		}
		rep.Results = append(rep.Results, res)
	}
	return rep, nil
}

// Result is that of one experiment, nil when it was not made.
func (r *Report) Result(name string) *Result {
	if i := slices.IndexFunc(r.Results, func(res *Result) bool { return res.Experiment == name }); i >= 0 {
		return r.Results[i]
	}
	return nil
}

// Open are the experiments of the run that have no result yet, or were stopped.
func (r *Report) Open() []string {
	var out []string
	for _, name := range r.Info.Experiments {
		if res := r.Result(name); res == nil || res.Partial && res.Err == "" && res.Skipped == "" {
			out = append(out, name)
		}
	}
	return out
}
