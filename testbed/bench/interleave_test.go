package bench

import (
	"context"
	"errors"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

// clock goes on when it is told to.
type clock struct{ at time.Time }

func (c *clock) now() time.Time { return c.at }

func TestInterleave(t *testing.T) {
	c := &clock{time.Unix(1000, 0)}
	var order []string
	arm := func(name string, took time.Duration) Arm {
		return Arm{
			Name: name, Labels: map[string]string{"workload": "w"},
			Setup: func(context.Context) error {
				order = append(order, "setup "+name)
				c.at = c.at.Add(time.Hour)
				return nil
			},
			Do: func(context.Context) (Sample, error) {
				order = append(order, name)
				c.at = c.at.Add(took)
				return Sample{Steps: map[string]float64{StepExecute: 1}, Labels: map[string]string{"more": "m"}}, nil
			},
			Undo: func(context.Context) error { c.at = c.at.Add(time.Hour); return nil },
		}
	}
	play := func(seed uint64) *Result {
		order = nil
		r := NewRun(Experiment{Name: "x"}, Plan{Seed: seed})
		if err := interleave(t.Context(), r, []Arm{arm("a", time.Second), arm("b", 2*time.Second), arm("c", 3*time.Second)}, 4, 2, c.now); err != nil {
			t.Fatal(err)
		}
		return r.Result()
	}
	res := play(1)
	first := slices.Clone(order)
	if len(res.Samples) != 12 || len(order) != 36 {
		t.Fatalf("%d samples, %d calls", len(res.Samples), len(order))
	}
	// Every round has every arm once, and is timed without Setup and Undo.
	for round := range 4 {
		var arms []string
		for _, s := range res.Samples[3*round : 3*round+3] {
			arms = append(arms, s.Arm)
			want := map[string]float64{"a": 1, "b": 2, "c": 3}[s.Arm]
			if s.Rep != round || s.Metrics[MetricSeconds] != want || s.Group() != s.Arm+", more=m, workload=w" {
				t.Errorf("round %d: %+v", round, s)
			}
		}
		if slices.Sort(arms); !slices.Equal(arms, []string{"a", "b", "c"}) {
			t.Errorf("round %d has %v", round, arms)
		}
	}
	if play(1); !slices.Equal(order, first) {
		t.Error("the same seed gives another order")
	}
	if play(2); slices.Equal(order, first) {
		t.Error("another seed gives the same order")
	}
}

func TestInterleaveFailures(t *testing.T) {
	broken := errors.New("no")
	do := func(err error) func(context.Context) (Sample, error) {
		return func(context.Context) (Sample, error) { return Sample{}, err }
	}
	r := NewRun(Experiment{Name: "x"}, Plan{})
	err := Interleave(t.Context(), r, []Arm{
		{Name: "fails", Do: do(broken)},
		{Name: "no setup", Setup: func(context.Context) error { return broken }, Do: func(context.Context) (Sample, error) { panic("was done") }},
		{Name: "no undo", Do: do(nil), Undo: func(context.Context) error { return broken }},
		{Name: "good", Do: do(nil)},
	}, 3, 1)
	if err != nil {
		t.Fatal(err)
	}
	count := map[string][2]int{}
	for _, s := range r.Result().Samples {
		n := count[s.Arm]
		n[0]++
		if s.Err != "" {
			n[1]++
		}
		count[s.Arm] = n
	}
	// The arm without an undo ended while warming up: it has no samples.
	want := map[string][2]int{"fails": {3, 3}, "no setup": {3, 3}, "good": {3, 0}}
	if !reflect.DeepEqual(count, want) {
		t.Errorf("samples and failures %v, want %v", count, want)
	}
	notes := strings.Join(r.Result().Notes, "\n")
	for _, text := range []string{"no undo ended in round 1 of 4: undo: no", "fails failed while warming up: no", "set up: no"} {
		if !strings.Contains(notes, text) {
			t.Errorf("notes do not say %q:\n%s", text, notes)
		}
	}
	if v := r.Result().Values(r.Result().Is("fails"), MetricSeconds); v != nil {
		t.Errorf("failed samples have times: %v", v)
	}
}

func TestInterleaveIsStopped(t *testing.T) {
	ctx, stop := context.WithCancelCause(t.Context())
	why := errors.New("enough")
	n := 0
	r := NewRun(Experiment{Name: "x"}, Plan{})
	err := Interleave(ctx, r, []Arm{{Name: "a", Do: func(context.Context) (Sample, error) {
		if n++; n == 3 {
			stop(why)
		}
		return Sample{}, ctx.Err()
	}}}, 10, 0)
	if !errors.Is(err, why) || len(r.Result().Samples) != 2 {
		t.Errorf("%v, %d samples", err, len(r.Result().Samples))
	}
}

func TestAdd(t *testing.T) {
	r := NewRun(Experiment{Name: "x", Metrics: []Metric{{Name: "caught", Unit: Share}}}, Plan{})
	metrics := map[string]float64{"seconds": math.NaN(), "caught": 1}
	r.Add(Sample{Arm: "a", Metrics: metrics}, Sample{Arm: "a", Steps: map[string]float64{"x": math.Inf(1)}, Err: "why"})
	s := r.Result().Samples
	if s[0].Err != "seconds is NaN" || s[1].Err != "why; x is +Inf" || len(s[1].Steps) != 0 {
		t.Errorf("%+v", s)
	}
	if r.Add(Sample{Metrics: map[string]float64{"caught": 20}}); r.Result().Samples[2].Err != "caught is 20, and a share is 0 to 1" {
		t.Errorf("a share of 20: %+v", r.Result().Samples[2])
	}
	if len(metrics) != 2 {
		t.Error("the caller's map was changed")
	}
	if v := r.Result().Values(s, "caught"); !slices.Equal(v, []float64{1}) {
		t.Errorf("a share of a failed sample: %v", v)
	}
	r.Table(Table{Columns: []string{"a", "b"}, Rows: [][]string{{"1"}, {"1", "2", "3"}}})
	if got := r.Result().Tables[0].Rows; !reflect.DeepEqual(got, [][]string{{"1", ""}, {"1", "2"}}) {
		t.Errorf("rows %q", got)
	}
	r.Note("same %d", 1)
	r.Note("same %d", 1)
	if len(r.Result().Notes) != 1 {
		t.Errorf("notes %q", r.Result().Notes)
	}
	if a, b := r.Rand("a").Uint64(), r.Rand("b").Uint64(); a == b || a != r.Rand("a").Uint64() {
		t.Error("what is drawn is not fixed by its purpose")
	}
}
