package bench

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"
)

// Schema is the version of the files of a run. What reads them refuses others.
const Schema = 1

// Sample is one measurement.
type Sample struct {
	// Arm is what was measured, in the words of the experiment.
	Arm string `json:"arm"`
	// Labels divide samples further (workload, boundary, class). Samples with
	// the same arm and labels are repetitions of each other, so nothing that is
	// different each time belongs here.
	Labels map[string]string `json:"labels,omitempty"`
	// Rep is the round.
	Rep int `json:"rep"`
	// Metrics are numbers by name. "seconds" is the time as a whole.
	Metrics map[string]float64 `json:"metrics,omitempty"`
	// Steps are the seconds that parts of it took.
	Steps map[string]float64 `json:"steps,omitempty"`
	// Detail is for a reader of the raw samples: a command, an exit code.
	Detail string `json:"detail,omitempty"`
	// Err is why the measurement failed: it is counted, and its numbers are not
	// used, but those of shares.
	Err string `json:"err,omitempty"`
}

// Table is a table of facts.
type Table struct {
	Title   string     `json:"title"`
	Columns []string   `json:"columns"`
	Rows    [][]string `json:"rows"`
	Note    string     `json:"note,omitempty"`
}

// Result is what one experiment measured.
type Result struct {
	Schema     int      `json:"schema"`
	Experiment string   `json:"experiment"`
	Title      string   `json:"title"`
	Method     string   `json:"method"`
	Metrics    []Metric `json:"metrics,omitempty"`
	Plots      []Plot   `json:"plots,omitempty"`

	Samples []Sample          `json:"samples,omitempty"`
	Tables  []Table           `json:"tables,omitempty"`
	Notes   []string          `json:"notes,omitempty"`
	Facts   map[string]string `json:"facts,omitempty"`
	// Profiles are what explains targets, by their names.
	Profiles map[string]string `json:"profiles,omitempty"`

	// Skipped is why it could not be made here, Err why it failed. Partial is a
	// result with samples of an experiment that failed or was stopped before its end,
	// or still goes on. A result without any of these is finished.
	Skipped string `json:"skipped,omitempty"`
	Err     string `json:"err,omitempty"`
	Partial bool   `json:"partial,omitempty"`
	// Ended are the arms, by name and labels, that were given up before their last
	// round: see Arm.Undo. A finished result may have some.
	Ended []string `json:"ended,omitempty"`
	// Resumed is how many samples are of an earlier start of the run.
	Resumed int `json:"resumed,omitempty"`

	Environment Environment `json:"environment"`
	// Noise is what else went on, at its start and while it ran.
	Noise   Noise     `json:"noise"`
	Started time.Time `json:"started"`
	// Took is in seconds.
	Took float64 `json:"took"`
}

func newResult(e Experiment) *Result {
	return &Result{
		Schema: Schema, Experiment: e.Name, Title: e.Title, Method: strings.TrimSpace(e.Method),
		Metrics: slices.Clone(e.Metrics), Plots: slices.Clone(e.Plots), Facts: map[string]string{},
	}
}

// Finished reports whether it was measured to the end.
func (r *Result) Finished() bool { return r.Skipped == "" && r.Err == "" && !r.Partial }

// Metric describes a metric of its samples. One that nobody described has no
// unit and no direction.
func (r *Result) Metric(name string) Metric {
	if i := slices.IndexFunc(r.Metrics, func(m Metric) bool { return m.Name == name }); i >= 0 {
		return r.Metrics[i]
	}
	if name == MetricSeconds {
		return secondsMetric
	}
	return Metric{Name: name}
}

// Is keeps the samples of an arm (any when empty) that have all these labels:
// pairs of name and value.
func (r *Result) Is(arm string, labels ...string) []Sample {
	var out []Sample
	for _, s := range r.Samples {
		ok := arm == "" || s.Arm == arm
		for i := 0; i+1 < len(labels); i += 2 {
			ok = ok && s.Labels[labels[i]] == labels[i+1]
		}
		if ok {
			out = append(out, s)
		}
	}
	return out
}

// Values are the numbers of one metric. Failed samples have none, but for
// shares: what failed did not do what is counted unless it says so itself.
func (r *Result) Values(samples []Sample, metric string) []float64 {
	share := r.Metric(metric).Unit == Share
	var out []float64
	for _, s := range samples {
		if v, ok := s.Metrics[metric]; ok && (s.Err == "" || share) {
			out = append(out, v)
		}
	}
	return out
}

// Group names samples that are repetitions of each other: "arm" or
// "arm, label=value, …".
func (s Sample) Group() string {
	var b strings.Builder
	b.WriteString(s.Arm)
	for _, k := range slices.Sorted(maps.Keys(s.Labels)) {
		b.WriteString(", " + k + "=" + s.Labels[k])
	}
	return b.String()
}

// maxResult bounds what is read into memory.
const maxResult = 256 << 20

// ReadResult reads and checks one result.
func ReadResult(in io.Reader) (*Result, error) {
	raw, err := io.ReadAll(io.LimitReader(in, maxResult+1))
	if err != nil {
		return nil, fmt.Errorf("read a result: %w", err)
	}
	if len(raw) > maxResult {
		return nil, fmt.Errorf("read a result: it is larger than %d bytes", maxResult)
	}
	var r Result
	if err := json.Unmarshal(raw, &r); err != nil {
		return nil, fmt.Errorf("read a result: %w", err)
	}
	if err := r.check(); err != nil {
		return nil, fmt.Errorf("read a result: %w", err)
	}
	return &r, nil
}

func (r *Result) check() error {
	if r.Schema != Schema {
		return fmt.Errorf("it has schema %d, this program reads %d: run the experiment again", r.Schema, Schema)
	}
	if err := checkName(r.Experiment); err != nil {
		return err
	}
	for _, t := range r.Tables {
		for i, row := range t.Rows {
			if len(row) != len(t.Columns) {
				return fmt.Errorf("table %q: row %d has %d cells for %d columns", t.Title, i+1, len(row), len(t.Columns))
			}
		}
	}
	for i, s := range r.Samples {
		for _, values := range []map[string]float64{s.Metrics, s.Steps} {
			for name, v := range values {
				if !plausible(v) {
					return fmt.Errorf("sample %d: %s is %v", i+1, name, v)
				}
			}
		}
		for name, v := range s.Metrics {
			if r.Metric(name).Unit == Share && (v < 0 || v > 1) {
				return fmt.Errorf("sample %d: %s is %v, and a share is 0 to 1", i+1, name, v)
			}
		}
	}
	if r.Took < 0 || !plausible(r.Took) {
		return fmt.Errorf("it took %v seconds", r.Took)
	}
	return nil
}
