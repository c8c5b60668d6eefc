package network

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// F103: what is taken away is the text "deleted", whatever its type.
func TestNewObject(t *testing.T) {
	for _, tt := range []struct {
		name             string
		state            State
		running, edits   Fields
		wantRun, wantEnd Fields
	}{
		{"settled", Settled, Fields{"zone": "a"}, nil, Fields{"zone": "a"}, Fields{"zone": "a"}},
		{"settled without options", Settled, nil, nil, Fields{}, Fields{}},
		{"new", New, Fields{"type": "evpn"}, Fields{"vrf-vxlan": "9000"}, nil, Fields{"type": "evpn", "vrf-vxlan": "9000"}},
		{"changed", Changed, Fields{"zone": "a", "tag": "5"}, Fields{"tag": "6"}, Fields{"zone": "a", "tag": "5"}, Fields{"zone": "a", "tag": "6"}},
		{"an option less", Changed, Fields{"zone": "a", "tag": "5"}, Fields{"tag": "deleted"}, Fields{"zone": "a", "tag": "5"}, Fields{"zone": "a"}},
		{"deleted", Deleted, Fields{"zone": "a"}, Fields{}, Fields{"zone": "a"}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := NewObject(KindZone, "z", tt.state, tt.running, tt.edits)
			want := Object{KindZone, "z", tt.state, tt.wantRun, tt.wantEnd}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}
