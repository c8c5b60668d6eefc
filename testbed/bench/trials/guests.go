package trials

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"savepoint/orchestrator"
	"savepoint/policy"
	"savepoint/testbed/bench"
)

// ExpGuests is the name of the experiment that Guests returns.
const ExpGuests = "scale-guests"

const armGuests = "guests"

// Guests measures transactions in several real guests at once: 1, 2, 4 … until room
// says that there are enough, or the cluster takes no more. another makes the n-th
// sandbox, from 2 on; room is how many the machine carries, and why no more, 0 where
// it cannot be filled up.
func Guests(g *Rig, another func(ctx context.Context, n int, tenant string) (orchestrator.Sandbox, error), room func() (int, string)) bench.Experiment {
	return bench.Experiment{
		Name: ExpGuests, Title: "Several guests at once",
		Method: `In 1, 2, 4 … sandboxes of the lab at once, as many as this machine carries, a caller each runs transactions that append to a file and commit, one after the other, in the workspace boundary and in the machine boundary. A measurement is ` + strconv.Itoa(perGuest) + ` transactions in each sandbox; what was spent is deleted after it. Guests, lab and savepoint share the machine's processors, so this is what one machine carries and no property of savepoint alone.`,
		Metrics: []bench.Metric{
			{Name: bench.MetricTxRate, Unit: bench.PerSec, Better: bench.Higher, Text: "transactions a second, of all sandboxes"},
			{Name: metricMedian, Unit: bench.Seconds, Better: bench.Lower, Text: "of one transaction, median"},
			{Name: metricLatency, Unit: bench.Seconds, Better: bench.Lower, Text: "of one transaction, 99th percentile"},
			{Name: metricExponent, Unit: bench.Ratio, Text: "of the growth of what the labels name"},
		},
		Plots: []bench.Plot{
			{Kind: bench.Lines, Title: "Transactions a second, by guests", Metric: bench.MetricTxRate, X: bench.LabelSandboxes, Series: labelBoundary},
			{Kind: bench.Lines, Title: "Median of one transaction, by guests", Metric: metricMedian, X: bench.LabelSandboxes, Series: labelBoundary},
		},
		Quick: time.Second, Full: 15 * time.Minute,
		Run: func(ctx context.Context, r *bench.Run) error {
			if r.Plan.Quick {
				return bench.Skip("a quick run makes one guest")
			}
			most, why := room()
			if most < 1 {
				return bench.Skip("%s", why)
			}
			return g.guests(ctx, r, another, most, why)
		},
	}
}

// perGuest is how many transactions a measurement has in each sandbox.
const perGuest = 3

func (g *Rig) guests(ctx context.Context, r *bench.Run, another func(context.Context, int, string) (orchestrator.Sandbox, error), most int, why string) error {
	first, err := g.ready(ctx, r)
	if err != nil {
		return err
	}
	boxes, measured := []orchestrator.Sandbox{first}, 0
	for n := 1; n <= most && err == nil; n *= 2 {
		for len(boxes) < n && err == nil {
			var sb orchestrator.Sandbox
			if sb, err = another(ctx, len(boxes)+1, ""); err == nil {
				boxes = append(boxes, sb)
			}
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err != nil {
			why = fmt.Sprintf("the cluster takes no more: %v", err)
			break
		}
		if err := bench.Interleave(ctx, r, g.guestArms(r, boxes), r.Reps(5, 5), min(1, r.Plan.Warmup)); err != nil {
			return err
		}
		measured = n
	}
	r.Note("%d guests at once were the most that were measured: %s", measured, why)
	grows(r, []growth{
		{armGuests, bench.LabelSandboxes, bench.MetricTxRate, map[string]string{labelBoundary: string(orchestrator.BoundaryWorkspace)}},
		{armGuests, bench.LabelSandboxes, bench.MetricTxRate, map[string]string{labelBoundary: string(orchestrator.BoundaryMachine)}},
	})
	return nil
}

func (g *Rig) guestArms(r *bench.Run, boxes []orchestrator.Sandbox) (arms []bench.Arm) {
	for _, b := range covering(boxes[0]) {
		if !r.Wants(string(b)) || b == orchestrator.BoundaryDisk && len(r.Plan.Boundaries) == 0 {
			continue
		}
		spec := orchestrator.Spec{As: policy.Root, Boundary: b, By: "bench"}
		if b == orchestrator.BoundaryWorkspace {
			spec.As = policy.Agent
		}
		spec.Command = "echo turn >> /workspace/guests-" + string(spec.As) + ".txt"
		arms = append(arms, bench.Arm{
			Name: armGuests, Labels: map[string]string{bench.LabelSandboxes: strconv.Itoa(len(boxes)), labelBoundary: string(b)},
			Do: func(ctx context.Context) (bench.Sample, error) { return g.together(ctx, boxes, spec) },
			Undo: func(ctx context.Context) error {
				_, err := g.Engine.Collect(ctx)
				return err
			},
		})
	}
	return arms
}

// together runs transactions in all sandboxes at once, with one caller each: one
// that is done early does not go on in another's, where it would ask again and again
// whether that is free, on a processor that the guests need.
func (g *Rig) together(ctx context.Context, boxes []orchestrator.Sandbox, spec orchestrator.Spec) (bench.Sample, error) {
	took := make([]float64, perGuest*len(boxes))
	fails := make([]error, len(boxes))
	var wg sync.WaitGroup
	began := time.Now()
	for k, sb := range boxes {
		s := spec
		s.Sandbox = sb
		wg.Go(func() {
			fails[k] = hammer(ctx, g.Engine, 1, perGuest, func(int) orchestrator.Spec { return s }, took[k*perGuest:(k+1)*perGuest])
		})
	}
	wg.Wait()
	if err := errors.Join(fails...); err != nil {
		return bench.Sample{}, err
	}
	return bench.Sample{Metrics: map[string]float64{
		bench.MetricTxRate: float64(len(took)) / time.Since(began).Seconds(), metricMedian: bench.Median(took), metricLatency: bench.Quantile(took, 0.99),
	}}, nil
}
