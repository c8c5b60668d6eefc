package world_test

import (
	"context"
	"testing"

	"savepoint/testbed/sim"
	"savepoint/testbed/sim/world"
)

// Nothing to write is no point and no error.
func TestJournalWritesNothing(t *testing.T) {
	t.Parallel()
	p := &world.Process{C: world.New(world.Options{Sandboxes: 1}), Disk: sim.NewJournal("sim", nil)}
	p.At = func(at world.Point) error { t.Errorf("it passed %s", at); return world.ErrCrash }
	if err := (world.Journal{Journal: p.Disk}).AppendAll(context.Background(), nil); err != nil {
		t.Error(err)
	}
	c := p.Config(nil)
	if err := c.Journal.(world.Journal).AppendAll(context.Background(), nil); err != nil {
		t.Error(err)
	}
}
