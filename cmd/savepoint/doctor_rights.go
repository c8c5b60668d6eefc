package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"savepoint/configs"
	"savepoint/network"
	"savepoint/orchestrator/provision"
	"savepoint/proxmox"
)

// use is what our token has to be able to do, as far as it is known now.
func (d *doctor) use(ctx context.Context) proxmox.Use {
	use := intended(d.cfg)
	for _, site := range d.sites {
		for _, t := range site.Templates {
			if !d.usable(site.Name) {
				continue
			}
			use.Templates = append(use.Templates, t.VM)
			for _, s := range t.Storages {
				use.Storages = oneMore(use.Storages, s)
			}
		}
	}
	if use.Zones { // once they are there, those are asked for that sandboxes are plugged into
		if vnets := d.vnets(ctx); len(vnets) > 0 {
			use.Zones, use.VNets = false, vnets
		}
	}
	if len(use.ImportStorages) == 0 {
		use.ImportStorages = d.importing()
	}
	if len(use.Downloads) > 0 {
		use.Downloads = nil
		for _, f := range d.usableFacts() {
			use.Downloads = append(use.Downloads, f.Node)
		}
	}
	use.Peers = use.Peers && d.asksAddresses()
	use.LookAt = d.online()
	return use
}

// asksAddresses reports whether the cluster has to say its nodes' addresses: the
// configuration does not name them all, as what zones are built between and as
// what no sandbox may reach.
func (d *doctor) asksAddresses() bool {
	n := d.cfg.Network
	if len(n.Peers) == 0 && slices.ContainsFunc(n.Tenants, func(t configs.Tenant) bool { return t.Zone != "simple" }) {
		return true
	}
	return slices.ContainsFunc(d.sites, func(s proxmox.Site) bool {
		return !slices.ContainsFunc(n.Places, func(p configs.Place) bool { return p.Role == string(network.RoleNode) && p.Name == s.Name })
	})
}

// importing is where a template's image would be put: the first storage of each
// node that takes such files.
func (d *doctor) importing() []string {
	var out []string
	for _, f := range d.usableFacts() {
		for _, s := range f.Storages.Value {
			if s.Active && slices.Contains(s.Content, "import") {
				out = oneMore(out, s.ID)
				break
			}
		}
	}
	return out
}

func oneMore(list []string, s string) []string {
	if s == "" || slices.Contains(list, s) {
		return list
	}
	return append(list, s)
}

// privileges compares what our token may do with what is needed: by every
// sandbox, which is a problem, or by one command alone.
func (d *doctor) privileges(ctx context.Context) {
	const check = "privileges"
	missing, err := d.s.cluster.MissingPrivileges(ctx, d.version, d.use(ctx))
	if err != nil {
		d.problem(check, err)
		return
	}
	built := slices.ContainsFunc(d.sites, func(s proxmox.Site) bool { return len(s.Templates) > 0 })
	whole := true
	later, said := map[string][]string{}, map[string]bool{}
	for _, m := range missing {
		what := fmt.Sprintf("%s on %s", strings.Join(m.AnyOf, " or "), m.Path)
		if said[what] { // for something more important
			continue
		}
		said[what] = true
		level := levelWarning
		switch m.Only {
		case "":
			level, whole = levelProblem, false
		case proxmox.ForDoctor:
			if d.blind && m.Path != "/" { // granted on top it holds there too
				continue
			}
		case proxmox.ForGC:
			later[m.Only] = append(later[m.Only], what)
			continue
		case proxmox.ForTemplates:
			if built { // by somebody else, it seems
				later[m.Only] = append(later[m.Only], what)
				continue
			}
		}
		only := cmp.Or(m.Only, "every sandbox")
		d.add(check, level, fmt.Sprintf("%s is missing on %s, needed by %s for %s", strings.Join(m.AnyOf, " or "), m.Path, only, m.For),
			d.grant(m.Path, m.Role, together(missing, m)))
	}
	if whole {
		d.ok(check, "the token may do all that sandboxes need")
	}
	for _, command := range []string{proxmox.ForTemplates, proxmox.ForGC} {
		if l := later[command]; len(l) > 0 {
			d.ok(check, "not granted, and needed by %s alone: %s", command, strings.Join(l, ", "))
		}
	}
}

// together are all missing privileges that are granted with one.
func together(missing []proxmox.Privilege, with proxmox.Privilege) []string {
	var out []string
	for _, m := range missing {
		if m.Path == with.Path && m.Role == with.Role {
			out = oneMore(out, m.AnyOf[0])
		}
	}
	return out
}

// grant is the command that gives our token privileges on a path, whether the
// role is there or not. A token whose privileges are separated has only its own,
// and no more than its user.
func (d *doctor) grant(path, role string, privs []string) string {
	list := fmt.Sprintf("%q", strings.Join(privs, " "))
	return fmt.Sprintf(`if pveum role list --output-format json | grep -q '"roleid":"%s"'; then pveum role modify %s --append 1 --privs %s; else pveum role add %s --privs %s; fi && %s`,
		role, role, list, role, list, aclCommand(path, d.cfg.Cluster.TokenID, role))
}

func aclCommand(path, token, role string) string {
	user, _, _ := strings.Cut(token, "!")
	return fmt.Sprintf("pveum acl modify %s --users %s --tokens '%s' --roles %s", path, user, token, role)
}

// vnets are the running networks of our tenants, as rights are given on them.
func (d *doctor) vnets(ctx context.Context) []string {
	r, err := d.s.journal.Networks(ctx)
	if err != nil {
		return nil
	}
	var out []string
	for key, v := range r.Applied.VNets {
		tenant, _, _ := strings.Cut(key, "/")
		out = append(out, r.Applied.Zones[tenant].ID+"/"+v.ID)
	}
	slices.Sort(out)
	return out
}

// template looks at each template that sandboxes are cloned from.
func (d *doctor) template(ctx context.Context) {
	const check = "template"
	built := slices.ContainsFunc(d.sites, func(s proxmox.Site) bool { return len(s.Templates) > 0 })
	d.imports(built)
	if !built {
		d.problem(check, provision.NoTemplate(d.cfg.Sandbox.Template))
		return
	}
	for _, site := range d.sites {
		for _, t := range site.Templates {
			f, err := d.s.cluster.TemplateFacts(ctx, t.VM)
			if err != nil {
				d.problem(check, err)
				continue
			}
			d.oneTemplate(t, f)
		}
	}
}

// imports looks for where each node would take a template's image. Where there is a
// template already it is of use to building alone.
func (d *doctor) imports(built bool) {
	const check = "template"
	id := ""
	if image := d.cfg.Template.Image; !strings.Contains(image, "://") {
		id, _, _ = strings.Cut(image, ":")
	}
	for _, f := range d.usableFacts() {
		if f.Storages.Err != nil {
			continue
		}
		_, missing := proxmox.ImportStorage(f.Node, id, f.Storages.Value)
		switch {
		case missing == nil:
		case built:
			d.ok(check, "%s; savepoint template build needs it: %s", missing.What, missing.Mend)
		default:
			d.problem(check, missing)
		}
	}
}

func (d *doctor) oneTemplate(t proxmox.Source, f proxmox.TemplateFacts) {
	const check = "template"
	before := len(d.findings)
	wrong := func(level, what, mend string) {
		d.add(check, level, fmt.Sprintf("%s, %s, %s", t.Name, t.VM, what), mend)
	}
	qmSet := func(option string) string { return fmt.Sprintf("on %s: qm set %d %s", t.VM.Node, t.VM.ID, option) }
	if !f.Agent {
		wrong(levelProblem, "has no guest agent: the host keys of sandboxes cannot be read", qmSet("--agent 1")+"; the guest needs qemu-guest-agent")
	}
	if !f.CloudInit {
		wrong(levelProblem, "has no cloud-init drive: sandboxes get no address", qmSet("--ide2 "+t.Storage+":cloudinit"))
	}
	if !f.Linked && !d.cfg.Sandbox.FullClone {
		wrong(levelProblem, "cannot be cloned without copying its disks", "set sandbox.full_clone, or build it on a storage that can: savepoint template build")
	}
	for _, disk := range f.Disks {
		store, _ := d.storageOn(t.VM.Node, disk.Storage)
		if disk.Raw && !store.SnapshotsRaw() && !d.cfg.Sandbox.FullClone {
			wrong(levelProblem, fmt.Sprintf("has %s as a raw file on storage %s, which takes no snapshots", disk.Slot, disk.Storage),
				"build it on a ZFS, LVM-thin, RBD or qcow2 storage: savepoint template build")
		}
	}
	if s := d.cfg.Workspace.Storage; s != "" && !slices.ContainsFunc(f.Disks, func(x proxmox.TemplateDisk) bool { return x.Storage == s && x.Slot == workspaceSlot }) {
		wrong(levelProblem, "has no workspace volume "+workspaceSlot+" on "+s+", which workspace.storage asks for", "build it again: savepoint template build")
	}
	if len(d.findings) == before {
		d.ok(check, "%s is %s, with guest agent and cloud-init", t.Name, t.VM)
	}
}

// workspaceSlot is where a template has the workspace volume.
const workspaceSlot = "scsi1"
