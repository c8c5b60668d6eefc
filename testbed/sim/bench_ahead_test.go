package sim_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"savepoint/orchestrator"
	"savepoint/testbed/sim"
	"savepoint/testbed/sim/world"
)

// turn is how long an agent waits for one command that is committed, in
// simulated time, when it thinks for a while before each.
func turn(t *testing.T, b orchestrator.Boundary, ahead bool, think time.Duration) (each time.Duration) {
	synctest.Test(t, func(t *testing.T) {
		d, err := world.Policy()
		if err != nil {
			t.Fatal(err)
		}
		p := &world.Process{C: world.New(world.Usual(1)), Disk: sim.NewJournal("sim", nil)}
		c := p.Config(d)
		c.Ahead = ahead
		e, err := orchestrator.New(c)
		if err != nil {
			t.Fatal(err)
		}
		const turns = 21
		for n := range turns {
			time.Sleep(think)
			began := time.Now()
			o, err := e.Run(context.Background(), orchestrator.Spec{Sandbox: world.Box(0), Command: "echo new > /workspace/a", Boundary: b})
			if err != nil || o.State != orchestrator.StateCommitted {
				t.Fatalf("turn %d: %s (%s), %v", n, o.State, o.Reason, err)
			}
			if n > 0 { // before the first nobody knows what is needed
				each += time.Since(began) / (turns - 1)
			}
		}
		if err := e.Quiet(context.Background()); err != nil {
			t.Fatal(err)
		}
	})
	return each
}

// A command behind a time to think waits for its own work only: neither for its
// snapshot nor for the deletion of earlier ones. One that comes at once waits no
// longer than without: the rest of what was begun, and its own.
func TestAheadTurn(t *testing.T) {
	for _, b := range boundaries {
		plain, thought := turn(t, b, false, 20*time.Second), turn(t, b, true, 20*time.Second)
		hasty, hurried := turn(t, b, false, 0), turn(t, b, true, 0)
		t.Logf("%-9s thinking 20s: %v without, %v with; at once: %v without, %v with", b, plain, thought, hasty, hurried)
		if thought >= plain || b != "workspace" && thought > plain/3 {
			t.Errorf("%s: a turn takes %v and %v without", b, thought, plain)
		}
		if hurried > hasty*11/10 {
			t.Errorf("%s: at once it takes %v and %v without", b, hurried, hasty)
		}
	}
}
