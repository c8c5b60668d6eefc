package orchestrator

import (
	"errors"
	"strings"
	"testing"
	"time"
)

func allStates() []State {
	return []State{"", StateBegun, StateSnapshotted, StateRunning, StateRan, StateCommitting, StateCommitted,
		StateRollingBack, StateRestored, StateRolledBack, StateStuck, StateDenied, StateOpen, StateSaving, StateReturning, StatePrepared}
}

func allEvents() map[string]bool {
	events := map[string]bool{"nonsense": true}
	for _, t := range table() {
		events[t.event] = true
	}
	return events
}

// Every pair of state and event is either in the table or a *TransitionError.
func TestTable(t *testing.T) {
	m := newMoves()
	allowed := map[[2]string]State{}
	for _, line := range table() {
		key := [2]string{string(line.from), line.event}
		if _, twice := allowed[key]; twice {
			t.Errorf("%v is in the table twice", key)
		}
		allowed[key] = line.to
	}
	for _, from := range allStates() {
		for event := range allEvents() {
			to, err := m.next("tx", from, event)
			want, ok := allowed[[2]string{string(from), event}]
			var te *TransitionError
			switch {
			case ok && (err != nil || to != want):
				t.Errorf("%s in %q: got %q, %v; want %q", event, from, to, err, want)
			case !ok && (!errors.As(err, &te) || te.From != from || te.Event != event):
				t.Errorf("%s in %q: got %q, %v; want a *TransitionError", event, from, to, err)
			}
		}
	}
}

// The shape of the table: what must not be possible whatever is added.
func TestTableShape(t *testing.T) {
	edges := map[State]map[State]bool{}
	for _, line := range table() {
		if edges[line.from] == nil {
			edges[line.from] = map[State]bool{}
		}
		edges[line.from][line.to] = true
	}
	for _, s := range allStates() {
		for to := range edges[s] {
			if s.Final() && to != s {
				t.Errorf("final state %s leads to %s", s, to)
			}
			if to == StateCommitted && s != StateCommitting && s != StateCommitted {
				t.Errorf("%s leads to committed past the commit point", s)
			}
			if to == StateRolledBack && s != StateRestored && s != StateRolledBack {
				t.Errorf("%s leads to rolled-back without a proof", s)
			}
			if s == StateCommitting && to != StateCommitted && to != StateStuck {
				t.Errorf("past the commit point there is a way to %s", to)
			}
		}
		// Every state has a way to a final one.
		reach, queue := map[State]bool{s: true}, []State{s}
		for len(queue) > 0 {
			for to := range edges[queue[0]] {
				if !reach[to] {
					reach[to] = true
					queue = append(queue, to)
				}
			}
			queue = queue[1:]
		}
		if !reach[StateCommitted] && !reach[StateRolledBack] && !reach[StateDenied] {
			t.Errorf("%s has no end", s)
		}
	}
}

// Records that do not fit are refused when they are read.
func TestApplyRefuses(t *testing.T) {
	m := newMoves()
	begin := Record{Tx: "a", State: StateBegun, Event: evBegin, Data: []byte(`{"boundary":"disk"}`)}
	severalBegun := Record{Tx: "a", State: StateBegun, Event: evBegin, Data: []byte(`{"boundary":"disk","snapshot":"sp-a","several":{"idle_ns":1}}`)}
	for name, rs := range map[string][]Record{
		"wrong first":   {{Tx: "a", State: StateRan, Event: evRan, Data: []byte(`{}`)}},
		"wrong state":   {{Tx: "a", State: StateCommitted, Event: evBegin, Data: []byte(`{}`)}},
		"no data":       {{Tx: "a", State: StateBegun, Event: evBegin}},
		"broken data":   {{Tx: "a", State: StateBegun, Event: evBegin, Data: []byte(`{`)}},
		"lost record":   {begin, {Tx: "a", State: StateCommitting, Event: evCommit, Data: []byte(`{}`)}},
		"unknown event": {begin, {Tx: "a", State: StateBegun, Event: "from-the-future"}},
		"begun twice":   {begin, begin},
		"open with one command": {begin,
			{Tx: "a", State: StateSnapshotted, Event: evSnapshot, Data: []byte(`{}`)}, {Tx: "a", State: StateOpen, Event: evOpen}},
		"return to nowhere": {severalBegun,
			{Tx: "a", State: StateSnapshotted, Event: evSnapshot, Data: []byte(`{}`)}, {Tx: "a", State: StateOpen, Event: evOpen},
			{Tx: "a", State: StateReturning, Event: evReturn, Data: []byte(`{"n":1}`)}},
		"a step's end without a step": {severalBegun,
			{Tx: "a", State: StateSnapshotted, Event: evSnapshot, Data: []byte(`{}`)}, {Tx: "a", State: StateOpen, Event: evOpen},
			{Tx: "a", State: StateRan, Event: evValidate}, {Tx: "a", State: StateOpen, Event: evOpen}},
		"a step in a denied one": {
			{Tx: "a", State: StateDenied, Event: evDeny, Data: []byte(`{}`)}, {Tx: "a", State: StateRunning, Event: evRun, Data: []byte(`{}`)}},
		"after its end": {{Tx: "a", State: StateDenied, Event: evDeny, Data: []byte(`{}`)}, begin},
	} {
		tx, err := &Transaction{}, error(nil)
		for _, r := range rs {
			if err = tx.apply(m, r); err != nil {
				break
			}
		}
		if err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

func TestSnapshotNames(t *testing.T) {
	id := NewTxID(time.Unix(1700000000, 0))
	for n, length := range map[int]int{0: 29, 1: 31, 10: 32, maxPoints: 34} {
		name := pointName(id, n)
		if len(name) != length || len(name) > 40 {
			t.Errorf("%s has %d characters", name, len(name))
		}
		if got, ok := TxOf(name); !ok || got != id {
			t.Errorf("TxOf(%s) = %s, %t", name, got, ok)
		}
	}
	name := SnapshotOf(id)
	if name != pointName(id, 0) {
		t.Errorf("the begin's snapshot is %s and %s", name, pointName(id, 0))
	}
	// F123: near misses are not ours.
	for _, miss := range []SnapshotName{
		"", "sp-", "sp-pristine", name + "x", "x" + name, name[:28], SnapshotName(strings.ToUpper(string(name))), "sp_" + name[3:], name + "\n",
		name + "-", name + "-0", name + "-01", name + "-10000", name + "-1x", name + "-1\n", name + "--1", name + "-1-1", name + "-undo", name + "-1-undo",
	} {
		if id, ok := TxOf(miss); ok {
			t.Errorf("TxOf(%q) = %s", miss, id)
		}
	}
}

func TestSavepointNames(t *testing.T) {
	for name, want := range map[string]bool{
		"a": true, "before-tests": true, "v1.2_x": true, "7": true, "BEGIN": true, strings.Repeat("a", 64): true,
		"": false, "begin": false, " a": false, "a b": false, "-a": false, ".a": false, "a\n": false, "a/b": false, "ä": false, strings.Repeat("a", 65): false,
	} {
		if err := pointNamed(name); (err == nil) != want {
			t.Errorf("%q: %v", name, err)
		}
	}
}
