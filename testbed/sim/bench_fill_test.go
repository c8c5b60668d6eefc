package sim_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"savepoint/orchestrator"
	"savepoint/orchestrator/journal"
	"savepoint/testbed/sim"
	"savepoint/testbed/sim/world"
)

func engineOn(tb testing.TB, c *world.Cluster, j orchestrator.Journal, at func(world.Point) error) *orchestrator.Engine {
	tb.Helper()
	d, err := world.Policy()
	if err != nil {
		tb.Fatal(err)
	}
	p := &world.Process{C: c, Disk: sim.NewJournal("sim", nil), At: at}
	cfg := p.Config(d)
	cfg.Journal, cfg.NewID = j, nil
	e, err := orchestrator.New(cfg)
	if err != nil {
		tb.Fatal(err)
	}
	return e
}

// fill writes a journal of so many finished transactions, copied from one that
// the engine ran, and of open ones: their process died while the command ran.
func fill(tb testing.TB, path string, c *world.Cluster, finished, open int) {
	tb.Helper()
	ctx := context.Background()
	j, err := journal.Open(path, journal.Options{})
	if err != nil {
		tb.Fatal(err)
	}
	defer func() {
		if err := j.Close(); err != nil {
			tb.Fatal(err)
		}
	}()
	mem := sim.NewJournal("sim", nil)
	e := engine(tb, 1, mem)
	spec := single("machine")["commit"]
	spec.Sandbox = world.Box(0)
	if _, err := e.Run(ctx, spec); err != nil {
		tb.Fatal(err)
	}
	if _, err := e.Collect(ctx); err != nil {
		tb.Fatal(err)
	}
	var one []orchestrator.Record
	for r, err := range mem.Records(ctx, "") {
		if err != nil {
			tb.Fatal(err)
		}
		one = append(one, r)
	}
	var batch []orchestrator.Record
	for i := range finished {
		id := orchestrator.TxID(fmt.Sprintf("01jw%022d", i))
		for _, r := range one {
			r.Data = []byte(strings.ReplaceAll(string(r.Data), string(r.Tx), string(id)))
			r.Tx = id
			batch = append(batch, r)
		}
		if len(batch) > 2000 || i == finished-1 {
			if err := j.AppendAll(ctx, batch); err != nil {
				tb.Fatal(err)
			}
			batch = batch[:0]
		}
	}
	var wg sync.WaitGroup
	for i := range open {
		wg.Go(func() {
			e := engineOn(tb, c, dying{j}, nil)
			s := single("machine")["fail"]
			s.Sandbox = world.Box(i)
			_, _ = e.Run(ctx, s)
		})
	}
	wg.Wait()
}

// dying is the journal of a process that dies when its command has run.
type dying struct{ *journal.Journal }

func (d dying) AppendAll(ctx context.Context, rs []orchestrator.Record) error {
	for _, r := range rs {
		if r.Event == "ran" || r.Event == "roll-back" {
			return world.ErrCrash
		}
	}
	return d.Journal.AppendAll(ctx, rs)
}
