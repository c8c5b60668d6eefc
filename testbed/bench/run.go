package bench

import (
	"fmt"
	"hash/fnv"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

// Run is one experiment that is going on: the plan, and where results go. It may
// be used by several goroutines.
type Run struct {
	// Plan is how much is to be measured.
	Plan Plan

	mu       sync.Mutex
	result   *Result
	progress func(done, total int, what string, resumed int)
	// earlier is what an earlier start of the run measured of the experiment.
	earlier earlier
	added   bool // something was measured by this start
	// save keeps what there is so far; nil for nowhere. It does so again from saveAt on.
	save   func(*Result) error
	saveAt time.Time
	now    func() time.Time
	// where is told of the cluster; nil for nobody.
	where func(Environment) error
}

// NewRun is a run that keeps its result in memory, for tests of experiments; the
// Runner makes its own.
func NewRun(e Experiment, plan Plan) *Run {
	return &Run{Plan: plan, result: newResult(e), progress: func(int, int, string, int) {}, now: time.Now}
}

// plausible numbers can be written, summed and drawn.
func plausible(v float64) bool { return math.Abs(v) < 1e100 }

// Add keeps measurements. A metric or step that is no plausible number, or a share
// that is none, makes its sample a failed one.
func (r *Run) Add(samples ...Sample) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range samples {
		s.Labels, s.Metrics, s.Steps = maps.Clone(s.Labels), maps.Clone(s.Metrics), maps.Clone(s.Steps)
		for _, values := range []map[string]float64{s.Metrics, s.Steps} {
			for _, name := range slices.Sorted(maps.Keys(values)) {
				if v := values[name]; !plausible(v) {
					delete(values, name)
					s.Err = joinText(s.Err, fmt.Sprintf("%s is %v", name, v))
				}
			}
		}
		for _, name := range slices.Sorted(maps.Keys(s.Metrics)) {
			if v := s.Metrics[name]; r.result.Metric(name).Unit == Share && (v < 0 || v > 1) {
				delete(s.Metrics, name)
				s.Err = joinText(s.Err, fmt.Sprintf("%s is %v, and a share is 0 to 1", name, v))
			}
		}
		r.result.Samples = append(r.result.Samples, s)
		r.added = true
		r.earlier.replace(s)
	}
	// What cannot be kept now is kept at the end, which says so if it cannot.
	if began := r.now(); r.save != nil && !began.Before(r.saveAt) {
		_ = r.save(r.soFar())
		done := r.now()
		r.saveAt = done.Add(max(saveEvery, saveShare*done.Sub(began)))
	}
}

func joinText(a, b string) string {
	if a == "" {
		return b
	}
	return a + "; " + b
}

// Table keeps a table of facts. Rows are filled up or cut to its columns.
func (r *Run) Table(t Table) {
	t.Columns = slices.Clone(t.Columns)
	rows := make([][]string, len(t.Rows))
	for i, row := range t.Rows {
		rows[i] = make([]string, len(t.Columns))
		copy(rows[i], row)
	}
	t.Rows = rows
	r.mu.Lock()
	defer r.mu.Unlock()
	r.result.Tables = append(r.result.Tables, t)
}

// Note keeps a sentence for the reader of the report; the same one once.
func (r *Run) Note(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	r.mu.Lock()
	defer r.mu.Unlock()
	if !slices.Contains(r.result.Notes, text) {
		r.result.Notes = append(r.result.Notes, text)
	}
}

// Fact keeps what the experiment alone knows of where it ran: the boundary, the
// hash of an image, the version of a program it installed.
func (r *Run) Fact(name, value string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.result.Facts[name] = value
}

// Where tells on what cluster the experiment measures, beside the machine's own
// facts: accelerator, versions, the facts Fact…. It fails where the run was begun on
// another one: figures of both do not belong together.
func (r *Run) Where(cluster Environment) error {
	if r.where != nil {
		if err := r.where(cluster); err != nil {
			return err
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.result.Environment = r.result.Environment.with(cluster)
	return nil
}

// Progress tells how far the experiment is: done of total, and what comes next. Where
// done is less than before, or the total another, a further part begins.
func (r *Run) Progress(done, total int, what string) {
	r.mu.Lock()
	resumed := r.result.Resumed
	r.mu.Unlock()
	r.progress(done, total, what, resumed)
}

// Reps is how often something is repeated, by the plan.
func (r *Run) Reps(quick, full int) int { return r.Plan.Reps(quick, full) }

// Wants reports whether the plan has a boundary (workspace, disk, machine) measured.
func (r *Run) Wants(boundary string) bool { return r.Plan.Wants(boundary) }

// Rand is a source of numbers that are the same in every run with the same seed.
// What is drawn for one purpose does not depend on what is drawn for another.
func (r *Run) Rand(purpose string) *rand.Rand {
	h := fnv.New64a()
	h.Write([]byte(r.result.Experiment + "\x00" + purpose))
	return rand.New(rand.NewPCG(r.Plan.Seed, h.Sum64()))
}

// Result is what has been measured so far. It is the run's own: the caller does
// not change it, and asks when nobody adds to it.
func (r *Run) Result() *Result { return r.result }

// Profile keeps what explains a target (one of the names Target…) that may be
// missed: where the time goes, what holds the memory. The report shows it when it
// is, with the steps of the samples. Of what is no target it is a note.
func (r *Run) Profile(target, format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if !slices.ContainsFunc(goals, func(g goal) bool { return g.name == target && g.experiment == r.result.Experiment }) {
		r.Note("%s: %s", target, text)
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.result.Profiles == nil {
		r.result.Profiles = map[string]string{}
	}
	r.result.Profiles[target] = joinText(r.result.Profiles[target], text)
}
