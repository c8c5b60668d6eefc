package world

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"

	"savepoint/orchestrator"
)

// Faults is a generator of faults: equal seeds and equal calls give equal faults.
type Faults struct {
	C    *Cluster
	Rate int // one point in so many has a fault
	rng  *rand.Rand
	// Injected counts the faults by what they were.
	Injected map[string]int
}

// NewFaults returns a generator.
func NewFaults(c *Cluster, seed uint64, rate int) *Faults {
	return &Faults{C: c, Rate: rate, rng: rand.New(rand.NewPCG(seed, 2)), Injected: map[string]int{}}
}

// fault is an error of a class, and what it may happen to.
type fault struct {
	name   string
	err    error
	weight int
}

var (
	orders  = []string{"create", "rollback", "delete", "start", "stop"}
	unknown = fault{"unknown", orchestrator.ErrUnknownOutcome, 4}
	away    = fault{"unavailable", orchestrator.ErrUnavailable, 4}
	busy    = fault{"busy", orchestrator.ErrBusy, 3}
	denied  = fault{"denied", orchestrator.ErrDenied, 1}
	dies    = fault{"crash", ErrCrash, 3}
)

// choices are the faults that a point can have.
func choices(p Point) []fault {
	switch {
	case strings.HasPrefix(p.Name, "journal"):
		if p.After {
			return []fault{unknown, dies}
		}
		return []fault{unknown, away, dies} // torn, full
	case p.Name == "listen":
		return []fault{unknown, dies}
	case p.After:
		return []fault{unknown, dies}
	case strings.HasSuffix(p.Name, " wait"), p.Name == "await", p.Name == "find", p.Name == "list", p.Name == "status":
		return []fault{away, unknown, dies}
	}
	for _, o := range orders {
		if p.Name == o {
			return []fault{unknown, away, busy, denied, dies}
		}
	}
	return []fault{away, unknown, dies}
}

// At is for Process.At.
func (f *Faults) At(p Point) error {
	if f.Rate == 0 || f.rng.IntN(f.Rate) != 0 {
		return nil
	}
	all, sum := choices(p), 0
	for _, c := range all {
		sum += c.weight
	}
	n := f.rng.IntN(sum)
	for _, c := range all {
		if n -= c.weight; n >= 0 {
			continue
		}
		f.Injected[c.name]++
		if c.name == denied.name {
			f.C.Grieve(p.Sandbox, "was denied")
		}
		if errors.Is(c.err, ErrCrash) {
			return ErrCrash
		}
		return fmt.Errorf("injected at %s: %w", p, c.err)
	}
	return nil
}

// Fate is for Process.Fate.
func (f *Faults) Fate(Point) Fate {
	if f.Rate == 0 || f.rng.IntN(max(f.Rate/4, 1)) != 0 {
		return FateDone
	}
	bag := []Fate{FateSlow, FateSlow, FateFails, FateFails, FateNoWorker, FateNoWorker, FateLate, FateLate, FateDies, FateHangs}
	fate := bag[f.rng.IntN(len(bag))]
	f.Injected["task "+fate.String()]++
	return fate
}
