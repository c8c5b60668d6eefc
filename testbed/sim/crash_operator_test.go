package sim_test

import (
	"context"
	"testing"
	"time"

	"savepoint/orchestrator"
	"savepoint/testbed/sim/world"
)

// An operator interferes while a command runs, in every way and with every
// boundary; the sandbox comes to its end, with his help only if the cluster
// shows that it is needed. F41, F63, F70, F96, F121.
func TestCrashOperator(t *testing.T) {
	does := map[string]func(c *world.Cluster, sb orchestrator.Sandbox){
		"takes a snapshot":  func(c *world.Cluster, sb orchestrator.Sandbox) { c.TakeSnapshot(sb, "autodaily") },
		"deletes ours":      func(c *world.Cluster, sb orchestrator.Sandbox) { c.DeleteOurs(sb) },
		"gives it away":     func(c *world.Cluster, sb orchestrator.Sandbox) { c.Give(sb, "somebody") },
		"reboots it":        func(c *world.Cluster, sb orchestrator.Sandbox) { c.PowerCycle(sb, true) },
		"switches it off":   func(c *world.Cluster, sb orchestrator.Sandbox) { c.PowerCycle(sb, false) },
		"makes a backup":    func(c *world.Cluster, sb orchestrator.Sandbox) { c.Backup(sb, 3*time.Minute) },
		"changes the key":   func(c *world.Cluster, sb orchestrator.Sandbox) { c.Rekey(sb) },
		"turns the clock":   func(c *world.Cluster, sb orchestrator.Sandbox) { c.Skew(sb, -75*time.Hour) },
		"cuts the network":  func(c *world.Cluster, sb orchestrator.Sandbox) { c.Mute(sb, time.Minute) },
		"leaves it in rest": func(*world.Cluster, orchestrator.Sandbox) {},
	}
	for name, f := range does {
		for _, b := range boundaries {
			t.Run(name+"/"+string(b), func(t *testing.T) {
				t.Parallel()
				bubble(t, func(t *testing.T) {
					var lines []string
					l := newLab(scenario{}, func(s string) { lines = append(lines, s) })
					l.boot(nil)
					go func() {
						time.Sleep(3 * time.Second)
						f(l.c, l.boxes[0])
					}()
					o := l.run(context.Background(), orchestrator.Spec{Command: "echo bad > /workspace/a && sleep 20 && rm /workspace/none", Boundary: b})
					l.calm()
					if len(l.found) > 0 {
						t.Errorf("%s (%s)\n%v\n%s", o.State, o.Reason, l.found, joinLines(lines))
					}
				})
			})
		}
	}
}
