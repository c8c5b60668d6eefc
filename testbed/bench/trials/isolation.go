package trials

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"savepoint/orchestrator"
	"savepoint/testbed/bench"
)

// Pair is one check of a network proof.
type Pair struct {
	From, To, Protocol, Expected, Observed string
}

// Words of a network proof.
const (
	reachable   = "reachable"
	unreachable = "unreachable"
	noRoute     = "no route"
	exempt      = "exempt"
)

// measured reports whether the pair was: a target that did not listen, and answers
// that contradict each other, say nothing.
func (p Pair) measured() bool {
	return p.Observed == reachable || p.Observed == unreachable || p.Observed == noRoute
}

// leaks reports whether it was reached, and must not be.
func (p Pair) leaks() bool { return p.Expected == unreachable && p.Observed == reachable }

// tenants reports whether it is between guests of two tenants: those are the only
// guests that must not reach each other.
func (p Pair) tenants() bool {
	return p.Expected == unreachable && strings.HasPrefix(p.From, guestPrefix) && strings.HasPrefix(p.To, guestPrefix)
}

const guestPrefix = "guest "

func (p Pair) row() []string { return []string{p.From, p.To, p.Protocol, p.Expected, p.Observed} }

var pairColumns = []string{"from", "to", "protocol", "expected", "observed"}

// Metrics of the isolation experiment.
const (
	metricLeak       = "leak"
	metricReached    = "reached"
	metricUnmeasured = "unmeasured"
	metricTenants    = "between_tenants"
)

// Isolation measures the networks of the sandboxes that there are. verify makes
// those that it needs, one for each of two tenants where there are two, and returns
// the pairs and what they do not cover; it is nil where no networks of tenants are
// configured.
func Isolation(verify func(context.Context) ([]Pair, []string, error)) bench.Experiment {
	return bench.Experiment{
		Name: bench.ExpIsolation, Title: "Is the network sealed?",
		Method: `The proof of "savepoint network verify", with a sandbox of each of two tenants at once where there are two: guests and nodes try to reach each other, other tenants, the API, the orchestrator, the metadata address and the outside over TCP, UDP, ICMP and IPv6, with forged addresses too. "leak" is the share of pairs that must not reach each other and do; "reached" of those that must and do; "unmeasured" of all that could not be measured, which are in neither of the other two. "between tenants" is how many pairs of guests of two tenants were measured. A leak ends the experiment as failed, and its lines are in the table.`,
		Metrics: []bench.Metric{
			{Name: metricLeak, Unit: bench.Share, Better: bench.Lower, Exact: true, Text: "reached, of what must not be"},
			{Name: metricReached, Unit: bench.Share, Better: bench.Higher, Exact: true, Text: "reached, of what must be"},
			{Name: metricUnmeasured, Unit: bench.Share, Better: bench.Lower, Text: "of all pairs"},
			{Name: metricTenants, Unit: bench.Count, Better: bench.Higher, Exact: true, Text: "pairs of guests of two tenants that were measured"},
		},
		Quick: 20 * time.Second, Full: 2 * time.Minute,
		Run: func(ctx context.Context, r *bench.Run) error {
			if verify == nil {
				return bench.Skip("no tenants are configured (network.tenants): on the lab, start it with --network evpn, as root")
			}
			for rep := range r.Reps(1, 5) {
				pairs, notes, err := verify(ctx)
				for _, n := range notes {
					r.Note("%s", n)
				}
				var open *orchestrator.UnsealedError
				if errors.As(err, &open) {
					r.Table(bench.Table{Title: "Found open when it was made", Columns: []string{"sandbox", "line"}, Rows: linesOf(open)})
				}
				if err != nil {
					return err
				}
				if len(pairs) == 0 {
					return bench.Skip("no tenants are configured, or there is no sandbox on a tenant's network to measure from: on the lab, start it with --network evpn, as root")
				}
				if err := judgePairs(r, rep, pairs); err != nil {
					return err
				}
			}
			return nil
		},
	}
}

func linesOf(e *orchestrator.UnsealedError) [][]string {
	rows := make([][]string, len(e.Failed))
	for i, line := range e.Failed {
		rows[i] = []string{e.Sandbox, line}
	}
	return rows
}

// judgePairs keeps one proof. A leak is an error, after what shows it was kept.
func judgePairs(r *bench.Run, rep int, pairs []Pair) error {
	var leaks, lost, unknown [][]string
	between := 0
	for _, p := range pairs {
		s := bench.Sample{Arm: p.Protocol, Rep: rep, Detail: p.From + " to " + p.To, Metrics: map[string]float64{metricUnmeasured: share(!p.measured())}}
		switch {
		case !p.measured():
			unknown = append(unknown, p.row())
		case p.Expected == exempt:
		case p.Expected == unreachable:
			s.Metrics[metricLeak] = share(p.leaks())
			if p.leaks() {
				leaks = append(leaks, p.row())
			}
		default:
			s.Metrics[metricReached] = share(p.Observed == reachable)
			if p.Observed != reachable {
				lost = append(lost, p.row())
			}
		}
		if p.tenants() && p.measured() {
			between++
		}
		r.Add(s)
	}
	r.Add(bench.Sample{Arm: "proof", Rep: rep, Metrics: map[string]float64{metricTenants: float64(between)}})
	if between == 0 {
		r.Note("no guest of one tenant tried to reach one of another: this says nothing of tenants from each other")
	}
	for _, t := range []struct {
		title string
		rows  [][]string
	}{{"LEAKS: reached, and must not be", leaks}, {"Not reached, and must be", lost}, {"Not measured", unknown}} {
		if len(t.rows) > 0 {
			r.Table(bench.Table{Title: t.title, Columns: pairColumns, Rows: t.rows, Note: fmt.Sprintf("%d of %d pairs, proof %d", len(t.rows), len(pairs), rep+1)})
		}
	}
	if len(leaks) > 0 {
		return fmt.Errorf("the network is NOT sealed: %d pairs reach each other that must not, the first %s", len(leaks), strings.Join(leaks[0], ", "))
	}
	return nil
}
