package janitor

import (
	"strings"
	"testing"

	"savepoint/orchestrator"
)

// Sandboxes whose VM is not as the registry has it are for an operator, and
// nothing is done to them or to what stands in their place (F58, F121, F124).
func TestStrangeSandboxes(t *testing.T) {
	for _, tc := range []struct {
		name  string
		spoil func(*world)
		want  []string
	}{
		{"gone", func(w *world) { delete(w.vms, ref(9000)) }, []string{"operator missing-vm vm 9000 on pve1: found"}},
		{"tags taken", func(w *world) { w.vms[ref(9000)].Ours = false }, []string{"operator lost-owner vm 9000 on pve1: found"}},
		{"another sandbox's", func(w *world) { w.vms[ref(9000)].Sandbox = "sb-other" }, []string{"operator lost-owner vm 9000 on pve1: found"}},
		{"out of sight", func(w *world) { // neither tagged nor in our range
			m := w.vms[ref(9000)]
			delete(w.vms, m.VM.VM)
			m.Ours, m.Instance = false, ""
			m.VM.VM.ID = 500
			w.vms[m.VM.VM] = m
			sb := w.sandboxes["sb-box"]
			sb.VM = m.VM.VM
			w.sandboxes[sb.ID] = sb
		}, []string{"operator lost-owner vm 500 on pve1: found"}},
		{"moved", func(w *world) { w.move(9000, "pve2") }, []string{"operator moved-vm vm 9000 on pve1: found"}},
		{"moved away from a dead node", func(w *world) {
			w.move(9000, "pve2")
			w.asleep = []string{"pve1"}
		}, []string{"operator moved-vm vm 9000 on pve1: found", "note unseen node pve1: found"}},
		{"on a node that is not in the cluster any more", func(w *world) {
			w.move(9000, "pve2")
			sb := w.sandboxes["sb-box"]
			sb.VM.Node = "pve2"
			w.sandboxes[sb.ID] = sb
			w.removed = []string{"pve2"}
		}, []string{"note unseen vm 9000 on pve2: found"}},
		{"being made on a dead node", func(w *world) {
			w.asleep = []string{"pve1"}
			sb := w.sandboxes["sb-box"]
			sb.State = orchestrator.SandboxCreating
			w.sandboxes[sb.ID] = sb
		}, []string{"wait unseen sandbox box: found", "note unseen node pve1: found"}},
		{"on a dead node", func(w *world) { w.asleep = []string{"pve1"} }, []string{"note unseen node pve1: found"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t)
			w.sandbox("box", 9000, orchestrator.SandboxReady)
			tc.spoil(w)
			n := len(w.vms)
			r, err := w.janitor().Clean(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			same(t, "clean", brief(r), tc.want)
			for _, f := range r.Findings {
				if f.Level == LevelOperator && (f.Command == "" || f.Check == "") {
					t.Errorf("no word on what to do: %+v", f)
				}
			}
			if len(w.vms) != n {
				t.Error("a vm was removed")
			}
			if s := w.sandboxes["sb-box"].State; s == orchestrator.SandboxQuarantined || s == orchestrator.SandboxDestroyed {
				t.Errorf("the sandbox is %s", s)
			}
		})
	}
}

func (w *world) move(id int, node string) {
	m := w.vms[ref(id)]
	delete(w.vms, ref(id))
	m.VM.VM.Node = node
	w.vms[m.VM.VM] = m
}

// F57 F65 F73: HA, replication and other snapshot tools on a sandbox are said.
func TestGuards(t *testing.T) {
	w := newWorld(t)
	w.sandbox("box", 9000, orchestrator.SandboxReady)
	w.snap(9000, orchestrator.Snapshot{Name: "autosnap-daily"})
	w.vm(9010, VM{})
	w.guards = []Guard{{VM: 9000, HA: "started", Replication: []string{"pve2"}}, {VM: 9010, HA: "started"}}
	r, err := w.janitor().Look(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	same(t, "look", brief(r), []string{
		"note foreign-snapshot snapshot autosnap-daily of vm 9000 on pve1: found", "note foreign-vm vm 9010 on pve1: found",
		"note ha vm 9000 on pve1: found", "note replication vm 9000 on pve1: found",
	})
}

// F68 F69: which volumes of saved memory are orphans.
func TestMemoryVolumes(t *testing.T) {
	for _, tc := range []struct {
		name  string
		make  func(w *world, box orchestrator.Sandbox)
		level Level // "" = it is left in peace
	}{
		{"no snapshot", func(w *world, _ orchestrator.Sandbox) { w.memory(9000, orchestrator.SnapshotOf(txID(1))) }, LevelCollect},
		{"settled", func(w *world, box orchestrator.Sandbox) {
			w.memory(9000, orchestrator.SnapshotOf(txID(1)))
			w.claim(box, 1, orchestrator.StateRolledBack, true)
		}, LevelCollect},
		{"being taken", func(w *world, box orchestrator.Sandbox) {
			w.memory(9000, orchestrator.SnapshotOf(txID(1)))
			w.claim(box, 1, orchestrator.StateBegun, false)
		}, ""},
		{"of another's transaction", func(w *world, box orchestrator.Sandbox) {
			w.memory(9000, orchestrator.SnapshotOf(txID(1)))
			box.ID = "sb-other"
			w.claim(box, 1, orchestrator.StateRolledBack, true)
		}, ""},
		{"resumed from", func(w *world, _ orchestrator.Sandbox) {
			w.vms[ref(9000)].Saved = w.memory(9000, orchestrator.SnapshotOf(txID(1))).ID
		}, ""},
		{"an operator's", func(w *world, _ orchestrator.Sandbox) { w.memory(9000, "before-upgrade") }, ""},
		{"a suspended vm's", func(w *world, _ orchestrator.Sandbox) { w.memory(9000, "suspend-2026-01-01") }, ""},
		{"near miss", func(w *world, _ orchestrator.Sandbox) { w.memory(9000, orchestrator.SnapshotOf(txID(1))+"x") }, ""},
		{"of a stranger's vm", func(w *world, _ orchestrator.Sandbox) {
			w.vm(500, VM{Instance: "other"})
			w.memory(500, orchestrator.SnapshotOf(txID(1)))
		}, ""},
		{"vm gone, id never ours", func(w *world, _ orchestrator.Sandbox) { w.memory(9050, orchestrator.SnapshotOf(txID(1))) }, ""},
		{"vm gone", func(w *world, _ orchestrator.Sandbox) {
			w.sandbox("old", 9050, orchestrator.SandboxDestroyed)
			delete(w.vms, ref(9050))
			w.memory(9050, orchestrator.SnapshotOf(txID(1)))
		}, LevelOperator},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t)
			tc.make(w, w.sandbox("box", 9000, orchestrator.SandboxReady))
			r, err := w.janitor().Clean(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			var got Level
			for _, f := range r.Findings {
				if f.Kind == KindMemory {
					got = f.Level
				}
			}
			if got != tc.level || (len(w.volumes) == 0) != (tc.level == LevelCollect) {
				t.Errorf("%v, volumes %v; want level %q", brief(r), w.volumes, tc.level)
			}
		})
	}
}

// Descriptions and names that are nearly ours are not ours (F123).
func TestDescribes(t *testing.T) {
	tx, sb := txID(1), orchestrator.SandboxID("sb-box")
	good := "savepoint transaction " + string(tx) + " of sandbox sb-box"
	for text, want := range map[string]bool{
		good: true, good + "\n": true, good + "x": false, "my " + good: false, "": false,
		strings.ToUpper(good): false, good + "\nand more": false,
		"savepoint transaction " + string(txID(2)) + " of sandbox sb-box": false,
		"savepoint transaction " + string(tx) + " of sandbox sb-other":    false,
	} {
		if describes(text, tx, sb) != want {
			t.Errorf("%q: want %t", text, want)
		}
	}
}

func TestNew(t *testing.T) {
	w := newWorld(t)
	good := w.janitor().c
	for name, change := range map[string]func(*Config){
		"no port":     func(c *Config) { c.Ledger = nil },
		"no instance": func(c *Config) { c.Instance = "" },
		"no range":    func(c *Config) { c.Last = c.First - 1 },
	} {
		c := good
		change(&c)
		if _, err := New(c); err == nil {
			t.Errorf("%s was accepted", name)
		}
	}
}
