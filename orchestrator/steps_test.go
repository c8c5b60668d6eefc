package orchestrator_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"savepoint/orchestrator"
)

// A refusal that could not be recorded is still about the command that was
// refused: what the command before it did is not said of this one.
func TestDeniedStepWithoutItsRecord(t *testing.T) {
	for name, fault := range map[string]error{"": nil, "refused": orchestrator.ErrUnavailable, "lost": orchestrator.ErrUnknownOutcome} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w := newWorld()
				l := boot(t, w)
				x := l.begin(orchestrator.BeginSpec{Boundary: "disk"})
				first := exec(t, x, put("one", "/workspace/a"))
				l.p.plan = func(_ int, name string, _ bool) error {
					if name == "journal" && fault != nil {
						return fmt.Errorf("no room: %w", fault)
					}
					return nil
				}
				o, err := x.Exec(context.Background(), orchestrator.StepSpec{Command: forbidden})
				if !errors.Is(err, fault) || (err == nil) != (fault == nil) || o.State != orchestrator.StateDenied {
					t.Errorf("got %s (%s), %v", o.State, o.Reason, err)
				}
				if o.Verdict.Decision != "deny" || o.Verdict.Rule == first.Verdict.Rule || o.Message == "" || len(o.Checks) > 0 {
					t.Errorf("the verdict is %+v, %q, checks %v", o.Verdict, o.Message, o.Checks)
				}
				if noted := err == nil; noted != (o.Step == 2) || !noted && o.Step != 0 {
					t.Errorf("it is step %d", o.Step)
				}
			})
		})
	}
}
