package main

import (
	"slices"
	"strings"

	"savepoint/proxmox"
)

// gcTitle says what the part of its own does: nothing of the others needs it.
const gcTitle = "OPTIONAL: for savepoint gc to delete orphan volumes of saved memory. Without it\n\t# they are listed. With it the token may delete any volume of these storages, those\n\t# of other VMs too: only for storages that are savepoint's alone."

// parts are what the privileges are for, in the order of the script.
var parts = []struct{ only, title string }{
	{"", "What every sandbox needs, and nothing else."},
	{proxmox.ForNetworks, "For savepoint network apply."},
	{proxmox.ForTemplates, "For savepoint template build. Leave it out if you make the template."},
	{proxmox.ForDoctor, "For savepoint doctor to see quorum, clocks, packages and backup jobs, and for\n\t# placing sandboxes by free memory. Without it these are not known."},
}

// helpers are for the parts that give rights. Both can be repeated, and hide no error.
func (s *setup) helpers() {
	user, _, _ := strings.Cut(s.token, "!")
	s.line("role() {")
	s.line("	roles=$(pveum role list --output-format json)")
	s.line(`	case "$roles" in`)
	s.line(`	*"\"roleid\":\"$1\""*) pveum role modify "$1" --privs "$2" ;;`)
	s.line(`	*) pveum role add "$1" --privs "$2" ;;`)
	s.line("	esac")
	s.line("}")
	s.line("grant() {")
	s.line("	pveum acl modify \"$1\" --users '%s' --tokens '%s' --roles \"$2\"", user, s.token)
	s.line("}")
}

// roles writes the roles and where they are granted, part by part.
func (s *setup) roles() {
	for i, part := range parts {
		if i > 0 {
			s.line("")
		}
		s.part(part.only, part.title)
		if part.only != "" {
			continue
		}
		s.line("	# A template that savepoint did not build: pveum pool modify %s --vms ID", s.cfg.Cluster.Pool)
		if s.use.Zones {
			s.line("	# The networks of savepoint get their ids later, so it may use every zone but")
			s.line("	# the nodes' own bridges that are not named above.")
			s.line("	grant /sdn/zones/localnetwork NoAccess")
		}
	}
}

// part writes what one command needs, or with "" what every sandbox does: each role
// where it is needed first.
func (s *setup) part(only, title string) {
	all := func(major int) []proxmox.Privilege {
		return proxmox.Privileges(s.cfg.Cluster.Pool, proxmox.Version{Major: major, Minor: 4}, s.use)
	}
	old, _ := proxmox.Roles(all(8))
	now, _ := proxmox.Roles(all(9))
	_, grants := proxmox.Roles(slices.DeleteFunc(all(9), func(p proxmox.Privilege) bool { return p.Only != only }))
	s.line("	# %s", title)
	if len(grants) == 0 {
		s.line("	# Nothing is needed.")
	}
	for i, r := range now {
		if !s.made[r.Name] && slices.ContainsFunc(grants, func(g proxmox.Grant) bool { return g.Role == r.Name }) {
			s.made[r.Name] = true
			s.role(old[i], r)
		}
	}
	for _, g := range grants {
		s.line("	grant %s %s", g.Path, g.Role)
	}
}

// role writes one role. What only one release has is chosen when the script runs.
func (s *setup) role(old, now proxmox.Role) {
	without := func(list, others []string) []string {
		return slices.DeleteFunc(slices.Clone(list), func(p string) bool { return slices.Contains(others, p) })
	}
	privs := now.Privs
	only8, only9 := without(old.Privs, now.Privs), without(now.Privs, old.Privs)
	if len(only8)+len(only9) > 0 {
		s.line(`	case "$(pveversion)" in`)
		s.line("	pve-manager/8*) more='%s' ;;", strings.Join(only8, " "))
		s.line("	*) more='%s' ;;", strings.Join(only9, " "))
		s.line("	esac")
		privs = append(without(now.Privs, only9), "$more")
	}
	s.line("	role %s \"%s\"", now.Name, strings.Join(privs, " "))
}
