package lab

import (
	"maps"
	"slices"
	"strings"
	"testing"
)

// rightsOf are the token's privileges by path, and the user's have to be the same.
func rightsOf(t *testing.T, o Options) map[string][]string {
	t.Helper()
	o.Dir = t.TempDir()
	o, err := o.Complete()
	if err != nil {
		t.Fatal(err)
	}
	c := apiConfig(o)
	of := map[string]map[string][]string{user: {}, user + "!" + token: {}, admin: {}}
	for _, e := range c.ACL {
		if of[e.Subject] == nil {
			t.Fatalf("an entry for %s", e.Subject)
		}
		of[e.Subject][e.Path] = append(of[e.Subject][e.Path], c.Roles[e.Role]...)
	}
	for path, privs := range of[user+"!"+token] {
		if !slices.Equal(privs, of[user][path]) {
			t.Errorf("%s: the token has %v, its user %v", path, privs, of[user][path])
		}
	}
	return of[user+"!"+token]
}

// TestRights: savepoint's token has nothing on the whole cluster, and on networks
// and storages only what the lab has of them. That a vnet is unused can be said
// only by who sees all guests: with networks it may look at them, and no more.
func TestRights(t *testing.T) {
	for want, o := range map[string]Options{
		"/pool/savepoint /sdn/zones/localnetwork/vmbr0 /storage/local":                                                          {},
		"/pool/savepoint /sdn/zones/localnetwork/vmbr0 /storage/local /storage/local-zfs":                                       {Storage: StorageZFS, Version: "8"},
		"/pool/savepoint /sdn /sdn/controllers /sdn/zones /sdn/zones/localnetwork/vmbr0 /storage/local /vms":                    {Network: NetworkEVPN, Nodes: 3},
		"/pool/savepoint /sdn /sdn/controllers /sdn/zones /sdn/zones/localnetwork/vmbr0 /storage/local /storage/local-zfs /vms": {Network: NetworkEVPN, Storage: StorageZFS},
	} {
		have := rightsOf(t, o)
		if got := strings.Join(slices.Sorted(maps.Keys(have)), " "); got != want {
			t.Errorf("%+v: rights on %s, want %s", o, got, want)
		}
		for path, privs := range have {
			for _, p := range privs {
				if area, _, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/"); !strings.HasPrefix(p, map[string]string{"pool": "VM.", "sdn": "SDN.", "storage": "Datastore.", "vms": "VM.Audit"}[area]) {
					t.Errorf("%+v: %s on %s", o, p, path)
				}
			}
		}
		agent := slices.Contains(have["/pool/savepoint"], "VM.GuestAgent.FileRead")
		if monitor := slices.Contains(have["/pool/savepoint"], "VM.Monitor"); monitor != (o.Version == "8") || agent == monitor {
			t.Errorf("%+v: %v", o, have["/pool/savepoint"])
		}
		if o.Network == NetworkEVPN && !slices.Contains(have["/sdn/zones"], "SDN.Use") || slices.Contains(have["/sdn/zones/localnetwork/vmbr0"], "SDN.Allocate") {
			t.Errorf("%+v: %v", o, have)
		}
	}
}
