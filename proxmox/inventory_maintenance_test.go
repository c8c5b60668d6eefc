package proxmox

import (
	"errors"
	"slices"
	"testing"

	pve "github.com/luthermonson/go-proxmox"

	"savepoint/orchestrator"
)

// The HA manager's word on a node counts; without the right to ask, or without
// an answer, no node is in maintenance.
func TestMaintenance(t *testing.T) {
	lrm := func(node, status string) map[string]any {
		return map[string]any{"id": "lrm:" + node, "type": "lrm", "node": node, "status": node + " (" + status + ", Tue Mar  4 10:11:12 2025)"}
	}
	for _, c := range []struct {
		name   string
		answer answer
		want   []string
	}{
		{"one", answer{data: []any{
			map[string]any{"id": "quorum", "type": "quorum", "node": "pve1", "status": "OK", "quorate": 1},
			map[string]any{"id": "master", "type": "master", "node": "pve1", "status": "pve1 (active, Tue Mar  4 10:11:12 2025)"},
			lrm("pve1", "active"), lrm("pve2", "maintenance mode"), lrm("pve3", "idle"),
			map[string]any{"id": "service:vm:101", "type": "service", "node": "pve3", "sid": "vm:101", "status": "pve3 (maintenance mode)"},
		}}, []string{"pve2"}},
		{"no right", answer{status: 403, message: "Permission check failed (/, Sys.Audit)"}, nil},
		{"no such call", answer{status: 501, message: "Method 'GET /cluster/ha/status/current' not implemented"}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newScripted(t)
			var nodes []map[string]any
			for _, n := range []string{"pve3", "pve2", "pve1"} {
				nodes = append(nodes, map[string]any{"node": n, "status": "online", "maxmem": 1 << 34, "mem": 1 << 30})
				s.always("GET /nodes/"+n+"/qemu", answer{data: []any{}})
			}
			s.always("GET /nodes", answer{data: nodes})
			s.always("GET /cluster/ha/status/current", c.answer)
			s.always("GET /cluster/resources", answer{data: []any{
				map[string]any{"type": "storage", "storage": "ceph", "node": "pve1", "shared": 1, "status": "available"},
				map[string]any{"type": "storage", "storage": "ceph", "node": "pve2", "shared": 1, "status": "unknown"},
				map[string]any{"type": "storage", "storage": "local", "node": "pve1", "shared": 0, "status": "available"},
			}})
			sites, err := s.open(t).Sites(t.Context(), "tpl")
			if err != nil {
				t.Fatal(err)
			}
			var names, kept []string
			for _, n := range sites {
				names = append(names, n.Name)
				if n.Maintenance {
					kept = append(kept, n.Name)
				}
			}
			if !slices.Equal(names, []string{"pve1", "pve2", "pve3"}) || !slices.Equal(kept, c.want) {
				t.Errorf("nodes %v, in maintenance %v; want %v", names, kept, c.want)
			}
			if !slices.Equal(sites[0].Shared, []string{"ceph"}) || len(sites[1].Shared) > 0 {
				t.Errorf("shared %v and %v; want ceph where it works", sites[0].Shared, sites[1].Shared)
			}
		})
	}
}

func TestMemoryAndStorages(t *testing.T) {
	for text, want := range map[string]int64{"": 512, "2048": 2048, "current=1024": 1024, "nonsense": 512} {
		if got := (vmConfig{"memory": text}).memory() >> 20; got != want {
			t.Errorf("memory %q: %d MiB, want %d", text, got, want)
		}
	}
	conf := vmConfig{
		"scsi0": "ceph:vm-100-disk-0,size=3G", "scsi1": "local:100/vm-100-cloudinit.qcow2,media=cdrom", "ide2": "none,media=cdrom",
		"efidisk0": "file=ceph:vm-100-disk-1,efitype=4m", "net0": "virtio,bridge=vmbr0", "scsihw": "virtio-scsi-pci",
	}
	if got := conf.storages(); !slices.Equal(got, []string{"ceph", "local"}) {
		t.Errorf("storages %v", got)
	}
}

// pathed is an answer to a question about VM 100 on pve2.
func pathed(status int, message string) error {
	return &pve.APIError{StatusCode: status, Status: message, Message: message, Path: "/nodes/pve2/qemu/100/config"}
}

// Only a node that was not reached is blamed: for a write whose answer was lost
// nobody knows, and a cluster that does not answer is no node's fault.
func TestBlamedNode(t *testing.T) {
	for _, c := range []struct {
		name  string
		err   error
		write bool
		want  bool
	}{
		{"595", pathed(595, "No route to host"), true, true},
		{"596 of a read", pathed(596, "Connection timed out"), false, true},
		{"596 of a write", pathed(596, "Connection timed out"), true, false},
		{"not in the cluster", pathed(500, "hostname lookup 'pve2' failed - failed to get address info for: pve2"), false, true},
		{"no quorum", pathed(500, "cluster not ready - no quorum?"), true, false},
		{"a proxy in between", pathed(503, "Service Unavailable"), false, false},
	} {
		var node *orchestrator.NodeError
		err := explain("read", "vm 100 on pve2", c.err, c.write)
		if got := errors.As(err, &node); got != c.want || got && node.Node != "pve2" {
			t.Errorf("%s: %v, %+v", c.name, err, node)
		}
	}
}
