package orchestrator_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"savepoint/orchestrator"
)

// A command's end can say how the guest is. It then decides as the answer to a
// question would, and there is no question; where it cannot stand for one, there is.
func TestHealthWithTheEnd(t *testing.T) {
	type health = orchestrator.GuestHealth
	plain := orchestrator.Spec{Command: overwrite}
	for _, c := range []struct {
		name   string
		spec   orchestrator.Spec
		told   func(h *health)
		asked  int // after the command
		state  orchestrator.State
		reason string
	}{
		{"well", plain, func(*health) {}, 0, orchestrator.StateCommitted, ""},
		{"nobody takes logins", plain, func(h *health) { h.Services[orchestrator.ServiceSSH] = false }, 0, orchestrator.StateRolledBack, "sshd in the guest is gone"},
		{"nobody takes logins, kept", orchestrator.Spec{Command: overwrite, OnFailure: orchestrator.OnFailureKeep},
			func(h *health) { h.Services[orchestrator.ServiceSSH] = false }, 0, orchestrator.StateRolledBack, "sshd in the guest is gone"},
		{"full", plain, func(h *health) { h.Free[0].Bytes = 1 }, 0, orchestrator.StateRolledBack, "1 bytes are left on /"},
		{"another mark", plain, func(h *health) { h.Generation = "sp-other" }, 0, orchestrator.StateRolledBack, `generation is "sp-other"`},
		{"booted", plain, func(h *health) { h.BootID = "other" }, 0, orchestrator.StateRolledBack, "was rebooted"},
		{"clock off", plain, func(h *health) { h.Clock = h.Clock.Add(3 * time.Second) }, 0, orchestrator.StateRolledBack, "clock is 3.0"},
		{"a long command says too little of the clock", plain, func(h *health) { h.RoundTrip = 501 * time.Millisecond }, 1, orchestrator.StateCommitted, ""},
		{"the longest of which it says enough", plain, func(h *health) { h.RoundTrip = 500 * time.Millisecond }, 0, orchestrator.StateCommitted, ""},
		{"nothing", plain, nil, 1, orchestrator.StateCommitted, ""},
		{"a probe comes after it", orchestrator.Spec{Command: overwrite, Validate: []orchestrator.Validation{{Command: "echo ok"}}},
			func(h *health) { h.Services[orchestrator.ServiceSSH] = false }, 1, orchestrator.StateCommitted, ""},
		{"files are looked at after it", orchestrator.Spec{Command: overwrite, Guard: orchestrator.Guard{Protect: []string{"/workspace/z"}}},
			func(h *health) { h.Services[orchestrator.ServiceSSH] = false }, 1, orchestrator.StateCommitted, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w := newWorld()
				l := seen(t, w, func(g *examined, _ *orchestrator.Config) {
					g.tells = func() *health {
						if c.told == nil {
							return nil
						}
						h, err := g.health()
						if err != nil {
							return nil
						}
						c.told(&h)
						return &h
					}
				})
				o, err := l.run(c.spec)
				if err != nil || o.State != c.state || !strings.Contains(o.Reason, c.reason) {
					t.Errorf("got %s (%s), %v", o.State, o.Reason, err)
				}
				ran := l.p.log[slices.Index(l.p.log, "run"):]
				if i := slices.Index(ran, "disconnect"); i >= 0 {
					ran = ran[:i]
				}
				asked := 0
				for _, call := range ran {
					if call == "health" {
						asked++
					}
				}
				if asked /= 2; asked != c.asked { // a point before each and one after
					t.Errorf("asked %d times how it is, want %d: %s", asked, c.asked, strings.Join(ran, " "))
				}
				if c.state == orchestrator.StateRolledBack && w.files["/workspace/a"] != "old" {
					t.Errorf("not as before: %v", w.files)
				}
			})
		})
	}
}
