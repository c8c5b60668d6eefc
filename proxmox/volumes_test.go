package proxmox

import "testing"

// Only the names that the cluster itself gives to saved memory of snapshots are
// taken for that (F123).
func TestParseSaved(t *testing.T) {
	for volid, want := range map[string]SavedMemory{
		"local:9000/vm-9000-state-sp-one.raw":   {Storage: "local", VM: 9000, Snapshot: "sp-one"},
		"local:9000/vm-9000-state-sp-one.qcow2": {Storage: "local", VM: 9000, Snapshot: "sp-one"},
		"local-zfs:vm-9000-state-sp-one":        {Storage: "local-zfs", VM: 9000, Snapshot: "sp-one"},
		"local-zfs:vm-9000-state-a":             {}, // too short for a snapshot's name
		"local-zfs:vm-9000-state-1x":            {},
		"local:9001/vm-9000-state-sp-one.raw":   {}, // in another VM's directory
		"local:9000/vm-9000-disk-0.qcow2":       {},
		"local-zfs:vm-09000-state-sp-one":       {},
		"local-zfs:my-vm-9000-state-sp-one":     {},
		"local:9000/vm-9000-state-sp-one.raw/x": {},
		"vm-9000-state-sp-one":                  {},
		"":                                      {},
	} {
		got, ok := parseSaved(volid)
		if want.Storage != "" {
			want.ID = volid
		}
		if got != want || ok != (want.Storage != "") {
			t.Errorf("%q: %+v, %t; want %+v", volid, got, ok, want)
		}
	}
}
