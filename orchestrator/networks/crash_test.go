package networks_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"savepoint/network"
	"savepoint/orchestrator"
	"savepoint/orchestrator/networks"
)

// stories are the changes that are interrupted at every step.
var stories = []struct {
	name         string
	before, want func() network.Wanted
}{
	{"create", func() network.Wanted { return network.Wanted{} }, two},
	{"change", two, one},
	{"destroy", two, func() network.Wanted { return network.Wanted{} }},
}

// The process is killed at every call, before or after its effect: the next
// call does the rest, with the same ids, and frees the lock. One lock cannot be
// told from somebody else's: the one whose answer was not recorded.
func TestKilledAtEveryCall(t *testing.T) {
	everyCall(t, strike{kill: true, err: errKilled}, func(t *testing.T, w *world, want network.Wanted, _ networks.Result, _ error) {
		lost := w.lock != "" && w.kept().Lock.Token == ""
		_, err := w.manager().Apply(t.Context(), want)
		if lost {
			if !errors.Is(err, orchestrator.ErrBusy) || !strings.Contains(err.Error(), "it may be its own") {
				t.Errorf("a lock whose token was lost: %v", err)
			}
			w.lock = "" // as the text says
			_, err = w.manager().Apply(t.Context(), want)
		}
		if err != nil {
			t.Error(err)
		}
	})
}

// F39: every answer is lost once, before or after the effect. The same call
// looks and goes on, but for the lock, which it cannot tell whose it is.
func TestEveryAnswerLost(t *testing.T) {
	everyCall(t, strike{err: orchestrator.ErrUnknownOutcome}, func(t *testing.T, w *world, want network.Wanted, res networks.Result, err error) {
		switch struck := w.trace[min(len(w.trace), w.onlyStrike())-1]; struck {
		case "lock":
			if !errors.Is(err, orchestrator.ErrUnknownOutcome) {
				t.Errorf("the lock's answer: %v", err)
			}
			w.lock = ""
		case "record", "observe", "observe guests", "unlock":
			// The journal's own errors end the call; so does not seeing.
		default:
			writes := 0
			for _, call := range w.trace {
				if verb, _, _ := strings.Cut(call, " "); verb == "create" || verb == "update" || verb == "delete" {
					writes++
				}
			}
			if !w.onlyAfter() && struck != "apply" {
				writes-- // it was made twice, because it was not there
			}
			if err != nil || !res.Applied || len(res.Changes) != writes {
				t.Errorf("%s: %d changes of %d are told, applied %t, %v", struck, len(res.Changes), writes, res.Applied, err)
			}
		}
		w.apply(t, want)
	})
}

func (w *world) onlyStrike() int {
	for n := range w.strike {
		return n
	}
	return 0
}

// most is more calls than any story takes.
const most = 100

func (w *world) onlyAfter() bool { return w.strike[w.onlyStrike()].after }

func everyCall(t *testing.T, s strike, then func(t *testing.T, w *world, want network.Wanted, res networks.Result, err error)) {
	for _, story := range stories {
		for _, locks := range []bool{true, false} {
			for _, after := range []bool{false, true} {
				n := 0
				for ended := false; !ended && n < most; {
					n++
					t.Run(fmt.Sprintf("%s/locks=%t/after=%t/%d", story.name, locks, after, n), func(t *testing.T) {
						synctest.Test(t, func(t *testing.T) {
							w := newWorld(locks)
							w.apply(t, story.before())
							ids := w.kept().Allocation
							w.calls, w.trace = 0, nil
							s.after = after
							w.strike[n] = s
							res, err := w.manager().Apply(t.Context(), story.want())
							if ended = w.calls < n; ended {
								return
							}
							if s.kill && err == nil {
								t.Error("it did not notice")
							}
							w.dead, w.calls = false, 1<<20
							then(t, w, story.want(), res, err)
							w.settled(t, story.want())
							for tenant, z := range w.kept().Allocation.Zones {
								if old, had := ids.Zones[tenant]; had && old != z {
									t.Errorf("the zone of %s was %v and is %v", tenant, old, z)
								}
							}
						})
					})
				}
				if n < 8 || n == most {
					t.Fatalf("%d calls", n)
				}
			}
		}
	}
}
