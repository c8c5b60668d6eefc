package proxmox

import (
	"slices"
	"testing"

	"savepoint/orchestrator"
)

// The cluster lists snapshots in random order.
func TestOrdered(t *testing.T) {
	e := func(name, parent string, at int64) snapshotEntry {
		return snapshotEntry{Name: name, Parent: parent, SnapTime: flexInt(at)}
	}
	for name, tc := range map[string]struct {
		h    history
		want []orchestrator.SnapshotName
	}{
		"none":                 {history{}, nil},
		"chain":                {history{parent: "c3", entries: []snapshotEntry{e("c2", "a1", 2), e("c3", "c2", 3), e("a1", "", 1)}}, []orchestrator.SnapshotName{"a1", "c2", "c3"}},
		"a clock went back":    {history{parent: "c", entries: []snapshotEntry{e("c", "b", 1), e("b", "a", 5), e("a", "", 9)}}, []orchestrator.SnapshotName{"a", "b", "c"}},
		"branches, by time":    {history{parent: "r", entries: []snapshotEntry{e("l1", "r", 4), e("k1", "r", 2), e("k2", "k1", 3), e("r", "", 1)}}, []orchestrator.SnapshotName{"r", "k1", "k2", "l1"}},
		"parent is gone":       {history{entries: []snapshotEntry{e("b", "a", 2), e("x", "gone", 1)}}, []orchestrator.SnapshotName{"x", "b"}},
		"same second, by name": {history{entries: []snapshotEntry{e("b", "", 1), e("a", "", 1)}}, []orchestrator.SnapshotName{"a", "b"}},
		"ring":                 {history{entries: []snapshotEntry{e("b", "a", 1), e("a", "b", 2), e("c", "", 3)}}, []orchestrator.SnapshotName{"c", "b", "a"}},
	} {
		t.Run(name, func(t *testing.T) {
			var got []orchestrator.SnapshotName
			current := 0
			for _, s := range ordered(tc.h) {
				got = append(got, s.Name)
				if s.Current {
					current++
					if string(s.Name) != tc.h.parent {
						t.Errorf("%s is current", s.Name)
					}
				}
			}
			if !slices.Equal(got, tc.want) {
				t.Errorf("got %q, want %q", got, tc.want)
			}
			if (current == 1) != (tc.h.parent != "") {
				t.Errorf("%d are current", current)
			}
		})
	}
	h := history{parent: "d", entries: []snapshotEntry{e("a", "", 1), e("b", "a", 2), e("c", "b", 3), e("d", "c", 4), e("x", "a", 5)}}
	if got := newerThan(h, "b"); !slices.Equal(got, []orchestrator.SnapshotName{"c", "d"}) {
		t.Errorf("newer than b: %q", got)
	}
	if got := newerThan(h, "d"); got != nil {
		t.Errorf("newer than d: %q", got)
	}
}

// "current" is the present state, "Current" a snapshot like any other.
func TestHistory(t *testing.T) {
	s := newScripted(t)
	s.always("GET /nodes/pve1/qemu/100/snapshot", answer{data: []map[string]any{
		{"name": "Current", "parent": "s1", "snaptime": 5, "vmstate": 0, "description": ""},
		{"name": "current", "parent": "Current", "running": 1, "digest": "x", "description": "You are here!"},
		{"name": "s1", "snaptime": "4", "vmstate": "1", "description": "first", "snapstate": "delete"},
	}})
	got, err := s.open(t).Snapshots().List(t.Context(), testVM)
	if err != nil || len(got) != 2 {
		t.Fatalf("got %+v, %v", got, err)
	}
	if got[0].Name != "s1" || !got[0].Memory || got[0].Incomplete != "delete" || got[0].Taken.Unix() != 4 || got[0].Current {
		t.Errorf("got %+v", got[0])
	}
	if got[1].Name != "Current" || !got[1].Current || got[1].Memory {
		t.Errorf("got %+v", got[1])
	}
}

// A token with rights on its pool only gets 403 for a VM that does not exist;
// whether it exists is asked for elsewhere.
func TestMissingOrForbidden(t *testing.T) {
	for _, tc := range []struct {
		name   string
		nextid answer
		want   error
	}{
		{"no such vm", answer{data: "100"}, orchestrator.ErrNotFound},
		{"somebody else's", answer{status: 400, message: "Parameter verification failed.", errors: map[string]string{"vmid": "VM 100 already exists"}}, orchestrator.ErrDenied},
		{"not to be told", answer{status: 500, message: "strange"}, orchestrator.ErrDenied},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := newScripted(t)
			s.always("GET /nodes/pve1/qemu/100/config", answer{status: 403, message: "Permission check failed (/vms/100, VM.Audit)"})
			s.always("GET /cluster/nextid", tc.nextid)
			_, err := s.open(t).VMs().Status(t.Context(), testVM)
			wantClass(t, err, tc.want)
			if vmMissing(err) != (tc.want == orchestrator.ErrNotFound) {
				t.Errorf("missing = %v", vmMissing(err))
			}
			err = s.open(t).VMs().Destroy(t.Context(), orchestrator.VMRequest{Sandbox: "x", VM: testVM})
			if (err == nil) != (tc.want == orchestrator.ErrNotFound) {
				t.Errorf("destroy: %v", err)
			}
		})
	}
}
