package main

import (
	"encoding/json"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"savepoint/configs"
	"savepoint/orchestrator"
	"savepoint/orchestrator/journal"
)

// Only a proof that says sealed counts; one that cannot be read is an error and
// no proof (F101, F108).
func TestPoolProofs(t *testing.T) {
	j, err := journal.Open(filepath.Join(t.TempDir(), "journal.db"), journal.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	at := time.Unix(1_800_000_000, 0).UTC()
	for id, text := range map[orchestrator.SandboxID]string{"sealed": `{"sealed":true}`, "open": `{"sealed":false}`, "odd": `{"sealed":1}`} {
		if err := j.PutProof(t.Context(), id, json.RawMessage(text), at); err != nil {
			t.Fatal(err)
		}
	}
	for id, want := range map[orchestrator.SandboxID]time.Time{"sealed": at, "open": {}, "none": {}} {
		if got, err := (proofs{j}).Proved(t.Context(), id); err != nil || !got.Equal(want) {
			t.Errorf("%s: %v, %v, want %v", id, got, err, want)
		}
	}
	if got, err := (proofs{j}).Proved(t.Context(), "odd"); err == nil || !got.IsZero() {
		t.Errorf("odd: %v, %v", got, err)
	}
}

// The pool is for the tenants of its own, else for the one that new sandboxes
// are for; what a sandbox is made with and keeps is in its recipe.
func TestPoolConfiguration(t *testing.T) {
	tenants := configs.Network{Tenants: []configs.Tenant{{Name: "a", Nodes: []string{"pve1"}}, {Name: "b"}}}
	for name, tc := range map[string]struct {
		cfg  configs.Config
		want []string
	}{
		"none":    {configs.Config{}, []string{""}},
		"first":   {configs.Config{Network: tenants}, []string{"a"}},
		"default": {configs.Config{Network: tenants, Sandbox: configs.Sandbox{Tenant: "b"}}, []string{"b"}},
		"own":     {configs.Config{Network: tenants, Pool: configs.Pool{Tenants: []string{"b", "a"}}}, []string{"b", "a"}},
	} {
		var got []string
		for _, w := range (&session{cfg: tc.cfg}).warm().Wishes {
			got = append(got, w.Tenant)
			if w.Tenant == "a" && !slices.Equal(w.Zone, []string{"pve1"}) {
				t.Errorf("%s: the zone of a is %v", name, w.Zone)
			}
		}
		if !slices.Equal(got, tc.want) {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
	base := configs.Default(t.TempDir())
	recipe := func(change func(*configs.Config)) string {
		c := base
		change(&c)
		return (&session{cfg: c}).recipe()
	}
	same := recipe(func(*configs.Config) {})
	for name, change := range map[string]func(*configs.Config){
		"bridge":    func(c *configs.Config) { c.Sandbox.Bridge = "vmbr9" },
		"workspace": func(c *configs.Config) { c.Workspace.Storage = "tank" },
	} {
		if recipe(change) == same {
			t.Errorf("another %s, the same recipe", name)
		}
	}
	if a, b := recipe(func(c *configs.Config) { c.Network = tenants }), recipe(func(c *configs.Config) { c.Network, c.Sandbox.Bridge = tenants, "vmbr9" }); a != b {
		t.Error("with tenants the bridge is nothing to sandboxes")
	}
}
