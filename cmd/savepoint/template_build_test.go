package main

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"savepoint/proxmox"
)

// Which nodes need a template of their own follows from the storages of all of
// its disks, F85.
func TestTemplateStores(t *testing.T) {
	store := func(id string, shared, active bool, content ...string) proxmox.Storage {
		return proxmox.Storage{ID: id, Shared: shared, Active: active, Content: content}
	}
	stores := []proxmox.Storage{
		store("local", false, true, "images", "import"), store("ceph", true, true, "images"), store("nfs", true, true, "iso"),
		store("down", true, false, "images"), store("zfs", false, true, "images", "rootdir"),
	}
	for _, tt := range []struct {
		disk, workspace string
		missing         string
		shared          bool
	}{
		{"local", "", "", false},
		{"ceph", "", "", true},
		{"ceph", "zfs", "", false}, // one local disk is enough
		{"ceph", "ceph", "", true},
		{"zfs", "zfs", "", false},
		{"nfs", "", "nfs", true}, // takes no disks
		{"down", "", "down", true},
		{"none", "gone", "none gone", true},
	} {
		spec := proxmox.TemplateSpec{Storage: tt.disk}
		if tt.workspace != "" {
			spec.Workspace = &proxmox.TemplateVolume{Storage: tt.workspace}
		}
		missing, shared := templateStores(stores, spec)
		if strings.Join(missing, " ") != tt.missing || shared != tt.shared {
			t.Errorf("%s and %q: missing %q, shared %v; want %q, %v", tt.disk, tt.workspace, missing, shared, tt.missing, tt.shared)
		}
	}
}

func TestLastHost(t *testing.T) {
	for subnet, want := range map[string]string{
		"10.99.0.0/24": "10.99.0.254/24", "10.99.0.7/24": "10.99.0.254/24", "10.0.0.0/8": "10.255.255.254/8", "192.168.4.0/22": "192.168.7.254/22",
		"10.0.0.8/30": "10.0.0.10/30", "10.0.0.8/31": "10.0.0.9/31", "fd00::/64": "fd00::ffff:ffff:ffff:ffff/64",
	} {
		if got := lastHost(netip.MustParsePrefix(subnet)).String(); got != want {
			t.Errorf("%s: %s, want %s", subnet, got, want)
		}
	}
}

func TestAgeOf(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	for want, since := range map[string]time.Time{
		"-": {}, "0s": now.Add(time.Second), "7s": now.Add(-7 * time.Second), "119s": now.Add(-119 * time.Second), "2m": now.Add(-2 * time.Minute),
		"119m": now.Add(-119 * time.Minute), "47h": now.Add(-47 * time.Hour), "400d": now.Add(-400 * 24 * time.Hour),
	} {
		if got := ageOf(since, now); got != want {
			t.Errorf("%s: %s, want %s", now.Sub(since), got, want)
		}
	}
}

func TestNodesInOrder(t *testing.T) {
	nodes := []proxmox.Node{{Name: "pve1"}, {Name: "pve2"}, {Name: "pve3"}}
	names := func(order ...string) (out []string) {
		for _, n := range inOrder(slices.Clone(nodes), order) {
			out = append(out, n.Name)
		}
		return out
	}
	if got := names(); !slices.Equal(got, []string{"pve1", "pve2", "pve3"}) {
		t.Errorf("without an order: %q", got)
	}
	if got := names("pve3", "pve1"); !slices.Equal(got[1:], []string{"pve3", "pve1"}) {
		t.Errorf("got %q", got) // pve2 is not to be used and comes first
	}
}
