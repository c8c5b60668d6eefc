package network

// Observation is what one check measured. An empty result says that it could
// not be measured.
type Observation struct {
	From, To string
	Protocol Protocol
	Observed Reach
}

// NotMeasured stands in a report for a check that nobody answered.
const NotMeasured Reach = "not measured"

// Contradictory stands in a report for a check with different answers.
const Contradictory Reach = "contradictory"

// Report is the result of a proof. Its JSON is that of "network verify
// --output json", which scripts rely on: change nothing in it.
type Report struct {
	Sealed bool     `json:"sealed"`
	Checks []Result `json:"checks"`
}

// Result is one line of a report.
type Result struct {
	From     string   `json:"from"`
	To       string   `json:"to"`
	Protocol Protocol `json:"protocol"`
	Expected Reach    `json:"expected"`
	Observed Reach    `json:"observed"`
	OK       bool     `json:"ok"`
}

// Judge compares what was measured with what is expected. It fails closed: a
// check without an answer, with two different ones, or with one that is none of
// the results is not ok. Sealed needs every check ok, and at least one that must
// and one that must not be reached: a table that only shows silence proves a dead
// network, and one that only shows answers proves no isolation.
func Judge(checks []Check, observations []Observation) Report {
	seen := map[[3]string]Reach{}
	for _, o := range observations {
		key := [3]string{o.From, o.To, string(o.Protocol)}
		if before, again := seen[key]; again && before != o.Observed {
			o.Observed = Contradictory
		}
		seen[key] = o.Observed
	}
	r := Report{Checks: make([]Result, 0, len(checks))}
	proved, all := map[Reach]bool{}, true
	for _, c := range checks {
		got := seen[c.key()]
		if got == "" {
			got = NotMeasured
		}
		ok := meets(c, got)
		r.Checks = append(r.Checks, Result{c.From, c.To, c.Protocol, c.Expected, got, ok})
		proved[c.Expected], all = true, all && ok
	}
	r.Sealed = all && proved[Reachable] && proved[Unreachable]
	return r
}

// meets says whether what was observed is as expected.
func meets(c Check, got Reach) bool {
	switch c.Expected {
	case Exempt:
		return got == Reachable || got == Unreachable || got == NoRoute
	case Unreachable:
		return got == Unreachable || got == NoRoute && c.Gateless
	default:
		return got == Reachable && c.Expected == Reachable
	}
}

// Failed returns the lines that are not ok, in order.
func (r Report) Failed() []Result {
	var out []Result
	for _, c := range r.Checks {
		if !c.OK {
			out = append(out, c)
		}
	}
	return out
}
