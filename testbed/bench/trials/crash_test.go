package trials

import (
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"savepoint/testbed/bench"
)

const explorationOutput = `=== RUN   TestCrash
    crash_explore_test.go:79: disk-fail  41 crash points: all 41 single deaths
%s    crash_explore_test.go:89: explored %s
%s`

// Violations are those that the exploration counts: the lines FAIL of its tests
// are one for each scenario and for each test above it, whatever was found.
func TestReadExploration(t *testing.T) {
	const failed = "        crash_schedule_test.go:140: scenario disk-fail, -sim.deaths=12:\n" +
		"--- FAIL: TestCrash (1.2s)\n    --- FAIL: TestCrash/scenarios (0.0s)\n        --- FAIL: TestCrash/scenarios/disk-fail (0.0s)\n"
	exit := errors.New("exit status 1")
	for name, c := range map[string]struct {
		before, account, after string
		ended                  error
		full                   bool
		violations, pairs, all float64
		wrong                  string
	}{
		"a selection, clean": {"", `{"played":2,"scenarios":2,"singles":40,"pairs":10,"pairs_all":90,"violations":0}`, "PASS\n", nil, false, 0, 10, 90, ""},
		"a selection, in full": {
			"", `{"played":2,"scenarios":2,"singles":40,"pairs":10,"pairs_all":90,"violations":0}`, "PASS\n", nil, true, 0, 10, 90, "every pair",
		},
		"all":        {"", `{"played":2,"scenarios":2,"singles":40,"pairs":90,"pairs_all":90,"violations":0}`, "PASS\n", nil, true, 0, 90, 90, ""},
		"violations": {failed, `{"played":2,"scenarios":2,"singles":12,"pairs":3,"violations":7}`, "FAIL\n", exit, true, 7, 3, 0, ""},
		"other trouble": {
			"panic: no\n", `{"played":2,"scenarios":2,"singles":12,"pairs":3,"pairs_all":3,"violations":0}`, "FAIL\n", exit, true, 0, 3, 3, "without a violation",
		},
		"too few": {"", `{"played":1,"scenarios":2,"singles":12,"pairs":3,"pairs_all":3,"violations":0}`, "PASS\n", nil, true, 0, 3, 3, "1 of 2"},
	} {
		x, failure, err := readExploration(fmt.Appendf(nil, explorationOutput, c.before, c.account, c.after))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		plan := bench.QuickPlan()
		plan.Quick = !c.full
		r := bench.NewRun(Crashes("."), plan)
		s, err := x.sample(r, failure, c.ended)
		if c.wrong == "" && err != nil || c.wrong != "" && (err == nil || !strings.Contains(err.Error(), c.wrong)) {
			t.Errorf("%s: error %v, want %q", name, err, c.wrong)
		}
		if s.Metrics[bench.MetricViolations] != c.violations || s.Metrics[bench.MetricPairs] != c.pairs || s.Metrics[bench.MetricPairsAll] != c.all {
			t.Errorf("%s: %v", name, s.Metrics)
		}
		if notes := strings.Join(r.Result().Notes, "\n"); c.violations > 0 && !strings.Contains(notes, "-sim.deaths=12") {
			t.Errorf("%s: the first violation is not told: %s", name, notes)
		}
	}
	for name, text := range map[string]string{"nothing": "PASS\n", "no account": "explored {}\n", "cut": "explored {\"singles\":\n"} {
		if x, _, err := readExploration([]byte(text)); err == nil {
			t.Errorf("%s: %+v", name, x)
		}
	}
}

// A machine that has built the program has not fetched what its tests need: that
// is said, with what to do, and nothing is fetched in the middle of a measurement.
func TestCrashesUnbuilt(t *testing.T) {
	if _, err := exec.LookPath("go"); err != nil {
		t.Skip("Go is not installed")
	}
	t.Setenv("GOMODCACHE", t.TempDir())
	err := crashes(t.Context(), &bench.Run{Plan: bench.Plan{Quick: true}}, "../../..")
	var skipped *bench.SkipError
	if !errors.As(err, &skipped) || !strings.Contains(err.Error(), "go mod download") || !strings.Contains(err.Error(), "GOPROXY=off") {
		t.Errorf("got %v", err)
	}
}
