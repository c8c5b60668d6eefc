package trials

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"

	"savepoint/testbed/bench"
)

// Crashes explores the crash schedules of the engine with the project's own tests,
// in the sources at root.
func Crashes(root string) bench.Experiment {
	return bench.Experiment{
		Name: bench.ExpCrash, Title: "What a crash leaves",
		Method: `The project's exploration plays the engine on a simulated cluster and lets the process die before and after the effect of every call, and of pairs of calls, recovers, and compares the sandboxes with what the journal says. A full run plays every pair; a quick one a selection of them. It is made by the tests of testbed/sim, so it needs Go and the sources.`,
		Metrics: []bench.Metric{
			{Name: bench.MetricSchedules, Unit: bench.Count, Better: bench.Higher, Text: "crash points and pairs that were played"},
			{Name: bench.MetricViolations, Unit: bench.Count, Better: bench.Lower, Exact: true, Text: "something lost or half applied"},
		},
		Quick: 90 * time.Second, Full: 30 * time.Minute,
		Run: func(ctx context.Context, r *bench.Run) error { return crashes(ctx, r, root) },
	}
}

// explored reads the line in which the exploration says what it played.
var explored = regexp.MustCompile(`(\d+) of \d+ scenarios: .*`)

var numbers = regexp.MustCompile(`(\d[\d,]*) (crash points|pairs)`)

func crashes(ctx context.Context, r *bench.Run, root string) error {
	if _, err := exec.LookPath("go"); err != nil {
		return bench.Skip("Go is not installed, and the exploration is a test of the sources")
	}
	if data, err := os.ReadFile(filepath.Join(root, "go.mod")); err != nil || !bytes.HasPrefix(data, []byte("module savepoint\n")) {
		return bench.Skip("%s is not savepoint's sources, whose tests the exploration is: run it in a checkout", root)
	}
	cmd := exec.CommandContext(ctx, "go", "test", "-count=1", "-timeout", "60m", "-v", "-run", "^TestCrash$", "./testbed/sim")
	cmd.Dir, cmd.WaitDelay = root, 10*time.Second
	cmd.Env = append(os.Environ(), "GOPROXY=off") // what is built here already needs nothing more
	if !r.Plan.Quick {
		cmd.Env = append(cmd.Env, "SAVEPOINT_DEEP=1")
	}
	// The test is a child of go's own, and ends with it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	var text bytes.Buffer
	cmd.Stdout, cmd.Stderr = &text, &text
	err := cmd.Run()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	failed := 0.0
	line := ""
	for in := bufio.NewScanner(&text); in.Scan(); {
		if explored.MatchString(in.Text()) {
			line = explored.FindString(in.Text())
		}
		if strings.HasPrefix(strings.TrimSpace(in.Text()), "--- FAIL: ") {
			failed++
		}
	}
	if line == "" {
		return fmt.Errorf("the exploration said nothing: %w", err)
	}
	total := 0.0
	for _, m := range numbers.FindAllStringSubmatch(line, -1) {
		n, perr := strconv.ParseFloat(strings.ReplaceAll(m[1], ",", ""), 64)
		if perr == nil {
			total += n
		}
	}
	if err != nil && failed == 0 {
		return fmt.Errorf("the exploration did not end: %w", err)
	}
	r.Add(bench.Sample{Arm: "deaths", Metrics: map[string]float64{bench.MetricSchedules: total, bench.MetricViolations: failed}, Detail: line})
	r.Note("%s", line)
	return nil
}
