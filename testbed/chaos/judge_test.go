package chaos

import (
	"fmt"
	"maps"
	"testing"

	"savepoint/orchestrator"
)

// The judgement of exit codes is tried without a guest: it has to see a lie.
func TestCheckExit(t *testing.T) {
	single, several := plans[0], plans[len(plans)-1]
	for _, c := range []struct {
		name    string
		plan    plan
		fault   fault
		results []result
		state   orchestrator.State
		ok      bool
	}{
		{"committed", single, faultGuest, []result{{code: 0}}, "committed", true},
		{"committed, it says, but rolled back", single, faultGuest, []result{{code: 0}}, "rolled-back", false},
		{"committed, it says, but open", single, faultGuest, []result{{code: 0}}, "committing", false},
		{"committed, it says, but nothing begun", single, faultGuest, []result{{code: 0}}, "", false},
		{"rolled back", single, faultAPI, []result{{code: 4}}, "rolled-back", true},
		{"rolled back, it says, but committed", single, faultAPI, []result{{code: 4}}, "committed", false},
		{"rolled back, it says, but at work", single, faultAPI, []result{{code: 4}}, "rolling-back", false},
		{"stuck", single, faultAPI, []result{{code: 5}}, "stuck", true},
		{"stuck, it says, but open", single, faultAPI, []result{{code: 5}}, "rolling-back", false},
		{"unusable and left open", single, faultSSH, []result{{code: 7}}, "rolling-back", true},
		{"unusable, it says, but committed", single, faultSSH, []result{{code: 7}}, "committed", false},
		{"killed", single, faultTwice, []result{{code: -1}}, "running", true},
		{"killed before its first process", single, faultSavepoint, nil, "", true},
		{"dead, but not by us", single, faultGuest, []result{{code: -1}}, "running", false},
		{"crashed", single, faultGuest, []result{{code: 2}}, "running", false},
		{"internal error", single, faultGuest, []result{{code: 1}}, "rolled-back", false},
		{"hung", single, faultGuest, []result{{code: hung}}, "running", false},
		{"the whole script", several, faultGuest, []result{{args: []string{"tx", "begin"}}, {args: []string{"tx", "commit"}}}, "committed", true},
		{"a part of the script", several, faultGuest, []result{{args: []string{"tx", "begin"}}}, "committed", false},
	} {
		r := report{schedule: schedule{plan: c.plan, fault: c.fault}}
		checkExit(&r, &driver{results: c.results}, transaction{State: c.state})
		if ok := len(r.violations) == 0; ok != c.ok {
			t.Errorf("%s: ok %t, want %t: %q", c.name, ok, c.ok, r.violations)
		}
	}
	r := report{schedule: schedule{plan: single}}
	checkExit(&r, &driver{results: []result{{stdout: `{"transaction":"a","state":"committed"}`}}}, transaction{ID: "b", State: "committed"})
	if len(r.violations) != 1 {
		t.Errorf("a result of another transaction: %q", r.violations)
	}
}

// A seed and a number are the round.
func TestSchedule(t *testing.T) {
	seen := map[fault]int{}
	moments := map[int]int{}
	for i := range uint64(600) {
		s := newSchedule(7, i, plans)
		if again := newSchedule(7, i, plans); fmt.Sprintf("%+v", again) != fmt.Sprintf("%+v", s) {
			t.Fatalf("round %d: %+v, and then %+v", i, s, again)
		}
		seen[s.fault]++
		moments[int(s.at*10)]++
	}
	for _, f := range faults {
		if seen[f] != 100 {
			t.Errorf("%d rounds of fault %s, want 100", seen[f], f)
		}
	}
	if len(moments) != 10 {
		t.Errorf("the faults come at the tenths %v only", maps.Collect(maps.All(moments)))
	}
	if fmt.Sprint(newSchedule(7, 0, plans)) == fmt.Sprint(newSchedule(8, 0, plans)) {
		t.Error("the seed is of no importance")
	}
}

// What a plan writes differs from round to round, or a round would not show
// whether it ran.
func TestPlansChangeSomething(t *testing.T) {
	agent := user{"agent", "1000:1000"}
	for _, p := range plans {
		before := tree{"/workspace": {kind: "d"}}
		for n := range uint64(6) {
			after := before.after(p.user(agent), p.changes(n, agent))
			if diff(before, after) == "" {
				t.Errorf("%s, round %d: nothing is changed", p.name, n)
			}
			before = after
		}
	}
}
