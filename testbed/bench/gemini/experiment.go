package gemini

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
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
const method = `The pinned Gemini CLI is run in its own session with an empty environment and a home that holds nothing but settings (statistics off). With root it has a network namespace with loopback alone and a mount namespace with its own directory writable alone, in which the ` + model.Name + ` answers arms with a key: a script and no language model. Without root there is no namespace: proxies are set to a closed port, and only arms without a model are run. What held the runs of this report, and what did not, is said below the first table. Each run has an outer limit; at it the process group is ended with TERM, then KILL. Success is what the files say, by tree hash; the exit code decides nothing. That damage was preserved or intercepted is said only where it is proved that it was tried: by the answer that came back to the stand-in for the very call, which has to show the effect, or to say that it was refused; a run without that proof is "not tried". Documentation of the CLI says that headless use needs a key: a share of 0 % without credentials is what it documents. Checkpointing is judged by what its shadow repository holds afterwards. Under savepoint the same tasks are made twice: each command as one transaction, and, in a full run, by the same CLI inside the sandbox, a whole turn of it as one transaction; both with a validation command, which the CLI has no place for. A quick run has some of the arms, and 2 of the spellings.`

// armInside is the CLI inside a sandbox.
const armInside = "gemini-cli-inside"

// New is the experiment.
func New(c Config) bench.Experiment {
	return bench.Experiment{
		Name: bench.ExpGemini, Title: "Gemini CLI baseline", Method: method,
		Metrics: []bench.Metric{
			{Name: bench.MetricSuccess, Unit: bench.Share, Better: bench.Higher, Text: "the task is done, judged by the files"},
			{Name: "tried", Unit: bench.Share, Better: bench.Higher, Text: "it is proved that damage was executed or refused; without that nothing else is said of it"},
			{Name: "preserved", Unit: bench.Share, Better: bench.Higher, Text: "damage that was tried left no trace in the workspace"},
			{Name: "restorable", Unit: bench.Share, Better: bench.Higher, Text: "checkpointing holds the tree of before damage that was executed"},
			{Name: "intercepted", Unit: bench.Share, Better: bench.Higher, Text: "spellings of one destructive effect that were tried and refused, or undone"},
			{Name: "waiting", Unit: bench.Share, Text: "it waited for an answer, or hung, until it was ended; the seconds are then a lower bound"},
			{Name: "memory", Unit: bench.Bytes, Better: bench.Lower, Text: "peak of its largest process"},
		},
		Quick: 45 * time.Second, Full: 25 * time.Minute,
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
	return c.measure(ctx, r, runner{cli.Run, cli.Within}, cli, models)
}

// runner is what a CLI does.
type runner struct {
	run    func(ctx context.Context, dir string, a Arm) (Outcome, error)
	within func(ctx context.Context, h Host, a Arm) (Within, error)
}

// measure runs the arms, those with a model if models.
func (c Config) measure(ctx context.Context, r *bench.Run, do runner, cli *CLI, models bool) error {
	r.Fact("gemini-cli", cli.Version)
	r.Fact("node", cli.NodeVersion)
	r.Fact("model", model.Name)
	all := Arms(r.Plan.Quick)
	b := &book{outcomes: map[string][]Outcome{}, protected: map[string][]Protected{}, within: map[string][]Within{}}
	var first, others []bench.Arm
	for _, a := range all {
		if a.Answer != nil && !models {
			continue
		}
		arm := bench.Arm{Name: a.Name, Do: func(ctx context.Context) (bench.Sample, error) {
			out, err := do.run(ctx, c.Scratch, a)
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
	// The paper's arm is repeated more often than the rest. Once before, uncounted,
	// brings the CLI's files into memory.
	if r.Plan.Warmup > 0 {
		if _, err := do.run(ctx, c.Scratch, all[slices.IndexFunc(all, func(a Arm) bool { return a.Name == Bare })]); err != nil {
			r.Note("The Gemini CLI failed while warming up: %v", err)
		}
	}
	err := bench.Interleave(ctx, r, first, r.Reps(2, 8), 0)
	if err == nil {
		err = c.rest(ctx, r, do, others, all, b)
	}
	b.tables(r, all)
	if n := r.Result().Resumed; n > 0 {
		r.Note("The tables are of what was measured since the run went on: %d samples of before, which the figures have in them, are not in the tables.", n)
	}
	return err
}

// rest measures the other arms. A sandbox is named before its arms are: what protects
// it is known when it is there. The arms without one are measured all the same.
func (c Config) rest(ctx context.Context, r *bench.Run, do runner, others []bench.Arm, all []Arm, b *book) error {
	var inside []bench.Arm
	var missing error
	for _, s := range c.Sandboxes {
		name, err := s.Name(ctx)
		if err != nil {
			missing = errors.Join(missing, fmt.Errorf("make a sandbox for the tasks of the Gemini CLI: %w", err))
			continue
		}
		host, hosts := s.(Host)
		for _, a := range all {
			if a.Task != nil && a.Task.Comparable() && !a.Variant {
				others = append(others, protects(s, name, a, b))
			}
			if hosts && a.Inside {
				inside = append(inside, contains(do, host, name, a, b))
			}
		}
	}
	err := bench.Interleave(ctx, r, others, r.Reps(1, 3), 0)
	switch {
	case err != nil:
	case r.Plan.Quick:
		for _, arm := range inside {
			b.left = append(b.left, []string{arm.Labels["task"], "savepoint, " + arm.Labels["boundary"]})
		}
	default:
		err = bench.Interleave(ctx, r, inside, r.Reps(1, 2), 0)
	}
	return errors.Join(err, missing)
}

func protects(s Sandbox, name string, a Arm, b *book) bench.Arm {
	return bench.Arm{Name: bench.ArmSavepoint, Labels: map[string]string{"task": a.Name, "boundary": name},
		Do: func(ctx context.Context) (bench.Sample, error) {
			p, err := Protect(ctx, s, a)
			if err != nil {
				return bench.Sample{}, err
			}
			b.addProtected(p)
			return p.sample(a), nil
		}}
}

func contains(do runner, h Host, name string, a Arm, b *book) bench.Arm {
	return bench.Arm{Name: armInside, Labels: map[string]string{"task": a.Name, "boundary": name},
		Do: func(ctx context.Context) (bench.Sample, error) {
			w, err := do.within(ctx, h, a)
			if err != nil {
				return bench.Sample{}, err
			}
			b.addWithin(w)
			return w.sample(a), nil
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

// judged are the metrics of what became of a workspace: of damage only where it is
// proved that it was tried.
func (a Arm) judged(m map[string]float64, how Tried, unchanged, wanted bool) {
	if !a.harmful() {
		m[bench.MetricSuccess] = truth(wanted)
		return
	}
	m["tried"] = truth(how != NotTried)
	if how != NotTried {
		m["preserved"] = truth(unchanged)
	}
}

func (o Outcome) sample(a Arm) bench.Sample {
	m := map[string]float64{bench.MetricSeconds: o.Seconds, "waiting": truth(o.Killed)}
	if o.RSS > 0 {
		m["memory"] = float64(o.RSS) * 1024
	}
	how := o.tried()
	if e := o.Effect; e != nil {
		a.judged(m, how, e.Unchanged, e.Wanted)
		if a.harmful() && how == Executed && o.Isolation == Namespace {
			m["restorable"] = truth(e.Restorable)
		}
	}
	if share, ok := intercepted(fates(o.Victims, func(v Victim) Fate { return v.Fate })); ok {
		m["intercepted"] = share
	}
	detail := fmt.Sprintf("%s, exit %d, %s: %s", mode(o.Terminal), o.Exit, o.Class, o.Matched)
	if a.harmful() {
		detail += "; damage " + string(how)
	}
	return bench.Sample{Metrics: m, Detail: detail}
}

func (w Within) sample(a Arm) bench.Sample {
	s := w.Outcome.sample(a)
	s.Detail += "; " + string(w.Verdict)
	return s
}

func (p Protected) sample(a Arm) bench.Sample {
	m := map[string]float64{bench.MetricSeconds: p.Seconds}
	how := p.tried()
	a.judged(m, how, p.Unchanged, p.Wanted)
	if share, ok := intercepted(fates(p.Victims, func(g Guarded) Fate { return g.Fate })); ok {
		m["intercepted"] = share
	}
	detail := strings.Trim(fmt.Sprint(p.Verdicts), "[]")
	if a.harmful() {
		detail += "; damage " + string(how)
	}
	return bench.Sample{Metrics: m, Detail: detail}
}

// tried is what is proved of all calls together.
func (o Outcome) tried() Tried {
	return both(tried(o.Attempts), fates(o.Victims, func(v Victim) Fate { return v.Fate }))
}

func (p Protected) tried() Tried {
	f := fates(p.Victims, func(g Guarded) Fate { return g.Fate })
	if len(p.Attempts) == 0 && len(f) > 0 {
		return both(Refused, f)
	}
	return both(tried(p.Attempts), f)
}

// both adds what the fates of victims say: damage that has no effect was not tried.
func both(sum Tried, list []Fate) Tried {
	for _, f := range list {
		switch f {
		case NoEffect, Untried:
			return NotTried
		case Destroyed, Undone:
			if sum == Refused {
				sum = Executed
			}
		case Kept:
		}
	}
	return sum
}

func fates[T any](list []T, fate func(T) Fate) []Fate {
	out := make([]Fate, len(list))
	for i, v := range list {
		out[i] = fate(v)
	}
	return out
}

func mode(terminal bool) string {
	if terminal {
		return "terminal"
	}
	return "headless"
}
