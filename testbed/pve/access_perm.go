package pve

import (
	"regexp"
	"slices"
	"strings"

	"savepoint/testbed/pve/access"
	"savepoint/testbed/pve/schema"
)

// The checks that are about a user or an access entry.
const (
	aboutSelf  = "self"  // the user is the caller himself
	aboutRealm = "realm" // users of that realm may be made
	aboutGroup = "group" // the privileges on all groups, or on one of the user's
	aboutEntry = "entry" // the path's entries may be changed
)

var (
	self      = permission{about: aboutSelf}
	realmUser = permission{about: aboutRealm}
	mayModify = permission{about: aboutEntry, path: "{path}"}
)

// groupOf needs one of the privileges on every group or, for a user that
// exists, on one of his.
func groupOf(groups string, privs ...string) permission {
	return permission{about: aboutGroup, groups: groups, privs: privs}
}

var reUserID = regexp.MustCompile(`^[^\s:/]+@[A-Za-z][A-Za-z0-9._-]+$`)

// splitUser returns the realm of a user's name.
func splitUser(id string) (realm string, err error) {
	if !reUserID.MatchString(id) || len(id) > 64 {
		return "", fail("value '%s' does not look like a valid user name", id)
	}
	return id[strings.LastIndexByte(id, '@')+1:], nil
}

func noUser(id string) error { return fail("no such user ('%s')", id) }

func (p permission) checkAbout(d *access.Directory, who caller, v schema.Values) error {
	if p.about == aboutEntry {
		path, ok := access.NormalizePath(v.Str("path"))
		if !ok {
			return nil // the call itself refuses it
		}
		return checkPrivs(d, who, path, true, modifyPrivs(path)...)
	}
	id := v.Str("userid")
	realm, err := splitUser(id)
	if err != nil {
		return err
	}
	switch p.about {
	case aboutRealm:
		return checkPrivs(d, who, "/access/realm/"+realm, false, "Realm.AllocateUser")
	case aboutSelf:
		switch {
		case d.State().Users[id] == nil:
			return noUser(id)
		case who.name != id:
			return forbidden("")
		}
		return nil
	}
	return p.checkGroups(d, who, id, v)
}

// checkGroups is who may change a user: whoever may on all groups, or on those
// the user is in and is put into.
func (p permission) checkGroups(d *access.Directory, who caller, id string, v schema.Values) error {
	st := d.State()
	u := st.Users[id]
	if p.groups != "create" && u == nil {
		return noUser(id)
	}
	if checkPrivs(d, who, "/access/groups", true, p.privs...) == nil {
		return nil
	}
	on := func(group string) bool {
		_, exists := st.Groups[group]
		return exists && checkPrivs(d, who, "/access/groups/"+group, true, p.privs...) == nil
	}
	list := strings.Join(p.privs, "|")
	if p.groups != "" {
		named := schema.SplitList(v.Str("groups"))
		if len(named) == 0 {
			return forbidden("/access/groups, " + list)
		}
		for _, g := range named {
			if !on(g) {
				return forbidden("/access/groups/" + g + ", " + list)
			}
		}
	}
	if p.groups != "create" && !slices.ContainsFunc(u.Groups, on) {
		return forbidden("")
	}
	return nil
}

// modifyPrivs are the privileges any of which allows to change the entries of
// a path.
func modifyPrivs(path string) []string {
	privs := []string{"Permissions.Modify"}
	for prefix, more := range map[string]string{"/storage/": "Datastore.Allocate", "/vms/": "VM.Allocate", "/pool/": "Pool.Allocate"} {
		if len(path) > len(prefix) && strings.HasPrefix(path, prefix) {
			privs = append(privs, more)
		}
	}
	return privs
}
