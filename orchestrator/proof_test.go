package orchestrator_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"savepoint/orchestrator"
)

// The network of a sandbox in a zone is proved again after the whole VM was
// restored, and only then (F108): a workspace has no network card.
func TestProofAfterRollback(t *testing.T) {
	for _, c := range []struct {
		name   string
		tenant string
		spec   orchestrator.Spec
		want   int
	}{
		{"machine", "alpha", root, 1},
		{"workspace", "alpha", orchestrator.Spec{Command: damage}, 0},
		{"no tenant", "", root, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w := newWorld()
				w.box.Tenant = c.tenant
				o, err := boot(t, w).run(c.spec)
				if err != nil || o.State != orchestrator.StateRolledBack {
					t.Fatalf("got %s (%s), %v", o.State, o.Reason, err)
				}
				if w.counts["prove"] != c.want {
					t.Errorf("%d proofs in a rollback of %s; want %d", w.counts["prove"], o.Boundary, c.want)
				}
			})
		})
	}
}

// A proof that cannot be made is none: it is tried again until it can, and the
// rollback is not repeated for it. Without anything to measure with, it is stuck.
func TestProofNotMade(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld()
		w.box.Tenant = "alpha"
		tries := 0
		w.hooks["prove"] = func(context.Context) error {
			if tries++; tries < 3 {
				return fmt.Errorf("no peer answers: %w", orchestrator.ErrUnavailable)
			}
			return nil
		}
		o, err := boot(t, w).run(root)
		if err != nil || o.State != orchestrator.StateRolledBack || tries != 3 || w.counts["rollback"] != 1 {
			t.Errorf("got %s (%s), %v, after %d tries and %d rollbacks; want 3 and 1", o.State, o.Reason, err, tries, w.counts["rollback"])
		}
		w.hooks["prove"] = func(context.Context) error { return fmt.Errorf("no peer answers: %w", orchestrator.ErrUnavailable) }
		l := boot(t, w)
		o, err = l.run(root)
		if !errors.Is(err, orchestrator.ErrUnavailable) || o.State != orchestrator.StateRollingBack {
			t.Errorf("got %s (%s), %v; want it open, to be gone on with", o.State, o.Reason, err)
		}
	})
	bubble(t, func(t *testing.T) {
		w := newWorld()
		w.box.Tenant = "alpha"
		o, err := boot(t, w, func(c *orchestrator.Config) { c.Prover = nil }).run(root)
		if err != nil || o.State != orchestrator.StateStuck || !strings.Contains(o.Reason, "nothing is configured to measure it") {
			t.Errorf("got %s (%s), %v; want it stuck", o.State, o.Reason, err)
		}
	})
}
