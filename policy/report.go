package policy

import (
	"maps"
	"slices"
)

// Matrix counts cases by what was expected (first index) and what the policy
// answered (second index): Matrix[Deny][Allow] are the dangerous misses.
type Matrix [3][3]int

// Right returns how many cases got the expected answer.
func (m Matrix) Right() int { return m[Deny][Deny] + m[Snapshot][Snapshot] + m[Allow][Allow] }

// Total returns how many cases there are.
func (m Matrix) Total() int {
	n := 0
	for _, row := range m {
		for _, k := range row {
			n += k
		}
	}
	return n
}

// Weaker returns how many cases got a weaker answer than expected.
func (m Matrix) Weaker() int {
	return m[Deny][Snapshot] + m[Deny][Allow] + m[Snapshot][Allow]
}

// MatrixRow is one row of a matrix in its JSON form.
type MatrixRow struct {
	Want     Decision `json:"want"`
	Deny     int      `json:"deny"`
	Snapshot int      `json:"snapshot"`
	Allow    int      `json:"allow"`
}

// Rows returns the matrix with names, strictest first.
func (m Matrix) Rows() []MatrixRow {
	out := make([]MatrixRow, 0, len(m))
	for _, want := range []Decision{Deny, Snapshot, Allow} {
		out = append(out, MatrixRow{Want: want, Deny: m[want][Deny], Snapshot: m[want][Snapshot], Allow: m[want][Allow]})
	}
	return out
}

// Miss is a case that got another answer than expected.
type Miss struct {
	Case   Case     `json:"case"`
	Got    Decision `json:"got"`
	Rule   string   `json:"rule"`
	Reason string   `json:"reason"`

	// Verdict is the whole answer, for an explanation.
	Verdict Verdict `json:"-"`
}

// ClassCount is the result for the cases of one class.
type ClassCount struct {
	Class string `json:"class"`
	Cases int    `json:"cases"`
	Right int    `json:"right"`
}

// TestReport is the result of Engine.Test.
type TestReport struct {
	Cases   int          `json:"cases"`
	Right   int          `json:"right"`
	Matrix  Matrix       `json:"-"`
	Rows    []MatrixRow  `json:"matrix"`
	Classes []ClassCount `json:"classes"` // by name
	Misses  []Miss       `json:"misses"`  // in the order of the cases
}

// Test judges labelled commands under the account, profile and grants of base
// and counts the answers. The lists of the report are never nil.
func (e *Engine) Test(base Request, cases []Case) TestReport {
	r := TestReport{Cases: len(cases), Misses: []Miss{}, Classes: []ClassCount{}}
	classes := map[string]*ClassCount{}
	for _, c := range cases {
		base.Command = c.Command
		v := e.Decide(base)
		r.Matrix[min(c.Want, Allow)][v.Decision]++
		k := classes[c.Class]
		if k == nil {
			k = &ClassCount{Class: c.Class}
			classes[c.Class] = k
		}
		k.Cases++
		if v.Decision == c.Want {
			k.Right++
			continue
		}
		r.Misses = append(r.Misses, Miss{Case: c, Got: v.Decision, Rule: v.Rule, Reason: v.Reason, Verdict: v})
	}
	for _, name := range slices.Sorted(maps.Keys(classes)) {
		r.Classes = append(r.Classes, *classes[name])
	}
	r.Right, r.Rows = r.Matrix.Right(), r.Matrix.Rows()
	return r
}
