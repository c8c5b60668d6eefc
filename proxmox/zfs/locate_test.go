package zfs_test

import (
	"errors"
	"strings"
	"testing"

	"savepoint/orchestrator"
)

// A volume is found below whichever dataset of ours it is in, and only there.
func TestLocate(t *testing.T) {
	w := newNode(t)
	if got, err := w.client.Locate(t.Context(), "pve1", "vm-104-disk-1"); err != nil || got != volume {
		t.Errorf("%q, %v; want %q", got, err, volume)
	}
	for name, c := range map[string]struct {
		volume string
		class  error
		says   string
	}{
		"none":      {"vm-105-disk-1", orchestrator.ErrNotFound, "tank/sandboxes, other"},
		"a path":    {"../vm-104-disk-1", orchestrator.ErrDenied, "not the name"},
		"nothing":   {"", orchestrator.ErrDenied, "not the name"},
		"elsewhere": {"secret", orchestrator.ErrNotFound, "tank/sandboxes, other"},
	} {
		w.pool(func(p *pool) { p.Datasets["foreign/secret"] = &dataset{Props: map[string]string{}, Txg: 3, Made: 1} })
		if got, err := w.client.Locate(t.Context(), "pve1", c.volume); !errors.Is(err, c.class) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %q, %v; want %v saying %q", name, got, err, c.class, c.says)
		}
	}
	w.pool(func(p *pool) {
		p.Datasets["other/vm-104-disk-1"] = &dataset{Props: map[string]string{}, Txg: 2, Made: 1}
	})
	if got, err := w.client.Locate(t.Context(), "pve1", "vm-104-disk-1"); !errors.Is(err, orchestrator.ErrDenied) || !strings.Contains(err.Error(), "several") {
		t.Errorf("in two: %q, %v; want it refused", got, err)
	}
}
