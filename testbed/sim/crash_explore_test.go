package sim_test

import (
	"os"
	"sync"
	"testing"
)

func everything() bool { return os.Getenv("SAVEPOINT_DEEP") == "1" }

// Every process is a promise: it dies before and after each of its calls and
// writes, and the next one settles what it left. Without SAVEPOINT_DEEP=1 only
// a part of the pairs of deaths is explored, evenly spread.
func TestCrash(t *testing.T) {
	var mu sync.Mutex
	points, singles, doubles := 0, 0, 0
	t.Run("scenarios", func(t *testing.T) {
		for _, sc := range scenarios() {
			t.Run(sc.name, func(t *testing.T) {
				t.Parallel()
				bubble(t, func(t *testing.T) {
					n, s, d := explore(t, sc, stride(sc))
					t.Logf("%-28s %3d crash points, %3d single and %5d double schedules, all settled", sc.name, n, s, d)
					mu.Lock()
					defer mu.Unlock()
					points, singles, doubles = points+n, singles+s, doubles+d
				})
			})
		}
	})
	t.Logf("%d scenarios: %d crash points, %d single and %d double schedules", len(scenarios()), points, singles, doubles)
}

// stride is how many first deaths are passed over for one whose second deaths
// are explored.
func stride(sc scenario) int {
	switch {
	case everything():
		return 1
	case sc.boxes > 1:
		return 40
	case sc.next != nil:
		return 20
	default:
		return 9
	}
}

// explore plays every schedule of one and two deaths.
func explore(t *testing.T, sc scenario, stride int) (points, singles, doubles int) {
	t.Helper()
	if found, _ := play(sc, []int{0}, nil); len(found) > 0 {
		report(t, sc, []int{0}, found)
		return points, singles, doubles
	}
	for n := 1; ; n++ {
		found, alive := play(sc, []int{n}, nil)
		if len(found) > 0 {
			report(t, sc, []int{n}, found)
			return n, singles, doubles
		}
		if alive == 0 {
			return n - 1, singles, doubles
		}
		singles++
		if n%stride != 0 && n != 1 {
			continue
		}
		for m := 1; ; m++ {
			found, alive := play(sc, []int{n, m}, nil)
			if len(found) > 0 {
				report(t, sc, []int{n, m}, found)
				return n, singles, doubles
			}
			if alive == 1 {
				break
			}
			doubles++
		}
	}
}
