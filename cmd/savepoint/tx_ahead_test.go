package main

import (
	"testing"
	"time"

	"savepoint/orchestrator"
)

// tx list leaves out what no command used, unless it is asked for all, or for
// what is not finished: recovery has to settle that.
func TestListOfUsed(t *testing.T) {
	for name, c := range map[string]struct {
		f    txFilter
		used bool
	}{
		"plain": {used: true},
		"all":   {f: txFilter{all: true}},
		"open":  {f: txFilter{Filter: orchestrator.Filter{Open: true}}},
	} {
		if f, err := c.f.filter(time.Now()); err != nil || f.Used != c.used {
			t.Errorf("%s: %t, %v", name, f.Used, err)
		}
	}
	unused := orchestrator.Transaction{Ahead: true, State: orchestrator.StatePrepared}
	if got := whatRan(unused); got != "(a snapshot taken ahead)" {
		t.Errorf("an unused one is %q", got)
	}
	if got := whatRan(orchestrator.Transaction{Ahead: true, Command: "ls"}); got != "ls" {
		t.Errorf("a used one is %q", got)
	}
}
