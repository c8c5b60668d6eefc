package sim_test

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"
)

func everything() bool { return os.Getenv("SAVEPOINT_DEEP") == "1" }

// countsPairs: pairs that are passed over are counted, at the cost of one more play of
// each first death, and fewer are played: it is for a quick look that says what part
// of all it is.
func countsPairs() bool { return os.Getenv("SAVEPOINT_PAIRS") == "1" }

// explored counts what was played of one scenario or of several.
type explored struct {
	points, singles, doubles int
	firsts                   int // first deaths whose second deaths were all played
	passed                   int // pairs that were passed over and counted
	violations               int // things that were found; a scenario ends with its first schedule that has some
}

func (x *explored) add(o explored) {
	x.points, x.singles, x.doubles, x.firsts = x.points+o.points, x.singles+o.singles, x.doubles+o.doubles, x.firsts+o.firsts
	x.passed, x.violations = x.passed+o.passed, x.violations+o.violations
}

// line is the account for programs. pairs_all is left out when it is not known.
func (x explored) line(played, scenarios int) string {
	account := map[string]int{"played": played, "scenarios": scenarios, "singles": x.singles, "pairs": x.doubles, "violations": x.violations}
	if x.violations == 0 && (countsPairs() || x.firsts == x.singles) {
		account["pairs_all"] = x.doubles + x.passed
	}
	text, err := json.Marshal(account)
	if err != nil {
		panic(err)
	}
	return "explored " + string(text)
}

// account says what was played: all of it only if nothing ended it.
func (x explored) account(t *testing.T) string {
	t.Helper()
	switch {
	case t.Failed():
		return fmt.Sprintf("NOT all settled: ended by a failure, after %d single deaths and %d pairs", x.singles, x.doubles)
	case x.firsts == x.singles:
		return fmt.Sprintf("%3d crash points: all %3d single deaths and all %5d pairs, all settled", x.points, x.singles, x.doubles)
	default:
		return fmt.Sprintf("%3d crash points: all %3d single deaths and %5d pairs (those of %d of %d first deaths; all with SAVEPOINT_DEEP=1), all settled",
			x.points, x.singles, x.doubles, x.firsts, x.singles)
	}
}

// Every process is a promise: it dies before and after each of its calls and
// writes, and the next one settles what it left. Without SAVEPOINT_DEEP=1 only
// a part of the pairs of deaths is explored, evenly spread.
func TestCrash(t *testing.T) {
	one := chosen(t, true)
	var mu sync.Mutex
	var all explored
	played := 0
	t.Run("scenarios", func(t *testing.T) {
		for _, sc := range scenarios() {
			t.Run(sc.name, func(t *testing.T) {
				t.Parallel()
				bubble(t, func(t *testing.T) {
					if one != nil {
						replay(t, sc, *one)
						return
					}
					x := explore(t, sc, stride(sc))
					t.Logf("%-28s %s", sc.name, x.account(t))
					mu.Lock()
					defer mu.Unlock()
					played++
					all.add(x)
				})
			})
		}
	})
	if one == nil {
		t.Logf("%d of %d scenarios: %s", played, len(scenarios()), all.account(t))
		t.Log(all.line(played, len(scenarios())))
	}
}

// stride is how many first deaths are passed over for one whose second deaths
// are explored.
func stride(sc scenario) int {
	n := 9
	switch {
	case everything():
		return 1
	case sc.boxes > 1, sc.ahead:
		n = 40
	case sc.next != nil:
		n = 20
	}
	if countsPairs() {
		n *= 4
	}
	return n
}

// explore plays every schedule of one death, and every one of two whose first
// is not passed over. It ends with the first that does not settle.
func explore(t *testing.T, sc scenario, stride int) (x explored) {
	t.Helper()
	if found, _ := play(sc, []int{0}, nil); len(found) > 0 {
		report(t, sc, schedule{deaths: []int{0}}, found)
		x.violations += len(found)
		return x
	}
	for n := 1; ; n++ {
		found, alive := play(sc, []int{n}, nil)
		if len(found) > 0 {
			report(t, sc, schedule{deaths: []int{n}}, found)
			x.violations += len(found)
			return x
		}
		if alive == 0 {
			return x
		}
		x.points, x.singles = n, x.singles+1
		if n%stride != 0 && n != 1 {
			if countsPairs() {
				x.passed += seconds(sc, n)
			}
			continue
		}
		for m := 1; ; m++ {
			found, alive := play(sc, []int{n, m}, nil)
			if len(found) > 0 {
				report(t, sc, schedule{deaths: []int{n, m}}, found)
				x.violations += len(found)
				return x
			}
			if alive == 1 {
				break
			}
			x.doubles++
		}
		x.firsts++
	}
}

// pointLine is what a process logs at each of its points.
var pointLine = regexp.MustCompile(`^\d+ (before|after) `)

// seconds is how many points the second process has when the first dies at n.
func seconds(sc scenario, n int) (points int) {
	process := ""
	play(sc, []int{n, math.MaxInt}, func(line string) {
		if strings.HasPrefix(line, "-- process ") {
			process = line
		} else if process == "-- process 2" && pointLine.MatchString(line) {
			points++
		}
	})
	return points
}
