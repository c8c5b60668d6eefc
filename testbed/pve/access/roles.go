package access

import (
	"maps"
	"slices"
	"strings"
)

// Superuser is the one user that needs no entries.
const Superuser = "root@pam"

// common are the privileges of every version.
var common = []string{
	"Datastore.Allocate", "Datastore.AllocateSpace", "Datastore.AllocateTemplate", "Datastore.Audit",
	"Group.Allocate", "Mapping.Audit", "Mapping.Modify", "Mapping.Use", "Permissions.Modify",
	"Pool.Allocate", "Pool.Audit", "Realm.Allocate", "Realm.AllocateUser",
	"SDN.Allocate", "SDN.Audit", "SDN.Use",
	"Sys.AccessNetwork", "Sys.Audit", "Sys.Console", "Sys.Incoming", "Sys.Modify", "Sys.PowerMgmt", "Sys.Syslog",
	"User.Modify",
	"VM.Allocate", "VM.Audit", "VM.Backup", "VM.Clone", "VM.Config.CDROM", "VM.Config.CPU", "VM.Config.Cloudinit",
	"VM.Config.Disk", "VM.Config.HWType", "VM.Config.Memory", "VM.Config.Network", "VM.Config.Options",
	"VM.Console", "VM.Migrate", "VM.PowerMgmt", "VM.Snapshot", "VM.Snapshot.Rollback",
}

// Privileges lists what the major version ("8", "9") knows, sorted.
func Privileges(major string) []string {
	all := slices.Clone(common)
	if major < "9" {
		all = append(all, "VM.Monitor")
	} else {
		all = append(all, "VM.Replicate", "VM.GuestAgent.Audit", "VM.GuestAgent.FileRead",
			"VM.GuestAgent.FileWrite", "VM.GuestAgent.FileSystemMgmt", "VM.GuestAgent.Unrestricted")
	}
	slices.Sort(all)
	return all
}

// Who each privilege is meant for, by what it is about; everybody of a later
// list has those of the earlier ones too. What no list names only Administrator
// has.
var (
	forAuditors = []string{
		"Datastore.Audit", "Mapping.Audit", "Pool.Audit", "SDN.Audit", "Sys.Audit", "VM.Audit",
	}
	forUsers = []string{
		"Datastore.AllocateSpace", "Mapping.Use", "SDN.Use", "VM.Backup", "VM.Config.CDROM", "VM.Config.Cloudinit",
		"VM.Console", "VM.GuestAgent.Audit", "VM.PowerMgmt",
	}
	forAdmins = []string{
		"Datastore.Allocate", "Datastore.AllocateTemplate", "Group.Allocate", "Mapping.Modify", "Pool.Allocate",
		"Realm.AllocateUser", "SDN.Allocate", "Sys.Console", "Sys.Syslog", "User.Modify", "VM.Allocate", "VM.Clone",
		"VM.Config.CPU", "VM.Config.Disk", "VM.Config.HWType", "VM.Config.Memory", "VM.Config.Network", "VM.Config.Options",
		"VM.GuestAgent.FileRead", "VM.GuestAgent.FileSystemMgmt", "VM.GuestAgent.FileWrite", "VM.GuestAgent.Unrestricted",
		"VM.Migrate", "VM.Monitor", "VM.Replicate", "VM.Snapshot", "VM.Snapshot.Rollback",
	}
)

// builtin are the roles that exist everywhere.
func builtin(major string) map[string][]string {
	all := Privileges(major)
	pick := func(prefixes string, lists ...[]string) []string {
		out := []string{}
		for _, p := range all {
			for prefix := range strings.SplitSeq(prefixes, "|") {
				if strings.HasPrefix(p, prefix) && slices.Contains(slices.Concat(lists...), p) {
					out = append(out, p)
				}
			}
		}
		return out
	}
	roles := map[string][]string{
		"Administrator":     all,
		"NoAccess":          {},
		"PVEAuditor":        pick("", forAuditors),
		"PVEAdmin":          slices.DeleteFunc(pick("", forAuditors, forUsers, forAdmins), func(p string) bool { return p == "Mapping.Modify" }),
		"PVEUserAdmin":      pick("Group.|Realm.|User.", forAdmins),
		"PVESysAdmin":       pick("Sys.", forAuditors, forAdmins),
		"PVETemplateUser":   {"VM.Audit", "VM.Clone"},
		"PVEDatastoreUser":  pick("Datastore.", forAuditors, forUsers),
		"PVEMappingAuditor": pick("Mapping.", forAuditors),
		"PVEPoolUser":       pick("Pool.", forAuditors),
	}
	for _, area := range []string{"VM", "Datastore", "SDN", "Mapping", "Pool"} {
		roles["PVE"+area+"Admin"] = pick(area+".", forAuditors, forUsers, forAdmins)
	}
	for _, area := range []string{"VM", "SDN", "Mapping"} {
		roles["PVE"+area+"User"] = pick(area+".", forAuditors, forUsers)
	}
	return roles
}

// Special reports whether a role is one of those that exist everywhere.
func Special(major, role string) bool { return builtin(major)[role] != nil }

// Capabilities are the privileges a user has somewhere, by the part of the
// interface they matter to: what a ticket's answer holds.
func (d *Directory) Capabilities(user string) map[string]map[string]int {
	parts := []struct{ name, path, prefix string }{
		{"vms", "/vms", "VM."}, {"storage", "/storage", "Datastore."}, {"access", "/access", "User.|Group."},
		{"nodes", "/nodes", "Sys."}, {"mapping", "/mapping", "Mapping."}, {"dc", "/", "Sys.Audit|Sys.Modify|SDN."},
		{"sdn", "/sdn", "SDN."},
	}
	out := map[string]map[string]int{}
	for _, part := range parts {
		has := map[string]int{}
		for priv := range d.Privs(user, part.path) {
			for prefix := range strings.SplitSeq(part.prefix, "|") {
				if strings.HasPrefix(priv, prefix) || priv == "Permissions.Modify" && part.name != "dc" {
					has[priv] = 1
				}
			}
		}
		out[part.name] = has
	}
	return out
}

// Permissions are the privileges of a principal by path, for the usual paths
// and those that entries name; each privilege's value says whether it reaches
// below. With path it is that path alone.
func (d *Directory) Permissions(principal, path string) map[string]map[string]int {
	paths := map[string]bool{}
	if path != "" {
		paths[path] = true
	} else {
		for _, p := range []string{"/", "/access", "/access/groups", "/nodes", "/pool", "/sdn", "/storage", "/vms"} {
			paths[p] = true
		}
		for _, e := range d.State().ACL {
			paths[e.Path] = true
		}
	}
	out := map[string]map[string]int{}
	for p := range maps.Keys(paths) {
		privs := map[string]int{}
		for priv, below := range d.Privs(principal, p) {
			privs[priv] = 0
			if below {
				privs[priv] = 1
			}
		}
		if len(privs) > 0 {
			out[p] = privs
		}
	}
	return out
}
