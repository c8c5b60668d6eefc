package pve

import "savepoint/testbed/pve/schema"

// table is the whole API.
func table() []route {
	var all []route
	for _, part := range [][]route{rootTable(), accessTable(), clusterTable(), poolTable(), nodeTable(), storageTable(), qemuTable(), agentTable(), sdnTable(), sdnNodeTable(), firewallTable(), factsTable()} {
		all = append(all, part...)
	}
	return all
}

type params = []schema.Param

func rootTable() []route {
	return []route{
		{method: "GET", path: "/", perm: users, handler: index("subdir", "version", "cluster", "nodes", "storage", "access", "pools")},
		{method: "GET", path: "/version", perm: users, handler: readVersion},
	}
}

func clusterTable() []route {
	return []route{
		{method: "GET", path: "/cluster", perm: users, handler: index("name", "backup", "nextid", "replication", "resources", "sdn", "status", "tasks")},
		{method: "GET", path: "/cluster/nextid", perm: users, handler: nextID, params: params{
			schema.Int("vmid").Opt().Fmt("pve-vmid").Range(100, 999999999),
		}},
		{method: "GET", path: "/cluster/replication", perm: users, handler: listReplication},
		{method: "GET", path: "/cluster/resources", perm: users, handler: resources, params: params{
			schema.Str("type").Opt().OneOf("vm", "storage", "node", "sdn"),
		}},
		{method: "GET", path: "/cluster/status", perm: perm("/", "Sys.Audit"), handler: clusterStatus},
		{method: "GET", path: "/cluster/tasks", perm: users, handler: clusterTasks},
	}
}

func poolTable() []route {
	allocate := perm("/pool/{poolid}", "Pool.Allocate")
	poolid := schema.Str("poolid").Fmt("pve-poolid")
	kind := schema.Str("type").Opt().OneOf("qemu", "lxc", "storage")
	members := params{
		poolid,
		schema.Str("comment").Opt(),
		schema.Str("vms").Opt().Fmt("pve-vmid-list"),
		schema.Str("storage").Opt().Fmt("pve-storage-id-list"),
		schema.Bool("delete").Opt(),
		schema.Bool("allow-move").Opt(),
	}
	return []route{
		{method: "GET", path: "/pools", perm: users, handler: listPools, params: params{poolid.Opt(), kind.Needs("poolid")}},
		{method: "POST", path: "/pools", perm: allocate, handler: createPool, params: params{poolid, schema.Str("comment").Opt()}},
		{method: "PUT", path: "/pools", perm: allocate, handler: updatePool, params: members},
		{method: "DELETE", path: "/pools", perm: allocate, handler: deletePool, params: params{poolid}},
		{method: "GET", path: "/pools/{poolid}", perm: perm("/pool/{poolid}", "Pool.Audit"), handler: readPool, params: params{kind}},
		{method: "PUT", path: "/pools/{poolid}", perm: allocate, handler: updatePool, params: members},
		{method: "DELETE", path: "/pools/{poolid}", perm: allocate, handler: deletePool},
	}
}

func nodeTable() []route {
	const node = "/nodes/{node}"
	audit := perm(node, "Sys.Audit")
	return []route{
		{method: "GET", path: "/nodes", perm: users, handler: listNodes},
		{method: "GET", path: node, perm: users, handler: index("name", "apt", "certificates", "lxc", "network", "qemu", "sdn", "status", "storage", "subscription", "tasks", "time", "version")},
		{method: "GET", path: node + "/status", perm: audit, proxy: true, handler: nodeStatus},
		{method: "GET", path: node + "/version", perm: users, proxy: true, handler: readVersion},
		{method: "GET", path: node + "/time", perm: audit, proxy: true, handler: nodeTime},
		{method: "GET", path: node + "/lxc", perm: users, proxy: true, handler: listContainers},
		{method: "GET", path: node + "/network", perm: users, proxy: true, handler: listNetworks, params: params{
			schema.Str("type").Opt().OneOf("bridge", "bond", "eth", "alias", "vlan", "OVSBridge", "OVSBond", "OVSPort", "OVSIntPort", "vnet", "any_bridge", "any_local_bridge").To("8"),
			schema.Str("type").Opt().OneOf("bridge", "bond", "eth", "alias", "vlan", "fabric", "OVSBridge", "OVSBond", "OVSPort", "OVSIntPort", "vnet", "any_bridge", "any_local_bridge", "include_sdn").From("9"),
		}},
		{method: "PUT", path: node + "/network", perm: perm(node, "Sys.Modify"), proxy: true, handler: reloadNetwork, params: params{
			schema.Bool("regenerate-frr").Opt().From("9"),
		}},
		{method: "GET", path: node + "/tasks", perm: users, proxy: true, handler: listTasks, params: params{
			schema.Int("start").Opt().Min(0),
			schema.Int("limit").Opt().Min(0),
			schema.Str("userfilter").Opt(),
			schema.Str("typefilter").Opt(),
			schema.Int("vmid").Opt().Fmt("pve-vmid").Range(100, 999999999),
			schema.Bool("errors").Opt(),
			schema.Str("source").Opt().OneOf("archive", "active", "all"),
			schema.Int("since").Opt(),
			schema.Int("until").Opt(),
			schema.Str("statusfilter").Opt().Fmt("pve-task-status-type-list"),
		}},
		{method: "GET", path: node + "/tasks/{upid}", perm: users, handler: index("name", "log", "status")},
		{method: "DELETE", path: node + "/tasks/{upid}", perm: users, proxy: true, handler: stopTask},
		{method: "GET", path: node + "/tasks/{upid}/status", perm: users, proxy: true, handler: taskStatus},
		{method: "GET", path: node + "/tasks/{upid}/log", perm: users, proxy: true, handler: taskLog, params: params{
			schema.Int("start").Opt().Min(0),
			schema.Int("limit").Opt().Min(0),
			schema.Bool("download").Opt(),
		}},
	}
}

func storageTable() []route {
	const of = "/nodes/{node}/storage/{storage}"
	read := anyOf("/storage/{storage}", "Datastore.Audit", "Datastore.AllocateSpace")
	kinds := []string{"btrfs", "cephfs", "cifs", "dir", "esxi", "iscsi", "iscsidirect", "lvm", "lvmthin", "nfs", "pbs", "rbd", "zfs", "zfspool"}
	kinds8 := []string{"btrfs", "cephfs", "cifs", "dir", "esxi", "glusterfs", "iscsi", "iscsidirect", "lvm", "lvmthin", "nfs", "pbs", "rbd", "zfs", "zfspool"}
	return []route{
		{method: "GET", path: "/storage", perm: users, handler: listStorageConfig, params: params{
			schema.Str("type").Opt().OneOf(kinds8...).To("8"),
			schema.Str("type").Opt().OneOf(kinds...).From("9"),
		}},
		{method: "GET", path: "/storage/{storage}", perm: perm("/storage/{storage}", "Datastore.Allocate"), handler: readStorageConfig},
		{method: "GET", path: "/nodes/{node}/storage", perm: users, proxy: true, handler: listStorages, params: params{
			schema.Str("storage").Opt().Fmt("pve-storage-id"),
			schema.Str("content").Opt().Fmt("pve-storage-content-list"),
			schema.Bool("enabled").Opt(),
			schema.Str("target").Opt().Fmt("pve-node"),
			schema.Bool("format").Opt(),
		}},
		{method: "GET", path: of, perm: read, handler: index("subdir", "content", "download-url", "status", "upload")},
		{method: "GET", path: of + "/status", perm: read, proxy: true, handler: storageStatus},
		{method: "GET", path: of + "/content", perm: read, proxy: true, handler: listContent, params: params{
			schema.Str("content").Opt().Fmt("pve-storage-content"),
			schema.Int("vmid").Opt().Fmt("pve-vmid").Range(100, 999999999),
		}},
		{method: "GET", path: of + "/content/{volume}", perm: users, proxy: true, handler: readContent, params: params{
			schema.Str("storage").Opt().Fmt("pve-storage-id"),
		}},
		{method: "DELETE", path: of + "/content/{volume}", perm: users, proxy: true, handler: deleteContent, params: params{
			schema.Str("storage").Opt().Fmt("pve-storage-id"),
			schema.Int("delay").Opt().Range(1, 30),
		}},
		{method: "POST", path: of + "/upload", perm: perm("/storage/{storage}", "Datastore.AllocateTemplate"), upload: true, handler: postUpload, params: params{
			schema.Str("content").Fmt("pve-storage-content").OneOf("iso", "vztmpl", "import"),
			schema.Str("filename").Len(255),
			schema.Str("checksum").Opt().Needs("checksum-algorithm"),
			schema.Str("checksum-algorithm").Opt().OneOf("md5", "sha1", "sha224", "sha256", "sha384", "sha512").Needs("checksum"),
			schema.Str("tmpfilename").Opt().Match(`/var/tmp/pveupload-[0-9a-f]+`),
		}},
		{
			method: "POST", path: of + "/download-url", proxy: true, handler: postDownload,
			perm: both(perm("/storage/{storage}", "Datastore.AllocateTemplate"), either(perm("/", "Sys.Audit", "Sys.Modify"), perm("/nodes/{node}", "Sys.AccessNetwork"))),
			params: params{
				schema.Str("content").Fmt("pve-storage-content").OneOf("iso", "vztmpl", "import"),
				schema.Str("filename").Len(255),
				schema.Str("url").Match(`https?://.*`),
				schema.Str("checksum").Opt().Needs("checksum-algorithm"),
				schema.Str("checksum-algorithm").Opt().OneOf("md5", "sha1", "sha224", "sha256", "sha384", "sha512").Needs("checksum"),
				schema.Str("compression").Opt(),
				schema.Bool("verify-certificates").Opt(),
			},
		},
	}
}
