package trials

import (
	"fmt"
	"slices"

	"savepoint/orchestrator"
	"savepoint/testbed/bench"
)

// boundaries are those that are tried, in the order of the table.
var boundaries = []orchestrator.Boundary{orchestrator.BoundaryWorkspace, orchestrator.BoundaryDisk, orchestrator.BoundaryMachine}

// row is a line of the table: a damage, and why it has no samples in a boundary.
type row struct {
	damage damage
	cells  cells
}

type cells = map[orchestrator.Boundary]string

// tally counts samples that were exact.
type tally struct{ exact, all int }

func (t tally) String() string { return fmt.Sprintf("%d of %d", t.exact, t.all) }

func (t *tally) add(s bench.Sample) {
	t.all++
	if s.Err == "" && s.Metrics[bench.MetricExact] == 1 {
		t.exact++
	}
}

// count adds the tables, of as many samples as there are, and the sum of each
// boundary in a sentence when the experiment is finished.
func count(r *bench.Run, rows []row, finished bool) {
	each := map[string]map[string]tally{}
	sums := map[string]tally{}
	reps := map[string][]int{}
	for _, s := range r.Result().Samples {
		if each[s.Arm] == nil {
			each[s.Arm] = map[string]tally{}
		}
		t, sum := each[s.Arm][s.Labels[labelDamage]], sums[s.Arm]
		t.add(s)
		sum.add(s)
		each[s.Arm][s.Labels[labelDamage]], sums[s.Arm] = t, sum
	}
	table := bench.Table{Title: "Exact rollbacks by damage and boundary", Columns: []string{"damage", "what", "account"}}
	for _, b := range boundaries {
		table.Columns = append(table.Columns, string(b))
	}
	for _, w := range rows {
		line := []string{w.damage.name, w.damage.what, string(w.damage.as)}
		for _, b := range boundaries {
			text, not := w.cells[b]
			t, tried := each[string(b)][w.damage.name]
			switch {
			case tried:
				text = t.String()
				reps[string(b)] = append(reps[string(b)], t.all)
			case !not:
				text = "not tried yet"
			}
			line = append(line, text)
		}
		table.Rows = append(table.Rows, line)
	}
	r.Table(table)
	total := bench.Table{Title: "Exact rollbacks by boundary", Columns: []string{"boundary", "kinds of damage", "repetitions", "exact"}}
	for _, b := range boundaries {
		n := reps[string(b)]
		if len(n) == 0 {
			continue
		}
		times := fmt.Sprint(slices.Max(n))
		if least := slices.Min(n); least != slices.Max(n) {
			times = fmt.Sprintf("%d to %s", least, times)
		}
		total.Rows = append(total.Rows, []string{string(b), fmt.Sprint(len(n)), times, sums[string(b)].String()})
		if finished {
			r.Note("%s: %d kinds × %s = %s exact", b, len(n), times, sums[string(b)])
		}
	}
	r.Table(total)
}
