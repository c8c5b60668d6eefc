package policy

import (
	"path/filepath"
	"testing"
)

// F01 F02 F03 F04 F05 F06 F07 F08 F09 F109 F110 F111: every bypass class has
// rows of its own; the class is the subtest.
func TestGoldenVerdicts(t *testing.T) {
	e := newEngine(t)
	byClass := map[string][][]string{}
	var order []string
	for _, r := range rows(t, filepath.Join("testdata", "verdicts.tsv")) {
		if byClass[r[1]] == nil {
			order = append(order, r[1])
		}
		byClass[r[1]] = append(byClass[r[1]], r)
	}
	for _, class := range order {
		t.Run(class, func(t *testing.T) {
			for _, r := range byClass[class] {
				v := e.Decide(Request{Command: r[2]})
				if got := v.Decision.String(); got != r[0] {
					t.Errorf("got %s (%s), want %s: %q", got, v.Rule, r[0], r[2])
				}
			}
		})
	}
}
