package bench

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

// What is left after a new start is what is still to be measured, at the pace at which
// it is measured: what is kept took no time.
func TestTimeLeftOfAResumedRun(t *testing.T) {
	c := &clock{time.Unix(1_700_000_000, 0)}
	stop := func() {}
	long, _ := counting(10, func(done int) error {
		c.at = c.at.Add(time.Minute)
		if done == 12 {
			stop()
		}
		return nil
	})
	long.Full = 20 * time.Minute
	next := Experiment{Name: "next", Full: 20 * time.Minute, Run: func(context.Context, *Run) error { return nil }}
	ctx, cancel := context.WithCancel(t.Context())
	stop = cancel
	r := &Runner{Dir: filepath.Join(t.TempDir(), "run"), Plan: Plan{Seed: 1}, Experiments: []Experiment{long, next}, Now: c.now}
	if _, err := r.Run(ctx); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	stop = func() {}
	var told []Progress
	r.Progress = func(p Progress) { told = append(told, p) }
	if _, err := r.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	// 8 of 20 are measured in this start. Between them the estimate is a minute off: the
	// measurement that was cut short took one, and so does the look after the last.
	left := func(done int, want time.Duration) {
		i := slices.IndexFunc(told, func(p Progress) bool {
			return p.Experiment == "long" && p.Total > 0 && p.Done == done && !p.Ended
		})
		if i < 0 {
			t.Fatalf("nothing is told of %d: %+v", done, told)
		}
		if p := told[i]; p.Total != 8 || p.Left < want-time.Minute || p.Left > want+2*time.Minute {
			t.Errorf("%d of %d: %v left, want about %v", p.Done, p.Total, p.Left, want)
		}
	}
	left(0, 28*time.Minute)
	left(4, 24*time.Minute)
	left(7, 21*time.Minute)
	i := slices.IndexFunc(told, func(p Progress) bool { return p.Experiment == "long" && p.Ended })
	if p := told[i]; p.Left < 20*time.Minute || p.Left > 23*time.Minute {
		t.Errorf("before an experiment of 20 minutes %v are left", p.Left)
	}
}

// What an experiment measures anew is to be waited for, whatever an earlier start did.
func TestTimeLeftOfWhatIsMeasuredAnew(t *testing.T) {
	c := &clock{time.Unix(1_700_000_000, 0)}
	broken := errors.New("it broke")
	e := Experiment{Name: "anew", Full: 20 * time.Minute, Run: func(_ context.Context, r *Run) error {
		r.Progress(0, 100, "")
		r.Add(Sample{Arm: "a"})
		c.at = c.at.Add(15 * time.Minute)
		return broken
	}}
	r := &Runner{Dir: filepath.Join(t.TempDir(), "run"), Experiments: []Experiment{e}, Now: c.now}
	for range 2 {
		var told []Progress
		r.Progress = func(p Progress) { told = append(told, p) }
		if _, err := r.Run(t.Context()); err != nil {
			t.Fatal(err)
		}
		for _, p := range told[:2] {
			if p.Left != 20*time.Minute {
				t.Errorf("%+v", p)
			}
		}
	}
}

// The pace of one part says nothing of the parts that follow it.
func TestTimeLeftOfParts(t *testing.T) {
	c := &clock{time.Unix(1_700_000_000, 0)}
	e := Experiment{Name: "parts", Full: time.Hour, Run: func(_ context.Context, r *Run) error {
		for range 2 {
			for i := range 10 {
				r.Progress(i, 10, "")
				c.at = c.at.Add(3 * time.Minute)
			}
			r.Progress(10, 10, "")
		}
		return nil
	}}
	r := &Runner{Dir: filepath.Join(t.TempDir(), "run"), Experiments: []Experiment{e}, Now: c.now}
	r.Progress = func(p Progress) {
		if p.Total > 0 && p.Elapsed+p.Left != time.Hour {
			t.Errorf("%v after %v: %d of %d", p.Left, p.Elapsed, p.Done, p.Total)
		}
	}
	if _, err := r.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// Where all is counted at once the pace is believed, also when the plan measures less
// than the estimate is for, or an earlier start did most of it.
func TestTimeLeftOfOneStage(t *testing.T) {
	c := &clock{time.Unix(1_700_000_000, 0)}
	e := Experiment{Name: "all", Full: 8 * time.Hour, OneStage: true, Run: func(_ context.Context, r *Run) error {
		for i := range 101 {
			r.Progress(i, 100, "")
			c.at = c.at.Add(time.Minute)
		}
		return nil
	}}
	r := &Runner{Dir: filepath.Join(t.TempDir(), "run"), Experiments: []Experiment{e}, Now: c.now}
	said := 0
	r.Progress = func(p Progress) {
		switch want := time.Duration(p.Total-p.Done) * time.Minute; {
		case p.Total == 0 || p.Ended:
		case p.Done < 3 && p.Left+p.Elapsed != 8*time.Hour, p.Done >= 3 && p.Left != want:
			t.Errorf("%v after %v: %d of %d", p.Left, p.Elapsed, p.Done, p.Total)
		default:
			said++
		}
	}
	if _, err := r.Run(t.Context()); err != nil || said < 101 {
		t.Fatal(said, err)
	}
}

// What an earlier start took for a sample is known before the first one of this start.
func TestTimeLeftOfOneStageResumed(t *testing.T) {
	c := &clock{time.Unix(1_700_000_000, 0)}
	stop := func() {}
	long, _ := counting(10, func(done int) error {
		c.at = c.at.Add(time.Minute)
		if done == 12 {
			stop()
		}
		return nil
	})
	long.Full, long.OneStage = 8*time.Hour, true
	ctx, cancel := context.WithCancel(t.Context())
	stop = cancel
	r := &Runner{Dir: filepath.Join(t.TempDir(), "run"), Plan: Plan{Seed: 1}, Experiments: []Experiment{long}, Now: c.now}
	if _, err := r.Run(ctx); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	stop = func() {}
	said := 0
	r.Progress = func(p Progress) {
		if p.Total == 0 || p.Ended {
			return
		}
		said++
		if want := time.Duration(p.Total-p.Done) * time.Minute; p.Left < want-time.Minute || p.Left > want+2*time.Minute {
			t.Errorf("%d of %d: %v left, want about %v", p.Done, p.Total, p.Left, want)
		}
	}
	if _, err := r.Run(t.Context()); err != nil || said < 8 {
		t.Fatal(said, err)
	}
}
