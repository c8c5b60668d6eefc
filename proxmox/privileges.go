package proxmox

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"savepoint/orchestrator"
)

// Use is what savepoint shall be able to do, so that the privileges for it can
// be asked for.
type Use struct {
	Templates []orchestrator.VMRef // to clone from
	Pooled    bool                 // templates are in the pool, whatever their ids
	Storages  []string             // for disks and saved memory
	// Bridges are the plain bridges of sandboxes, and those of the template's own
	// network card: a clone begins on them, wherever it is plugged in later.
	Bridges []string
	VNets   []string // "zone/vnet" of sandboxes
	Zones   bool     // sandboxes are in zones of ours whose ids are not known yet

	ManageSDN bool // make zones and vnets
	Peers     bool // ask the cluster for its nodes' addresses

	ImportStorages []string // for images of templates; empty = templates are not built
	Downloads      []string // nodes that fetch an image by themselves

	Collect bool     // delete volumes of saved memory that nobody owns
	Look    bool     // see quorum, backup jobs, and which nodes are in maintenance
	LookAt  []string // nodes whose clock, packages, memory and tasks are to be seen
}

// The commands that privileges can be for. Sandboxes need the others.
const (
	ForNetworks  = "savepoint network apply"
	ForTemplates = "savepoint template build"
	ForGC        = "savepoint gc"
	ForDoctor    = "savepoint doctor"
)

// Privilege is one right on one path. Any of AnyOf is enough.
type Privilege struct {
	Path  string
	AnyOf []string
	For   string // what it is needed for
	// Only is the command that alone needs it; "" = every sandbox does.
	Only string
	Role string // the role that set-up puts it into
}

func (p Privilege) String() string {
	return fmt.Sprintf("%s on %s (for %s)", strings.Join(p.AnyOf, " or "), p.Path, p.For)
}

// The roles that set-up makes.
const (
	roleSandbox  = "SavepointSandbox"
	roleTemplate = "SavepointTemplate"
	roleStorage  = "SavepointStorage"
	roleNetwork  = "SavepointNetwork"
	roleZone     = "SavepointZone"
	roleFabric   = "SavepointFabric"
	roleGuests   = "SavepointGuests"
	roleBuild    = "SavepointBuild"
	roleUpload   = "SavepointUpload"
	roleDownload = "SavepointDownload"
	roleCollect  = "SavepointCollect"
	roleLook     = "SavepointLook"
)

// Privileges is [Privileges] for the pool of the cluster's configuration.
func (c *Cluster) Privileges(v Version, use Use) []Privilege { return Privileges(c.cfg.Pool, v, use) }

// Privileges is the minimal set for a use on a release: nothing beyond what this
// program's calls need. PVE 9 has no VM.Monitor, PVE 8 no VM.GuestAgent.
func Privileges(pool string, v Version, use Use) []Privilege {
	l := &privileges{}
	l.sandboxes("/pool/"+pool, v, use)
	l.networks(use)
	l.templates("/pool/"+pool, use)
	if use.Collect {
		for _, s := range use.Storages {
			l.need(roleCollect, "/storage/"+s, "deleting volumes of saved memory that nobody owns", ForGC, "Datastore.Allocate")
		}
	}
	if use.Look {
		l.need(roleLook, "/", "seeing quorum, backup jobs and nodes in maintenance", ForDoctor, "Sys.Audit")
	}
	for _, n := range use.LookAt {
		l.need(roleLook, nodePath(n), "seeing its clock, packages, memory and tasks", ForDoctor, "Sys.Audit")
	}
	return l.list
}

// privileges is a list in the making.
type privileges struct{ list []Privilege }

// need adds rights on a path; those that are joined by "|" stand for each other.
func (l *privileges) need(role, path, why, only string, names ...string) {
	for _, n := range names {
		l.list = append(l.list, Privilege{Path: path, AnyOf: strings.Split(n, "|"), For: why, Only: only, Role: role})
	}
}

func (l *privileges) sandboxes(pool string, v Version, use Use) {
	need := func(why string, names ...string) { l.need(roleSandbox, pool, why, "", names...) }
	need("reading sandboxes", "VM.Audit")
	need("making and removing sandboxes", "VM.Allocate")
	need("configuring sandboxes", "VM.Config.Options", "VM.Config.Cloudinit|VM.Config.Network", "VM.Config.Network")
	need("starting and stopping sandboxes", "VM.PowerMgmt")
	need("snapshots and rollback", "VM.Snapshot")
	if v.Major >= 9 {
		need("reading ssh host keys", "VM.GuestAgent.FileRead|VM.GuestAgent.Unrestricted")
	} else {
		need("reading ssh host keys", "VM.Monitor")
	}
	if use.Pooled {
		l.need(roleTemplate, pool, "cloning the template", "", "VM.Clone", "VM.Audit")
	}
	for _, t := range use.Templates {
		l.need(roleTemplate, fmt.Sprintf("/vms/%d", t.ID), "cloning the template", "", "VM.Clone", "VM.Audit")
	}
	for _, s := range use.Storages {
		l.need(roleStorage, "/storage/"+s, "disks and saved memory", "", "Datastore.AllocateSpace", "Datastore.Audit")
	}
	for _, b := range use.Bridges {
		l.need(roleNetwork, bridgePath(b), "cloning onto the bridge, and attaching sandboxes to it", "", "SDN.Use")
	}
	for _, n := range use.VNets {
		zone, _, _ := strings.Cut(n, "/")
		l.need(roleZone, "/sdn/zones/"+zone, "proving that the zone is sealed", "", "SDN.Audit")
		l.need(roleNetwork, "/sdn/zones/"+n, "attaching sandboxes to the vnet", "", "SDN.Use")
	}
	if use.Zones {
		l.need(roleNetwork, "/sdn/zones", "attaching sandboxes to their networks", "", "SDN.Use")
		l.need(roleZone, "/sdn/zones", "proving that zones are sealed", "", "SDN.Audit")
	}
	if use.Peers {
		l.need(roleLook, "/", "asking the nodes' addresses, which sandboxes must not reach", "", "Sys.Audit")
	}
}

func bridgePath(bridge string) string { return "/sdn/zones/localnetwork/" + bridge }

func (l *privileges) networks(use Use) {
	if !use.ManageSDN {
		return
	}
	l.need(roleFabric, "/sdn", "applying network changes", ForNetworks, "SDN.Allocate")
	l.need(roleFabric, "/sdn/zones", "making zones, and seeing that nodes have them", ForNetworks, "SDN.Allocate", "SDN.Audit")
	l.need(roleFabric, "/sdn/controllers", "making controllers", ForNetworks, "SDN.Allocate")
	l.need(roleGuests, "/vms", "knowing that no guest is on a network that is removed", ForNetworks, "VM.Audit")
}

func (l *privileges) templates(pool string, use Use) {
	if len(use.ImportStorages) == 0 {
		return
	}
	l.need(roleBuild, pool, "building templates", ForTemplates, "VM.Config.Disk", "VM.Config.CPU", "VM.Config.Memory", "VM.Config.HWType", "VM.Config.CDROM")
	for _, s := range use.ImportStorages {
		l.need(roleUpload, "/storage/"+s, "uploading template images", ForTemplates, "Datastore.AllocateTemplate", "Datastore.AllocateSpace", "Datastore.Audit")
	}
	for _, n := range use.Downloads {
		l.need(roleDownload, nodePath(n), "letting the node fetch an image", ForTemplates, "Sys.AccessNetwork")
	}
}

// Role is a set of privileges by name.
type Role struct {
	Name  string
	Privs []string
}

// Grant puts a role on a path. Roles on a path take the place of those that
// would come from above it, so each path is granted all that it needs.
type Grant struct{ Path, Role string }

// Roles sorts privileges into roles and what is to be granted where. Of rights
// that stand for each other the first is taken.
func Roles(all []Privilege) ([]Role, []Grant) {
	var roles []Role
	var grants []Grant
	for _, p := range all {
		i := slices.IndexFunc(roles, func(r Role) bool { return r.Name == p.Role })
		if i < 0 {
			i = len(roles)
			roles = append(roles, Role{Name: p.Role})
		}
		if !slices.Contains(roles[i].Privs, p.AnyOf[0]) {
			roles[i].Privs = append(roles[i].Privs, p.AnyOf[0])
		}
		if g := (Grant{p.Path, p.Role}); !slices.Contains(grants, g) {
			grants = append(grants, g)
		}
	}
	return roles, grants
}

// MissingPrivileges asks the cluster for our own permissions on each path that
// the use needs and returns what is missing, in the order of Privileges. A
// token with separated privileges and no rules of its own misses everything.
func (c *Cluster) MissingPrivileges(ctx context.Context, v Version, use Use) ([]Privilege, error) {
	have := map[string]map[string]flexInt{}
	var missing []Privilege
	for _, p := range c.Privileges(v, use) {
		granted, asked := have[p.Path]
		if !asked {
			var err error
			if granted, err = c.permissions(ctx, p.Path); err != nil {
				return nil, err
			}
			have[p.Path] = granted
		}
		if !slices.ContainsFunc(p.AnyOf, func(n string) bool { _, ok := granted[n]; return ok }) {
			missing = append(missing, p)
		}
	}
	return missing, nil
}

// permissions asks for our own rights on a path. The value says whether a right
// is inherited below the path; that the name is there says that it is granted.
func (c *Cluster) permissions(ctx context.Context, path string) (map[string]flexInt, error) {
	var out map[string]map[string]flexInt
	if err := c.get(ctx, "/access/permissions", url.Values{"path": {path}}, &out); err != nil {
		return nil, explain("ask own permissions on", path, err, false)
	}
	return out[path], nil
}
