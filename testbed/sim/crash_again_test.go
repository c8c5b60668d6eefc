package sim_test

import (
	"flag"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"savepoint/orchestrator"
)

// The line that a failure ends with plays the schedule that failed and nothing
// else, also one that only the deep tier explores.
func TestCrashAgain(t *testing.T) {
	for _, x := range []struct {
		test, scenario string
		s              schedule
	}{
		{"TestCrash/scenarios", "disk-timeout", schedule{deaths: []int{20}}},
		{"TestCrash/scenarios", "disk-timeout", schedule{deaths: []int{20, 3}}}, // only the deep tier does
		{"TestCrash/scenarios", "disk-timeout", schedule{deaths: []int{0}}},
		{"TestCrashFaults/scenarios", "disk-timeout", schedule{x: fails("unavailable", orchestrator.ErrUnavailable, false), n: 8}}, // only the deep tier does
		{"TestCrashFaults/scenarios", "disk-fail", schedule{x: full("journal-full-restarts", 2), n: 4}},
		{"TestCrashLate", "disk-any=true-run", schedule{x: dead(), n: 2}},
	} {
		t.Run(x.test+" "+x.s.String(), func(t *testing.T) {
			t.Parallel()
			all := append(scenarios(), late()...)
			sc := all[slices.IndexFunc(all, func(sc scenario) bool { return sc.name == x.scenario })]
			sc.wrap = func(_ *lab, c *orchestrator.Config) { // so that every schedule finds something
				for b, d := range c.Snapshotters {
					c.Snapshotters[b] = hoarder{d}
				}
			}
			var text, same string
			var args []string
			bubble(t, func(t *testing.T) {
				found, _ := x.s.play(sc, nil)
				if len(found) == 0 {
					t.Fatal("there is nothing to report")
				}
				text = account(x.test+"/"+x.scenario, sc, x.s, found)
				args = arguments(t, text)
				if same = account(x.test+"/"+x.scenario, sc, parsed(t, args), found); same != text {
					t.Errorf("the flags %q play another schedule:\n%s\ninstead of:\n%s", args, same, text)
				}
			})
			if out := playAgain(t, args); strings.Count(out, "settled") != 1 || !strings.Contains(out, x.s.String()+": settled") || !strings.Contains(out, "/"+x.scenario+" ") {
				t.Errorf("%q played:\n%s", args, out)
			}
		})
	}
}

// A schedule that a scenario has not is no success.
func TestCrashAgainNowhere(t *testing.T) {
	for flags, want := range map[string]string{
		"-sim.deaths=7,900":               "has no such moment",
		"-sim.fault=busy@900":             "has no such moment",
		"-sim.fault=busi@1":               "no trouble has that name; there are unavailable, busy,",
		"-sim.fault=busy":                 "is no number from 1 on",
		"-sim.deaths=7;3":                 "is no point",
		"-sim.deaths=7 -sim.fault=busy@1": "give one of them",
	} {
		args := append([]string{"-test.run=^(TestCrash|TestCrashFaults)$/^scenarios$/^disk-fail$"}, strings.Fields(flags)...)
		out, err := testBinary(t, args).CombinedOutput()
		if err == nil || !strings.Contains(string(out), want) {
			t.Errorf("%s: %v, instead of %q:\n%s", flags, err, want, out)
		}
	}
}

// arguments are those of go test in the last line of a report.
func arguments(t *testing.T, text string) (args []string) {
	t.Helper()
	_, line, _ := strings.Cut(text[strings.LastIndex(text, "\n")+1:], "again: ")
	rest, ok := strings.CutPrefix(line, "go test ./testbed/sim ")
	if !ok {
		t.Fatalf("the report ends with %q", line)
	}
	for i, part := range strings.Split(rest, "'") { // every other part is quoted
		if i%2 == 1 {
			args = append(args, part)
		} else {
			args = append(args, strings.Fields(part)...)
		}
	}
	return args
}

// parsed is the schedule that the flags of this package's tests make of them.
func parsed(t *testing.T, args []string) schedule {
	t.Helper()
	f := flag.NewFlagSet("again", flag.ContinueOnError)
	deaths, fault := f.String("sim.deaths", "", ""), f.String("sim.fault", "", "")
	f.String("run", "", "")
	f.Bool("v", false, "")
	if err := f.Parse(args); err != nil {
		t.Fatal(err)
	}
	s, err := parseSchedule(*deaths, *fault)
	if err != nil || s == nil {
		t.Fatalf("the flags %q: %v, %v", args, s, err)
	}
	return *s
}

// playAgain plays the line and returns what it prints, without go test's lines.
func playAgain(t *testing.T, args []string) string {
	t.Helper()
	args = slices.Clone(args)
	for i, a := range args {
		if a == "-run" || a == "-v" {
			args[i] = "-test." + strings.TrimPrefix(a, "-")
		}
	}
	out, err := testBinary(t, args).CombinedOutput()
	if err != nil {
		t.Errorf("%q: %v\n%s", args, err, out)
	}
	return string(out)
}

// testBinary is this test in a process of its own, in the ordinary tier.
func testBinary(t *testing.T, args []string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self, args...)
	cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "SAVEPOINT_DEEP=") })
	return cmd
}
