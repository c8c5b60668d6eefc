package lab

import (
	"path/filepath"

	"savepoint/proxmox"
	"savepoint/testbed/pve"
	"savepoint/testbed/pve/access"
)

// apiConfig gives savepoint's user and token exactly the rights that savepoint
// asks a cluster's administrator for, so that the lab also shows that they are
// enough. Backends and storages are not in it.
func apiConfig(o Options) pve.Config {
	version, major := "9.2", 9
	if o.Version == "8" {
		version, major = "8.4", 8
	}
	needs := proxmox.Privileges(pool, proxmox.Version{Major: major}, o.use())
	c := pve.Config{
		Dir: filepath.Join(o.Dir, "pve"), Nodes: o.nodes(), Version: version,
		Pools: []string{pool}, Bridges: []string{bridge},
		Users: []access.User{
			{ID: user, Tokens: []access.Token{{ID: token}}},
			{ID: admin, Tokens: []access.Token{{ID: token, Shared: true}}},
		},
		Roles:  map[string][]string{},
		ACL:    []access.Entry{{Path: "/", Subject: admin, Role: "Administrator"}},
		Logger: o.Log,
	}
	roles, grants := proxmox.Roles(needs)
	for _, r := range roles {
		c.Roles[r.Name] = r.Privs
	}
	for _, g := range grants {
		for _, subject := range []string{user, user + "!" + token} {
			c.ACL = append(c.ACL, access.Entry{Path: g.Path, Subject: subject, Role: g.Role})
		}
	}
	return c
}

// use is what savepoint does with the lab. The ids of the tenants' zones are
// chosen later; the addresses of the nodes are in the configuration.
func (o Options) use() proxmox.Use {
	u := proxmox.Use{
		Pooled: true, Storages: []string{storage}, Bridges: []string{bridge},
		ImportStorages: []string{storage},
	}
	if o.Storage == StorageZFS {
		u.Storages = append(u.Storages, zfsStorage)
	}
	if o.Network == NetworkEVPN {
		u.Zones, u.ManageSDN = true, true
	}
	return u
}
