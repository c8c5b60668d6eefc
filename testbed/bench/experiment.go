package bench

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"time"
)

// Experiment answers one question by measuring.
type Experiment struct {
	// Name is also the name of its file: small letters, digits, dashes.
	Name string
	// Title is what the report calls it.
	Title string
	// Method is how it is measured, in words for the reader of the report:
	// what is done, how often, on what, and what is not.
	Method string
	// Metrics describes what its samples hold beside "seconds".
	Metrics []Metric
	// Plots are drawn from its samples, in this order.
	Plots []Plot
	// Quick and Full are about how long it takes with either plan. They are for
	// the estimate only.
	Quick, Full time.Duration
	// OneStage says that its progress counts all of it, so that its pace says what is
	// left. Of others there may be more to come than is counted at the moment.
	OneStage bool
	// Run measures. What cannot be measured here is no error: return Skip.
	// Results are added to r as they come; an error keeps those, and lets the
	// experiment be tried again.
	Run func(ctx context.Context, r *Run) error
}

var nameForm = regexp.MustCompile(`^[a-z][a-z0-9-]{0,39}$`)

// reserved is the run's own file.
const reserved = "run"

func checkName(name string) error {
	if !nameForm.MatchString(name) || name == reserved {
		return fmt.Errorf("experiment %q: a name is small letters, digits and dashes, and not %q", name, reserved)
	}
	return nil
}

// Units. A metric's unit says how it is summed up and printed.
const (
	Seconds = "s"     // a time
	Bytes   = "B"     // an amount of memory or data
	Share   = "share" // 0 or 1 in each sample: the mean is what counts
	Ratio   = "ratio" // one by another, of the same sample
	Count   = "count" // a number of things
	PerSec  = "per_s" // things per second
)

// Better says which direction of a metric is an improvement.
type Better string

// Directions. A metric without one is reported, and never better or worse.
const (
	Lower  Better = "lower"
	Higher Better = "higher"
)

// Metric describes one number of samples.
type Metric struct {
	Name   string `json:"name"`
	Unit   string `json:"unit"`
	Better Better `json:"better,omitempty"`
	// Exact metrics do not depend on chance (leaks, files that differ): any
	// change for the worse is one, without statistics.
	Exact bool `json:"exact,omitempty"`
	// Floor is the smallest difference that matters, in the unit: a smaller one is
	// noise, however many samples agree on it.
	Floor float64 `json:"floor,omitempty"`
	// Text says what it is, where the name does not.
	Text string `json:"text,omitempty"`
}

// MetricSeconds is the time of a sample as a whole. Every experiment has it.
const MetricSeconds = "seconds"

var secondsMetric = Metric{Name: MetricSeconds, Unit: Seconds, Better: Lower, Text: "wall time"}

// Steps of a transaction, in their order. Experiments may have others.
const (
	StepPolicy   = "policy"
	StepSnapshot = "snapshot"
	StepExecute  = "execute"
	StepValidate = "validate"
	StepCommit   = "commit"
	StepRollback = "rollback"
)

var stepOrder = []string{StepPolicy, StepSnapshot, StepExecute, StepValidate, StepCommit, StepRollback}

// Arms of the overhead experiment, which targets read. Others may be added.
const (
	ArmBare      = "bare"      // bare SSH, without savepoint
	ArmCopy      = "copy"      // the paper's way: the workspace is copied in the guest before
	ArmNone      = "none"      // under savepoint, proved read-only: no boundary
	ArmWorkspace = "workspace" // the boundaries
	ArmDisk      = "disk"
	ArmMachine   = "machine"
	ArmSavepoint = "savepoint" // under savepoint, where the boundary is not the question
)

// PlotKind is how a plot is drawn.
type PlotKind string

// Kinds of plots.
const (
	Bars  PlotKind = "bars"  // one value with its interval per group
	Steps PlotKind = "steps" // the steps of each group stacked: medians
	Lines PlotKind = "lines" // a curve per series over a numeric X
)

// ByArm as X or Series of a plot takes the arm; any other word is a label, and
// for X of Lines also a metric.
const ByArm = "arm"

// Plot says how samples are drawn.
type Plot struct {
	Kind   PlotKind `json:"kind"`
	Title  string   `json:"title"`
	Metric string   `json:"metric,omitempty"` // "seconds" when empty; Steps has none
	X      string   `json:"x,omitempty"`      // what is along the axis: ByArm when empty
	Series string   `json:"series,omitempty"` // what has a colour of its own, if anything
	// Where keeps the samples with these labels ("arm" is the arm).
	Where map[string]string `json:"where,omitempty"`
	// Over draws how much a metric, no share, is above that of this arm at the
	// same X and Series: by the difference of the medians. It is for Bars and Lines,
	// where what is added is small beside what was there.
	Over string `json:"over,omitempty"`
	// Relative draws it as a part of the arm's median.
	Relative bool `json:"relative,omitempty"`
	// Log makes the axis of values logarithmic.
	Log  bool   `json:"log,omitempty"`
	Note string `json:"note,omitempty"`
}

// SkipError is an experiment that cannot be made here.
type SkipError struct{ Reason string }

func (e *SkipError) Error() string { return "skipped: " + e.Reason }

// Skip is returned by an experiment that cannot be made here, with what it lacks.
func Skip(format string, args ...any) error {
	return &SkipError{fmt.Sprintf(format, args...)}
}

// Plan is how much is measured.
type Plan struct {
	// Quick is a short look; else everything is measured in full.
	Quick bool `json:"quick"`
	// Repeat, when not 0, replaces each experiment's own number of repetitions.
	Repeat int `json:"repeat,omitempty"`
	// Warmup rounds come first and are not kept.
	Warmup int `json:"warmup"`
	// Seed fixes every order and choice that is drawn.
	Seed uint64 `json:"seed"`
	// Boundaries, when there are any, are the only ones that are measured, by
	// experiments that measure several: see Wants. In their order and once each.
	Boundaries []string `json:"boundaries,omitempty"`
	// Profile keeps profiles of this process beside each result, which takes time that
	// the figures then have in them.
	Profile bool `json:"profile,omitempty"`
}

// AllBoundaries are those that a plan can name, the cheapest first.
func AllBoundaries() []string { return []string{ArmWorkspace, ArmDisk, ArmMachine} }

// Wants reports whether a boundary (workspace, disk, machine) is to be measured.
func (p Plan) Wants(boundary string) bool {
	return len(p.Boundaries) == 0 || slices.Contains(p.Boundaries, boundary)
}

// Same reports whether both plans measure the same work.
func (p Plan) Same(q Plan) bool {
	return p.Quick == q.Quick && p.Repeat == q.Repeat && p.Warmup == q.Warmup && p.Seed == q.Seed && p.Profile == q.Profile &&
		slices.Equal(p.Boundaries, q.Boundaries)
}

// QuickPlan is a short look: the estimates of its experiments say how short.
func QuickPlan() Plan { return Plan{Quick: true, Warmup: 1, Seed: 1} }

// FullPlan measures everything.
func FullPlan() Plan { return Plan{Warmup: 2, Seed: 1} }

// Reps is how often something is repeated.
func (p Plan) Reps(quick, full int) int {
	switch {
	case p.Repeat > 0:
		return p.Repeat
	case p.Quick:
		return quick
	}
	return full
}
