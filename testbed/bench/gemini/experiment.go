package gemini

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"savepoint/testbed/bench"
	"savepoint/testbed/model"
)

// Config is what the experiment is made of.
type Config struct {
	// Cache is where the CLI is installed, Scratch where its runs have their
	// directories. Both are on the caller's disk.
	Cache, Scratch string
	// Sandboxes run the same tasks under savepoint; without any those arms are
	// left out.
	Sandboxes []Sandbox
}

// method is how it is measured, for readers of the report.
const method = `The pinned Gemini CLI is run in its own session with an empty environment and a home that holds nothing but settings (statistics off), in a network namespace that holds nothing but loopback and, for arms with a key, the ` + model.Name + `, which is a script and no language model. Without root there is no namespace: proxies are set to a closed port, and only arms without a model are run. Each run has an outer limit; at it the process group is ended with TERM, then KILL. Success is what the files say, by tree hash; the exit code decides nothing. Documentation of the CLI says that headless use needs a key: a share of 0 % without credentials is what it documents. Checkpointing is judged by what its shadow repository holds afterwards. Under savepoint each command of the same tasks is one transaction with a validation command, which the CLI has no place for.`

// New is the experiment.
func New(c Config) bench.Experiment {
	return bench.Experiment{
		Name: bench.ExpGemini, Title: "Gemini CLI baseline", Method: method,
		Metrics: []bench.Metric{
			{Name: bench.MetricSuccess, Unit: bench.Share, Better: bench.Higher, Text: "the task is done, judged by the files"},
			{Name: "preserved", Unit: bench.Share, Better: bench.Higher, Text: "damage left no trace in the workspace"},
			{Name: "restorable", Unit: bench.Share, Better: bench.Higher, Text: "checkpointing holds the tree of before"},
			{Name: "intercepted", Unit: bench.Ratio, Better: bench.Higher, Text: "spellings of one destructive effect without effect"},
			{Name: "waiting", Unit: bench.Share, Text: "it waited for an answer, or hung, until it was ended; the seconds are then a lower bound"},
			{Name: "memory", Unit: bench.Bytes, Better: bench.Lower, Text: "peak of its largest process"},
		},
		Quick: 80 * time.Second, Full: 12 * time.Minute,
		Run: c.run,
	}
}

func (c Config) run(ctx context.Context, r *bench.Run) error {
	cli, err := Install(ctx, c.Cache)
	if missing := (*MissingError)(nil); errors.As(err, &missing) {
		return bench.Skip("%v", err)
	}
	if err != nil {
		return err
	}
	models := os.Geteuid() == 0
	if !models {
		r.Note("Arms with a model are not measured: without root there is no namespace in which its commands can do no harm.")
	}
	return c.measure(ctx, r, cli.Run, cli, models)
}

// runner is CLI.Run.
type runner func(ctx context.Context, dir string, a Arm) (Outcome, error)

// measure runs the arms, those with a model if models.
func (c Config) measure(ctx context.Context, r *bench.Run, run runner, cli *CLI, models bool) error {
	r.Fact("gemini-cli", cli.Version)
	r.Fact("node", cli.NodeVersion)
	r.Fact("model", model.Name)
	all := Arms(r.Plan.Quick)
	b := &book{outcomes: map[string][]Outcome{}, protected: map[string][]Protected{}}
	var first, others []bench.Arm
	for _, a := range all {
		if a.Answer != nil && !models {
			continue
		}
		arm := bench.Arm{Name: a.Name, Do: func(ctx context.Context) (bench.Sample, error) {
			out, err := run(ctx, c.Scratch, a)
			if err != nil {
				return bench.Sample{}, err
			}
			b.add(out)
			return out.sample(a), nil
		}}
		if a.Name == Bare {
			first = append(first, arm)
		} else {
			others = append(others, arm)
		}
	}
	for _, s := range c.Sandboxes {
		for _, a := range all {
			if a.Task != nil && a.Task.Comparable() && !a.Variant {
				others = append(others, c.protects(s, a, b))
			}
		}
	}
	// The paper's arm is repeated more often than the rest. Once before, uncounted,
	// brings the CLI's files into memory.
	if r.Plan.Warmup > 0 {
		if _, err := run(ctx, c.Scratch, all[slices.IndexFunc(all, func(a Arm) bool { return a.Name == Bare })]); err != nil {
			r.Note("The Gemini CLI failed while warming up: %v", err)
		}
	}
	err := bench.Interleave(ctx, r, first, r.Reps(3, 8), 0)
	if err == nil {
		err = bench.Interleave(ctx, r, others, r.Reps(1, 3), 0)
	}
	b.tables(r, all)
	return err
}

func (c Config) protects(s Sandbox, a Arm, b *book) bench.Arm {
	return bench.Arm{Name: bench.ArmSavepoint, Labels: map[string]string{"task": a.Name, "boundary": s.Name()},
		Do: func(ctx context.Context) (bench.Sample, error) {
			p, err := Protect(ctx, s, a)
			if err != nil {
				return bench.Sample{}, err
			}
			b.addProtected(p)
			return p.sample(a), nil
		}}
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// harmful reports whether the task should leave no trace.
func (a Arm) harmful() bool { return a.Task != nil && a.Answer != nil && a.Task.Want == nil }

func (o Outcome) sample(a Arm) bench.Sample {
	m := map[string]float64{bench.MetricSeconds: o.Seconds, "waiting": truth(o.Killed), "memory": float64(o.RSS) * 1024}
	if e := o.Effect; e != nil {
		if a.harmful() {
			m["preserved"] = truth(e.Unchanged)
			m["restorable"] = truth(e.Restorable)
		} else {
			m[bench.MetricSuccess] = truth(e.Wanted)
		}
	}
	if n := len(o.Intercept); n > 0 {
		m["intercepted"] = float64(kept(o.Intercept)) / float64(n)
	}
	return bench.Sample{Metrics: m, Detail: fmt.Sprintf("%s, exit %d, %s: %s", mode(o.Terminal), o.Exit, o.Class, o.Matched)}
}

func (p Protected) sample(a Arm) bench.Sample {
	m := map[string]float64{bench.MetricSeconds: p.Seconds}
	if a.harmful() {
		m["preserved"] = truth(p.Unchanged)
	} else {
		m[bench.MetricSuccess] = truth(p.Wanted)
	}
	if n := len(p.Intercept); n > 0 {
		held := 0
		for _, g := range p.Intercept {
			held += int(truth(g.Kept))
		}
		m["intercepted"] = float64(held) / float64(n)
	}
	return bench.Sample{Metrics: m, Detail: strings.Trim(fmt.Sprint(p.Verdicts), "[]")}
}

func kept(victims []Victim) int {
	n := 0
	for _, v := range victims {
		n += int(truth(v.Intercepted))
	}
	return n
}

func mode(terminal bool) string {
	if terminal {
		return "terminal"
	}
	return "headless"
}

// book keeps what the tables are made of.
type book struct {
	mu        sync.Mutex
	outcomes  map[string][]Outcome
	protected map[string][]Protected
}

func (b *book) add(o Outcome) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.outcomes[o.Arm] = append(b.outcomes[o.Arm], o)
}

func (b *book) addProtected(p Protected) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.protected[p.Arm] = append(b.protected[p.Arm], p)
}

// every lists the different values of something, in the order they came.
func every[T any](list []T, text func(T) string) string {
	var out []string
	for _, v := range list {
		if s := text(v); !slices.Contains(out, s) {
			out = append(out, s)
		}
	}
	return strings.Join(out, "; ")
}
