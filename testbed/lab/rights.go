package lab

import (
	"path/filepath"

	"savepoint/testbed/pve"
	"savepoint/testbed/pve/access"
)

// apiConfig gives savepoint's token exactly the rights that it needs, so that
// the lab also shows that they are enough. Backends and storages are not in it.
func apiConfig(o Options) pve.Config {
	version, agent := "9.2", "VM.GuestAgent.FileRead"
	if o.Version == "8" {
		version, agent = "8.4", "VM.Monitor"
	}
	return pve.Config{
		Dir: filepath.Join(o.Dir, "pve"), Nodes: o.nodes(), Version: version,
		Pools: []string{pool}, Bridges: []string{bridge},
		Users: []access.User{
			{ID: user, Tokens: []access.Token{{ID: token}}},
			{ID: admin, Tokens: []access.Token{{ID: token, Shared: true}}},
		},
		Roles: map[string][]string{
			"SavepointPool": {
				"VM.Audit", "VM.Allocate", "VM.Clone", "VM.PowerMgmt", "VM.Snapshot",
				"VM.Config.Disk", "VM.Config.CDROM", "VM.Config.CPU", "VM.Config.Memory", "VM.Config.Network",
				"VM.Config.HWType", "VM.Config.Options", "VM.Config.Cloudinit", "Pool.Audit", agent,
			},
			"SavepointStorage": {"Datastore.AllocateSpace", "Datastore.AllocateTemplate", "Datastore.Audit"},
			"SavepointNetwork": {"SDN.Use"},
			"SavepointFabric":  {"SDN.Allocate", "SDN.Audit"},
		},
		ACL: append(append(grant(o, user), grant(o, user+"!"+token)...),
			access.Entry{Path: "/", Subject: admin, Role: "Administrator"}),
		Logger: o.Log,
	}
}

// grant is what savepoint's user, and its token, may do. The ids of the tenants'
// zones are chosen later, so the right to use them is on all. Roles on a path
// replace those from above it: each path has all that it needs.
func grant(o Options, subject string) []access.Entry {
	list := [][2]string{
		{"/pool/" + pool, "SavepointPool"},
		{"/storage/" + storage, "SavepointStorage"},
		{"/sdn/zones/localnetwork/" + bridge, "SavepointNetwork"},
	}
	if o.Storage == StorageZFS {
		list = append(list, [2]string{"/storage/" + zfsStorage, "SavepointStorage"})
	}
	if o.Network == NetworkEVPN {
		list = append(list, [2]string{"/sdn", "SavepointFabric"}, [2]string{"/sdn/zones", "SavepointFabric"}, [2]string{"/sdn/zones", "SavepointNetwork"})
	}
	var out []access.Entry
	for _, e := range list {
		out = append(out, access.Entry{Path: e[0], Subject: subject, Role: e[1]})
	}
	return out
}
