package lab

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"savepoint/testbed/fabric"
)

func TestComplete(t *testing.T) {
	fresh, err := Options{Dir: filepath.Join(t.TempDir(), "missing")}.Complete()
	if err != nil || fresh.Nodes != 1 || fresh.Network != NetworkUser || fresh.Storage != StorageQCOW2 || fresh.Version != "9" {
		t.Errorf("a new lab: %+v, %v", fresh, err)
	}
	dir := t.TempDir()
	made := Options{Dir: dir, Nodes: 3, Network: NetworkEVPN, Storage: StorageZFS, Version: "8"}
	if err := made.record(); err != nil {
		t.Fatal(err)
	}
	again, err := Options{Dir: dir}.Complete()
	if err != nil || again.Nodes != 3 || again.Network != NetworkEVPN || again.Storage != StorageZFS || again.Version != "8" {
		t.Errorf("as it was: %+v, %v", again, err)
	}
	more, err := Options{Dir: dir, Nodes: 4, Version: "9"}.Complete()
	if err != nil || more.Nodes != 4 || more.Version != "9" || more.Network != NetworkEVPN {
		t.Errorf("one more node, another version: %+v, %v", more, err)
	}
	for want, o := range map[string]Options{
		"3 nodes":         {Nodes: 2},
		"network is evpn": {Network: NetworkUser},
		"disks are on":    {Storage: StorageQCOW2},
	} {
		o.Dir = dir
		_, err := o.Complete()
		if !errors.Is(err, ErrOptions) || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "--purge") {
			t.Errorf("%v; want %q and what to do", err, want)
		}
	}
	if err := os.WriteFile(madeFile(dir), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := (Options{Dir: dir}).Complete(); err == nil || !strings.Contains(err.Error(), madeFile(dir)) {
		t.Errorf("%v; want the file", err)
	}
}

func TestCheck(t *testing.T) {
	for want, change := range map[string]func(*Options){
		`pve "7"`:       func(o *Options) { o.Version = "7" },
		"-1 nodes":      func(o *Options) { o.Nodes = -1 },
		"17 nodes":      func(o *Options) { o.Nodes = 17 },
		`network "vpn"`: func(o *Options) { o.Network = "vpn" },
		`storage "lvm"`: func(o *Options) { o.Storage = "lvm" },
	} {
		o, err := Options{Dir: t.TempDir()}.Complete()
		if err != nil || o.Check() != nil {
			t.Fatalf("the usual: %v, %v", err, o.Check())
		}
		change(&o)
		if err := o.Check(); !errors.Is(err, ErrOptions) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v; want %q", err, want)
		}
	}
}

// A lab that this user cannot have says what is missing, and what works.
func TestCheckPrivileged(t *testing.T) {
	o, err := Options{Dir: t.TempDir(), Network: NetworkEVPN}.Complete()
	if err != nil {
		t.Fatal(err)
	}
	if os.Geteuid() == 0 {
		t.Setenv("PATH", t.TempDir()) // no ip, bridge and nft
	}
	if err := o.Check(); !errors.Is(err, fabric.ErrUnavailable) || !strings.Contains(err.Error(), "network user works without it") {
		t.Errorf("%v; want the reason and what works", err)
	}
}

// Nothing is made in the directory of a lab that was made otherwise.
func TestServeOtherwise(t *testing.T) {
	dir := t.TempDir()
	if err := (Options{Dir: dir, Nodes: 3, Network: NetworkUser, Storage: StorageQCOW2, Version: "9"}).record(); err != nil {
		t.Fatal(err)
	}
	var r report
	err := Serve(t.Context(), Options{Dir: dir, Nodes: 1, Report: &r})
	if !errors.Is(err, ErrOptions) || !r.closed {
		t.Errorf("%v, told %t", err, r.closed)
	}
	if m, err := Before(dir); err != nil || m.Nodes != 3 {
		t.Errorf("after: %+v, %v", m, err)
	}
	if _, err := os.Stat(filepath.Join(dir, "pve")); err == nil {
		t.Error("it began")
	}
}
