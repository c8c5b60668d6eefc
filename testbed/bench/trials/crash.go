package trials

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"syscall"
	"time"

	"savepoint/testbed/bench"
)

// Crashes explores the crash schedules of the engine with the project's own tests,
// in the sources at root.
func Crashes(root string) bench.Experiment {
	return bench.Experiment{
		Name: bench.ExpCrash, Title: "What a crash leaves",
		Method: `The project's exploration plays the engine on a simulated cluster and lets the process die before and after the effect of every call, and of pairs of calls, recovers, and compares the sandboxes with what the journal says. A full run plays every pair (SAVEPOINT_DEEP=1); a quick one a selection of them, evenly spread, and counts the rest. What is lost or half applied is counted by the exploration itself, which ends a scenario with the first schedule that finds some. It is made by the tests of testbed/sim, so it needs Go and the sources.`,
		Metrics: []bench.Metric{
			{Name: bench.MetricSchedules, Unit: bench.Count, Better: bench.Higher, Text: "crash points and pairs that were played"},
			{Name: bench.MetricViolations, Unit: bench.Count, Better: bench.Lower, Exact: true, Text: "something lost or half applied"},
			{Name: bench.MetricPairs, Unit: bench.Count, Better: bench.Higher, Text: "pairs of deaths that were played"},
			{Name: bench.MetricPairsAll, Unit: bench.Count, Text: "pairs of deaths that there are"},
		},
		Quick: 20 * time.Second, Full: 15 * time.Minute,
		Run: func(ctx context.Context, r *bench.Run) error { return crashes(ctx, r, root) },
	}
}

// exploration is what the tests say they played, in a line of their output.
type exploration struct {
	Played     int  `json:"played"`    // scenarios, to their end
	Scenarios  int  `json:"scenarios"` // that there are
	Singles    int  `json:"singles"`   // schedules of one death
	Pairs      int  `json:"pairs"`     // schedules of two deaths
	PairsAll   *int `json:"pairs_all"` // that there are; nil: it is not known
	Violations *int `json:"violations"`
}

var accountLine = regexp.MustCompile(`(?m)explored (\{.*\})\s*$`)

// readExploration finds the account in the output of the tests, and the first
// line that says what failed.
func readExploration(text []byte) (x exploration, failure string, err error) {
	m := accountLine.FindAllSubmatch(text, -1)
	if len(m) != 1 {
		return x, firstFailure(text), fmt.Errorf("the exploration gave %d accounts of what it played, not one", len(m))
	}
	if err := json.Unmarshal(m[0][1], &x); err != nil {
		return x, "", fmt.Errorf("read what the exploration played: %w", err)
	}
	if x.Violations == nil || x.Singles < 1 || x.Scenarios < 1 {
		return x, "", fmt.Errorf("the exploration says nothing of what it played: %s", m[0][1])
	}
	return x, firstFailure(text), nil
}

// failureLine is what a test prints of a schedule that found something, or how it
// ended otherwise.
var failureLine = regexp.MustCompile(`(?m)^(.*\.go:\d+: scenario .*|panic: .*|\s*--- FAIL.*|FAIL.*)$`)

// firstFailure is the first line of the output that says what is wrong.
func firstFailure(text []byte) string {
	return firstLine(failureLine.Find(text))
}

// missing is a line of go that says what keeps a package from being built.
var missing = regexp.MustCompile(`(?m)^\S*\.go:\d+:\d+: (.+)$`)

// unbuilt is the first of these lines, or go's own word.
func unbuilt(text []byte) string {
	if m := missing.FindSubmatch(text); m != nil {
		return string(m[1])
	}
	return firstFailure(text)
}

// sample is the exploration as a measurement. ended is how its process ended:
// a failure that is no violation is an error.
func (x exploration) sample(r *bench.Run, failure string, ended error) (bench.Sample, error) {
	s := bench.Sample{Arm: "deaths", Metrics: map[string]float64{
		bench.MetricSchedules: float64(x.Singles + x.Pairs), bench.MetricViolations: float64(*x.Violations), bench.MetricPairs: float64(x.Pairs),
	}}
	of := ", of an unknown number"
	if x.PairsAll != nil {
		s.Metrics[bench.MetricPairsAll] = float64(*x.PairsAll)
		of = fmt.Sprintf(" of %d", *x.PairsAll)
		if *x.PairsAll == x.Pairs {
			of = ", which are all"
		}
	}
	s.Detail = fmt.Sprintf("%d of %d scenarios: %d schedules of one death, %d pairs%s, %d violations", x.Played, x.Scenarios, x.Singles, x.Pairs, of, *x.Violations)
	r.Note("%s", s.Detail)
	switch {
	case *x.Violations > 0:
		r.Note("the first violation: %s", failure)
	case ended != nil:
		return s, fmt.Errorf("the exploration failed without a violation: %w: %s", ended, failure)
	case x.Played != x.Scenarios:
		return s, fmt.Errorf("the exploration played %d of %d scenarios", x.Played, x.Scenarios)
	case !r.Plan.Quick && (x.PairsAll == nil || *x.PairsAll != x.Pairs):
		return s, errors.New("a full run has to play every pair of deaths, and this one did not: " + s.Detail)
	}
	return s, nil
}

func crashes(ctx context.Context, r *bench.Run, root string) error {
	if _, err := exec.LookPath("go"); err != nil {
		return bench.Skip("Go is not installed, and the exploration is a test of the sources")
	}
	if data, err := os.ReadFile(filepath.Join(root, "go.mod")); err != nil || !bytes.HasPrefix(data, []byte("module savepoint\n")) {
		return bench.Skip("%s is not savepoint's sources, whose tests the exploration is: run it in a checkout", root)
	}
	cmd := exec.CommandContext(ctx, "go", "test", "-count=1", "-vet=off", "-timeout", "120m", "-v", "-run", "^TestCrash$", "./testbed/sim")
	cmd.Dir, cmd.WaitDelay = root, 10*time.Second
	cmd.Env = append(os.Environ(), "GOPROXY=off", // what is built here already needs nothing more
		"GOGC=400") // its time is no figure, and a third of it went to the collector
	if r.Plan.Quick {
		cmd.Env = append(cmd.Env, "SAVEPOINT_DEEP=", "SAVEPOINT_PAIRS=1")
	} else {
		cmd.Env = append(cmd.Env, "SAVEPOINT_DEEP=1")
	}
	// The test is a child of go's own, and ends with it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	var text bytes.Buffer
	cmd.Stdout, cmd.Stderr = &text, &text
	ended := cmd.Run()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if bytes.Contains(text.Bytes(), []byte("[setup failed]")) {
		return bench.Skip("the exploration's tests cannot be built: %s; go mod download in %s fetches what they need", unbuilt(text.Bytes()), root)
	}
	x, failure, err := readExploration(text.Bytes())
	if err != nil {
		return errors.Join(fmt.Errorf("%w: %s", err, failure), ended)
	}
	s, err := x.sample(r, failure, ended)
	r.Add(s)
	return err
}
