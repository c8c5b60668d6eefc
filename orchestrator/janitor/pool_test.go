package janitor

import (
	"testing"

	"savepoint/orchestrator"
)

// A pooled sandbox is one that lives: it is said and left alone, and what is left
// beside it is collected. One whose making was interrupted is removed (F69, F124).
func TestPooledSandboxes(t *testing.T) {
	w := newWorld(t)
	pooled := w.sandbox("sp-a", 9000, orchestrator.SandboxPooled)
	w.taken(pooled, 1, "")
	lost := w.memory(9000, orchestrator.SnapshotOf(txID(2)))
	w.sandbox("sp-b", 9001, orchestrator.SandboxCreating)
	r, err := w.janitor().Clean(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	same(t, "clean", brief(r), []string{
		"note pooled-sandbox vm 9000 on pve1: found",
		"collect orphan-snapshot snapshot " + string(orchestrator.SnapshotOf(txID(1))) + " of vm 9000 on pve1: done",
		"collect unfinished-sandbox sandbox sp-b: done",
		"collect orphan-memory volume " + lost.ID + ": done",
	})
	if w.vms[ref(9000)] == nil || w.vms[ref(9001)] != nil || len(w.names(9000)) != 1 || len(w.volumes) != 0 {
		t.Errorf("vms %v, snapshots %v, volumes %v", w.vms, w.names(9000), w.volumes)
	}
	if got := w.sandboxes[pooled.ID]; got.State != orchestrator.SandboxPooled {
		t.Errorf("it is %s", got.State)
	}
}
