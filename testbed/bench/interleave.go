package bench

import (
	"context"
	"fmt"
	"maps"
	"time"
)

// Arm is one thing that is measured beside others.
type Arm struct {
	Name   string
	Labels map[string]string
	// Setup prepares each measurement; it is not timed.
	Setup func(ctx context.Context) error
	// Do is measured. Its sample may hold metrics and steps; "seconds" is added
	// when it has none. An error makes a failed sample, not an end.
	Do func(ctx context.Context) (Sample, error)
	// Undo brings things back after each measurement, failed ones included; it
	// is not timed. When it fails, the arm ends: what followed would be measured
	// on something else. The next start of the run tries it again.
	Undo func(ctx context.Context) error
}

func (a Arm) group() string { return Sample{Arm: a.Name, Labels: a.Labels}.Group() }

// Interleave measures arms in turn: warmup rounds that are not kept, then reps
// rounds, each with every arm once in an order of its own. It ends early with
// ctx only. What an earlier start of the run has measured of an arm, by the arm's
// name and labels and the round, is not measured again.
func Interleave(ctx context.Context, r *Run, arms []Arm, reps, warmup int) error {
	return interleave(ctx, r, arms, reps, warmup, time.Now)
}

func interleave(ctx context.Context, r *Run, arms []Arm, reps, warmup int, now func() time.Time) error {
	order := r.Rand("order of arms")
	ended, lacks := make([]bool, len(arms)), make([]int, len(arms))
	total, done := 0, 0 // of what is to be measured: what there is already takes no time
	for i := range arms {
		if lacks[i] = r.lacks(arms, i, reps); lacks[i] > 0 {
			total += lacks[i] + warmup
		}
	}
	for round := range reps + warmup {
		for _, i := range order.Perm(len(arms)) {
			if lacks[i] == 0 && round < warmup || round >= warmup && r.had(arms, i, round-warmup) {
				continue
			}
			if done++; ended[i] {
				r.gaveUp(arms[i])
				continue
			}
			a := arms[i]
			r.Progress(done-1, total, a.group())
			s, undo := measure(ctx, a, now)
			// What was cut short by ctx says nothing of the arm.
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			s.Rep = round - warmup
			switch {
			case round >= warmup:
				r.Add(s)
			case s.Err != "":
				r.Note("%s failed while warming up: %s", a.group(), s.Err)
			}
			if undo != nil {
				ended[i] = true
				r.Note("%s ended in round %d of %d: %v", a.group(), round+1, reps+warmup, undo)
			}
		}
	}
	r.Progress(total, total, "")
	return nil
}

// measure is one measurement of an arm, and the error of its Undo.
func measure(ctx context.Context, a Arm, now func() time.Time) (s Sample, undo error) {
	s, err := do(ctx, a, now)
	if a.Undo != nil {
		if undo = a.Undo(ctx); undo != nil {
			undo = fmt.Errorf("undo: %w", undo)
		}
	}
	labels := map[string]string{}
	maps.Copy(labels, a.Labels)
	maps.Copy(labels, s.Labels)
	s.Arm, s.Labels = a.Name, labels
	if err != nil {
		s.Err = joinText(s.Err, err.Error())
	}
	return s, undo
}

func do(ctx context.Context, a Arm, now func() time.Time) (Sample, error) {
	if a.Setup != nil {
		if err := a.Setup(ctx); err != nil {
			return Sample{}, fmt.Errorf("set up: %w", err)
		}
	}
	began := now()
	s, err := a.Do(ctx)
	took := now().Sub(began).Seconds()
	metrics := map[string]float64{MetricSeconds: took}
	maps.Copy(metrics, s.Metrics)
	s.Metrics = metrics
	return s, err
}
