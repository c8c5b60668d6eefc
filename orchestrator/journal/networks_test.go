package journal

import (
	"context"
	"encoding/json"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"savepoint/network"
	"savepoint/orchestrator"
)

// What is ours of the cluster's networks, the lock on them and the proofs of
// isolation outlive the process, and a reader beside it sees them.
func TestNetworks(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	path := filepath.Join(t.TempDir(), "journal.db")
	j := open(t, path, Options{})
	r, err := j.Networks(ctx)
	if none := (network.Allocation{Instance: j.Instance()}); err != nil || !r.Allocation.Equal(none) || !r.Applied.Equal(none) || r.Lock != (network.Lock{}) {
		t.Errorf("at first: %+v, %v", r, err)
	}
	if data, at, err := j.Proof(ctx, "one"); err != nil || data != nil || !at.IsZero() {
		t.Errorf("at first: %s, %s, %v", data, at, err)
	}
	a := &r.Allocation
	a.Controller, a.LastVNI = "cabcd001", 7
	a.Zones = map[string]network.ZoneRecord{"alpha": {ID: "zabcd002", Type: network.EVPN, VRF: 6}}
	a.VNets = map[string]network.VNetRecord{"alpha/main": {ID: "vabcd003", VNI: 7, Subnets: []netip.Prefix{netip.MustParsePrefix("10.20.0.0/24")}}}
	r.Lock = network.Lock{Token: "0199", Asked: time.Unix(1764590400, 0).UTC()}
	other := r
	other.Applied.Instance = "another"
	if err := j.PutNetworks(ctx, other); !errors.Is(err, orchestrator.ErrDenied) {
		t.Errorf("the record of another installation: %v", err)
	}
	measured := time.Unix(1764590500, 0).UTC()
	for _, err := range []error{
		j.PutNetworks(ctx, network.Record{Allocation: r.Applied, Applied: r.Applied}), j.PutNetworks(ctx, r),
		j.PutProof(ctx, "one", json.RawMessage(`{"sealed":false}`), measured.Add(-time.Hour)),
		j.PutProof(ctx, "one", json.RawMessage(`{"sealed":true}`), measured),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, bad := range []struct {
		sb   orchestrator.SandboxID
		data string
		at   time.Time
	}{{"", "{}", measured}, {"one", "{", measured}, {"one", "{}", time.Time{}}} {
		if err := j.PutProof(ctx, bad.sb, json.RawMessage(bad.data), bad.at); !errors.Is(err, orchestrator.ErrDenied) {
			t.Errorf("%+v: %v", bad, err)
		}
	}
	look := func(j *Journal) {
		t.Helper()
		if got, err := j.Networks(ctx); err != nil || !got.Allocation.Equal(r.Allocation) || !got.Applied.Equal(r.Applied) || got.Lock != r.Lock {
			t.Errorf("networks %+v, %v", got, err)
		}
		if data, at, err := j.Proof(ctx, "one"); err != nil || string(data) != `{"sealed":true}` || !at.Equal(measured) {
			t.Errorf("proof %s, %s, %v", data, at, err)
		}
	}
	reader, err := OpenReadOnly(path)
	if err != nil {
		t.Fatal(err)
	}
	look(reader)
	if err := reader.PutNetworks(ctx, r); !errors.Is(err, orchestrator.ErrDenied) {
		t.Errorf("a reader wrote: %v", err)
	}
	if err := errors.Join(reader.Close(), j.Close()); err != nil {
		t.Fatal(err)
	}
	j = open(t, path, Options{})
	look(j)
}

// A record of networks that cannot be read is damage, not an empty record:
// taking it for one would make everything a second time.
func TestNetworksDamaged(t *testing.T) {
	t.Parallel()
	j := open(t, filepath.Join(t.TempDir(), "journal.db"), Options{})
	r, err := j.Networks(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := j.PutNetworks(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	if _, err := j.write.Exec("UPDATE networks SET data = x'7b'"); err != nil {
		t.Fatal(err)
	}
	var damaged *CorruptError
	if _, err := j.Networks(t.Context()); !errors.As(err, &damaged) {
		t.Errorf("got %v", err)
	}
}

// A journal of the fifth schema opens, verifies, and has no networks yet.
func TestSchema5(t *testing.T) {
	t.Parallel()
	script, err := os.ReadFile("testdata/journal-v5.sql")
	if err != nil {
		t.Fatal(err)
	}
	path := build(t, string(script))
	var old *VersionError
	if _, err := OpenReadOnly(path); !errors.As(err, &old) || old.Have != 5 {
		t.Errorf("read an old journal: got %v, want a *VersionError of 5", err)
	}
	j := open(t, path, Options{})
	if rep, err := j.Verify(t.Context()); err != nil || rep.Records != 2 || rep.Head.Seq != 2 {
		t.Errorf("verified: %+v, %v", rep, err)
	}
	if r, err := j.Networks(t.Context()); err != nil || r.Allocation.Instance != "01m7w2y8k8d3dp5dsp75423b49" || len(r.Allocation.Zones) != 0 {
		t.Errorf("networks %+v, %v", r, err)
	}
	if list, err := j.Sandboxes(t.Context()); err != nil || len(list) != 1 || list[0].Name != "dev" {
		t.Errorf("sandboxes %+v, %v", list, err)
	}
}
