package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"savepoint/testbed/lab"
)

// A lab that runs is taken for the one that is asked for only if it is that.
func TestSameLab(t *testing.T) {
	faults := filepath.Join(t.TempDir(), "faults.yaml")
	if err := os.WriteFile(faults, []byte("- {path: /version, drop: true}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	read, err := lab.ReadFaults(faults)
	if err != nil {
		t.Fatal(err)
	}
	st := lab.Status{
		PVEVersion: "9.2.11", Network: "evpn", Storage: "qcow2", Nodes: make([]lab.Node, 3),
		Faults: faults, FaultsDigest: read.Digest,
	}
	for _, f := range []labFlags{
		{}, {nodes: 3, network: "evpn", storage: "qcow2", version: "9", faults: faults}, {faults: faults}, {version: "9"},
	} {
		if err := f.same(st); err != nil {
			t.Errorf("%+v: %v", f, err)
		}
	}
	for want, f := range map[string]labFlags{
		"--nodes 2, and it has 3":         {nodes: 2, network: "evpn"},
		"--network user, and it has evpn": {network: "user"},
		"--storage zfs, and it has qcow2": {storage: "zfs"},
		"--pve 8, and it has 9":           {version: "8", nodes: 3},
	} {
		err := f.same(st)
		if code, _ := exitCode(t.Context(), err); code != exitUsage || !strings.Contains(err.Error(), want) || strings.Count(err.Error(), "and it has") != 1 {
			t.Errorf("%+v: exit code %d, %v; want %q alone", f, code, err, want)
		}
	}
	without := st
	without.Faults, without.FaultsDigest = "", ""
	f := labFlags{faults: faults}
	if err := f.same(without); err == nil || !strings.Contains(err.Error(), "no faults") {
		t.Errorf("faults that it has not: %v", err)
	}
	if err := os.WriteFile(faults, []byte("- {path: /nodes, drop: true}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := f.same(st); err == nil || !strings.Contains(err.Error(), "held when it started") {
		t.Errorf("faults that were edited since: %v", err)
	}
}

// What no lab can have is a usage error, before anything starts.
func TestLabFlagsRefused(t *testing.T) {
	bad := filepath.Join(t.TempDir(), "faults.yaml")
	if err := os.WriteFile(bad, []byte("- {path: /version, nht: 2}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for want, f := range map[string]labFlags{
		"-2 nodes":            {nodes: -2},
		`network "vlan"`:      {network: "vlan"},
		`storage "ceph"`:      {storage: "ceph"},
		`pve "7"`:             {version: "7"},
		"field nht not found": {faults: bad},
		"no such file":        {faults: bad + ".missing"},
	} {
		_, err := f.options(t.TempDir())
		if code, _ := exitCode(t.Context(), err); code != exitUsage || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: exit code %d, %v; want %q", f, code, err, want)
		}
	}
}

// lab serve gets what lab up resolved.
func TestServeArgs(t *testing.T) {
	f := labFlags{nodes: 3}
	o, err := f.options(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	want := "lab serve --state-dir /state --nodes 3 --network user --storage qcow2 --pve 9"
	if got := strings.Join(serveArgs(o, "/state"), " "); got != want {
		t.Errorf("got %s", got)
	}
	o.Faults.File = "/drill.yaml"
	if got := strings.Join(serveArgs(o, "/state"), " "); got != want+" --faults /drill.yaml" {
		t.Errorf("got %s", got)
	}
}

// lab status says in words what isolation there is, and where each node is.
func TestLabRows(t *testing.T) {
	show := func(st lab.Status) string {
		var out bytes.Buffer
		if err := table(&out, "", labRows(st)); err != nil {
			t.Fatal(err)
		}
		return out.String()
	}
	user := show(lab.Status{Network: "user", Storage: "qcow2", IsolationReason: "no zones", Nodes: []lab.Node{{Name: "pve1", Online: true}}})
	if !strings.Contains(user, "not provided: no zones") || !strings.Contains(user, "online") {
		t.Error(user)
	}
	evpn := show(lab.Status{
		Network: "evpn", Storage: "zfs", Isolation: true, JumpAddress: "127.0.0.1:5", Faults: "/drill.yaml",
		Nodes: []lab.Node{{Name: "pve1", Online: true, Address: "100.64.0.1", SSH: "127.0.0.1:7"}, {Name: "pve2"}},
	})
	for _, want := range []string{"kept apart", "online, 100.64.0.1, ssh at 127.0.0.1:7", "offline", "127.0.0.1:5", "/drill.yaml"} {
		if !strings.Contains(evpn, want) {
			t.Errorf("%q is missing in\n%s", want, evpn)
		}
	}
}
