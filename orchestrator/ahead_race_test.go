package orchestrator_test

import (
	"context"
	"strings"
	"sync"
	"testing"

	"savepoint/orchestrator"
)

// The engine's own work is never what a sandbox is said to be busy with, at
// whatever moment of it somebody comes.
func TestAheadIsNobodysBusy(t *testing.T) {
	w := newWorld()
	l := seen(t, w, func(_ *examined, c *orchestrator.Config) { c.Ahead = true })
	ctx := context.Background()
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range 500 {
				if err := l.e.Ahead(ctx, w.box, "disk"); err != nil {
					t.Error(err)
					return
				}
				release, err := l.e.Hold(ctx, w.box, "look")
				if err == nil {
					release()
				} else if strings.Contains(err.Error(), "preparing") {
					t.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	if err := l.e.Quiet(ctx); err != nil {
		t.Fatal(err)
	}
}
