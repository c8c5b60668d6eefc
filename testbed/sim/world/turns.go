package world

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
)

// Turns makes several callers of the ports take turns, so that what they do
// together depends on a seed and on nothing else: everybody stops before every
// call, and when all have stopped or wait for time to pass, one goes on.
type Turns struct {
	settle func() // waits until nobody moves: synctest.Wait
	pick   *rand.Rand
	mu     sync.Mutex
	parked []parked
	moved  chan struct{}
	left   *sync.WaitGroup // who has not come to his end; of Run
	extra  int             // who came besides, so far
}

type parked struct {
	key  string
	goOn chan struct{}
}

// NewTurns returns the turns of a seed. settle has to return when every
// goroutine but the caller is blocked.
func NewTurns(seed uint64, settle func()) *Turns {
	return &Turns{settle: settle, pick: rand.New(rand.NewPCG(seed, 1)), moved: make(chan struct{}, 1)}
}

// wait stops the caller until it is its turn.
func (t *Turns) wait(key string) {
	me := parked{key, make(chan struct{})}
	t.mu.Lock()
	t.parked = append(t.parked, me)
	t.mu.Unlock()
	select {
	case t.moved <- struct{}{}:
	default:
	}
	<-me.goOn
}

// Go lets one more take part, whom a caller of Run starts; Run waits for him too.
func (t *Turns) Go(f func()) {
	t.mu.Lock()
	t.extra++
	key := fmt.Sprintf("work %06d", t.extra)
	t.mu.Unlock()
	t.left.Go(func() {
		t.wait(key)
		f()
	})
}

// Run runs the callers to their end.
func (t *Turns) Run(callers ...func()) {
	var left sync.WaitGroup
	t.left = &left
	over := make(chan struct{})
	for i, f := range callers {
		left.Go(func() {
			t.wait(fmt.Sprintf("caller %03d", i))
			f()
		})
	}
	go func() { left.Wait(); close(over) }()
	for {
		t.settle()
		if t.next() {
			continue
		}
		select {
		case <-over:
			return
		case <-t.moved: // time passed and somebody came to a call
		}
	}
}

// next lets one of those go on who stopped.
func (t *Turns) next() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.parked) == 0 {
		return false
	}
	slices.SortStableFunc(t.parked, func(a, b parked) int { return strings.Compare(a.key, b.key) })
	i := t.pick.IntN(len(t.parked))
	close(t.parked[i].goOn)
	t.parked = slices.Delete(t.parked, i, i+1)
	return true
}
