package orchestrator_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"savepoint/orchestrator"
)

// The node of a sandbox is gone when recovery begins: it says so at once, keeps
// no other sandbox waiting, calls nothing stuck, and settles the transaction
// when the node is back. What had its commit point needs no node.
func TestRecoverNodeAway(t *testing.T) {
	for _, b := range boundaries {
		for _, at := range []string{"run", "committing"} {
			t.Run(fmt.Sprintf("%s/%s", b, at), func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					w := newWorld()
					l := boot(t, w)
					if at == "run" {
						l.p.plan = func(_ int, name string, after bool) error {
							if name == "run" && after {
								return errCrash
							}
							return nil
						}
					}
					if _, err := l.run(orchestrator.Spec{Command: overwrite, Boundary: b}); (err == nil) != (at == "committing") {
						t.Fatal(err)
					}
					if at == "committing" { // it died behind its commit point
						i := slices.IndexFunc(w.records, func(r orchestrator.Record) bool { return r.State == orchestrator.StateCommitting })
						w.records = w.records[:i+1]
					}
					l = boot(t, w)
					asked := map[string]bool{"status": true, "list": true, "rollback": true, "stop": true, "start": true, "find": true, "await": true, "delete": true}
					away := true
					l.p.plan = func(_ int, name string, _ bool) error {
						if away && asked[name] {
							return fmt.Errorf("%s %s: %w", name, w.box.VM, &orchestrator.NodeError{Node: w.box.VM.Node})
						}
						return nil
					}
					began := time.Now()
					outs, err := l.e.Recover(context.Background())
					if at == "committing" {
						if err != nil || len(outs) != 1 || outs[0].State != orchestrator.StateCommitted {
							t.Fatalf("%+v, %v; want it committed without the node", outs, err)
						}
						return
					}
					var node *orchestrator.NodeError
					if !errors.As(err, &node) || node.Node != "pve1" || time.Since(began) > 0 {
						t.Errorf("after %s: %v; want at once that pve1 is out of reach", time.Since(began), err)
					}
					if len(outs) != 1 || outs[0].State == orchestrator.StateStuck || outs[0].State.Final() {
						t.Errorf("%+v; want it open", outs)
					}
					away = false
					outs, err = l.e.Recover(context.Background())
					if err != nil || len(outs) != 1 || outs[0].State != orchestrator.StateRolledBack {
						t.Fatalf("when it is back: %+v, %v", outs, err)
					}
					files(t, w, before())
				})
			})
		}
	}
}
