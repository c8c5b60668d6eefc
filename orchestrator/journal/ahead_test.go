package journal

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"savepoint/orchestrator"
)

// A snapshot taken ahead is found by when its command came, and what was judged
// is in the record of that.
func TestFindAhead(t *testing.T) {
	t.Parallel()
	j, ctx := open(t, filepath.Join(t.TempDir(), "j"), Options{}), context.Background()
	rec := func(tx orchestrator.TxID, at time.Duration, state orchestrator.State, event, data string) orchestrator.Record {
		return orchestrator.Record{At: noon.Add(at), Tx: tx, Sandbox: "box-id", State: state, Event: event, Data: []byte(data)}
	}
	const ahead = `{"sandbox":{"id":"box-id","name":"box"},"boundary":"disk","snapshot":"sp-a","ahead":true}`
	const command = `{"sandbox":{"id":"box-id","name":"box"},"command":"bHM=","verdict":{"decision":"snapshot","rule":"unknown"},"boundary":"disk","snapshot":"sp-a"}`
	for _, tx := range []orchestrator.TxID{"used", "unused"} {
		if err := j.AppendAll(ctx, []orchestrator.Record{
			rec(tx, 0, orchestrator.StateBegun, "begin", ahead), rec(tx, time.Second, orchestrator.StatePrepared, "ahead", `{"boot_id":"b"}`),
		}); err != nil {
			t.Fatal(err)
		}
	}
	if err := j.AppendAll(ctx, []orchestrator.Record{
		rec("used", time.Hour, orchestrator.StateSnapshotted, "adopt", command), rec("used", time.Hour, orchestrator.StateRunning, "run", ""),
	}); err != nil {
		t.Fatal(err)
	}
	for name, f := range map[string]orchestrator.Filter{
		"since": {Since: noon.Add(time.Minute)}, "used": {Used: true, Limit: 5}, "state": {States: []orchestrator.State{orchestrator.StateRunning}},
	} {
		txs, err := orchestrator.List(ctx, j, f)
		if err != nil || len(txs) != 1 || txs[0].ID != "used" || txs[0].Command != "ls" {
			t.Errorf("%s: %v, %v", name, txs, err)
		}
	}
	if txs, err := orchestrator.List(ctx, j, orchestrator.Filter{Sandbox: "box"}); err != nil || len(txs) != 2 {
		t.Errorf("all: %d, %v", len(txs), err)
	}
	n := 0
	for q, err := range orchestrator.Judged(ctx, j) {
		if n++; err != nil || q.Tx != "used" || q.Command != "ls" {
			t.Errorf("judged: %+v, %v", q, err)
		}
	}
	if n != 1 {
		t.Errorf("%d commands were judged", n)
	}
	if rep, err := j.Verify(ctx); err != nil {
		t.Errorf("verify: %+v, %v", rep, err)
	}
}
