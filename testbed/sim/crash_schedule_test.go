package sim_test

import (
	"errors"
	"flag"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"savepoint/testbed/sim/world"
)

var (
	simDeaths = flag.String("sim.deaths", "", "play only the schedule whose processes die at these points, such as 12,3; 0 = no death; -run selects the scenario")
	simFault  = flag.String("sim.fault", "", "play only the schedule with this trouble, such as busy@7; -run selects the scenario")
)

// schedule is one way to disturb a scenario: its processes die at these points,
// one after the other, or the n-th thing that can have the trouble has it.
type schedule struct {
	deaths []int
	x      trouble
	n      int
}

// String is the flag that plays it again.
func (s schedule) String() string {
	if s.deaths == nil {
		return fmt.Sprintf("-sim.fault=%s@%d", s.x.name, s.n)
	}
	var parts []string
	for _, n := range s.deaths {
		parts = append(parts, strconv.Itoa(n))
	}
	return "-sim.deaths=" + strings.Join(parts, ",")
}

// play plays it. fits is false when the scenario has no such moment.
func (s schedule) play(sc scenario, log func(string)) (found []world.Finding, fits bool) {
	if s.deaths == nil {
		return s.x.play(sc, s.n, log)
	}
	found, alive := play(sc, s.deaths, log)
	return found, alive == len(s.deaths) || slices.Equal(s.deaths, []int{0})
}

// parseSchedule reads the values of the flags; nil: none is asked for.
func parseSchedule(deaths, fault string) (*schedule, error) {
	switch {
	case deaths == "" && fault == "":
		return nil, nil
	case deaths != "" && fault != "":
		return nil, errors.New("-sim.deaths and -sim.fault are two schedules; give one of them")
	case deaths != "":
		s := &schedule{}
		for part := range strings.SplitSeq(deaths, ",") {
			n, err := strconv.Atoi(part)
			if err != nil || n < 0 {
				return nil, fmt.Errorf("-sim.deaths=%s: %q is no point; give numbers such as 12,3", deaths, part)
			}
			s.deaths = append(s.deaths, n)
		}
		return s, nil
	}
	name, at, _ := strings.Cut(fault, "@")
	n, err := strconv.Atoi(at)
	if err != nil || n < 1 {
		return nil, fmt.Errorf("-sim.fault=%s: %q is no number from 1 on; write such as busy@7", fault, at)
	}
	var names []string
	for _, x := range append(troubles(), dead()) {
		if names = append(names, x.name); x.name == name {
			return &schedule{x: x, n: n}, nil
		}
	}
	return nil, fmt.Errorf("-sim.fault=%s: no trouble has that name; there are %s", fault, strings.Join(names, ", "))
}

// chosen is the schedule that the flags ask for; nil: explore. A test that
// explores the other kind has nothing to do.
func chosen(t *testing.T, deaths bool) *schedule {
	t.Helper()
	s, err := parseSchedule(*simDeaths, *simFault)
	if err != nil {
		t.Fatal(err)
	}
	if s != nil && (s.deaths != nil) != deaths {
		t.Skipf("%s is for another test", s)
	}
	return s
}

// replay plays one schedule only.
func replay(t *testing.T, sc scenario, s schedule) {
	t.Helper()
	found, fits := s.play(sc, nil)
	switch {
	case len(found) > 0:
		report(t, sc, s, found)
	case !fits:
		t.Errorf("scenario %s has no such moment: %s", sc.name, s)
	default:
		t.Logf("%-28s %s: settled", sc.name, s)
	}
}

// report says what was found and how to see it again.
func report(t *testing.T, sc scenario, s schedule, found []world.Finding) {
	t.Helper()
	t.Error(account(t.Name(), sc, s, found))
}

// account is what a test of that name reports.
func account(test string, sc scenario, s schedule, found []world.Finding) string {
	var lines []string
	second, _ := s.play(sc, func(line string) { lines = append(lines, line) })
	text := fmt.Sprintf("scenario %s, %s:\n%v\n", sc.name, s, found)
	if fmt.Sprint(second) != fmt.Sprint(found) {
		text += fmt.Sprintf("the replay found something else, it is not deterministic:\n%v\n", second)
	}
	return text + fmt.Sprintf("points:\n%s\nagain: %s", joinLines(lines), again(test, s))
}

// again is the command that plays the schedule in the test of that name, and
// nothing else, whatever the tier.
func again(test string, s schedule) string {
	parts := strings.Split(test, "/")
	for i, part := range parts {
		parts[i] = "^" + regexp.QuoteMeta(part) + "$"
	}
	return fmt.Sprintf("go test ./testbed/sim -run '%s' -v %s", strings.Join(parts, "/"), s)
}

// verdict says how an exploration of faults ended: what it counts before a
// failure settled, and it went no further.
func verdict(t *testing.T) string {
	t.Helper()
	if t.Failed() {
		return "settled, NOT all: ended by a failure"
	}
	return "all settled"
}
