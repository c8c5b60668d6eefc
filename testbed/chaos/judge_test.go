package chaos

import (
	"fmt"
	"maps"
	"slices"
	"strings"
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

// The judgement of a proof is tried without a journal: it has to see when there
// is none.
func TestProof(t *testing.T) {
	const sound = `{"sound":true,"records":7,"head":"7:ab"}`
	for _, c := range []struct {
		name    string
		res     result
		problem string // what it has to say; "": it is proved
	}{
		{"sound", result{stdout: sound}, ""},
		{"sound, it says, but fails", result{code: 1, stdout: sound}, "exit code 1"},
		{"a record is wrong", result{code: 1, stdout: `{"sound":false,"record":5,"problem":"it was changed","records":0,"head":""}`}, "record 5: it was changed"},
		{"a record is wrong, but it succeeds", result{stdout: `{"sound":false,"record":5,"problem":"it was changed"}`}, "record 5"},
		{"not sound", result{stdout: `{"sound":false,"records":7,"head":"7:ab"}`}, "proves nothing"},
		{"of no record", result{stdout: `{"sound":true,"records":0,"head":"0:"}`}, "proves nothing"},
		{"without a head", result{stdout: `{"sound":true,"records":7}`}, "proves nothing"},
		{"silent", result{}, "not understood"},
		{"hung", result{code: hung}, "exit code"},
	} {
		head, problem := proof(c.res)
		if (problem == "") != (c.problem == "") || !strings.Contains(problem, c.problem) {
			t.Errorf("%s: %q, want %q", c.name, problem, c.problem)
		}
		if (head == "7:ab") != (problem == "") {
			t.Errorf("%s: the head %q with the problem %q", c.name, head, problem)
		}
	}
}

// A run of enough rounds in which a kind of fault met nothing has not shown
// what it is for.
func TestNeverHit(t *testing.T) {
	play := func(rounds int, spared fault) (all []report) {
		for i := range uint64(rounds) {
			s := newSchedule(7, i, faults, plans)
			all = append(all, report{schedule: s, hit: s.fault != spared, proofs: 2, apart: s.fault != spared})
		}
		return all
	}
	for _, f := range faults {
		got := neverHit(faults, play(enough, f), "")
		if len(got) != 1 || got[0] != fmt.Sprintf("fault %s never hit a transaction, in 5 rounds", f) {
			t.Errorf("%s spared: %q", f, got)
		}
	}
	once := play(enough, faultNode)
	once[len(once)-1].hit = true // the last round of node
	for name, c := range map[string]struct {
		all  []report
		only fault
		want int
	}{
		"none spared":            {play(enough, ""), "", 0},
		"hit once":               {once, "", 0},
		"too few rounds":         {play(enough-1, faultNode), "", 0},
		"no round of a kind":     {onlyOf(play(6*enough, ""), faultSSH), "", len(faults) - 1},
		"one kind, as asked for": {onlyOf(play(6*enough, ""), faultSSH), faultSSH, 0},
		"one kind, and spared":   {onlyOf(play(6*enough, faultSSH), faultSSH), faultSSH, 1},
	} {
		if got := neverHit(faults, c.all, c.only); len(got) != c.want {
			t.Errorf("%s: %q, want %d", name, got, c.want)
		}
	}

	all := play(enough, faultNode)
	missed := neverHit(faults, all, "")
	table := summary(faults, all, missed)
	if !strings.Contains(table, "\n"+missed[0]+"\n") {
		t.Errorf("the table does not say %q:\n%s", missed[0], table)
	}
	lines := strings.Split(table, "\n")
	for _, c := range []struct {
		row, column, want string
	}{
		{"node", "HIT", "0"}, {"api", "HIT", "5"}, {"all", "HIT", "25"},
		{"all", "JOURNAL PROVED", "60"}, {"api", "JOURNAL PROVED", "10"},
		{"node", "BYSTANDER UNTOUCHED", "0"}, {"all", "BYSTANDER UNTOUCHED", "25"},
	} {
		at := strings.Index(lines[0], c.column)
		row := slices.IndexFunc(lines, func(l string) bool { return strings.HasPrefix(l, c.row+" ") })
		if at < 0 || row < 0 {
			t.Fatalf("no %s of %s in\n%s", c.column, c.row, table)
		}
		if got := strings.Fields(lines[row][at:])[0]; got != c.want {
			t.Errorf("%s of %s is %s, want %s", c.column, c.row, got, c.want)
		}
	}
}

func onlyOf(all []report, f fault) (out []report) {
	for _, r := range all {
		if r.fault == f {
			out = append(out, r)
		}
	}
	return out
}

// A seed and a number are the round.
func TestSchedule(t *testing.T) {
	seen := map[fault]int{}
	moments := map[int]int{}
	for i := range uint64(600) {
		s := newSchedule(7, i, faults, plans)
		if again := newSchedule(7, i, faults, plans); fmt.Sprintf("%+v", again) != fmt.Sprintf("%+v", s) {
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
	if fmt.Sprint(newSchedule(7, 0, faults, plans)) == fmt.Sprint(newSchedule(8, 0, faults, plans)) {
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
