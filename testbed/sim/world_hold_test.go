package sim_test

import (
	"testing"
	"time"

	"savepoint/testbed/conformance"
	"savepoint/testbed/sim"
	"savepoint/testbed/sim/world"
)

// The guests of the simulated cluster run a few words and no shell, so the
// part of the suite that needs none is what they can keep.
func TestWorldHolds(t *testing.T) {
	conformance.Hold(t, func(*testing.T) conformance.ExecutorUnderTest {
		c := world.New(world.Options{Sandboxes: 1})
		p := &world.Process{C: c, Disk: sim.NewJournal("sim", nil)}
		return conformance.ExecutorUnderTest{
			Executor: p, Guest: p, Sandbox: world.Box(0), Permit: permit, OtherKey: "ssh-ed25519 another",
		}
	}, conformance.ExecutorCaps{Clock: true, Slack: 20 * time.Millisecond})
}
