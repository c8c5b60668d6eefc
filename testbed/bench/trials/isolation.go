package trials

import (
	"context"
	"time"

	"savepoint/testbed/bench"
)

// Pair is one check of a network proof.
type Pair struct {
	From, To, Protocol, Expected, Observed string
	OK                                     bool
}

// Metrics of the isolation experiment.
const (
	metricLeak    = "leak"
	metricReached = "reached"
)

// Isolation measures the networks of the sandboxes that there are. verify is nil
// where no networks of tenants are configured.
func Isolation(verify func(context.Context) ([]Pair, error)) bench.Experiment {
	return bench.Experiment{
		Name: bench.ExpIsolation, Title: "Is the network sealed?",
		Method: `The proof of "savepoint network verify": guests and nodes try to reach each other, other tenants, the API, the orchestrator, the metadata address and the outside over TCP, UDP, ICMP and IPv6, with spoofed addresses too. "leak" is the share of pairs that must not reach each other and do; "reached" of those that must and do.`,
		Metrics: []bench.Metric{
			{Name: metricLeak, Unit: bench.Share, Better: bench.Lower, Exact: true, Text: "reached, of what must not be"},
			{Name: metricReached, Unit: bench.Share, Better: bench.Higher, Exact: true, Text: "reached, of what must be"},
		},
		Quick: 10 * time.Second, Full: time.Minute,
		Run: func(ctx context.Context, r *bench.Run) error {
			if verify == nil {
				return bench.Skip("no tenants are configured (network.tenants): on the lab, start it with --network evpn, as root")
			}
			for rep := range r.Reps(1, 5) {
				pairs, err := verify(ctx)
				if err != nil {
					return err
				}
				if len(pairs) == 0 {
					return bench.Skip("there is no sandbox on a tenant's network to measure from")
				}
				var bad [][]string
				for _, p := range pairs {
					s := bench.Sample{Arm: p.Protocol, Rep: rep, Metrics: map[string]float64{}, Detail: p.From + " to " + p.To}
					if p.Expected == "reachable" {
						s.Metrics[metricReached] = share(p.OK)
					} else {
						s.Metrics[metricLeak] = share(!p.OK)
					}
					r.Add(s)
					if !p.OK {
						bad = append(bad, []string{p.From, p.To, p.Protocol, p.Expected, p.Observed})
					}
				}
				if len(bad) > 0 {
					r.Table(bench.Table{Title: "Not as expected", Columns: []string{"from", "to", "protocol", "expected", "observed"}, Rows: bad})
				}
			}
			return nil
		},
	}
}
