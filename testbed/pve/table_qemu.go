package pve

import "savepoint/testbed/pve/schema"

func qemuTable() []route {
	const of = "/nodes/{node}/qemu/{vmid}"
	audit, power := perm("/vms/{vmid}", "VM.Audit"), perm("/vms/{vmid}", "VM.PowerMgmt")
	allocate, snapshot := perm("/vms/{vmid}", "VM.Allocate"), perm("/vms/{vmid}", "VM.Snapshot")
	disk := perm("/vms/{vmid}", privDisk)
	config := anyOf("/vms/{vmid}", privDisk, privCDROM, privCPU, privMemory, privNet, privHW, privOptions, privCI)
	skiplock, digest := schema.Bool("skiplock").Opt(), schema.Str("digest").Opt().Len(40)
	working := schema.Str("import-working-storage").Opt().Fmt("pve-storage-id")
	formats := schema.Str("format").Opt().OneOf("raw", "qcow2", "vmdk")

	change := func(more ...schema.Param) params {
		return append(append(optionParams(),
			schema.Str("delete").Opt().Fmt("pve-configid-list"),
			schema.Str("revert").Opt().Fmt("pve-configid-list"),
			schema.Bool("force").Opt().Needs("delete"),
			skiplock, digest,
		), more...)
	}
	create := append(optionParams(),
		schema.Int("vmid").Fmt("pve-vmid").Range(100, 999999999),
		schema.Str("archive").Opt().Len(255),
		schema.Str("storage").Opt().Fmt("pve-storage-id"),
		schema.Bool("force").Opt().Needs("archive"),
		schema.Bool("unique").Opt().Needs("archive"),
		schema.Bool("live-restore").Opt(),
		schema.Str("pool").Opt().Fmt("pve-poolid"),
		schema.Int("bwlimit").Opt().Min(0),
		schema.Bool("start").Opt(),
		schema.Bool("ha-managed").Opt().From("9"),
		working,
	)
	return []route{
		{method: "GET", path: "/nodes/{node}/qemu", perm: users, proxy: true, handler: listVMs, params: params{schema.Bool("full").Opt()}},
		{method: "POST", path: "/nodes/{node}/qemu", perm: users, proxy: true, handler: createVM, params: create},
		{method: "GET", path: of, perm: users, proxy: true, handler: index("subdir", "agent", "clone", "cloudinit", "config", "feature", "migrate", "pending", "resize", "snapshot", "status", "template", "unlink")},
		{method: "DELETE", path: of, perm: allocate, proxy: true, handler: deleteVM, params: params{
			skiplock, schema.Bool("purge").Opt(), schema.Bool("destroy-unreferenced-disks").Opt(),
		}},

		{method: "GET", path: of + "/config", perm: audit, proxy: true, handler: readConfig, params: params{
			schema.Bool("current").Opt(),
			schema.Str("snapshot").Opt().Fmt("pve-configid").Len(40),
		}},
		{method: "POST", path: of + "/config", perm: config, proxy: true, handler: postConfig, params: change(schema.Int("background_delay").Opt().Range(1, 30), working)},
		{method: "PUT", path: of + "/config", perm: config, proxy: true, handler: putConfig, params: change()},
		{method: "GET", path: of + "/pending", perm: audit, proxy: true, handler: readPending},
		{method: "GET", path: of + "/cloudinit", perm: audit, proxy: true, handler: pendingCloudInit},
		{method: "PUT", path: of + "/cloudinit", perm: perm("/vms/{vmid}", privCI), proxy: true, handler: renewCloudInit},
		{method: "GET", path: of + "/cloudinit/dump", perm: audit, proxy: true, handler: dumpCloudInit, params: params{
			schema.Str("type").OneOf("user", "network", "meta"),
		}},
		{method: "PUT", path: of + "/unlink", perm: disk, proxy: true, handler: unlinkDisks, params: params{
			schema.Str("idlist").Fmt("pve-configid-list"), schema.Bool("force").Opt(),
		}},
		{method: "PUT", path: of + "/resize", perm: disk, proxy: true, handler: resizeVM, params: params{
			schema.Str("disk").OneOf(diskSlots("efidisk0", "tpmstate0")...),
			schema.Str("size").Match(`\+?\d+(\.\d+)?[KMGT]?`),
			skiplock, digest,
		}},
		{method: "POST", path: of + "/template", perm: allocate, proxy: true, handler: postTemplate, params: params{
			schema.Str("disk").Opt().OneOf(diskSlots("efidisk0", "tpmstate0")...),
		}},
		{method: "GET", path: of + "/feature", perm: audit, proxy: true, handler: readFeature, params: params{
			schema.Str("feature").OneOf("snapshot", "clone", "copy"),
			schema.Str("snapname").Opt().Fmt("pve-configid").Len(40),
		}},
		{
			method: "POST", path: of + "/clone", proxy: true, handler: postClone,
			perm: both(perm("/vms/{vmid}", "VM.Clone"), either(perm("/vms/{newid}", "VM.Allocate"), perm("/pool/{pool}", "VM.Allocate").given("pool"))),
			params: params{
				schema.Int("newid").Fmt("pve-vmid").Range(100, 999999999),
				schema.Str("name").Opt().Fmt("dns-name"),
				schema.Str("description").Opt(),
				schema.Str("pool").Opt().Fmt("pve-poolid"),
				schema.Str("snapname").Opt().Fmt("pve-configid").Len(40),
				schema.Str("storage").Opt().Fmt("pve-storage-id"),
				formats,
				schema.Bool("full").Opt(),
				schema.Str("target").Opt().Fmt("pve-node"),
				schema.Int("bwlimit").Opt().Min(0),
			},
		},

		{method: "GET", path: of + "/migrate", perm: perm("/vms/{vmid}", "VM.Migrate"), proxy: true, handler: readMigrate, params: params{schema.Str("target").Opt().Fmt("pve-node")}},
		{method: "POST", path: of + "/migrate", perm: perm("/vms/{vmid}", "VM.Migrate"), proxy: true, handler: postMigrate, params: params{
			schema.Str("target").Fmt("pve-node"),
			schema.Bool("online").Opt(),
			schema.Bool("force").Opt(),
			schema.Str("migration_type").Opt().OneOf("secure", "insecure"),
			schema.Str("migration_network").Opt().Fmt("CIDR"),
			schema.Bool("with-local-disks").Opt(),
			schema.Str("targetstorage").Opt().Fmt("storage-pair-list"),
			schema.Int("bwlimit").Opt().Min(0),
			schema.Bool("with-conntrack-state").Opt().From("9"),
		}},

		{method: "GET", path: of + "/status", perm: users, proxy: true, handler: index("subdir", "current", "start", "stop", "reset", "shutdown", "suspend", "reboot")},
		{method: "GET", path: of + "/status/current", perm: audit, proxy: true, handler: readStatus},
		{method: "POST", path: of + "/status/start", perm: power, proxy: true, handler: postStart, params: params{
			skiplock,
			schema.Str("stateuri").Opt().Len(128),
			schema.Str("migratedfrom").Opt().Fmt("pve-node"),
			schema.Str("migration_type").Opt().OneOf("secure", "insecure"),
			schema.Str("migration_network").Opt().Fmt("CIDR"),
			schema.Str("machine").Opt().PropStr(machineProps()),
			schema.Str("force-cpu").Opt(),
			schema.Str("targetstorage").Opt().Fmt("storage-pair-list"),
			schema.Int("timeout").Opt().Min(0),
			schema.Str("nets-host-mtu").Opt().Match(`net\d+=\d+(,net\d+=\d+)*`),
			schema.Bool("with-conntrack-state").Opt().From("9"),
		}},
		{method: "POST", path: of + "/status/stop", perm: power, proxy: true, handler: postStop, params: params{
			skiplock, schema.Str("migratedfrom").Opt().Fmt("pve-node"), schema.Int("timeout").Opt().Min(0),
			schema.Bool("keepActive").Opt(), schema.Bool("overrule-shutdown").Opt(),
		}},
		{method: "POST", path: of + "/status/shutdown", perm: power, proxy: true, handler: postShutdown, params: params{
			skiplock, schema.Int("timeout").Opt().Min(0), schema.Bool("forceStop").Opt(), schema.Bool("keepActive").Opt(),
		}},
		{method: "POST", path: of + "/status/reboot", perm: power, proxy: true, handler: postReboot, params: params{schema.Int("timeout").Opt().Min(0)}},
		{method: "POST", path: of + "/status/reset", perm: power, proxy: true, handler: postReset, params: params{skiplock}},
		{method: "POST", path: of + "/status/suspend", perm: power, proxy: true, handler: postSuspend, params: params{
			skiplock, schema.Bool("todisk").Opt(), schema.Str("statestorage").Opt().Fmt("pve-storage-id").Needs("todisk"),
		}},
		{method: "POST", path: of + "/status/resume", perm: power, proxy: true, handler: postResume, params: params{skiplock, schema.Bool("nocheck").Opt()}},

		{method: "GET", path: of + "/snapshot", perm: audit, proxy: true, handler: listSnapshots},
		{method: "POST", path: of + "/snapshot", perm: snapshot, proxy: true, handler: postSnapshot, params: params{
			schema.Str("snapname").Fmt("pve-configid").Len(40), schema.Bool("vmstate").Opt(), schema.Str("description").Opt(),
		}},
		{method: "GET", path: of + "/snapshot/{snapname}", perm: users, handler: index("cmd", "rollback", "config")},
		{method: "DELETE", path: of + "/snapshot/{snapname}", perm: snapshot, proxy: true, handler: deleteSnapshot, params: params{schema.Bool("force").Opt()}},
		{method: "GET", path: of + "/snapshot/{snapname}/config", perm: anyOf("/vms/{vmid}", "VM.Snapshot", "VM.Snapshot.Rollback", "VM.Audit"), proxy: true, handler: readSnapshot},
		{method: "PUT", path: of + "/snapshot/{snapname}/config", perm: snapshot, proxy: true, handler: putSnapshot, params: params{schema.Str("description").Opt()}},
		{method: "POST", path: of + "/snapshot/{snapname}/rollback", perm: anyOf("/vms/{vmid}", "VM.Snapshot", "VM.Snapshot.Rollback"), proxy: true, handler: postRollback, params: params{schema.Bool("start").Opt()}},
	}
}

// agentTable has the guest agent's calls: one privilege for all on 8.x, one
// per kind on 9.x.
func agentTable() []route {
	const of = "/nodes/{node}/qemu/{vmid}/agent"
	var all []route
	add := func(method, path string, handler func(*call) (any, error), ps params, privs ...string) {
		r := route{method: method, path: of + path, proxy: true, handler: handler, params: ps}
		old := r
		old.until, old.perm = "8", perm("/vms/{vmid}", "VM.Monitor")
		r.since, r.perm = "9", anyOf("/vms/{vmid}", append(privs, agentAll)...)
		all = append(all, old, r)
	}
	all = append(all, route{method: "GET", path: of, perm: users, proxy: true, open: true, handler: index("name", append(agentNames(), "exec", "exec-status", "file-read", "file-write", "set-user-password")...)})
	add("POST", "", agentOld, params{schema.Str("command").OneOf(agentNames()...)})
	for _, cmd := range agentCommands {
		add(cmd.method, "/"+cmd.name, agentPlain(cmd.name), nil, cmd.privs...)
	}
	add("POST", "/exec", agentExec, params{schema.List("command"), schema.Str("input-data").Opt().Len(65536)})
	add("GET", "/exec-status", agentExecStatus, params{schema.Int("pid")})
	add("GET", "/file-read", agentFileRead, params{
		schema.Str("file"),
		schema.Int("offset").Opt().Min(0).From("9"),
		schema.Int("count").Opt().Range(1, agentFileMax).From("9"),
		schema.Bool("decode").Opt().From("9"),
	}, "VM.GuestAgent.FileRead")
	add("POST", "/file-write", agentFileWrite, params{
		schema.Str("file"), schema.Str("content").Len(60 << 10), schema.Bool("encode").Opt(),
	}, "VM.GuestAgent.FileWrite")
	add("POST", "/set-user-password", agentPassword, params{
		schema.Str("username"), schema.Str("password").AtLeast(5).Len(1024), schema.Bool("crypted").Opt(),
	})
	return all
}
