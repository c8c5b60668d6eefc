package main

import (
	"errors"
	"maps"
	"testing"

	"savepoint/proxmox"
	"savepoint/testbed/bench"
	"savepoint/testbed/lab"
)

func TestNodeVersions(t *testing.T) {
	node := func(pve, qemu string) proxmox.NodeFacts {
		f := proxmox.NodeFacts{Version: proxmox.Answer[proxmox.Version]{Value: proxmox.Version{Text: pve}}}
		if f.Packages.Value = map[string]string{"pve-qemu-kvm": qemu}; qemu == "" {
			f.Packages = proxmox.Answer[map[string]string]{Err: errors.New("may not ask")}
		}
		return f
	}
	for name, tt := range map[string]struct {
		nodes     []proxmox.NodeFacts
		pve, qemu string
	}{
		"alike":                    {[]proxmox.NodeFacts{node("9.1.2", "10.1"), node("9.1.2", "10.1")}, "9.1.2", "10.1"},
		"half upgraded":            {[]proxmox.NodeFacts{node("9.1.2", "10.1"), node("9.0.1", "10.1")}, "9.0.1, 9.1.2", "10.1"},
		"packages are not for all": {[]proxmox.NodeFacts{node("9.1.2", "")}, "9.1.2", ""},
	} {
		if got := nodeVersions(tt.nodes); got["pve"] != tt.pve || got["qemu"] != tt.qemu {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// A lab is known by what runs, and not by an address that is another at each start.
func TestOfLab(t *testing.T) {
	e := bench.Environment{
		Accelerator: "the cluster's", Versions: map[string]string{"pve": "9.1", "qemu": "what the API says"},
		Facts: map[string]string{bench.FactCluster: "https://127.0.0.1:40123", bench.FactStorage: "dir", bench.FactImage: "x"},
	}
	ofLab(&e, lab.Status{Accelerator: "tcg", PVEVersion: "9.1", Network: "user", Storage: "qcow2"}, "10.0.2")
	if e.Accelerator != "tcg" || !maps.Equal(e.Versions, map[string]string{"pve": "9.1 (lab)", "qemu": "10.0.2"}) ||
		!maps.Equal(e.Facts, map[string]string{bench.FactCluster: "lab, network user", bench.FactStorage: "qcow2", bench.FactImage: "x"}) {
		t.Errorf("%+v", e)
	}
}
